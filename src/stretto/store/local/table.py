"""`LocalTable`: the rows of one state in this process, used in place by stages that run on one node.

It outlives a stage: the next one finds the rows where they are. Threads read without a lock where rows keep their
values until the clock is over (exact runs), and with a lock on the row otherwise.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.comm.messages import Keys
from stretto.kernels.tables import local_rows

from .changes import DENSE_BYTES, DenseChanges, HashedChanges, WaitingChanges
from .grid import ChunkGrid

NO_LOCKS = np.empty(0, np.int64)
_PLACE = 8  # bytes that changes need for a row besides its values: stamp and list


class LocalTable:
    """Rows of a state, all of them present.

    Parameters
    ----------
    values : array [rows, cols]
        The rows. They are changed in place.
    grid : ChunkGrid or None
        How they are cut into chunks; None for chunks of the usual size.

    Attributes
    ----------
    dirty : array [chunks] uint8
        Which chunks were changed since the caller last cleared it.
    """

    def __init__(self, values: NDArray[Any], grid: ChunkGrid | None = None) -> None:
        rows, cols = values.shape
        self.values = values
        self.grid = ChunkGrid.of(rows, cols * values.itemsize) if grid is None else grid
        self.cols, self.dtype = cols, values.dtype
        self.base: NDArray[np.int64] = np.arange(self.grid.chunks) << self.grid.bits
        self.dirty: NDArray[np.uint8] = np.zeros(self.grid.chunks, np.uint8)
        self._spare: list[WaitingChanges] = []

    def read(self, keys: Keys, out: NDArray[Any], locks: NDArray[np.int64] = NO_LOCKS) -> None:
        """Fill out [n, cols]."""
        local_rows.gather.exact(keys, self.grid.bits, self.base, self.values, out, locks)

    def add(self, keys: Keys, deltas: NDArray[Any], locks: NDArray[np.int64] = NO_LOCKS) -> None:
        """Add deltas [n, cols] to rows at once."""
        local_rows.scatter.exact(keys, deltas, self.grid.bits, self.base, self.values, locks, self.dirty)

    def apply(self, changes: WaitingChanges) -> None:
        """Add what a worker added in a clock that is over."""
        if isinstance(changes, DenseChanges):
            local_rows.apply_waiting.exact(
                changes.listed, changes.count, changes.deltas, self.grid.bits, self.base, self.values, self.dirty
            )
        else:
            self.add(*changes.rows())

    def changes(self, workers: int) -> WaitingChanges:
        """An empty place for changes; used ones come back with `reuse`. workers: how many are in use at a time."""
        if self._spare:
            return self._spare.pop()
        rows = self.grid.rows
        if rows * (self.cols * self.dtype.itemsize + _PLACE) * workers <= DENSE_BYTES:
            return DenseChanges(rows, self.cols, self.dtype)
        return HashedChanges(self.cols, self.dtype)

    def reuse(self, changes: WaitingChanges) -> None:
        """Keep an applied place for changes, to be used again."""
        changes.clear()
        self._spare.append(changes)
