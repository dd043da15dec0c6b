"""`DesignRows`: the design matrix of a classification, stored by rows as the softmax kernels read it.

Dense data are used in C order, sparse data as CSR. The first gradient makes a copy by columns (CSC), because a gradient
is a sum over each column. A sparse matrix is never made dense.

    >>> rows = DesignRows.of(np.array([[1, 0], [0, 2]]))
    >>> rows.shape, rows.sparse, rows.note
    ((2, 2), False, 'int64 values turned into float64')
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.cached import cached_property
from stretto.data.convert.sparse_structure import is_sparse, verified
from stretto.data.design.design import Design, for_kernels, refuse_unbounded, value_type
from stretto.errors import DataError

Array = NDArray[Any]

_INT32 = 2**31 - 1


@dataclass(frozen=True, eq=False)
class DesignRows:
    """A dense or a sparse matrix, never both. Make one with `DesignRows.of`."""

    shape: tuple[int, int]  # [n, p]
    dense: Array | None = None  # [n, p] in C order
    csr: tuple[Array, Array, Array] | None = None  # indptr [n + 1], indices, values
    note: str = ""  # the conversions that were made; empty when the arrays are the caller's own

    @staticmethod
    def of(X: Any, *, checked: bool = False) -> DesignRows:
        """Convert a dense array or a sparse matrix of any format. NaN and infinity raise an error with their position.

        checked : the structure of a sparse X was verified (`structure.verified`)
        """
        return _from_sparse(X, checked) if is_sparse(X) else _from_dense(np.asarray(X))

    @property
    def sparse(self) -> bool:
        return self.dense is None

    @property
    def entries(self) -> int:
        """Number of stored entries; of a dense matrix all of them."""
        return self.shape[0] * self.shape[1] if self.csr is None else len(self.csr[2])

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.parts[-1].dtype

    @property
    def nbytes(self) -> int:
        return sum(part.nbytes for part in self.parts)

    @property
    def parts(self) -> tuple[Array, ...]:
        """The matrix as kernels take it."""
        if self.dense is not None:
            return (self.dense,)
        return self._csr

    @property
    def _csr(self) -> tuple[Array, Array, Array]:
        if self.csr is None:
            raise DataError("these rows are dense: read their `dense`")
        return self.csr

    @property
    def storage(self) -> str:
        """Text that describes the storage."""
        if self.dense is not None:
            return f"dense {self.dtype} by rows"
        share = self.entries / max(1, self.shape[0] * self.shape[1])
        return f"sparse {self.dtype} by rows (CSR), {self.entries:,} entries, {share:.2%} of the cells"

    @cached_property
    def csc(self) -> tuple[Array, Array, Array]:
        """A sparse matrix by columns: indptr [p + 1], indices, values."""
        import scipy.sparse

        indptr, indices, values = self._csr
        turned = scipy.sparse.csr_array((values, indices, indptr), shape=self.shape, copy=False).tocsc()
        return turned.indptr, turned.indices, turned.data

    def between(self, first: int, last: int) -> DesignRows:
        """The rows first … last − 1; they share memory with these, except for indptr."""
        shape = last - first, self.shape[1]
        if self.dense is not None:
            return DesignRows(shape, dense=self.dense[first:last])
        indptr, indices, values = self._csr
        low, high = indptr[first], indptr[last]
        return DesignRows(shape, csr=(indptr[first : last + 1] - low, indices[low:high], values[low:high]))

    def usable(self) -> DesignRows:
        """The same matrix for kernels, after it was received from the driver."""
        if self.dense is not None:
            return DesignRows(self.shape, dense=for_kernels(self.dense))
        indptr, indices, values = self._csr
        return DesignRows(self.shape, csr=(for_kernels(indptr), for_kernels(indices), for_kernels(values)))

    def columns(self, which: NDArray[np.int64]) -> DesignRows:
        """A sparse matrix of these features alone."""
        import scipy.sparse

        indptr, indices, values = self.csc
        part = scipy.sparse.csc_array((values, indices, indptr), shape=self.shape, copy=False)[:, which]
        turned = part.tocsr()
        return DesignRows((self.shape[0], len(which)), csr=(turned.indptr, turned.indices, turned.data))

    @property
    def filled(self) -> float:
        """Share of the cells that are not zero."""
        if self.dense is None:
            return self.entries / max(1, self.shape[0] * self.shape[1])
        return float(np.count_nonzero(self.dense)) / max(1, self.dense.size)

    def by_entries(self) -> DesignRows:
        """The same matrix as CSR."""
        import scipy.sparse

        turned = scipy.sparse.csr_array(self.parts[0])
        return DesignRows(self.shape, csr=(turned.indptr, turned.indices, turned.data))

    def scaled(self, factor: NDArray[np.float64]) -> DesignRows:
        """A copy with column j multiplied by factor[j] [p]."""
        if self.dense is not None:
            return DesignRows(self.shape, dense=(self.dense * factor).astype(self.dtype))
        indptr, indices, values = self._csr
        return DesignRows(self.shape, csr=(indptr, indices, (values * factor[indices]).astype(self.dtype)))

    def spread(self, weight: NDArray[np.float64]) -> NDArray[np.float64]:
        """[p] standard deviation of each column under these weights [n]; 1 for a constant column."""
        if self.dense is not None:
            return Design(self.shape, dense=self.dense).spread(weight)
        indptr, indices, values = self.csc
        return Design(self.shape, indptr=indptr.astype(np.int64), indices=indices, values=values).spread(weight)


def _from_dense(X: Array) -> DesignRows:
    if X.ndim != 2:
        raise DataError(
            f"samples and features make two dimensions; got shape {X.shape}. Reshape your data: "
            "X.reshape(-1, 1) is one feature, X.reshape(1, -1) one sample"
        )
    dtype = value_type(X.dtype)
    found = [] if X.dtype == dtype else [f"{X.dtype} values turned into {dtype}"]
    if not X.flags.c_contiguous:
        found.append("copied into C order once")
    try:
        dense = np.ascontiguousarray(X, dtype=dtype)
    except (TypeError, ValueError) as error:
        raise DataError(f"X holds numbers: {error}") from error
    width = dense.shape[1]
    refuse_unbounded(dense.ravel(), lambda at: (at // width, at % width))
    return DesignRows((dense.shape[0], width), dense=for_kernels(dense), note=", ".join(found))


def _from_sparse(X: Any, checked: bool) -> DesignRows:
    given = X
    X = X if checked else verified(X, "X")
    dtype = value_type(X.dtype)
    found = [] if given.format == "csr" else [f"{given.format.upper()} turned into CSR once"]
    if given.dtype != dtype:
        found.append(f"{given.dtype} values turned into {dtype}")
    # Convert first: repeated entries are summed, and small integers would overflow.
    X = X.astype(dtype, copy=False)
    matrix = X.tocsr()
    if not matrix.has_canonical_format:
        matrix = matrix.copy() if matrix is X else matrix
        matrix.sum_duplicates()
        found.append("column numbers sorted, repeated entries added")
    indptr, indices, values = matrix.indptr, matrix.indices, matrix.data
    refuse_unbounded(values, lambda at: (int(np.searchsorted(indptr, at, side="right")) - 1, int(indices[at])))
    n, p = X.shape
    if indices.dtype == np.int64 and max(n, p, len(values)) < _INT32:  # kernels take one index type, int32 if it fits
        indptr, indices = indptr.astype(np.int32), indices.astype(np.int32)
        found.append("column numbers turned into int32")
    csr = (for_kernels(indptr), for_kernels(indices), for_kernels(values))
    return DesignRows((int(n), int(p)), csr=csr, note=", ".join(found))
