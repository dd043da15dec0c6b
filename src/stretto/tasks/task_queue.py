"""`TaskQueue`: several tasks on one runtime. Behind `st.Session.submit`.

    session = st.Session()
    train = session.submit(train_task)
    test = session.submit(test_task, after=[train])
    test.result()

Each task walks its own tree. All of them ask the same gate for workers, so stages of independent tasks run at the same
time. Data that several tasks use are loaded once. Data, and what nodes hold of states, are freed when the last task
that needs them has ended.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Any

from stretto.checks import number, shown, whole
from stretto.errors import PlanError, RunError
from stretto.runtime.stages.background import Background
from stretto.runtime.stages.gate import StageCancelled
from stretto.runtime.stages.sessions import open_stages
from stretto.runtime.stages.stage_clock import unique_name
from stretto.runtime.stages.tuning_events import tell_move
from stretto.schedule.stages.task_graph import TaskGraph

from .arguments import LOADED
from .logical import arguments_of
from .placing import gate_of, slots_of
from .result import TaskResult
from .run import OnEvent, plan_for
from .task_run import DataNames, OnStage, TaskEnvironment, TaskOptions, TaskRun
from .tree import Task


class SubmittedTask:
    """A task that was submitted.

    Attributes
    ----------
    name : str
        Its name in plans and messages.
    """

    def __init__(self, name: str, queue: TaskQueue) -> None:
        self.name, self._queue = name, queue
        self._result: TaskResult | None = None
        self._error: BaseException | None = None
        self.cancelled = False

    @property
    def status(self) -> str:
        """One of "waiting", "running", "done", "failed" and "skipped" (one that it comes after has failed)."""
        return self._queue.status(self)

    def result(self, timeout: float | None = None) -> TaskResult:
        """Wait for the end of the task.

        Parameters
        ----------
        timeout : float or None, default None
            Seconds to wait; None for no limit.

        Returns
        -------
        TaskResult

        Raises
        ------
        RunError
            If the task failed, was cancelled, or did not end in time.
        """
        return self._queue.result(self, timeout)

    def cancel(self) -> None:
        """End the task: stages that wait are dropped, one that runs ends first. Tasks after it are skipped."""
        self._queue.cancel(self)

    def __repr__(self) -> str:
        return f"<task {self.name}: {self.status}>"


@dataclass(frozen=True, eq=False)
class _Entry:
    handle: SubmittedTask
    task: Task
    priority: float
    seed: int
    tell: OnStage | None
    on_event: OnEvent | None


class TaskQueue:
    """The tasks of one session, on one runtime."""

    def __init__(self, runtime: Any) -> None:
        self.runtime = runtime
        self._open = ExitStack()
        stages = self._open.enter_context(open_stages(runtime))
        self._names = DataNames(unique_name("session"))
        self._open.callback(self._names.release)
        self._environment = TaskEnvironment(stages, runtime, gate_of(stages.nodes, stages.threads), self._names)
        self._graph = TaskGraph()
        self._entries: dict[str, _Entry] = {}
        self._background = Background()
        self._numbers = count()

    def submit(
        self,
        task: Any,
        after: Sequence[Any],
        priority: float,
        seed: int,
        name: str | None,
        tell: OnStage | None,
        on_event: OnEvent | None = None,
    ) -> SubmittedTask:
        """Add a task; it starts as soon as the tasks that it comes after have ended."""
        if not isinstance(task, Task):
            raise PlanError(f"submit: {shown(task)} is not a task; give st.unit(…), st.seq(…) or st.loop(…)")
        number("priority", priority, owner="submit")
        for other in after:
            if not isinstance(other, SubmittedTask) or other._queue is not self:
                raise PlanError(
                    f"submit: after={shown(other)} was not submitted to this session; give what submit returned"
                )
        plan_for(task, self.runtime)  # raises now if it can never run
        with self._background:
            called = name or f"task {next(self._numbers)}"
            handle = SubmittedTask(called, self)
            used = [
                f"{'state' if a.kind == 'state' else 'data'} {self._names.number(a.value)}"
                for a in arguments_of(task)
                if a.kind in LOADED or a.kind == "state"
            ]
            self._graph.add(called, [other.name for other in after], used)
            seeded = whole("seed", seed, None, "submit")
            self._entries[called] = _Entry(handle, task, float(priority), seeded, tell, on_event)
            self._start_ready()
        return handle

    def result(self, handle: SubmittedTask, timeout: float | None) -> TaskResult:
        """Wait for a task and return its result."""
        with self._background:
            if not self._background.wait(
                lambda: self._graph.status(handle.name) not in ("waiting", "running"), timeout
            ):
                raise RunError(
                    f"task {handle.name} has not ended after {timeout:g} s; it is {self._graph.status(handle.name)}"
                )
            status = self._graph.status(handle.name)
        if handle._result is not None:
            return handle._result
        if handle._error is not None and not handle.cancelled:
            raise handle._error
        what = "was cancelled" if handle.cancelled else "was skipped: a task that it comes after has failed"
        raise RunError(f"task {handle.name} {what}" if status != "done" else f"task {handle.name} has no result")

    def status(self, handle: SubmittedTask) -> str:
        """The status of a task."""
        with self._background:
            return self._graph.status(handle.name)

    def cancel(self, handle: SubmittedTask) -> None:
        """Cancel a task."""
        with self._background:
            status = self._graph.status(handle.name)
            if status not in ("waiting", "running"):
                return
            handle.cancelled = True
            freed = self._end(handle.name, failed=True) if status == "waiting" else []
        self._free(freed)
        self._environment.gate.cancel(handle.name)

    def add_node(self) -> int:
        """Start one more node of a cluster."""
        number = self._nodes("add_node").add_node()
        self._environment.gate.joined(slots_of(number, self._environment.stages.threads))
        return int(number)

    def remove_node(self, node: Any) -> None:
        """End a node of a cluster when the stages that run on it have ended."""
        stages = self._nodes("remove_node")
        if node not in stages.nodes or len(stages.nodes) == 1:
            raise PlanError(
                f"remove_node: node {shown(node)} of {', '.join(map(str, stages.nodes))}; give one of these, and keep "
                "at least one"
            )
        self._environment.gate.leaves(node)
        stages.remove_node(node)

    def _nodes(self, what: str) -> Any:
        stages: Any = self._environment.stages
        if not hasattr(stages, what):
            raise PlanError(f"{what}: {shown(self.runtime)} has a fixed number of nodes; run on st.Cluster(…)")
        return stages

    def close(self) -> None:
        """Wait for all tasks, then close the runtime and free the data."""
        with self._background:
            self._background.wait(
                lambda: all(self._graph.status(n) not in ("waiting", "running") for n in self._entries)
            )
        self._open.close()

    # -- with the lock ------------------------------------------------------------------------------------------------

    def _start_ready(self) -> None:
        for name in self._graph.ready():
            self._graph.started(name)
            entry = self._entries[name]
            self._background.start(name, lambda entry=entry: self._run(entry))  # type: ignore[misc]

    def _end(self, name: str, failed: bool) -> list[tuple[str, int]]:
        """Note the end of a task; return ("data" or "state", number) of what no task needs any more."""
        end = self._graph.ended(name, failed=failed)
        freed = [(kind, int(which)) for kind, which in (each.split() for each in end.freed)]
        for _, which in freed:
            self._names.release(which)
        self._start_ready()
        self._background.changed()
        return freed

    # -- a thread for each task ---------------------------------------------------------------------------------------

    def _run(self, entry: _Entry) -> None:
        handle = entry.handle
        try:
            plan = plan_for(entry.task, self.runtime)
            running = TaskRun(
                plan,
                self._environment,
                name=handle.name,
                priority=entry.priority,
                options=TaskOptions(entry.seed),
                tell=entry.tell,
                on_move=None if entry.on_event is None else partial(tell_move, entry.on_event),
            )
            result = running.run(lambda: handle.cancelled)
            if result.stopped == "done":
                handle._result = result
        except StageCancelled:
            pass
        except BaseException as error:
            handle._error = error
        with self._background:
            freed = self._end(handle.name, failed=handle._result is None)
        self._free(freed)

    def _free(self, freed: Sequence[tuple[str, int]]) -> None:
        """Free data sets and states on nodes: without the lock, which others need while the nodes answer."""
        stages, owner = self._environment.stages, self._names.owner
        for kind, which in freed:
            (stages.release if kind == "state" else stages.release_data)(owner, which)
