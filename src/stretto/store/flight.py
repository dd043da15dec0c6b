"""Changes that were sent and that the rows coming back do not have in them yet.

A shard says of rows it sends which of our Updates they hold (`seen`). What was sent later is added to them here, so
that a node never loses sight of its own changes while they travel.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.comm.messages import Keys
from stretto.kernels import slips

from .buffer import Batch
from .index import Lookup, longer
from .layout import Layout

_FIRST = 64


class Flight:
    """A log of changes of one table, each with its key, its shard and the number of its Update.

    seen [shards] int64: the last of our Updates that each shard has; the cache keeps it up to date.
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
        self._lookup = Lookup(_FIRST)

    def waits_for(self, shard: int) -> bool:
        """Whether something sent to this shard was not seen by it."""
        return bool(self._last[shard] > self._seen[shard])

    def append(self, batch: Batch, numbers: NDArray[np.int64]) -> None:
        """These changes were sent in the Updates `numbers` [n]; those of a shard ascend."""
        if self._count and (self._seen >= self._last).all():
            self._count = 0
            self._lookup.slots.fill(-1)
        n = len(batch)
        if self._count + n > len(self._keys):
            self._make_room(n)
        a, b = self._count, self._count + n
        self._numbers[a:b] = numbers
        self._shards[a:b] = batch.shards
        self._deltas[a:b] = batch.deltas
        self._witness[a:b] = batch.witness
        self._last[batch.shards] = numbers  # of several the last is written, which is the highest
        self._keys[a:b] = batch.keys
        self._link(a, b)

    def add_to(self, seen: int, keys: Keys, out: NDArray[Any], witness: NDArray[np.int32]) -> None:
        """Add to rows what their shard did not have when Update `seen` was the last it had."""
        at, slots = self._lookup.keys, self._lookup.slots
        slips.add_logged.exact(
            at, slots, self._before, self._numbers, self._deltas, self._witness, keys, seen, out, witness
        )

    def _link(self, a: int, b: int) -> None:
        lookup = self._lookup
        self._count = slips.log.exact(lookup.keys, lookup.slots, self._before, a, self._keys[a:b])

    def _make_room(self, n: int) -> None:
        """Forget what was seen, and grow if that is not enough."""
        count = self._count
        alive = np.flatnonzero(self._numbers[:count] > self._seen[self._shards[:count]])
        for column in (self._keys, self._numbers, self._shards, self._deltas, self._witness):
            column[: len(alive)] = column[alive]
        capacity = len(self._keys)
        if 2 * (len(alive) + n) > capacity:
            capacity = 1 << (2 * (len(alive) + n) - 1).bit_length()
            self._keys, self._numbers = longer(self._keys, capacity), longer(self._numbers, capacity)
            self._shards, self._deltas = longer(self._shards, capacity), longer(self._deltas, capacity)
            self._witness = longer(self._witness, capacity)
            self._before = np.empty(capacity, np.int32)
        self._lookup.slots.fill(-1)
        self._lookup.reserve(capacity)
        self._link(0, len(alive))
