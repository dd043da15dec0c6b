"""Build typed columns from values that arrive one at a time.

The first value defines the type of all: a number, a tuple, or a list of entries (numbers or tuples of numbers). Inside
a tuple each item is a number or a list. Python numbers become int64, float64 or bool, and NumPy scalars keep their
type. Values are collected in short lists, so that the columns are the only large arrays.
"""

from __future__ import annotations

from numbers import Number
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.data.records.records import AnyColumn, Column, RaggedColumn, Value
from stretto.errors import DataError

_WAITING = 1 << 14
_USUAL = frozenset({int, float, bool})  # asked first: asking an abstract class takes ten times as long
_NUMBERS = (Number, np.bool_)
_REMEDY = "return a number, a tuple of numbers or a list of entries, and the same for every record"


class Builder:
    """`add` every record, or `add_value` where the indices are known; then `value()` and `index(shape)`."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.count = 0
        self._index: list[_Numbers] | None = None
        self._columns: list[_Flat | _Lists] = []
        self._tuple = False

    def add(self, index: Any, value: Any) -> None:
        parts = index if isinstance(index, tuple) else (index,)
        if self._index is None:
            self._index = [_Numbers() for _ in parts]
        if len(parts) != len(self._index) or not all(a.add(part) for a, part in zip(self._index, parts, strict=True)):
            raise DataError(
                f"{self.source}: record {self.count} has the index {index!r}; give whole numbers, "
                f"{len(self._index)} of them as in the first record"
            )
        self.add_value(value)

    def add_value(self, value: Any) -> None:
        parts = value if isinstance(value, tuple) else (value,)
        if not self._columns:
            self._tuple = isinstance(value, tuple)
            self._columns = [_Lists() if isinstance(part, list) else _Flat() for part in parts]
        alike = isinstance(value, tuple) == self._tuple and len(parts) == len(self._columns)
        if not parts or not alike or not all(c.add(part) for c, part in zip(self._columns, parts, strict=True)):
            raise DataError(f"{self.source}: record {self.count} has the value {value!r}; {_REMEDY}")
        self.count += 1

    def value(self) -> Value:
        """The column or columns of all values; an empty float column without values."""
        columns: tuple[AnyColumn, ...] = tuple(column.finish() for column in self._columns)
        if not columns:
            return Column(np.empty(0))
        return columns if self._tuple else columns[0]

    def index(self, shape: tuple[int, ...] | None) -> tuple[tuple[int, ...], tuple[NDArray[Any], ...]]:
        """The shape, by default the smallest that holds all indices, and one array of indices for each dimension."""
        if self._index is None:
            shape = shape or (0,)
            return shape, tuple(np.empty(0, np.int32) for _ in shape)
        if shape is not None and len(shape) != len(self._index):
            raise DataError(f"{self.source}: indices of {len(self._index)} dimensions do not fit the shape {shape}")
        axes = tuple(
            self._axis(k, axis.finish(), None if shape is None else shape[k]) for k, axis in enumerate(self._index)
        )
        return shape or tuple(int(axis.max()) + 1 for axis in axes), axes

    def _axis(self, k: int, axis: NDArray[Any], size: int | None) -> NDArray[Any]:
        if axis.dtype.kind not in "iu":
            raise DataError(f"{self.source}: the indices on axis {k} must be whole numbers, got {axis.dtype}")
        bad = (axis < 0) if size is None else (axis < 0) | (axis >= size)
        if bad.any():
            at = int(np.argmax(bad))
            bounds = "from 0 up" if size is None else f"from 0 to {size - 1}"
            raise DataError(f"{self.source}: record {at} has the index {axis[at]} on axis {k}; indices go {bounds}")
        return axis.astype(np.int32 if int(axis.max()) < 2**31 else np.int64)


class _Numbers:
    """One number at a time into a column."""

    def __init__(self) -> None:
        self._waiting: list[Any] = []
        self._done: list[NDArray[Any]] = []

    def add(self, value: Any) -> bool:
        if type(value) not in _USUAL and not isinstance(value, _NUMBERS):
            return False
        self._waiting.append(value)
        if len(self._waiting) == _WAITING:
            self._settle()
        return True

    def finish(self) -> NDArray[Any]:
        self._settle()
        return np.concatenate(self._done) if self._done else np.empty(0)

    def _settle(self) -> None:
        if self._waiting:
            self._done.append(np.asarray(self._waiting))
            self._waiting = []


class _Flat:
    """Numbers into a flat column."""

    def __init__(self) -> None:
        self._numbers = _Numbers()
        self.add = self._numbers.add

    def finish(self) -> AnyColumn:
        return Column(self._numbers.finish())


class _Lists:
    """Lists of numbers, or of tuples of numbers, into a ragged column."""

    def __init__(self) -> None:
        self._sizes = _Numbers()
        self._parts: list[_Numbers] | None = None
        self._bare = True

    def add(self, value: Any) -> bool:
        if not isinstance(value, list):
            return False
        self._sizes.add(len(value))
        for entry in value:
            if self._parts is None:
                self._bare = not isinstance(entry, tuple)
                self._parts = [_Numbers() for _ in range(1 if self._bare else len(entry))]
            numbers = (entry,) if self._bare else entry
            if not isinstance(numbers, tuple) or len(numbers) != len(self._parts):
                return False
            if not all(part.add(number) for part, number in zip(self._parts, numbers, strict=True)):
                return False
        return True

    def finish(self) -> AnyColumn:
        sizes = self._sizes.finish()  # whole: they are lengths of lists
        ptr = np.zeros(len(sizes) + 1, dtype=np.int64)
        np.cumsum(sizes, out=ptr[1:])
        parts = self._parts or [_Numbers()]
        return RaggedColumn(ptr, tuple(part.finish() for part in parts))
