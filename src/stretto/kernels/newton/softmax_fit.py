"""Softmax regression of few dense features and classes: a whole fit in one call, in one thread.

    min over W, b:   Σ_i w_i (log Σ_c e^z_ic − z_iy)  +  Σ_j l1_j‖w_j‖₁ + ½ l2_j‖w_j‖²          z_i = x_i W + b

Each step builds the quadratic model of the loss (`softmax_rows`), minimises it (`small_model`) and searches along the
line. The Hessian consists of blocks of one product of the features for each pair of classes. At W = 0 all samples have
the same probabilities, and one product is enough. As in `logistic_fit`, columns are centred, the model takes the
coefficients that are not zero or whose gradient is near l1, and the duality gap is computed before each step.

The intercepts are coordinates without penalty; the last one stays, because a constant added to all changes nothing. The
dual point needs residuals that add up to zero in each class. After a step, the intercepts alone are moved until that
holds nearly, and the rest is mixed away (`solvers/softmax/point.py` has the formulas).
"""

from __future__ import annotations

import math

import numpy as np

from stretto.kernels.core.compile import inner, kernel
from stretto.kernels.linear.sample_losses import added
from stretto.kernels.numeric.scalar import log
from stretto.kernels.numeric.vector import add, fma, load, mul, splat, store, total

from .block_products import ROWS
from .logistic_step import (
    BEFORE,
    CLOSE,
    COUNT,
    GAP,
    H_B,
    HALVINGS,
    HIGH,
    IDLE,
    INVERSE,
    KNOWN,
    L1,
    OBJECTIVE,
    PULL,
    STALLED,
    STEP,
    STEPS,
    UNIT,
    VALUE,
    WIDE,
    WORK,
    B,
    Q,
    accepts,
    choose,
    enough_products,
    find_step,
    load_model,
    too_long,
    worst_violation,
)
from .small_model import minimise
from .softmax_bound import COMMON, EXCESS, MASSES, ODDS, measure, mixing, total_mass
from .softmax_rows import (
    CLASS,
    THERE,
    WAY,
    WEIGHT,
    P,
    Z,
    evaluate,
    gradient,
    pack,
    pair_products,
    sixteens,
    spread_step,
)

_IDLE, _SHARE = 10, 0.1  # as in `logistic_step`
_TURNS = 4  # Newton steps of the intercepts alone, at most
_TURN = 0.05  # share of the wanted gap that mixing the rest of the residuals may cost


@kernel
def prepare(
    X, y, weight, intercept, k, span, lead, mean, square, packed, scores, samples, classes, tile, first, numbers
):
    """Copy X [n, p] into blocks, and evaluate the model without features: first [(p + 1)·k] are its gradients.

    y [n]: classes; mean [p]: means under the weights, 0 without an intercept; square [p]: Σ weight·(x − mean)².
    """
    n, p = X.shape
    w, own = samples[WEIGHT], samples[CLASS]
    masses, odds = classes[MASSES], classes[ODDS]
    for i in range(w.shape[0]):
        w[i], own[i] = 0.0, 0.0
    for i in range(n):
        w[i], own[i] = weight[i], np.float64(y[i])
    mass = added(w)
    for j in range(p):
        mean[j], square[j] = 0.0, 0.0
    if intercept:
        for i in range(n):
            s = weight[i] / mass
            for j in range(p):
                mean[j] += s * np.float64(X[i, j])
    pack(X, mean, span, packed)
    for top in range(0, n, ROWS):
        at, count = top * span, sixteens(n, top)
        for j in range(p):
            s = splat(0.0)
            for i in range(0, count, 16):
                x = load(packed, at + j * ROWS + i)
                s = fma(mul(x, x), load(w, top + i), s)
            square[j] += total(s)
    for c in range(k):
        masses[c], odds[c] = 0.0, 0.0
    for i in range(n):
        masses[y[i]] += weight[i]
    if intercept:
        middle = 0.0
        for c in range(k):
            odds[c] = log(max(masses[c] / mass, 1e-300))
            middle += odds[c] / k
        for c in range(k):
            odds[c] -= middle
    z = scores[Z]
    for top in range(0, n, ROWS):
        for c in range(k):
            for i in range(ROWS):
                z[top * k + c * ROWS + i] = odds[c]
    numbers[VALUE] = evaluate(z, n, k, span, lead, packed, scores[P], samples)
    gradient(n, p, k, span, lead, packed, tile, first)
    numbers[KNOWN] = 1.0
    return mass


