"""A simulated node of a static plan: visits run the real compiled kernel, one after another, and take virtual time.

A node has `threads` workers. Of the visits whose row block and column block are present and at their turn, a free
worker takes the one with the highest priority; which worker makes a visit does not change results. A visit takes `items
· seconds_per_item / speed`, times the node's current slowness, plus its share of the time that the node spent on
messages during the worker's last visit.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from stretto.kernels.core import claims
from stretto.runtime.cluster.blocks.loaded_step import LoadedStep
from stretto.runtime.cluster.blocks.node import RingNode, StartedRun
from stretto.runtime.cluster.blocks.ring import Block
from stretto.runtime.cluster.blocks.step_messages import LoadStep, NodeProgress, NodeRunResult, StartRun, nothing
from stretto.runtime.simulated.virtual_time import Hub

from .shared_memory import SharedStep, SharedSteps


class MachineApi(Protocol):
    """The services of a machine that a node uses."""

    hub: Hub
    spent: float  # seconds of a core that handling messages took so far
    shared: SharedSteps

    def seconds(self, items: float) -> float:
        """Seconds that a worker takes for a number of items, if it begins now."""


class NodeVisits:
    """The visits of one run on a node, and their progress."""

    __slots__ = (
        *(
            "args",
            "began",
            "busy",
            "col_done",
            "ends",
            "failed",
            "free",
            "left",
            "log",
            "moved",
            "next",
            "number",
            "only",
        ),
        *("ready", "running", "spent_before", "started", "step", "stopped"),
    )

    started: StartedRun
    args: list[Any]

    def __init__(
        self, step: SharedStep, loaded: LoadedStep, go: StartRun, done: list[int], now: float, threads: int, node: int
    ) -> None:
        tables = step.tables
        self.step, self.began, self.col_done = step, now, done
        self.only = None if go.only is None else set(go.only.tolist())
        self.number: dict[int, int] | None = None  # numbers of a phase's visits, from 0
        if go.phase is not None:
            self.number = {visit: k for k, visit in enumerate(go.phase.tolist())}
            self.only = set(self.number)
        gone = set(go.finished.tolist())
        self.next: dict[int, int] = {}  # by row block: its next visit, −1: none
        self.left = 0  # visits to make
        for row in step.route.own_rows(node).tolist():
            visits = [v for v in tables.rows[row] if v not in gone] if gone else tables.rows[row]
            if self.only is not None:
                visits = [v for v in visits if v in self.only]
            self.next[row] = visits[0] if visits else -1
            self.left += len(visits)
        col, turn, urgency = tables.col, tables.turn, tables.urgency
        self.ready = [(urgency[v], v) for v in self.next.values() if v >= 0 and done[col[v]] == turn[v]]
        heapify(self.ready)
        self.free = list(range(threads - 1, -1, -1))
        self.ends = [0.0] * threads  # by worker: the end of its visit
        self.spent_before = [0.0] * threads  # by worker: the node's message time when it began its last visit
        self.running = 0
        self.stopped = False
        self.failed = -1
        self.busy = 0.0  # seconds that workers computed
        self.moved = 0  # bytes of blocks sent
        self.log: list[tuple[int, int, int, int]] = []


class VirtualNode(RingNode):
    """A node on a simulated machine. report(what, value) sends an event to the driver."""

    def __init__(
        self,
        number: int,
        threads: int,
        send: Callable[[int, Block], None],
        machine: MachineApi,
        report: Callable[[str, Any], None],
    ) -> None:
        super().__init__(number, threads, send)
        self._machine, self._hub, self._report = machine, machine.hub, report
        self._gos: deque[StartRun] = deque()  # runs to make, the current one first
        self._run: NodeVisits | None = None
        self._owed = [0.0] * threads  # by worker: seconds of message handling to add to its next visit
        self.made = 0  # visits made

    # -- calls of the driver -----------------------------------------------------------------------------------------

    def load(self, load: LoadStep) -> None:
        """Allocate the arrays of a step and fill in the constant ones."""
        self._plans[load.plan] = self._machine.shared.step(load).load(load, self.number, self._threads)

    def drop(self, plan: int) -> None:
        """Free a step."""
        super().drop(plan)
        self._machine.shared.drop(plan)

    def enqueue(self, go: StartRun) -> None:
        """Make a run, after those that were requested before."""
        if not go.ahead:
            self.begin(go)
        self._gos.append(go)
        if len(self._gos) == 1:
            self._begin_next()

    def progress(self) -> NodeProgress | None:
        """The progress of the current run; None without one."""
        run = self._run
        if run is None:
            return NodeProgress((self._epoch,), 1) if self._gos else None
        return NodeProgress(self._mark(run.started.loaded.ring, run.left), run.running + len(run.ready))

    def halt(self) -> None:
        """Make no more visits and report nothing: the results of a lost node are lost."""
        self._run = None
        self._gos.clear()
        super().halt()

    def hold_up(self, seconds: float) -> None:
        """The machine pauses: the current work of its workers takes this much longer."""
        if self._run is not None:
            self._run.ends = [end + seconds for end in self._run.ends]

    # -- a run -------------------------------------------------------------------------------------------------------

    def _prepare(self, loaded: LoadedStep, go: StartRun) -> NDArray[np.float64]:
        return loaded.prepare(go, self._machine.shared.results(go, len(loaded.load.order)))

    def _begin_next(self) -> None:
        """Begin the first of the waiting runs; runs that end at once have ended when this returns."""
        while self._gos and self._run is None:
            go = self._gos[0]
            started = self.start(go)
            if started is None:
                self._end(nothing(go.epoch))
                continue
            self._go_on(started)

    def _go_on(self, started: StartedRun) -> None:
        """Make the visits of a run that `_begin_visits` has prepared."""
        run = self._run
        assert run is not None
        run.started, run.args = started, started.loaded.call()
        if not self._end_if_over(run):
            self._assign(run)

    def _begin_visits(self, loaded: LoadedStep, go: StartRun, done: Any, stopped: bool) -> None:
        step = self._machine.shared.step(loaded.load)
        self._run = NodeVisits(step, loaded, go, done.tolist(), self._hub.now, self._threads, self.number)
        if stopped:
            self._run.stopped = True
            self._run.ready.clear()

    def _end_visits(self) -> None:
        run = self._run
        if run is not None and not run.stopped:
            run.stopped = True
            run.ready.clear()
            if self._end_if_over(run):
                self._begin_next()

    def _release(self, block: int, turn: int) -> None:
        run = self._run
        if run is None:
            return
        run.col_done[block] = turn
        tables = run.step.tables
        visit = tables.by_col[block][turn]
        if run.next.get(tables.row[visit]) == visit and not run.stopped:
            heappush(run.ready, (tables.urgency[visit], visit))
            self._assign(run)

    def _assign(self, run: NodeVisits) -> None:
        """Let free workers begin visits that are ready."""
        ready, free, hub = run.ready, run.free, self._hub
        machine, weight, now = self._machine, run.step.tables.weight, hub.now
        while ready and free:
            visit = heappop(ready)[1]
            worker = free.pop()
            took = machine.seconds(weight[visit]) + self._owed[worker]
            run.spent_before[worker] = machine.spent
            run.ends[worker] = end = now + took
            run.running += 1
            hub.at(end, self._finish, (run, visit, worker, now))

    def _finish(self, what: tuple[NodeVisits, int, int, float]) -> None:
        """The time of a visit has passed: make it, and start what may follow."""
        run, visit, worker, began = what
        if run is not self._run:
            return  # the node was lost
        hub = self._hub
        now = hub.now
        if run.ends[worker] > now:  # the machine was paused
            hub.at(run.ends[worker], self._finish, what)
            return
        loaded, _, out = run.started
        run.running -= 1
        run.free.append(worker)
        run.busy += now - began
        try:
            number = visit if run.number is None else run.number[visit]
            well = run.step.one.make(loaded.compiled, number, worker, out, run.args)
        except Exception as error:
            run.stopped = True
            run.ready.clear()
            self._report("failed", error)
            self._end_if_over(run)
            return
        self.made += 1
        finished = True
        if not well:
            run.failed = number if run.failed < 0 else run.failed
            run.stopped = True
            run.ready.clear()
            finished = run.step.one.finished
        if finished:
            start = run.began
            lane = worker + self.number * self._threads
            run.log.append((number, lane, int((began - start) * 1e9), int((now - start) * 1e9)))
            run.left -= 1
            self._follow(run, loaded, visit)
        machine = self._machine
        self._owed[worker] = (machine.spent - run.spent_before[worker]) / self._threads
        if run.ready:
            self._assign(run)
        elif not run.running and self._end_if_over(run):
            self._begin_next()

    def _follow(self, run: NodeVisits, loaded: LoadedStep, visit: int) -> None:
        """After a visit: send its column block on, or find the visits that are ready now."""
        tables, col_done = run.step.tables, run.col_done
        block = tables.col[visit]
        turn = tables.turn[visit] + 1
        col_done[block] = turn
        after = tables.row_next[visit]
        if run.only is not None and after not in run.only:
            after = -1
        run.next[tables.row[visit]] = after
        below = -1
        if loaded.ring.leave_at[block] == turn:
            run.moved += self.hand_on(loaded, block)
        elif turn < len(tables.by_col[block]):
            below = tables.by_col[block][turn]
        if run.stopped:
            return
        if after >= 0 and col_done[tables.col[after]] == tables.turn[after]:
            heappush(run.ready, (tables.urgency[after], after))
        if below >= 0 and below != after and run.next.get(tables.row[below]) == below:
            heappush(run.ready, (tables.urgency[below], below))

    def _end_if_over(self, run: NodeVisits) -> bool:
        """Report a run that is finished or was stopped; return whether it is."""
        if run.running or not (run.stopped or run.left == 0):
            return False
        seconds = self._hub.now - run.began
        log = np.array(run.log, np.int64).reshape(-1, claims.LOG_COLUMNS)
        waited = max(0.0, self._threads * seconds - run.busy)
        ran = self.result(run.started, log, run.left, run.failed, seconds, waited, run.moved)
        self._run = None
        self._end(ran)
        return True

    def _end(self, ran: NodeRunResult) -> None:
        self._gos.popleft()
        self._report("ran", ran)
