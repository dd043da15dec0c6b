"""Ids of one axis of a streamed file: how often each occurs, and the index of each.

    >>> users = IdCounts()
    >>> users.add(np.array([70, 80, 70]))
    >>> users.close()
    >>> users.known.tolist(), users.counts.tolist()
    ([70, 80], [2, 1])

Both need memory for ids, never for records.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.data.reading.columns import IdRanks
from stretto.data.records.ids import IdMap
from stretto.errors import DataError

TABLE = 1 << 25  # ids counted in one table: 256 MiB at most, and only for ids that spread that far


class IdCounts:
    """How many records each row (or column) has, as they are met.

    Ids of a small range are counted in a table that begins at `low`; ids of a large range (hashes, 64-bit keys) in
    sorted arrays that are merged chunk by chunk.
    """

    def __init__(self) -> None:
        self.low = 0
        self.table = np.zeros(0, dtype=np.int64)
        self.known = np.empty(0, dtype=np.int64)
        self.counts = np.empty(0, dtype=np.int64)
        self.wide = False

    def add(self, ids: NDArray[Any]) -> None:
        if not len(ids):
            return
        low, high = int(ids.min()), int(ids.max())
        if not self.wide and len(self.table):
            low, high = min(low, self.low), max(high, self.low + len(self.table) - 1)
        if self.wide or high - low >= TABLE:
            self._widen()
            self._merge(*np.unique(ids, return_counts=True))
            return
        from stretto.kernels.text.ids import tally

        if low < self.low or high >= self.low + len(self.table):
            larger = np.zeros(max(high - low + 1, min(2 * len(self.table), TABLE)), dtype=np.int64)
            larger[self.low - low : self.low - low + len(self.table)] = self.table
            self.low, self.table = low, larger
        tally(ids, self.low, self.table)

    def _widen(self) -> None:
        if not self.wide:
            self.close()
            self.wide = True

    def _merge(self, fresh: NDArray[Any], times: NDArray[Any]) -> None:
        merged = np.union1d(self.known, fresh)
        counts = np.zeros(len(merged), dtype=np.int64)
        counts[np.searchsorted(merged, self.known)] = self.counts
        counts[np.searchsorted(merged, fresh)] += times
        self.known, self.counts = merged, counts

    def close(self) -> None:
        """Settle `known`, sorted, and their `counts`."""
        if not self.wide:
            at = np.flatnonzero(self.table)
            self.known, self.counts = at + self.low, self.table[at]
            self.table = np.zeros(0, dtype=np.int64)

    def spread(self, low: int, size: int) -> NDArray[np.int64]:
        """Counts over `low..low+size-1`, zero where an index never occurred."""
        out = np.zeros(size, dtype=np.int64)
        out[self.known - low] = self.counts
        return out


class IdIndex:
    """Maps ids of the file to indices inside the shape; a file that grew since the first pass raises an error."""

    def __init__(self, path: str, size: int, ids: IdMap | None, rank: NDArray[np.int32] | None, first: int) -> None:
        self.path, self.size, self.rank, self.first = path, size, rank, first
        self.known = ids.ids if ids is not None and rank is None else None
        self.lookup = None if self.known is None else IdRanks(self.known)

    def __call__(self, said: NDArray[Any]) -> NDArray[Any]:
        if not len(said):
            return np.empty(0, dtype=np.int32)
        low, high = int(said.min()), int(said.max())
        if self.known is None or self.lookup is None:
            self._demand(low >= self.first and high < self.first + self.size)
            if self.rank is not None:
                return np.asarray(self.rank[said])
            out: NDArray[Any] = said - self.first
            return out.astype(np.int32) if self.size < 2**31 else out
        self._demand(low >= int(self.known[0]) and high <= int(self.known[-1]))
        indices = np.empty(len(said), dtype=np.int32)
        self.lookup(said, indices)
        self._demand(int(indices.min()) >= 0)
        return indices

    def _demand(self, as_before: bool) -> None:
        if not as_before:
            raise DataError(f"{self.path}: it holds ids that it did not hold when it was first read; start again")
