"""Products of the rows of a wide matrix, and a factor of them.

For X with more columns than rows, K = XXᵀ = LLᵀ: X and L have the same predictions for coefficients of the same norm.
"""

from __future__ import annotations

import numpy as np

from stretto.kernels.core.claims import next_visit
from stretto.kernels.core.compile import inner, kernel
from stretto.kernels.numeric.tile64 import add_tile
from stretto.kernels.numeric.vector import fma, load, load_part, splat, total

WIDTH = 32  # rows of X are padded to a multiple of this
_HIGH = 16  # rows of K in a visit
_DEPTH = 256  # columns of X processed together


@kernel
def scale_columns(XT, unit, P):
    """P [p, size] = XT [p, n] with each row divided by its unit [p], padded with zeros."""
    p, n = XT.shape
    for j in range(p):
        u = unit[j]
        for i in range(n):
            P[j, i] = np.float64(XT[j, i]) / u
        for i in range(n, P.shape[1]):
            P[j, i] = 0.0


@kernel
def products_worker(pass_, worker, out, bounds, P, K):
    """K[a, b] = Σ_j P[j, a] P[j, b]: visit v computes the sixteen rows from bounds[v] on, up to the diagonal at least.

    K [size, size]: zeros.
    """
    p, size = P.shape
    v = next_visit(pass_, worker)
    while v >= 0:
        top = bounds[v]
        for first in range(0, p, _DEPTH):
            depth = min(_DEPTH, p - first)
            base = first * size
            for left in range(0, top + _HIGH, WIDTH):
                for r in range(top, top + _HIGH, 4):
                    add_tile(
                        K, r * size + left, size, 1.0, P, base + r, size, P, base + left, base + left + 16, size, depth
                    )
        v = next_visit(pass_, worker, v)


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
