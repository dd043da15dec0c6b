"""A node that makes the visits of a static plan with compiled workers on threads.

The workers and their `Pass` are the same as on one machine, but only the visits of the node's own row blocks are
present. One more thread waits for column blocks that have to leave (`kernels.core.departures`), copies and sends them.
Blocks that arrive are copied into the arrays on the network thread.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np

from stretto.kernels.core import claims
from stretto.kernels.core.clock import read_cycles
from stretto.kernels.core.departures import arrive, await_departures
from stretto.runtime.blocks import pass_control
from stretto.runtime.blocks.team import Team
from stretto.runtime.cluster.hosts.calls import BeginTask, HostApi
from stretto.runtime.cluster.hosts.remote_errors import portable
from stretto.schedule.orders.order import Ints

from .loaded_step import LoadedStep
from .node import RingNode
from .pager import Pager
from .ring import Block
from .step_messages import NodeProgress, NodeRunResult, StartRun, nothing
from .task import RingTask

# Microseconds between two checks, of workers that wait for a block and of the thread that waits for blocks to leave. A
# check costs about ten microseconds of processor time, and a block travels for milliseconds.
NAP, WATCH = 250, 500


def make_ring_task(host: HostApi, begin: BeginTask) -> RingTask:
    """Create the task; for `BeginTask.make`."""
    return ThreadedTask(host, begin)


class ThreadedTask(RingTask):
    """A task whose nodes make their visits on threads."""

    nodes: dict[int, ThreadedNode]

    def __init__(self, host: HostApi, begin: BeginTask) -> None:
        self._runs: dict[int, threading.Thread] = {}  # by node: the thread that makes its runs
        self._gos: dict[int, deque[StartRun]] = {}  # by node: runs to make, the current one first
        self._turns = threading.Lock()  # guards these two
        super().__init__(host, begin)

    def _node(self, number: int) -> ThreadedNode:
        return ThreadedNode(number, self._host.threads, lambda to, block: self._send(number, to, block))

    def halt(self) -> None:
        """End all threads."""
        self._links.halt()
        for node in self.nodes.values():
            node.stop(0)
        for thread in list(self._runs.values()):
            thread.join()
        super().halt()

    def _progress(self) -> dict[int, NodeProgress]:
        return {n: self.nodes[n].progress() for n, gos in self._gos.items() if gos}

    def _run(self, go: StartRun) -> None:
        for number, node in self.nodes.items():
            if not go.ahead:
                node.begin(go)
            with self._turns:
                gos = self._gos.setdefault(number, deque())
                gos.append(go)
                if len(gos) > 1:
                    continue  # the thread of the current run starts the next one
                name = f"stretto-ring-{number}"
                self._runs[number] = threading.Thread(target=self._make, args=(node, gos), name=name, daemon=True)
                self._runs[number].start()

    def _make(self, node: ThreadedNode, gos: deque[StartRun]) -> None:
        """Make a node's runs until none is left."""
        more = True
        while more:
            go = gos[0]
            what: str
            value: Any
            try:
                what, value = "ran", node.run(go)
            except BaseException as error:
                what, value = "failed", (-1, go.epoch, portable(error))
                node.stop(0)
            # Reported after it is removed: the driver may request the next run at once.
            with self._turns:
                gos.popleft()
                more = bool(gos)
            self._tell(what, node.number, value)


