"""Record sets, which transformations turn into one another: `Sparse`, `Ragged`, `Dense` and `LazyRecords`.

A class defines how its `Records` are made; the methods of `RecordsBase` use them. `map` is lazy; the others are single
passes over flat arrays (`reshape`, `shuffle`), whose result `wrap` puts into the class of its kind.

    tokens = st.text_file("docs.txt", parse).map(lambda c: min(c, 10)).shuffle(0)     # nothing is read yet
    len(tokens)                                                                       # one pass over the file
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from stretto.data.records import reshape
from stretto.data.records.ids import IdMap
from stretto.data.records.map_steps import MapStep, from_stream, with_new_values
from stretto.data.records.records import Column, RaggedColumn, Records, iterate, named_columns
from stretto.data.records.shuffle import Places, composed, moved, shuffled
from stretto.errors import DataError


class RecordsBase(ABC):
    """The base of `Data`, `Sparse`, `Ragged`, `Dense` and `LazyRecords`."""

    __slots__ = ()

    @abstractmethod
    def records(self) -> Records:
        """The view that loops are compiled against; made once for each object."""

    def __len__(self) -> int:
        return len(self.records())

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        return iterate(self.records())

    def materialize(self) -> RecordsBase:
        """Data with nothing left to do: itself, unless it is lazy."""
        return self

    def map(
        self, function: Callable[..., Any], *, index: bool = False, shape: tuple[int, ...] | None = None
    ) -> LazyRecords:
        """Apply a function to each value, when the result is first needed. Several maps run together in one pass.

        Parameters
        ----------
        function : callable
            function(value) -> a number, a tuple of numbers, or a list of entries. With `index`, function(index, value)
            -> a new (index, value).
        index : bool, default False
            Whether the function takes and returns the index as well.
        shape : tuple of int or None, default None
            Shape of the new data, with `index`; None for as large as the indices need.
        """
        return LazyRecords.over(self).map(function, index=index, shape=shape)

    def numbered(self, values: bool = True) -> RecordsBase:
        """Put the number of each record before its value: `for (d, w), (p, v) in data.numbered()`.

        No two records share the number, so `z[p]` in a loop belongs to one iteration alone.

        Parameters
        ----------
        values : bool, default True
            Whether the value is kept. False: the number is the value.
        """
        return wrap(reshape.numbered(self.records(), values), self)

    def group_by(self, axis: int = 0) -> Ragged:
        """One record for each row or column with its entries, in their present order.

        Use it as `for i, entries in data.group_by(0): for j, v in entries`. An entry holds the other indices, then the
        value.

        Parameters
        ----------
        axis : int, default 0
            0 for rows, 1 for columns.
        """
        records = self.records()
        others = [size for k, size in enumerate(records.shape) if k != axis]
        return Ragged(reshape.group_by(records, axis), columns=others[0] if others else 0, source=source_of(self))

    def expanded(self) -> RecordsBase:
        """Counts as repeated records: a value c becomes c records with value 1, next to each other."""
        return wrap(reshape.expanded(self.records()), self)

    def shuffle(self, axis: int | None = None, seed: int = 0) -> RecordsBase:
        """Give rows, columns or every axis new indices, in an order drawn from the seed.

        This balances data whose busy rows are next to each other. Index i of an axis became `places[axis][i]` of the
        result.

        Parameters
        ----------
        axis : int or None, default None
            0 for rows, 1 for columns, None for every axis.
        seed : int, default 0
            Decides the order.
        """
        records, places = shuffled(self.records(), axis, seed)
        return wrap(records, self, places)


class Sparse(RecordsBase):
    """Immutable records `(index, value)`; ids and places have one member for each axis."""

    __slots__ = ("__weakref__", "_records", "ids", "places", "source")

    def __init__(
        self,
        records: Records,
        *,
        source: str = "records",
        ids: tuple[IdMap | None, ...] | None = None,
        places: tuple[NDArray[Any] | None, ...] | None = None,
    ) -> None:
        self._records = records
        self.source = source
        self.ids = (None,) * len(records.shape) if ids is None else ids
        self.places = (None,) * len(records.shape) if places is None else places

    def records(self) -> Records:
        return self._records

    @property
    def shape(self) -> tuple[int, ...]:
        return self._records.shape

    def __repr__(self) -> str:
        value = " and ".join(str(c.values.dtype) if isinstance(c, Column) else "entries" for c in self._records.columns)
        return f"Sparse({' x '.join(map(str, self.shape))}, {len(self)} records of {value}, {self.source})"


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


class Dense(RecordsBase):
    """Records of every element of an array, row by row. Made by `st.dense`.

    Attributes
    ----------
    source : str
        Where the data came from, for messages.
    """

    __slots__ = ("__weakref__", "_records", "source")

    def __init__(self, records: Records, *, source: str = "array") -> None:
        self._records = records
        self.source = source

    def records(self) -> Records:
        """The view that loops are compiled against."""
        return self._records

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the array."""
        return self._records.shape

    def __repr__(self) -> str:
        return f"Dense({' x '.join(map(str, self.shape))}, {self.source})"


