"""Arrays whose untouched pages take no memory: anonymous, non-reserved memory that reads as zeros until written.

    pages = Pages((10_000_000, 64), np.float32, huge=False)      2.5 GB of addresses, no memory
    pages.array[3] = 1.0                                         one page of 4 KiB
    pages.nonzero_rows()                                         [3]; untouched pages are not read

Nodes of a cluster hold every array in its full shape this way; so do states with sparse rows.
"""

from __future__ import annotations

import contextlib
import math
import mmap
import platform
import sys
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from stretto.ranges import join_ranges

LEAST = 1 << 20  # bytes that are worth releasing
# Python has the name since 3.13. Without the flag Linux refuses arrays that are larger than all memory.
_LINUX = sys.platform == "linux" and platform.machine() in ("x86_64", "aarch64")
_NO_RESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000 if _LINUX else 0)
_CHUNK = 1 << 24  # bytes that are scanned at a time
_ENTRY = 8  # bytes of a page in /proc/self/pagemap
_IN_MEMORY = np.uint64(0b11 << 62)  # of such an entry: the page is present, or swapped out
_PROBE = np.ones(1)  # is in memory


class Pages:
    """Zeros of a shape and dtype, in `array`.

    Parameters
    ----------
    shape : tuple of int
        Shape of the array.
    dtype : dtype
        Its type.
    huge : bool
        Use pages of 2 MiB, which makes random lookups in a dense array faster. False: 4 KiB, which takes less memory
        where few rows are touched.

    >>> pages = Pages((1000, 4), np.float32)
    >>> pages.array[3] = 1.0
    >>> pages.array.sum()
    np.float32(4.0)
    >>> pages.nonzero_rows()
    array([3])
    """

    def __init__(self, shape: tuple[int, ...], dtype: DTypeLike, huge: bool = True) -> None:
        kind = np.dtype(dtype)
        size = math.prod(shape)
        self._map = mmap.mmap(-1, max(1, size * kind.itemsize), mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NO_RESERVE)
        # NumPy advises huge pages for its own arrays, too: rows are looked up all over them.
        advice = getattr(mmap, "MADV_HUGEPAGE" if huge else "MADV_NOHUGEPAGE", None)
        if advice is not None:
            with contextlib.suppress(OSError):  # kernels without it
                self._map.madvise(advice)
        self.array: NDArray[Any] = np.frombuffer(self._map, kind, size).reshape(shape)

    def forget(self, first: int, last: int) -> None:
        """Release the pages of rows first to last (exclusive); they read as zeros afterwards.

        Only whole pages inside the rows are released, and only where they are a megabyte or more.
        """
        row = self._row
        lo = -(-first * row // mmap.PAGESIZE) * mmap.PAGESIZE
        hi = last * row // mmap.PAGESIZE * mmap.PAGESIZE
        if hi - lo >= LEAST:
            self._map.madvise(mmap.MADV_DONTNEED, lo, hi - lo)

    def nonzero_rows(self) -> NDArray[np.int64]:
        """[n] rows in which any bit is set, ascending.

        Where the system lists the pages that are in memory, only these are read.
        """
        row = self._row
        if not row:  # rows of no numbers
            return np.empty(0, np.int64)
        raw = np.frombuffer(self._map, np.uint8)[: self.array.nbytes].reshape(-1, row)
        if row % 8 == 0:
            raw = raw.view(np.uint64)
        some = self._candidates()
        step = max(1, _CHUNK // row)
        found = [some[at : at + step][raw[some[at : at + step]].any(axis=1)] for at in range(0, len(some), step)]
        return np.concatenate([np.empty(0, np.int64), *found])

    def nonzero_bytes(self, rows: NDArray[np.int64]) -> int:
        """Bytes of the pages that hold these rows, which are ascending."""
        row = self._row
        if not len(rows) or not row:
            return 0
        first, last = rows * row // mmap.PAGESIZE, ((rows + 1) * row - 1) // mmap.PAGESIZE
        # A page that two rows share is counted once.
        first[1:] = np.maximum(first[1:], last[:-1] + 1)
        return int((last - first + 1).sum()) * mmap.PAGESIZE

    @property
    def _row(self) -> int:
        """Bytes of a row."""
        return self.array.nbytes // max(1, len(self.array))

    def _candidates(self) -> NDArray[np.int64]:
        """[n] rows outside of which nothing was ever written, ascending."""
        row, nbytes = self._row, self.array.nbytes
        pages = self._in_memory()
        if pages is None:
            return np.arange(len(self.array))
        first, last = pages * mmap.PAGESIZE // row, -(-np.minimum((pages + 1) * mmap.PAGESIZE, nbytes) // row)
        first[1:] = np.maximum(first[1:], last[:-1])  # a row that is in two pages is named once
        return join_ranges(first, last - first)[0]

    def _in_memory(self) -> NDArray[np.int64] | None:
        """[n] which pages of the array are in memory or swapped out, ascending; None where the system does not say."""
        begin, pages = self.array.ctypes.data // mmap.PAGESIZE, -(-self.array.nbytes // mmap.PAGESIZE)
        found = [np.empty(0, np.int64)]
        try:
            with open("/proc/self/pagemap", "rb", buffering=0) as file:
                file.seek(_PROBE.ctypes.data // mmap.PAGESIZE * _ENTRY)
                if not np.frombuffer(file.read(_ENTRY), np.uint64) & _IN_MEMORY:
                    return None  # a sandbox where the file is empty
                for at in range(0, pages, _CHUNK // _ENTRY):
                    count = min(_CHUNK // _ENTRY, pages - at)
                    file.seek((begin + at) * _ENTRY)
                    read = file.read(count * _ENTRY)
                    if len(read) != count * _ENTRY:
                        return None
                    found.append(at + np.flatnonzero(np.frombuffer(read, np.uint64) & _IN_MEMORY))
        except OSError:  # not Linux, or not allowed
            return None
        return np.concatenate(found)
