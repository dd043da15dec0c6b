"""Index arithmetic of ranges that are stored one after another, such as the columns of a sparse matrix."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


def join_ranges(starts: NDArray[Any], lengths: NDArray[Any]) -> tuple[Ints, Ints]:
    """Concatenate the indices of n ranges.

    Parameters
    ----------
    starts : ndarray of int [n]
        First index of each range.
    lengths : ndarray of int [n]
        Number of indices of each range.

    Returns
    -------
    indices : ndarray of int64
        The indices of all ranges, range after range.
    bounds : ndarray of int64 [n + 1]
        Where each range begins in `indices`.

    Examples
    --------
    >>> indices, bounds = join_ranges(np.array([10, 3]), np.array([2, 3]))
    >>> indices.tolist(), bounds.tolist()
    ([10, 11, 3, 4, 5], [0, 2, 5])
    """
    bounds = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=bounds[1:])
    return np.repeat(starts - bounds[:-1], lengths) + np.arange(bounds[-1]), bounds
