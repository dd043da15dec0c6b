"""Jobs over tables on `Threads`: one node in this process.

Logical workers are threads, of which at most `n` run at a time (`runtime.tables.turn_order`). They share the node's
cache, and the shard is in the same process. So messages between cache and shard are delivered at once, under one lock,
by the thread that ticks or misses a row. Reads and adds of tables whose cache needs no lock take none.

No worker waits for one whose function has returned: its clock counts as infinite. So the worker at the lowest clock can
always proceed, and no run hangs.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.comm.messages import Keys
from stretto.runtime.files.checkpoint import interval_seconds, writing
from stretto.runtime.interrupts import heeding_ctrl_c
from stretto.store.node import NodePart, StoreNode
from stretto.store.recording import Recording
from stretto.store.shard.shard import Past

from .array_locks import access_of
from .checkpoints import CheckpointFolder, TableCheckpoint, WorkerState
from .job import FAR, ClockState, FinalRows, TableJob, TableMeasure, TableOutcome, WorkerExit
from .run.cut_parts import CutParts
from .run.evaluations import Evaluate, Evaluations
from .run.node_cuts import CutPlan, NodeCuts
from .run.table_run import TableRun
from .thread_worker import ThreadWorker
from .worker_threads import WorkerThreads


def run(job: TableJob, threads: int) -> TableOutcome:
    """Run a job to its end, with at most `threads` threads at a time."""
    threaded = ThreadedRun(job, threads)
    with writing(None if job.keeping is None else job.keeping.folder):
        return threaded.run()


class ThreadedRun(WorkerThreads):
    """One run: the node, the workers, evaluations and checkpoints."""

    def __init__(self, job: TableJob, threads: int) -> None:
        super().__init__(job, threads)
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
        self.access = {table: access_of(job.locking, len(array)) for table, array in self.arrays.items()}
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
        self._began = time.perf_counter() - begin.seconds  # evaluations do not count: they move it

    # -- the calling thread -------------------------------------------------------------------------------------------

    def run(self) -> TableOutcome:
        """Start the workers, save checkpoints, wait for the end."""
        with heeding_ctrl_c(self) as ctrl_c:
            self.start_and_wait(self._before)
            interrupted = ctrl_c.heard()
        done = not self.state.stopped
        if interrupted:  # perhaps too late to stop the run, but the caller must still see it
            self.state.interrupt()
        seconds = self.now()
        if not self.turns.ending:
            with self.lock:
                self._evaluate(self.state.ended())
        self.raise_failure()
        if self.checkpoints is not None and done and not self.checkpoints.at_end:
            self._save_end()
        return self._outcome(seconds)

    def _before(self) -> None:
        """Before the first worker starts: do not wait for workers that had ended before."""
        self._evaluate(self.state.begin(self.now()))
        for client in self.clients:
            if client.ended:
                self._cuts.reached(client.worker, FAR, client.part)
                self.node.leave(self.now(), client.worker)
                self.state.moved(client.worker, FAR, client.clock)

    def ask(self) -> None:
        """Handle Ctrl-C: all workers stop at the end of the clock.

        Called between two instructions of the waiting thread, so it must not wait for a lock.
        """
        self._events.put("ask")

    def due_in(self) -> float:
        """Seconds until an evaluation or a cut is due."""
        return min(self.state.due_in(self.now()), self.state.due_at - self.now())

    def take(self, event: Any) -> None:
        """Handle Ctrl-C, or save a complete cut."""
        if event == "ask":
            with self.lock:
                self._ask()
        else:
            self._save(event)

    def due(self) -> None:
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

    def waited(self, client: ThreadWorker, what: str, seconds: float) -> None:
        """Record a wait."""
        self.recording.waited(client.worker, what, seconds)

    def tick(self, client: ThreadWorker) -> None:
        """End a worker's clock."""
        with self.inside():
            if self.checkpoints is not None:
                self._cuts.open_to(client.clock + 1)
            free = self.node.tick(self.now(), client.worker)
            client.clock += 1
            reached = self.checkpoints is not None and self._cuts.reached(client.worker, client.clock, client.part)
            self._moved(client.worker, client.clock, client.clock)
            self.wake()
            if not free:
                self.park(client)
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
            self.park(client)
        self.recording.waited(client.worker, "tick", self.now() - began)

    def left(self, client: ThreadWorker) -> None:
        """A worker has ended."""
        self._cuts.reached(client.worker, FAR, client.part)
        self.node.leave(self.now(), client.worker)
        self._moved(client.worker, FAR, client.clock)

    def _moved(self, worker: int, clock: int, most: int) -> None:
        """A worker's clock has advanced: save, wake waiting workers, evaluate."""
        moved = self.state.moved(worker, clock, most)
        low = self.state.low
        if moved and low < FAR:
            self.recording.moved_on(self.now(), low, self.state.most)
            if self.job.monitor is not None:
                self.job.monitor.moved(self._measured)
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

    def _measured(self) -> TableMeasure:
        """What is known of the run, for listeners."""
        waits = list(sum(self.recording.waits.values(), np.zeros(self.job.workers)))
        clocks = [client.clock for client in self.clients]
        return TableMeasure(self.now(), clocks, self.node.cache.staleness.sum(axis=0).tolist(), waits)

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
                self.fail(-1, at.clock, error)
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
