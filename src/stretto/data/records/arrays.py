"""Check the flat arrays of records: indices that are integers from 0 up, values that are finite numbers."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stretto.data.records.ids import INT64_MAX, whole_numbers
from stretto.errors import DataError

INT32_MAX = 2**31 - 1
SLICE = 1 << 18  # records processed at a time where a whole-array temporary would be too large

Indices: TypeAlias = NDArray[np.int32] | NDArray[np.int64]


def _array(values: ArrayLike, what: str, source: str) -> NDArray[Any]:
    try:
        return np.asarray(values)
    except (TypeError, ValueError, OverflowError) as error:
        raise DataError(f"{source}: {what} must be one flat array of numbers ({error})") from error


def as_indices(values: ArrayLike, what: str, source: str) -> Indices:
    """A flat, contiguous int32 array (int64 when an index does not fit), never negative; no copy when it is one
    already.
    """
    array = _array(values, f"{what} indices", source)
    if array.ndim != 1:
        raise DataError(f"{source}: {what} indices must be one flat array, got shape {array.shape}")
    if array.dtype.kind == "f":
        whole = whole_numbers(array)
        if whole is None:
            exact = 2.0 ** (np.finfo(array.dtype).nmant + 1)
            at = int(np.argmin((np.abs(array) < exact) & (array == np.floor(array))))
            why = "is not an integer" if not abs(array[at]) >= exact else f"is too large for exact {array.dtype}"
            raise DataError(
                f"{source}: {what} index {float(array[at])} at position {at} {why}; give indices as integers"
            )
        array = whole
    elif array.dtype.kind not in "iu" and len(array):
        raise DataError(
            f"{source}: {what} indices must be integers, got {array.dtype}; map other ids with IdMap or as_data"
        )
    if not len(array):
        return np.empty(0, dtype=np.int32)
    low, high = int(array.min()), int(array.max())
    if low < 0:
        at = int(np.argmax(array < 0))
        raise DataError(f"{source}: negative {what} index {int(array[at])} at position {at}; indices start at 0")
    if high > INT64_MAX:
        raise DataError(f"{source}: the {what} index {high} does not fit 64 signed bits; map such ids with as_data")
    if high <= INT32_MAX:
        return np.ascontiguousarray(array, dtype=np.int32)
    return np.ascontiguousarray(array, dtype=np.int64)


def as_values(values: ArrayLike, source: str, at: tuple[Indices, Indices] | None = None) -> NDArray[np.float32]:
    """A flat, contiguous float32 array without NaN or infinity; no copy when it is one already.

    at: rows and columns of the values, for messages.
    """
    array = _array(values, "values", source)
    if array.ndim != 1:
        raise DataError(f"{source}: values must be one flat array, got shape {array.shape}")
    if array.dtype.kind not in "iufb" and len(array):
        raise DataError(f"{source}: values must be numbers, got {array.dtype}")
    with np.errstate(over="ignore"):
        single = np.ascontiguousarray(array, dtype=np.float32)
    for lo in range(0, len(single), SLICE):
        part = single[lo : lo + SLICE]
        if not np.isfinite(part).all():
            k = lo + int(np.argmin(np.isfinite(part)))
            why = "does not fit a 32-bit float" if np.isfinite(array[k]) else "is not a finite number"
            where = f"position {k}"
            if at is not None and k < min(map(len, at)):
                where += f" (row {at[0][k]}, column {at[1][k]})"
            raise DataError(f"{source}: value {array[k]} at {where} {why}; drop or repair such records first")
    return single