@kernel
def predict(n, p, k, span, lead, packed, coef, scores, samples, numbers):
    """Evaluate the loss at coefficients [(p + 1)·k]."""
    spread_step(n, p, k, span, packed, coef, scores[Z])
    numbers[VALUE] = evaluate(scores[Z], n, k, span, lead, packed, scores[P], samples)
    numbers[KNOWN] = 0.0


@inner(apart=True)
def _ended(p, k, intercept, l1, l2, goal, steps, coef, first, small, samples, classes, numbers):
    """Compute the gap from the gradients; return whether the fit ends here."""
    numbers[KNOWN] = 1.0
    measure(p, k, intercept, l1, l2, coef, first, small, samples, classes, numbers)
    gap = numbers[GAP]
    if not gap > goal or numbers[STEPS] == steps or not math.isfinite(numbers[OBJECTIVE]):
        return True
    numbers[IDLE] += 1.0
    if numbers[WIDE] == 0.0 or gap <= 0.5 * numbers[WIDE] or numbers[HIGH] - numbers[OBJECTIVE] >= _SHARE * gap:
        numbers[IDLE], numbers[WIDE], numbers[HIGH] = 0.0, gap, numbers[OBJECTIVE]
    if numbers[IDLE] == _IDLE:
        numbers[STALLED] = 1.0
        return True
    return False


@inner(apart=True)
def _build(n, p, k, span, packed, chance, samples, l2, coef, column, count, feature, place, block, products, H):
    """H of the model of `count` coordinates, in rising order. feature [p + 1], place [(p + 1)·k]: scratch."""
    even = True
    for a in range(p * k):
        even = even and coef[a] == 0.0
    m = 0
    for a in range(count):
        j = column[a] // k
        if m == 0 or feature[m - 1] != j:
            feature[m] = j
            for c in range(k):
                place[m * k + c] = -1
            m += 1
        place[(m - 1) * k + column[a] % k] = a
    width = (m + 3) // 4 * 4
    pair_products(n, k, span, packed, chance, samples[WEIGHT], feature, m, width, even, block, products)
    for a in range(count):
        for b in range(count):
            H[a, b] = 0.0
    pair = 0
    for c in range(k):
        for d in range(c + 1, k):
            by = chance[c * ROWS] * chance[d * ROWS] if even else 1.0
            at = 0 if even else pair * width * width
            for r in range(m):
                rc, rd = place[r * k + c], place[r * k + d]
                for q in range(r + 1):
                    x = by * products[at + r * width + q]
                    qc, qd = place[q * k + c], place[q * k + d]
                    if rc >= 0 and qc >= 0:
                        H[rc, qc] += x
                    if rd >= 0 and qd >= 0:
                        H[rd, qd] += x
                    if rc >= 0 and qd >= 0:
                        H[max(rc, qd), min(rc, qd)] -= x
                    if r != q and rd >= 0 and qc >= 0:
                        H[max(rd, qc), min(rd, qc)] -= x
            pair += 1
    for a in range(count):
        for b in range(a):
            H[b, a] = H[a, b]
        H[a, a] = max(0.0, H[a, a]) + l2[column[a]]


