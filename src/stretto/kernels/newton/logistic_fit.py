"""Penalised logistic regression of few dense features: a whole fit in one call, in one thread.

    min over β, b:   Σ_i w_i log(1 + e^(−y_i (x_i·β + b)))  +  Σ_j l1_j|β_j|  +  ½ Σ_j l2_j β_j²

Each step builds the quadratic model of the loss (`block_products`) for the columns that are not zero or whose gradient
is near l1, eliminates the intercept, minimises (`small_model`) and searches along the line. Before each step the
duality gap is computed from the gradients of all columns, with the optimal intercept: Σ v = 0. Where the last step
reduced the gap so much that one more with the same products is enough, they are not recomputed.

Columns are centred about `mean`, the means under w, so that means far from zero cost no digits. In these terms the
intercept is b + mean·β. Every sum has one order.
"""

from __future__ import annotations

import math

import numpy as np

from stretto.kernels.core.compile import inner, kernel
from stretto.kernels.newton.logistic_lanes import evaluate_rows
from stretto.kernels.numeric.vector import add, cast, fma, load, load_part, mul, splat, store, store_part, total

from .block_products import ROWS, fill, multiply, set_roots
from .logistic_step import (
    BEFORE,
    CLOSE,
    COUNT,
    DRIFT,
    GAP,
    H_B,
    INTERCEPT,
    INVERSE,
    KNOWN,
    L1,
    LEAN,
    MASS,
    PULL,
    STALLED,
    STEP,
    STEPS,
    THERE,
    UNIT,
    WAY,
    WORK,
    B,
    D,
    Q,
    V,
    Z,
    accepts,
    choose,
    ended,
    enough_products,
    evaluate_zero,
    find_step,
    load_model,
    move,
    penalty_at,
    search_line,
    set_dual_point,
    settle_step,
    shift_of,
    worst_violation,
)
from .small_model import minimise

_ZERO = np.float64(0.0)


@inner
def _dot(XT, at, n, mean, v, first):
    """Σ_i (XT[at + i] − mean) v[first + i]."""
    away = splat(-mean)
    s0, s1, s2, s3 = splat(0.0), splat(0.0), splat(0.0), splat(0.0)
    i = 0
    while i + 64 <= n:
        s0 = fma(add(cast(load(XT, at + i), _ZERO), away), load(v, first + i), s0)
        s1 = fma(add(cast(load(XT, at + i + 16), _ZERO), away), load(v, first + i + 16), s1)
        s2 = fma(add(cast(load(XT, at + i + 32), _ZERO), away), load(v, first + i + 32), s2)
        s3 = fma(add(cast(load(XT, at + i + 48), _ZERO), away), load(v, first + i + 48), s3)
        i += 64
    while i < n:
        rest = min(16, n - i)
        s0 = fma(add(cast(load_part(XT, at + i, rest), _ZERO), away), load_part(v, first + i, rest), s0)
        i += 16
    return total(add(add(s0, s1), add(s2, s3)))


@inner
def _dot_both(XT, at, n, mean, v, d, first):
    """`_dot` with v and with d."""
    away = splat(-mean)
    s0, s1, t0, t1 = splat(0.0), splat(0.0), splat(0.0), splat(0.0)
    i = 0
    while i + 32 <= n:
        x, y = add(cast(load(XT, at + i), _ZERO), away), add(cast(load(XT, at + i + 16), _ZERO), away)
        s0, t0 = fma(x, load(v, first + i), s0), fma(x, load(d, first + i), t0)
        s1, t1 = fma(y, load(v, first + i + 16), s1), fma(y, load(d, first + i + 16), t1)
        i += 32
    while i < n:
        rest = min(16, n - i)
        x = add(cast(load_part(XT, at + i, rest), _ZERO), away)
        s0 = fma(x, load_part(v, first + i, rest), s0)
        t0 = fma(x, load_part(d, first + i, rest), t0)
        i += 16
    return total(add(s0, s1)), total(add(t0, t1))


@inner
def _add_column(XT, at, count, mean, by, to, first):
    """to[first + i] += by · (XT[at + i] − mean) for i < count."""
    away, factor = splat(-mean), splat(by)
    i = 0
    while i + 16 <= count:
        x = add(cast(load(XT, at + i), _ZERO), away)
        store(to, first + i, fma(factor, x, load(to, first + i)))
        i += 16
    if i < count:
        rest = count - i
        x = add(cast(load_part(XT, at + i, rest), _ZERO), away)
        store_part(to, first + i, rest, fma(factor, x, load_part(to, first + i, rest)))


