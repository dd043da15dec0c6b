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
from stretto.kernels.linear.sample_losses import added, entropy_of, evaluated, log_odds, settled
from stretto.kernels.numeric.vector import add, cast, fma, load, load_part, mul, splat, store, store_part, total

from .block_products import ROWS, fill, multiply, set_roots
from .small_model import minimise

# Rows of `vectors` [VECTORS, n]: predictions without intercept, −∂loss/∂z, ∂²loss/∂z², the step's predictions,
# those after it, and scratch.
Z, V, D, WAY, THERE, COST = range(6)
VECTORS = 6
# Rows of `small` [SMALL, width]: gradients −∂loss/∂β; then, of the chosen columns: coefficients, linear term, penalty,
# unit of a violation, product with H, inverse pivots, step, and Σ d x.
PULL, B, Q, L1, UNIT, H_B, INVERSE, STEP, LEAN = range(9)
SMALL = 9
# Slots of `numbers`: intercept of the centred columns, loss, and the best dual value so far (in and out); results.
# KNOWN: whether the gradients in `small` are those at the start. BEFORE: the gap before the last step, 0 if its
# products cannot be used again; COUNT, MASS: their number of columns, and Σ d. IDLE: steps since the last progress;
# WIDE, HIGH: gap and objective then.
INTERCEPT, VALUE, DUAL, KNOWN, BEFORE, COUNT, MASS, IDLE, WIDE, HIGH, OBJECTIVE, GAP, STEPS, WORK, STALLED = range(15)
NUMBERS = 15
_ZERO = np.float64(0.0)
_NEAR = 0.9  # share of l1 from which on a gradient's column is in the model
_FEW = 16  # columns that are all in the model
_CLOSE = 5e-2  # violation of the model's minimum, as a share of the violation at its start
_DECREASE = 1e-4  # share of the predicted decrease that a step must achieve
_HALVINGS = 30
# Steps without progress after which the fit ends. Progress halves the gap, or lowers the objective by a share of it.
_IDLE, _SHARE = 10, 0.1
_MANY = 12  # columns whose products take longer than the other passes of a step
# A Newton step with a relative change ρ of the curvature leaves ρ/2 of the error, and one more with the old curvature ρ
# of that: the gap after it is at most the last one times four times the last reduction.
_AGAIN = 4.0
_DOWN = 1.0 - 2.0**-50  # rounds the scale of the dual point, so that rounding violates no constraint


@inner
def _dot(XT, at, n, mean, v):
    """Σ_i (XT[at + i] − mean) v[i]."""
    away = splat(-mean)
    s0, s1, s2, s3 = splat(0.0), splat(0.0), splat(0.0), splat(0.0)
    i = 0
    while i + 64 <= n:
        s0 = fma(add(cast(load(XT, at + i), _ZERO), away), load(v, i), s0)
        s1 = fma(add(cast(load(XT, at + i + 16), _ZERO), away), load(v, i + 16), s1)
        s2 = fma(add(cast(load(XT, at + i + 32), _ZERO), away), load(v, i + 32), s2)
        s3 = fma(add(cast(load(XT, at + i + 48), _ZERO), away), load(v, i + 48), s3)
        i += 64
    while i < n:
        rest = min(16, n - i)
        s0 = fma(add(cast(load_part(XT, at + i, rest), _ZERO), away), load_part(v, i, rest), s0)
        i += 16
    return total(add(add(s0, s1), add(s2, s3)))


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
    z, v, d, cost = vectors[Z], vectors[V], vectors[D], vectors[COST]
    # All samples of a class have the same loss per weight: two samples, with the weights of the classes, stand for all.
    sign, none, both = pair[0], pair[1], pair[2]
    sign[0], sign[1] = 1.0, -1.0
    for c in range(2):
        for i in range(n):
            cost[i] = weight[i] if y[i] == sign[c] else 0.0
        none[c], both[c] = 0.0, added(cost)
    mass = both[0] + both[1]
    b = 0.0
    if intercept:
        b = log_odds(sign, both, pair[5])
        b, value, _ = settled(sign, none, both, b, pair[3], pair[4], pair[5], False, 0.0)
    else:
        value, _, _ = evaluated(sign, none, both, b, pair[3], pair[4], pair[5])
    for k in range(3, 5):
        for c in range(2):
            pair[k, c] = pair[k, c] / both[c] if both[c] > 0.0 else 0.0
    up, down, bent, bent_down = pair[3, 0], pair[3, 1], pair[4, 0], pair[4, 1]
    for i in range(n):
        z[i] = 0.0
        v[i] = weight[i] * (up if y[i] > 0.0 else down)
        d[i] = weight[i] * (bent if y[i] > 0.0 else bent_down)
    for j in range(p):
        mean[j] = _dot(XT, j * n, n, 0.0, weight) / mass if intercept else 0.0
        rest, square, small[PULL, j] = _sums(XT, j * n, n, mean[j], weight, v)
        if intercept:
            # What rounding left of the mean. Σ v is zero, so that the gradient does not change.
            rest /= mass
            mean[j] += rest
            square = max(0.0, square - mass * rest * rest)
        norm[j] = math.sqrt(square)
    numbers[INTERCEPT], numbers[VALUE], numbers[KNOWN] = b, value, 1.0
    return mass


