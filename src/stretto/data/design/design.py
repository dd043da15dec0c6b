"""`Design`: the design matrix of a regression [samples, features], stored by columns.

Coordinate descent reads one column after another, so there are two forms: a dense array in Fortran order, or compressed
sparse columns (CSC). Other forms are converted once, and `note` names the conversion. Arrays of the right form are
shared, not copied. A sparse matrix is never made dense.

    >>> design = Design.of(np.array([[1, 0], [0, 2]]))
    >>> design.shape, design.sparse, design.note
    ((2, 2), False, 'int64 values turned into float64, in Fortran order')
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.cached import cached_property
from stretto.data.convert.sparse_structure import is_sparse, verified
from stretto.errors import DataError
from stretto.ranges import join_ranges

Array = NDArray[Any]
Floats = NDArray[np.float64]

_LARGE = 1 << 14  # values from which on a compiled kernel transposes X
_ROWS = 256  # of a dense X that are copied into columns together
LARGEST = 1e75  # the fourth power of such a number is still finite: solvers multiply squares
_INT32 = 2**31


@dataclass(frozen=True, eq=False)
class Design:
    """A matrix by columns: `dense` [n, p] in Fortran order, or `indptr`, `indices`, `values` (CSC). Never both.

    Sparse columns hold their row numbers in rising order, each once, and no explicit zero. Values are float64, or
    float32 where float32 came in. Make one with `Design.of`.
    """

    shape: tuple[int, int]
    dense: Array | None = None  # [n, p]
    indptr: NDArray[np.int64] | None = None  # [p + 1]
    indices: Array | None = None  # [nnz] int32, int64 from 2³¹ rows on
    values: Array | None = None  # [nnz]
    note: str = ""  # the conversions that were made; empty when the arrays are the caller's own

    @staticmethod
    def of(X: Any, *, checked: bool = False, bounded: bool = False) -> Design:
        """A design from a dense array (any order, any real numbers) or a sparse matrix or array in any format.

        NaN and infinity are refused, and the message names the place of the first one.

        checked : the structure of a sparse X was verified before (`sparse_structure.verified`).
        bounded : the caller calls `refuse_unbounded_values` if a dense X may hold NaN, infinity or huge numbers
        """
        if isinstance(X, Design):
            return X
        if is_sparse(X):
            return _from_sparse(X, checked)
        try:
            design = _from_dense(np.asarray(X))
        except ValueError as error:
            if isinstance(error, DataError):
                raise
            raise DataError(f"cannot make a design of {type(X).__name__} ({error})") from error
        if not bounded:
            design.refuse_unbounded_values()
        return design

    def refuse_unbounded_values(self) -> None:
        """Raise an error for NaN, infinity and numbers whose products overflow, in a dense design."""
        if (dense := self.dense) is not None:
            refuse_unbounded(dense.ravel(order="K"), lambda at: (at % dense.shape[0], at // dense.shape[0]))

    def refuse_unproven_values(self, mean: Floats, norm: Floats, weight: Floats) -> None:
        """`refuse_unbounded_values` where means [p] and norms about them [p] under the weights [n] prove nothing."""
        # |x| ≤ |mean| + norm / √weight.
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            if not np.max(np.abs(mean) + norm / np.sqrt(weight.min(initial=1.0)), initial=0.0) <= LARGEST:
                self.refuse_unbounded_values()

    @property
    def sparse(self) -> bool:
        return self.dense is None

    @property
    def nnz(self) -> int:
        """Number of stored values: for a dense matrix all of them."""
        return len(self.csc[2]) if self.dense is None else self.dense.size

    @property
    def dtype(self) -> np.dtype[Any]:
        return (self.csc[2] if self.dense is None else self.dense).dtype

    @property
    def nbytes(self) -> int:
        return sum(part.nbytes for part in self.csc) if self.dense is None else self.dense.nbytes

    @property
    def csc(self) -> tuple[NDArray[np.int64], Array, Array]:
        """(indptr, indices, values) of a sparse design."""
        if self.indptr is None or self.indices is None or self.values is None:
            raise DataError("this design is dense: read its `dense`")
        return self.indptr, self.indices, self.values

    @property
    def parts(self) -> tuple[Array, ...]:
        """The arrays that kernels take: the transpose [p, n] if it is dense, otherwise (indptr, indices, values)."""
        return self.csc if self.dense is None else (self.dense.T,)

    @cached_property
    def entries(self) -> NDArray[np.int64]:
        """[p] numbers stored of each column."""
        return np.diff(self.csc[0]) if self.dense is None else np.full(self.shape[1], self.shape[0], np.int64)

    @property
    def storage(self) -> str:
        """How it is stored, in words."""
        if self.dense is not None:
            return f"dense {self.dtype} by columns"
        return f"sparse {self.dtype} by columns (CSC), {self.nnz:,} entries, {self.density:.2%} of the cells"

    @property
    def density(self) -> float:
        return self.nnz / max(1, self.shape[0] * self.shape[1])

    @cached_property
    def matrix(self) -> Any:
        """The same numbers as NumPy's array or SciPy's `csc_array`, sharing memory."""
        if self.dense is not None:
            return self.dense
        import scipy.sparse

        indptr, indices, values = self.csc
        # SciPy wants one integer type for both; the column bounds are the small ones.
        bounds = indptr.astype(indices.dtype, copy=False) if len(indices) < _INT32 else indptr
        return scipy.sparse.csc_array((values, indices, bounds), shape=self.shape, copy=False)

    def take(self, rows: NDArray[np.integer[Any]]) -> Design:
        """A design of these samples alone, in rising order of their numbers."""
        kept = np.zeros(self.shape[0], bool)
        kept[rows] = True
        size = int(kept.sum())
        if self.dense is not None:
            part = np.take(self.dense.T, np.flatnonzero(kept), axis=1).T  # one copy, in Fortran order
            return Design((size, self.shape[1]), dense=part)
        indptr, indices, values = self.csc
        number = np.cumsum(kept, dtype=indices.dtype) - 1
        stays = kept[indices]
        before = np.concatenate([np.zeros(1, np.int64), np.cumsum(stays, dtype=np.int64)])
        return Design(
            (size, self.shape[1]), indptr=before[indptr], indices=number[indices[stays]], values=values[stays]
        )

    def pick(self, which: NDArray[np.integer[Any]]) -> Design:
        """A design of these columns alone, in this order."""
        shape = self.shape[0], len(which)
        if self.dense is not None:
            return Design(shape, dense=np.asfortranarray(self.dense[:, which]))
        indptr, indices, values = self.csc
        at, bounds = join_ranges(indptr[which], self.entries[which])
        return Design(shape, indptr=bounds, indices=indices[at], values=values[at])

    def between(self, first: int, last: int) -> Design:
        """A design of the columns first … last − 1, which shares memory with this one but for their bounds."""
        shape = self.shape[0], last - first
        if self.dense is not None:
            return Design(shape, dense=self.dense[:, first:last])
        indptr, indices, values = self.csc
        low, high = indptr[first], indptr[last]
        return Design(shape, indptr=indptr[first : last + 1] - low, indices=indices[low:high], values=values[low:high])

    def spread(self, weight: Floats) -> Floats:
        """[p] standard deviation of each column under these weights [n]; 1 for a column that is constant.

        Zeros that are not stored count as what they are. Sums have a fixed order.
        """
        from stretto.kernels.linear.column_statistics import dense_deviations, sparse_deviations

        return sparse_deviations(self.matrix, weight) if self.dense is None else dense_deviations(self.dense, weight)


def _from_dense(X: Array) -> Design:
    if X.ndim != 2:
        raise DataError(
            f"a design has two dimensions, samples and features; got shape {X.shape}. Reshape your data: "
            "X.reshape(-1, 1) is one feature, X.reshape(1, -1) one sample"
        )
    dtype = value_type(X.dtype)
    found = []
    if X.dtype != dtype:
        found.append(f"{X.dtype} values turned into {dtype}")
    if not X.flags.f_contiguous:
        found.append("in Fortran order" if found else "copied into Fortran order once")
    try:
        dense = _by_columns(np.asarray(X, dtype=dtype))
    except (TypeError, ValueError) as error:
        raise DataError(f"a design holds numbers: {error}") from error
    return Design((dense.shape[0], dense.shape[1]), dense=for_kernels(dense), note=", ".join(found))


def _by_columns(X: Array) -> Array:
    """X in Fortran order."""
    if X.flags.f_contiguous:
        return X
    n, p = X.shape
    columns = np.empty((p, n), X.dtype)
    if X.flags.c_contiguous and X.dtype in (np.float64, np.float32) and X.size >= _LARGE:
        from stretto.kernels.core.transpose import transpose  # here, not above: it imports Numba

        transpose.exact(for_kernels(X), columns)
        return columns.T
    # A few rows at a time: whole columns would fetch every cache line of X several times.
    for first in range(0, n, _ROWS):
        columns[:, first : first + _ROWS] = X[first : first + _ROWS].T
    return columns.T


def _from_sparse(X: Any, checked: bool) -> Design:
    given = X
    X = X if checked else verified(X, "design")
    n, p = (int(size) for size in X.shape)
    dtype = value_type(X.dtype)
    found = [] if given.format == "csc" else [f"{given.format.upper()} turned into CSC once"]
    if given.dtype != dtype:
        found.append(f"{given.dtype} values turned into {dtype}")
    # First, because repeated entries are added up, and small integers would wrap around.
    X = X.astype(dtype, copy=False)
    if (turned := _turned(X)) is not None:
        return Design((n, p), *turned, note=", ".join(found))
    matrix = X.tocsc()
    if given.format == "csr" and checked and X.has_canonical_format:
        matrix.has_canonical_format = True  # SciPy would read all indices to find out
    if not matrix.has_canonical_format:
        matrix = matrix.copy() if matrix is X else matrix
        matrix.sum_duplicates()
        if given.format == "csc":
            found.append("row numbers sorted, repeated entries added")
    if np.count_nonzero(matrix.data) != len(matrix.data):
        matrix = matrix.copy() if matrix is X else matrix
        matrix.eliminate_zeros()
        found.append("explicit zeros dropped")
    whole = index_type(n)
    if given.format == "csc" and matrix.indices.dtype != whole:
        found.append(f"{matrix.indices.dtype} row numbers turned into {whole}")
    indptr = matrix.indptr.astype(np.int64, copy=False)
    values = matrix.data
    indices = matrix.indices.astype(whole, copy=False)
    refuse_unbounded(values, lambda at: (int(indices[at]), int(np.searchsorted(indptr, at, side="right")) - 1))
    indptr, indices, values = for_kernels(indptr), for_kernels(indices), for_kernels(values)
    return Design((n, p), indptr=indptr, indices=indices, values=values, note=", ".join(found))


def _turned(X: Any) -> tuple[None, NDArray[np.int64], Array, Array] | None:
    """`dense`, `indptr`, `indices`, `values` of a design of CSR, by a compiled kernel; None if that does not suit X."""
    suits = X.format == "csr" and X.nnz >= _LARGE and X.indices.dtype == np.int32 and X.has_canonical_format
    if not suits or X.shape[0] >= _INT32:
        return None
    from stretto.kernels.core.transpose_sparse import by_columns  # here, not above: it imports Numba

    rows = X.indptr.astype(np.int64, copy=False), X.indices, X.data
    made = np.empty(X.shape[1] + 1, np.int64), np.empty(X.nnz, np.int32), np.empty(X.nnz, X.dtype)
    zeros, squares = by_columns.exact(*map(for_kernels, rows), *made)
    return None if zeros or not squares < LARGEST * LARGEST else (None, *made)


def index_type(n: int) -> np.dtype[Any]:
    """The integer type of the row numbers of a design with n samples."""
    return np.dtype(np.int32 if n < _INT32 else np.int64)


def value_type(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The type of the values of a design made of these; DataError for those that are not real numbers."""
    if dtype.kind == "c":
        raise DataError("Complex data not supported: a design holds real numbers; take a part or the size")
    if dtype.kind not in "biufO":
        raise DataError(f"a design holds numbers; got {dtype}, which needs encoding first")
    return np.dtype(np.float32 if dtype == np.float32 else np.float64)


