"""Sparse array elements in a message: their indices (as runs or one by one) and their values.

sent = pack(numbers, array.reshape(-1)[numbers])
sent.write(other.reshape(-1))                       # the same elements of an array on another host
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class ElementRuns:
    """Indices and values of some elements of a flat array."""

    first: NDArray[Any]  # start of each run, or every index if `length` is None
    length: NDArray[Any] | None  # length of each run
    values: NDArray[Any]  # one per element

    @property
    def nbytes(self) -> int:
        return int(self.first.nbytes + (0 if self.length is None else self.length.nbytes) + self.values.nbytes)

    def numbers(self) -> NDArray[Any]:
        """The index of every element."""
        if self.length is None:
            return self.first
        ends = np.cumsum(self.length, dtype=np.int64)
        total = int(ends[-1]) if len(ends) else 0
        found: NDArray[Any] = np.repeat(self.first.astype(np.int64) - (ends - self.length), self.length)
        return found + np.arange(total)

    def write(self, flat: NDArray[Any]) -> NDArray[Any]:
        """Write the values into a flat array; return the indices."""
        at = self.numbers()
        flat[at] = self.values
        return at


def pack(numbers: NDArray[Any], values: NDArray[Any]) -> ElementRuns:
    """Pack elements in ascending order. Consecutive indices are sent as runs where that takes fewer bytes.

    >>> pack(np.array([4, 5, 6, 7, 8]), np.zeros(5)).length.tolist()
    [5]
    """
    small = np.int32 if not len(numbers) or int(numbers[-1]) < 2**31 else np.int64
    begins = np.flatnonzero(np.diff(numbers, prepend=-2) != 1)
    if 2 * len(begins) >= len(numbers):
        return ElementRuns(np.asarray(numbers, small), None, values)
    length = np.diff(begins, append=len(numbers))
    return ElementRuns(numbers[begins].astype(small), length.astype(small), values)


def bits(array: NDArray[Any]) -> NDArray[Any]:
    """An array's elements as unsigned integers, so that NaN equals itself and -0.0 is not 0.0."""
    flat = array.reshape(-1)
    return flat.view(f"u{flat.dtype.itemsize}") if flat.dtype.kind != "b" else flat


def nonzero(array: NDArray[Any]) -> ElementRuns:
    """The elements whose bits are not all zero; all elements where leaving out zeros saves nothing."""
    flat = array.reshape(-1)
    found = np.flatnonzero(bits(array))
    if len(found) * (4 + flat.dtype.itemsize) >= flat.nbytes:
        found = np.arange(len(flat))
    return pack(found, flat[found])