@inner(apart=True)
def _settle(n, p, k, span, lead, packed, scores, samples, classes, goal, coef, numbers):
    """Move the intercepts until the residuals of each class nearly add up to zero."""
    z, there, chance, weight = scores[Z], scores[THERE], scores[P], samples[WEIGHT]
    masses, excess, common = classes[MASSES], classes[EXCESS], classes[COMMON]
    H, step = classes[4 : 4 + k], classes[4 + k]
    mass = total_mass(masses, k)
    for _ in range(_TURNS):
        worst = 0.0
        for c in range(k):
            s = splat(0.0)
            for top in range(0, n, ROWS):
                at = (top // ROWS * span + lead + c) * ROWS
                for i in range(0, sixteens(n, top), 16):
                    s = add(s, load(packed, at + i))
            excess[c] = total(s)
        share = mixing(excess, masses, k, True, 0.0, common)
        worst = share * mass * log(np.float64(k))
        if not worst > _TURN * goal:
            return
        for c in range(k):
            for d in range(c):
                s = splat(0.0)
                for top in range(0, n, ROWS):
                    base = top * k
                    for i in range(0, sixteens(n, top), 16):
                        q = mul(load(chance, base + c * ROWS + i), load(chance, base + d * ROWS + i))
                        s = fma(q, load(weight, top + i), s)
                H[c, d] = -total(s)
                H[d, c] = H[c, d]
        for c in range(k):
            H[c, c] = 0.0
            step[c] = -excess[c]
        for c in range(k):
            s = 0.0
            for d in range(k):
                s -= H[c, d] if d != c else 0.0
            H[c, c] = s
        # All intercepts but the last: the Hessian of these is not singular, unless a class has no curvature.
        last = k - 1
        for c in range(last):
            if not H[c, c] > 1e-300:
                return
            for d in range(c + 1, last):
                by = H[d, c] / H[c, c]
                for e in range(c, last):
                    H[d, e] -= by * H[c, e]
                step[d] -= by * step[c]
        for c in range(last - 1, -1, -1):
            s = step[c]
            for d in range(c + 1, last):
                s -= H[c, d] * step[d]
            step[c] = s / H[c, c]
        step[last] = 0.0
        for top in range(0, n, ROWS):
            for c in range(k):
                at, by = top * k + c * ROWS, splat(step[c])
                for i in range(0, sixteens(n, top), 16):
                    store(there, at + i, add(load(z, at + i), by))
        value = evaluate(there, n, k, span, lead, packed, chance, samples)
        if not value <= numbers[VALUE] * (1.0 + 4e-15):
            numbers[VALUE] = evaluate(z, n, k, span, lead, packed, chance, samples)
            return
        numbers[VALUE] = value
        for i in range(z.shape[0]):
            z[i] = there[i]
        for c in range(last):
            coef[p * k + c] += step[c]


@inner(apart=True)
def _evaluate_at(t, n, p, k, span, lead, packed, scores, samples, l1, l2, coef, change):
    """Evaluate the loss after a share t of the change of the coefficients; return the objective and the loss."""
    z, way, there = scores[Z], scores[WAY], scores[THERE]
    by = splat(t)
    for i in range(0, z.shape[0], 16):
        store(there, i, fma(by, load(way, i), load(z, i)))
    value = evaluate(there, n, k, span, lead, packed, scores[P], samples)
    penalty = 0.0
    for a in range(p * k):
        x = coef[a] + t * change[a]
        penalty += l1[a] * abs(x) + 0.5 * l2[a] * x * x
    return value + penalty, value


@inner(apart=True)
def _advance(n, p, k, span, lead, packed, scores, samples, l1, l2, coef, change, small, column, count, numbers):
    """Move along the line to the model's minimum; return the share of the way, 0 if none decreases the objective."""
    moved, _, predicted = find_step(l1, l2, 0.0, coef, small, column, count, numbers)
    if not moved:
        return 0.0
    for a in range(change.shape[0]):
        change[a] = 0.0
    for a in range(count):
        change[column[a]] = small[STEP, a]
    z, there = scores[Z], scores[THERE]
    spread_step(n, p, k, span, packed, change, scores[WAY])
    t, tried, good = 1.0, 0, False
    objective, value = 0.0, 0.0
    while tried < HALVINGS and not good:
        objective, value = _evaluate_at(t, n, p, k, span, lead, packed, scores, samples, l1, l2, coef, change)
        tried += 1
        good = accepts(objective, predicted, t, numbers)
        t *= 1.0 if good else 0.5
    if not good:
        evaluate(z, n, k, span, lead, packed, scores[P], samples)
        return 0.0
    further = too_long(objective, predicted, t, numbers)
    while further and tried < HALVINGS:
        best = objective
        objective, value = _evaluate_at(0.5 * t, n, p, k, span, lead, packed, scores, samples, l1, l2, coef, change)
        tried += 1
        further = objective < best
        t *= 0.5 if further else 1.0
        if not further:
            _, value = _evaluate_at(t, n, p, k, span, lead, packed, scores, samples, l1, l2, coef, change)
    for i in range(0, z.shape[0], 16):
        store(z, i, load(there, i))
    for a in range(count):
        j = column[a]
        coef[j] = small[B, a] if t == 1.0 else coef[j] + t * change[j]
    numbers[VALUE] = value
    return t


@kernel
def fit(
    n, p, k, span, lead, packed, intercept, norm, l1, l2, first, goal, steps, coef, scores, samples, classes, small,
    column, tile, change, block, products, H, U, numbers,
):  # fmt: skip
    """Make Newton steps until the gap is at most `goal`, at most `steps`.

    norm, l1, l2, coef [(p + 1)·k]; coef is the start and the solution, and scores, samples and numbers are its
    state. norm: 0 for coefficients that stay. Results in `numbers`; all arrays from `tile` on are scratch.
    """
    size = (p + 1) * k
    shifts = k  # without an L2 penalty, a constant added to all classes of a feature changes the penalty alone
    for a in range(p * k):
        shifts = shifts if l1[a] > 0.0 and l2[a] == 0.0 else 0
    numbers[STEPS], numbers[WORK], numbers[STALLED] = 0.0, 0.0, 0.0
    while True:
        if numbers[KNOWN] == 0.0:
            gradient(n, p, k, span, lead, packed, tile, small[PULL])
        for a in range(size):
            if norm[a] == 0.0:
                small[PULL, a] = 0.0
        if _ended(p, k, intercept, l1, l2, goal, steps, coef, first, small, samples, classes, numbers):
            return
        count, gap = np.int64(numbers[COUNT]), numbers[GAP]
        again = enough_products(l1, coef, small, column, goal, numbers)
        if not again:
            count = choose(norm, l1, l2, coef, small, column)
            numbers[COUNT] = count
            _build(
                n, p, k, span, packed, scores[P], samples, l2, coef, column, count, column[2 * size :],
                column[3 * size :], block, products, H,
            )  # fmt: skip
        load_model(norm, l1, l2, coef, small, column, count, H)
        numbers[WORK] += minimise(
            H, small[Q], small[L1], small[UNIT], count, CLOSE * worst_violation(norm, l1, l2, coef, small), small[B],
            small[H_B], U, small[INVERSE], small[STEP], column[size:], column, shifts,
        )  # fmt: skip
        t = _advance(
            n, p, k, span, lead, packed, scores, samples, l1, l2, coef, change, small, column, count, numbers
        )  # fmt: skip
        if t > 0.0 and intercept:
            _settle(n, p, k, span, lead, packed, scores, samples, classes, goal, coef, numbers)
        numbers[KNOWN], numbers[BEFORE] = 0.0, gap if t == 1.0 else 0.0
        if t == 0.0 and not again:
            numbers[STALLED] = 1.0
            return
        numbers[STEPS] += 1.0
