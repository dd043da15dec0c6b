"""`Data`: the training data of a model, as immutable sparse records.

One record is a row index, a column index and a value. They are stored in three flat arrays (structure of arrays, in
the order given), because plans cut, sort and stream them.

    >>> d = Data.from_arrays([0, 0, 1], [0, 2, 1], [5.0, 3.0, 4.0])
    >>> d.shape, len(d)
    ((2, 3), 3)
    >>> for (i, j), v in d:
    ...     print(i, j, v)
    0 0 5.0
    0 2 3.0
    1 1 4.0

Arrays of the right type are not copied. They are held as read-only views, so that the data of a plan cannot be changed
through this object.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stretto.data.describe import Description, describe
from stretto.data.records.arrays import SLICE, Indices, as_indices, as_values
from stretto.data.records.ids import IdMap
from stretto.data.records.record_sets import Ragged, RecordsBase
from stretto.data.records.records import Column, Records, frozen
from stretto.data.records.reshape import group_by, with_labels
from stretto.data.records.shuffle import composed, moved, places_for
from stretto.errors import DataError
from stretto.text import html_table, show_mib

# One view for each object, so that a loop finds its preparations for the records again; dropped with the data.
_HEAD = 5  # records that a notebook shows
_VIEWS: WeakKeyDictionary[Data, Records] = WeakKeyDictionary()


@dataclass(frozen=True, slots=True, eq=False, repr=False, weakref_slot=True)
class Data(RecordsBase):
    """Sparse records `(rows[k], cols[k]) -> values[k]` of a matrix.

    Parameters
    ----------
    rows : ndarray of int32 [nnz]
        Row of each record; int64 when an index does not fit.
    cols : ndarray of int32 [nnz]
        Column of each record; int64 when an index does not fit.
    values : ndarray of float32 [nnz]
        Value of each record.
    shape : tuple of int
        Rows and columns of the matrix.
    labels : ndarray of float64 [rows] or None, default None
        A target for each row (svmlight).
    row_ids : IdMap or None, default None
        Ids of the rows; None when the indices are the names.
    col_ids : IdMap or None, default None
        Ids of the columns; None when the indices are the names.
    source : str, default "arrays"
        Where the data came from, for messages.
    places : tuple, default (None, None)
        After `shuffle`, new indices of the old ones: row i became `places[0][i]`, column j `places[1][j]`.

    Examples
    --------
    >>> import stretto as st
    >>> data = st.Data.from_arrays([0, 1, 1], [2, 0, 1], [4.0, 5.0, 3.0])
    >>> data.shape, data.nnz
    ((2, 3), 3)
    >>> list(data)[0]
    ((0, 2), 4.0)
    """

    rows: Indices
    cols: Indices
    values: NDArray[np.float32]
    shape: tuple[int, int]
    labels: NDArray[np.float64] | None = None
    row_ids: IdMap | None = None
    col_ids: IdMap | None = None
    source: str = "arrays"
    places: tuple[NDArray[Any] | None, NDArray[Any] | None] = (None, None)

    def __post_init__(self) -> None:
        if not self.rows.shape == self.cols.shape == self.values.shape or self.rows.ndim != 1:
            raise DataError(
                f"{self.source}: rows, cols and values must be flat and of one length, got shapes "
                f"{self.rows.shape}, {self.cols.shape}, {self.values.shape}"
            )
        if self.labels is not None and self.labels.shape != (self.shape[0],):
            raise DataError(f"{self.source}: {self.shape[0]} rows need as many labels, got shape {self.labels.shape}")
        for name in ("rows", "cols", "values", "labels"):
            array = getattr(self, name)
            if array is not None:
                object.__setattr__(self, name, frozen(array))

    @classmethod
    def from_arrays(
        cls,
        rows: ArrayLike,
        cols: ArrayLike,
        values: ArrayLike,
        shape: tuple[int, int] | None = None,
        *,
        labels: ArrayLike | None = None,
        row_ids: IdMap | None = None,
        col_ids: IdMap | None = None,
        source: str = "arrays",
    ) -> Data:
        """Data from three arrays of one length. Duplicates are not searched for: `st.as_data` does that.

        Parameters
        ----------
        rows : array_like of int [nnz]
            Row of each record.
        cols : array_like of int [nnz]
            Column of each record.
        values : array_like [nnz]
            Value of each record; NaN and infinity are refused.
        shape : tuple of int or None, default None
            Rows and columns of the matrix; None for the largest index plus one.
        labels : array_like [rows] or None, default None
            A target for each row.
        row_ids : IdMap or None, default None
            Ids of the rows.
        col_ids : IdMap or None, default None
            Ids of the columns.
        source : str, default "arrays"
            Where the data came from, for messages.
        """
        r, c = as_indices(rows, "row", source), as_indices(cols, "column", source)
        v = as_values(values, source, (r, c))
        if not len(r) == len(c) == len(v):
            raise DataError(
                f"{source}: {len(r)} rows, {len(c)} columns and {len(v)} values; give one of each per record"
            )
        n_rows = _extent(r, None if shape is None else shape[0], "row", source)
        n_cols = _extent(c, None if shape is None else shape[1], "column", source)
        y = None if labels is None else _as_labels(labels, source)
        return cls(r, c, v, (n_rows, n_cols), y, row_ids, col_ids, source)

    def __len__(self) -> int:
        return len(self.values)

    def __iter__(self) -> Iterator[tuple[tuple[int, int], float]]:
        for lo in range(0, len(self), SLICE):
            part = slice(lo, lo + SLICE)
            pairs = zip(self.rows[part].tolist(), self.cols[part].tolist(), strict=True)
            yield from zip(pairs, self.values[part].tolist(), strict=True)

    def __repr__(self) -> str:
        size = f"{self.shape[0]} x {self.shape[1]}, {len(self)} records, {show_mib(self.nbytes)}"
        return f"Data({size}, {self.source})"

    def _repr_html_(self) -> str:
        """The first records, with their ids, and the size: for notebooks."""
        rows, cols = self.rows[:_HEAD], self.cols[:_HEAD]
        named = [
            (places if ids is None else ids.ids[places]).tolist()
            for places, ids in ((rows, self.row_ids), (cols, self.col_ids))
        ]
        cells = [
            [str(row), str(col), f"{value:g}"] for row, col, value in zip(*named, self.values[:_HEAD], strict=True)
        ]
        return html_table(("row", "column", "value"), cells, repr(self))

    @property
    def nnz(self) -> int:
        """Number of records."""
        return len(self)

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays, without id maps."""
        return (
            self.rows.nbytes
            + self.cols.nbytes
            + self.values.nbytes
            + (0 if self.labels is None else self.labels.nbytes)
        )

    @property
    def ids(self) -> tuple[IdMap | None, IdMap | None]:
        """The id maps of both axes."""
        return self.row_ids, self.col_ids

    def records(self) -> Records:
        """The view that loops are compiled against: the same arrays."""
        found = _VIEWS.get(self)
        if found is None:
            found = _VIEWS[self] = Records("sparse", self.shape, (self.rows, self.cols), Column(self.values))
        return found

    def samples(self) -> Ragged:
        """One record for each row, its label and its entries: `for i, (y, features) in data.samples()`."""
        if self.labels is None:
            raise DataError(
                f"{self.source}: these data have no labels; pass them with st.samples(data, y), or use group_by(0)"
            )
        grouped = with_labels(group_by(self.records(), 0), self.labels, self.source)
        return Ragged(grouped, columns=self.shape[1], source=self.source)

    def expanded(self) -> Data:
        """Counts as repeated records: a value c becomes c records with value 1, next to each other."""
        records = RecordsBase.expanded(self).records()
        rows, cols = records.index
        return replace(self, rows=rows, cols=cols, values=np.ones(len(rows), dtype=np.float32))

    def shuffle(self, axis: int | None = None, seed: int = 0) -> Data:
        """Give rows, columns or both new indices, in an order drawn from the seed.

        This balances data whose busy rows are next to each other. Labels and ids move along. `places` of the result has
        the new index of each old one.

        Parameters
        ----------
        axis : int or None, default None
            0 for rows, 1 for columns, None for both.
        seed : int, default 0
            Decides the order.
        """
        row, col = places_for(self.shape, axis, seed)
        labels = self.labels
        if labels is not None and row is not None:
            labels = np.empty_like(labels)
            labels[row] = self.labels
        return replace(
            self,
            rows=self.rows if row is None else row[self.rows],
            cols=self.cols if col is None else col[self.cols],
            labels=labels,
            row_ids=moved(self.row_ids, row),
            col_ids=moved(self.col_ids, col),
            places=(composed(self.places[0], row), composed(self.places[1], col)),
        )

    def take(self, which: NDArray[Any]) -> Data:
        """Some of the records. Shape, labels and ids stay.

        Parameters
        ----------
        which : ndarray
            A mask [nnz], or positions of records.
        """
        return replace(self, rows=self.rows[which], cols=self.cols[which], values=self.values[which])

    def split(self, test: float = 0.1, seed: int = 0) -> tuple[Data, Data]:
        """Two parts of the records, about `1 - test` and `test` of them.

        Whether record k is held out depends on `(seed, k)` alone, so the parts are the same on every machine, in any
        order of reading, in memory or streamed.

        Parameters
        ----------
        test : float, default 0.1
            Share of the second part.
        seed : int, default 0
            Decides which records are in it.

        Returns
        -------
        tuple of Data
            The first and the second part.
        """
        mask = held_out(0, len(self), test, seed)
        return self.take(~mask), self.take(mask)

    def to_csr(self) -> Any:
        """The records as a `scipy.sparse.csr_matrix`; values of duplicate pairs are added."""
        from scipy.sparse import csr_matrix

        return csr_matrix((self.values, (self.rows, self.cols)), shape=self.shape)

    def describe(self) -> Description:
        """Counts, density, range of values and skew, as a `Description`."""
        return describe(self.rows, self.cols, self.values, self.shape, self.nbytes)


