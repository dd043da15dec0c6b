"""Weighted moments of all columns of a matrix and of one more vector, in one pass over the rows.

With a dense X and Z = [X, y] of k = p + 1 columns, a visit takes a range of rows and computes

    mass = Σ_i w_i        mean_a = Σ_i w_i z_ia / mass        product_ab = Σ_i w_i (z_ia − mean_a)(z_ib − mean_b)

about the means of its own rows; `merge` adds the visits. So nothing cancels where means are far from zero.
For least squares these are the sufficient statistics. For a Newton step, w is the curvature and y the working response.

A visit goes through its rows block by block. A block is copied to a buffer that fits in the L1 or L2 cache, multiplied
by √w and shifted by the means of the first block; what these means differ from those of the visit, `rest`, is removed
at the end. That costs few digits: rest² is at most the variance times the number of blocks.

Tiles of two by four columns are multiplied in sixteen lanes, and the lanes are added at the end of the visit. Every sum
has one order, whatever the instruction set and the number of threads.

Sparse columns are not shifted; the means are subtracted at the end.
"""

from __future__ import annotations

import numpy as np

from stretto.kernels.core.claims import next_visit
from stretto.kernels.core.compile import inner, kernel
from stretto.kernels.core.scratch import empty
from stretto.kernels.numeric.vector import (
    add,
    cast,
    fma,
    get,
    keep,
    load,
    load_part,
    mul,
    put,
    root,
    splat,
    store,
    total,
)

_ZERO = np.float64(0.0)
_LANES = 16
_HIGH, _WIDE = 2, 4  # columns of a tile
_BUFFER = 4096  # numbers of a block: 32 KiB, more where there are many columns
_LEAST, _MOST = 256, 1024  # rows of a block
_TOGETHER = 1024  # rows of sparse columns that are collected together


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

    Returns Σ roots[i]² · (A[at + i] − mean).
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


@inner
def _first_mean(A, at, weight, first, count):
    """The mean of A[at … at + count − 1] under the weights from `first` on; 0 if they are all 0."""
    if weight.shape[0] == 0:
        return _sum(A, at, count) / count
    mass = _sum(weight, first, count)
    return _weighted_sum(A, at, weight, first, count) / mass if mass > 0.0 else 0.0


