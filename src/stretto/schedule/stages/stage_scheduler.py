"""`StageScheduler`: which stages start next, and where. A state machine: events in, assignments out, no clock.

    scheduler = StageScheduler([NodeSlots(0, workers=4), NodeSlots(1, workers=4)])
    scheduler.submit(0.0, StageRequest("train", "gradient", workers=6))
    for assignment in scheduler.schedule(0.0): ...      # start it
    scheduler.finished(1.5, "train", "gradient")

The stage is the unit of scheduling, as in FlexPS (section 5.2 of the paper). A task submits a stage when it is ready to
run. Stages that a task submits together may run together; a task whose stages follow each other submits the next when
the last has finished. `stage_placement` has the rules where a stage runs.

Of the waiting stages, the one with the highest `priority + aging × seconds waited` goes first. A later one may start
before it if only the later one fits. A stage that has waited for `starvation` seconds is starving (FlexPS compares its
priority with a threshold; by time, no priority of later stages can delay it). Starving stages go first, in the order of
their submission, and lock free workers: one that does not fit keeps all free workers that it could use, and no later
stage gets them.

**Starvation is bounded.** Suppose that no node leaves, every stage runs for at most D seconds, and `schedule` is called
after each event and at `due_at`. Let P be the period, or 0 if the threshold is 1. A stage that is submitted at time t,
with q stages waiting that were submitted before it, starts by

    t + starvation + (q + 1) × (D + P)

however many stages are submitted after it. Proof: from t + starvation on, the stage and all that wait since before it
are starving, so only those q stages can be ahead of it. Consider the first starving stage at time u. Without a
placement it locks every free worker, so no stage starts before it does; all that run at u have ended by u + D, and then
it fits, because requests that never fit were refused. With a placement the same holds for each of its nodes by itself:
on a node with too few free workers no stage starts, so by u + D the node has enough; and of a node that has enough,
later stages get only what remains beyond its lock. The scheduling that follows comes at most P later. So the first of
the list starts within D + P, and after at most q + 1 such waits the stage has started.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from stretto.checks import of
from stretto.errors import PlanError, RunError

from .stage_placement import lock, place
from .stage_values import Assignment, NodeSlots, PlacementRecord, SchedulingHistory, StageRequest, refusal


@dataclass(frozen=True)
class _Waiting:
    request: StageRequest
    since: float  # time of submission
    number: int  # of the submission, for ties


class StageScheduler:
    """Assigns the workers of nodes to stages.

    Parameters
    ----------
    nodes : iterable of NodeSlots
        The nodes at the start.
    threshold : int, default 1
        Free workers from which a scheduling is worth while at once.
    period : float, default 0.1
        Seconds after a scheduling at which the next is made even with fewer free workers.
    aging : float, default 1.0
        Priority that a second of waiting adds.
    starvation : float, default 30.0
        Seconds of waiting after which a stage is starving.
    """

    def __init__(
        self,
        nodes: Iterable[NodeSlots] = (),
        *,
        threshold: int = 1,
        period: float = 0.1,
        aging: float = 1.0,
        starvation: float = 30.0,
    ) -> None:
        check = of("StageScheduler")
        check.number("threshold", threshold, least=1, whole=True)
        check.number("period", period, least=0)
        check.number("aging", aging, least=0)
        check.number("starvation", starvation, least=0)
        self.threshold, self.period, self.aging, self.starvation = threshold, period, aging, starvation
        self._nodes: dict[int, NodeSlots] = {}
        self._leaving: set[int] = set()  # nodes that take no new stage
        self._free: dict[int, int] = {}
        self._locked: dict[int, int] = {}
        self._waiting: list[_Waiting] = []  # by number
        self._running: dict[tuple[str, str], tuple[_Waiting, Assignment]] = {}
        self._history: dict[str, SchedulingHistory] = {}
        self._submitted = self._turns = 0
        self._last = -math.inf  # time of the last scheduling
        self._changed: float | None = None  # time of the last event since then
        for node in nodes:
            self._join(node)

    # Events

    def submit(self, now: float, request: StageRequest) -> None:
        """Add a stage that is ready to run. One that can never fit is refused with what would fit."""
        if request.key in self._running or any(each.request.key == request.key for each in self._waiting):
            raise PlanError(f"{request.name} was submitted and has not finished; give each stage a name of its own")
        if why := refusal(request, self._staying()):
            raise PlanError(why)
        self._waiting.append(_Waiting(request, now, self._submitted))
        self._submitted += 1
        self._changed = now

    def finished(self, now: float, task: str, stage: str) -> None:
        """A stage that was assigned has ended: its workers are free."""
        if (task, stage) not in self._running:
            raise RunError(f"stage {stage} of task {task} is not running; report each assigned stage once")
        self._release(self._running.pop((task, stage))[1])
        for number in [each for each in self._leaving if self._free[each] == self._nodes[each].workers]:
            self._remove(number)
        self._changed = now

    def cancel(self, now: float, task: str) -> list[Assignment]:
        """Drop the waiting stages of a task. Returns its running stages, which count until they are `finished`."""
        self._waiting = [each for each in self._waiting if each.request.task != task]
        self._changed = now
        return [assignment for _, assignment in self._running.values() if assignment.task == task]

    def node_joined(self, now: float, node: NodeSlots) -> None:
        """Add a node."""
        self._join(node)
        self._changed = now

    def node_left(self, now: float, number: int, *, drain: bool = False) -> list[Assignment]:
        """Remove a node.

        Parameters
        ----------
        now : float
            Seconds.
        number : int
            The node.
        drain : bool, default False
            True: the stages that run on it end there, and it takes no new one. False: it is lost, with their work;
            they wait again, as of their first submission, and their workers on other nodes are free.

        Returns
        -------
        list of Assignment
            The stages that wait again, so that the caller stops what is left of them.
        """
        self._known(number)
        self._changed = now
        if drain and self._free[number] < self._nodes[number].workers:
            self._leaving.add(number)
            return []
        hit = [each for each in self._running.values() if number in each[1].workers_by_node]
        for waiting, assignment in hit:
            del self._running[assignment.key]
            self._release(assignment)
            self._waiting.append(waiting)
        self._waiting.sort(key=lambda each: each.number)
        self._remove(number)
        return [assignment for _, assignment in hit]

    def node_data(self, now: float, number: int, data: Iterable[str]) -> None:
        """Set the data sets of which a node holds a part."""
        self._known(number)
        self._nodes[number] = replace(self._nodes[number], data=frozenset(data))
        self._changed = now

    # Decisions

    def schedule(self, now: float) -> list[Assignment]:
        """The stages that start now; none before `due_at`."""
        due = self.due_at
        if due is None or now < due:
            return []
        self._last, self._changed = now, None
        nodes = self._staying()
        left = {number: self._free[number] for number in nodes}
        self._locked = dict.fromkeys(left, 0)
        found = []
        for waiting in self._ordered(now):
            if not any(left.values()):
                break
            assignment = self._try(now, waiting, nodes, left)
            if assignment is not None:
                found.append(assignment)
            elif self._starving(now, waiting) and not refusal(waiting.request, nodes):
                for number, workers in lock(waiting.request, left).items():
                    left[number] -= workers
                    self._locked[number] += workers
        return found

    @property
    def due_at(self) -> float | None:
        """When to call `schedule` next; None: not before another event.

        At once if the threshold of free workers is reached, else a period after the last scheduling. Only events make
        a waiting stage fit, so nothing is due until one has come.
        """
        if self._changed is None or not self._waiting:
            return None
        enough = sum(self._free[number] for number in self._staying()) >= self.threshold
        return self._changed if enough else max(self._changed, self._last + self.period)

    def _ordered(self, now: float) -> list[_Waiting]:
        """The waiting stages, the one to be considered first in front."""
        starving = [each for each in self._waiting if self._starving(now, each)]
        others = [each for each in self._waiting if not self._starving(now, each)]
        # Every stage ages at the same rate, so the order of two stages never changes and does not depend on `now`.
        return starving + sorted(
            others, key=lambda each: (self.aging * each.since - each.request.priority, each.number)
        )

    def _starving(self, now: float, waiting: _Waiting) -> bool:
        return now - waiting.since >= self.starvation

    def _try(
        self, now: float, waiting: _Waiting, nodes: Mapping[int, NodeSlots], left: dict[int, int]
    ) -> Assignment | None:
        """Assign a stage if it fits into the workers that are left, and take them."""
        request = waiting.request
        history = self._history.get(request.task, SchedulingHistory())
        where = place(request, nodes, left, history)
        if where is None:
            return None
        assignment = Assignment(request.task, request.stage, where)
        self._history.setdefault(request.task, history).add(now, assignment, self._turns)
        self._turns += 1
        self._running[request.key] = waiting, assignment
        self._waiting.remove(waiting)
        for number, workers in where.items():
            left[number] -= workers
            self._free[number] -= workers
        return assignment

    # What is known

    @property
    def nodes(self) -> Mapping[int, NodeSlots]:
        """The nodes, by number, with those that are leaving."""
        return dict(self._nodes)

    @property
    def free(self) -> Mapping[int, int]:
        """Workers of each node on which no stage runs, with the locked ones."""
        return dict(self._free)

    @property
    def locked(self) -> Mapping[int, int]:
        """Free workers of each node that the last scheduling kept for starving stages."""
        return dict(self._locked)

    @property
    def running(self) -> list[Assignment]:
        """The stages that run, in the order of their start."""
        return [assignment for _, assignment in self._running.values()]

    @property
    def waiting(self) -> list[StageRequest]:
        """The stages that wait, in the order of their submission."""
        return [each.request for each in self._waiting]

    @property
    def stuck(self) -> dict[tuple[str, str], str]:
        """Waiting stages that do not fit the nodes that are left, with the reason: a node must join, or they must be
        cancelled. They lock nothing.
        """
        found = {each.request.key: refusal(each.request, self._staying()) for each in self._waiting}
        return {key: why for key, why in found.items() if why}

    def starving(self, now: float) -> list[StageRequest]:
        """The starvation list, first one first."""
        return [each.request for each in self._waiting if self._starving(now, each)]

    def history(self, task: str) -> tuple[PlacementRecord, ...]:
        """Where the stages of a task were placed, oldest first."""
        return tuple(self._history[task].records) if task in self._history else ()

    def forget(self, task: str) -> None:
        """Drop the history of a task that has ended."""
        if any(key[0] == task for key in self._running) or any(each.request.task == task for each in self._waiting):
            raise RunError(f"task {task} has stages that wait or run; forget it when all have finished")
        self._history.pop(task, None)

    # Nodes

    def _staying(self) -> dict[int, NodeSlots]:
        """The nodes that take new stages."""
        return {number: node for number, node in self._nodes.items() if number not in self._leaving}

    def _join(self, node: NodeSlots) -> None:
        if node.number in self._nodes:
            raise PlanError(f"node {node.number} is known already; give each node a number of its own")
        self._nodes[node.number] = node
        self._nodes = dict(sorted(self._nodes.items()))
        self._free[node.number], self._locked[node.number] = node.workers, 0

    def _known(self, number: int) -> None:
        if number not in self._nodes:
            raise RunError(f"node {number} is not known; the nodes are: {', '.join(map(str, self._nodes)) or 'none'}")

    def _remove(self, number: int) -> None:
        del self._nodes[number], self._free[number]
        self._locked.pop(number, None)
        self._leaving.discard(number)

    def _release(self, assignment: Assignment) -> None:
        for number, workers in assignment.workers_by_node.items():
            self._free[number] += workers
