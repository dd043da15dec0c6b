"""Jobs over tables on `Threads`: one node in this process.

Logical workers are threads, of which at most `n` run at a time (`runtime.tables.turn_order`). They share the node's
cache, and the shard is in the same process. So messages between cache and shard are delivered at once, under one lock,
by the thread that ticks or misses a row. Reads and adds of tables whose cache needs no lock take none.

No worker waits for one whose function has returned: its clock counts as infinite. So the worker at the lowest clock can
always proceed, and no run hangs.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from queue import Empty, SimpleQueue
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.comm.messages import Keys
from stretto.errors import RunError
from stretto.runtime.files.checkpoint import interval_seconds, writing
from stretto.runtime.interrupts import heeding_ctrl_c
from stretto.store.node import NodePart, StoreNode
from stretto.store.recording import Recording
from stretto.store.shard.shard import Past

from .array_locks import locks_of
from .checkpoints import CheckpointFolder, TableCheckpoint, WorkerState
from .job import FAR, ClockState, FinalRows, TableJob, TableOutcome, WorkerExit
from .run.cut_parts import CutParts
from .run.evaluations import Evaluate, Evaluations
from .run.node_cuts import CutPlan, NodeCuts
from .run.table_run import TableRun
from .stalls import Stalls, WorkerPosition, warn
from .thread_worker import ThreadWorker
from .turn_order import TurnOrder

_POLL_SECONDS = 0.5  # seconds: a signal that arrives just before a wait begins is noticed when the wait ends

OURS = -2  # worker number of an error in Stretto itself; −1 is the objective function


def run(job: TableJob, threads: int) -> TableOutcome:
    """Run a job to its end, with at most `threads` threads at a time."""
    threaded = ThreadedRun(job, threads)
    with writing(None if job.keeping is None else job.keeping.folder):
        return threaded.run()


class ThreadedRun:
    """One run: the node, the workers, and what they wait for."""

    def __init__(self, job: TableJob, threads: int) -> None:
        self.job = job
        layout = job.layout(1, reserve=True)
        self.checkpoints = CheckpointFolder(job.keeping) if job.keeping is not None else None
        begin = self.checkpoints.begin() if self.checkpoints is not None else TableCheckpoint(0)
        self.recording = Recording(layout, job.record)
        if begin.node is not None:
            self.recording.goes_on(begin.clock, begin.node.shard, begin.node.residuals)
        self.node = StoreNode(layout, 0, recording=self.recording, locks=True, saved=begin.node)
        # A recording needs one order of all events.
        self.free = [not (lock or self.recording.full) for lock in self.node.cache.needs_lock]
        self.arrays = begin.shared or {
            table: job.whole.start_rows(table, np.arange(job.tables[table].rows or 0)) for table in sorted(job.shared)
        }
        self.locks = {table: locks_of(job.locking, len(array)) for table, array in self.arrays.items()}
        self.turns = TurnOrder(threads)
        self.lock = self.turns.lock
        self.clients = [
            ThreadWorker(self, worker, begin.parts.get(worker, WorkerState(clock=begin.clock)))
            for worker in range(job.workers)
        ]
        every = None if job.keeping is None else job.keeping.every
        self.state = TableRun(
            job.workers,
            1,
            evaluations=Evaluations.of(job, begin.history),
            begin=CutParts(begin.clock, dict(begin.parts)),
            interval=interval_seconds if self.checkpoints is not None and every is None else None,
        )
        self._cuts = NodeCuts(self.node, CutPlan((every,) if every else (), begin.clock), self._cut_part)
        self._at_cut: dict[
            int, TableCheckpoint
        ] = {}  # by clock: the run's part of the cut when all workers had reached it
        self._items = begin.items
        self._late: list[tuple[int, ThreadWorker]] = []  # workers that wait until the lowest clock is this far
        self._at: int | None = None  # the clock to evaluate, where the shard is ahead of it
        if job.watch is not None and job.rule.exact:
            self.node.shard.keep_past(job.every or 0)
        self._failure: tuple[int, int, BaseException] | None = None
        self._events: SimpleQueue[Any] = SimpleQueue()
        self._began = time.perf_counter() - begin.seconds

    def now(self) -> float:
        """Seconds of the run, without evaluations."""
        return time.perf_counter() - self._began

    # -- the calling thread -------------------------------------------------------------------------------------------

    def run(self) -> TableOutcome:
        """Start the workers, save checkpoints, wait for the end."""
        threads = [
            threading.Thread(target=self._body, args=(client,), name=f"stretto-worker-{client.worker}", daemon=True)
            for client in self.clients
            if not client.ended
        ]
        with heeding_ctrl_c(self) as ctrl_c:
            try:
                with self.lock:
                    self._evaluate(self.state.begin(self.now()))
                    for client in self.clients:
                        if client.ended:
                            self._cuts.reached(client.worker, FAR, client.part)
                            self.node.leave(self.now(), client.worker)
                            self.state.moved(client.worker, FAR, client.clock)
                for thread in threads:
                    thread.start()
                self._serve(len(threads))
            except BaseException:
                with self.lock:
                    self.turns.end(self.clients)
                raise
            interrupted = ctrl_c.heard()
        for thread in threads:
            thread.join()
        done = not self.state.stopped
        if interrupted:  # perhaps too late to stop the run, but the caller must still see it
            self.state.interrupt()
        seconds = self.now()
        if not self.turns.ending:
            with self.lock:
                self._evaluate(self.state.ended())
        if self._failure is not None:
            worker, clock, error = self._failure
            if worker == OURS or not isinstance(error, Exception):
                raise error
            self.job.blame(worker, clock, error)
        if self.checkpoints is not None and done and not self.checkpoints.at_end:
            self._save_end()
        return self._outcome(seconds)

    def ask(self) -> None:
        """Handle Ctrl-C: all workers stop at the end of the clock.

        Called between two instructions of the waiting thread, so it must not wait for a lock.
        """
        self._events.put("ask")

    def _serve(self, left: int) -> None:
        stalls = Stalls()
        while left:
            warn(stalls.see(time.monotonic(), self._seen()))
            due = min(self.state.due_in(self.now()), self.state.due_at - self.now())
            try:
                event = self._events.get(timeout=max(0.0, min(due, _POLL_SECONDS)))
            except Empty:
                if due <= _POLL_SECONDS:
                    with self.lock:
                        self._due()
                continue
            if event == "ended":
                left -= 1
            elif event == "ask":
                with self.lock:
                    self._ask()
            else:
                self._save(event)

    def _due(self) -> None:
        """Carry out evaluations that are due by time."""
        now, shard = self.now(), self.node.shard
        for due in self.state.time(now, shard.clock):
            if isinstance(due, Evaluate):
                self._evaluate([due])
            else:
                shard.keep_clock(due.clock)
        clock = self.state.cut_due(now)
        if clock is not None:
            self._cuts.open(clock)

    def _save(self, cut: TableCheckpoint) -> None:
        if self.checkpoints is not None:
            took = self.checkpoints.save(cut)
            with self.lock:
                self.state.saved(self.now(), took)

    def _seen(self) -> dict[int, WorkerPosition]:
        """The status of all workers; one without a turn waits for one."""
        return {
            s.worker: WorkerPosition(s.clock, "" if s.turn and not s.parked else "turn")
            for s in self.clients
            if not s.ended
        }

    def _ask(self) -> None:
        if self.state.stopped or self.turns.ending:
            return
        clock = self.state.cut_due(self.now(), at_once=True)
        if clock is not None and self.checkpoints is not None:
            self._cuts.open(clock)
        last = self.state.most + 1
        self.state.interrupt(last)
        self._cuts.end(last)

    # -- the workers' threads -----------------------------------------------------------------------------------------

    def _body(self, client: ThreadWorker) -> None:
        try:
            with self.lock:
                self.turns.take(client)
            if not self.turns.ending:
                self.job.work(client)
            with self.lock:
                self._leave(client)
        except WorkerExit:
            with self.lock:
                self._leave(client)
        except BaseException as error:
            with self.lock:
                self._fail(client.worker, client.clock, error)
        finally:
            with self.lock:
                self.turns.drop(client)
            self._events.put("ended")

    @contextmanager
    def inside(self) -> Iterator[None]:
        """Hold the lock; wake workers whose wait is over at the end."""
        with self.lock:
            if self.turns.ending:
                raise WorkerExit
            yield
            self._wake()

    def read(self, client: ThreadWorker, table: int, keys: Keys, out: NDArray[Any]) -> None:
        """Read under the lock, and wait while the consistency rule does not allow it."""
        with self.inside():
            began = self.now()
            waited = False
            while not self.node.read(self.now(), client.worker, table, keys, out):
                waited = True
                self._wake()
                self._park(client)
            if waited:
                self.recording.waited(client.worker, "read", self.now() - began)

    def tick(self, client: ThreadWorker) -> None:
        """End a worker's clock."""
        with self.inside():
            if self.checkpoints is not None:
                self._cuts.open_to(client.clock + 1)
            free = self.node.tick(self.now(), client.worker)
            client.clock += 1
            reached = self.checkpoints is not None and self._cuts.reached(client.worker, client.clock, client.part)
            self._moved(client.worker, client.clock, client.clock)
            self._wake()
            if not free:
                self._park(client)
            if self.job.shared:
                self._keep_step(client, client.clock if reached else self.job.rule.need(client.clock))
            if self.state.stop_clock is not None and client.clock >= self.state.stop_clock:
                raise WorkerExit
            self.turns.yield_(client)

    def _keep_step(self, client: ThreadWorker, need: int) -> None:
        """Shared tables: wait until every worker has reached this clock."""
        began = self.now()
        while self.state.low < need:
            self._late.append((need, client))
            self._park(client)
        self.recording.waited(client.worker, "tick", self.now() - began)

    def _leave(self, client: ThreadWorker) -> None:
        """A worker has ended."""
        if self.turns.ending:
            return
        client.ended = True
        self._cuts.reached(client.worker, FAR, client.part)
        self.node.leave(self.now(), client.worker)
        self._moved(client.worker, FAR, client.clock)
        self._wake()
        self._check_parked()

    def _moved(self, worker: int, clock: int, most: int) -> None:
        """A worker's clock has advanced: save, wake waiting workers, evaluate."""
        moved = self.state.moved(worker, clock, most)
        low = self.state.low
        if moved and low < FAR:
            self.recording.moved_on(self.now(), low, self.state.most)
        if self.checkpoints is not None:
            self._cuts.look()
            self._save_shard()
        if not moved:
            return
        late, self._late = self._late, []
        for need, client in late:
            if need <= low:
                self.turns.rouse(client)
            else:
                self._late.append((need, client))
        self._evaluate(self.state.closed(low))

    def _save_shard(self) -> None:
        """Take complete cuts from the shard; a lazy policy may have delayed updates of earlier clocks."""
        shard = self.node.shard
        while (clock := shard.saving) is not None:
            arrays = shard.saved()
            if self._cuts.saved(clock):
                self._cut_part("shard", (clock, arrays))

    def _cut_part(self, what: str, value: Any) -> None:
        """A part of a cut is available."""
        clock, parts = value[0], None
        if what == "worker":
            parts = self.state.worker_part(*value)
        elif what == "node":  # all workers are at the clock: copy what must be as it is at this moment
            self._at_cut[clock] = TableCheckpoint(
                clock,
                shared={table: array.copy() for table, array in self.arrays.items()},
                seconds=self.now(),
                items=self._items + sum(client.items for client in self.clients),
            )
            parts = self.state.node_part(clock, 0, value[1])
        else:
            parts = self.state.shard_part(clock, 0, value[1], self.now())
        if parts is None:
            return
        self.state.keep(parts)
        cut = self._at_cut.pop(clock)
        cut.clock, cut.parts = parts.clock, parts.workers
        cut.node = NodePart(parts.clock, parts.shards[0], parts.residuals[0])
        cut.history = [look for look in parts.history if look.clock <= parts.clock]
        self._events.put(cut)

    def _save_end(self) -> None:
        """Save the state after all workers have ended, so that a run with more clocks can continue from it."""
        with self.lock:
            self._cuts.open(self.node.shard.clock)
            self._save_shard()
        while not self._events.empty():
            self._save(self._events.get())

    def _park(self, client: ThreadWorker) -> None:
        client.parked = True
        self._check_parked()
        self.turns.park(client)

    def _wake(self) -> None:
        woken = self.node.woken
        if woken:
            for worker in woken:
                self.turns.rouse(self.clients[worker])
            woken.clear()

    def _check_parked(self) -> None:
        """Fail if all workers wait for each other: that is a bug in Stretto, and the run must not hang."""
        alive = [client for client in self.clients if not client.ended]
        if alive and not self.turns.ending and all(client.parked for client in alive):
            where = ", ".join(f"{client.worker} at clock {client.clock}" for client in alive[:5])
            self._fail(OURS, self.state.most, RunError(f"all workers wait ({where}); please report this"))

    def _fail(self, worker: int, clock: int, error: BaseException) -> None:
        if self._failure is None and not self.turns.ending:
            self._failure = (worker, clock, error)
        self.turns.end(self.clients)

    # -- evaluating ---------------------------------------------------------------------------------------------------

    def _evaluate(self, due: Iterable[Evaluate]) -> None:
        for at in due:
            if self.turns.ending:  # keep the evaluation that ended the run
                return
            self._at = at.clock if at.past else None
            began, seconds = time.perf_counter(), self.now()
            local = tuple(client.local for client in self.clients)
            try:
                self.state.evaluated(*self.job.evaluate(ClockState(at.clock, seconds, 0, self._values, local)))
            except Exception as error:
                self._fail(-1, at.clock, error)
            self._began += time.perf_counter() - began
            if self.state.stopped == "until":
                self.turns.end(self.clients)
            elif at.past and not self.turns.ending:
                self._at = None
                self.node.shard.past.pop(at.clock, None)

    def _rows_at(self, table: int) -> Past:
        """The shard's rows of a table, at the clock that is evaluated or now."""
        shard = self.node.shard
        past = None if self._at is None else shard.past.get(self._at)
        return (*shard.table(table), shard.states(table)) if past is None else past[table]

    def _values(self, table: int) -> tuple[Keys, NDArray[Any]]:
        if table in self.arrays:
            return np.arange(len(self.arrays[table])), self.arrays[table]
        return self._rows_at(table)[:2]

    def _outcome(self, seconds: float) -> TableOutcome:
        shard, recording = self.node.shard, self.recording
        tables = []
        for table in range(len(self.job.tables)):
            keys, values = self._values(table)
            states = () if table in self.arrays else self._rows_at(table)[2]
            tables.append(FinalRows(keys, values, states))
            if recording.full:
                recording.final[table] = shard.witness(table)
                recording.final_values[table] = shard.table(table)[1]
        recording.seconds = seconds
        recording.closed = shard.clock if self.state.stopped == "until" else None
        return TableOutcome(
            tables=tuple(tables),
            clocks=tuple(client.clock for client in self.clients),
            seconds=seconds,
            local=tuple(client.local for client in self.clients),
            stopped=self.state.stopped or "done",
            history=self.state.history,
            staleness=self.node.cache.staleness,
            traffic=recording.traffic(),
            recording=recording,
            items=self._items + sum(client.items for client in self.clients),
        )
