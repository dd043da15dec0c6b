"""Design-matrix columns that the driver has fetched from nodes, stored so that kernels take them as a whole matrix.

Sparse: CSC of full width, in which the other columns are empty. Dense: the transpose [p, n], whose pages take no memory
until they are written. So every kernel runs as over the whole matrix and gives the same bits.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import DTypeLike, NDArray

from stretto.pages import Pages
from stretto.ranges import join_ranges

Array = NDArray[Any]
Ints = NDArray[np.int64]


class ColumnStore(Protocol):
    """Columns that were fetched."""

    has: NDArray[np.bool_]  # [p] whether each column was fetched

    @property
    def parts(self) -> tuple[Array, ...]:
        """The matrix as kernels take it."""

    def add(self, which: Ints, fetched: list[tuple[Array, ...]]) -> None:
        """Store columns, ascending, as `column_parts.fetch` returns them."""


class DenseStore:
    """Columns of a dense design [n, p]."""

    def __init__(self, shape: tuple[int, int], dtype: DTypeLike) -> None:
        n, p = shape
        self.has = np.zeros(p, bool)
        self._pages = Pages((p, n), dtype, huge=False)

    @property
    def parts(self) -> tuple[Array, ...]:
        return (self._pages.array,)

    def add(self, which: Ints, fetched: list[tuple[Array, ...]]) -> None:
        at = 0
        for (rows,) in fetched:
            self._pages.array[which[at : at + len(rows)]] = rows
            at += len(rows)
        self.has[which] = True


class SparseStore:
    """Columns of a sparse design.

    entries [p] : number of stored entries of each column of the design
    index, dtype : types of row indices and of values
    """

    def __init__(self, entries: Ints, index: DTypeLike, dtype: DTypeLike) -> None:
        self.has = np.zeros(len(entries), bool)
        self._entries = entries
        self._parts: tuple[Array, ...] = np.zeros(len(entries) + 1, np.int64), np.empty(0, index), np.empty(0, dtype)

    @property
    def parts(self) -> tuple[Array, ...]:
        return self._parts

    def add(self, which: Ints, fetched: list[tuple[Array, ...]]) -> None:
        _, indices, values = self._parts
        here = np.flatnonzero(self.has)
        self.has[which] = True
        bounds = np.concatenate([np.zeros(1, np.int64), np.cumsum(np.where(self.has, self._entries, 0))])
        wider = bounds, np.empty(bounds[-1], indices.dtype), np.empty(bounds[-1], values.dtype)
        old, new = self._places(here, bounds), self._places(which, bounds)
        wider[1][old], wider[2][old] = indices, values
        wider[1][new] = np.concatenate([rows for rows, _ in fetched])
        wider[2][new] = np.concatenate([found for _, found in fetched])
        self._parts = wider

    def _places(self, which: Ints, bounds: Ints) -> Ints:
        """Positions of the entries of these columns, column after column."""
        return join_ranges(bounds[which], self._entries[which])[0]
