"""`Ragged`: one record for each row, each with its own number of entries; the result of `samples` and `group_by`.

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
from stretto.data.records.recorded import RecordsBase
from stretto.data.records.records import AnyColumn, Column, RaggedColumn, Records, Value
from stretto.errors import DataError


class Ragged(RecordsBase):
    """One record for each row, with its entries. Made by `st.samples` and `group_by`.

    Attributes
    ----------
    columns : int
        Entries name columns 0 to columns - 1, so `st.zeros(samples.columns)` has one weight for each.
    source : str
        Where the data came from, for messages.
    places : tuple
        After `shuffle`, new indices of the old ones.
    """

    __slots__ = ("__weakref__", "_records", "columns", "places", "source")

    def __init__(
        self,
        records: Records,
        *,
        columns: int | None = None,
        source: str = "records",
        places: tuple[NDArray[Any] | None, ...] = (None,),
    ) -> None:
        self._records = records
        self.columns = named_columns(records) if columns is None else columns
        self.source = source
        self.places = places

    def records(self) -> Records:
        """The view that loops are compiled against."""
        return self._records

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of rows, as a tuple."""
        return self._records.shape

    @property
    def entries(self) -> int:
        """Number of entries of all records."""
        return sum(int(c.ptr[-1]) for c in self._records.columns if isinstance(c, RaggedColumn))

    def __repr__(self) -> str:
        return f"Ragged({len(self)} records, {self.entries} entries in {self.columns} columns, {self.source})"


def named_columns(records: Records) -> int:
    """One more than the largest column an entry names; 0 where entries begin with something else than an index."""
    for column in records.columns:
        if isinstance(column, RaggedColumn) and len(column.parts) > 1 and column.parts[0].dtype.kind in "iu":
            return int(column.parts[0].max(initial=-1)) + 1
    return 0


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
        return _from_data(X, y)
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
    return labelled(RaggedColumn(ptr, (indices, values)), y, shape, "samples")


def labelled(features: RaggedColumn, y: ArrayLike | None, shape: tuple[int, int], source: str) -> Ragged:
    """Ragged data of `features`, with a label before each when there are labels."""
    value: Value = features
    if y is not None:
        labels = np.asarray(y)
        if labels.shape != (shape[0],) or labels.dtype.kind not in "biuf":
            raise DataError(
                f"{source}: {shape[0]} rows need one number each as labels, got shape {labels.shape} of {labels.dtype}"
            )
        if not np.isfinite(labels).all():
            at = int(np.argmin(np.isfinite(labels)))
            raise DataError(f"{source}: the label of row {at} is {labels[at]}; drop the row or give it a number")
        pair: tuple[AnyColumn, ...] = (Column(labels), features)
        value = pair
    return Ragged(Records("ragged", (shape[0],), (), value), columns=shape[1], source=source)


def _from_data(data: Data, y: ArrayLike | None) -> Ragged:
    grouped = data.group_by(0)
    features = grouped.records().value
    assert isinstance(features, RaggedColumn)
    return labelled(features, data.labels if y is None else y, data.shape, data.source)


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
