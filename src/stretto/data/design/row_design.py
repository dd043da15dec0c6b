"""`RowDesign`: a sparse design matrix by rows, for solvers that read rows; its columns are made when they are needed.

>>> import scipy.sparse
>>> design = RowDesign.of(scipy.sparse.csr_array([[1.0, 0.0], [0.0, 2.0]]))
>>> design.shape, design.columns.storage
((2, 2), 'sparse float64 by columns (CSC), 2 entries, 50.00% of the cells')
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.cached import cached_property

from .design import Design, for_kernels, index_type, refuse_unbounded, value_type

Array = NDArray[Any]
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class RowDesign:
    """A matrix by rows (CSR), with the interface of `Design`. Make one with `RowDesign.of`.

    A row holds its column numbers in rising order, each once. Explicit zeros are kept.
    """

    shape: tuple[int, int]
    rows: tuple[Ints, Array, Array]  # indptr [n + 1], indices and values [entries]

    @staticmethod
    def of(X: Any) -> RowDesign:
        """A design from a sparse matrix whose structure was verified; DataError for NaN, infinity and huge numbers."""
        X = X.astype(value_type(X.dtype), copy=False)
        matrix = X.tocsr()
        if not matrix.has_canonical_format:
            matrix = matrix.copy() if matrix is X else matrix
            matrix.sum_duplicates()
        n, p = (int(size) for size in X.shape)
        indptr, values = matrix.indptr.astype(np.int64, copy=False), matrix.data
        indices = matrix.indices.astype(index_type(p), copy=False)
        refuse_unbounded(values, lambda at: (int(np.searchsorted(indptr, at, side="right")) - 1, int(indices[at])))
        return RowDesign((n, p), (for_kernels(indptr), for_kernels(indices), for_kernels(values)))

    @property
    def sparse(self) -> bool:
        return True

    @property
    def nnz(self) -> int:
        """Number of stored values."""
        return len(self.rows[2])

    @cached_property
    def matrix(self) -> Any:
        """The same numbers as SciPy's `csr_array`, sharing memory."""
        import scipy.sparse

        indptr, indices, values = self.rows
        return scipy.sparse.csr_array((values, indices, indptr), shape=self.shape, copy=False)

    @cached_property
    def columns(self) -> Design:
        """The same matrix by columns."""
        return Design.of(self.matrix, checked=True)

    @property
    def entries(self) -> Ints:
        """[p] numbers stored of each column."""
        return self.columns.entries

    @property
    def parts(self) -> tuple[Any, ...]:
        """(indptr, indices, values) by columns."""
        return self.columns.parts

    def spread(self, weight: Floats) -> Floats:
        """[p] standard deviations of the columns under these weights [n]."""
        return self.columns.spread(weight)

    def take(self, rows: NDArray[np.integer[Any]]) -> RowDesign:
        """A design of these samples alone, in rising order of their numbers."""
        return RowDesign.of(self.matrix[np.sort(rows)])

    def pick(self, which: NDArray[np.integer[Any]]) -> Design:
        """A design of these columns alone, in this order."""
        return self.columns.pick(which)
