"""A stage on one simulated node: workers over rows that the node holds, in virtual time.

It is what `runtime.tables.local_run` is on threads: clocks and rows, without caches, shards and messages. Chunks that
other nodes hold are brought when they are first used, and take their time on the links.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from stretto.comm.messages import Keys
from stretto.errors import PlanError, RunError
from stretto.runtime.simulated.settings import SimulatedSettings
from stretto.runtime.simulated.virtual_time import Hub, Sleeper
from stretto.runtime.tables.job import TableJob, TableOutcome, WorkerExit
from stretto.store.local.node import LocalNode
from stretto.store.local.paged import PagedTable
from stretto.store.local.table import LocalTable


class LocalSimulation:
    """One stage.

    Parameters
    ----------
    spec : SimulatedSettings
        The cluster.
    node : int
        The node that the workers are on.
    threads : int
        Cores that they share.
    job : TableJob
        Its workers.
    """

    def __init__(self, spec: SimulatedSettings, node: int, threads: int, job: TableJob) -> None:
        self.hub = Hub()
        self.node: LocalNode
        self.spent = 0.0  # seconds that handling messages took
        self.items = 0.0
        self.fetched = 0  # bytes of chunks that were brought
        self.threads = threads
        self._spec, self._number, self._job = spec, node, job
        self._seconds = spec.seconds_per_item * max(1.0, job.workers / threads) / spec.speeds[node]
        self._link_free = 0.0
        self._clients: list[LocalSimulatedWorker] = []
        self._running = job.workers
        self._failure: tuple[int, int, Exception] | None = None

    def run(self, tables: Sequence[LocalTable | PagedTable]) -> TableOutcome:
        """Run to the end. The outcome names no rows: they are in the tables."""
        self.node = LocalNode(self._job.layout(1), tables)
        for worker in range(self._job.workers):
            client = LocalSimulatedWorker(self, worker)
            client.sleeper = self.hub.spawn(self._body(client))
            self._clients.append(client)
        try:
            if not self.hub.run():
                raise RunError(f"all workers of a simulated stage wait at {self.hub.now:.6f} s; please report this")
        finally:
            for client in self._clients:
                self.hub.end(client.sleeper, WorkerExit())
        if self._failure is not None:
            self._job.blame(*self._failure)
        return TableOutcome(
            tables=(),
            clocks=tuple(client.clock for client in self._clients),
            seconds=self.hub.now,
            local=tuple(client.local for client in self._clients),
            staleness=np.zeros((self._job.workers, 1), np.int64),
            items=self.items,
        )

    def _body(self, client: LocalSimulatedWorker) -> Callable[[], None]:
        def body() -> None:
            try:
                self._job.work(client)
            except WorkerExit:
                return
            except Exception as error:
                self._failure = self._failure or (client.worker, client.clock, error)
                self.hub.over = True
                return
            self.node.leave(self.hub.now, client.worker)
            self._running -= 1
            self.wake()
            self._end()

        return body

    def _end(self) -> None:
        """End when all workers have, and no change waits for its chunk."""
        self.hub.over = self.hub.over or (not self._running and self.node.settled)

    def wake(self) -> None:
        """Continue the workers that the node names."""
        for worker in self.node.woken:
            self.hub.wake(self._clients[worker].sleeper)
        self.node.woken.clear()

    def work_seconds(self, items: float) -> float:
        """Seconds that a worker computes for this number of items, if it begins now."""
        self.items += items
        return items * self._seconds * self._spec.slowness(self._number, self.hub.now)

    def bring(self, table: PagedTable, chunk: int, rows: NDArray[Any], source: int) -> None:
        """Bring a chunk from another node: a request, and its rows over both links."""
        spec, hub = self._spec, self.hub
        latency, (per_message, per_byte) = float(spec.latency), spec.message_cost
        rate = min(spec.links[self._number], spec.links[source] if source >= 0 else math.inf)
        begins = max(hub.now + latency, self._link_free)
        self._link_free = begins + rows.nbytes / rate
        self.spent += 2 * per_message + rows.nbytes * per_byte
        self.fetched += rows.nbytes
        hub.at(self._link_free + latency, self._arrived, (table, chunk, rows))

    def _arrived(self, what: tuple[PagedTable, int, NDArray[Any]]) -> None:
        table, chunk, rows = what
        table.arrived(chunk, rows)
        self.wake()
        self._end()


class LocalSimulatedWorker:
    """The handle of one worker. Where a call has to wait, the greenlet parks until the node wakes it."""

    __slots__ = ("_hub", "_paid", "_run", "clock", "cursors", "ended", "local", "node", "sleeper", "unticked", "worker")

    sleeper: Sleeper

    def __init__(self, run: LocalSimulation, worker: int) -> None:
        self.worker, self.node, self.clock = worker, 0, 0
        self.local: dict[str, Any] = {}
        self.cursors: list[list[int]] = []
        self.ended = self.unticked = False
        self._run, self._hub, self._paid = run, run.hub, 0.0

    def read(self, table: int, keys: Keys, out: NDArray[Any]) -> None:
        run, hub = self._run, self._hub
        while not run.node.read(hub.now, self.worker, table, keys, out):
            hub.park(self.sleeper)

    def ask(self, table: int, keys: Keys) -> None:
        self._run.node.ask(self._hub.now, self.worker, table, keys)

    def add(self, table: int, keys: Keys, deltas: NDArray[Any]) -> None:
        self._run.node.add(self._hub.now, self.worker, table, keys, deltas)

    def announce(self, table: int, keys: Keys, clock: int) -> None:
        """Of no use here: a read never waits for rows of one worker."""

    def tick(self) -> None:
        run = self._run
        run.node.tick(self._hub.now, self.worker)
        self.clock += 1
        run.wake()
        if run.node.hold(self.worker):
            self._hub.park(self.sleeper)

    def work(self, items: float) -> None:
        run = self._run
        seconds = run.work_seconds(items) + (run.spent - self._paid) / run.threads
        self._paid = run.spent
        if seconds > 0:
            self._hub.sleep(self.sleeper, seconds)

    def seconds(self) -> float:
        return self._hub.now

    def shared(self, table: int) -> NoReturn:
        raise PlanError(
            "placement='shared' needs one process, and a simulated cluster has none: remove placement='shared'"
        )
