"""Which rows of large columns were used, so that a later run resets those alone.

>>> column = np.full(10_000, -1)
>>> touched = TouchedRows(len(column))
>>> column[[5, 9_000]] = 3
>>> touched.mark(np.array([5, 9_000]))
>>> touched.reset((column, -1))
5904
>>> int(column.max())
-1
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

_BITS = 12  # rows are marked in ranges of 2**_BITS


class TouchedRows:
    """The ranges of rows that were marked since the last reset."""

    __slots__ = ("_ranges", "_rows")

    def __init__(self, rows: int) -> None:
        self._rows = rows
        self._ranges: NDArray[np.bool_] = np.zeros((rows >> _BITS) + 1, np.bool_)

    def mark(self, rows: NDArray[np.int64]) -> None:
        """These rows were used."""
        self._ranges[rows >> _BITS] = True

    def reset(self, *columns: tuple[NDArray[Any], int]) -> int:
        """Fill the marked ranges of columns [rows, …], each with its number; returns how many rows that are."""
        if not self._ranges.any():
            return 0
        ends = np.flatnonzero(np.diff(self._ranges, prepend=False, append=False)) << _BITS
        total = 0
        for first, end in ends.reshape(-1, 2).tolist():  # neighbouring ranges at once
            last = min(end, self._rows)
            total += last - first
            for column, fill in columns:
                column[first:last] = fill
        self._ranges[:] = False
        return total
