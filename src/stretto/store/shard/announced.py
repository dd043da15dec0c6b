"""Announcements that a shard received: which rows nodes will change in which clock, and which rows none will.

A read that needs a row through clock c waits for the updates of clocks < c of every node. If every node that is behind
has announced the rows it will change in each of those clocks, and the row is in none of the announcements, no missing
update can change the row: it is through c already.

    node 0 has ended clock 4, node 1 is in clock 3; a read needs row 7 through 5
    node 1 announced {2, 9} for clock 3 and {7} for clock 4: wait       … {2, 9} and {9}: row 7 is through 5 now
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from stretto.comm.messages import Keys, Update
from stretto.errors import RunError
from stretto.store.index import longer
from stretto.store.layout import Layout

from .applying import Slots


class ShardAnnouncements:
    """Announcements for open clocks, with rows as slots of the shard. clocks: of the nodes."""

    def __init__(self, layout: Layout, clocks: list[int]) -> None:
        self._layout = layout
        self._clocks = list(clocks)
        self._slots: dict[tuple[int, int, int], Slots] = {}  # (node, table, clock) -> sorted slots
        self._waiting: dict[tuple[int, int], NDArray[np.int32]] = {}  # (table, clock) -> nodes that will add to a slot

    def put(self, node: int, table: int, clock: int, slots: Slots, keys: Keys) -> None:
        """Store that in this clock the node will add to no other rows of the table."""
        if clock < self._clocks[node]:
            return  # it is over
        slots = np.unique(slots)
        said = self._slots.get((node, table, clock))
        if said is not None:
            if np.isin(slots, said, assume_unique=True).all():
                return
            raise RunError(
                f"table {self._layout.tables[table].name!r}: node {node} announced clock {clock} twice, the second "
                f"time with further rows (of {len(keys)}); this is a fault of Stretto, please report it"
            )
        self._slots[node, table, clock] = slots
        waiting = self._waiting.get((table, clock))
        need = int(slots[-1]) + 1 if len(slots) else 1
        if waiting is None:
            waiting = np.zeros(need, dtype=np.int32)
        elif len(waiting) < need:
            waiting = longer(waiting, max(need, 2 * len(waiting)))
        waiting[slots] += 1
        self._waiting[table, clock] = waiting

    def check(self, update: Update, slots: Slots) -> None:
        """Raise if an update changes rows outside its announcement: reads served before would be wrong."""
        said = self._slots.get((update.node, update.table, update.clock))
        if said is None:
            return
        outside = ~np.isin(slots, said)
        if outside.any():
            workers = self._layout.workers_of(update.node)
            raise RunError(
                f"node {update.node} (workers {workers.start} to {workers.stop - 1}) announced {len(said)} rows of "
                f"table {self._layout.tables[update.table].name!r} for clock {update.clock} but added to row "
                f"{update.keys[outside][0]} too; announce every row the clock adds to, or leave out speculate=True"
            )

    def move(self, node: int, clock: int) -> None:
        """The node has ended all clocks < clock."""
        self._clocks[node] = clock
        for entry in [entry for entry in self._slots if entry[0] == node and entry[2] < clock]:
            self._waiting[entry[1], entry[2]][self._slots.pop(entry)] -= 1
        least = min(self._clocks)
        for table, over in [entry for entry in self._waiting if entry[1] < least]:
            del self._waiting[table, over]

    def settled(self, table: int, slots: Slots, need: int) -> NDArray[np.bool_]:
        """[n] whether no missing update of clocks < need changes the row."""
        first = need
        for node, clock in enumerate(self._clocks):
            first = min(first, clock)
            for missing in range(clock, need):
                if (node, table, missing) not in self._slots:
                    return np.zeros(len(slots), dtype=np.bool_)
        free = np.ones(len(slots), dtype=np.bool_)
        for missing in range(first, need):
            waiting = self._waiting.get((table, missing))
            if waiting is not None:
                known = slots < len(waiting)
                free[known] &= waiting[slots[known]] == 0
        return free