@inner
def _sums(XT, at, n, mean, weight, v):
    """Sums of (x − mean) times weight, of its square times weight, and of it times v."""
    away = splat(-mean)
    s, t, u = splat(0.0), splat(0.0), splat(0.0)
    i = 0
    while i + 16 <= n:
        x, w = add(cast(load(XT, at + i), _ZERO), away), load(weight, i)
        y = mul(x, w)
        s, t, u = add(s, y), fma(x, y, t), fma(x, load(v, i), u)
        i += 16
    if i < n:
        rest = n - i
        x, w = add(cast(load_part(XT, at + i, rest), _ZERO), away), load_part(weight, i, rest)
        y = mul(x, w)
        s, t, u = add(s, y), fma(x, y, t), fma(x, load_part(v, i, rest), u)
    return total(s), total(t), total(u)


@kernel
def prepare(XT, y, weight, intercept, mean, norm, vectors, small, pair, numbers):
    """Means [p] under the weights, norms about them, and the loss and gradients at β = 0; return Σ weight.

    XT [p, n]: columns of X as rows. The means are 0 without an intercept. pair [6, 2]: scratch.
    """
    p, n = XT.shape
    mass = evaluate_zero(y, weight, intercept, vectors, pair, numbers)
    v = vectors[V]
    for j in range(p):
        mean[j] = _dot(XT, j * n, n, 0.0, weight, 0) / mass if intercept else 0.0
        rest, square, small[PULL, j] = _sums(XT, j * n, n, mean[j], weight, v)
        if intercept:
            # What rounding left of the mean. Σ v is zero, so that the gradient does not change.
            rest /= mass
            mean[j] += rest
            square = max(0.0, square - mass * rest * rest)
        norm[j] = math.sqrt(square)
    return mass


@inner(apart=True)
def _build(XT, mean, intercept, l2, vectors, small, column, k, block, products, H):
    """H [k, ·] and Σ d x of the model of k columns; return Σ d."""
    n = XT.shape[1]
    d, roots = vectors[D], block[block.shape[0] - ROWS :]
    whole = k + 1 if intercept else k
    width = (whole + 3) // 4 * 4
    for i in range(whole * ROWS, width * ROWS):
        block[i] = 0.0
    for i in range(width * width):
        products[i] = 0.0
    for first in range(0, n, ROWS):
        count = min(ROWS, n - first)
        set_roots(d, first, count, roots)
        for c in range(k):
            j = column[c]
            fill(XT, j * n + first, count, mean[j], roots, block, c * ROWS)
        if intercept:
            for i in range(0, count, 16):
                store(block, k * ROWS + i, load(roots, i))
        multiply(block, 0, whole, count, products, 0, width)
    mass = products[k * width + k] if intercept else 0.0
    for a in range(k):
        small[LEAN, a] = products[k * width + a] if intercept else 0.0
    for a in range(k):
        share = small[LEAN, a] / mass if mass > 0.0 else 0.0
        for c in range(a + 1):
            x = products[a * width + c] - share * small[LEAN, c]
            H[a, c], H[c, a] = x, x
    for a in range(k):
        # A column that d makes constant has no curvature: without a penalty its coefficient stays.
        H[a, a] = max(0.0, H[a, a]) + l2[column[a]]
    return mass


@inner(apart=True)
def _try_step(XT, y, weight, mean, intercept, b, vectors, small, column, k):
    """The predictions after the whole step, and there the loss, Σ v and Σ d, v, d, Xᵀv and Xᵀd, reading X once."""
    p, n = XT.shape
    z, v, d, way, there = vectors[Z], vectors[V], vectors[D], vectors[WAY], vectors[THERE]
    pull, drift, step = small[PULL], small[DRIFT], small[STEP]
    value, pulled, bend = 0.0, 0.0, 0.0
    for j in range(p):
        pull[j], drift[j] = 0.0, 0.0
    for first in range(0, n, ROWS):
        count = min(ROWS, n - first)
        for i in range(first, first + count):
            way[i] = 0.0
        for a in range(k):
            if step[a] != 0.0:
                j = column[a]
                _add_column(XT, j * n + first, count, mean[j], step[a], way, first)
        for i in range(first, first + count):
            there[i] = z[i] + way[i]
        some, pulls, bends = evaluate_rows(y, there, weight, b, v, d, first, first + count)
        value, pulled, bend = value + some, pulled + pulls, bend + bends
        for j in range(p):
            if intercept:
                one, other = _dot_both(XT, j * n + first, count, mean[j], v, d, first)
                pull[j] += one
                drift[j] += other
            else:
                pull[j] += _dot(XT, j * n + first, count, mean[j], v, first)
    return value, pulled, bend


