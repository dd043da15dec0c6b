"""`TaskGraph`: which tasks may start, and which data sets are still needed.

    graph = TaskGraph()
    graph.add("train", data=["ratings"])
    graph.add("test", after=["train"], data=["ratings"])
    graph.ready()                   # ["train"]
    graph.started("train")          # {"ratings"}: to be loaded
    graph.ended("train")            # "test" may start; "ratings" stays loaded for it

A task may start when all tasks it comes after have ended well. A data set is loaded once, by the first task that needs
it, and freed when the last task that needs it has ended.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from stretto.errors import PlanError, RunError

TaskStatus = Literal["waiting", "running", "done", "failed", "skipped"]


@dataclass
class _Node:
    after: tuple[str, ...]
    data: frozenset[str]
    status: TaskStatus = "waiting"


@dataclass(frozen=True)
class TaskEnd:
    """What follows from the end of a task."""

    ready: tuple[str, ...]  # tasks that may start now and could not before
    skipped: tuple[str, ...]  # tasks that never start, because one they come after has failed
    freed: frozenset[str]  # loaded data sets that no task needs any more


class TaskGraph:
    """Tasks, their dependencies, and the data sets they share. Tasks are listed in the order in which they were
    added.
    """

    def __init__(self) -> None:
        self._tasks: dict[str, _Node] = {}
        self._loaded: set[str] = set()

    def add(self, task: str, after: Iterable[str] = (), data: Iterable[str] = ()) -> None:
        """Add a task.

        Parameters
        ----------
        task : str
            Its name.
        after : iterable of str, default ()
            Tasks that must end before it starts. They may be added later; a cycle is refused.
        data : iterable of str, default ()
            Names of the data sets that it reads.
        """
        if task in self._tasks:
            raise PlanError(f"task {task} was added before; give each task a name of its own")
        node = _Node(tuple(dict.fromkeys(after)), frozenset(data))
        if path := self._path(node.after, task):
            shown = " → ".join([task, *path])
            raise PlanError(
                f"task {task} would wait for itself ({shown}, each after the next); drop one of these from after=…"
            )
        failed = [each for each in node.after if self._status(each) in ("failed", "skipped")]
        if failed:
            raise PlanError(f"task {task} comes after {', '.join(failed)}, which failed; submit that one again first")
        self._tasks[task] = node

    def ready(self) -> list[str]:
        """The tasks that may start."""
        return [task for task in self._tasks if self._may_start(task)]

    def started(self, task: str) -> frozenset[str]:
        """Note that a task starts. Returns the data sets that have to be loaded for it."""
        if not self._may_start(task):
            raise RunError(f"task {task} may not start: {self._why_not(task)}")
        node = self._tasks[task]
        node.status = "running"
        to_load = node.data - self._loaded
        self._loaded |= to_load
        return frozenset(to_load)

    def ended(self, task: str, *, failed: bool = False) -> TaskEnd:
        """Note that a running task has ended; `failed` also for one that was cancelled, even while it waited."""
        status = self._status(task)
        if status != "running" and not (failed and status == "waiting"):
            raise RunError(f"task {task} is {status or 'unknown'}; only a task that was started can end")
        before = set(self.ready())
        self._tasks[task].status = "failed" if failed else "done"
        skipped = self._skip() if failed else ()
        freed = frozenset(self._loaded - self.needed)
        self._loaded -= freed
        return TaskEnd(tuple(each for each in self.ready() if each not in before), skipped, freed)

    @property
    def needed(self) -> frozenset[str]:
        """The data sets that tasks need which have not ended."""
        return frozenset().union(*(node.data for node in self._tasks.values() if node.status in ("waiting", "running")))

    @property
    def loaded(self) -> frozenset[str]:
        """The data sets that were loaded and not freed."""
        return frozenset(self._loaded)

    @property
    def missing(self) -> dict[str, list[str]]:
        """Of each waiting task, the tasks in its `after` that were never added."""
        found = {task: [each for each in node.after if each not in self._tasks] for task, node in self._tasks.items()}
        return {task: names for task, names in found.items() if names}

    def status(self, task: str) -> TaskStatus:
        """Whether a task waits, runs, or how it ended."""
        if task not in self._tasks:
            raise RunError(f"task {task} is not known; add it first")
        return self._tasks[task].status

    def _status(self, task: str) -> TaskStatus | None:
        return self._tasks[task].status if task in self._tasks else None

    def _may_start(self, task: str) -> bool:
        node = self._tasks.get(task)
        return (
            node is not None and node.status == "waiting" and all(self._status(each) == "done" for each in node.after)
        )

    def _why_not(self, task: str) -> str:
        status = self._status(task)
        if status != "waiting":
            return f"it is {status or 'unknown'}"
        waits = [each for each in self._tasks[task].after if self._status(each) != "done"]
        return f"it comes after {', '.join(waits)}; wait for their end"

    def _path(self, starts: tuple[str, ...], goal: str) -> list[str]:
        """The tasks from one of `starts` to `goal`, each after the next; empty if there is no such path."""
        came: dict[str, str | None] = dict.fromkeys(starts)
        waiting = list(came)
        while waiting:
            task = waiting.pop()
            if task == goal:
                path: list[str] = []
                step: str | None = task
                while step is not None:
                    path.append(step)
                    step = came[step]
                return path[::-1]
            for each in self._tasks[task].after if task in self._tasks else ():
                if each not in came:
                    came[each] = task
                    waiting.append(each)
        return []

    def _skip(self) -> tuple[str, ...]:
        """Skip every waiting task that comes after one that failed or was skipped."""
        found: list[str] = []
        while True:
            hit = [
                task
                for task, node in self._tasks.items()
                if node.status == "waiting" and any(self._status(each) in ("failed", "skipped") for each in node.after)
            ]
            if not hit:
                return tuple(task for task in self._tasks if task in found)
            for task in hit:
                self._tasks[task].status = "skipped"
            found += hit
