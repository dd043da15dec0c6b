"""Send nodes only the parameters that changed: versions, sparse patches, and applying them.

    log = PatchLog(arrays)                  # on the driver
    log.advance(newer)                      # the patch from the last version to this one is kept
    log.since(stamp)                        # for a node with version `stamp`: whole arrays or None, and patches
    apply_patch(arrays, patch)              # on a node

Versions are numbered by stamps: 0 is the start, and each version that differs from the previous one has the next.
Arrays are compared by their bytes, so −0.0 and the bits of NaN are preserved.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Arrays = dict[str, NDArray[Any]]

_SPARSE = 3  # elements are sent one by one if fewer than 1/_SPARSE of them changed
_WORDS = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


@dataclass(frozen=True, eq=False)
class Patch:
    """What differs between two versions.

    Attributes
    ----------
    whole : dict of str to array
        Arrays most of which changed.
    places, values : dict of str to array
        Flat positions and new elements of arrays of which little changed.
    """

    whole: Arrays
    places: Arrays
    values: Arrays


def changed(before: NDArray[Any], after: NDArray[Any]) -> NDArray[np.int64]:
    """Flat positions, in the memory order of `before`, of the elements whose bytes differ.

    >>> changed(np.array([0.0, 1.0, 2.0]), np.array([-0.0, 1.0, 3.0])).tolist()
    [0, 2]
    """
    size = before.dtype.itemsize
    word = _WORDS.get(size, np.uint8)
    order = order_of(before)
    one, other = (np.ascontiguousarray(array.reshape(-1, order=order)).view(word) for array in (before, after))
    differs = one != other
    if word is np.uint8 and size > 1:
        differs = differs.reshape(-1, size).any(axis=1)
    return np.flatnonzero(differs)


def apply_patch(arrays: Arrays, patch: Patch) -> None:
    """Write a patch into arrays, in place."""
    for name, array in patch.whole.items():
        arrays[name][...] = array
    for name, places in patch.places.items():
        flat(arrays[name])[places] = patch.values[name]


def copied(array: NDArray[Any]) -> NDArray[Any]:
    """A copy with the same memory order (row-major or column-major): libraries sum in memory order."""
    order: Any = "F" if array.ndim > 1 and array.flags.f_contiguous and not array.flags.c_contiguous else "C"
    return np.array(array, order=order, copy=True)


def order_of(array: NDArray[Any]) -> Any:
    """The memory order of a contiguous array."""
    return "C" if array.flags.c_contiguous else "F"


def flat(array: NDArray[Any]) -> NDArray[Any]:
    """A contiguous array in memory order; writing to it writes to the array."""
    return array.reshape(-1, order=order_of(array))


def touched_by(patch: Patch) -> list[str]:
    """The arrays that a patch writes to."""
    return [*patch.whole, *patch.places]


class PatchLog:
    """The versions of the parameters that nodes may still need: the oldest as a whole, then patches."""

    def __init__(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        self.stamp = 0  # of the newest version
        self._newest: Arrays = {name: copied(array) for name, array in arrays.items()}
        self._oldest: Arrays = {name: copied(array) for name, array in self._newest.items()}
        self._first = 0  # stamp of the oldest
        self._patches: list[Patch] = []  # the k-th leads from stamp first + k to the next

    def advance(self, arrays: Mapping[str, NDArray[Any]]) -> int:
        """Record the next version; return its stamp."""
        whole: Arrays = {}
        places: Arrays = {}
        values: Arrays = {}
        for name, array in arrays.items():
            known = self._newest[name]
            found = changed(known, array)
            if not len(found):
                continue
            if len(found) * _SPARSE < known.size:
                places[name] = found.astype(np.int32 if known.size < 2**31 else np.int64)
                values[name] = array.reshape(-1, order=order_of(known))[found]
                flat(known)[found] = values[name]
            else:
                known[...] = array
                whole[name] = copied(known)
        if whole or places:
            self._patches.append(Patch(whole, places, values))
            self.stamp += 1
        return self.stamp

    def since(self, stamp: int | None, until: int) -> tuple[Arrays | None, tuple[Patch, ...]]:
        """The arrays and patches that bring a node from version `stamp` (None: it has nothing) to version `until`."""
        base = None
        if stamp is None or stamp < self._first:
            base, stamp = {name: copied(array) for name, array in self._oldest.items()}, self._first
        return base, tuple(self._patches[stamp - self._first : until - self._first])

    def trim(self, stamp: int) -> None:
        """Discard versions before this one."""
        while self._first < stamp:
            apply_patch(self._oldest, self._patches.pop(0))
            self._first += 1
