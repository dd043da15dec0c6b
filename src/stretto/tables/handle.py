"""A worker's handle on one table: read and add, by rows or by (row, column). The same on every runtime.

    x = w.table("weights")
    rows = x.read(keys)                    [n, cols], or [n] where rows are one number wide
    x.read(keys, out=rows)                 into an array of yours, which is faster in a loop
    x.add(keys, deltas)                    every occurrence of a key counts
    later = x.read_async(keys)             start fetching missing rows …
    rows = later.get()                     … and read it
    x.read_at(rows, cols), x.add_at(rows, cols, deltas)            single numbers of wide rows

A read waits until the rows are as fresh as the rule of the run demands. `RowHandle` caches and sends rows,
`ElementHandle` single numbers (unit="element"); `SharedHandle` (module shared) works on an array in place.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stretto.errors import RunError
from stretto.runtime.tables.job import WorkerApi

from .checks import Keys, TableChecks
from .table import Table


class Fields:
    """Rows with named parts: `rows.w` is a view [n, width], or [n] where a part is one number wide."""

    __slots__ = ("_parts", "array")

    def __init__(self, array: NDArray[Any], parts: Mapping[str, int]) -> None:
        self.array, self._parts = array, parts

    def __getattr__(self, name: str) -> NDArray[Any]:
        place = 0
        for part, width in self._parts.items():
            if part == name:
                return self.array[..., place] if width == 1 else self.array[..., place : place + width]
            place += width
        raise AttributeError(f"these rows have no part {name!r}; they have {', '.join(self._parts)}")

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self._parts]

    def __repr__(self) -> str:
        return f"Fields({', '.join(self._parts)}: {list(self.array.shape)})"


class PendingRead:
    """A read that was started. `get` returns the rows as a read at that moment does, however long fetching took."""

    def __init__(self, handle: Handle, keys: Any, out: Any) -> None:
        self._handle, self._keys, self._out = handle, keys, out

    def get(self) -> Any:
        """The rows; waits until they are fresh enough."""
        return self._handle.read(self._keys, self._out)


class WorkerRunState:
    """Whether a worker is still running, and whether it has added anything since its last tick."""

    __slots__ = ("added", "over")

    def __init__(self) -> None:
        self.added = self.over = False


class Handle(ABC):
    """A worker's handle on one table. `w.table(name)` returns it.

    Attributes
    ----------
    name : str
        Name of the table.
    table : Table
        Its description.
    rows : int or None
        Number of rows.
    cols : int
        Numbers in a row.
    dtype : dtype
        Type of the numbers.
    """

    def __init__(
        self, client: WorkerApi, number: int, name: str, table: Table, state: WorkerRunState, copies: bool
    ) -> None:
        self.name, self.table = name, table
        self.rows, self.cols, self.dtype = table.rows, table.width, table.kept
        self._client, self._number, self._state = client, number, state
        self._copies = copies  # a recording keeps arrays, and callers may reuse theirs
        self._checks = TableChecks(client, name, table.rows, table.width, table.kept, table.check_finite)
        self._flat = table.width == 1 and table.fields is None
        self._every: Keys | None = None

    def read(self, keys: ArrayLike | None = None, out: NDArray[Any] | None = None) -> Any:
        """Read rows by keys: [n, cols] or [n]. A single key gives a single row. Waits until the rows are fresh enough.

        Parameters
        ----------
        keys : array_like of int or None, default None
            The keys; None reads the whole table.
        out : ndarray or None, default None
            An array to write the rows to.

        Returns
        -------
        ndarray
            The rows; with fields, an object that has them as attributes.
        """
        if self._state.over:
            raise self._ended("read")
        found = self._keys(keys)
        n = len(found)
        rows = self._checks.out(out, n, self.cols)
        if n:
            self._read(found, rows)
        if self.table.fields is not None:
            return Fields(rows if not _single(keys) else rows[0], self.table.fields)
        if _single(keys):
            return rows[0, 0] if self._flat else rows[0]
        return out if out is not None else rows.reshape(n) if self._flat else rows

    def read_async(self, keys: ArrayLike | None = None, out: NDArray[Any] | None = None) -> PendingRead:
        """Start fetching what a read of these keys would wait for, and continue. `get()` of the result reads.

        Parameters
        ----------
        keys : array_like of int or None, default None
            The keys; None for the whole table.
        out : ndarray or None, default None
            An array to write the rows to.
        """
        if self._state.over:
            raise self._ended("read")
        found = self._keys(keys)
        if len(found):
            self._ask(found)
        # A copy: the caller may change its array before `get`.
        return PendingRead(self, keys if _single(keys) else found.copy() if found is keys else found, out)

    def add(self, keys: ArrayLike, deltas: Any = None, **parts: ArrayLike) -> None:
        """Add to rows. Every occurrence of a key counts.

        Parameters
        ----------
        keys : array_like of int
            The keys [n].
        deltas : array_like or dict, default None
            What is added: [n, cols], or [n] for width 1. With fields also a dict of them.
        **parts
            Fields by name, as in `x.add(keys, w=…, b=…)`; fields that are not named stay as they are.
        """
        if self._state.over:
            raise self._ended("add")
        found = self._keys(keys)
        if parts or self.table.fields is not None:
            deltas = self._joined(deltas, parts, len(found))
        rows = self._checks.deltas(deltas, len(found), self.cols)
        if len(found):
            self._state.added = True
            self._add(found, rows.copy() if self._copies else rows)

    def read_at(self, rows: ArrayLike, cols: ArrayLike, out: NDArray[Any] | None = None) -> NDArray[Any]:
        """Read single numbers [n], by row and column.

        Parameters
        ----------
        rows : array_like of int [n]
            Rows.
        cols : array_like of int [n]
            Columns.
        out : ndarray or None, default None
            An array to write the numbers to.
        """
        if self._state.over:
            raise self._ended("read")
        found = self._keys(rows)
        at = self._checks.columns(cols, found)
        into = self._checks.out(out, len(found), 1)
        if len(found):
            self._read_at(found, at, into)
        return into.reshape(-1)

    def add_at(self, rows: ArrayLike, cols: ArrayLike, deltas: ArrayLike) -> None:
        """Add to single numbers, by row and column. Every occurrence of a position counts.

        Parameters
        ----------
        rows : array_like of int [n]
            Rows.
        cols : array_like of int [n]
            Columns.
        deltas : array_like [n]
            What is added.
        """
        if self._state.over:
            raise self._ended("add")
        found = self._keys(rows)
        at = self._checks.columns(cols, found)
        numbers = self._checks.deltas(deltas, len(found), 1)
        if len(found):
            self._state.added = True
            self._add_at(found, at, numbers.copy() if self._copies else numbers)

    def announce(self, keys: ArrayLike, clock: int | None = None) -> None:
        """Announce the only rows of the table that this worker will add to in a clock.

        Others may then read the remaining rows past the bound (`st.SSP(s, speculate=True)`).

        Parameters
        ----------
        keys : array_like of int
            The keys.
        clock : int or None, default None
            The clock; None for the present one.
        """
        if self._state.over:
            raise self._ended("announce")
        when = self._client.clock if clock is None else clock
        if when < self._client.clock:
            raise self._checks.wrong(f"clock {when} is over; announce the present clock or later ones")
        self._announce(self._keys(keys), when)

    # -- operations on checked arrays, by kind of handle --------------------------------------------------------------

    @abstractmethod
    def _read(self, keys: Keys, out: NDArray[Any]) -> None: ...

    @abstractmethod
    def _ask(self, keys: Keys) -> None: ...

    @abstractmethod
    def _add(self, keys: Keys, deltas: NDArray[Any]) -> None: ...

    @abstractmethod
    def _read_at(self, rows: Keys, cols: Keys, out: NDArray[Any]) -> None: ...

    @abstractmethod
    def _add_at(self, rows: Keys, cols: Keys, deltas: NDArray[Any]) -> None: ...

    @abstractmethod
    def _announce(self, keys: Keys, clock: int) -> None: ...

    # -- shapes -------------------------------------------------------------------------------------------------------

    def _keys(self, keys: ArrayLike | None) -> Keys:
        if keys is None:
            if self.rows is None:
                raise self._checks.wrong("a table without rows= cannot be read as a whole; name the keys")
            if self._every is None:
                self._every = np.arange(self.rows)
            return self._every
        found = self._checks.keys(keys)
        return found.copy() if self._copies else found

    def _joined(self, deltas: Any, parts: Mapping[str, ArrayLike], n: int) -> Any:
        """[n, cols] from a dict of fields or from rows with fields; anything else unchanged."""
        fields = self.table.fields
        if fields is None:
            raise self._checks.wrong(f"the table has no fields, so no {', '.join(parts)}; give deltas [n, cols]")
        if isinstance(deltas, Fields):
            return deltas.array
        given = {**(deltas if isinstance(deltas, Mapping) else {}), **parts}
        if deltas is not None and not isinstance(deltas, Mapping):
            if parts:
                raise self._checks.wrong("give deltas either as one array or by fields, not both")
            return deltas
        if not given.keys() <= fields.keys():
            raise self._checks.wrong(f"no field {', '.join(given.keys() - fields.keys())}; it has {', '.join(fields)}")
        rows = np.zeros((n, self.cols), dtype=self.dtype)
        whole = Fields(rows, fields)
        for name, part in given.items():
            getattr(whole, name)[...] = self._checks.deltas(part, n, fields[name]).reshape(getattr(whole, name).shape)
        return rows

    def _ended(self, what: str) -> RunError:
        return RunError(
            f"worker {self._client.worker}, table {self.name!r}: {what} after the worker's function has returned; a "
            "handle lives as long as the function it was made in"
        )


class RowHandle(Handle):
    """A handle that caches and sends whole rows; single numbers are read from them and written to them."""

    def _read(self, keys: Keys, out: NDArray[Any]) -> None:
        self._client.read(self._number, keys, out)

    def _ask(self, keys: Keys) -> None:
        self._client.ask(self._number, keys)

    def _add(self, keys: Keys, deltas: NDArray[Any]) -> None:
        self._client.add(self._number, keys, deltas)

    def _read_at(self, rows: Keys, cols: Keys, out: NDArray[Any]) -> None:
        once, at = np.unique(rows, return_inverse=True)
        whole = np.empty((len(once), self.cols), dtype=self.dtype)
        self._client.read(self._number, once, whole)
        out[:, 0] = whole[at, cols]

    def _add_at(self, rows: Keys, cols: Keys, deltas: NDArray[Any]) -> None:
        once, at = np.unique(rows, return_inverse=True)
        whole = np.zeros((len(once), self.cols), dtype=self.dtype)
        np.add.at(whole, (at, cols), deltas[:, 0])
        self._client.add(self._number, once, whole)

    def _announce(self, keys: Keys, clock: int) -> None:
        self._client.announce(self._number, keys, clock)


class ElementHandle(Handle):
    """A handle that caches and sends single numbers, under the key row · cols + column."""

    def _keys(self, keys: ArrayLike | None) -> Keys:
        found = super()._keys(keys)
        if self.rows is None and len(found) and max(-int(found.min()), int(found.max())) >= 2**62 // self.cols:
            raise self._checks.wrong(f"keys of elements in rows {self.cols} wide must be between ±{2**62 // self.cols}")
        return found

    def _spread(self, keys: Keys) -> Keys:
        return (keys[:, None] * self.cols + np.arange(self.cols)).reshape(-1)

    def _read(self, keys: Keys, out: NDArray[Any]) -> None:
        self._client.read(self._number, self._spread(keys), out.reshape(-1, 1))

    def _ask(self, keys: Keys) -> None:
        self._client.ask(self._number, self._spread(keys))

    def _add(self, keys: Keys, deltas: NDArray[Any]) -> None:
        self._client.add(self._number, self._spread(keys), deltas.reshape(-1, 1))

    def _read_at(self, rows: Keys, cols: Keys, out: NDArray[Any]) -> None:
        self._client.read(self._number, rows * self.cols + cols, out)

    def _add_at(self, rows: Keys, cols: Keys, deltas: NDArray[Any]) -> None:
        self._client.add(self._number, rows * self.cols + cols, deltas)

    def _announce(self, keys: Keys, clock: int) -> None:
        self._client.announce(self._number, self._spread(keys), clock)


def _single(keys: Any) -> bool:
    return keys is not None and not isinstance(keys, np.ndarray | list | tuple) and np.ndim(keys) == 0
