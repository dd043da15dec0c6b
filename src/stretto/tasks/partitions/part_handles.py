"""What the function of a unit gets for a partitioned state: its own rows or columns, and those of other parts.

    D = st.state(X, partition="columns")

    def norms(worker, D, total):
        mine = D.read_own()                          [rows, own columns]
        total.add(D.own, (mine**2).sum(axis=0))

`RowPartHandle` and `ColumnPartHandle` are for states, which are tables: other parts' rows are read and added to where
they are. `DataPartHandle` is for data that are declared as a state, of which a part has its own and only reads it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stretto.errors import RunError
from stretto.state.partitions import PartRows
from stretto.tables.handle import Handle


class RowPartHandle:
    """A part's handle on a state that is partitioned by rows; it can do what the handle of any state can.

    Attributes
    ----------
    own : array [n] int64
        Rows that this part holds.
    """

    def __init__(self, table: Handle, rows: PartRows, part: int) -> None:
        self._table, self.own = table, rows.own(part)

    def read(self, keys: ArrayLike | None = None, out: NDArray[Any] | None = None) -> Any:
        """Rows: [n] or [n, cols]; None for all. See `Handle.read`.

        Parameters
        ----------
        keys : array_like of int or None, default None
            Numbers of the rows.
        out : ndarray or None, default None
            An array to write the rows to.
        """
        return self._table.read(keys, out)

    def add(self, keys: ArrayLike, deltas: Any) -> None:
        """Add to rows; every occurrence of a key counts.

        Parameters
        ----------
        keys : array_like of int
            Numbers of the rows.
        deltas : array_like [n] or [n, cols]
            What is added.
        """
        self._table.add(keys, deltas)

    def read_own(self) -> Any:
        """The rows of this part: [own] or [own, cols]."""
        return self._table.read(self.own)

    def add_own(self, deltas: ArrayLike) -> None:
        """Add to the rows of this part.

        Parameters
        ----------
        deltas : array_like [own] or [own, cols]
            What is added.
        """
        if len(self.own):
            self._table.add(self.own, deltas)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._table, name)  # read_async, read_at, announce, rows, cols, …


class ColumnPartHandle:
    """A part's handle on a state that is partitioned by columns.

    Attributes
    ----------
    own : array [n] int64
        Columns that this part holds.
    shape : tuple of int
        Rows and columns of the state.
    """

    def __init__(self, table: Handle, columns: PartRows, part: int) -> None:
        assert table.rows is not None
        self._table, self.own = table, columns.own(part)
        self.shape, self.dtype = (table.cols, table.rows), table.dtype

    def read(self, columns: ArrayLike | None = None) -> NDArray[Any]:
        """Columns: [rows, n]; None for all.

        Parameters
        ----------
        columns : array_like of int or None, default None
            Numbers of the columns.
        """
        which = np.arange(self.shape[1]) if columns is None else np.atleast_1d(np.asarray(columns))
        found: NDArray[Any] = np.asarray(self._table.read(which)).reshape(len(which), self.shape[0]).T
        return found

    def add(self, columns: ArrayLike, deltas: ArrayLike) -> None:
        """Add to columns; every occurrence of a column counts.

        Parameters
        ----------
        columns : array_like of int
            Numbers of the columns.
        deltas : array_like [rows, n]
            What is added.
        """
        which, given = np.atleast_1d(np.asarray(columns)), np.asarray(deltas)
        if given.shape != (self.shape[0], len(which)):
            raise RunError(
                f"state {self._table.name!r}: add of {list(given.shape)} to {len(which)} columns; give "
                f"{[self.shape[0], len(which)]}"
            )
        if len(which):
            changes = np.ascontiguousarray(given.T)
            self._table.add(which, changes.reshape(-1) if self.shape[0] == 1 else changes)

    def read_own(self) -> NDArray[Any]:
        """The columns of this part: [rows, own]."""
        return self.read(self.own)

    def add_own(self, deltas: ArrayLike) -> None:
        """Add to the columns of this part.

        Parameters
        ----------
        deltas : array_like [rows, own]
            What is added.
        """
        self.add(self.own, deltas)


class DataPartHandle:
    """A part's rows, or columns, of data that are declared as a state. They are read only.

    Parameters
    ----------
    name : str
        Of the parameter, for messages.
    blocks : iterable
        The data of the part, one block after another.
    joined : callable
        function() -> the data of the part as one.
    own : array [n] or None
        Numbers of its rows or columns; None: the source does not say.
    axis : str
        "rows" or "columns".
    """

    def __init__(
        self, name: str, blocks: Iterable[Any], joined: Callable[[], Any], own: NDArray[np.int64] | None, axis: str
    ) -> None:
        self._name, self._blocks, self._joined, self._own, self._axis = name, blocks, joined, own, axis

    @property
    def own(self) -> NDArray[np.int64]:
        """[n] numbers of the rows or columns of this part."""
        if self._own is None:
            raise RunError(
                f"state {self._name!r}: its rows have no numbers, since every part reads its own from files or a "
                "source; use read_own()"
            )
        return self._own

    def read_own(self) -> Any:
        """The data of this part: what the source returned, a sparse matrix, or a tuple of arrays."""
        return self._joined()

    def blocks(self) -> Iterable[Any]:
        """The data of this part block by block; what is read in blocks is not joined."""
        return self._blocks

    def read(self, numbers: ArrayLike) -> Any:
        """Some rows or columns of this part, by their numbers in the whole.

        Parameters
        ----------
        numbers : array_like of int
            The numbers; all of them in `own`.
        """
        wanted = np.atleast_1d(np.asarray(numbers))
        at = wanted - (int(self.own[0]) if len(self.own) else 0)
        if len(wanted) and not 0 <= int(at.min()) <= int(at.max()) < len(self.own):
            raise RunError(
                f"state {self._name!r}: {self._axis} {wanted.min()} to {wanted.max()} are not all in this part, which "
                "has its own alone since the state is only read; declare a dense array, which other parts can read, or "
                "give st.whole(…)"
            )
        mine = self._joined()
        if hasattr(mine, "tocsr"):
            return mine[at] if self._axis == "rows" else mine[:, at]
        return mine.take(at)

    def add(self, numbers: ArrayLike, deltas: ArrayLike) -> None:
        """Refused: what is read from a source is not changed.

        Parameters
        ----------
        numbers : array_like of int
            Of rows or columns.
        deltas : array_like
            What would be added.
        """
        raise RunError(
            f"state {self._name!r} is read from a source or sparse, so it is only read; add to a state of st.zeros(…) "
            "instead, or declare a dense array"
        )


def joined(blocks: Iterable[Any]) -> Any:
    """One block of several: arrays and matrices stacked by rows, tuples of them element by element."""
    found = list(blocks)
    if len(found) == 1:
        return found[0]
    if found and isinstance(found[0], tuple):
        return tuple(joined(column) for column in zip(*found, strict=True))
    if found and hasattr(found[0], "tocsr"):
        from scipy.sparse import vstack

        return vstack(found, format="csr")
    if found and isinstance(found[0], np.ndarray):
        return np.concatenate(found)
    return found
