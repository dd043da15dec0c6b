"""Growable columns for records while a file is read, and the mapping of ids to indices afterwards.

`GrowingArray` doubles in place (the allocator moves pages, not bytes), so reading holds the result once, not twice.
`compact` turns external integer ids into ranks, in place. `Interner` numbers text ids in the order of their first
occurrence and returns the sorted `IdMap` at the end.
"""

from __future__ import annotations

import zlib
from itertools import pairwise
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stretto.data.records.arrays import INT32_MAX, SLICE, Indices
from stretto.data.records.ids import IdMap, plain_ids, text_array
from stretto.errors import DataError

FEW = 1 << 16  # ids that are mapped without compiled code, which takes longer to load than they to sort


class GrowingArray:
    """A flat array under construction; an int32 one widens by itself when a value needs 64 bits."""

    def __init__(self, dtype: Any, capacity: int = 1 << 16) -> None:
        self._array: NDArray[Any] = np.empty(max(capacity, 16), dtype=dtype)
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def reserve(self, capacity: int) -> None:
        """Allocate this capacity at once: growing later has to clear the new memory, this does not."""
        if capacity > len(self._array):
            larger = np.empty(capacity, dtype=self._array.dtype)
            larger[: self._size] = self._array[: self._size]
            self._array = larger

    def extend(self, part: NDArray[Any]) -> None:
        """Append a copy of `part`."""
        if self._array.dtype == np.int32 and part.dtype == np.int64 and len(part) and not _fits(part):
            self._array = self._array.astype(np.int64)
        need = self._size + len(part)
        if need > len(self._array):
            self._array.resize(max(need, len(self._array) * 3 // 2), refcheck=False)
        self._array[self._size : need] = part
        self._size = need

    def done(self) -> NDArray[Any]:
        """The array, cut to its size; the object must not be used afterwards."""
        self._array.resize(self._size, refcheck=False)
        return self._array


def _fits(part: NDArray[np.int64]) -> bool:
    return int(part.min()) >= -INT32_MAX and int(part.max()) <= INT32_MAX


def compact(ids: Indices) -> tuple[NDArray[np.int32], IdMap]:
    """Ranks of integer ids, and the map back. An int32 array is renumbered in place."""
    if not len(ids):
        return np.empty(0, np.int32), IdMap(np.empty(0, np.int64))
    known = unique_ids(ids)
    out = cast("NDArray[np.int32]", ids) if ids.dtype == np.int32 else np.empty(len(ids), dtype=np.int32)
    IdRanks(known)(ids, out)
    return out, IdMap(known)


def mapped(ids: ArrayLike) -> tuple[NDArray[np.int32], IdMap]:
    """Ranks of ids of any kind, and the map back; `ids` stays as it is."""
    array = np.asarray(ids)
    if array.dtype.kind == "O" and len(array) and isinstance(array.ravel()[0], str):
        names = array.ravel().tolist()
        if all(isinstance(name, str) for name in names):  # a dictionary is several times faster than sorting strings
            known = sorted(set(names))
            place = {name: k for k, name in enumerate(known)}
            return np.fromiter(map(place.__getitem__, names), np.int32, len(names)), IdMap(plain_ids(known))
    plain = plain_ids(array)
    if plain.dtype.kind != "T" and len(plain) > FEW:
        return compact(plain)  # int64, which `compact` leaves as it is
    if plain.dtype.kind != "T":
        distinct, ranks = np.unique(plain, return_inverse=True)
        return ranks.astype(np.int32), IdMap(distinct)
    id_map = IdMap.of(plain)
    return id_map.encode(plain), id_map


def unique_ids(ids: Indices) -> NDArray[np.int64]:
    """Sorted distinct ids: by marking a table when their range is small, otherwise by sorting slices."""
    low, high = int(ids.min()), int(ids.max())
    if _dense(high - low + 1, len(ids)):
        from stretto.kernels.text.ids import mark

        seen = np.zeros(high - low + 1, dtype=np.uint8)
        mark(ids, low, seen)
        return np.flatnonzero(seen) + low
    known = np.empty(0, dtype=np.int64)
    for lo in range(0, len(ids), 16 * SLICE):
        known = np.union1d(known, ids[lo : lo + 16 * SLICE])
    return known


class IdRanks:
    """Ranks of ids among the sorted ids `known`: by a table when their range is small, otherwise by bisection."""

    def __init__(self, known: NDArray[np.int64]) -> None:
        self._known = known
        self._table: NDArray[np.int32] | None = None
        span = int(known[-1]) - int(known[0]) + 1
        if _dense(span, len(known)):
            self._table = np.full(span, -1, dtype=np.int32)
            self._table[known - known[0]] = np.arange(len(known), dtype=np.int32)

    def __call__(self, ids: Indices, out: NDArray[np.int32]) -> None:
        """Set `out[k]` to the rank of `ids[k]`, or -1 if it is unknown; `out` may be `ids`.

        All ids are between the ends of `known`.
        """
        if self._table is not None:
            from stretto.kernels.text.ids import renumber

            renumber(ids, int(self._known[0]), self._table, out)
            return
        for lo in range(0, len(ids), SLICE):
            part = ids[lo : lo + SLICE]
            found = np.searchsorted(self._known, part)
            found[self._known[found] != part] = -1
            out[lo : lo + SLICE] = found


def _dense(span: int, count: int) -> bool:
    return span <= 4 * count + (1 << 20)


class Interner:
    """Numbers distinct texts in the order they are met, across any number of buffers."""

    def __init__(self) -> None:
        self._slots = np.zeros(1 << 12, dtype=np.int32)
        self._hashes = np.empty(1 << 11, dtype=np.uint64)
        self._offsets = np.zeros((1 << 11) + 1, dtype=np.int64)
        self._text = np.empty(1 << 16, dtype=np.uint8)
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def codes(self, buf: NDArray[np.uint8], starts: NDArray[np.int64], lengths: NDArray[np.int32]) -> NDArray[np.int32]:
        """Numbers of the texts `buf[starts[k] : starts[k] + lengths[k]]`."""
        from stretto.kernels.text.ids import intern

        out = np.empty(len(starts), dtype=np.int32)
        done = 0
        while True:
            done, self._count = intern(
                buf, starts, lengths, done, self._slots, self._hashes, self._offsets, self._count, self._text, out
            )
            if done == len(starts):
                return out
            self._grow(int(lengths[done]))

    def _grow(self, need: int) -> None:
        from stretto.kernels.text.ids import rehash

        if 2 * (self._count + 1) > len(self._slots):
            self._slots = np.zeros(2 * len(self._slots), dtype=np.int32)
            rehash(self._slots, self._hashes, self._count)
        if self._count + 1 > len(self._hashes):
            self._hashes = np.resize(self._hashes, 2 * len(self._hashes))
            self._offsets = np.resize(self._offsets, len(self._hashes) + 1)
        used = int(self._offsets[self._count])
        if used + need > len(self._text):
            self._text = np.resize(self._text, 2 * len(self._text) + need)

    def ranks(self, source: str) -> tuple[NDArray[np.int32], IdMap]:
        """For every number the rank of its text, and the map of the texts in rank order."""
        pieces = self._pieces(0)
        order = sorted(range(self._count), key=pieces.__getitem__)  # UTF-8 sorts like the characters it stands for
        rank = np.empty(self._count, dtype=np.int32)
        rank[order] = np.arange(self._count, dtype=np.int32)
        try:
            return rank, IdMap(text_array([pieces[k].decode() for k in order]))
        except UnicodeDecodeError as error:
            raise _not_utf8(source, error) from error

    def texts(self, first: int, source: str) -> list[str]:
        """The texts in the order of their numbers, from number `first` on."""
        try:
            return [piece.decode() for piece in self._pieces(first)]
        except UnicodeDecodeError as error:
            raise _not_utf8(source, error) from error

    def digest(self) -> int:
        """A checksum of the texts in the order of their numbers."""
        ends = self._offsets[: self._count + 1]
        return zlib.crc32(self._text[: int(ends[-1])].data, zlib.crc32(ends.data))

    def _pieces(self, first: int) -> list[bytes]:
        offsets = self._offsets[first : self._count + 1].tolist()
        blob = self._text[offsets[0] : offsets[-1]].tobytes()
        return [blob[a - offsets[0] : b - offsets[0]] for a, b in pairwise(offsets)]


def _not_utf8(source: str, error: UnicodeDecodeError) -> DataError:
    return DataError(f"{source}: an id is not UTF-8 text ({error}); convert the file to UTF-8")
