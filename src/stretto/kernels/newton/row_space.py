"""Products of the rows of a wide matrix, K = XXᵀ."""

from __future__ import annotations

import numpy as np

from stretto.kernels.core.claims import next_visit
from stretto.kernels.core.compile import inner, kernel
from stretto.kernels.core.scratch import empty
from stretto.kernels.numeric.tile64 import add_tile

WIDTH = 32  # rows of X are padded to a multiple of this
_HIGH = 16  # rows of K computed together
_DEPTH = 64  # columns of X processed together: with the products they stay in the L2 cache


@inner
def _fill(XT, unit, first, count, last, size, block):
    """block[k · size + i] = X[i, first + k] / unit for k < count, i < last; zeros beyond the rows of X."""
    n = min(last, XT.shape[1])
    for k in range(count):
        j, to = first + k, k * size
        u = unit[j]
        if u == 1.0:
            for i in range(n):
                block[to + i] = np.float64(XT[j, i])
        else:
            for i in range(n):
                block[to + i] = np.float64(XT[j, i]) / u
        for i in range(n, last):
            block[to + i] = 0.0


@kernel(allocates=True)
def products_worker(pass_, worker, out, bounds, rows, XT, unit, parts):
    """Products of rows of X [n, p], given by columns, each divided by its unit [p], over a part of the columns.

    parts [V, size, size]: zeros; part V has the columns bounds[V] … bounds[V + 1]. A visit computes one part's rows
    rows[R] … rows[R + 1], multiples of sixteen, up to the diagonal at least; visits are in the order of the parts.
    """
    size, panels = parts.shape[1], rows.shape[0] - 1
    block = empty(_DEPTH * size, np.float64)
    v = next_visit(pass_, worker)
    while v >= 0:
        part, panel = v // panels, v % panels
        last = min(size, (rows[panel + 1] + WIDTH - 1) // WIDTH * WIDTH)
        for first in range(bounds[part], bounds[part + 1], _DEPTH):
            depth = min(_DEPTH, bounds[part + 1] - first)
            _fill(XT, unit, first, depth, last, size, block)
            for top in range(rows[panel], rows[panel + 1], _HIGH):
                for left in range(0, top + _HIGH, WIDTH):
                    for r in range(top, min(top + _HIGH, XT.shape[1]), 4):
                        add_tile(
                            parts, (part * size + r) * size + left, size, 1.0, block, r, size, block, left, left + 16,
                            size, depth,
                        )  # fmt: skip
        v = next_visit(pass_, worker, v)


@kernel
def add_parts(parts):
    """Add all parts [V, size, size] to the first one, in their order."""
    size = parts.shape[1]
    for v in range(1, parts.shape[0]):
        for a in range(size):
            for b in range(a + 1):
                parts[0, a, b] += parts[v, a, b]