def held_out(start: int, stop: int, test: float, seed: int) -> NDArray[np.bool_]:
    """Which of the records `start..stop-1` belong to the test part: a keyed hash of the position under a threshold."""
    if not 0.0 <= test < 1.0:
        raise DataError(f"the test share must be at least 0 and below 1, got {test}")
    mask = np.empty(stop - start, dtype=np.bool_)
    threshold = np.uint64(min(int(test * 2.0**64), 2**64 - 1))
    key = splitmix64(np.array([seed % 2**64], dtype=np.uint64))[0]
    for lo in range(start, stop, SLICE):
        hi = min(lo + SLICE, stop)
        mask[lo - start : hi - start] = splitmix64(np.arange(lo, hi, dtype=np.uint64) ^ key) < threshold
    return mask


def splitmix64(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The finaliser of splitmix64, element by element: a fixed scrambling of 64 bits (Steele, Lea and Flood 2014)."""
    z = x + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def _as_labels(labels: ArrayLike, source: str) -> NDArray[np.float64]:
    try:
        return np.ascontiguousarray(labels, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise DataError(f"{source}: labels must be numbers, one for each row ({error})") from error


def _extent(indices: Indices, given: int | None, what: str, source: str) -> int:
    needed = int(indices.max()) + 1 if len(indices) else 0
    if given is None:
        return needed
    if needed > given:
        at = int(np.argmax(indices >= given))
        raise DataError(
            f"{source}: {what} index {int(indices[at])} at position {at} is outside the shape ({given} {what}s)"
        )
    return int(given)
