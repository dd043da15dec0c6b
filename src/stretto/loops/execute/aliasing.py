"""Memory of the arguments of a loop: conversion to contiguous arrays, and checks for read-only or shared memory.

Compiled code takes C-contiguous, aligned arrays in native byte order. Other arrays are copied before the loop and, if
the loop writes to them, copied back after it.
"""

from __future__ import annotations

from collections.abc import Iterator, Set
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.data.records.records import RaggedColumn, Records
from stretto.errors import PlanError
from stretto.loops.analyse.analysis import Analysis
from stretto.loops.front.bind import BoundValues

Borrowed = list[tuple[NDArray[Any], NDArray[Any]]]


def contiguous(
    arrays: dict[str, NDArray[Any]], written: Set[str] = frozenset()
) -> tuple[dict[str, NDArray[Any]], Borrowed]:
    """Every array as compiled code takes it, and a list of the written arrays that were copied, with their copies."""
    found: dict[str, NDArray[Any]] = {}
    borrowed: Borrowed = []
    for name, array in arrays.items():
        if not array.size:
            # A subscript out of range reads element 0 before the loop stops, so element 0 must exist.
            scratch = np.zeros([max(1, size) for size in array.shape], array.dtype)
            found[name] = scratch[tuple(slice(size) for size in array.shape)]
        elif array.flags.c_contiguous and array.flags.aligned:
            found[name] = array
        else:
            found[name] = np.array(array, order="C")
            if name in written:
                borrowed.append((array, found[name]))
    return found, borrowed


def give_back(borrowed: Borrowed) -> None:
    """Copy what the loop wrote to copies back into the user's arrays."""
    for array, copy in borrowed:
        array[...] = copy


def check(analysis: Analysis, held: BoundValues) -> None:
    """Refuse to write to read-only arrays and to the memory of the data that the loop reads."""
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
    """Whether two elements of an array may share memory, as in arrays made by `as_strided`."""
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
