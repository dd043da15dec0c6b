"""Rows that a cache holds, stored as columns.

A row has a slot. Where the layout reserves a table's rows, the slot of every row is its key: rows never move, so that
threads may read and change rows while others arrive. Otherwise, as for sparse tables, a key gets a slot when it is
first seen, and full columns grow to twice their length. Threads may then read rows while others arrive, but not change
them: a change could be written to a column that has been replaced.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.comm.messages import Keys
from stretto.store.index import Index, Places, longer
from stretto.store.layout import Layout
from stretto.store.local.holdings import ChunkPartition
from stretto.store.touched import TouchedRows

# What new slots hold in each column.
_FILLS = {"values": 0, "through": -1, "shard": 0, "witness": 0, "version": -1, "scale": 1, "pending": -1}
_SPARE = 8  # a full cache evicts an eighth of its rows, so that eviction is rare


class Pool:
    """Rows of one table, as columns by slot.

    Attributes
    ----------
    values : array [slots, width]
        Values of the rows.
    through : array [slots]
        The clock each row is through; −1 where it is not held.
    shard : array [slots]
        The shard of each row.
    witness : array [slots, workers]
        Calls of add in each row.
    version : array [slots]
        Version of each row; −1 without.
    scale : array [slots]
        Factor of the server function.
    pending : array [slots]
        The need of the Fetch in flight; −1 without.
    used : array [slots]
        The clock of the last read or change (only with a bound on rows).
    """

    def __init__(self, layout: Layout, table: int) -> None:
        spec = layout.tables[table]
        self._layout, self._table = layout, table
        self.bound = spec.cache_rows
        self.held = 0
        reserved = layout.reserved(table)
        self.index = Index() if reserved is None else None
        slots = reserved if self.index is None else self.index.capacity
        assert slots is not None
        self.values: NDArray[Any] = np.zeros((slots, spec.cols), spec.kept)
        self.through: NDArray[np.int64] = np.full(slots, -1)
        self.shard: NDArray[np.int32] = np.zeros(slots, np.int32)
        self.witness: NDArray[np.int32] = np.zeros((slots, layout.witnesses), np.int32)
        versioned = spec.versioned and not layout.rule.exact
        self.version: NDArray[np.int32] = np.full(slots if versioned else 0, -1, np.int32)
        self.scale: NDArray[np.float32] = np.ones(slots, np.float32)
        self.pending: NDArray[np.int64] = np.full(slots, -1)
        self.used: NDArray[np.int64] = np.zeros(0 if self.bound is None else slots, np.int64)
        self._touched = TouchedRows(slots)
        if self.index is None:
            self.shard[:] = layout.shard_of(table, np.arange(slots))

    def begin_again(self, layout: Layout) -> bool:
        """Start another run over the same rows, with nothing held; False if its columns would differ."""
        spec, before = layout.tables[self._table], self._layout.tables[self._table]
        same = (
            self.index is None
            and layout.reserved(self._table) == len(self.through)
            and (spec.cols, spec.kept) == (before.cols, before.kept)
            and self.witness.shape[1] == layout.witnesses
            and not (len(self.version) or len(self.used) or spec.versioned or spec.cache_rows)
        )
        if same:
            old, self._layout, self.held = self._layout, layout, 0
            self._touched.reset((self.through, -1), (self.pending, -1))
            self._place_shards(old)
        return same

    def requested(self, slots: Places, need: int) -> None:
        """Rows are requested. No other rows are held later."""
        self.pending[slots] = need
        if self.index is None:
            self._touched.mark(slots)

    def _place_shards(self, old: Layout) -> None:
        """Place rows on shards, as far as another layout had them elsewhere."""
        before, now = old.tables[self._table], self._layout.tables[self._table]
        one, other = before.partition, now.partition
        new = self._layout
        alike = (old.nodes, before.shards, before.mirrored) == (new.nodes, now.shards, now.mirrored)
        if now.mirrored:
            alike = alike and old.here == new.here
        if alike and isinstance(one, ChunkPartition) and isinstance(other, ChunkPartition) and one.bits == other.bits:
            moved = np.flatnonzero(one.shards != other.shards)
            shards = self._layout.shard_of(self._table, moved << other.bits)
            for chunk, shard in zip(moved.tolist(), shards.tolist(), strict=True):
                self.shard[chunk << other.bits : (chunk + 1) << other.bits] = shard
        elif not alike or one != other:
            self.shard[:] = self._layout.shard_of(self._table, np.arange(len(self.shard)))

    def find(self, keys: Keys) -> Places:
        """[n] the slot of each row, −1 where it has none."""
        return keys if self.index is None else self.index.find(keys)

    def place(self, keys: Keys) -> Places:
        """[n] the slot of each row, a new one where it had none."""
        index = self.index
        if index is None:
            return keys
        before = index.count
        index.make_room(before + len(keys))
        if index.capacity > len(self.through):
            self._grow(index.capacity)
        slots = index.place(keys)  # threads may find them from now on: their columns exist already
        if index.count > before:
            new = slice(before, index.count)
            self.shard[new] = self._layout.shard_of(self._table, index.keys[new])
        return slots

    def keys_at(self, slots: Places) -> Keys:
        """[n] the key of the row in each slot."""
        return slots if self.index is None else self.index.keys[slots]

    def versions_at(self, slots: Places) -> NDArray[np.int32]:
        """[n] the version of the row in each slot, −1 where none is held or there is no slot."""
        versions = self.version[slots]
        versions[slots < 0] = -1
        return versions

    def _grow(self, capacity: int) -> None:
        # A reader takes `through` first: if that has grown, all other columns have.
        for name, fill in sorted(_FILLS.items(), key=lambda column: column[0] == "through"):
            if name != "version" or len(self.version):
                setattr(self, name, longer(getattr(self, name), capacity, fill))
        if self.bound is not None:
            self.used = longer(self.used, capacity)

    def surplus(self, pinned: Keys, since: int) -> Places:
        """Slots of rows to evict, the longest unused first; none while the bound is kept.

        Requested and pinned rows stay, and so do rows used in clocks ≥ since, even beyond the bound.
        """
        if self.bound is None or self.held <= self.bound:
            return np.empty(0, np.int64)
        free = (self.through >= 0) & (self.pending < 0) & (self.used < since)
        slots = self.find(pinned)
        free[slots[slots >= 0]] = False
        candidates = np.flatnonzero(free)
        oldest = np.argsort(self.used[candidates], kind="stable")
        return candidates[oldest[: self.held - (self.bound - self.bound // _SPARE)]]

    def let_go(self, slots: Places) -> None:
        """These rows are no longer held."""
        self.held -= len(slots)
        self.through[slots] = -1
        if len(self.version):
            self.version[slots] = -1
        if self.index is None:
            return
        count = self.index.count
        stay = np.flatnonzero((self.through[:count] >= 0) | (self.pending[:count] >= 0))
        self.index.keep(stay)
        for name, fill in _FILLS.items():
            column = getattr(self, name)
            if len(column):
                column[: len(stay)] = column[stay]
                column[len(stay) : count] = fill
        self.used[: len(stay)] = self.used[stay]
