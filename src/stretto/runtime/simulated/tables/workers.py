"""A logical worker on a simulated node: calls that would wait switch to other events in virtual time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from numpy.typing import NDArray

from stretto.comm.messages import Keys
from stretto.errors import PlanError
from stretto.runtime.simulated.virtual_time import Sleeper
from stretto.runtime.tables.checkpoints import WorkerState
from stretto.runtime.tables.job import WorkerExit
from stretto.store.node import StoreNode

if TYPE_CHECKING:
    from .job import SimulatedCluster


class SimulatedWorker:
    """Implements the handle of one worker. Where a call has to wait, the greenlet parks until the node wakes it."""

    __slots__ = (
        "_cluster",
        "_hub",
        "_node",
        "_paid",
        "clock",
        "cursors",
        "ended",
        "local",
        "node",
        "sleeper",
        "unticked",
        "worker",
    )

    local: dict[str, Any]
    cursors: list[list[int]]
    sleeper: Sleeper

    def __init__(
        self, cluster: SimulatedCluster, worker: int, node: StoreNode, clock: int, part: WorkerState | None
    ) -> None:
        part = WorkerState(clock=clock) if part is None else part.copy()  # the original may be needed again
        self.worker, self.node, self.clock = worker, node.number, part.clock
        self.local, self.cursors, self.ended = part.local, part.cursors, part.ended
        self.unticked = part.unticked
        self._cluster, self._hub, self._node = cluster, cluster.hub, node
        self._paid = cluster.spent[self.node]  # the part of the node's message time that this worker has accounted for

    def read(self, table: int, keys: Keys, out: NDArray[Any]) -> None:
        hub, node = self._hub, self._node
        if node.read(hub.now, self.worker, table, keys, out):
            self._cluster.after(node)
            return
        began = hub.now
        while True:
            self._cluster.after(node)
            self._cluster.waiting[self.worker] = ("read", table)
            hub.park(self.sleeper)
            if node.read(hub.now, self.worker, table, keys, out):
                break
        self._waited("read", began)
        self._cluster.after(node)

    def ask(self, table: int, keys: Keys) -> None:
        self._node.ask(self._hub.now, self.worker, table, keys)
        self._cluster.after(self._node)

    def add(self, table: int, keys: Keys, deltas: NDArray[Any]) -> None:
        self._node.add(self._hub.now, self.worker, table, keys, deltas)
        self._cluster.after(self._node)

    def announce(self, table: int, keys: Keys, clock: int) -> None:
        self._node.announce(self._hub.now, self.worker, table, keys, clock)
        self._cluster.after(self._node)

    def tick(self) -> None:
        if isinstance(self._node, _Gone):
            raise WorkerExit
        if not self._cluster.tick(self):
            began = self._hub.now
            while self._node.holds_up(self.worker):
                self._cluster.waiting[self.worker] = ("tick", -1)
                self._hub.park(self.sleeper)
            self._waited("tick", began)

    def work(self, items: float) -> None:
        seconds = self._cluster.work_seconds(self.node, items)
        spent = self._cluster.spent[self.node]
        seconds += (spent - self._paid) / self._cluster.spec.threads
        self._paid = spent
        if seconds > 0:
            self._hub.sleep(self.sleeper, seconds)

    def seconds(self) -> float:
        return self._hub.now

    def shared(self, table: int) -> NoReturn:
        raise PlanError(
            "placement='shared' needs one process, and a simulated cluster has none: remove placement='shared'"
        )

    def part(self) -> WorkerState:
        """A copy of the worker's part of a checkpoint."""
        return WorkerState(self.local, self.cursors, self.clock, self.ended, self.unticked).copy()

    def gone(self) -> None:
        """The node is lost, or the run has ended: the worker's next call ends it."""
        self._node = _Gone()  # type: ignore[assignment]

    def _waited(self, reason: str, began: float) -> None:
        self._cluster.waiting.pop(self.worker, None)
        self._cluster.recording.waited(self.worker, reason, self._hub.now - began)


class _Gone:
    def __getattr__(self, name: str) -> NoReturn:
        raise WorkerExit
