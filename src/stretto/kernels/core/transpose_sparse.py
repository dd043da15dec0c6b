"""Sparse rows (CSR) by columns (CSC), in the order of the rows.

With many columns each entry goes to another line of memory. Those of later entries are fetched in advance.
"""

from __future__ import annotations

import numpy as np

from stretto.kernels.numeric.vector_memory import ahead, get, put

from .compile import kernel

_AHEAD = 24  # entries: the time that a line takes to arrive
_MANY = 4096  # columns whose ends do not fit in the nearest cache


@kernel
def by_columns(indptr, indices, values, start, row, value):
    """The entries in the order of their columns: start [p + 1], row and value [entries].

    Returns how many values are zero, and the sum of their squares.
    """
    p, size = start.shape[0] - 1, indices.shape[0]
    for j in range(p + 1):
        start[j] = 0
    for t in range(size):
        j = np.int64(get(indices, t)) + 1
        put(start, j, get(start, j) + 1)
    for j in range(1, p + 1):
        start[j] += start[j - 1]
    zeros, squares = 0, 0.0
    for i in range(indptr.shape[0] - 1):
        for t in range(indptr[i], indptr[i + 1]):
            if p > _MANY:
                soon = get(start, np.int64(get(indices, min(t + _AHEAD, size - 1))))
                ahead(value, soon)
                ahead(row, soon)
            j, x = np.int64(get(indices, t)), get(values, t)
            at = get(start, j)
            put(row, at, i)
            put(value, at, x)
            put(start, j, at + 1)
            zeros += x == 0.0
            squares += np.float64(x) * np.float64(x)
    for j in range(p, 0, -1):
        start[j] = start[j - 1]
    start[0] = 0
    return zeros, squares
