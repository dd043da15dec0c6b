"""Weighted moments of all columns of a dense matrix and of one more vector, in one pass over the rows.

With Z = [X, y] of k = p + 1 columns, a visit takes a range of rows and computes

    mass = Σ_i w_i        mean_a = Σ_i w_i z_ia / mass        product_ab = Σ_i w_i (z_ia − mean_a)(z_ib − mean_b)

about the means of its own rows; `merge` adds the visits. Nothing cancels where means are far from zero: a visit also
computes what rounding left of its means, rest_a = Σ_i w_i (z_ia − mean_a) / mass.
For least squares these are the sufficient statistics. For a Newton step, w is the curvature and y the working response.

A visit goes through its rows twice: first for the means, then block by block. A block is copied to a buffer that fits
in the L1 or L2 cache, centred and multiplied by √w. Tiles of two by four columns are multiplied in sixteen lanes; the
lanes are added at the end of the visit. Every sum has one order, whatever the instruction set and number of threads.
"""

from __future__ import annotations

import numpy as np

from stretto.kernels.core.claims import next_visit
from stretto.kernels.core.compile import inner, kernel
from stretto.kernels.core.scratch import empty
from stretto.kernels.numeric.vector import add, cast, fma, keep, load, load_part, mul, root, splat, store, total

_ZERO = np.float64(0.0)
_LANES = 16
_HIGH, _WIDE = 2, 4  # columns of a tile
_BUFFER = 4096  # numbers of a block: 32 KiB, more where there are many columns
_LEAST, _MOST = 256, 1024  # rows of a block


@inner
def _sum(A, at, count):
    """Σ A[at … at + count − 1]."""
    s0, s1, s2, s3 = splat(0.0), splat(0.0), splat(0.0), splat(0.0)
    i = 0
    while i + 64 <= count:
        s0 = add(s0, cast(load(A, at + i), _ZERO))
        s1 = add(s1, cast(load(A, at + i + 16), _ZERO))
        s2 = add(s2, cast(load(A, at + i + 32), _ZERO))
        s3 = add(s3, cast(load(A, at + i + 48), _ZERO))
        i += 64
    while i < count:
        s0 = add(s0, cast(load_part(A, at + i, min(16, count - i)), _ZERO))
        i += 16
    return total(add(add(s0, s1), add(s2, s3)))


@inner
def _weighted_sum(A, at, weight, first, count):
    """Σ A[at + i] weight[first + i] over i < count."""
    s0, s1 = splat(0.0), splat(0.0)
    i = 0
    while i + 32 <= count:
        s0 = fma(cast(load(A, at + i), _ZERO), load(weight, first + i), s0)
        s1 = fma(cast(load(A, at + i + 16), _ZERO), load(weight, first + i + 16), s1)
        i += 32
    while i < count:
        rest = min(16, count - i)
        s0 = fma(cast(load_part(A, at + i, rest), _ZERO), load_part(weight, first + i, rest), s0)
        i += 16
    return total(add(s0, s1))


@inner
def _centre(A, at, count, mean, roots, block, to):
    """block[to + i] = roots[i] · (A[at + i] − mean) for i < count, and zeros up to a multiple of sixteen.

    Returns the sum of roots[i]² · (A[at + i] − mean).
    """
    away, seen = splat(-mean), splat(0.0)
    for i in range(0, count, _LANES):
        rest = min(_LANES, count - i)
        whole = rest == _LANES
        x = load(A, at + i) if whole else load_part(A, at + i, rest)
        x = add(cast(x, _ZERO), away)
        x = x if whole else keep(x, rest, 0.0)
        if roots.shape[0]:
            x = mul(x, load(roots, i))
            seen = fma(x, load(roots, i), seen)
        else:
            seen = add(seen, x)
        store(block, to + i, x)
    return total(seen)


@inner
def _add_tile(block, a, b, step, count, sums, at):
    """sums[at + 16·(4r + c) …] += block[a + r·step + i] · block[b + c·step + i], r < 2, c < 4, lane by lane."""
    s0, s1, s2, s3 = load(sums, at), load(sums, at + 16), load(sums, at + 32), load(sums, at + 48)
    t0, t1, t2, t3 = load(sums, at + 64), load(sums, at + 80), load(sums, at + 96), load(sums, at + 112)
    for i in range(0, count, _LANES):
        x, y = load(block, a + i), load(block, a + step + i)
        z = load(block, b + i)
        s0, t0 = fma(x, z, s0), fma(y, z, t0)
        z = load(block, b + step + i)
        s1, t1 = fma(x, z, s1), fma(y, z, t1)
        z = load(block, b + 2 * step + i)
        s2, t2 = fma(x, z, s2), fma(y, z, t2)
        z = load(block, b + 3 * step + i)
        s3, t3 = fma(x, z, s3), fma(y, z, t3)
    store(sums, at, s0)
    store(sums, at + 16, s1)
    store(sums, at + 32, s2)
    store(sums, at + 48, s3)
    store(sums, at + 64, t0)
    store(sums, at + 80, t1)
    store(sums, at + 96, t2)
    store(sums, at + 112, t3)


