"""Blocks and rows on disk: what a plan larger than memory is worked on from.

`BlockFiles` holds the entries grouped by visit, as three flat files; a piece is read or written by its place. `RowFile`
holds the rows of a state in the plan's order; the rows of neighbouring blocks are one piece. Both read into buffers the
caller owns. `Window` shows two groups of a flat file at a time, in rooms of its own: one is worked on while the other
goes back to disk and the next one comes.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.schedule.order import Ints

Buffers = tuple[NDArray[Any], NDArray[Any], NDArray[Any]]
Pieces = list[tuple[int, int]]

_LINE = 64  # bytes of a cache line


class FlatFile:
    """One flat file of numbers, read and written by position; writing behind its end makes it longer."""

    def __init__(self, path: Path, dtype: Any, length: int) -> None:
        self.path, self.dtype, self.length = path, np.dtype(dtype), length
        self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        os.ftruncate(self._file, length * self.dtype.itemsize)

    def read(self, first: int, into: NDArray[Any]) -> None:
        """Numbers first, first + 1, … into a C-contiguous buffer."""
        piece = memoryview(into.data).cast("B")
        at = first * self.dtype.itemsize
        while len(piece):
            got = os.preadv(self._file, [piece], at)
            if got == 0:
                raise OSError(f"{self.path} ends at byte {at}, before {len(piece)} more; was it changed while in use?")
            piece, at = piece[got:], at + got

    def write(self, first: int, values: NDArray[Any]) -> None:
        piece = memoryview(np.ascontiguousarray(values).data).cast("B")
        at = first * self.dtype.itemsize
        while len(piece):
            put = os.pwrite(self._file, piece, at)
            piece, at = piece[put:], at + put
        self.length = max(self.length, first + len(values))

    def mapped(self) -> NDArray[Any]:
        """The whole file as an array; pages come from disk as they are touched."""
        return np.memmap(self.path, self.dtype, "r+", shape=(self.length,)) if self.length else np.zeros(0, self.dtype)

    def close(self) -> None:
        os.close(self._file)

    def remove(self) -> None:
        """Close the file and take it away; what was mapped stays readable."""
        self.close()
        self.path.unlink(missing_ok=True)


class Window:
    """Two groups of a flat file at most, in memory; each in a room that stays where it is.

    pieces(group): where the group lies in the file, [(first, last + 1), …]; in its room they lie one after the other.
    rooms: 1 where there is one group, else 2. widest: numbers of the largest group. spare: zeros behind a group.
    Who uses a window brings groups one at a time, and not into a room that is in use.
    """

    def __init__(
        self, file: FlatFile, pieces: Callable[[int], Pieces], *, rooms: int, widest: int, spare: int = 0
    ) -> None:
        self.file, self._pieces, self._spare = file, pieces, spare
        self.rooms = [aligned(widest + spare, file.dtype) for _ in range(rooms)]
        self._held: list[int | None] = [None] * rooms
        self._changed = [False] * rooms

    def bring(self, group: int, room: int) -> None:
        """Have a group in a room: what was there goes back to the file if it was changed."""
        if self._held[room] == group:
            return
        if group in self._held:
            self._let_go(self._held.index(group))
        self._let_go(room)
        array, at = self.rooms[room], 0
        for first, last in self._pieces(group):
            self.file.read(first, array[at : at + last - first])
            at += last - first
        array[at : at + self._spare] = 0
        self._held[room] = group

    def change(self, room: int) -> None:
        """Say that what is in a room is being changed."""
        self._changed[room] = True

    def settle(self) -> None:
        """Write back what was changed and hold nothing: the file has it all, and may be changed by others."""
        for room in range(len(self.rooms)):
            self._let_go(room)

    def _let_go(self, room: int) -> None:
        group = self._held[room]
        if group is not None and self._changed[room]:
            at = 0
            for first, last in self._pieces(group):
                self.file.write(first, self.rooms[room][at : at + last - first])
                at += last - first
        self._held[room], self._changed[room] = None, False

    def live(self) -> NDArray[Any]:
        """Everything, mapped from disk; true once the window has settled."""
        return self.file.mapped()

    def remove(self) -> None:
        self.file.remove()


class Resident:
    """A window on numbers that never leave memory: one group, no file."""

    def __init__(self, array: NDArray[Any]) -> None:
        self.rooms = [array]

    def bring(self, group: int, room: int) -> None:
        """It is there."""

    def change(self, room: int) -> None:
        """It may."""

    def settle(self) -> None:
        """There is no file that could differ."""

    def live(self) -> NDArray[Any]:
        return self.rooms[0]

    def remove(self) -> None:
        """Nothing is on disk."""


def aligned(length: int, dtype: Any) -> NDArray[Any]:
    """[length] zeros that begin at a cache line."""
    size = np.dtype(dtype).itemsize
    room = np.zeros(length + _LINE // size, dtype)
    skip = (-room.ctypes.data // size) % (_LINE // size)
    return room[skip : skip + length]


class BlockFiles:
    """Entries on disk: visit v has entries ptr[v] to ptr[v + 1] of u, i and r."""

    def __init__(self, folder: Path, ptr: Ints, u: Any, i: Any) -> None:
        self.ptr = ptr
        self.dtypes = (np.dtype(u), np.dtype(i), np.dtype(np.float32))
        names = ("u", "i", "r")
        self._files = [
            FlatFile(folder / f"{n}.blocks", d, int(ptr[-1])) for n, d in zip(names, self.dtypes, strict=True)
        ]
        self._filled = ptr[:-1].copy()

    def append(self, ptr: Ints, arrays: Buffers) -> None:
        """Add entries grouped by visit, as `layout.scatter` gives them, behind those each visit has already."""
        for v in np.flatnonzero(np.diff(ptr)).tolist():
            for file, array in zip(self._files, arrays, strict=True):
                file.write(int(self._filled[v]), array[ptr[v] : ptr[v + 1]])
            self._filled[v] += ptr[v + 1] - ptr[v]

    def read(self, runs: list[tuple[int, int]], into: Buffers) -> None:
        """Read the entries of runs of visits (first, last + 1), one after the other, into buffers."""
        self._move(runs, into, writing=False)

    def write(self, runs: list[tuple[int, int]], arrays: Buffers) -> None:
        """The reverse of `read`."""
        self._move(runs, arrays, writing=True)

    def _move(self, runs: list[tuple[int, int]], arrays: Buffers, *, writing: bool) -> None:
        at = 0
        for first, last in runs:
            count = int(self.ptr[last] - self.ptr[first])
            for file, array in zip(self._files, arrays, strict=True):
                piece = array[at : at + count]
                if writing:
                    file.write(int(self.ptr[first]), piece)
                else:
                    file.read(int(self.ptr[first]), piece)
            at += count

    def close(self) -> None:
        for file in self._files:
            file.close()

    def remove(self) -> None:
        """Close the files and take them away."""
        for file in self._files:
            file.remove()


class RowFile:
    """[n, width] rows of a state on disk, in the plan's order; width 1 is a flat [n]."""

    def __init__(self, path: Path, rows: int, width: int) -> None:
        self.rows, self.width = rows, width
        self._flat = FlatFile(path, np.float32, rows * width)

    def read(self, first: int, into: NDArray[np.float32]) -> None:
        """Rows first, first + 1, … into a C-contiguous buffer."""
        self._flat.read(first * self.width, into.reshape(-1))

    def write(self, first: int, rows: NDArray[np.float32]) -> None:
        self._flat.write(first * self.width, rows.reshape(-1))

    def mapped(self) -> NDArray[np.float32]:
        """The whole file as an array; pages come from disk as they are touched."""
        flat = self._flat.mapped()
        return flat.reshape(self.rows, self.width) if self.width > 1 else flat

    def close(self) -> None:
        self._flat.close()
