"""Access to the rows of a shared table, with locks on chunks of rows or without.

    access = access_of("chunks", rows=100_000)
    access.add(array, keys, deltas)

Rows are read and added to by compiled code, which releases Python's lock. Chunks are the middle between one lock for
each row, which costs more than the work, and one for the whole table, for which every thread waits. A thread holds one
lock at a time, so no two wait for each other; consecutive rows of a chunk are handled under one lock.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.comm.messages import Keys
from stretto.kernels.tables import shared_rows

LOCKS = 1024  # of a table at most; measured by `python -m bench chunk_sizes`


class RowAccess:
    """Reads and adds to rows of an array [rows, cols].

    Parameters
    ----------
    rows : int
        Rows of the table.
    locks : int
        Locks, a power of two; 0 for none: concurrent adds to one number may then lose one of them.
    """

    def __init__(self, rows: int, locks: int) -> None:
        self._bits = max(0, (max(1, rows) - 1).bit_length() - max(0, locks.bit_length() - 1))
        self._locks: NDArray[np.int64] = np.zeros(locks, np.int64)

    def read(self, array: NDArray[Any], keys: Keys, out: NDArray[Any]) -> None:
        """Fill out [n, cols] with rows."""
        shared_rows.read.exact(array, keys, self._bits, self._locks, out)

    def add(self, array: NDArray[Any], keys: Keys, deltas: NDArray[Any]) -> None:
        """Add deltas [n, cols] to rows; every occurrence of a key counts."""
        shared_rows.add.exact(array, keys, self._bits, self._locks, deltas)

    def read_at(self, array: NDArray[Any], rows: Keys, cols: Keys, out: NDArray[Any]) -> None:
        """Fill out [n] with single numbers."""
        out[:] = array[rows, cols]

    def add_at(self, array: NDArray[Any], rows: Keys, cols: Keys, deltas: NDArray[Any]) -> None:
        """Add deltas [n] to single numbers; every occurrence of a position counts."""
        shared_rows.add_at.exact(array, rows, cols, self._bits, self._locks, deltas)


def access_of(kind: str, rows: int) -> RowAccess:
    """Access to a table with this many rows. kind: "chunks", or "none"."""
    return RowAccess(rows, LOCKS if kind == "chunks" else 0)
