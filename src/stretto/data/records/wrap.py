"""Wrap records in the class of their kind, with the metadata of the data they came from."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from stretto.data.records.dense import Dense
from stretto.data.records.ragged import Ragged, named_columns
from stretto.data.records.recorded import RecordsBase, source_of
from stretto.data.records.records import Records
from stretto.data.records.sparse import Sparse

Places = tuple["NDArray[Any] | None", ...]


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
        from stretto.data.records.shuffle import moved

        ids = tuple(moved(names, place) for names, place in zip(ids, places, strict=True))
    return Sparse(records, source=source, ids=ids, places=known)


def places_of(data: Any, dimensions: int) -> Places:
    found = getattr(data, "places", None)
    return found if found is not None and len(found) == dimensions else (None,) * dimensions


def ids_of(data: Any, dimensions: int) -> tuple[Any, ...]:
    """The id map of each axis, None where indices are the names."""
    found = getattr(data, "ids", None)
    return found if found is not None and len(found) == dimensions else (None,) * dimensions


def composed(old: NDArray[Any] | None, new: NDArray[Any] | None) -> NDArray[Any] | None:
    """Renamed by `old`, then by `new`."""
    return new if old is None else old if new is None else new[old]
