"""Hash index from keys of any size to small slot numbers, for rows stored in growing arrays.

>>> import numpy as np
>>> index = Index()
>>> index.place(np.array([70, 5, 70])).tolist(), index.find(np.array([5, 6])).tolist(), index.count
([0, 1, 0], [1, -1], 2)
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.comm.messages import Keys
from stretto.kernels.tables import cached_rows

Places = NDArray[np.int64]
_FIRST = 64
# For kernels that find nothing where the index is empty.
NO_INDEX: tuple[Keys, NDArray[np.int32]] = np.empty(0, np.int64), np.empty(0, np.int32)


def longer(column: NDArray[Any], capacity: int, fill: float = 0) -> NDArray[Any]:
    """A copy of the column with capacity for this many rows, the new ones filled."""
    shape = (capacity, *column.shape[1:])
    grown = np.full(shape, fill, column.dtype) if fill else np.zeros(shape, column.dtype)
    grown[: len(column)] = column
    return grown


class KeyIndex:
    """Open-addressing hash table for kernels: keys [size] int64, slots [size] int32, −1 where there is none.

    both : the two arrays. They are replaced together when they grow, so that a thread may search while another adds.
    """

    __slots__ = ("both",)

    def __init__(self, entries: int = _FIRST) -> None:
        size = _size(entries)
        self.both: tuple[Keys, NDArray[np.int32]] = np.zeros(size, np.int64), np.full(size, -1, np.int32)

    @property
    def keys(self) -> Keys:
        return self.both[0]

    @property
    def slots(self) -> NDArray[np.int32]:
        return self.both[1]

    def reserve(self, entries: int) -> None:
        """Grow until this many keys fit."""
        size = _size(entries)
        if size > len(self.keys):
            grown = np.zeros(size, np.int64), np.empty(size, np.int32)
            cached_rows.rehash.exact(*grown, *self.both)
            self.both = grown


def _size(entries: int) -> int:
    """The size of the table: a power of two, at least twice the entries."""
    return 1 << max(1, 2 * entries - 1).bit_length()


class RowsByKey:
    """In place of an index where a row's place is its key and no row is missing. keys [rows]: 0, 1, 2, …"""

    __slots__ = ("count", "keys")

    def __init__(self, keys: Keys) -> None:
        self.keys, self.count = keys, len(keys)

    @property
    def capacity(self) -> int:
        """The number of rows."""
        return self.count

    def find(self, wanted: Keys) -> Places:
        """[n] the place of each key."""
        return wanted

    def search(self, wanted: Keys) -> tuple[Places, int]:
        """As `find`, and 0: no key is missing."""
        return wanted, 0

    def place(self, wanted: Keys) -> Places:
        """[n] the place of each key."""
        return wanted


class Index:
    """Places 0, 1, 2, … for keys in the order they are first seen; with `marked`, for pairs of a key and an int32.

    keys [capacity] int64 and marks [capacity] int32 (empty unless marked) hold what is at each place below `count`.
    """

    __slots__ = ("_before", "count", "keys", "lookup", "marked", "marks")

    def __init__(self, marked: bool = False) -> None:
        self.marked = marked
        self.count = 0
        self.lookup = KeyIndex()
        self.keys: Keys = np.empty(_FIRST, np.int64)
        self.marks: NDArray[np.int32] = np.empty(_FIRST if marked else 0, np.int32)
        self._before: NDArray[np.int32] = np.empty_like(self.marks)  # from a place to the previous one of the same key

    @property
    def capacity(self) -> int:
        return len(self.keys)

    def find(self, wanted: Keys) -> Places:
        """[n] the place of each key, −1 where it has none; with several marks, the last place."""
        out = np.empty(len(wanted), np.int64)
        cached_rows.find_all.exact(*self.lookup.both, wanted, out)
        return out

    def search(self, wanted: Keys) -> tuple[Places, int]:
        """As `find`, and how many keys have no place."""
        out = np.empty(len(wanted), np.int64)
        return out, cached_rows.find_all.exact(*self.lookup.both, wanted, out)

    def place(self, wanted: Keys, marks: NDArray[np.int32] | None = None) -> Places:
        """[n] the place of each key (and mark), a new one where it had none."""
        self.make_room(self.count + len(wanted))
        out = np.empty(len(wanted), np.int64)
        keys, slots = self.lookup.keys, self.lookup.slots
        if self.marked:
            self.count = cached_rows.place_marked.exact(
                keys, slots, self.keys, self.marks, self._before, self.count, wanted, marks, out
            )
        else:
            self.count = cached_rows.place.exact(keys, slots, self.keys, self.count, wanted, out)
        return out

    def make_room(self, entries: int) -> None:
        """Grow until this many fit."""
        if entries <= len(self.keys):
            return
        capacity = 1 << (entries - 1).bit_length()
        self.keys = longer(self.keys, capacity)
        if self.marked:
            self.marks, self._before = longer(self.marks, capacity), longer(self._before, capacity)
        self.lookup.reserve(capacity)

    def keep(self, places: Places) -> None:
        """Keep the keys at these places only, and move them to 0, 1, 2, …"""
        keys, marks = self.keys[places], self.marks[places] if self.marked else None
        self.clear()
        self.place(keys, marks)

    def clear(self) -> None:
        """Remove all keys; the capacity stays."""
        if self.count:
            self.count = 0
            self.lookup.slots.fill(-1)
