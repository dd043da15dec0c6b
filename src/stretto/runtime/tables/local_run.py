"""A job whose tables one process holds: threads over a `LocalNode`, for stages on one node.

Rows are used where they are. Nothing is copied, sent or allocated for them, so a job starts and ends in a fraction of a
millisecond whatever the size of its tables.

A thread takes the logical worker (part) at the lowest clock, runs one clock of it, and takes the next. A part is taken
only when the consistency rule lets it read, so threads hardly wait inside a part, and n threads make n switches a clock
where a thread for each part would make as many as there are parts.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from heapq import heapify, heappop, heappush

import numpy as np

from stretto.store.local.node import LocalNode
from stretto.store.local.paged import PagedTable
from stretto.store.local.table import LocalTable

from .array_locks import access_of
from .checkpoints import WorkerState
from .job import TableJob, TableOutcome, WorkerExit
from .thread_worker import ThreadWorker
from .worker_threads import OURS, POLL_SECONDS, WorkerThreads

Tables = Sequence[LocalTable | PagedTable]


class LocalRun(WorkerThreads):
    """One run of a job with `steps`. tables: the rows of each table of the job."""

    def __init__(self, job: TableJob, threads: int, tables: Tables) -> None:
        assert job.steps is not None
        super().__init__(job, job.workers)  # a part that is taken has a turn: there are never more than threads
        self.node = LocalNode(job.layout(1), tables)
        self.free = [not lock for lock in self.node.needs_lock]
        self.arrays = {table: tables[table].values for table in sorted(job.shared)}
        self.access = {table: access_of(job.locking, len(array)) for table, array in self.arrays.items()}
        self.clients = [ThreadWorker(self, worker, WorkerState()) for worker in range(job.workers)]
        self.arrived = threading.Condition(self.lock)  # a chunk has arrived, or the run was stopped
        self._steps = [job.steps(client) for client in self.clients]
        self._threads = min(threads, job.workers)
        self._idle = [(client.clock, client.worker) for client in self.clients]  # parts that no thread has taken
        heapify(self._idle)
        self._taken: set[int] = set()
        self._through = 0  # the clock that all workers had reached when waiting threads were last woken
        self._changed = threading.Condition(self.lock)  # a part may be taken that could not be before

    def run(self) -> TableOutcome:
        """Run to the end. The outcome names no rows: they are in the tables."""
        self.start_and_wait(self._before, [self._take_parts] * self._threads)
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

    # -- the threads --------------------------------------------------------------------------------------------------

    def _take_parts(self) -> None:
        """Run one clock of a part after another until all have ended."""
        client = None
        try:
            while (client := self._next(client)) is not None:
                if next(self._steps[client.worker], "ended") == "ended":
                    client.ended = True
        except WorkerExit:
            pass  # the run ends
        except BaseException as error:
            with self.lock:
                who = (OURS, 0) if client is None else (client.worker, client.clock)
                self.fail(*who, error)

    def _next(self, done: ThreadWorker | None) -> ThreadWorker | None:
        """Give a part back and take the next; None: all have ended, or the run ends."""
        with self.lock:
            if done is not None:
                self._give_back(done)
            while not self.turns.ending:
                if self._idle and self.node.may_read(*self._idle[0]):
                    client = self.clients[heappop(self._idle)[1]]
                    self._taken.add(client.worker)
                    client.turn = True
                    return client
                if not (self._idle or self._taken):
                    return None
                self._changed.wait()
        return None

    def _give_back(self, client: ThreadWorker) -> None:
        self._taken.remove(client.worker)
        client.turn = False
        if client.ended:
            self.node.leave(self.now(), client.worker)
        else:
            heappush(self._idle, (client.clock, client.worker))
        self.wake()
        # Threads that wait are woken when all workers have reached another clock, or when there is nothing left. This
        # thread takes what it has given back itself, so a part more is no reason.
        if self.node.through != self._through or not (self._idle or self._taken):
            self._through = self.node.through
            self._changed.notify_all()

    def tick(self, client: ThreadWorker) -> None:
        """End a part's clock; its thread gives it back now."""
        with self.inside():
            self.node.tick(self.now(), client.worker)
            client.clock += 1

    def left(self, client: ThreadWorker) -> None:
        """Parts that have ended are given back."""

    def fail(self, worker: int, clock: int, error: BaseException) -> None:
        """The first error ends the run."""
        super().fail(worker, clock, error)
        self._changed.notify_all()

    def stuck(self) -> list[ThreadWorker]:
        """Parts that all wait for each other, with nothing on its way to wake them: all that threads have taken."""
        taken = [self.clients[worker] for worker in self._taken]
        full = len(taken) == self._threads or not self._idle
        return taken if full and all(client.parked for client in taken) and not self.expects() else []