class LazyRecords(RecordsBase):
    """Data that are computed when they are first needed, and once. Made by `st.text_file` and `map`.

    Parameters
    ----------
    begin : callable
        begin() -> data, or an iterable of (index, value).
    steps : tuple of MapStep, default ()
        Maps to apply.
    shape : tuple of int or None, default None
        Shape of the data; None for as large as the indices need.
    source : str, default "records"
        Where the data came from, for messages.

    Attributes
    ----------
    source : str
        Where the data came from, for messages.
    """

    __slots__ = ("__weakref__", "_begin", "_made", "_shape", "_steps", "source")

    def __init__(
        self,
        begin: Callable[[], Iterable[tuple[Any, Any]]],
        steps: tuple[MapStep, ...] = (),
        *,
        shape: tuple[int, ...] | None = None,
        source: str = "records",
    ) -> None:
        self._begin = begin
        self._steps = steps
        self._shape = shape
        self._made: RecordsBase | None = None
        self.source = source

    @classmethod
    def over(cls, data: RecordsBase) -> LazyRecords:
        """The data, ready for maps.

        Parameters
        ----------
        data : RecordsBase
            Any data.
        """
        return data if isinstance(data, LazyRecords) else cls(lambda: data, source=source_of(data))

    @property
    def made(self) -> bool:
        """Whether the data have been computed."""
        return self._made is not None

    def map(
        self, function: Callable[..., Any], *, index: bool = False, shape: tuple[int, ...] | None = None
    ) -> LazyRecords:
        """Apply a function to each value; see `RecordsBase.map`.

        Parameters
        ----------
        function : callable
            function(value) -> a number, a tuple of numbers, or a list of entries. With `index`, function(index, value)
            -> a new (index, value).
        index : bool, default False
            Whether the function takes and returns the index as well.
        shape : tuple of int or None, default None
            Shape of the new data, with `index`; None for as large as the indices need.
        """
        if shape is not None and not index:
            raise DataError("map: a shape goes with index=True; otherwise the indices, and so the shape, stay")
        begin, steps, own = self._begin, self._steps, self._shape
        if self._made is not None:  # computed already
            made = self._made
            begin, steps, own = (lambda: made), (), None
        return LazyRecords(begin, (*steps, MapStep(function, index, shape)), shape=own, source=self.source)

    def materialize(self) -> RecordsBase:
        """The data, computed now if they were not before."""
        if self._made is None:
            self._made = self._make()
        return self._made

    def records(self) -> Records:
        """The view that loops are compiled against."""
        return self.materialize().records()

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the data."""
        return self.records().shape

    @property
    def columns(self) -> int:
        """Number of columns that entries name; see `Ragged.columns`."""
        return int(getattr(self.materialize(), "columns", 0))

    @property
    def places(self) -> Any:
        """After `shuffle`, new indices of the old ones."""
        return getattr(self.materialize(), "places", None)

    @property
    def ids(self) -> Any:
        """The id map of each axis."""
        return getattr(self.materialize(), "ids", None)

    def numbered(self, values: bool = True) -> LazyRecords:
        return self._then(lambda data: data.numbered(values))

    def expanded(self) -> LazyRecords:
        return self._then(lambda data: data.expanded())

    def shuffle(self, axis: int | None = None, seed: int = 0) -> LazyRecords:
        return self._then(lambda data: data.shuffle(axis, seed))

    def group_by(self, axis: int = 0) -> LazyRecords:  # type: ignore[override]
        return self._then(lambda data: data.group_by(axis))

    def __repr__(self) -> str:
        if self._made is not None:
            return f"Lazy({self._made!r})"
        return f"Lazy({self.source}, {len(self._steps)} maps, nothing made yet)"

    def _then(self, verb: Callable[[RecordsBase], RecordsBase]) -> LazyRecords:
        return LazyRecords(lambda: verb(self.materialize()), source=self.source)

    def _make(self) -> RecordsBase:
        begun, steps = self._begin(), self._steps
        if isinstance(begun, RecordsBase):
            if not steps:
                return begun
            if not any(step.index for step in steps):
                return wrap(with_new_values(begun.records(), begun, steps, self.source), begun)
        return wrap(from_stream(begun, steps, self._shape, self.source), _Origin(self.source))


@dataclass(frozen=True, slots=True)
class _Origin:
    """All that is known of records from a stream."""

    source: str


def source_of(data: Any) -> str:
    """Where data came from, for messages."""
    return str(getattr(data, "source", "records"))


def wrap(records: Records, origin: Any, places: Places | None = None) -> RecordsBase:
    """Wrap records in their class. places: the permutation just applied to each axis (None: none)."""
    source = source_of(origin)
    known = places_of(origin, len(records.shape))
    if places is not None:
        known = tuple(composed(old, new) for old, new in zip(known, places, strict=True))
    if records.kind == "ragged":
        columns = max(int(getattr(origin, "columns", 0)), named_columns(records))
        return Ragged(records, columns=columns, source=source, places=known)
    if records.kind == "dense":
        return Dense(records, source=source)
    ids = ids_of(origin, len(records.shape))
    if places is not None:
        ids = tuple(moved(names, place) for names, place in zip(ids, places, strict=True))
    return Sparse(records, source=source, ids=ids, places=known)


def places_of(data: Any, dimensions: int) -> Places:
    found = getattr(data, "places", None)
    return found if found is not None and len(found) == dimensions else (None,) * dimensions


def ids_of(data: Any, dimensions: int) -> tuple[Any, ...]:
    """The id map of each axis, None where indices are the names."""
    found = getattr(data, "ids", None)
    return found if found is not None and len(found) == dimensions else (None,) * dimensions
