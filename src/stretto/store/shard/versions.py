"""Versions of rows that a shard keeps because a node may still refer to them.

A change computed from version v of a row is applied with the value that one state of the row had when v was sent
(AdaRevision: the sum of all gradients so far). So when a version of a row is sent, its snapshot is kept, once, with a
bit for every node that has it. A node releases its bit when no change computed from that version can come any more. The
snapshot is dropped with the last bit.

    row changes, is sent to nodes 0 and 1 as version 4        one snapshot, two bits
    node 1 receives version 5, and a clock later releases 4   two snapshots, one bit each
    node 0 drops the row                                      one snapshot
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.kernels.tables import shard_rows as kernels
from stretto.store.index import Index, longer

from .applying import Slots

Versions = NDArray[np.int32]
NONE = -1  # the version of a change that was computed without reading the row
_LOW = 2**32 - 1
_FEW = 64  # places of dropped snapshots that are not worth compacting


class Snapshots:
    """The snapshots of one table of a shard. `len` of it is how many are kept.

    A place belongs to a slot and a version, packed into one number; data [places, cols], and refs [places, bytes] with
    a bit for each node. A place without bits is a dropped snapshot; when most are, the others are compacted.
    """

    def __init__(self, cols: int, dtype: np.dtype[Any], nodes: int) -> None:
        self._count = 0
        self._index = Index()
        self._data = np.zeros((self._index.capacity, cols), dtype=dtype)
        self._refs = np.zeros((self._index.capacity, (nodes + 7) // 8), dtype=np.uint8)

    def __len__(self) -> int:
        return self._count

    def lacking(self, slots: Slots, versions: Versions) -> NDArray[np.bool_]:
        """[n] which of these versions of rows have no snapshot."""
        places = self._index.find(_packed(slots, versions))
        return (places < 0) | ~self._refs[places].any(axis=1)

    def refer(
        self, ends: Slots, nodes: Slots, slots: Slots, once: Slots, version: Versions, source: NDArray[Any]
    ) -> None:
        """Keep snapshots of rows that are sent: nodes[k] receives rows slots[ends[k] : ends[k + 1]].

        once : the same rows, each once. version [cap], source [cap, cols] : version and snapshot of each slot.
        """
        places = np.empty(len(version), dtype=np.int64)
        places[once] = self._place(once, version[once])
        places = places[slots]
        self._count += kernels.refer.exact(ends, nodes, places, slots, source, self._data, self._refs)

    def give_back(self, node: int, slots: Slots, first: Versions, last: Versions) -> None:
        """Release versions first[i] … last[i] of row slots[i] for a node; those it never had are ignored."""
        many = np.maximum(last.astype(np.int64) - first + 1, 0)
        before = np.repeat(np.cumsum(many) - many, many)
        versions = np.repeat(first, many) + (np.arange(many.sum()) - before).astype(np.int32)
        places = self._index.find(_packed(np.repeat(slots, many), versions))
        self._count -= kernels.give_back.exact(places, node, self._refs)

    def recall(self, slots: Slots, versions: Versions, source: NDArray[Any]) -> tuple[NDArray[Any], int]:
        """Snapshots [n, cols] of these versions, and the first entry without a snapshot, or −1.

        For the version NONE it is the current value in source [cap, cols].
        """
        places = self._index.find(_packed(slots, versions))
        old = np.empty((len(slots), self._data.shape[1]), dtype=self._data.dtype)
        return old, int(kernels.recall.exact(places, slots, versions, source, self._data, self._refs, old))

    def kept(self) -> list[tuple[int, int, int]]:
        """(slot, version, nodes that refer to it) of every snapshot, in order."""
        there = self._live_places()
        nodes = np.unpackbits(self._refs[there], axis=1).sum(axis=1)
        packed = self._index.keys[there]
        return sorted(zip((packed >> 32).tolist(), (packed & _LOW).tolist(), nodes.tolist(), strict=True))

    def _live_places(self) -> NDArray[np.int64]:
        """Places of snapshots that are not dropped."""
        return np.flatnonzero(self._refs[: self._index.count].any(axis=1))

    def _place(self, slots: Slots, versions: Versions) -> NDArray[np.int64]:
        """[n] places of these snapshots, new ones where there are none."""
        used = self._index.count
        if used + len(slots) > self._index.capacity and used > 2 * self._count + _FEW:
            self._tidy()
        places = self._index.place(_packed(slots, versions))
        if self._index.capacity > len(self._data):
            self._data = longer(self._data, self._index.capacity)
            self._refs = longer(self._refs, self._index.capacity)
        return places

    def _tidy(self) -> None:
        """Remove the places of dropped snapshots."""
        there = self._live_places()
        index = Index()
        index.place(self._index.keys[there])
        self._index = index
        self._data = longer(self._data[there], index.capacity)
        self._refs = longer(self._refs[there], index.capacity)


def _packed(slots: Slots, versions: Versions) -> NDArray[np.int64]:
    return slots << 32 | versions
