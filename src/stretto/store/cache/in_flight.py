"""Changes that were sent and are not yet contained in the rows that come back.

Rows from a shard name the last of this node's Updates that they contain (`seen`). The cache adds later changes to them,
so that a node always sees its own changes while they travel.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.comm.messages import Keys
from stretto.kernels.tables import pending_changes
from stretto.store.index import NO_INDEX, KeyIndex
from stretto.store.layout import Layout

from .buffer import ChangeBatch

_FIRST = 64
# Keys and slots of the index, the entry before each, numbers, deltas, witness.
Log = tuple[Keys, NDArray[np.int32], NDArray[np.int32], NDArray[np.int64], NDArray[Any], NDArray[np.int32]]


class ChangesInFlight:
    """A log of changes of one table, each with its key, its shard and the number of its Update.

    seen [shards] int64 : the last of this node's Updates that each shard has; the cache updates it.
    """

    def __init__(self, layout: Layout, table: int, seen: NDArray[np.int64]) -> None:
        spec = layout.tables[table]
        self._seen = seen
        self._last = np.zeros_like(seen)  # the highest number in the log, by shard
        self._count = 0
        self._keys: Keys = np.empty(_FIRST, np.int64)
        self._before: NDArray[np.int32] = np.empty(_FIRST, np.int32)
        self._numbers: NDArray[np.int64] = np.empty(_FIRST, np.int64)
        self._shards: NDArray[np.int64] = np.empty(_FIRST, np.int64)
        self._deltas: NDArray[Any] = np.empty((_FIRST, spec.cols), spec.kept)
        self._witness: NDArray[np.int32] = np.empty((_FIRST, layout.witnesses), np.int32)
        self._lookup = KeyIndex(_FIRST)

    @staticmethod
    def none(cols: int, kept: np.dtype[Any], witnesses: int) -> Log:
        """An empty log, for a table without one."""
        numbers, entries = np.empty(0, np.int64), np.empty(0, np.int32)
        return *NO_INDEX, entries, numbers, np.empty((0, cols), kept), np.empty((0, witnesses), np.int32)

    def waits_for(self, shard: int) -> bool:
        """Whether this shard has not yet acknowledged all changes sent to it."""
        return bool(self._last[shard] > self._seen[shard])

    def append(self, batch: ChangeBatch, numbers: NDArray[np.int64]) -> None:
        """Log changes that were sent in the Updates `numbers` [n], ascending for each shard."""
        if self._count and (self._seen >= self._last).all():
            self._count = 0
            self._lookup.slots.fill(-1)
        n = len(batch)
        if self._count + n > len(self._keys):
            self._ensure_capacity(n)
        a, b = self._count, self._count + n
        self._numbers[a:b] = numbers
        self._shards[a:b] = batch.shards
        self._deltas[a:b] = batch.deltas
        self._witness[a:b] = batch.witness
        self._last[batch.shards] = numbers  # NumPy writes the last of several, which is the highest
        self._keys[a:b] = batch.keys
        self._link(a, b)

    def add_to(self, seen: int, keys: Keys, out: NDArray[Any], witness: NDArray[np.int32]) -> None:
        """Add to rows the changes after Update `seen`, which their shard did not have."""
        at, slots = self._lookup.keys, self._lookup.slots
        pending_changes.add_logged.exact(
            at, slots, self._before, self._numbers, self._deltas, self._witness, keys, seen, out, witness
        )

    def log(self, shard: int) -> Log:
        """The log for `cached_rows.install`, without an index if the shard has seen everything sent to it."""
        keys, slots = self._lookup.both if self._last[shard] > self._seen[shard] else NO_INDEX
        return keys, slots, self._before, self._numbers, self._deltas, self._witness

    def _link(self, a: int, b: int) -> None:
        lookup = self._lookup
        self._count = pending_changes.log.exact(lookup.keys, lookup.slots, self._before, a, self._keys[a:b])

    def _ensure_capacity(self, n: int) -> None:
        """Remove changes that were seen, and grow if that is not enough."""
        count = self._count
        alive = np.flatnonzero(self._numbers[:count] > self._seen[self._shards[:count]])
        capacity = len(self._keys)
        if 2 * (len(alive) + n) > capacity:
            capacity = 1 << (2 * (len(alive) + n) - 1).bit_length()
            self._before = np.empty(capacity, np.int32)
        for name in ("_keys", "_numbers", "_shards", "_deltas", "_witness"):
            column = old = getattr(self, name)
            if capacity > len(old):
                column = np.empty((capacity, *old.shape[1:]), old.dtype)
                setattr(self, name, column)
            column[: len(alive)] = old[alive]
        self._lookup.slots.fill(-1)
        self._lookup.reserve(capacity)
        self._link(0, len(alive))
