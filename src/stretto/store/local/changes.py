"""What one worker has added in one clock, until the clock is over.

`DenseChanges` has a place for every row of the table, `HashedChanges` for rows that were touched.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from stretto.comm.messages import Keys
from stretto.kernels.tables import cached_rows, local_rows
from stretto.store.index import Index, longer

DENSE_BYTES = 1 << 29  # of the changes of all workers of a table: up to this size they are stored by key


class WaitingChanges(Protocol):
    """Changes of one worker that are applied when their clock is over."""

    def add(self, keys: Keys, deltas: NDArray[Any]) -> None:
        """Add deltas [n, cols]; a key that occurs twice is added to twice."""

    def add_to(self, keys: Keys, out: NDArray[Any]) -> None:
        """Add the changes of these rows to out [n, cols]."""

    def rows(self) -> tuple[Keys, NDArray[Any]]:
        """keys [n], each once, and their changes [n, cols]."""

    def clear(self) -> None:
        """Forget all changes; memory is kept for the next use."""


class DenseChanges:
    """A place for every row of the table; a row's place is valid where its stamp is the number of the present use."""

    def __init__(self, rows: int, cols: int, dtype: np.dtype[Any]) -> None:
        self.deltas: NDArray[Any] = np.zeros((rows, cols), dtype)
        self.stamp: NDArray[np.int32] = np.zeros(rows, np.int32)
        self.listed: NDArray[np.int32] = np.zeros(rows, np.int32)
        self.use, self.count = 1, 0

    def add(self, keys: Keys, deltas: NDArray[Any]) -> None:
        """Add deltas [n, cols]."""
        self.count = local_rows.collect.exact(keys, deltas, self.stamp, self.use, self.deltas, self.listed, self.count)

    def add_to(self, keys: Keys, out: NDArray[Any]) -> None:
        """Add the changes of these rows to out [n, cols]."""
        if self.count:
            local_rows.add_waiting.exact(keys, self.stamp, self.use, self.deltas, out)

    def rows(self) -> tuple[Keys, NDArray[Any]]:
        """keys [n], each once, and their changes [n, cols]."""
        keys = self.listed[: self.count].astype(np.int64)
        return keys, self.deltas[keys]

    def clear(self) -> None:
        """Forget all changes."""
        self.count = 0
        self.use += 1
        if self.use == 2**31 - 1:
            self.use = 1
            self.stamp[:] = 0


class HashedChanges:
    """Places for touched rows only, found by a hash index: for tables too large for `DenseChanges`."""

    def __init__(self, cols: int, dtype: np.dtype[Any]) -> None:
        self._index = Index()
        self._deltas: NDArray[Any] = np.zeros((self._index.capacity, cols), dtype)
        self._none = np.zeros((0, 0), np.int32)

    def add(self, keys: Keys, deltas: NDArray[Any]) -> None:
        """Add deltas [n, cols]."""
        before = self._index.count
        places = self._index.place(keys)
        if self._index.capacity > len(self._deltas):
            self._deltas = longer(self._deltas, self._index.capacity)
        local_rows.collect_at.exact(places, before, deltas, self._deltas)

    def add_to(self, keys: Keys, out: NDArray[Any]) -> None:
        """Add the changes of these rows to out [n, cols]."""
        if self._index.count:
            lookup = self._index.lookup
            cached_rows.add_found.exact(lookup.keys, lookup.slots, self._deltas, self._none, keys, out, self._none)

    def rows(self) -> tuple[Keys, NDArray[Any]]:
        """keys [n], each once, and their changes [n, cols]."""
        count = self._index.count
        return self._index.keys[:count].copy(), self._deltas[:count].copy()

    def clear(self) -> None:
        """Forget all changes."""
        self._index.clear()
