"""Blocks and rows on disk: what a plan larger than memory is worked on from.

`BlockFiles` holds the entries grouped by visit, as three flat files; a piece is read or written by its place. `RowFile`
holds the rows of a state in the plan's order; the rows of neighbouring blocks are one piece. Both read into buffers the
caller owns.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.schedule.order import Ints

Buffers = tuple[NDArray[Any], NDArray[Any], NDArray[Any]]


class _Flat:
    """One flat file of numbers, read and written by position."""

    def __init__(self, path: Path, dtype: Any, length: int) -> None:
        self.path, self.dtype, self.length = path, np.dtype(dtype), length
        self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        os.ftruncate(self._file, length * self.dtype.itemsize)

    def read(self, first: int, into: NDArray[Any]) -> None:
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

    def close(self) -> None:
        os.close(self._file)


class BlockFiles:
    """Entries on disk: visit v has entries ptr[v] to ptr[v + 1] of u, i and r."""

    def __init__(self, folder: Path, ptr: Ints, u: Any, i: Any) -> None:
        self.ptr = ptr
        self.dtypes = (np.dtype(u), np.dtype(i), np.dtype(np.float32))
        names = ("u", "i", "r")
        self._files = [_Flat(folder / f"{n}.blocks", d, int(ptr[-1])) for n, d in zip(names, self.dtypes, strict=True)]
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


class RowFile:
    """[n, width] rows of a state on disk, in the plan's order; width 1 is a flat [n]."""

    def __init__(self, path: Path, rows: int, width: int) -> None:
        self.rows, self.width = rows, width
        self._flat = _Flat(path, np.float32, rows * width)

    def read(self, first: int, into: NDArray[np.float32]) -> None:
        """Rows first, first + 1, … into a C-contiguous buffer."""
        self._flat.read(first * self.width, into.reshape(-1))

    def write(self, first: int, rows: NDArray[np.float32]) -> None:
        self._flat.write(first * self.width, rows.reshape(-1))

    def mapped(self) -> NDArray[np.float32]:
        """The whole file as an array; pages come from disk as they are touched."""
        shape = (self.rows, self.width) if self.width > 1 else (self.rows,)
        return np.memmap(self._flat.path, np.float32, "r+", shape=shape) if self.rows else np.zeros(shape, np.float32)

    def close(self) -> None:
        self._flat.close()