@kernel
def predict(XT, y, weight, intercept, mean, coef, vectors, small, column, numbers):
    """Evaluate loss and gradients at β = coef, with an intercept about the best one; numbers[INTERCEPT] is the start.

    column [p]: scratch.
    """
    p, n = XT.shape
    z, there, b = vectors[Z], vectors[THERE], numbers[INTERCEPT]
    for i in range(n):
        z[i] = 0.0
    for j in range(p):
        column[j], small[STEP, j] = j, coef[j]
    value, pull, bend = _try_step(XT, y, weight, mean, intercept, b, vectors, small, column, p)
    for i in range(n):
        z[i] = there[i]
    settle_step(y, weight, intercept, b, value, pull, bend, vectors, small, p, numbers)


@inner(apart=True)
def _advance(XT, y, weight, mean, intercept, l1, l2, mass, coef, vectors, small, column, k, numbers):
    """Move along the line to the model's minimum; return the share of the way, 0 if none decreases the objective."""
    moved, turn, predicted = find_step(l1, l2, mass, coef, small, column, k, numbers)
    numbers[KNOWN] = 0.0
    if not moved:
        return 0.0
    b = numbers[INTERCEPT] + turn
    value, pull, bend = _try_step(XT, y, weight, mean, intercept, b, vectors, small, column, k)
    if not accepts(value + penalty_at(l1, l2, coef, small[STEP], column, k, 1.0), predicted, 1.0, numbers):
        return search_line(y, weight, intercept, l1, l2, turn, predicted, 0.5, coef, vectors, small, column, k, numbers)
    move(1.0, coef, vectors, small, column, k)
    settle_step(y, weight, intercept, b, value, pull, bend, vectors, small, XT.shape[0], numbers)
    return 1.0


@kernel
def fit(
    XT, y, weight, mean, norm, intercept, l1, l2, goal, share, least, steps, coef, vectors, small, column, block,
    products, H, U, numbers,
):  # fmt: skip
    """Make Newton steps until the gap is at most min(goal, max(share · objective, least)), at most `steps`.

    `vectors` and numbers[: KNOWN + 1] hold the state at coef [p], the start and the solution. Results in `numbers`;
    `small` and all arrays from `column` on are scratch.
    """
    p, n = XT.shape
    numbers[STEPS], numbers[WORK], numbers[STALLED] = 0.0, 0.0, 0.0
    while True:
        if numbers[KNOWN] == 0.0:
            set_dual_point(vectors, shift_of(numbers))
            theta = vectors[THERE]
            for j in range(p):
                small[PULL, j] = _dot(XT, j * n, n, mean[j], theta, 0)
        for j in range(p):
            if norm[j] == 0.0:
                small[PULL, j] = 0.0
        done, wanted = ended(y, weight, l1, l2, goal, share, least, steps, coef, vectors, small, numbers)
        if done:
            return
        k, gap = np.int64(numbers[COUNT]), numbers[GAP]
        again = enough_products(l1, coef, small, column, wanted, numbers)
        if not again:
            k = choose(norm, l1, l2, coef, small, column)
            numbers[COUNT] = k
            numbers[MASS] = _build(XT, mean, intercept, l2, vectors, small, column, k, block, products, H)
        load_model(norm, l1, l2, coef, small, column, k, H)
        numbers[WORK] += minimise(
            H, small[Q], small[L1], small[UNIT], k, CLOSE * worst_violation(norm, l1, l2, coef, small), small[B],
            small[H_B], U, small[INVERSE], small[STEP], column[p:], column, 0,
        )  # fmt: skip
        t = _advance(
            XT, y, weight, mean, intercept, l1, l2, numbers[MASS], coef, vectors, small, column, k, numbers
        )  # fmt: skip
        numbers[BEFORE] = gap if t == 1.0 else 0.0
        if t == 0.0 and not again:
            numbers[STALLED] = 1.0
            return
        numbers[STEPS] += 1.0
