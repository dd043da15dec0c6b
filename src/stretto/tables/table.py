"""`Table`: the definition of a parameter table.

    st.tables.Table(rows=10_000, cols=64)                          64 float32 a row, added to
    st.tables.Table(rows=10_000, apply=st.tables.adarevision(0.1)) a number a row; what is added are gradients
    st.tables.Table(dtype="i8")                                    counts by any int64 key
    st.tables.Table(rows=50_000, cols=1_000, unit="element")       sparse rows: memory only for numbers touched
    st.tables.Table(rows=5_000_000, cols=64, sparse=True)          memory only for rows that are touched
    st.tables.Table(rows=500, fields={"w": 64, "b": 1})            rows with named parts
    st.tables.Table(rows=10_000, cols=64, placement="shared")      one array in this process, read and written in place

A table is an immutable definition: a run does not change it. `result.table(name)` is a table that starts where a run
ended.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import index
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stretto.checks import whole
from stretto.errors import PlanError
from stretto.store.layout import DTYPES, Partition, Start, TableSpec

if TYPE_CHECKING:
    from stretto.store.shard.functions import ServerFunction

UNITS = ("row", "element")
PLACEMENTS = ("served", "shared")
_MOST = 2**62  # elements of a table: keys and their products with small numbers fit in int64


@dataclass(frozen=True, eq=False)
class Table:
    """A table of numbers that every worker reads and adds to.

    Parameters
    ----------
    rows : int or None, default None
        Number of rows; keys are 0 to rows − 1. None: any int64 key is a row.
    cols : int or None, default None
        Numbers in a row. A table of width 1 is a vector by key.
    dtype : {"f2", "f4", "f8", "i4", "i8"}, default "f4"
        Type of the numbers; "f2" is kept as f4 and sent as f2.
    apply : ServerFunction or None, default None
        What the shard does with what is added: `st.tables.adagrad(0.1)`, `st.tables.adarevision(0.1)`, …; None for
        `st.tables.add`.
    start : number, array or callable, default 0.0
        What rows hold before anything is added: a number, an array [rows, cols], or function(keys) -> [n, cols].
    partition : str or callable, default "hash"
        Which shard has a row: "hash", "range" or function(keys, shards) -> [n].
    shards : sequence of int or None, default None
        The nodes that hold rows of this table; None for all.
    cache_rows : int or None, default None
        The most rows that a node's cache holds; None for no limit.
    check_finite : bool, default False
        Refuse NaN and infinity in what is added.
    unit : {"row", "element"}, default "row"
        What is sent, cached and fetched by itself; "element" is for sparse rows.
    fields : dict of int or None, default None
        Named parts of a row and their widths, instead of `cols`.
    placement : {"served", "shared"}, default "served"
        "shared": one array in this process (`st.Threads` and `st.Serial` only).
    snapshots : int or None, default None
        Old versions of a row's state that the server function may keep, if it keeps any.
    states : tuple, default ()
        What the server function keeps beside the rows at the start; comes with `result.table`.
    sparse : bool or None, default None
        Take memory for a row (or element) when it is first read or added to, not for all at the start. None: for
        unit="element". Results are the same; small tables stay as they are.

    Examples
    --------
    >>> import stretto as st
    >>> table = st.tables.Table(rows=1000, fields={"w": 8, "b": 1}, apply=st.tables.adagrad(0.1))
    >>> table.width, table.shape
    (9, (1000, 9))
    """

    rows: int | None = None
    cols: int | None = None
    dtype: str = "f4"
    apply: ServerFunction | None = None
    start: Start = 0.0
    partition: Partition = "hash"
    shards: Sequence[int] | None = None
    cache_rows: int | None = None
    check_finite: bool = False
    unit: str = "row"
    fields: Mapping[str, int] | None = None
    placement: str = "served"
    snapshots: int | None = None
    states: tuple[Start, ...] = field(default=(), repr=False)
    sparse: bool | None = None

    def __post_init__(self) -> None:
        put = object.__setattr__
        if self.fields is not None:
            put(self, "fields", _fields(self.fields, self.cols, self.unit))
        put(self, "rows", _count("rows", self.rows, "leave it out for any int64 keys"))
        width = sum(self.fields.values()) if self.fields is not None else self.cols
        put(self, "cols", _count("cols", 1 if width is None else width, "1 is a number for each key"))
        put(self, "cache_rows", _count("cache_rows", self.cache_rows, "leave it out for no limit"))
        put(self, "snapshots", _count("snapshots", self.snapshots, "leave it out for no limit"))
        put(self, "dtype", _dtype(self.dtype))
        if self.unit not in UNITS:
            raise PlanError(f"Table(unit={self.unit!r}): choose 'row' or 'element'")
        if not (self.sparse is None or isinstance(self.sparse, bool)):
            raise PlanError(f"Table(sparse={self.sparse!r}): choose True, False, or None for True with unit='element'")
        if self.placement not in PLACEMENTS:
            raise PlanError(f"Table(placement={self.placement!r}): choose 'served' or 'shared'")
        if self.rows is not None and self.rows * self.width > _MOST:
            raise PlanError(f"Table(rows={self.rows}, cols={self.width}): more than 2^62 values cannot be addressed")
        if not callable(self.partition) and self.partition not in ("hash", "range"):
            raise PlanError(f"Table(partition={self.partition!r}): choose 'hash', 'range' or a function(keys, shards)")
        if self.partition == "range" and self.rows is None:
            raise PlanError("Table(partition='range') needs rows=: where ranges end depends on it; or take 'hash'")
        if self.shards is not None:
            put(self, "shards", _shards(self.shards))
        put(self, "apply", _function(self.apply, self.snapshots))
        put(self, "start", self._begin("start", self.start))
        put(self, "states", tuple(self._begin("states", state) for state in self.states))
        if self.placement == "shared":
            self._check_shared()

    @property
    def width(self) -> int:
        """Numbers in a row."""
        return self.cols or 1

    @property
    def kept(self) -> np.dtype[Any]:
        """The dtype that rows are kept and read in."""
        return np.dtype("f4" if self.dtype == "f2" else self.dtype)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the whole table, where its rows are counted: [rows, cols], or [rows] for width 1 without fields."""
        if self.rows is None:
            raise PlanError("a table without rows= has no shape; read its entries")
        return (self.rows,) if self.width == 1 and self.fields is None else (self.rows, self.width)

    def spec(self, name: str) -> TableSpec:
        """The table as caches and shards know it: elements are rows of width 1 with keys row · cols + column.

        Parameters
        ----------
        name : str
            Name of the table in the run.
        """
        assert self.apply is not None
        wide, elements = self.width, self.unit == "element" and self.width > 1
        rows = None if self.rows is None else self.rows * (wide if elements else 1)
        return TableSpec(
            name=name,
            apply=self.apply,
            rows=rows,
            cols=1 if elements else wide,
            dtype=self.dtype,
            start=_by_element(self.start, wide) if elements else self.start,
            partition=_Checked(name, self.partition) if callable(self.partition) else self.partition,
            shards=None if self.shards is None else tuple(self.shards),
            cache_rows=self.cache_rows,
            check_finite=self.check_finite,
            states=tuple(_by_element(state, wide) if elements else state for state in self.states),
            sparse=elements if self.sparse is None else self.sparse,
        )

    def _begin(self, name: str, start: Start | ArrayLike) -> Start:
        """A start that is a number, an array [rows, cols] in the kept dtype, or a function."""
        if callable(start):
            return start
        given = np.asarray(start)
        fits = given.dtype.kind in "iuf" and (given.dtype.kind != "f" or self.kept.kind == "f" or _integral(given))
        if not fits:
            raise PlanError(f"Table({name}={start!r}): a table of {self.dtype} begins with numbers of that kind")
        array = given.astype(self.kept)
        if self.check_finite and array.dtype.kind == "f" and not np.isfinite(array).all():
            raise PlanError(f"Table({name}=…) holds NaN or infinity, which check_finite=True refuses")
        if array.ndim == 0:
            return array.item()  # type: ignore[no-any-return]
        if self.rows is None:
            raise PlanError(
                f"Table({name}=array) needs rows=: which key would its first row be? Or pass a function(keys)"
            )
        if array.shape not in ((self.rows, self.width), (self.rows,) if self.width == 1 else ()):
            raise PlanError(
                f"Table({name}=…) has shape {array.shape}; rows={self.rows} and cols={self.width} need "
                f"[{self.rows}, {self.width}]"
            )
        whole = np.array(array.reshape(self.rows, self.width))  # a copy: the caller may change the array
        whole.flags.writeable = False
        return whole

    def _check_shared(self) -> None:
        if self.rows is None:
            raise PlanError("Table(placement='shared') needs rows=: it is one array")
        assert self.apply is not None
        if not self.apply.additive or self.states:
            raise PlanError(
                f"Table(placement='shared', apply={self.apply.name}): a write is visible at once, so no server "
                "function can be applied; leave apply= out, or take placement='served'"
            )
        if self.unit == "element" or self.dtype == "f2" or self.cache_rows is not None or self.sparse:
            raise PlanError(
                "Table(placement='shared') is one array: leave out unit='element', 'f2', cache_rows= and sparse=, or "
                "take placement='served'"
            )


