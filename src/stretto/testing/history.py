"""The adds to one table that one life of a run may see, sorted by (row, worker, order), and what they sum to."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .columns import Adds, Columns, Ints

NEVER = np.iinfo(np.int64).max
# Whole numbers up to these are exact in a table of that dtype, summed in any order.
_EXACT = {"f2": 2**11, "f4": 2**24, "f8": 2**53, "i4": 2**31 - 1, "i8": 2**53}


class History:
    """which [m]: the adds; row, clock, position [m (+ 1)] of each; rows: the keys of rows with adds."""

    def __init__(self, adds: Adds, alive: NDArray[np.bool_], workers: int) -> None:
        which = np.flatnonzero(alive)
        self.rows, row = np.unique(adds.key[which], return_inverse=True)
        self.workers = workers
        group = row.astype(np.int64) * workers + adds.worker[which]
        order = np.lexsort((adds.position[which], group))
        self.which = which[order]
        self.row = row[order]
        self.clock = np.append(adds.clock[self.which], NEVER)
        self.position = np.append(adds.position[self.which], NEVER)
        # One row more, without adds, for what was read and never added to.
        sizes = np.bincount(group, minlength=(len(self.rows) + 1) * workers)
        self.starts = np.concatenate([[0], np.cumsum(sizes)])

    def groups(self, keys: Ints) -> Ints:
        """[n, workers] where the adds to each row by each worker begin in `starts`."""
        at = np.searchsorted(self.rows, keys)
        known = self.rows[np.minimum(at, len(self.rows) - 1)] == keys if len(self.rows) else np.zeros(len(keys), bool)
        row = np.where(known, at, len(self.rows))
        groups: Ints = row[:, None] * self.workers + np.arange(self.workers)
        return groups

    def counts(self, keys: Ints) -> Ints:
        """[n, workers] how many adds there are."""
        group = self.groups(keys)
        counts: Ints = self.starts[group + 1] - self.starts[group]
        return counts


class Sums:
    """What rows with these adds hold, where changes simply add up.

    near: how far off a row may be, as a part of the sizes of all it could hold. Whole numbers are exact, unless 16-bit
    floats are too short for them; otherwise sums are rounded, in an order that nobody knows.
    """

    def __init__(self, columns: Columns, table: int, history: History) -> None:
        self._columns, self._table, self.history = columns, table, history
        spec = columns.tables[table]
        deltas = columns.adds[table].deltas[history.which]
        start = columns.start_rows(table, history.rows)
        narrow = spec.dtype == "f2" or (columns.layout.policy.codec == "f2" and spec.kept.kind == "f")
        # [rows + 1, cols]; the last for rows without adds.
        self._size = np.zeros((len(history.rows) + 1, spec.cols))
        np.add.at(self._size, history.row, np.abs(deltas).astype(np.float64))
        self._size[:-1] += np.abs(start)
        if _whole(deltas) and _whole(start) and self._size.max(initial=0) <= _EXACT["f2" if narrow else spec.dtype]:
            self.near = 0.0
        else:
            # 16 bits: once on the way there (what each node has left over goes with its next), once on the way back.
            self.near = 2.0**-8 if narrow else 2.0**-16 if spec.kept.itemsize == 4 else 2.0**-45
        self._total = np.zeros((len(deltas) + 1, spec.cols), np.float64 if spec.kept.kind == "f" else np.int64)
        np.cumsum(deltas, axis=0, out=self._total[1:])

    def wrong(self, keys: Ints, shown: Ints, values: NDArray[Any]) -> tuple[Ints, NDArray[Any]]:
        """Rows that do not hold their start and the first `shown` [n, workers] adds of each worker; what all should."""
        starts, group = self.history.starts, self.history.groups(keys)
        expect = self._columns.start_rows(self._table, keys).astype(self._total.dtype)
        for w in range(group.shape[1]):
            begin = starts[group[:, w]]
            expect += self._total[begin + shown[:, w]] - self._total[begin]
        allowed = self.near * self._size[group[:, 0] // self.history.workers]
        return np.flatnonzero((np.abs(values - expect) > allowed).any(axis=1)), expect


def _whole(values: NDArray[Any]) -> bool:
    """Whether every number is a whole one."""
    return values.dtype.kind == "i" or bool(np.all(np.isfinite(values)) and np.all(values == np.trunc(values)))
