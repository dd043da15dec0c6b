"""Products of dense columns under weights that change: parts[v][a, b] = Σ_i d_i (x_ia − m_a)(x_ib − m_b).

The sums run over the rows of visit v. Each model of a Newton method has other weights, so nothing is kept. A block of
rows of all columns is centred, multiplied by √d and copied to a buffer that fits in the L2 cache. Tiles of two by four
columns are then multiplied in sixteen lanes, which are added at the end of each block.
"""

from __future__ import annotations

import numpy as np

from stretto.kernels.core.claims import next_visit
from stretto.kernels.core.compile import inner, kernel
from stretto.kernels.core.scratch import empty
from stretto.kernels.numeric.vector import add, cast, fma, load, load_part, mul, root, splat, store, total

MOST = 128  # columns: more would leave the L2 cache
_ZERO = np.float64(0.0)
_HIGH, _WIDE = 2, 4  # columns of a tile
ROWS = 512  # rows of a block


@inner
def fill(XT, at, count, mean, roots, block, to):
    """block[to + i] = roots[i] · (XT[at + i] − mean) for i < count, zeros up to a multiple of sixteen: roots are 0."""
    away = splat(-mean)
    i = 0
    while i + 16 <= count:
        store(block, to + i, mul(add(cast(load(XT, at + i), _ZERO), away), load(roots, i)))
        i += 16
    if i < count:
        store(block, to + i, mul(add(cast(load_part(XT, at + i, count - i), _ZERO), away), load(roots, i)))


@inner
def add_tile(block, a, b, step, count, parts, at, width):
    """parts[at + r·width + c] += Σ_i block[a + r·step + i] · block[b + c·step + i] for r < 2, c < 4."""
    s0, s1, s2, s3 = splat(0.0), splat(0.0), splat(0.0), splat(0.0)
    t0, t1, t2, t3 = splat(0.0), splat(0.0), splat(0.0), splat(0.0)
    for i in range(0, count, 16):
        x, y = load(block, a + i), load(block, a + step + i)
        z = load(block, b + i)
        s0, t0 = fma(x, z, s0), fma(y, z, t0)
        z = load(block, b + step + i)
        s1, t1 = fma(x, z, s1), fma(y, z, t1)
        z = load(block, b + 2 * step + i)
        s2, t2 = fma(x, z, s2), fma(y, z, t2)
        z = load(block, b + 3 * step + i)
        s3, t3 = fma(x, z, s3), fma(y, z, t3)
    parts[at] += total(s0)
    parts[at + 1] += total(s1)
    parts[at + 2] += total(s2)
    parts[at + 3] += total(s3)
    at += width
    parts[at] += total(t0)
    parts[at + 1] += total(t1)
    parts[at + 2] += total(t2)
    parts[at + 3] += total(t3)


@inner
def _fill_sparse(indices, values, at, end, first, last, mean, roots, block, to):
    """`fill` of the rows first … last − 1 of a sparse column, from its entry `at` on; returns the entry after them."""
    away = splat(-mean)
    for i in range(0, last - first, 16):
        store(block, to + i, mul(load(roots, i), away))
    while at < end and indices[at] < last:
        i = indices[at] - first
        block[to + i] = roots[i] * (np.float64(values[at]) - mean)
        at += 1
    return at


@inner
def set_roots(d, first, count, roots):
    for i in range(0, count, 16):
        store(roots, i, root(load_part(d, first + i, min(16, count - i))))


@inner
def multiply(block, used, k, count, parts, at, width):
    for a in range(used // _HIGH * _HIGH, k, _HIGH):
        for b in range(0, a + _HIGH, _WIDE):
            add_tile(block, a * ROWS, b * ROWS, ROWS, count, parts, at + a * width + b, width)


@kernel(allocates=True)
def block_worker(pass_, worker, out, bounds, XT, column, used, mean, d, width, parts):
    """Products over the rows bounds[v] … bounds[v + 1], from v·width² on in `parts`.

    column [k] int64; mean [p]; d [n]; width: k, rounded up to a multiple of four; parts [V·width²]: zeros, filled for
    the rows `used` … k − 1, up to the diagonal at least.
    """
    n, k = d.shape[0], column.shape[0]
    block, roots = empty(width * ROWS, np.float64), empty(ROWS, np.float64)
    for i in range(k * ROWS, width * ROWS):
        block[i] = 0.0
    v = next_visit(pass_, worker)
    while v >= 0:
        for first in range(bounds[v], bounds[v + 1], ROWS):
            count = min(ROWS, bounds[v + 1] - first)
            set_roots(d, first, count, roots)
            for c in range(k):
                j = column[c]
                fill(XT, j * n + first, count, mean[j], roots, block, c * ROWS)
            multiply(block, used, k, count, parts, v * width * width, width)
        v = next_visit(pass_, worker, v)


@kernel(allocates=True)
def block_sparse_worker(pass_, worker, out, bounds, indptr, indices, values, column, used, mean, d, width, parts):
    """`block_worker` for sparse columns that are dense enough."""
    k = column.shape[0]
    block, roots, reached = empty(width * ROWS, np.float64), empty(ROWS, np.float64), empty(k, np.int64)
    for i in range(k * ROWS, width * ROWS):
        block[i] = 0.0
    v = next_visit(pass_, worker)
    while v >= 0:
        for c in range(k):
            low, high = indptr[column[c]], indptr[column[c] + 1]
            while low < high:
                middle = (low + high) // 2
                if indices[middle] < bounds[v]:
                    low = middle + 1
                else:
                    high = middle
            reached[c] = low
        for first in range(bounds[v], bounds[v + 1], ROWS):
            count = min(ROWS, bounds[v + 1] - first)
            set_roots(d, first, count, roots)
            for c in range(k):
                j = column[c]
                reached[c] = _fill_sparse(
                    indices, values, reached[c], indptr[j + 1], first, first + count, mean[j], roots, block, c * ROWS
                )
            multiply(block, used, k, count, parts, v * width * width, width)
        v = next_visit(pass_, worker, v)


@kernel
def merge(parts, width, used, k, G):
    """G[a, b] = G[b, a] = the sum over all visits, for a = `used` … k − 1 and b ≤ a. parts: from `block_worker`."""
    size = width * width
    visits = parts.shape[0] // size
    for a in range(used, k):
        for b in range(a + 1):
            s = 0.0
            for v in range(visits):
                s += parts[v * size + a * width + b]
            G[a, b] = s
            G[b, a] = s