@kernel
def predict(XT, y, weight, intercept, mean, coef, vectors, numbers):
    """Evaluate the loss at β = coef, with the optimal intercept; the search for it starts at numbers[INTERCEPT]."""
    n = XT.shape[1]
    z, v, d, cost = vectors[Z], vectors[V], vectors[D], vectors[COST]
    for i in range(n):
        z[i] = 0.0
    for j in range(XT.shape[0]):
        if coef[j] != 0.0:
            _add_column(XT, j * n, n, mean[j], coef[j], z, 0)
    b = numbers[INTERCEPT]
    if intercept:
        b, value, _ = settled(y, z, weight, b, v, d, cost, False, 0.0)
    else:
        value, _, _ = evaluated(y, z, weight, b, v, d, cost)
    numbers[INTERCEPT], numbers[VALUE] = b, value


@inner(apart=True)
def _measure(y, weight, l1, l2, coef, vectors, small, numbers):
    """Write the objective, the best dual value and the gap to `numbers`, given the gradients.

    One dual point is c·v at the largest c ≤ 1 that satisfies every constraint. With l2, constraints are penalties, and
    c = 1 is another.
    """
    p, n = coef.shape[0], y.shape[0]
    z, v, cost = vectors[Z], vectors[V], vectors[COST]
    penalty, beyond, c, hard = 0.0, 0.0, 1.0, False
    for j in range(p):
        penalty += l1[j] * abs(coef[j]) + 0.5 * l2[j] * coef[j] * coef[j]
        size = abs(small[PULL, j])
        if size > l1[j]:
            c = min(c, l1[j] / size * _DOWN)
            if l2[j] > 0.0:
                beyond += (size - l1[j]) * (size - l1[j]) / (2.0 * l2[j])
            else:
                hard = True
    objective = numbers[VALUE] + penalty
    dual = 0.0  # of θ = 0
    if not hard:
        # Where θ is the gradient, loss and conjugate add up to its product with the predictions: no logarithms.
        b = numbers[INTERCEPT]
        s = splat(0.0)
        i = 0
        while i < n:
            rest = min(16, n - i)
            s = fma(load_part(v, i, rest), add(load_part(z, i, rest), splat(b)), s)
            i += 16
        dual = max(dual, numbers[VALUE] + total(s) - beyond)
    if 0.0 < c < 1.0:
        dual = max(dual, entropy_of(y, weight, v, c, cost))
    numbers[OBJECTIVE] = objective
    numbers[DUAL] = max(numbers[DUAL], dual)
    gap = objective - numbers[DUAL]
    # A gap below zero by more than rounding is a contradiction; the true gap is known to this size only.
    numbers[GAP] = gap if gap >= 0.0 else (0.0 if -gap <= 1e-10 * abs(objective) else -gap)


@inner(apart=True)
def _worst(norm, l1, l2, coef, small):
    """The largest violation of the optimality conditions, each divided by the norm of its column."""
    worst = 0.0
    for j in range(coef.shape[0]):
        slope = small[PULL, j] - l2[j] * coef[j]
        if coef[j] != 0.0:
            violation = abs(slope - (l1[j] if coef[j] > 0.0 else -l1[j]))
        else:
            violation = max(0.0, abs(slope) - l1[j])
        if norm[j] > 0.0:
            worst = max(worst, violation / norm[j])
    return worst


@inner(apart=True)
def _choose(norm, l1, l2, coef, small, column):
    """Fill `column` with the columns of the model, in rising order; return how many."""
    p, count = coef.shape[0], 0
    for j in range(p):
        slope = small[PULL, j] - l2[j] * coef[j]
        if norm[j] > 0.0 and (p <= _FEW or coef[j] != 0.0 or abs(slope) >= _NEAR * l1[j]):
            column[count] = j
            count += 1
    return count


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
def _load(norm, l1, l2, coef, small, column, k, H):
    """Fill the rows of `small` that describe the model at the current point."""
    for a in range(k):
        j = column[a]
        small[B, a], small[L1, a], small[UNIT, a] = coef[j], l1[j], norm[j]
        small[Q, a] = small[PULL, j] - l2[j] * coef[j]
    for a in range(k):
        if small[B, a] != 0.0:
            x = small[B, a]
            for c in range(k):
                small[Q, c] += x * H[a, c]