class Lookup:
    """function(keys) -> rows: final rows of an earlier run, and the start values of others."""

    def __init__(self, keys: NDArray[np.int64], values: NDArray[Any], other: Start) -> None:
        self._keys: NDArray[np.int64]
        self._values: NDArray[Any]
        self._other: Start
        if isinstance(other, Lookup):  # a run that continued another run: one lookup is enough
            older = ~np.isin(other._keys, keys)
            keys, values = np.append(keys, other._keys[older]), np.append(values, other._values[older], axis=0)
            other = other._other
        order = np.argsort(keys)
        self._keys, self._values, self._other = keys[order], values[order], other

    def __call__(self, keys: NDArray[np.int64]) -> NDArray[Any]:
        other = self._other
        rows = np.empty((len(keys), self._values.shape[1]), dtype=self._values.dtype)
        if isinstance(other, np.ndarray):
            rows[:] = other[keys]
        else:
            rows[:] = np.reshape(other(keys), rows.shape) if callable(other) else other
        if len(self._keys):
            at = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
            known = self._keys[at] == keys
            rows[known] = self._values[at[known]]
        return rows


def _integral(given: NDArray[Any]) -> bool:
    return bool(np.isfinite(given).all() and (given == np.trunc(given)).all())


def _by_element(start: Start, cols: int) -> Start:
    if isinstance(start, np.ndarray):
        return start.reshape(-1, 1)
    if callable(start) and not isinstance(start, Lookup):  # a lookup already works by element
        return _Elements(start, cols)
    return start


