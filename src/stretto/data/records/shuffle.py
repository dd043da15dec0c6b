"""Permute rows and columns by a seed, and their id maps with them.

Where rows with many records are neighbours, blocks of neighbours have unequal work; a shuffle balances them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.data.partition import hashed
from stretto.data.records.ids import IdMap, Relabelled
from stretto.data.records.records import AnyColumn, Column, RaggedColumn, Records
from stretto.errors import DataError
from stretto.ranges import join_ranges

Places = tuple["NDArray[Any] | None", ...]

_PURPOSE = 16  # distinguishes these draws from those of a plan's cuts, which use the same seed and axis


def permutation(n: int, axis: int, seed: int) -> NDArray[Any]:
    """place [n]: index i becomes place[i]; from the seed and axis alone."""
    order = np.argsort(hashed(seed, _PURPOSE + axis, n), kind="stable")
    place = np.empty(n, dtype=np.int32 if n < 2**31 else np.int64)
    place[order] = np.arange(n, dtype=place.dtype)
    return place


def places_for(shape: tuple[int, ...], axis: int | None, seed: int) -> tuple[NDArray[Any] | None, ...]:
    """A permutation for the chosen axis, or for every one."""
    if axis is not None and not 0 <= axis < len(shape):
        raise DataError(f"shuffle: no axis {axis}; there are 0 to {len(shape) - 1}, or None for all")
    return tuple(permutation(n, k, seed) if axis in (None, k) else None for k, n in enumerate(shape))


def shuffled(records: Records, axis: int | None, seed: int) -> tuple[Records, tuple[NDArray[Any] | None, ...]]:
    """The records under their new indices, and the permutations."""
    if records.kind == "dense":
        raise DataError("shuffle: every cell of dense data has one record, so that there is nothing to balance")
    places = places_for(records.shape, axis, seed)
    if records.kind == "sparse":
        index = tuple(part if place is None else place[part] for part, place in zip(records.index, places, strict=True))
        return Records("sparse", records.shape, index, records.value), places
    (place,) = places
    assert place is not None
    order = np.argsort(place)
    columns = tuple(_taken(column, order) for column in records.columns)
    value = columns if isinstance(records.value, tuple) else columns[0]
    return Records("ragged", records.shape, (), value), places


def _taken(column: AnyColumn, order: NDArray[Any]) -> AnyColumn:
    if isinstance(column, Column):
        return Column(column.values[order], column.unique)
    where, ptr = join_ranges(column.ptr[:-1][order], np.diff(column.ptr)[order])
    return RaggedColumn(ptr, tuple(part[where] for part in column.parts))


def moved(ids: IdMap | None, place: NDArray[Any] | None) -> IdMap | None:
    """The map after index i has become place[i]."""
    if ids is None or place is None:
        return ids
    # A map may have fewer ids than the axis has indices; that works only while indices do not move.
    if len(ids) != len(place):
        raise DataError(f"shuffle: the axis has {len(place)} indices and {len(ids)} names; give every index a name")
    return ids.moved(place) if isinstance(ids, Relabelled) else Relabelled(ids, place)


def composed(old: NDArray[Any] | None, new: NDArray[Any] | None) -> NDArray[Any] | None:
    """Renamed by `old`, then by `new`."""
    return new if old is None else old if new is None else new[old]
