"""Both views of the ratings that row-by-row solvers need: by row and by column, each sorted."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.kernels.compress import group_by, order_repeats, turn
from stretto.schedule.order import Ints

from .source import Entries


@dataclass(frozen=True, eq=False)
class Compressed:
    """Row i has entries indptr[i] to indptr[i + 1]; indices in rising order."""

    indptr: Ints  # [m + 1]
    indices: NDArray[np.int32]  # [n]
    values: NDArray[np.float32]  # [n]
    repeats: int = 0  # entries that repeat the pair before them; they are in the order of their values

    @property
    def counts(self) -> Ints:
        """[m] entries of each row."""
        return np.diff(self.indptr)


def _empty(counts: NDArray[Any], entries: int) -> Compressed:
    indptr = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    return Compressed(indptr, np.empty(entries, np.int32), np.empty(entries, np.float32))


def compress(data: Entries, row_counts: Ints, col_counts: Ints) -> tuple[Compressed, Compressed]:
    """(by row, by column), whatever the order of the input."""
    m, n = data.shape
    loose = _empty(col_counts, len(data.values))
    group_by(data.cols, data.rows, data.values, loose.indptr[:-1].copy(), loose.indices, loose.values)
    by_row = _empty(row_counts, len(data.values))
    at = np.empty(m, np.int64)
    turn(loose.indptr, loose.indices, loose.values, by_row.indptr, at, by_row.indices, by_row.values)
    repeats = int(order_repeats(by_row.indptr, by_row.indices, by_row.values))
    turn(by_row.indptr, by_row.indices, by_row.values, loose.indptr, np.empty(n, np.int64), loose.indices, loose.values)
    return replace(by_row, repeats=repeats), loose


def by_rows(data: Entries) -> Compressed:
    """The entries by row alone, indices in rising order."""
    rows, cols = np.bincount(data.rows, minlength=data.shape[0]), np.bincount(data.cols, minlength=data.shape[1])
    return compress(data, rows, cols)[0]