@dataclass(frozen=True)
class _Elements:
    """Single numbers, by row · cols + column, of a function that makes whole rows."""

    rows: Callable[[NDArray[np.int64]], NDArray[Any]]
    cols: int

    def __call__(self, keys: NDArray[np.int64]) -> NDArray[Any]:
        found, at = np.unique(keys // self.cols, return_inverse=True)
        whole = np.asarray(self.rows(found)).reshape(len(found), self.cols)
        return np.ascontiguousarray(whole[at, keys % self.cols]).reshape(-1, 1)


@dataclass(frozen=True)
class _Checked:
    """A user's partition function whose results are checked."""

    name: str
    partition: Callable[[NDArray[np.int64], int], Any]

    def __call__(self, keys: NDArray[np.int64], shards: int) -> NDArray[Any]:
        found = np.asarray(self.partition(keys, shards))
        if found.shape != keys.shape or found.dtype.kind not in "iu":
            raise PlanError(
                f"table {self.name!r}: partition(keys, shards) gave {found.dtype} {list(found.shape)} for {len(keys)} "
                "keys; return the number of a shard for each key"
            )
        if len(found) and not 0 <= int(found.min()) <= int(found.max()) < shards:
            raise PlanError(
                f"table {self.name!r}: partition(keys, shards) gave shards {found.min()} to {found.max()}; "
                f"return numbers from 0 to {shards - 1}"
            )
        return found


def _function(apply: Any, snapshots: int | None) -> ServerFunction:
    from stretto.store.shard.functions import ServerFunction, add

    if apply is None:
        apply = add
    if not isinstance(apply, ServerFunction):
        raise PlanError(
            f"Table(apply={apply!r}) is not a server function; give st.tables.add, st.tables.adagrad(rate), "
            "st.tables.adarevision(rate), st.tables.average, st.tables.proximal(…), or make one with "
            "st.tables.server_function(…)"
        )
    if snapshots is not None:
        if not apply.versioned:
            raise PlanError(f"Table(snapshots={snapshots}): {apply.name} keeps no snapshots; leave it out")
        apply = replace(apply, snapshots=snapshots)
    return apply  # type: ignore[no-any-return]


def _fields(fields: Any, cols: int | None, unit: str) -> dict[str, int]:
    if not isinstance(fields, Mapping) or not fields:
        raise PlanError(f"Table(fields={fields!r}): give names and widths, such as {{'w': 64, 'b': 1}}")
    if unit == "element":
        raise PlanError("Table(fields=…, unit='element'): fields are parts of a row; take unit='row'")
    found = {}
    for name, width in fields.items():
        if not isinstance(name, str) or not name.isidentifier() or name.startswith("_") or name == "array":
            raise PlanError(f"Table(fields=…): {name!r} cannot name a field; use a plain word other than 'array'")
        wide = _count(f"fields[{name!r}]", width, "")
        assert wide is not None
        found[name] = wide
    if cols is not None and cols != sum(found.values()):
        raise PlanError(f"Table(cols={cols}, fields=…): the fields are {sum(found.values())} wide; leave cols out")
    return found


def _shards(shards: Any) -> tuple[int, ...]:
    try:
        found = tuple(index(shard) for shard in shards)
    except TypeError:
        raise PlanError(f"Table(shards={shards!r}): give the numbers of nodes, such as (0, 1)") from None
    if not found or min(found) < 0 or len(set(found)) != len(found):
        raise PlanError(f"Table(shards={shards!r}): give different numbers of nodes, from 0 on; None for all")
    return found


def _count(name: str, value: Any, hint: str) -> int | None:
    if value is None:
        return None
    return whole(name, value, 1, "Table", hint)


def _dtype(dtype: Any) -> str:
    try:
        name = str(np.dtype(dtype).str[1:])
    except TypeError:
        name = ""
    if name not in DTYPES:
        raise PlanError(f"Table(dtype={dtype!r}): choose {', '.join(DTYPES)}")
    return name
