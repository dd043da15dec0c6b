"""Fold-in of factor rows for ranking losses, with the columns fixed: passes of the steps of `ranking`, row by row.

A row starts at zero and makes `passes` passes over its values above 0, with steps that fall linearly from `step`. With
priors it starts at its prior mean and is shrunk towards it, not to zero. Items are drawn from `pool`, the columns that
training has seen, by counter-based numbers that follow from the row's first column and its length: the same row gives
the same factors, whatever rows are beside it.

The factors of a row are sums of steps, each made for one of its values. `parts` are those sums, along a direction given
for each row: which value contributed how much to a score.

Shapes: bounds [V + 1] row blocks; indptr [m + 1]; indices [n] ascending in each row, values [n]; X [m, width],
H [k, width], c [k] or length 0, b [m] or length 0, prior as X or without rows, float32; pool [p] int32; along [m, k]
float64, H times the direction of a row; parts [n, 2] float64, along the factors and of the bias; both of length 0 where
they are not asked for.
"""

from __future__ import annotations

import numpy as np

from stretto.kernels.core.claims import fail, next_visit
from stretto.kernels.core.compile import inner, kernel
from stretto.kernels.numeric import lanes
from stretto.kernels.numeric.random import _scramble as scramble
from stretto.kernels.numeric.random import mix
from stretto.kernels.numeric.scalar import exp, log

from .ranking import BPR, LOGISTIC, MOST_WEIGHT, TRIES

_ZERO, _ONE = np.float32(0.0), np.float32(1.0)
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_HALF = np.uint64(32)
_SMALL = 1e-200


@inner
def _is_rated(indices, first, last, j):
    """Whether ascending indices[first:last] contain j."""
    while first < last:
        middle = (first + last) >> 1
        if indices[middle] < j:
            first = middle + 1
        elif indices[middle] > j:
            last = middle
        else:
            return True
    return False


@inner
def _pull(X, x, keep, prior):
    """X[x] = keep · X[x] + (1 − keep) · prior[x]."""
    lanes.scaled(X, x, keep, X, x)
    if prior.shape[0] > 0:
        lanes.axpy(X, x, _ONE - keep, prior, x)


@inner
def _score(X, x, H, j, c):
    p = lanes.dot(X, x, H, j)
    return p + c[j] if c.shape[0] > 0 else p


@inner
def _shrink(parts, column, first, last, held, keep):
    """Count a decay of all parts of a row: they are held · parts. Return the new `held`."""
    held *= keep
    if held < _SMALL:
        for t in range(first, last):
            parts[t, column] *= held
        held = 1.0
    return held


@kernel
def fold_in_ranking_worker(
    pass_,
    worker,
    out,
    bounds,
    indptr,
    indices,
    values,
    X,
    H,
    b,
    c,
    pool,
    prior,
    step,
    lam,
    lam_bias,
    confidence,
    mean_weight,
    method,
    draws,
    passes,
    along,
    parts,
):
    """Learn each row of X, which is its prior at the start. out [V]: 0, or NaN for a number that is not finite."""
    parted = parts.shape[0] > 0
    items = np.float64(pool.shape[0])
    choice = np.uint64(pool.shape[0])
    top = 1.0 / log(1.0 + items)
    v = next_visit(pass_, worker)
    while v >= 0:
        total = 0.0
        for x in range(bounds[v], bounds[v + 1]):
            first, last = indptr[x], indptr[x + 1]
            if first == last:
                continue
            state = mix(0, indices[first], last - first, 1)
            held, held_bias = 1.0, 1.0
            for turn in range(passes):
                rate = step * np.float32(1.0 - turn / passes)
                keep, keep_bias = _ONE - rate * lam, _ONE - rate * lam_bias
                for t in range(first, last):
                    y, value = np.int64(indices[t]), values[t]
                    if value <= _ZERO and method != LOGISTIC:
                        continue
                    weight = rate * min((_ONE + confidence * abs(value)) / mean_weight, np.float32(MOST_WEIGHT))
                    score = _score(X, x, H, y, c)
                    if method == LOGISTIC:
                        p = np.float64(score + b[x] if b.shape[0] > 0 else score)
                        g = weight * np.float32((1.0 if value > _ZERO else 0.0) - 1.0 / (1.0 + exp(-p)))
                        _pull(X, x, keep, prior)
                        lanes.axpy(X, x, g, H, y)
                        if b.shape[0] > 0:
                            b[x] = keep_bias * b[x] + g
                        if parted:
                            held = _shrink(parts, 0, first, last, held, keep)
                            held_bias = _shrink(parts, 1, first, last, held_bias, keep_bias)
                            parts[t, 0] += g * along[x, y] / held
                            parts[t, 1] += g / held_bias
                        if value <= _ZERO:
                            continue
                    made = 0
                    for _ in range(draws):
                        j = np.int64(-1)
                        for _ in range(TRIES):
                            state += _GOLDEN
                            k = np.int64(pool[np.int64(((scramble(state) >> _HALF) * choice) >> _HALF)])
                            if not _is_rated(indices, first, last, k):
                                j = k
                                break
                        if j < 0:
                            break
                        made += 1
                        other = _score(X, x, H, j, c)
                        if method == LOGISTIC:
                            p = np.float64(other + b[x] if b.shape[0] > 0 else other)
                            g = -rate * np.float32(1.0 / (1.0 + exp(-p)))
                            _pull(X, x, keep, prior)
                            lanes.axpy(X, x, g, H, j)
                            if b.shape[0] > 0:
                                b[x] = keep_bias * b[x] + g
                            if parted:
                                held = _shrink(parts, 0, first, last, held, keep)
                                held_bias = _shrink(parts, 1, first, last, held_bias, keep_bias)
                                parts[t, 0] += g * along[x, j] / held
                                parts[t, 1] += g / held_bias
                            continue
                        if method == BPR:
                            d = np.float64(_score(X, x, H, y, c) - other)
                            g = weight * np.float32(1.0 / (1.0 + exp(d)))
                        elif score - other >= _ONE:
                            continue
                        else:
                            g = weight * np.float32(log(1.0 + (items - 1.0) / made) * top)
                        _pull(X, x, keep, prior)
                        lanes.axpy(X, x, g, H, y)
                        lanes.axpy(X, x, -g, H, j)
                        if parted:
                            held = _shrink(parts, 0, first, last, held, keep)
                            parts[t, 0] += g * (along[x, y] - along[x, j]) / held
                        if method != BPR:
                            break
            if parted:
                for t in range(first, last):
                    parts[t, 0] *= held
                    parts[t, 1] *= held_bias
            total += np.float64(lanes.dot(X, x, X, x))
        out[v] = 0.0 if np.isfinite(total) else np.nan
        if not np.isfinite(total):
            fail(pass_, v)
        v = next_visit(pass_, worker, v)