@kernel(allocates=True)
def moments_worker(pass_, worker, out, bounds, XT, y, weight, centred, shift, rest, product):
    """Moments of the rows bounds[v] … bounds[v + 1] of [X, y]; out [V]: their mass.

    XT [p, n]: columns of X as rows; weight [n], or empty where all weights are 1. shift, rest [V, k]: their sum is the
    mean; zeros unless centred. product [V, k, k]: about the mean, filled up to the diagonal. No visit may be empty.
    """
    p, n = XT.shape
    k = p + 1
    padded = (k + _WIDE - 1) // _WIDE * _WIDE
    step = max(_LEAST, min(_MOST, _BUFFER // padded // _LANES * _LANES))
    block = empty(padded * step, np.float64)
    roots = empty(step if weight.shape[0] else 0, np.float64)
    sums = empty(padded * (padded + _WIDE) // 2 * _LANES, np.float64)
    for i in range(k * step, padded * step):
        block[i] = 0.0
    v = next_visit(pass_, worker)
    while v >= 0:
        first, last = bounds[v], bounds[v + 1]
        count = last - first
        mass = _sum(weight, first, count) if weight.shape[0] else np.float64(count)
        out[v] = mass
        for j in range(k):
            shift[v, j], rest[v, j] = 0.0, 0.0
        if centred:
            for j in range(p):
                shift[v, j] = _first_mean(XT, j * n + first, weight, first, min(step, count))
            shift[v, p] = _first_mean(y, first, weight, first, min(step, count))
        for i in range(sums.shape[0]):
            sums[i] = 0.0
        for top in range(first, last, step):
            rows = min(step, last - top)
            if weight.shape[0]:
                for i in range(0, rows, _LANES):
                    store(roots, i, root(load_part(weight, top + i, min(_LANES, rows - i))))
            for j in range(p):
                rest[v, j] += _centre(XT, j * n + top, rows, shift[v, j], roots, block, j * step)
            rest[v, p] += _centre(y, top, rows, shift[v, p], roots, block, p * step)
            at = 0
            for a in range(0, padded, _HIGH):
                for b in range(0, a + _HIGH, _WIDE):
                    _add_tile(block, a * step, b * step, step, rows, sums, at)
                    at += _HIGH * _WIDE * _LANES
        for a in range(k):
            rest[v, a] = rest[v, a] / mass if centred and mass > 0.0 else 0.0
        at = 0
        for top in range(0, padded, _HIGH):
            for left in range(0, top + _HIGH, _WIDE):
                for a in range(top, min(top + _HIGH, k)):
                    for b in range(left, min(left + _WIDE, a + 1)):
                        made = total(load(sums, at + (_WIDE * (a - top) + b - left) * _LANES))
                        product[v, a, b] = made - mass * rest[v, a] * rest[v, b]
                at += _HIGH * _WIDE * _LANES
        v = next_visit(pass_, worker, v)


@kernel
def merge(mass, shift, rest, product, middle, G):
    """Moments of all rows from those of the visits: mass [V], shift and rest [V, k], product [V, k, k].

    middle [k]: the means of all rows; G [k, step]: products about them, both triangles. Returns Σ mass. `rest` becomes
    the visits' means as distances from `middle`.
    """
    visits, k = shift.shape
    whole = 0.0
    for v in range(visits):
        whole += mass[v]
    for a in range(k):
        # Distances from the shift of one visit, which are exact to their own size.
        first, m = shift[0, a], 0.0
        for v in range(visits):
            rest[v, a] += shift[v, a] - first if mass[v] > 0.0 else 0.0
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


@inner
def _first_from(indices, begin, end, row):
    """The position of the first entry of a column, indices[begin … end − 1], in this row or a later one."""
    while begin < end:
        middle = (begin + end) // 2
        if indices[middle] < row:
            begin = middle + 1
        else:
            end = middle
    return begin


@kernel(allocates=True)
def sparse_moments_worker(pass_, worker, out, bounds, indptr, indices, values, weight, v, linear, pulled, product):
    """Sums over the rows bounds[visit] … bounds[visit + 1] of sparse columns, in the slices of the visit.

    linear [V, p]: Σ w x; pulled [V, p]: Σ x v; product [V, p, p]: Σ w x_a x_b up to the diagonal; weight [n] = w.
    The entries of a few rows at a time are collected row by row, and those of a row multiplied with each other.
    """
    p = indptr.shape[0] - 1
    reached, ahead, held = empty(p, np.int64), empty(p, np.int64), empty(_TOGETHER + 1, np.int64)
    whose, value = empty(_TOGETHER * p, np.int32), empty(_TOGETHER * p, np.float64)
    visit = next_visit(pass_, worker)
    while visit >= 0:
        first, last = bounds[visit], bounds[visit + 1]
        for j in range(p):
            reached[j] = _first_from(indices, indptr[j], indptr[j + 1], first)
            linear[visit, j], pulled[visit, j] = 0.0, 0.0
            for c in range(p):
                product[visit, j, c] = 0.0
        for top in range(first, last, _TOGETHER):
            edge = min(top + _TOGETHER, last)
            for r in range(edge - top + 1):
                held[r] = 0
            for j in range(p):
                t, stop = reached[j], indptr[j + 1]
                while t < stop:
                    r = np.int64(get(indices, t)) - top
                    if r >= edge - top:
                        break
                    held[r + 1] += 1
                    t += 1
                ahead[j] = t
            for r in range(edge - top):
                held[r + 1] += held[r]
            # held[r]: where the next entry of row r goes; in the end, where those of the next row begin.
            for j in range(p):
                s, q = 0.0, 0.0
                for t in range(reached[j], ahead[j]):
                    i, x = np.int64(get(indices, t)), np.float64(get(values, t))
                    at = held[i - top]
                    whose[at], value[at] = j, x
                    held[i - top] = at + 1
                    s += get(weight, i) * x
                    q += get(v, i) * x
                reached[j] = ahead[j]
                linear[visit, j] += s
                pulled[visit, j] += q
            begin = 0
            for r in range(edge - top):
                w, end = weight[top + r], held[r]
                for a in range(begin, end):
                    x, row = w * value[a], (visit * p + whose[a]) * p
                    for b in range(begin, a + 1):
                        at = row + np.int64(get(whose, b))
                        put(product, at, get(product, at) + x * get(value, b))
                begin = end
        visit = next_visit(pass_, worker, visit)


@kernel
def merge_sparse(mass, centred, linear, pulled, product, mean, q, G):
    """Add the visits of `sparse_moments_worker`: mean [p], zeros unless centred; q [p] = Xᵀv; G [p, step].

    G: products about the means, both triangles; mass = Σ w.
    """
    visits, p = linear.shape
    for a in range(p):
        m, s = 0.0, 0.0
        for v in range(visits):
            m += linear[v, a]
            s += pulled[v, a]
        mean[a] = m / mass if centred else 0.0
        q[a] = s
    for a in range(p):
        for b in range(a + 1):
            s = 0.0
            for v in range(visits):
                s += product[v, a, b]
            G[a, b] = s - mass * mean[a] * mean[b]
            G[b, a] = G[a, b]
