"""A logical worker on a host: reads and adds that need no lock are made directly, others through the node."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any, NoReturn, Protocol

from numpy.typing import NDArray

from stretto.comm.messages import Keys
from stretto.errors import PlanError
from stretto.runtime.tables.checkpoints import WorkerState
from stretto.runtime.tables.job import WorkerExit
from stretto.runtime.tables.turn_order import TurnOrder, WaitingWorker
from stretto.store.node import StoreNode

from .pressure import Pressure


class WorkersNode(Protocol):
    """What a worker uses of the node that it belongs to."""

    node: StoreNode
    turns: TurnOrder
    pressure: Pressure
    free: list[bool]  # by table: whether reads and adds need no lock
    asleep: bool  # the node has nothing to send between clocks

    def now(self) -> float:
        """Seconds since the run began."""
        ...

    def inside(self) -> AbstractContextManager[float]:
        """Hold the lock and send resulting messages at the end; gives the time."""
        ...

    def read(self, client: ClusterWorker, table: int, keys: Keys, out: NDArray[Any]) -> None:
        """Read under the lock, and wait while the consistency rule does not allow it."""
        ...

    def tick(self, client: ClusterWorker) -> None:
        """End a worker's clock."""
        ...

    def ease(self, client: ClusterWorker) -> None:
        """Wait while too many bytes are queued for the network."""
        ...

    def rouse(self) -> None:
        """Something was added that might be sent before its clock ends."""
        ...


class ClusterWorker(WaitingWorker):
    """Implements the handle of one worker. `waits`: what it waits for ("" while it runs), and since when."""

    def __init__(self, group: WorkersNode, worker: int, part: WorkerState) -> None:
        super().__init__(worker, part.clock, part.ended, group.turns)
        self.node = group.node.number
        self.local, self.cursors, self.unticked = part.local, part.cursors, part.unticked
        self.items = 0.0
        self.waits: tuple[str, float] = ("", 0.0)
        self._group, self._turns = group, group.turns
        self._cache, self._free = group.node.cache, group.free

    def read(self, table: int, keys: Keys, out: NDArray[Any]) -> None:
        if self._turns.ending:
            raise WorkerExit
        if not (self._free[table] and self._cache.read(self.worker, table, keys, out)):
            self._group.read(self, table, keys, out)

    def ask(self, table: int, keys: Keys) -> None:
        with self._group.inside() as now:
            self._group.node.ask(now, self.worker, table, keys)

    def add(self, table: int, keys: Keys, deltas: NDArray[Any]) -> None:
        group = self._group
        if self._turns.ending:
            raise WorkerExit
        if group.pressure.high:
            group.ease(self)
        if not self._free[table]:
            with group.inside() as now:
                group.node.add(now, self.worker, table, keys, deltas)
            return
        self._cache.add(self.worker, table, keys, deltas)
        if group.asleep and self._cache.dirty:
            group.rouse()

    def announce(self, table: int, keys: Keys, clock: int) -> None:
        with self._group.inside() as now:
            self._group.node.announce(now, self.worker, table, keys, clock)

    def tick(self) -> None:
        self._group.tick(self)

    def work(self, items: float) -> None:
        self.items += items

    def seconds(self) -> float:
        return self._group.now()

    def shared(self, table: int) -> NoReturn:
        raise PlanError("placement='shared' needs one process, and a cluster has several: remove placement='shared'")

    def part(self) -> WorkerState:
        """A copy of the worker's part of a cut."""
        return WorkerState(self.local, self.cursors, self.clock, self.ended, self.unticked).copy()
