"""Products of the rows of a wide matrix, K = XXᵀ."""

from __future__ import annotations

import numpy as np

from stretto.kernels.core.claims import next_visit
from stretto.kernels.core.compile import kernel
from stretto.kernels.numeric.tile64 import add_tile

WIDTH = 32  # rows of X in a panel
_DEPTH = 256  # columns of X processed together: their numbers in two panels stay in the second cache


@kernel
def pack_rows(XT, unit, P):
    """P [panels, p, WIDTH] = XT [p, n] with each row divided by its unit [p], in panels of rows, padded with zeros."""
    p, n = XT.shape
    for j in range(p):
        u = unit[j]
        for b in range(P.shape[0]):
            first = b * WIDTH
            for i in range(min(WIDTH, n - first)):
                P[b, j, i] = np.float64(XT[j, first + i]) / u
            for i in range(max(0, n - first), WIDTH):
                P[b, j, i] = 0.0


@kernel
def products_worker(pass_, worker, out, bounds, n, P, K):
    """K[a, b] = Σ_j x_aj x_bj of the n rows in P: visit v computes the panels bounds[v] … bounds[v + 1] of rows of K.

    K [size, size]: zeros; filled up to the diagonal at least.
    """
    p, size = P.shape[1], K.shape[0]
    v = next_visit(pass_, worker)
    while v >= 0:
        for first in range(0, p, _DEPTH):
            depth = min(_DEPTH, p - first)
            for a in range(bounds[v], bounds[v + 1]):
                high = (a * p + first) * WIDTH
                for b in range(a + 1):
                    wide = (b * p + first) * WIDTH
                    for r in range(0, min(WIDTH, n - a * WIDTH), 4):
                        at = (a * WIDTH + r) * size + b * WIDTH
                        add_tile(K, at, size, 1.0, P, high + r, WIDTH, P, wide, wide + 16, WIDTH, depth)
        v = next_visit(pass_, worker, v)
