"""Which records are held out: by user, by time, or all of some users or items. Masks depend on data and seed alone."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.data.convert.convert import plain_array
from stretto.data.convert.frames import as_frame
from stretto.data.records.data import Data, splitmix64
from stretto.errors import DataError
from stretto.kernels.factorization.compress import group_by
from stretto.kernels.ranking.hold_out import hold_out_worker
from stretto.models.factorization.align import entries_of
from stretto.models.factorization.input import is_path
from stretto.runtime.blocks.step import make_step, parts
from stretto.runtime.runtimes import Threads
from stretto.schedule.orders.rotation import independent

Longs = NDArray[np.int64]
Mask = NDArray[np.bool_]
_PARTS, _LEAST = 64, 1024


def ratings_of(ratings: Any, y: Any) -> Data:
    """`Data` of anything that `MatrixFactorization.fit` takes."""
    if is_path(ratings):
        from stretto.data.reading.read import read_for_fit

        return read_for_fit(ratings, "error")
    return entries_of(ratings, y, "keep")


def key_of(seed: int) -> np.uint64:
    """The key of a seed, which is combined with positions."""
    key: np.uint64 = splitmix64(np.array([seed % 2**64], dtype=np.uint64))[0]
    return key


def draws(n: int, seed: int) -> Longs:
    """[n] numbers at least 0, by position and seed."""
    return (splitmix64(np.arange(n, dtype=np.uint64) ^ key_of(seed)) >> np.uint64(1)).view(np.int64)


def times_of(times: Any, ratings: Any, data: Data) -> Longs:
    """[n] ranks in time of the records of `data`, which were made from `ratings`.

    times : array in the order of the records, or the name (of a file also the position) of a column of `ratings`
    """
    if isinstance(times, str | int) and not isinstance(times, bool):
        times = _column(times, ratings)
        if isinstance(times, Data):
            times = times.cols.astype(np.int64)
    found = plain_array(times, "times")
    if found.shape != (len(data),):
        raise DataError(f"{len(data)} ratings need as many times; got shape {found.shape}")
    if found.dtype.kind not in "iufMSUO":
        raise DataError(f"times are numbers, dates or texts that sort by time; got dtype {found.dtype}")
    if found.dtype.kind in "fM" and np.isnan(found).any():
        raise DataError(f"the time of rating {int(np.argmax(np.isnan(found)))} is missing")
    try:
        return np.unique(found, return_inverse=True)[1].astype(np.int64)
    except TypeError as error:
        raise DataError(f"times cannot be compared with each other ({error})") from error


def _column(name: str | int, ratings: Any) -> Any:
    """A column of a frame, or of a file as `Data` whose columns are ranks in time."""
    if is_path(ratings):
        if not isinstance(ratings, str | os.PathLike):
            raise DataError("times of several files are given as an array, in the order of the records")
        from stretto.data.reading.read import read

        # The times take the place of the items: ids are exact, and are numbered in their order.
        columns = (0, name) if isinstance(name, int) else None
        more: dict[str, Any] = {"columns": columns} if columns else {"item": name}
        return read(ratings, duplicates="keep", **more)
    frame = as_frame(ratings, "times")
    if frame is None:
        raise DataError(f"times={name!r} names a column, and these ratings have none; give an array of times")
    if name not in frame.names:
        raise DataError(f"the table has no column {name!r} for times; it has {', '.join(map(str, frame.names))}")
    return frame.column(frame.names.index(name)).to_numpy()


def largest_of_rows(data: Data, counts: Longs, key: Longs) -> Mask:
    """The counts[i] records of row i with the largest keys; of equal ones the later records."""
    sizes = np.bincount(data.rows, minlength=data.shape[0])
    indptr = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    position = np.empty(len(data), np.int64)
    nothing = np.zeros(0, np.float32)
    group_by(data.rows, np.arange(len(data)), nothing, indptr[:-1].copy(), position, nothing)
    held = np.zeros(len(data), bool)
    bounds = parts(data.shape[0], _PARTS, _LEAST)
    args = (bounds, indptr, position, key, np.minimum(counts, sizes), held)
    with Threads().open() as crew:
        crew.run(make_step("hold out", hold_out_worker, independent(len(bounds) - 1), np.diff(bounds), *args), "exact")
    return held


def share_of_rows(data: Data, test: float) -> Longs:
    """[rows] records to hold out of each row: a share, at least one of two, and never all."""
    sizes = np.bincount(data.rows, minlength=data.shape[0])
    wanted = np.floor(test * sizes + 0.5).astype(np.int64)
    return np.where(sizes < 2, 0, np.clip(wanted, 1, np.maximum(sizes - 1, 1)))


def latest(times: Longs, test: float) -> Mask:
    """The latest share of all records; those of the time at the limit stay in training."""
    if not len(times):
        return np.zeros(0, bool)
    kept = min(len(times) - 1, max(0, int(np.ceil((1.0 - test) * len(times))) - 1))
    found: Mask = times > np.partition(times, kept)[kept]
    return found


def all_of_some(index: NDArray[Any], size: int, test: float, seed: int) -> Mask:
    """Every record of a share of the rows (or columns) that have records, at least one of them."""
    present = np.flatnonzero(np.bincount(index, minlength=size))
    count = max(1, min(len(present) - 1, int(np.floor(test * len(present) + 0.5))))
    chosen = np.zeros(size, bool)
    chosen[present[np.argsort(draws(size, seed)[present], kind="stable")[:count]]] = True
    found: Mask = chosen[index]
    return found
