"""`Records`: the flat view of any record set that loops are compiled against.

N records, each an index and a value. Values are columns: flat arrays with one number for each record, or ragged columns
with a run of entries for each.

| kind     | index of record k                             | made by                                 |
|----------|-----------------------------------------------|-----------------------------------------|
| `sparse` | (index[0][k], index[1][k], …), in any order   | `Data`, `map`, `numbered`, `text_file`  |
| `ragged` | k, one dimension                              | `samples`, `group_by`                   |
| `dense`  | the k-th cell of `shape`, row by row          | `dense`                                 |

In plain Python every kind iterates as `(index, value)`, in Python's own numbers:

    >>> r = Records("sparse", (2, 3), (np.array([0, 1]), np.array([2, 0])), Column(np.array([5.0, 4.0])))
    >>> list(iterate(r))
    [((0, 2), 5.0), ((1, 0), 4.0)]
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from stretto.errors import DataError

TOGETHER = 1 << 14  # records turned into Python numbers at a time
KINDS = ("sparse", "ragged", "dense")


def frozen(array: NDArray[Any]) -> NDArray[Any]:
    """A read-only view of `array`; the memory is shared, the caller's own array stays writeable."""
    view = array.view()
    view.flags.writeable = False
    return view


def plain(array: NDArray[Any], what: str) -> NDArray[Any]:
    """A flat, contiguous, read-only array of native numbers or booleans; no copy when it is one already."""
    if array.ndim != 1 or array.dtype.kind not in "biuf":
        raise DataError(f"{what} must be a flat array of numbers, got shape {array.shape} of {array.dtype}")
    return frozen(np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("=")))


@dataclass(frozen=True, slots=True, eq=False)
class Column:
    """values [N]: one number for each record. unique: no two records share a value (the record's own number)."""

    values: NDArray[Any]
    unique: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "values", plain(self.values, "a column"))

    def __len__(self) -> int:
        return len(self.values)


@dataclass(frozen=True, slots=True, eq=False)
class RaggedColumn:
    """Record k holds the entries ptr[k] to ptr[k + 1].

    ptr [N + 1] int64, from 0 up; parts: flat arrays of ptr[-1] numbers. An entry is a tuple of one number for each
    part, or the bare number where there is one part.
    """

    ptr: NDArray[np.int64]
    parts: tuple[NDArray[Any], ...]

    def __post_init__(self) -> None:
        ptr = plain(np.asarray(self.ptr, dtype=np.int64), "the bounds of a ragged column")
        if not len(ptr) or ptr[0] != 0 or bool((ptr[1:] < ptr[:-1]).any()):
            raise DataError("the bounds of a ragged column must start at 0 and never fall")
        if not self.parts or any(len(part) != ptr[-1] for part in self.parts):
            raise DataError(
                f"a ragged column of {ptr[-1]} entries needs parts of that length, got {[len(p) for p in self.parts]}"
            )
        object.__setattr__(self, "ptr", ptr)
        object.__setattr__(self, "parts", tuple(plain(part, "a part of a ragged column") for part in self.parts))

    def __len__(self) -> int:
        return len(self.ptr) - 1


AnyColumn: TypeAlias = Column | RaggedColumn
Value: TypeAlias = AnyColumn | tuple[AnyColumn, ...]


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Records:
    """See the table above. value: one column, or a tuple of columns where the value of a record is a tuple."""

    kind: str
    shape: tuple[int, ...]
    index: tuple[NDArray[Any], ...]
    value: Value

    def __post_init__(self) -> None:
        if self.kind not in KINDS or not self.columns:
            raise DataError(f"records are {', '.join(KINDS)} and have a value, got {self.kind!r}")
        index = tuple(plain(axis, "an index") for axis in self.index)
        object.__setattr__(self, "index", index)
        object.__setattr__(self, "shape", tuple(int(n) for n in self.shape))
        lengths = {len(part) for part in (*index, *self.columns)}
        if self.kind != "sparse":
            lengths.add(prod(self.shape))
        if len(lengths) != 1:
            raise DataError(f"indices and columns of {self.kind} records must have one length, got {sorted(lengths)}")
        if len(index) != (len(self.shape) if self.kind == "sparse" else 0):
            raise DataError(f"{self.kind} records of shape {self.shape} came with {len(index)} index arrays")
        if self.kind == "ragged" and len(self.shape) != 1:
            raise DataError(f"ragged records have one dimension, got shape {self.shape}")

    @property
    def columns(self) -> tuple[AnyColumn, ...]:
        """The value's columns, a single one as a tuple of one."""
        return self.value if isinstance(self.value, tuple) else (self.value,)

    def __len__(self) -> int:
        return len(self.columns[0])


def iterate(records: Records, which: NDArray[Any] | None = None) -> Iterator[tuple[Any, Any]]:
    """(index, value) of every record, or of the records numbered `which` in that order, in Python's own numbers."""
    for part in _slices(records, which):
        index = _indices(records, part)
        values = [_values(column, part) for column in records.columns]
        if isinstance(records.value, tuple):
            yield from zip(index, zip(*values, strict=True), strict=True)
        else:
            yield from zip(index, values[0], strict=True)


def index_of(records: Records) -> tuple[NDArray[Any], ...]:
    """One index array for each dimension, whatever the kind."""
    if records.kind == "sparse":
        return records.index
    small = max(records.shape, default=0) < 2**31
    cells = np.unravel_index(np.arange(len(records)), records.shape)
    return tuple(axis.astype(np.int32 if small else np.int64) for axis in cells)


def _slices(records: Records, which: NDArray[Any] | None) -> Iterator[NDArray[Any]]:
    """The numbers of the records to visit, in slices."""
    n = len(records) if which is None else len(which)
    for lo in range(0, n, TOGETHER):
        hi = min(lo + TOGETHER, n)
        yield np.arange(lo, hi) if which is None else which[lo:hi]


def _indices(records: Records, part: NDArray[Any]) -> list[Any]:
    if records.kind == "sparse":
        axes = [axis[part].tolist() for axis in records.index]
    else:
        axes = [axis.tolist() for axis in np.unravel_index(part, records.shape)]
    return axes[0] if len(axes) == 1 else list(zip(*axes, strict=True))


def _values(column: AnyColumn, part: NDArray[Any]) -> list[Any]:
    if isinstance(column, Column):
        return list(column.values[part].tolist())
    rows: list[Any] = []
    for start, stop in zip(column.ptr[part].tolist(), column.ptr[part + 1].tolist(), strict=True):
        entries = [numbers[start:stop].tolist() for numbers in column.parts]
        rows.append(entries[0] if len(entries) == 1 else list(zip(*entries, strict=True)))
    return rows


def named_columns(records: Records) -> int:
    """One more than the largest column an entry names; 0 where entries begin with something else than an index."""
    for column in records.columns:
        if isinstance(column, RaggedColumn) and len(column.parts) > 1 and column.parts[0].dtype.kind in "iu":
            return int(column.parts[0].max(initial=-1)) + 1
    return 0
