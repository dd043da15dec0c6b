"""Final tables as users see them, assembled from shards: whole arrays, or entries where a table is unbounded.

`TableArrays` is a mapping from names to arrays that are assembled on access. A dense table of sparse rows may be
larger than memory; `entries` gives the rows that were touched.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stretto.errors import PlanError
from stretto.store.layout import Layout

from .handle import Fields
from .table import Table


class Entries(NamedTuple):
    """The rows that were touched: keys [n] ascending and values [n, cols] (width 1: [n])."""

    keys: NDArray[np.int64]
    values: NDArray[Any]


class Elements(NamedTuple):
    """The numbers of sparse rows that were touched: rows [n], cols [n] and values [n], by row and column."""

    rows: NDArray[np.int64]
    cols: NDArray[np.int64]
    values: NDArray[Any]


class TableArrays(Mapping[str, Any]):
    """tables[name]: [rows, cols] (width 1: [rows]; with fields an object that has them; without rows= its entries).

    values(table) : keys and rows that were touched, as a runtime returns them.
    """

    def __init__(
        self,
        tables: Mapping[str, Table],
        layout: Layout,
        values: Callable[[int], tuple[NDArray[np.int64], NDArray[Any]]],
    ) -> None:
        self._tables, self._layout, self._values = tables, layout, values
        self._made: dict[str, Any] = {}

    def __iter__(self) -> Iterator[str]:
        return iter(self._tables)

    def __len__(self) -> int:
        return len(self._tables)

    def __getitem__(self, name: str) -> Any:
        if name not in self._made:
            table = self._table(name)
            self._made[name] = self.entries(name) if table.rows is None else self._dense(name, table)
        return self._made[name]

    def __repr__(self) -> str:
        shapes = [f"{name!r}: {'entries' if t.rows is None else list(t.shape)}" for name, t in self._tables.items()]
        return "{" + ", ".join(shapes) + "}"

    def entries(self, name: str) -> Entries | Elements:
        """The rows or numbers that were touched, by ascending key."""
        table = self._table(name)
        keys, values = self._values(list(self._tables).index(name))
        order = np.argsort(keys)
        keys, values = keys[order], values[order]
        if table.unit == "element" and table.width > 1:
            return Elements(keys // table.width, keys % table.width, values.reshape(-1))
        return Entries(keys, values.reshape(-1) if table.width == 1 and table.fields is None else values)

    def _dense(self, name: str, table: Table) -> Any:
        number = list(self._tables).index(name)
        rows = self._layout.tables[number].rows
        assert rows is not None
        whole = self._layout.start_rows(number, np.arange(rows))
        keys, values = self._values(number)
        whole[keys] = values
        return whole.reshape(table.shape) if table.fields is None else Fields(whole, table.fields)

    def _table(self, name: str) -> Table:
        if name not in self._tables:
            raise PlanError(f"there is no table {name!r}; this run has {', '.join(map(repr, self._tables))}")
        return self._tables[name]


class View:
    """The tables as `watch` gets them: what the shards hold when a clock is complete. `view["weights"]` is an array.

    Under `st.BSP()` it holds exactly the updates of clocks below `clock`, otherwise these and maybe more.

    Attributes
    ----------
    tables : mapping
        The tables by name, as in `Result.tables`.
    clock : int
        The clock that was complete.
    seconds : float
        Seconds of the run.
    bytes : int
        Bytes sent between nodes so far.
    local : tuple of dict
        The workers' own arrays, as they are now: other workers may be writing theirs.
    """

    def __init__(
        self, tables: TableArrays, clock: int, seconds: float, nbytes: int, local: tuple[dict[str, Any], ...]
    ) -> None:
        self.tables, self.clock, self.seconds, self.bytes, self.local = tables, clock, seconds, nbytes, local

    def __getitem__(self, name: str) -> Any:
        return self.tables[name]

    def entries(self, name: str) -> Entries | Elements:
        """The rows of a table that were touched so far; of sparse rows, the numbers.

        Parameters
        ----------
        name : str
            Name of the table.
        """
        return self.tables.entries(name)
