"""Partition data among logical workers, and cut a worker's part into batches.

    share = share_of((X, y), worker=1, workers=4)
    len(share), share.take(0, 100)          the first hundred of the second quarter: (X[…], y[…])

Data are cut along the first axis: an array, a tuple of arrays, a sparse matrix by rows, `st.Data` (its records), or a
number n (batches are then arrays of indices below n). Parts are contiguous and as even as possible. They depend on the
number of logical workers alone.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import index
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.errors import DataError

Part = Callable[[int, int, int], Any]


class Share:
    """One worker's part of the data. which: the indices of its entries, in order."""

    def __init__(self, data: Any, which: range | NDArray[np.int64]) -> None:
        self._data, self._which = data, which

    def __len__(self) -> int:
        return len(self._which)

    def take(self, first: int, last: int) -> Any:
        """Entries first to last of the part."""
        which = self._which[first:last]
        if isinstance(self._data, int):
            return np.arange(which.start, which.stop) if isinstance(which, range) else which
        chosen = slice(which.start, which.stop) if isinstance(which, range) else which
        if isinstance(self._data, tuple | list):
            return tuple(_cut(array, chosen) for array in self._data)
        return _cut(self._data, chosen)


def share_of(data: Any, worker: int, workers: int, part: Part | None = None) -> Share:
    """A worker's part. part(worker, workers, n): a slice, a range or an array of indices, instead of an even cut."""
    n, data = _length(data)
    if part is None:
        return Share(data, range(worker * n // workers, (worker + 1) * n // workers))
    chosen = part(worker, workers, n)
    if isinstance(chosen, slice):
        chosen = range(n)[chosen]
    if isinstance(chosen, range) and chosen.step == 1:
        inside = not len(chosen) or (chosen.start >= 0 and chosen.stop <= n)
    else:
        chosen = np.asarray(chosen)
        if chosen.dtype == bool and chosen.shape == (n,):
            chosen = np.flatnonzero(chosen)
        if chosen.ndim != 1 or (len(chosen) and chosen.dtype.kind not in "iu"):
            raise DataError(f"batches: part({worker}, {workers}, {n}) gave {chosen!r}; return a slice or indices")
        chosen = chosen.astype(np.int64)
        inside = not len(chosen) or (int(chosen.min()) >= 0 and int(chosen.max()) < n)
    if not inside:
        raise DataError(f"batches: part({worker}, {workers}, {n}) leaves the data; return indices from 0 to {n - 1}")
    return Share(data, chosen)


def _length(data: Any) -> tuple[int, Any]:
    """How many entries, and the data in a form that can be cut."""
    if isinstance(data, tuple | list):
        if not data:
            raise DataError("batches: no arrays; give at least one")
        sizes = [_length(array)[0] for array in data]
        if len(set(sizes)) > 1:
            raise DataError(f"batches: the arrays have {', '.join(map(str, sizes))} entries; give arrays of one length")
        return sizes[0], tuple(_length(array)[1] for array in data)
    try:
        n = index(data)
    except TypeError:
        pass
    else:
        if n < 0:
            raise DataError(f"batches: {n} entries; give a number from 0 on, or data")
        return n, n
    if hasattr(data, "format") and hasattr(data, "tocsr"):
        return int(data.shape[0]), data.tocsr()  # the other formats cannot be sliced by rows
    shape = getattr(data, "shape", None)
    if hasattr(data, "take") and hasattr(data, "nnz"):  # st.Data: its records
        return len(data), data
    if not shape or not hasattr(data, "__getitem__"):
        raise DataError(
            f"batches: cannot cut {type(data).__name__}; give arrays, a sparse matrix, st.Data of ratings, or a number"
        )
    return int(shape[0]), data


def _cut(data: Any, chosen: Any) -> Any:
    if hasattr(data, "nnz") and not hasattr(data, "tocsr"):
        return data.take(chosen)
    return data[chosen]
