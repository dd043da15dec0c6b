"""The cuts in progress on one node: when each part of a cut is taken and reported.

A cut at clock C is the complete state at C (see `table_run`). The driver receives its parts as they become available:

    ("worker", node, (C, worker, Part))         the worker when its clock became C, or when it ended
    ("node", node, (C, residuals))              rounding residuals of the cache, all its workers being at C
    ("shard", node, (C, arrays, seconds))       the rows, with exactly the updates of clocks < C

A shard must know of a cut before it receives updates of clock C or later. With cuts every 10 clocks, the cut at 20 is
opened when a worker of the shard's node is about to reach 20, or when a message of another node shows that a worker is
that far, whichever is first. So no coordination is needed, and all nodes take the same cuts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from stretto.comm.link import Frame
from stretto.comm.messages import NodeClock, Update
from stretto.errors import RunError
from stretto.runtime.tables.checkpoints import WorkerState
from stretto.runtime.tables.job import FAR
from stretto.store.node import StoreNode


@dataclass(frozen=True)
class CutPlan:
    """A cut at every multiple of each of these numbers of clocks, after clock `start`.

    >>> CutPlan((10, 4), start=8).between(8, 20)
    [10, 12, 16, 20]
    """

    every: tuple[int, ...] = ()
    start: int = 0

    def between(self, low: int, high: int) -> list[int]:
        """Clocks of the cuts after low, up to high."""
        low = max(low, self.start)
        return sorted({clock for step in self.every for clock in range((low // step + 1) * step, high + 1, step)})

    def __contains__(self, clock: int) -> bool:
        """Whether there is a cut at this clock."""
        return clock > self.start and any(clock % step == 0 for step in self.every)


@dataclass(eq=False)
class _Open:
    """A cut in progress."""

    workers: set[int] = field(default_factory=set)  # whose parts were reported
    node: bool = False  # whether the node's part was reported


class NodeCuts:
    """The cuts in progress on one node. `ended`: parts of workers that have ended, as they were then."""

    def __init__(self, node: StoreNode, plan: CutPlan, tell: Callable[[str, Any], None]) -> None:
        self.ended: dict[int, WorkerState] = {}
        self._node, self._plan, self._tell = node, plan, tell
        self._planned = plan.start  # all cuts of the plan up to this clock were opened
        self._last = FAR  # later cuts are not wanted
        self._open: dict[int, _Open] = {}

    def ahead(self, frames: Sequence[Frame]) -> None:
        """Open cuts that these frames require; called before the node receives them."""
        if not self._plan.every:
            return
        for frame in frames:
            message = frame.message
            kind = type(message)
            if kind is Update or kind is NodeClock:
                self.open_to(message.clock)  # type: ignore[union-attr]

    def open_to(self, clock: int) -> None:
        """A worker is about to reach this clock, or has. Beyond FAR there are no cuts: ended workers count as FAR."""
        if self._planned < clock < FAR and self._plan.every:
            for at in self._plan.between(self._planned, min(clock, self._last)):
                self.open(at)
            self._planned = clock

    def open(self, clock: int) -> bool:
        """Open a cut at this clock; False: it is too late for that."""
        if clock in self._open:
            return True
        try:
            self._node.shard.checkpoint(clock)
        except RunError:
            return False
        self._open[clock] = _Open()
        for worker, part in self.ended.items():
            self._worker(clock, worker, part)
        self.look()
        return True

    def reached(self, worker: int, clock: int, part: Callable[[], WorkerState]) -> bool:
        """A worker has reached this clock (FAR: it has ended), and the node is notified next. True: there is a cut
        at it.
        """
        crossed = [at for at, cut in self._open.items() if at <= clock and worker not in cut.workers]
        if crossed or clock >= FAR:
            now = part()
            if clock >= FAR:
                self.ended[worker] = now
            for at in crossed:
                self._worker(at, worker, now)
        return bool(crossed)

    def look(self) -> None:
        """Report the node's part of every cut that all its workers have reached."""
        low = self._node.clock
        for clock, cut in self._open.items():
            if clock <= low and not cut.node:
                cut.node = True
                self._tell("node", (clock, self._node.cache.residuals(clock)))

    def saved(self, clock: int) -> bool:
        """The shard's part is complete; return whether the cut is still wanted."""
        cut = self._open.get(clock)
        if cut is None:
            return False
        if cut.node and len(cut.workers) == len(self._node.cache.clocks):
            del self._open[clock]
        return True

    def cancel(self, clock: int) -> None:
        """Discard a cut."""
        self._open.pop(clock, None)
        self._node.shard.forget_checkpoint(clock)

    def end(self, last: int) -> None:
        """All workers stop at this clock before they have finished: later cuts are not wanted."""
        self._last = last
        for clock in [clock for clock in self._open if clock > last]:
            self.cancel(clock)

    def _worker(self, clock: int, worker: int, part: WorkerState) -> None:
        self._open[clock].workers.add(worker)
        self._tell("worker", (clock, worker, part))
