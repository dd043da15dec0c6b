"""A job whose tables one process holds: threads over a `LocalNode`, for stages on one node.

Rows are used where they are. Nothing is copied, sent or allocated for them, so a job starts and ends in a fraction of a
millisecond whatever the size of its tables.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

import numpy as np

from stretto.store.local.node import LocalNode
from stretto.store.local.paged import PagedTable
from stretto.store.local.table import LocalTable

from .array_locks import access_of
from .checkpoints import WorkerState
from .job import TableJob, TableOutcome
from .thread_worker import ThreadWorker
from .worker_threads import POLL_SECONDS, WorkerThreads

Tables = Sequence[LocalTable | PagedTable]


class LocalRun(WorkerThreads):
    """One run. tables: the rows of each table of the job."""

    def __init__(self, job: TableJob, threads: int, tables: Tables) -> None:
        super().__init__(job, threads)
        self.node = LocalNode(job.layout(1), tables)
        self.free = [not lock for lock in self.node.needs_lock]
        self.arrays = {table: tables[table].values for table in sorted(job.shared)}
        self.access = {table: access_of(job.locking, len(array)) for table, array in self.arrays.items()}
        self.clients = [ThreadWorker(self, worker, WorkerState()) for worker in range(job.workers)]
        self.arrived = threading.Condition(self.lock)  # a chunk has arrived, or the run was stopped

    def run(self) -> TableOutcome:
        """Run to the end. The outcome names no rows: they are in the tables."""
        self.start_and_wait(self._before)
        seconds = self.now()
        self.raise_failure()
        return TableOutcome(
            tables=(),
            clocks=tuple(client.clock for client in self.clients),
            seconds=seconds,
            local=tuple(client.local for client in self.clients),
            staleness=np.zeros((self.job.workers, 1), np.int64),
            items=sum(client.items for client in self.clients),
        )

    def _before(self) -> None:
        self._began = time.perf_counter()  # the workers start now

    def settle(self) -> None:
        """Wait until no change waits for a chunk that is on its way."""
        with self.arrived:
            while not (self.node.settled or self.turns.ending):
                self.arrived.wait(POLL_SECONDS)

    def expects(self) -> bool:
        """Whether chunks are on their way."""
        return bool(self.node.expects)

    def tick(self, client: ThreadWorker) -> None:
        """End a worker's clock."""
        with self.inside():
            free = self.node.tick(self.now(), client.worker)
            client.clock += 1
            self.wake()
            if not free:
                self.park(client)
            need = self.job.rule.need(client.clock)
            while self.job.shared and self.node.hold_until(client.worker, need):
                self.park(client)
            self.turns.yield_(client)

    def left(self, client: ThreadWorker) -> None:
        """A worker has ended."""
        self.node.leave(self.now(), client.worker)
