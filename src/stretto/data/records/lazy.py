"""`LazyRecords`: records that are computed on first use, and once.

    tokens = st.text_file("docs.txt", parse).map(lambda c: min(c, 10)).shuffle(0)     # nothing is read yet
    len(tokens)                                                                       # one pass over the file

Use means: reading its length, shape or records, iterating, or passing it to a loop. Consecutive maps are fused: each
record passes through all of them before the next one is read, and only the last results are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from stretto.data.reading.build import Builder
from stretto.data.records.recorded import RecordsBase, source_of
from stretto.data.records.records import RaggedColumn, Records, Value
from stretto.data.records.wrap import wrap
from stretto.errors import DataError


@dataclass(frozen=True, slots=True)
class MapStep:
    """One map. index: the function takes and gives (index, value), and the new data have `shape`."""

    function: Callable[..., Any]
    index: bool
    shape: tuple[int, ...] | None


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
        begun = self._begin()
        if isinstance(begun, RecordsBase) and not self._steps:
            return begun
        renamed = any(step.index for step in self._steps)
        if isinstance(begun, RecordsBase) and not renamed:
            return wrap(_with_values(begun.records(), self._run(begun, indices=False).value()), begun)
        shape = self._shape
        for step in self._steps:
            shape = step.shape if step.index else shape
        builder = self._run(begun, indices=True)
        shape, index = builder.index(shape)
        return wrap(_settled(Records("sparse", shape, index, builder.value())), _Origin(self.source))

    def _run(self, begun: Iterable[tuple[Any, Any]], indices: bool) -> Builder:
        """The one pass: every record through every step."""
        builder = Builder(self.source)
        steps = self._steps
        for index, value in begun:
            for step in steps:
                try:
                    if step.index:
                        index, value = step.function(index, value)
                    else:
                        value = step.function(value)
                except Exception as error:
                    name = getattr(step.function, "__name__", repr(step.function))
                    error.add_note(f"in map({name}), at record {builder.count} ({index!r}) of {self.source}")
                    raise
            if indices:
                builder.add(index, value)
            else:
                builder.add_value(value)
        return builder


@dataclass(frozen=True, slots=True)
class _Origin:
    """All that is known of records from a stream."""

    source: str


def _lists(value: Value) -> bool:
    return any(isinstance(column, RaggedColumn) for column in (value if isinstance(value, tuple) else (value,)))


def _with_values(old: Records, value: Value) -> Records:
    """New values under the old indices; what has become lists, or is no longer, changes its kind."""
    if old.kind == "sparse":
        return Records("sparse", old.shape, old.index, value)
    kind = "ragged" if _lists(value) and len(old.shape) == 1 else "dense"
    return Records(kind, old.shape, (), value)


def _settled(records: Records) -> Records:
    """Lists under the indices 0, 1, 2, … are ragged data."""
    if _lists(records.value) and len(records.index) == 1:
        (index,) = records.index
        if len(index) == records.shape[0] and np.array_equal(index, np.arange(len(index))):
            return Records("ragged", records.shape, (), records.value)
    return records