@kernel(allocates=True)
def moments_worker(pass_, worker, out, bounds, XT, y, weight, centred, mean, rest, product):
    """Moments of the rows bounds[v] … bounds[v + 1] of [X, y], in mean[v], rest[v], product[v]; out [V]: their mass.

    XT [p, n]: columns of X as rows; weight [n], or empty where all weights are 1; mean and rest [V, k], zeros
    unless centred; product [V, k, k]: filled up to the diagonal.
    """
    p, n = XT.shape
    k = p + 1
    padded = (k + _WIDE - 1) // _WIDE * _WIDE
    step = max(_LEAST, min(_MOST, _BUFFER // padded // _LANES * _LANES))
    block = empty(padded * step, np.float64)
    roots = empty(step if weight.shape[0] else 0, np.float64)
    sums = empty(padded * padded * _LANES, np.float64)
    for i in range(k * step, padded * step):
        block[i] = 0.0
    v = next_visit(pass_, worker)
    while v >= 0:
        first, last = bounds[v], bounds[v + 1]
        count = last - first
        mass = _sum(weight, first, count) if weight.shape[0] else np.float64(count)
        out[v] = mass
        for j in range(k):
            m = 0.0
            if centred and mass > 0.0:
                if weight.shape[0]:
                    m = _weighted_sum(XT, j * n + first, weight, first, count) if j < p else 0.0
                    m = m if j < p else _weighted_sum(y, first, weight, first, count)
                else:
                    m = _sum(XT, j * n + first, count) if j < p else _sum(y, first, count)
                m /= mass
            mean[v, j], rest[v, j] = m, 0.0
        for i in range(sums.shape[0]):
            sums[i] = 0.0
        for top in range(first, last, step):
            rows = min(step, last - top)
            if weight.shape[0]:
                for i in range(0, rows, _LANES):
                    store(roots, i, root(load_part(weight, top + i, min(_LANES, rows - i))))
            for j in range(p):
                rest[v, j] += _centre(XT, j * n + top, rows, mean[v, j], roots, block, j * step)
            rest[v, p] += _centre(y, top, rows, mean[v, p], roots, block, p * step)
            for a in range(0, padded, _HIGH):
                for b in range(0, a + _HIGH, _WIDE):
                    _add_tile(block, a * step, b * step, step, rows, sums, (a * padded + _HIGH * b) * _LANES)
        for a in range(k):
            rest[v, a] = rest[v, a] / mass if centred and mass > 0.0 else 0.0
            for b in range(a + 1):
                tile = a // _HIGH * _HIGH * padded + _HIGH * (b // _WIDE * _WIDE)
                at = tile + a % _HIGH * _WIDE + b % _WIDE
                product[v, a, b] = total(load(sums, at * _LANES))
        v = next_visit(pass_, worker, v)


@kernel
def merge(mass, mean, rest, product, middle, G):
    """Moments of all rows from those of the visits: mass [V], mean and rest [V, k], product [V, k, k].

    middle [k]: the means of all rows; G [k, step]: products about them, both triangles. Returns Σ mass. `rest` becomes
    the visits' means as distances from `middle`.
    """
    visits, k = mean.shape
    whole = 0.0
    for v in range(visits):
        whole += mass[v]
    for a in range(k):
        # Distances from the mean of one visit, which are exact to their own size.
        first, m = mean[0, a], 0.0
        for v in range(visits):
            rest[v, a] += mean[v, a] - first if mass[v] > 0.0 else 0.0
            m += mass[v] / whole * rest[v, a]
        middle[a] = first + m
        for v in range(visits):
            rest[v, a] -= m
    for a in range(k):
        for b in range(a + 1):
            s = 0.0
            for v in range(visits):
                s += product[v, a, b] + mass[v] * rest[v, a] * rest[v, b]
            G[a, b] = s
            G[b, a] = s
    return whole
