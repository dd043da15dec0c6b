"""`Ring`: changes of mirrored tables that go from neighbour to neighbour.

Every node with workers stores all rows of such a table. Its changes go to the next node, which applies them and passes
them on, until they have reached the node before the one that made them. They are passed on as they are, not summed: so
every node applies the changes of a clock in the order of workers, and all have the same bits.

Clocks go to each node directly and may overtake changes. Each says how many Updates its node has put on the ring, and
waits here until that many have come around.

    ring = Ring(layout, node=1)
    target = ring.passes_to(update)            # the next node, or None
    for clock in ring.arrived(update): …       # NodeClocks that waited for it
    if ring.holds(clock): …                    # it waits

Pure: `store.node` carries what it says.
"""

from __future__ import annotations

from collections import deque

from stretto.comm.messages import NodeClock, Update

from .layout import Layout


def others_of(layout: Layout, table: int, node: int) -> tuple[int, ...]:
    """The nodes that a node sends its changes of a mirrored table to, besides itself, nearest first."""
    mirrors = layout.mirrors
    if node not in mirrors:
        return ()
    at = mirrors.index(node)
    around = mirrors[at + 1 :] + mirrors[:at]
    return around[:1] if layout.tables[table].exchange == "ring" else around


class Ring:
    """The place of one node in the ring: what it has received of each other node, and clocks that wait for more."""

    def __init__(self, layout: Layout, node: int) -> None:
        self._node = node
        self._tables = frozenset(k for k, spec in enumerate(layout.tables) if spec.exchange == "ring")
        others = [other for table in self._tables for other in others_of(layout, table, node)]
        self._next = others[0] if others else None
        self._member = node in layout.mirrors
        self._received: dict[int, int] = {}  # by node: Updates that have come around
        self._waiting: dict[int, deque[NodeClock]] = {}

    def passes_to(self, update: Update) -> int | None:
        """The node that an Update is passed on to; None: it is not one of the ring, or has been everywhere."""
        if update.table not in self._tables or update.node in (self._node, self._next):
            return None
        return self._next

    def arrived(self, update: Update) -> list[NodeClock]:
        """An Update was applied; returns the clocks that waited for it."""
        if update.table not in self._tables or update.node == self._node:
            return []
        received = self._received[update.node] = self._received.get(update.node, 0) + 1
        waiting, ready = self._waiting.get(update.node), []
        while waiting and waiting[0].circulated <= received:
            ready.append(waiting.popleft())
        return ready

    def holds(self, clock: NodeClock) -> bool:
        """Whether a clock has to wait: changes of clocks before it are still on their way around."""
        if not self._member or clock.node == self._node or clock.circulated <= self._received.get(clock.node, 0):
            return False
        self._waiting.setdefault(clock.node, deque()).append(clock)
        return True
