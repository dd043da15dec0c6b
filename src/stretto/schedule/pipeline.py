"""Pipeline of rounds: which choose, update and aggregate tasks may start now, with several rounds in flight.

With depth s, round t is chosen from, and its jobs read, exactly the parameters after round t − s; for t ≤ s that is the
start. So up to s rounds are in flight, and the time at which a job runs changes no result:

    choose(t)       after choose(t − 1) and aggregate(t − s)
    update(t, k)    after choose(t)
    aggregate(t)    after every update(t, k) and aggregate(t − 1)

    depth 1     choose 1, update 1, aggregate 1, choose 2, update 2, …
    depth 2     choose 1, choose 2, update 1, aggregate 1, choose 3, update 2, aggregate 2, …

A free worker takes an aggregation first, because other tasks wait for it; then a choice, so that the schedule runs
ahead of the workers; then the most urgent job of the oldest round. If the jobs of a round wait for each other
(`waiting.JobOrder`), each is aggregated by itself as soon as it is updated; that needs depth 1.

A run ends at the same task whatever its timing. A task that fails, or the last round, stops only tasks that come later
in the serial order choose 1, update 1, aggregate 1, choose 2, …; all earlier tasks still run. This is the pipelining of
SMPFRAME's dynamic engine (Equation 3), with exact staleness.

If data are cut into parts, an update is a job on one part: update k is job k // parts on part k % parts. If parts have
their own state (`ordered`), the updates of a part run one after another in serial order. With `save_every`, no update
of round t begins before the last saved round before t is aggregated, so that the state can be saved after that round.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from stretto.errors import PlanError, RunError

from .waiting import JobOrder, Queue

CHOOSE, UPDATE, AGGREGATE = range(3)
STAGES = ("choose", "update", "aggregate")
WHOLE = -1  # the job of a task that concerns all jobs of its round


class StageTask(NamedTuple):
    """One task of a run."""

    stage: int  # choose, update or aggregate
    round: int  # from 1
    job: int = WHOLE  # number of the job in the round, or WHOLE

    @property
    def key(self) -> tuple[int, ...]:
        """Position of the task in the serial order; tasks that it waits for have smaller keys."""
        if self.job == WHOLE:
            return self.round, self.stage
        return self.round, UPDATE, self.job, self.stage


@dataclass(slots=True)
class _OpenRound:
    """A round between its choice and its end."""

    left: int  # jobs that are not aggregated; if all are aggregated together, jobs that are not updated
    queue: Queue | None = None  # of jobs that wait for each other
    updated: list[int] = field(default_factory=list)  # jobs that wait to be aggregated one by one, a heap
    begun: bool = False  # whether some of its jobs are aggregated


class Pipeline:
    """The state of a run.

    Parameters
    ----------
    depth : int
        Rounds in flight.
    rounds : int or None
        The last round; None for no limit.
    ordered : int
        Parts whose updates run in serial order; 0: updates run in any order.
    save_every : int or None
        Rounds after which the state of parts is saved; None: never.
    """

    def __init__(
        self, depth: int, rounds: int | None = None, *, ordered: int = 0, save_every: int | None = None
    ) -> None:
        if depth < 1:
            raise PlanError(f"pipeline={depth}: at least one round is in flight; pass 1 for no pipelining")
        self.depth = depth
        self.done = 0  # rounds that are aggregated
        self.running: set[StageTask] = set()
        self._chosen = 0
        self._flights: dict[int, _OpenRound] = {}
        self._updates: list[tuple[int, int, int]] = []  # (round, place, job), a heap
        self._waiting: list[deque[tuple[int, int]]] = [deque() for _ in range(ordered)]  # (round, job) by part
        self._busy = [False] * ordered  # parts with an update in the heap or under way
        self._save_every = save_every
        self._choosing = self._aggregating = False
        self._held: float = math.inf  # no later round is chosen before this one is aggregated
        self._limit: tuple[float, ...] = (math.inf,) if rounds is None else (rounds + 1,)

    def reads(self, number: int) -> int:
        """The version of the parameters that round `number` reads: that after this round; 0 is the start."""
        return max(0, number - self.depth)

    def in_turns(self, number: int) -> bool:
        """Whether the jobs of a round in flight wait for each other."""
        flight = self._flights.get(number)
        return flight is not None and flight.queue is not None

    @property
    def ready(self) -> bool:
        """Whether a task may start now."""
        return bool(self._aggregate() or self._choose() or self._update())

    @property
    def over(self) -> bool:
        """Whether no task is running and none will start."""
        return not self.running and not self.ready

    @property
    def settled(self) -> bool:
        """Whether no task that still counts is running or can start. Updates of rounds after the end may run."""
        return not self.ready and all(self._wanted(task) is None for task in self.running)

    def resume(self, done: int, chosen: Mapping[int, int]) -> None:
        """Start after round `done`. chosen: number of updates of each later round that was already chosen, in order."""
        self.done = self._chosen = done
        for number, updates in chosen.items():
            self._chosen = number
            self._flights[number] = _OpenRound(updates)
            self._offer(number, updates)

    def hold_after(self, number: int) -> None:
        """Choose no round after this one before it is aggregated, so that nothing is in flight then."""
        self._held = number

    def take(self) -> StageTask | None:
        """The most urgent task that may start now; None: no task may start before another has ended."""
        task = self._aggregate() or self._choose() or self._update()
        if task is None:
            return None
        if task.stage == CHOOSE:
            self._choosing = True
        elif task.stage == UPDATE:
            heapq.heappop(self._updates)
        else:
            self._aggregating = True
            if task.job != WHOLE:
                heapq.heappop(self._flights[task.round].updated)
        self.running.add(task)
        return task

    def chosen(self, task: StageTask, jobs: int, turns: JobOrder | None = None) -> None:
        """Note that a round was chosen. jobs: their number; 0: the schedule has no jobs left."""
        self._end(task)
        self._choosing = False
        if not jobs:
            self.stop(after=task.round - 1)
            return
        if turns is not None and self.depth > 1:
            raise PlanError("jobs that wait for each other read what was just written: use pipeline=1")
        self._chosen = task.round
        flight = self._flights[task.round] = _OpenRound(jobs, None if turns is None else Queue(turns))
        if flight.queue is None:
            self._offer(task.round, jobs)
        else:
            self._release(task.round, flight.queue)

    def updated(self, task: StageTask) -> None:
        """Note that a job was updated."""
        self._end(task)
        flight = self._flights[task.round]
        if flight.queue is None:
            flight.left -= 1
        else:
            heapq.heappush(flight.updated, task.job)
        if self._waiting:
            part = task.job % len(self._waiting)
            self._busy[part] = False
            self._offer_next(part)

    def aggregated(self, task: StageTask) -> None:
        """Note that a round, or a job that is aggregated by itself, is in the parameters."""
        self._end(task)
        self._aggregating = False
        flight = self._flights[task.round]
        flight.begun = True
        if flight.queue is not None:
            flight.left -= 1
            flight.queue.finish(task.job)
            self._release(task.round, flight.queue)
        if not flight.left:
            del self._flights[task.round]
            self.done = task.round

    def failed(self, task: StageTask) -> None:
        """Note that a task failed: no task after it in the serial order will start."""
        self._end(task)
        self._choosing &= task.stage != CHOOSE
        self._aggregating &= task.stage != AGGREGATE
        self._limit = min(self._limit, task.key)

    def stop(self, after: int) -> None:
        """End the run after a round; results of later rounds are discarded."""
        self._limit = min(self._limit, (after + 1,))

    def halt(self) -> None:
        """End as soon as the parameters are consistent: now, or after the round that is partly aggregated."""
        flight = self._flights.get(self.done + 1)
        self.stop(after=self.done + (flight is not None and (flight.begun or self._aggregating)))

    def reached(self, task: StageTask) -> bool:
        """Whether the serial run would reach this task, so that its failure counts."""
        return task.key <= self._limit

    def last_job(self, task: StageTask) -> bool:
        """Whether a running aggregation is the last task of its round."""
        return task.job == WHOLE or self._flights[task.round].left == 1

    def _offer(self, number: int, updates: int) -> None:
        """Make the updates of a round available, in serial order within each part if parts are ordered."""
        if not self._waiting:
            for job in range(updates):
                heapq.heappush(self._updates, (number, job, job))
            return
        for job in range(updates):
            self._waiting[job % len(self._waiting)].append((number, job))
        for part in range(len(self._waiting)):
            self._offer_next(part)

    def _offer_next(self, part: int) -> None:
        if not self._busy[part] and self._waiting[part]:
            number, job = self._waiting[part].popleft()
            self._busy[part] = True
            heapq.heappush(self._updates, (number, job, job))

    def _release(self, number: int, queue: Queue) -> None:
        while queue.ready:
            place, job = heapq.heappop(queue.ready)
            heapq.heappush(self._updates, (number, place, job))

    def _aggregate(self) -> StageTask | None:
        flight = self._flights.get(self.done + 1)
        if flight is None or self._aggregating:
            return None
        if flight.queue is None:
            return None if flight.left else self._wanted(StageTask(AGGREGATE, self.done + 1))
        return self._wanted(StageTask(AGGREGATE, self.done + 1, flight.updated[0])) if flight.updated else None

    def _choose(self) -> StageTask | None:
        number = self._chosen + 1
        needed = self._chosen if number > self._held else number - self.depth
        return None if self._choosing or self.done < needed else self._wanted(StageTask(CHOOSE, number))

    def _update(self) -> StageTask | None:
        while self._updates:
            number, _, job = self._updates[0]
            if task := self._wanted(StageTask(UPDATE, number, job)):
                return None if self._saved_before(number) > self.done else task
            heapq.heappop(self._updates)  # safe to discard: the limit never rises
        return None

    def _saved_before(self, number: int) -> int:
        """The last round before this one after which the state of parts is saved."""
        return 0 if self._save_every is None else (number - 1) // self._save_every * self._save_every

    def _wanted(self, task: StageTask) -> StageTask | None:
        return task if task.key < self._limit else None

    def _end(self, task: StageTask) -> None:
        if task not in self.running:
            raise RunError(f"{STAGES[task.stage]} of round {task.round}, job {task.job} was not under way")
        self.running.remove(task)
