"""A logical worker on `Threads`: reads and adds that need no lock are made directly, others through the run."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any, Protocol

from numpy.typing import NDArray

from stretto.comm.messages import Keys

from .array_locks import RowAccess
from .checkpoints import WorkerState
from .job import WorkerExit
from .turn_order import TurnOrder, WaitingWorker


class WorkersRun(Protocol):
    """What a worker uses of the run that it belongs to."""

    node: Any  # StoreNode or LocalNode
    turns: TurnOrder
    free: list[bool]  # by table: whether reads and adds need no lock
    arrays: dict[int, NDArray[Any]]  # by shared table
    access: dict[int, RowAccess]

    def now(self) -> float:
        """Seconds of the run."""
        ...

    def inside(self) -> AbstractContextManager[None]:
        """Hold the lock, and handle what follows at the end."""
        ...

    def read(self, client: ThreadWorker, table: int, keys: Keys, out: NDArray[Any]) -> None:
        """Read under the lock, and wait while the consistency rule does not allow it."""
        ...

    def tick(self, client: ThreadWorker) -> None:
        """End a worker's clock."""
        ...


class ThreadWorker(WaitingWorker):
    """Implements the handle of one worker."""

    node = 0

    def __init__(self, owner: WorkersRun, worker: int, part: WorkerState) -> None:
        super().__init__(worker, part.clock, part.ended, owner.turns)
        self.local, self.cursors, self.unticked = part.local, part.cursors, part.unticked
        self.items = 0.0
        self._owner, self._turns = owner, owner.turns
        self._direct, self._free = owner.node.direct, owner.free

    def read(self, table: int, keys: Keys, out: NDArray[Any]) -> None:
        if self._turns.ending:
            raise WorkerExit
        if not (self._free[table] and self._direct.read(self.worker, table, keys, out)):
            self._owner.read(self, table, keys, out)

    def ask(self, table: int, keys: Keys) -> None:
        owner = self._owner
        with owner.inside():
            owner.node.ask(owner.now(), self.worker, table, keys)

    def add(self, table: int, keys: Keys, deltas: NDArray[Any]) -> None:
        if self._turns.ending:
            raise WorkerExit
        if self._free[table]:
            self._direct.add(self.worker, table, keys, deltas)
            return
        owner = self._owner
        with owner.inside():
            owner.node.add(owner.now(), self.worker, table, keys, deltas)

    def announce(self, table: int, keys: Keys, clock: int) -> None:
        owner = self._owner
        with owner.inside():
            owner.node.announce(owner.now(), self.worker, table, keys, clock)

    def tick(self) -> None:
        self._owner.tick(self)

    def work(self, items: float) -> None:
        self.items += items

    def seconds(self) -> float:
        return self._owner.now()

    def shared(self, table: int) -> tuple[NDArray[Any], Any]:
        return self._owner.arrays[table], self._owner.access[table]

    def part(self) -> WorkerState:
        """A copy of the worker's part of a checkpoint."""
        return WorkerState(self.local, self.cursors, self.clock, self.ended, self.unticked).copy()
