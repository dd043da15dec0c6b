"""Logistic regression of sparse rows with an L2 penalty alone: a whole fit in one call, in one thread.

The problem is that of `sparse_fit`. A Newton step is found by conjugate gradients, and each of their iterations reads
the rows once: a row is multiplied with the direction, and adds its part of the product while it is in the cache. No
products of columns are needed, and no copy of X by columns.

The gradient of the quadratic model at its approximate minimum, in the norm of the penalty, is what the step would leave
of the duality gap if the model were exact. So the iterations end where that is a small share of what it is before the
step, or of the gap that is wanted.
"""

from __future__ import annotations

import numpy as np

from stretto.kernels.core.compile import inner, kernel
from stretto.kernels.linear.columns import sparse_dot
from stretto.kernels.linear.sample_losses import added
from stretto.kernels.numeric.vector import get, put

from .logistic_step import (
    BEND,
    DRIFT,
    INVERSE,
    KNOWN,
    LEAN,
    PULL,
    PULLED,
    STALLED,
    STEP,
    STEPS,
    UNIT,
    WAY,
    WORK,
    B,
    D,
    Q,
    V,
    Z,
    ended,
    evaluate,
    search_line,
    shift_of,
)

CURVE = DRIFT  # row of `small`: squares of the columns under the curvatures
# numbers[KNOWN]: the gradients are those at β = 0; gradients, and means under the curvatures, are those at the point.
_ZERO, _ALL = 1.0, 2.0
_MOST = 150  # iterations of a step; where more are needed, working sets take less time
_FORCING = 0.02  # share of the gradient's square that a step may leave to the next one
_ENOUGH = 0.3  # share of the wanted gap that a step may leave


@kernel
def predict(indptr, indices, values, y, weight, intercept, coef, vectors, numbers):
    """Evaluate the loss at β = coef, with the optimal intercept; the search for it starts at numbers[INTERCEPT]."""
    z = vectors[Z]
    for i in range(z.shape[0]):
        z[i] = sparse_dot(indices, values, np.int64(indptr[i]), np.int64(indptr[i + 1]), coef)
    evaluate(y, weight, intercept, vectors, numbers)


@inner(apart=True)
def _gather(indptr, indices, values, mean, norm, intercept, vectors, small, work, numbers):
    """Gradients, means of the columns under the curvatures (0 without an intercept), and their squares about these.

    work [4 p]: scratch, with the sums of a column side by side.
    """
    p, v, d = mean.shape[0], vectors[V], vectors[D]
    c, rest = shift_of(numbers), 0.0
    for j in range(4 * p):
        work[j] = 0.0
    for i in range(v.shape[0]):
        y = d[i]
        x = v[i] - c * y
        rest += x
        for t in range(indptr[i], indptr[i + 1]):
            j, value = 4 * np.int64(get(indices, t)), np.float64(get(values, t))
            bent = value * y
            put(work, j, get(work, j) + value * x)
            put(work, j + 1, get(work, j + 1) + bent)
            put(work, j + 2, get(work, j + 2) + value * bent)
    mass = numbers[BEND]
    share = 1.0 / mass if intercept and mass > 0.0 else 0.0
    for j in range(p):
        lean = work[4 * j + 1] * share
        small[PULL, j] = work[4 * j] - (mean[j] * rest if intercept else 0.0) if norm[j] > 0.0 else 0.0
        small[LEAN, j] = lean
        small[CURVE, j] = max(0.0, work[4 * j + 2] - lean * lean * mass)


@inner(apart=True)
def _start(mean, norm, mass, vectors, small):
    """What `_gather` finds at β = 0, but for the gradients: all curvatures are the same multiple of the weights."""
    bent = added(vectors[D]) / mass
    for j in range(mean.shape[0]):
        small[PULL, j] = small[PULL, j] if norm[j] > 0.0 else 0.0
        small[LEAN, j] = mean[j]
        small[CURVE, j] = bent * norm[j] * norm[j]


@inner(apart=True)
def _apply(indptr, indices, values, d, shift, pair, out):
    """out [n] = X s, and Xᵀ D (X s − shift), for s in the even places of `pair`; the product is added to the odd ones.

    Returns Σ d (X s − shift).
    """
    mass = 0.0
    for i in range(out.shape[0]):
        first, last = np.int64(get(indptr, i)), np.int64(get(indptr, i + 1))
        a, b, c, e = 0.0, 0.0, 0.0, 0.0
        t = first
        while t + 4 <= last:
            a += np.float64(get(values, t)) * get(pair, 2 * np.int64(get(indices, t)))
            b += np.float64(get(values, t + 1)) * get(pair, 2 * np.int64(get(indices, t + 1)))
            c += np.float64(get(values, t + 2)) * get(pair, 2 * np.int64(get(indices, t + 2)))
            e += np.float64(get(values, t + 3)) * get(pair, 2 * np.int64(get(indices, t + 3)))
            t += 4
        while t < last:
            a += np.float64(get(values, t)) * get(pair, 2 * np.int64(get(indices, t)))
            t += 1
        z = (a + b) + (c + e)
        out[i] = z
        u = d[i] * (z - shift)
        mass += u
        for t in range(first, last):
            j = 2 * np.int64(get(indices, t)) + 1
            put(pair, j, get(pair, j) + np.float64(get(values, t)) * u)
    return mass