@inner(apart=True)
def _covered(l1, coef, small, column, k):
    """Whether the k columns, in rising order, contain all whose gradient is above l1."""
    c = 0
    for j in range(coef.shape[0]):
        if c < k and column[c] == j:
            c += 1
        elif abs(small[PULL, j]) > l1[j]:
            return False
    return True


@inner(apart=True)
def _advance(XT, y, weight, mean, intercept, l1, l2, mass, coef, vectors, small, column, k, numbers):
    """Move along the line to the model's minimum; return the share of the way, 0 if none decreases the objective."""
    n = XT.shape[1]
    z, v, d, way, there, cost = vectors[Z], vectors[V], vectors[D], vectors[WAY], vectors[THERE], vectors[COST]
    step, turn, predicted = small[STEP], 0.0, 0.0
    moved = False
    for a in range(k):
        j = column[a]
        step[a] = small[B, a] - coef[j]
        moved = moved or step[a] != 0.0
        turn -= small[LEAN, a] * step[a] / mass if mass > 0.0 else 0.0
        predicted += (l2[j] * coef[j] - small[PULL, j]) * step[a] + l1[j] * (abs(small[B, a]) - abs(coef[j]))
    if not moved:
        return 0.0
    for first in range(0, n, ROWS):
        count = min(ROWS, n - first)
        for i in range(first, first + count):
            way[i] = 0.0
        for a in range(k):
            if step[a] != 0.0:
                j = column[a]
                _add_column(XT, j * n + first, count, mean[j], step[a], way, first)
    b, old = numbers[INTERCEPT], numbers[OBJECTIVE]
    t = 1.0
    for _ in range(_HALVINGS):
        for i in range(n):
            there[i] = z[i] + t * way[i]
        value, _, _ = evaluated(y, there, weight, b + t * turn, v, d, cost)
        penalty = 0.0  # columns outside the model have coefficients of 0
        for a in range(k):
            j = column[a]
            x = coef[j] + t * step[a]
            penalty += l1[j] * abs(x) + 0.5 * l2[j] * x * x
        # The last term is the rounding error of two equal sums.
        if value + penalty <= old + _DECREASE * t * predicted + 4e-15 * abs(old):
            b += t * turn
            if intercept:
                b, value, _ = settled(y, there, weight, b, v, d, cost, True, value)
            for i in range(n):
                z[i] = there[i]
            for a in range(k):
                j = column[a]
                coef[j] = small[B, a] if t == 1.0 else coef[j] + t * step[a]
            numbers[INTERCEPT], numbers[VALUE] = b, value
            return t
        t *= 0.5
    # v and d are those of a point that was rejected.
    value, _, _ = evaluated(y, z, weight, b, v, d, cost)
    return 0.0


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
        for j in range(p):
            if numbers[KNOWN] == 0.0:
                small[PULL, j] = _dot(XT, j * n, n, mean[j], vectors[V])
            if norm[j] == 0.0:
                small[PULL, j] = 0.0
        numbers[KNOWN] = 1.0
        _measure(y, weight, l1, l2, coef, vectors, small, numbers)
        gap, wanted = numbers[GAP], min(goal, max(share * numbers[OBJECTIVE], least))
        if not gap > wanted or numbers[STEPS] == steps or not math.isfinite(numbers[OBJECTIVE]):
            return
        numbers[IDLE] += 1.0
        if numbers[WIDE] == 0.0 or gap <= 0.5 * numbers[WIDE] or numbers[HIGH] - numbers[OBJECTIVE] >= _SHARE * gap:
            numbers[IDLE], numbers[WIDE], numbers[HIGH] = 0.0, gap, numbers[OBJECTIVE]
        if numbers[IDLE] == _IDLE:
            numbers[STALLED] = 1.0
            return
        k = np.int64(numbers[COUNT])
        again = k >= _MANY and _AGAIN * gap * gap <= wanted * numbers[BEFORE] and _covered(l1, coef, small, column, k)
        if not again:
            k = _choose(norm, l1, l2, coef, small, column)
            numbers[COUNT] = k
            numbers[MASS] = _build(XT, mean, intercept, l2, vectors, small, column, k, block, products, H)
        _load(norm, l1, l2, coef, small, column, k, H)
        numbers[WORK] += minimise(
            H, small[Q], small[L1], small[UNIT], k, _CLOSE * _worst(norm, l1, l2, coef, small), small[B], small[H_B], U,
            small[INVERSE], small[STEP], column[p:],
        )  # fmt: skip
        t = _advance(
            XT, y, weight, mean, intercept, l1, l2, numbers[MASS], coef, vectors, small, column, k, numbers
        )  # fmt: skip
        numbers[KNOWN], numbers[BEFORE] = 0.0, gap if t == 1.0 else 0.0
        if t == 0.0 and not again:
            numbers[STALLED] = 1.0
            return
        numbers[STEPS] += 1.0
