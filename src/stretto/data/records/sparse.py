"""`Sparse`: records of any number of dimensions and any value; the result of `map`, `numbered` and `text_file`.

`Data` is the special case of two dimensions and one float32 value, which models train on.
"""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from stretto.data.records.ids import IdMap
from stretto.data.records.recorded import RecordsBase
from stretto.data.records.records import Column, Records


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
