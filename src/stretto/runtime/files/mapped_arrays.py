"""Arrays in memory-mapped files, with a budget for the pages in memory.

    disk = Disk(folder, budget)
    u = disk.array("u", (n,), np.uint16)        # an ordinary array; its file is unnamed and removed with the array
    disk.load(u, 0, 1000)                       # read these elements into memory
    disk.release(u, 0, 1000)                    # they may leave memory: the file has them

An element has the same index in memory and in the file, so compiled code is the same. Released data is not lost, only
no longer counted as memory of the process: the kernel writes it to the file asynchronously.
"""

from __future__ import annotations

import contextlib
import ctypes
import math
import mmap
import os
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from stretto.errors import RunError
from stretto.text import show_bytes

_POPULATE_WRITE = 23  # since Linux 5.14: read pages into memory, ready to be written
_WILL_NEED, _DONT_NEED = 3, 4


class Disk:
    """A folder for arrays, and the bytes of them that may be in memory at a time."""

    def __init__(self, folder: Path, budget: int) -> None:
        self.folder, self.budget = Path(folder), budget
        self.nbytes = 0
        self._maps: dict[int, mmap.mmap] = {}
        # Through ctypes other threads continue meanwhile; `mmap.madvise` holds the interpreter lock.
        self._advise = ctypes.CDLL(None, use_errno=True).madvise
        self._advise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)

    def array(
        self, name: str, shape: tuple[int, ...], dtype: DTypeLike, spans: Sequence[tuple[int, int]] | None = None
    ) -> NDArray[Any]:
        """An array of zeros in a file. `spans`: the rows that will be touched; None: all."""
        kind, count = np.dtype(dtype), math.prod(shape)
        size = count * kind.itemsize
        if not size:
            return np.zeros(shape, kind)
        handle, path = tempfile.mkstemp(prefix=f"{name}-", suffix=".array", dir=self.folder)
        try:
            os.unlink(path)
            try:
                os.ftruncate(handle, size)
                row = size // max(1, shape[0])
                for first, last in ((0, shape[0]),) if spans is None else spans:
                    # A full disk raises an error now, instead of killing the process during a visit.
                    os.posix_fallocate(handle, first * row, (last - first) * row)
            except OSError as error:
                raise RunError(
                    f"{self.folder}: no space for {show_bytes(size)} of {name}: {error.strerror}; free some, or set "
                    "TMPDIR to a folder on another disk"
                ) from error
            made = mmap.mmap(handle, size)
        finally:
            os.close(handle)
        array: NDArray[Any] = np.frombuffer(made, kind, count).reshape(shape)
        self._maps[array.ctypes.data] = made
        self.nbytes += size
        return array

    def drop(self, array: NDArray[Any]) -> None:
        """Release an array: its file is removed when the last reference is."""
        made = self._maps.pop(array.ctypes.data, None)
        if made is not None:
            self.nbytes -= len(made)

    def holds(self, array: Any) -> bool:
        """Whether an array is in a file of this folder."""
        return isinstance(array, np.ndarray) and array.ctypes.data in self._maps

    def load(self, array: NDArray[Any], first: int, last: int) -> None:
        """Read rows first to last into memory."""
        begin, size = self._pages(array, first, last)
        if size and self._advise(begin, size, _POPULATE_WRITE) != 0:
            self._advise(begin, size, _WILL_NEED)  # an older kernel: starts reading, and visits may wait

    def release(self, array: NDArray[Any], first: int = 0, last: int | None = None) -> None:
        """Release rows first to last (all unless given) from memory."""
        begin, size = self._pages(array, first, len(array) if last is None else last)
        if size:
            self._advise(begin, size, _DONT_NEED)

    def release_all(self) -> None:
        """Release all arrays from memory."""
        for address, made in self._maps.items():
            self._advise(address, len(made), _DONT_NEED)

    def _pages(self, array: NDArray[Any], first: int, last: int) -> tuple[int, int]:
        """(address, bytes) of the pages that hold some rows."""
        row, at = array.nbytes // max(1, len(array)), array.ctypes.data
        begin = (at + first * row) // mmap.PAGESIZE * mmap.PAGESIZE
        return begin, max(0, at + last * row - begin)

    def close(self) -> None:
        """Release the arrays; those that are still referenced stay valid."""
        for made in self._maps.values():
            with contextlib.suppress(BufferError):  # an array still refers to it
                made.close()
        self._maps.clear()


def new_array(disk: Disk | None, name: str, shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
    """An array of zeros, in memory unless `disk` is given; in memory it is aligned to a cache line."""
    if disk is not None:
        return disk.array(name, shape, dtype)
    kind = np.dtype(dtype)
    size = math.prod(shape) * kind.itemsize
    room = np.zeros(size + _LINE, np.uint8)
    skip = -room.ctypes.data % _LINE
    return room[skip : skip + size].view(kind).reshape(shape)


def full_array(disk: Disk | None, name: str, shape: tuple[int, ...], dtype: DTypeLike, value: float) -> NDArray[Any]:
    """An array filled with one number."""
    array = new_array(disk, name, shape, dtype)
    if value:
        for part in pieces_of(disk, array):
            array[part] = value
    return array


def pieces_of(disk: Disk | None, array: NDArray[Any]) -> Iterator[slice]:
    """Slices of an array's rows, in order; in a file, each leaves memory after its use."""
    if disk is None or not disk.holds(array):
        yield slice(0, len(array))
        return
    at_once = max(1, _CHUNK_BYTES * len(array) // max(1, array.nbytes))
    for first in range(0, len(array), at_once):
        last = min(first + at_once, len(array))
        yield slice(first, last)
        disk.release(array, first, last)


_LINE = 64  # bytes of a cache line
_CHUNK_BYTES = 4 << 20  # bytes of an array that are processed together
