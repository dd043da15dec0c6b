"""Select the changes to send early: the highest-ranked rows first, by the policy.

Ranking reads every changed row, so one ranking serves several calls. It keeps the best `LOT` times as many rows as were
requested, or an eighth of all, whichever is more. It is dropped when a clock ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.comm import ranking
from stretto.comm.policy import Managed
from stretto.kernels.tables import pending_changes as kernels
from stretto.store.index import Places
from stretto.store.layout import Layout
from stretto.store.recording import Picked

from .buffer import PendingChanges
from .sending import Sender, Updates
from .table import CachedTable

LOT = 8
_SEED = 1_000_003


@dataclass(slots=True, eq=False)
class RankedRows:
    """Changed rows in the order of their rank. Row i is at places[i] of slips[which[i]]."""

    slips: list[PendingChanges]
    which: Places  # index of the row's slip
    places: Places  # place of the row in its slip
    shards: Places  # the shard of the row
    ranks: Places  # its rank among all ranked rows, from 0
    among: int  # number of rows that were ranked

    def take(self, rows: int, open_: NDArray[np.bool_] | None) -> RankedRows:
        """Take out the first rows of open shards, at most `rows`."""
        if open_ is None or open_.all():
            chosen = np.arange(min(rows, len(self.places)))
        else:
            chosen = np.flatnonzero(open_[self.shards])[:rows]
        which, places, shards, ranks = (column[chosen] for column in self._columns())
        taken = RankedRows(self.slips, which, places, shards, ranks, self.among)
        if len(chosen):
            self.which, self.places, self.shards, self.ranks = (np.delete(each, chosen) for each in self._columns())
        return taken

    def _columns(self) -> tuple[Places, Places, Places, Places]:
        return self.which, self.places, self.shards, self.ranks


class Picker:
    """Chooses changes of one node from the open slips of all its tables.

    picked : rows that `pick` chose, with their ranks, in runs that record everything. The reader empties it.
    """

    def __init__(self, layout: Layout, node: int, tables: Sequence[CachedTable], sender: Sender) -> None:
        self._layout, self._tables, self._sender = layout, tables, sender
        self._rank = layout.policy.rank if isinstance(layout.policy, Managed) else None
        seed = layout.seed * _SEED + node
        self._states = [ranking.RankState(seed + table * _SEED) for table in range(len(tables))]
        self._lots: dict[int, RankedRows] = {}
        self._turn = 0
        self._records = layout.witness
        self.picked: list[Picked] = []

    def forget(self) -> None:
        """Drop all rankings: a clock has ended, and its slips are gone."""
        self._lots.clear()

    def pick(self, rows: int, oldest: int, open_: NDArray[np.bool_] | None) -> tuple[Updates, bool]:
        """The highest-ranked changes, at most `rows`, and whether any changed row was found at all.

        oldest : the clock that ends next. Tables are served in rotation.
        """
        updates: Updates = []
        found, left = False, rows
        for _ in range(len(self._tables) if self._rank is not None else 0):
            table = self._turn
            self._turn = (table + 1) % len(self._tables)
            lot = self._lots.get(table)
            taken = lot.take(left, open_) if lot is not None else None
            if taken is None or not len(taken.places):
                lot, any_ = self._ranked(table, rows, open_)
                found = found or any_
                if lot is None:
                    self._lots.pop(table, None)
                    continue
                self._lots[table] = lot
                taken = lot.take(left, open_)
            found = True
            self._note(table, taken)
            for number in np.unique(taken.which).tolist():
                slip = taken.slips[number]
                places = taken.places[taken.which == number]
                updates += self._sender.early(self._tables[table], slip, places, slip.clock == oldest)
            left -= len(taken.places)
            if left <= 0:
                break
        return updates, found

    def _note(self, table: int, taken: RankedRows) -> None:
        """Record that these rows are sent now. The rest of their lot may be dropped and does not count as sent."""
        last = taken.slips[int(taken.which[-1])]
        self._states[table].sent(int(last.keys[taken.places[-1]]))
        if self._records:
            keys = np.empty(len(taken.places), np.int64)
            for number in np.unique(taken.which).tolist():
                here = taken.which == number
                keys[here] = taken.slips[number].keys[taken.places[here]]
            self.picked.append(Picked(table, keys, taken.ranks, taken.among))

    def _ranked(self, number: int, rows: int, open_: NDArray[np.bool_] | None) -> tuple[RankedRows | None, bool]:
        """A new lot of a table, None where no changed row may be sent; and whether there was any changed row."""
        table = self._tables[number]
        slips = sorted(table.buffer.slips.values(), key=lambda slip: slip.clock)
        dirty = [slip.dirty() for slip in slips]
        which = np.repeat(np.arange(len(slips)), [len(places) for places in dirty])
        if not len(which):
            return None, False
        places = np.concatenate(dirty)
        keys = np.concatenate([slip.keys[at] for slip, at in zip(slips, dirty, strict=True)])
        if which[0] != which[-1] and not self._layout.rule.exact:
            # Of a row changed in several clocks the oldest change is sent first: a worker's changes stay in order.
            _, first, where = np.unique(keys, return_index=True, return_inverse=True)
            can = which == which[first][where]
            which, places, keys = which[can], places[can], keys[can]
        shards = self._layout.shard_of(number, keys)
        if open_ is not None and not open_.all():
            can = open_[shards]
            which, places, keys, shards = which[can], places[can], keys[can], shards[can]
            if not len(which):
                return None, True
        chosen = ranking.order(
            self._rank or "",
            *self._rank_arguments(table, slips, which, places, keys),
            keys,
            self._states[number],
            max(LOT * rows, len(which) // LOT),
        )
        ranks = np.arange(len(chosen))
        return RankedRows(slips, which[chosen], places[chosen], shards[chosen], ranks, len(which)), True

    def _rank_arguments(
        self, table: CachedTable, slips: list[PendingChanges], which: Places, places: Places, keys: Places
    ) -> tuple[NDArray[Any] | None, NDArray[Any] | None, NDArray[np.bool_] | None, NDArray[Any] | None]:
        """Arguments of the rank: deltas, rows [m, width], held, scale [m]; None for those it does not use."""
        rank, pool = self._rank, table.pool
        if rank in ("random", "round-robin"):
            return None, None, None, None
        deltas = np.empty((len(places), table.spec.cols), table.spec.kept)
        for number, slip in enumerate(slips):
            here = np.flatnonzero(which == number)
            if len(here):
                a, b = here[0], here[-1] + 1  # rows of one slip are contiguous
                kernels.take.exact(slip.deltas, places[a:b], deltas[a:b])
        if rank == "absolute":
            return deltas, None, None, None
        slots = pool.find(keys)
        if rank == "effective":
            scale = np.ones(len(slots), np.float32)
            scale[slots >= 0] = pool.scale[slots[slots >= 0]]
            return deltas, None, None, scale
        held = slots >= 0
        held[held] = pool.through[slots[held]] >= 0
        rows = np.empty_like(deltas)
        kernels.take.exact(pool.values, np.where(held, slots, -1), rows)
        return deltas, rows, held, None
