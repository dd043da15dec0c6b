"""`samples`: one record for each row of a matrix, with its label and its own number of entries.

    for i, (y, features) in st.samples(X, y):       for i, features in st.samples(X):
        for f, x in features:                           for f, x in features:
            ...                                             ...

The entries of all rows are stored one after the other in flat arrays, as in a CSR matrix.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stretto.data.records.data import Data
from stretto.data.records.record_sets import Ragged
from stretto.data.records.records import RaggedColumn, Records
from stretto.data.records.reshape import group_by, with_labels
from stretto.errors import DataError


def samples(X: Any, y: ArrayLike | None = None) -> Ragged:
    """One record for each row of a matrix: its label, if there are labels, and its non-zero features.

    Parameters
    ----------
    X : sparse matrix, array or Data
        The features. Repeated entries of a sparse matrix are added; zeros of a dense array are left out.
    y : array_like [rows] or None, default None
        A label for each row, in its own type; None takes the labels of `Data`, if it has any.

    Returns
    -------
    Ragged

    Examples
    --------
    >>> import numpy as np, stretto as st
    >>> for i, (label, features) in st.samples(np.array([[0.0, 2.0], [0.0, 0.0]]), [1, -1]):
    ...     print(i, label, features)
    0 1 [(1, 2.0)]
    1 -1 []
    """
    if isinstance(X, Data):
        grouped = with_labels(group_by(X.records(), 0), X.labels if y is None else y, X.source)
        return Ragged(grouped, columns=X.shape[1], source=X.source)
    if hasattr(X, "tocsr") and hasattr(X, "nnz"):
        ptr, indices, values, shape = _from_scipy(X)
    else:
        ptr, indices, values, shape = _from_dense(np.asarray(X))
    if not np.isfinite(values).all():
        at = int(np.argmin(np.isfinite(values)))
        row = int(np.searchsorted(ptr, at, side="right")) - 1
        raise DataError(
            f"samples: row {row}, column {indices[at]} holds {values[at]}; replace or drop what is not a finite number"
        )
    rows = Records("ragged", (shape[0],), (), RaggedColumn(ptr, (indices, values)))
    return Ragged(with_labels(rows, y, "samples"), columns=shape[1], source="samples")


def _from_scipy(X: Any) -> tuple[NDArray[np.int64], NDArray[Any], NDArray[Any], tuple[int, int]]:
    if len(X.shape) != 2:
        raise DataError(f"samples: a sparse array must have two dimensions, got shape {X.shape}")
    rows = X.tocsr()  # itself when it is csr
    if not rows.has_canonical_format:
        rows = rows.copy() if rows is X else rows
        rows.sum_duplicates()
    indices = rows.indices
    if indices.dtype != np.int32 and X.shape[1] < 2**31:
        indices = indices.astype(np.int32)
    return rows.indptr.astype(np.int64), indices, rows.data, (X.shape[0], X.shape[1])


def _from_dense(X: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[Any], NDArray[Any], tuple[int, int]]:
    if X.ndim != 2 or X.dtype.kind not in "biuf":
        raise DataError(f"samples: give a matrix of numbers, one row for each sample; got shape {X.shape} of {X.dtype}")
    rows, cols = np.nonzero(X)
    ptr = np.zeros(X.shape[0] + 1, dtype=np.int64)
    np.cumsum(np.bincount(rows, minlength=X.shape[0]), out=ptr[1:])
    return ptr, cols.astype(np.int32), X[rows, cols], (X.shape[0], X.shape[1])
