"""Products of the rows of a wide matrix, and a factor of them.

For X with more columns than rows, K = XXᵀ = LLᵀ: X and L have the same predictions for coefficients of the same norm.
"""

from __future__ import annotations

import numpy as np

from stretto.kernels.core.claims import next_visit
from stretto.kernels.core.compile import inner, kernel
from stretto.kernels.core.scratch import empty
from stretto.kernels.numeric.tile64 import add_tile
from stretto.kernels.numeric.vector import fma, load, load_part, splat, total

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
                    for r in range(top, top + _HIGH, 4):
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


@inner
def _dot(A, a, b, count):
    """Σ_t A[a + t] A[b + t] over t < count, of a flat A."""
    s = splat(0.0)
    t = 0
    while t + 16 <= count:
        s = fma(load(A, a + t), load(A, b + t), s)
        t += 16
    if t < count:
        s = fma(load_part(A, a + t, count - t), load_part(A, b + t, count - t), s)
    return total(s)


@kernel
def factor(K, n, tolerance, left, pivot, L):
    """Cholesky's factor of the first n rows of K, in the order of the largest remaining diagonal; returns the rank r.

    K : lower triangle
    tolerance : share of the largest diagonal below which the rest counts as zero
    left : [n] scratch; the diagonal that is not explained
    pivot : [n] int64, filled with the r rows of the pivots
    L : [n, n] zeros; filled in the columns 0 … r − 1. L[pivot[:r], :r] is a lower triangle.
    """
    most = 0.0
    for i in range(n):
        left[i] = K[i, i]
        most = max(most, left[i])
    for m in range(n):
        best = 0
        for i in range(1, n):
            if left[i] > left[best]:
                best = i
        if not left[best] > tolerance * most:
            return m
        pivot[m] = best
        root = np.sqrt(left[best])
        for i in range(n):
            if left[i] > 0.0 or i == best:
                product = K[i, best] if i >= best else K[best, i]
                x = (product - _dot(L, i * n, best * n, m)) / root
                L[i, m] = x
                left[i] -= x * x
        L[best, m] = root
        left[best] = -1.0  # done
    return n
