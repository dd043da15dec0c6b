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
    HIGH,
    IDLE,
    INVERSE,
    KNOWN,
    L1,
    NUMBERS,
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
    choose,
    enough_products,
    find_step,
    load_model,
    worst_violation,
)
from .small_model import minimise
from .softmax_rows import (
    CLASS,
    COST,
    THERE,
    WAY,
    WEIGHT,
    WRONG,
    P,
    Z,
    evaluate,
    gradient,
    mixed_entropy,
    pack,
    pair_products,
    sixteens,
    spread_step,
)

# Rows of `classes` [CLASSES, k + 4]: weight of each class, its log odds without features, sums of residuals, and
# scratch.
MASSES, ODDS, EXCESS, COMMON = range(4)
CLASSES = 4
# Of `numbers` [SIZE]: the slots of `logistic_step`, and the best dual value so far.
DUAL = NUMBERS
SIZE = NUMBERS + 1
_DECREASE = 1e-4  # share of the predicted decrease that a step must achieve
_HALVINGS = 30
_IDLE, _SHARE = 10, 0.1  # as in `logistic_step`
_DOWN = 1.0 - 2.0**-50  # rounds the scale of the dual point, so that rounding violates no constraint
_ROUNDING = 1e-13  # relative error of a sum
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
def _mixing(excess, masses, k, intercept, least, common):
    """Share of the common probabilities that makes the residuals of each class add up to zero; fills `common`."""
    share, whole = 0.0, 0.0
    if not intercept:
        return share
    for c in range(k):
        whole += masses[c]
        if excess[c] > least:
            share = max(share, excess[c] / (excess[c] + masses[c]))
    if share <= 1e-15:
        return 0.0
    size = 0.0
    for c in range(k):
        away = excess[c] if abs(excess[c]) > least else 0.0
        common[c] = max(0.0, masses[c] - (1.0 - share) / share * away) / whole
        size += common[c]
    for c in range(k):
        common[c] /= size
    return share


@inner(apart=True)
def _measure(p, k, intercept, l1, l2, coef, first, small, samples, classes, numbers):
    """Write the objective, the best dual value and the gap to `numbers`, given the gradients."""
    pull, masses, excess = small[PULL], classes[MASSES], classes[EXCESS]
    weight, wrong, cost = samples[WEIGHT], samples[WRONG], samples[COST]
    for i in range(0, weight.shape[0], 16):
        store(cost, i, mul(load(weight, i), load(wrong, i)))
    least, rest = _ROUNDING * added(cost), 0.0
    for c in range(k - 1):
        excess[c] = -pull[p * k + c]
        rest += pull[p * k + c]
    excess[k - 1] = rest
    common = classes[COMMON]
    share = _mixing(excess, masses, k, intercept, least, common)
    floor = 0.0
    if share > 0.0:
        for c in range(k):
            floor -= _mass(masses, k) * common[c] * log(max(common[c], 1e-300))
    penalty, beyond, most, hard, soft = 0.0, 0.0, 0.0, False, False
    for a in range(p * k):
        penalty += l1[a] * abs(coef[a]) + 0.5 * l2[a] * coef[a] * coef[a]
        size = abs((1.0 - share) * pull[a] + share * first[a])
        if size > l1[a]:
            if l2[a] > 0.0:
                beyond += (size - l1[a]) * (size - l1[a]) / (2.0 * l2[a])
            else:
                hard = True
            if l1[a] > 0.0:
                most = max(most, size / l1[a])
            else:
                soft = True
    dual = 0.0
    if not hard:
        dual = max(dual, (1.0 - share) * mixed_entropy(samples, 1.0) + share * floor - beyond)
    if not soft and most > 1.0:
        c = _DOWN / most
        dual = max(dual, (1.0 - share) * mixed_entropy(samples, c) + share * c * floor)
    objective = numbers[VALUE] + penalty
    numbers[OBJECTIVE] = objective
    numbers[DUAL] = max(numbers[DUAL], dual)
    gap = objective - numbers[DUAL]
    numbers[GAP] = gap if gap >= 0.0 else (0.0 if -gap <= 1e-10 * abs(objective) else -gap)


@inner
def _mass(masses, k):
    """Σ weight."""
    s = 0.0
    for c in range(k):
        s += masses[c]
    return s


@inner(apart=True)
def _ended(p, k, intercept, l1, l2, goal, steps, coef, first, small, samples, classes, numbers):
    """Compute the gap from the gradients; return whether the fit ends here."""
    numbers[KNOWN] = 1.0
    _measure(p, k, intercept, l1, l2, coef, first, small, samples, classes, numbers)
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
    mass = _mass(masses, k)
    for _ in range(_TURNS):
        worst = 0.0
        for c in range(k):
            s = splat(0.0)
            for top in range(0, n, ROWS):
                at = (top // ROWS * span + lead + c) * ROWS
                for i in range(0, sixteens(n, top), 16):
                    s = add(s, load(packed, at + i))
            excess[c] = total(s)
        share = _mixing(excess, masses, k, True, 0.0, common)
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
def _advance(n, p, k, span, lead, packed, scores, samples, l1, l2, coef, change, small, column, count, numbers):
    """Move along the line to the model's minimum; return the share of the way, 0 if none decreases the objective."""
    moved, _, predicted = find_step(l1, l2, 0.0, coef, small, column, count, numbers)
    if not moved:
        return 0.0
    for a in range(change.shape[0]):
        change[a] = 0.0
    for a in range(count):
        change[column[a]] = small[STEP, a]
    z, way, there, chance = scores[Z], scores[WAY], scores[THERE], scores[P]
    spread_step(n, p, k, span, packed, change, way)
    old, t = numbers[OBJECTIVE], 1.0
    for _ in range(_HALVINGS):
        by = splat(t)
        for i in range(0, z.shape[0], 16):
            store(there, i, fma(by, load(way, i), load(z, i)))
        value = evaluate(there, n, k, span, lead, packed, chance, samples)
        penalty = 0.0
        for a in range(p * k):
            x = coef[a] + t * change[a]
            penalty += l1[a] * abs(x) + 0.5 * l2[a] * x * x
        # The last term is the rounding error of two equal sums.
        if value + penalty <= old + _DECREASE * t * predicted + 4e-15 * abs(old):
            for i in range(0, z.shape[0], 16):
                store(z, i, load(there, i))
            for a in range(count):
                j = column[a]
                coef[j] = small[B, a] if t == 1.0 else coef[j] + t * change[j]
            numbers[VALUE] = value
            return t
        t *= 0.5
    evaluate(z, n, k, span, lead, packed, chance, samples)
    return 0.0


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
            small[H_B], U, small[INVERSE], small[STEP], column[size:],
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