def refuse_unbounded(values: Array, place: Callable[[int], tuple[int, int]]) -> None:
    """Refuse NaN, infinity, and numbers whose products overflow. place: from a position to row and column."""
    with np.errstate(over="ignore", invalid="ignore"):
        # One quick pass says it for nearly all; not by BLAS, whose threads take longer to start than the pass.
        if float(np.einsum("i,i->", values, values)) < (LARGEST * LARGEST if values.dtype == np.float64 else np.inf):
            return
    bad = np.flatnonzero(~np.isfinite(values))
    if len(bad):
        row, column = place(int(bad[0]))
        more = f" ({len(bad):,} such values)" if len(bad) > 1 else ""
        raise DataError(
            f"X holds NaN or inf: {values[bad[0]]} at row {row}, column {column}{more}; "
            "drop those samples or fill the gaps first"
        )
    bad = np.flatnonzero(np.abs(values) > np.float64(LARGEST))
    if len(bad):
        row, column = place(int(bad[0]))
        raise DataError(
            f"X holds {values[bad[0]]} at row {row}, column {column}: products of such numbers overflow; scale the "
            f"features so that none is above {LARGEST:g} in size"
        )


class _Shared:
    """The array interface of an array's memory; it keeps the array alive as long as views of it exist."""

    def __init__(self, array: Array) -> None:
        self._array = array
        self.__array_interface__ = {**array.__array_interface__, "data": (array.ctypes.data, False)}


def for_kernels(array: Array) -> Array:
    """The array in the form that kernels are compiled for: aligned, and not marked read-only, which is another type.

    It shares memory with the one given where possible, so it must not be written to.
    """
    array = np.asarray(array)
    if not array.flags.aligned:
        array = array.copy(order="K")
    return array if array.flags.writeable or not array.size else np.asarray(_Shared(array))