@inner(apart=True)
def _solve(indptr, indices, values, norm, l2, enough, vectors, small, pair, out):
    """A step towards the minimum of the quadratic model: small[STEP] and vectors[WAY]; return the iterations made.

    enough : ½ Σ residual² / l2 at which it ends. pair [2 p or more], out [n]: scratch.
    """
    p, n = norm.shape[0], out.shape[0]
    step, left, curve, mean, way = small[STEP], small[Q], small[INVERSE], small[LEAN], vectors[WAY]
    size, first = 0.0, 0.0
    for j in range(p):
        step[j] = 0.0
        # A constant column stays.
        curve[j] = small[CURVE, j] + l2[j] if norm[j] > 0.0 else np.inf
        pair[2 * j] = left[j] / curve[j]
        size += left[j] * pair[2 * j]
        first += left[j] * left[j] / (l2[j] if l2[j] > 0.0 else curve[j])
    enough = max(2.0 * enough, _FORCING * first)
    for i in range(n):
        way[i] = 0.0
    made = 0
    while made < _MOST and size > 0.0:
        shift = 0.0
        for j in range(p):
            shift += pair[2 * j] * mean[j]
            pair[2 * j + 1] = 0.0
        rest = _apply(indptr, indices, values, vectors[D], shift, pair, out)
        bend = 0.0
        for j in range(p):
            back = pair[2 * j + 1] - mean[j] * rest + l2[j] * pair[2 * j]
            pair[2 * j + 1] = back
            bend += pair[2 * j] * back
        made += 1
        if not bend > 0.0:
            return made
        t = size / bend
        for i in range(n):
            way[i] += t * out[i]
        now, beyond = 0.0, 0.0
        for j in range(p):
            step[j] += t * pair[2 * j]
            r = left[j] - t * pair[2 * j + 1]
            left[j] = r
            if norm[j] > 0.0:
                now += r * r / curve[j]
                beyond += r * r / (l2[j] if l2[j] > 0.0 else curve[j])
        if beyond <= enough:
            return made
        ratio = now / size
        for j in range(p):
            pair[2 * j] = left[j] / curve[j] + ratio * pair[2 * j]
        size = now
    return made


@kernel
def fit(
    indptr, indices, values, y, weight, mean, norm, mass, intercept, l1, l2, goal, share, least, steps, coef, vectors,
    small, column, work, out, numbers,
):  # fmt: skip
    """Make Newton steps until the gap is at most min(goal, max(share · objective, least)), at most `steps`.

    l1 [p] is zero. `vectors` and numbers[: KNOWN + 1] hold the state at coef [p], the start and the solution. Results
    in `numbers`; column [p] is 0 … p − 1; `small`, work [4 p] and out [n] are scratch.
    """
    p, hard = coef.shape[0], False
    numbers[STEPS], numbers[WORK], numbers[STALLED] = 0.0, 0.0, 0.0
    while True:
        if numbers[KNOWN] == 0.0:
            _gather(indptr, indices, values, mean, norm, intercept, vectors, small, work, numbers)
        elif numbers[KNOWN] == _ZERO:
            _start(mean, norm, mass, vectors, small)
        done, wanted = ended(y, weight, l1, l2, goal, share, least, steps, coef, vectors, small, numbers)
        numbers[KNOWN] = _ALL
        if done or hard:
            numbers[STALLED] = 1.0 if hard else numbers[STALLED]
            return
        for j in range(p):
            small[UNIT, j] = small[Q, j] = small[PULL, j] - l2[j] * coef[j]
        turn, slope = shift_of(numbers), -shift_of(numbers) * numbers[PULLED]
        made = _solve(indptr, indices, values, norm, l2, _ENOUGH * wanted, vectors, small, work, out)
        for j in range(p):
            step = small[STEP, j]
            small[B, j] = coef[j] + step
            turn -= small[LEAN, j] * step
            slope -= small[UNIT, j] * step
        t = search_line(
            y, weight, intercept, l1, l2, turn, slope, 1.0, coef, vectors, small, column, p, numbers
        )  # fmt: skip
        numbers[WORK] += made
        numbers[KNOWN] = 0.0
        if t == 0.0:
            numbers[STALLED] = 1.0
            return
        numbers[STEPS] += 1.0
        hard = hard or made == _MOST
