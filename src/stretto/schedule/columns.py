"""Data columns of the jobs and their correlations, from which schedules derive conflicts between jobs.

Two coordinates of a regression interfere as far as their columns are correlated: a change of one shifts the optimum of
the other by their correlation. `columns_of` takes a matrix in any form that has columns. `table` converts it to arrays
from which compiled code computes correlations (see `stretto.kernels.rounds.correlation`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stretto.cached import cached_property
from stretto.errors import PlanError
from stretto.ranges import join_ranges

from .spec import Floats, Ints

Array = NDArray[Any]
SPARSE_SAMPLE, DENSE_SAMPLE = 512, 256  # default number of rows on which long columns are compared


class ColumnStatistics(NamedTuple):
    """Statistics of p columns, [p] each."""

    total: Floats  # Σx
    square: Floats  # Σx²
    norm: Floats  # of the centred columns if they are centred; 0 for a constant one
    peak: Floats  # max |x|


@dataclass(frozen=True, eq=False)
class Columns:
    """A matrix by columns, dense or sparse (CSC)."""

    rows: int  # number of rows
    size: int  # number of columns
    values: Array  # entries; dense: one column after another
    indices: NDArray[np.int32]  # rows of the entries; dense: empty
    indptr: Ints  # where each column begins; dense: empty
    centred: bool = False  # subtract the means (for models with an intercept); else correlations are cosines

    @property
    def dense(self) -> bool:
        return len(self.indptr) == 0

    @cached_property
    def statistics(self) -> ColumnStatistics:
        """Sums, norms and peaks of the columns."""
        from stretto.kernels.linear.column_statistics import measure_worker

        found = ColumnStatistics(*(np.zeros(self.size) for _ in ColumnStatistics._fields))
        measure_worker(np.zeros(1, np.int64), self.values, self.indptr, self.rows, self.centred, *found)
        return found

    @property
    def mean(self) -> Floats:
        """[p] what is subtracted from each column: its mean, or 0 if columns are not centred."""
        return self.statistics.total / self.rows if self.centred else np.zeros(self.size)

    @property
    def inverse_norm(self) -> Floats:
        """[p] 1 / norm of each column; 0 for a norm of 0."""
        norm = self.statistics.norm
        return np.divide(1.0, norm, out=np.zeros_like(norm), where=norm > 0)

    @cached_property
    def length(self) -> Ints:
        """[p] number of stored entries of each column."""
        return np.full(self.size, self.rows, np.int64) if self.dense else np.diff(self.indptr)

    def pick(self, which: Ints | slice) -> Columns:
        """These columns alone, in this order."""
        if self.dense:
            picked = self.values.reshape(self.size, self.rows)[which]
            return Columns(self.rows, len(picked), picked.ravel(), self.indices, self.indptr, self.centred)
        entries, indptr = join_ranges(self.indptr[:-1][which], self.length[which])
        values, indices = self.values[entries], self.indices[entries]
        return Columns(self.rows, len(indptr) - 1, values, indices, indptr, self.centred)


def columns_of(data: Any, *, centred: bool = False) -> Columns:
    """Columns from an array [rows, jobs], a SciPy sparse matrix, a design, (indptr, indices, values, rows), or Columns.

    >>> columns_of(np.eye(3)).size
    3
    """
    if isinstance(data, Columns):
        return data
    if isinstance(data, tuple) and len(data) == 4:
        indptr, indices, values, rows = data
        return _sparse(int(rows), indptr, indices, values, centred)
    if hasattr(data, "tocsc"):
        matrix = data.tocsc()
        if not matrix.has_canonical_format:
            matrix = matrix.copy()
            matrix.sum_duplicates()
        return _sparse(matrix.shape[0], matrix.indptr, matrix.indices, matrix.data, centred)
    if getattr(data, "indptr", None) is not None:
        return _sparse(data.shape[0], data.indptr, data.indices, data.values, centred)
    matrix = np.asarray(data if getattr(data, "dense", None) is None else data.dense)
    if matrix.ndim != 2 or matrix.dtype.kind not in "biuf":
        raise PlanError(
            f"conflicts by correlation need one column of numbers for each job; got {type(data).__name__}. "
            "Pass a matrix of samples × jobs, or conflicts=None to go by priority alone"
        )
    values = np.asarray(matrix, dtype=_kind(matrix), order="F").ravel(order="K")
    rows, size = matrix.shape
    return Columns(rows, size, values, np.empty(0, np.int32), np.empty(0, np.int64), centred)


def _sparse(rows: int, indptr: Array, indices: Array, values: Array, centred: bool) -> Columns:
    if rows > np.iinfo(np.int32).max:
        raise PlanError(f"schedules work with up to 2³¹ − 1 rows, got {rows:,}")
    return Columns(
        rows,
        len(indptr) - 1,
        np.ascontiguousarray(values, dtype=_kind(values)),
        np.ascontiguousarray(indices, dtype=np.int32),
        np.ascontiguousarray(indptr, dtype=np.int64),
        centred,
    )


def _kind(values: Array) -> type[np.floating[Any]]:
    return np.float32 if values.dtype == np.float32 else np.float64


def free_table(dtype: Any = np.float64) -> Any:
    """The table for schedules that ignore conflicts."""
    from stretto.kernels.rounds.correlation import FACTS, FACTS_OF, CorrelationTable

    whole, marks, grid = np.empty(0, np.int64), np.empty((1, 0), np.int32), np.empty((1, 0))
    values = np.empty(0, dtype)
    return CorrelationTable(
        np.zeros(FACTS, np.int64), values, np.empty(0, np.int32), whole, np.empty((0, FACTS_OF)), values,
        np.empty((1, 0), np.uint64), marks, marks, marks, grid, grid, marks,
    )  # fmt: skip


def table(
    columns: Columns, seed: int, *, sample: int | None, schedulers: int, width: int, any_long: bool | None = None
) -> Any:
    """The arrays from which compiled code computes correlations.

    any_long: whether any column, also of other schedulers, is long enough to be compared on a sample of the rows; None:
    derive it from these columns.
    """
    from stretto.kernels.rounds.correlation import CHECKED, FACTS, FACTS_OF, SHORT, CorrelationTable

    found, rows = columns.statistics, columns.rows
    inverse, shift = _scaled(columns)
    short = np.zeros(columns.size, bool) if columns.dense else columns.length <= SHORT
    sampled, starts = sampled_rows(columns, short, seed, sample, any_long)
    exact = sampled is columns
    facts = np.zeros(FACTS, np.int64)
    facts[:] = (CHECKED, rows, sampled.rows)
    s_inverse, s_shift = inverse, shift
    if not exact:
        s_inverse, s_shift = np.zeros_like(inverse), np.zeros_like(shift)
        s_inverse[~short], s_shift[~short] = _scaled(sampled)
    size = found.peak if exact or columns.dense else np.sqrt(found.square / np.maximum(1, columns.length))
    known = (
        inverse, shift, np.sqrt(columns.length * found.square) * inverse, size * inverse, s_inverse, s_shift, starts,
        np.inf if columns.dense else columns.length,
    )  # fmt: skip
    padded = np.empty((columns.size + 1) * FACTS_OF)
    skip = (-padded.ctypes.data // padded.itemsize) % FACTS_OF  # a column's facts begin at a cache line
    facts_of = padded[skip : skip + columns.size * FACTS_OF].reshape(columns.size, FACTS_OF)
    for k, column in enumerate(known):
        facts_of[:, k] = column
    nodes = (width + 1) * int(
        columns.length.max(initial=0, where=short)
    )  # one more candidate may be compared than taken
    marks, lists = (schedulers, nodes), 0 if columns.dense else rows
    return CorrelationTable(
        facts, columns.values, columns.indices, columns.indptr, facts_of, sampled.values,
        np.zeros((schedulers, lists // 64 + 1), np.uint64), np.zeros((schedulers, lists), np.int32),
        np.zeros(marks, np.int32), np.zeros(marks, np.int32), np.zeros(marks), np.zeros((schedulers, width)),
        np.zeros(marks, np.int32),
    )  # fmt: skip


def _scaled(columns: Columns) -> tuple[Floats, Floats]:
    """1 / norm (0 for a norm of 0), and √rows · mean / norm (0 if columns are not centred)."""
    inverse = columns.inverse_norm
    total = columns.statistics.total
    return inverse, total / np.sqrt(columns.rows) * inverse if columns.centred else np.zeros_like(inverse)


def sampled_rows(
    columns: Columns, short: NDArray[np.bool], seed: int, sample: int | None, any_long: bool | None = None
) -> tuple[Columns, Ints]:
    """The long columns on a sample of the rows, and where each begins in the sample (−1: the column is short).

    Returns the columns themselves if there are no more rows than the sample has, or no long columns.
    """
    from stretto.kernels.linear.columns import hash_rows, sample_columns

    size = min(sample or (DENSE_SAMPLE if columns.dense else SPARSE_SAMPLE), columns.rows)
    if not (not short.all() if any_long is None else any_long) or (columns.dense and columns.rows == size):
        return columns, np.arange(columns.size) * columns.rows if columns.dense else np.full(columns.size, -1)
    hashes = np.empty(columns.rows, np.uint64)
    hash_rows(seed, hashes)
    place = np.full(columns.rows, -1, np.int32)
    place[np.sort(np.argsort(hashes, kind="stable")[:size])] = np.arange(size, dtype=np.int32)
    long = ~short
    starts = np.where(long, (np.cumsum(long) - 1) * size, -1)
    values = np.zeros(int(long.sum()) * size, columns.values.dtype)
    sample_columns(columns.values, columns.indices, columns.indptr, columns.rows, place, starts, size, values)
    none = np.empty(0, np.int64)
    return Columns(size, int(long.sum()), values, np.empty(0, np.int32), none, columns.centred), starts


def correlation(candidates: Ints, data: Any) -> Floats:
    """Correlations [L, L] of the columns that L jobs stand for: the default of `prioritised(conflicts=…)`.

    A function of your own with the same arguments may take its place. It is exact for any number of rows.

    Parameters
    ----------
    candidates : ndarray of int [L]
        The jobs.
    data : array or sparse matrix [n, p]
        The columns.

    Returns
    -------
    ndarray [L, L]

    Examples
    --------
    >>> import numpy as np, stretto as st
    >>> st.schedule.correlation(np.array([0, 1]), np.array([[1.0, 1.0], [0.0, 1.0]])).round(3).tolist()
    [[1.0, 0.707], [0.707, 1.0]]
    """
    from stretto.kernels.rounds.correlation import correlations

    columns = columns_of(data)
    tools = table(columns, 0, sample=columns.rows, schedulers=1, width=1)
    out = np.empty((len(candidates), len(candidates)))
    correlations(tools, np.ascontiguousarray(candidates, np.int64), 1.0, out)
    return out