class ThreadedNode(RingNode):
    """A node with threads.

    Parameters
    ----------
    send : function(node, block)
        Sends a block to another node.
    """

    def __init__(self, number: int, threads: int, send: Callable[[int, Block], None]) -> None:
        self._changed = threading.Condition()
        super().__init__(number, threads, send, self._changed)
        self._team = Team(threads)
        self._pass: claims.Pass | None = None  # of the current run

    def warm(self, go: StartRun) -> None:
        super().warm(go)
        none = np.empty(0, np.int64)
        await_departures.exact(none, none, claims.stopped()[: claims.CONTROL_SLOTS], none, 0)
        arrive.exact(np.zeros(1, np.int64), 0, 0)

    def arrived(self, plan: int, turns: Ints, seconds: float) -> bool:
        ring = self._plans[plan].ring
        with self._changed:
            return self._changed.wait_for(lambda: self._halted or ring.complete(turns), seconds) and not self._halted

    def halt(self) -> None:
        self.exchanges.halt()
        with self._changed:
            self._halted = True
            self._changed.notify_all()
        super().halt()
        self._team.close()

    def run(self, go: StartRun) -> NodeRunResult:
        """Make this node's visits; on its own thread."""
        started = self.start(go)
        if started is None:
            return nothing(go.epoch)
        pass_ = self._pass
        assert pass_ is not None
        loaded, control = started.loaded, pass_.control

        def halt() -> None:
            control[claims.STOP] = 1

        began, cycles = time.perf_counter_ns(), read_cycles()
        args = loaded.call()
        shares = [(pass_.words, worker, started.out, *args) for worker in range(self._threads)]
        with self._pager(loaded, pass_):
            call = self._team.call(loaded.compiled, shares, halt)
            ready = np.zeros(loaded.load.order.cols, np.int64)
            moved = self._hand_all_on(loaded, pass_, ready)
            call.wait()
            moved += self._hand_all_on(loaded, pass_, ready)  # after a stop: blocks whose last visit was in progress
        nanoseconds, gone = time.perf_counter_ns() - began, read_cycles() - cycles
        call.check()
        log = pass_control.logged(pass_)
        each = nanoseconds / max(1, gone)
        log[:, 2:] = (log[:, 2:] - cycles) * each
        log[:, 1] += self.number * self._threads
        left, failed = int(control[claims.LEFT]), int(control[claims.FAILED]) - 1
        waited = float(control[claims.WAITED]) * each / 1e9
        return self.result(started, log, left, failed, nanoseconds / 1e9, waited, moved)

    def _pager(self, loaded: LoadedStep, pass_: claims.Pass) -> AbstractContextManager[Any]:
        """The pager where arrays are in files, otherwise an empty context."""
        if loaded.disk is None:
            return nullcontext()
        own = loaded.own[pass_.taken[loaded.own] == 0]
        return Pager(loaded.disk, loaded.load.spec, loaded.load.order, loaded.args, own, pass_)

    def progress(self) -> NodeProgress:
        """The progress of the current run."""
        with self._changed:
            pass_ = self._pass
            if self._counted is None or self._counted not in self._plans or pass_ is None:
                return NodeProgress((self._epoch,), 1)
            ring, left = self._plans[self._counted].ring, int(pass_.control[claims.LEFT])
            mark = self._mark(ring, left)
            if left == 0 or pass_.control[claims.STOP]:
                return NodeProgress(mark, 1)  # the run has to end
            at = pass_.row_first[:-1] + pass_.row_done
            visits = pass_.row_visits[at[at < pass_.row_first[1:]]]
            ready = pass_.col_done[pass_.col_block[visits]] == pass_.col_turn[visits]
            leaving = (ring.leave_at >= 0) & (pass_.col_done == ring.leave_at)
            return NodeProgress(mark, int(ready.sum() + leaving.sum()))

    # -- visits ------------------------------------------------------------------------------------------------------

    def _begin_visits(self, loaded: LoadedStep, go: StartRun, done: Ints, stopped: bool) -> None:
        if go.phase is None:
            self._pass = pass_of(loaded, go.finished, done, go.only)
        else:
            self._pass = pass_of_phase(loaded, go.phase, done)
        self._pass.control[claims.STOP] = stopped

    def _end_visits(self) -> None:
        if self._pass is not None:
            self._pass.control[claims.STOP] = 1

    def _release(self, block: int, turn: int) -> None:
        if self._pass is not None:
            arrive.exact(self._pass.col_done, block, turn)

    def _came(self) -> None:
        self._changed.notify_all()

    def _hand_all_on(self, loaded: LoadedStep, pass_: claims.Pass, ready: Ints) -> int:
        """Send blocks whose next visit belongs to another node, until the pass is over; return their bytes."""
        ring, moved = loaded.ring, 0
        while count := await_departures.exact(pass_.col_done, ring.leave_at, pass_.control, ready, WATCH):
            moved += sum(self.hand_on(loaded, block) for block in ready[:count].tolist())
        return moved


def pass_of(loaded: LoadedStep, finished: Ints, col_done: Ints, only: Ints | None = None) -> claims.Pass:
    """The pass over a node's visits, or over those of them that are in `only`."""
    order = loaded.load.order
    taken = np.zeros(len(order), np.int64)
    taken[finished] = 1
    mine = np.zeros(len(order), bool)
    mine[loaded.own if only is None else np.intersect1d(loaded.own, only)] = True
    row_visits = order.row_visits[mine[order.row_visits]]
    counts = np.bincount(order.row_block[mine], minlength=order.rows)
    done = finished[mine[finished]]
    left = len(row_visits) - len(done)
    made = claims.Pass(
        row_block=order.row_block,
        col_block=order.col_block,
        row_turn=order.row_turn,
        col_turn=order.col_turn,
        priority=loaded.load.priority,
        row_first=np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        row_visits=row_visits,
        row_last=np.full(order.rows, -1, np.int64),
        row_done=np.bincount(order.row_block[done], minlength=order.rows).astype(np.int64),
        col_done=col_done,
        taken=taken,
        script=np.empty(0, np.int64),
        log=np.zeros((left, claims.LOG_COLUMNS), np.int64),
    )
    made.control[claims.LEFT], made.control[claims.NAP] = left, NAP
    return made


def pass_of_phase(loaded: LoadedStep, phase: Ints, col_done: Ints) -> claims.Pass:
    """The pass over a node's visits of a phase, numbered from 0; their row blocks likewise."""
    order, mine = loaded.load.order, loaded.mine(phase)
    rows, row = np.unique(order.row_block[phase[mine]], return_inverse=True)
    by_row = np.argsort(row, kind="stable")
    first = np.concatenate([[0], np.cumsum(np.bincount(row, minlength=len(rows)))]).astype(np.int64)
    row_block, row_turn = np.zeros(len(phase), np.int64), np.zeros(len(phase), np.int64)
    row_block[mine] = row
    row_turn[mine[by_row]] = np.arange(len(mine)) - first[row[by_row]]
    made = claims.Pass(
        row_block=row_block,
        col_block=order.col_block[phase],
        row_turn=row_turn,
        col_turn=order.col_turn[phase],
        priority=loaded.load.priority[phase],
        row_first=first,
        row_visits=mine[by_row],
        row_last=np.full(len(rows), -1, np.int64),
        row_done=np.zeros(len(rows), np.int64),
        col_done=col_done,
        taken=np.zeros(len(phase), np.int64),
        script=np.empty(0, np.int64),
        log=np.zeros((len(mine), claims.LOG_COLUMNS), np.int64),
    )
    made.control[claims.LEFT], made.control[claims.NAP] = len(mine), NAP
    return made
