"""The memory behind a call: arrays as compiled code takes them, and the clashes that only a call can show.

Compiled code takes arrays row by row, aligned and in this machine's byte order. Others are copied before the loop and,
where it writes to them, given back after it.
"""

from __future__ import annotations

from collections.abc import Iterator, Set
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.data.records.records import RaggedColumn, Records
from stretto.errors import PlanError
from stretto.loops.analyse.analysis import Analysis
from stretto.loops.front.bind import Held

Borrowed = list[tuple[NDArray[Any], NDArray[Any]]]


def contiguous(
    arrays: dict[str, NDArray[Any]], written: Set[str] = frozenset()
) -> tuple[dict[str, NDArray[Any]], Borrowed]:
    """Every array as compiled code takes it; those that are written and were copied are listed with their copies."""
    found: dict[str, NDArray[Any]] = {}
    borrowed: Borrowed = []
    for name, array in arrays.items():
        if not array.size:
            # A subscript out of range reads element 0 before the loop stops, so there must be one.
            room = np.zeros([max(1, size) for size in array.shape], array.dtype)
            found[name] = room[tuple(slice(size) for size in array.shape)]
        elif array.flags.c_contiguous and array.flags.aligned:
            found[name] = array
        else:
            found[name] = np.array(array, order="C")
            if name in written:
                borrowed.append((array, found[name]))
    return found, borrowed


def give_back(borrowed: Borrowed) -> None:
    """Put what the loop wrote where the user looks for it."""
    for array, copy in borrowed:
        array[...] = copy


def check(analysis: Analysis, held: Held) -> None:
    """Refuse to write to what must not be written: read-only arrays, and the memory of the data that are read."""
    columns = list(arrays_of(analysis.space.records)) if analysis.space.records is not None else []
    for name in sorted(analysis.written):
        array = held.arrays[name]
        if not array.flags.writeable:
            raise PlanError(f"{name} is written by the loop, but its array is read-only; pass a copy: {name}.copy()")
        if _folded(array):
            raise PlanError(f"{name} is written by the loop, and some of its elements share memory; pass {name}.copy()")
        for column in columns:
            if np.may_share_memory(array, column) and np.shares_memory(array, column):
                data = analysis.space.source
                raise PlanError(
                    f"{name} is written while the loop reads {data}, and they share memory; make {data} from a copy, "
                    "or loop over range(...) and read the array itself"
                )


def _folded(array: NDArray[Any]) -> bool:
    """Whether two elements of an array may be one in memory, as `as_strided` can make them."""
    if not array.size:
        return False
    reached = array.itemsize
    for stride, size in sorted((abs(stride), size) for stride, size in zip(array.strides, array.shape, strict=True)):
        if size > 1:
            if stride < reached:
                return True
            reached += (size - 1) * stride
    return False


def arrays_of(records: Records) -> Iterator[NDArray[Any]]:
    """The arrays that hold the records."""
    yield from records.index
    for column in records.columns:
        if isinstance(column, RaggedColumn):
            yield from (column.ptr, *column.parts)
        else:
            yield column.values
