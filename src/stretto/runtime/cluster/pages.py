"""Arrays whose untouched pages take no room: a node has every array in its full shape, and fills in its own part."""

from __future__ import annotations

import contextlib
import math
import mmap
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

LEAST = 1 << 20  # bytes that are worth giving back
_NO_RESERVE = getattr(mmap, "MAP_NORESERVE", 0)


class Pages:
    """Zeros of a shape and dtype, in `array`. huge: in pages of 2 MiB, where a node is alone in its process.

    >>> pages = Pages((1000, 4), np.float32)
    >>> pages.array[3] = 1.0
    >>> pages.array.sum()
    np.float32(4.0)
    """

    def __init__(self, shape: tuple[int, ...], dtype: DTypeLike, *, huge: bool = True) -> None:
        kind = np.dtype(dtype)
        size = math.prod(shape)
        self._map = mmap.mmap(-1, max(1, size * kind.itemsize), mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NO_RESERVE)
        if huge and hasattr(mmap, "MADV_HUGEPAGE"):  # as NumPy does for its own: rows are looked up all over an array
            with contextlib.suppress(OSError):  # kernels without it
                self._map.madvise(mmap.MADV_HUGEPAGE)
        self.array: NDArray[Any] = np.frombuffer(self._map, kind, size).reshape(shape)

    def forget(self, first: int, last: int) -> None:
        """Rows first to last are not needed any more: their pages go back, and read as zeros if they are looked at.

        Only whole pages inside the rows, and only where it is a megabyte or more.
        """
        row = self.array.nbytes // max(1, len(self.array))
        lo = -(-first * row // mmap.PAGESIZE) * mmap.PAGESIZE
        hi = last * row // mmap.PAGESIZE * mmap.PAGESIZE
        if hi - lo >= LEAST:
            self._map.madvise(mmap.MADV_DONTNEED, lo, hi - lo)
