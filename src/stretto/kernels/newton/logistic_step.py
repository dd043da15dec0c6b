"""Newton steps of penalised logistic regression: what does not depend on how X is stored.

The callers (`logistic_fit`, `sparse_fit`) compute gradients, products and predictions.

A step moves the intercept as the model predicts, so that afterwards Σ v is small but not zero. The dual point is then
θ = v − c·d with c = Σ v / Σ d: Σ θ = 0, and for |c| < 1 each θ is between zero and the weight of its sample. The
gradients are Xᵀθ, those of the model without the intercept. Only where |c| is large the best intercept is searched for.
"""

from __future__ import annotations

import math

import numpy as np

from stretto.kernels.core.compile import inner
from stretto.kernels.linear.sample_losses import added, entropy_of, evaluated, log_odds, settled
from stretto.kernels.numeric.vector import add, fma, load_part, splat, total

# Rows of `vectors` [VECTORS, n]: predictions without intercept, −∂loss/∂z, ∂²loss/∂z², the step's predictions,
# those after it, and scratch.
Z, V, D, WAY, THERE, COST = range(6)
VECTORS = 6
# Rows of `small` [SMALL, width]: gradients Xᵀθ; then, of the chosen columns: coefficients, linear term, penalty,
# unit of a violation, product with H, inverse pivots, step, and Σ d x; Xᵀd of all columns, scratch.
PULL, B, Q, L1, UNIT, H_B, INVERSE, STEP, LEAN, DRIFT = range(10)
SMALL = 10
# Slots of `numbers`: intercept of the centred columns, loss, Σ v (0 if the intercept is the best one, or none is
# fitted) and Σ d (in and out); results.
# KNOWN: whether the gradients in `small` are those at the start. BEFORE: the gap before the last step, 0 if its
# products cannot be used again; COUNT, MASS: their number of columns, and Σ d. IDLE: steps since the last progress;
# WIDE, HIGH: gap and objective then.
INTERCEPT, VALUE, PULLED, BEND, KNOWN, BEFORE, COUNT, MASS, IDLE, WIDE, HIGH, OBJECTIVE, GAP, STEPS, WORK, STALLED = (
    range(16)
)
NUMBERS = 16

_NEAR = 0.9  # share of l1 from which on a gradient's column is in the model
_FEW = 16  # columns that are all in the model
CLOSE = 5e-2  # violation of the model's minimum, as a share of the violation at its start
_DECREASE = 1e-4  # share of the predicted decrease that a step must achieve
_POOR = 0.2  # share below which a part of the step is too long: a quadratic function decreases by half or more
HALVINGS = 30
# Steps without progress after which the fit ends. Progress halves the gap, or lowers the objective by a share of it.
_IDLE, _SHARE = 10, 0.1
_MANY = 12  # columns whose products take longer than the other passes of a step
# A Newton step with a relative change ρ of the curvature leaves ρ/2 of the error, and one more with the old curvature ρ
# of that: the gap after it is at most the last one times four times the last reduction.
_AGAIN = 4.0
_SHIFT = 0.25  # the largest |c| at which the intercept stays as the model predicted
_DOWN = 1.0 - 2.0**-50  # rounds the scale of the dual point, so that rounding violates no constraint


@inner(apart=True)
def evaluate_zero(y, weight, intercept, vectors, pair, numbers):
    """The loss at β = 0, with the optimal intercept; return Σ weight. pair [6, 2]: scratch."""
    n = y.shape[0]
    z, v, d, cost = vectors[Z], vectors[V], vectors[D], vectors[COST]
    # All samples of a class have the same loss per weight: two samples, with the weights of the classes, stand for all.
    sign, none, both = pair[0], pair[1], pair[2]
    sign[0], sign[1] = 1.0, -1.0
    for c in range(2):
        for i in range(n):
            cost[i] = weight[i] if y[i] == sign[c] else 0.0
        none[c], both[c] = 0.0, added(cost)
    b = 0.0
    if intercept:
        b = log_odds(sign, both, pair[5])
        b, value, _ = settled(sign, none, both, b, pair[3], pair[4], pair[5], False, 0.0)
    else:
        value, _, _ = evaluated(sign, none, both, b, pair[3], pair[4])
    for k in range(3, 5):
        for c in range(2):
            pair[k, c] = pair[k, c] / both[c] if both[c] > 0.0 else 0.0
    up, down, bent, bent_down = pair[3, 0], pair[3, 1], pair[4, 0], pair[4, 1]
    for i in range(n):
        z[i] = 0.0
        v[i] = weight[i] * (up if y[i] > 0.0 else down)
        d[i] = weight[i] * (bent if y[i] > 0.0 else bent_down)
    numbers[INTERCEPT], numbers[VALUE], numbers[PULLED], numbers[KNOWN] = b, value, 0.0, 1.0
    return both[0] + both[1]


@inner(apart=True)
def evaluate(y, weight, intercept, vectors, numbers):
    """The loss at the predictions, with the optimal intercept; the search for it starts at numbers[INTERCEPT]."""
    z, v, d, cost = vectors[Z], vectors[V], vectors[D], vectors[COST]
    b = numbers[INTERCEPT]
    if intercept:
        b, value, bend = settled(y, z, weight, b, v, d, cost, False, 0.0)
    else:
        value, _, bend = evaluated(y, z, weight, b, v, d)
    numbers[INTERCEPT], numbers[VALUE], numbers[PULLED], numbers[BEND] = b, value, 0.0, bend


@inner
def shift_of(numbers):
    """c, by which θ = v − c·d differs from v."""
    return numbers[PULLED] / numbers[BEND] if numbers[PULLED] != 0.0 else 0.0


@inner(apart=True)
def set_dual_point(vectors, c):
    """vectors[THERE] = θ."""
    v, d, there = vectors[V], vectors[D], vectors[THERE]
    for i in range(v.shape[0]):
        there[i] = v[i] - c * d[i]


@inner(apart=True)
def _measure(y, weight, l1, l2, goal, share, least, last, coef, vectors, small, numbers):
    """Write the objective and the gap to `numbers`, given the gradients; return the gap that is wanted.

    One dual point is s·θ at the largest s ≤ 1 that satisfies every constraint. Its value takes two logarithms for each
    sample. Unless this is the `last` look, they are left out where an upper bound of it shows that the gap is larger
    than wanted; the bound gives the gap then. With l2, constraints are penalties, and s = 1 is another dual point.
    """
    p, n = coef.shape[0], y.shape[0]
    z, v, d, cost = vectors[Z], vectors[V], vectors[D], vectors[COST]
    penalty, beyond, s, hard = 0.0, 0.0, 1.0, False
    for j in range(p):
        penalty += l1[j] * abs(coef[j]) + 0.5 * l2[j] * coef[j] * coef[j]
        size = abs(small[PULL, j])
        if size > l1[j]:
            s = min(s, l1[j] / size * _DOWN)
            if l2[j] > 0.0:
                beyond += (size - l1[j]) * (size - l1[j]) / (2.0 * l2[j])
            else:
                hard = True
    objective = numbers[VALUE] + penalty
    wanted = min(goal, max(share * objective, least))
    # Where θ is the gradient, loss and conjugate add up to its product with the predictions: no logarithms. The dual is
    # concave, so this is an upper bound for other θ. For v − c·d, with |c| < 1, the rest is bounded as well.
    b, c = numbers[INTERCEPT], shift_of(numbers)
    sums, away = splat(0.0), splat(-c)
    i = 0
    while i < n:
        rest = min(16, n - i)
        theta = fma(away, load_part(d, i, rest), load_part(v, i, rest))
        sums = fma(theta, add(load_part(z, i, rest), splat(b)), sums)
        i += 16
    product = total(sums)
    dual = 0.0  # of θ = 0
    if not hard:
        lost = 0.5 * c * c * numbers[BEND] / ((1.0 - abs(c)) * (1.0 - abs(c))) if c != 0.0 else 0.0
        dual = max(dual, numbers[VALUE] + product - lost - beyond)
    if 0.0 < s < 1.0 and objective - dual > wanted:
        bound = max(dual, numbers[VALUE] + s * product)
        if last or not objective - bound > wanted:
            set_dual_point(vectors, c)
            bound = max(dual, entropy_of(y, weight, vectors[THERE], s, cost))
        dual = bound
    gap = objective - dual
    numbers[OBJECTIVE] = objective
    # A gap below zero by more than rounding is a contradiction; the true gap is known to this size only.
    numbers[GAP] = gap if gap >= 0.0 else (0.0 if -gap <= 1e-10 * abs(objective) else -gap)
    return wanted


@inner(apart=True)
def worst_violation(norm, l1, l2, coef, small):
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
def choose(norm, l1, l2, coef, small, column):
    """Fill `column` with the columns of the model, in rising order; return how many."""
    p, count = coef.shape[0], 0
    for j in range(p):
        slope = small[PULL, j] - l2[j] * coef[j]
        if norm[j] > 0.0 and (p <= _FEW or coef[j] != 0.0 or abs(slope) >= _NEAR * l1[j]):
            column[count] = j
            count += 1
    return count


@inner(apart=True)
def ended(y, weight, l1, l2, goal, share, least, steps, coef, vectors, small, numbers):
    """Compute the gap from the gradients; return whether the fit ends here, and the gap that is wanted."""
    numbers[KNOWN] = 1.0
    last = numbers[STEPS] == steps
    wanted = _measure(y, weight, l1, l2, goal, share, least, last, coef, vectors, small, numbers)
    gap = numbers[GAP]
    if not gap > wanted or last or not math.isfinite(numbers[OBJECTIVE]):
        return True, wanted
    numbers[IDLE] += 1.0
    if numbers[WIDE] == 0.0 or gap <= 0.5 * numbers[WIDE] or numbers[HIGH] - numbers[OBJECTIVE] >= _SHARE * gap:
        numbers[IDLE], numbers[WIDE], numbers[HIGH] = 0.0, gap, numbers[OBJECTIVE]
    if numbers[IDLE] == _IDLE:
        numbers[STALLED] = 1.0
        _measure(y, weight, l1, l2, goal, share, least, True, coef, vectors, small, numbers)
        return True, wanted
    return False, wanted


@inner(apart=True)
def enough_products(l1, coef, small, column, wanted, numbers):
    """Whether one more step with the products of the last one should reach the gap that is wanted."""
    k, gap = np.int64(numbers[COUNT]), numbers[GAP]
    return k >= _MANY and _AGAIN * gap * gap <= wanted * numbers[BEFORE] and _covered(l1, coef, small, column, k)


@inner(apart=True)
def load_model(norm, l1, l2, coef, small, column, k, H):
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
def find_step(l1, l2, mass, coef, small, column, k, numbers):
    """The step to the model's minimum, in small[STEP].

    Return whether anything moves, the step of the intercept, and the predicted change of the objective.
    """
    turn = shift_of(numbers)
    step, predicted, moved = small[STEP], -turn * numbers[PULLED], turn != 0.0
    for a in range(k):
        j = column[a]
        step[a] = small[B, a] - coef[j]
        moved = moved or step[a] != 0.0
        turn -= small[LEAN, a] * step[a] / mass if mass > 0.0 else 0.0
        predicted += (l2[j] * coef[j] - small[PULL, j]) * step[a] + l1[j] * (abs(small[B, a]) - abs(coef[j]))
    return moved, turn, predicted


@inner
def penalty_at(l1, l2, coef, step, column, k, t):
    """The penalty at coef + t·step; columns outside the model have coefficients of 0."""
    penalty = 0.0
    for a in range(k):
        j = column[a]
        x = coef[j] + t * step[a]
        penalty += l1[j] * abs(x) + 0.5 * l2[j] * x * x
    return penalty


@inner
def accepts(objective, predicted, t, numbers):
    """Whether a step to this objective is good enough. The last term is the rounding error of two equal sums."""
    old = numbers[OBJECTIVE]
    return objective <= old + _DECREASE * t * predicted + 4e-15 * abs(old)


@inner(apart=True)
def move(t, coef, vectors, small, column, k):
    """Make vectors[THERE], a share t of the step away, the current predictions, and change the coefficients."""
    z, there, step = vectors[Z], vectors[THERE], small[STEP]
    for i in range(z.shape[0]):
        z[i] = there[i]
    for a in range(k):
        j = column[a]
        coef[j] = small[B, a] if t == 1.0 else coef[j] + t * step[a]


@inner(apart=True)
def settle(y, weight, intercept, b, value, pull, bend, vectors, numbers):
    """Write intercept, loss, Σ v and Σ d at the predictions to `numbers`; if this intercept is bad, with the best."""
    pull = pull if intercept else 0.0
    if not abs(pull) <= _SHIFT * bend:
        z, cost = vectors[Z], vectors[COST]
        b, value, bend = settled(y, z, weight, b, vectors[V], vectors[D], cost, True, value)
        pull = 0.0
    numbers[INTERCEPT], numbers[VALUE], numbers[PULLED], numbers[BEND] = b, value, pull, bend


@inner(apart=True)
def settle_step(y, weight, intercept, b, value, pull, bend, vectors, small, p, numbers):
    """`settle`, where `small` holds Xᵀv and Xᵀd: where the intercept stays, Xᵀθ follows from them."""
    settle(y, weight, intercept, b, value, pull, bend, vectors, numbers)
    numbers[KNOWN] = 0.0
    if not intercept or numbers[PULLED] == pull:
        c = shift_of(numbers)
        for j in range(p):
            small[PULL, j] -= c * small[DRIFT, j] if c != 0.0 else 0.0
        numbers[KNOWN] = 1.0


@inner
def too_long(objective, predicted, t, numbers):
    """Whether a part t < 1 of the step, to this objective, achieves so little that a smaller part may be better."""
    return t < 1.0 and numbers[OBJECTIVE] - objective < -_POOR * t * predicted


@inner(apart=True)
def _evaluate_at(t, turn, y, weight, l1, l2, coef, vectors, small, column, k, numbers):
    """Evaluate the loss after a share t of the step; return the objective, the loss, Σ v and Σ d."""
    z, way, there = vectors[Z], vectors[WAY], vectors[THERE]
    for i in range(z.shape[0]):
        there[i] = z[i] + t * way[i]
    value, pull, bend = evaluated(y, there, weight, numbers[INTERCEPT] + t * turn, vectors[V], vectors[D])
    return value + penalty_at(l1, l2, coef, small[STEP], column, k, t), value, pull, bend


@inner(apart=True)
def search_line(y, weight, intercept, l1, l2, turn, predicted, t, coef, vectors, small, column, k, numbers):
    """Move along `vectors[WAY]`, from a share t of the step on; return the share, 0 if none is good enough.

    The share is halved until the step is good enough. Where that is too long, the share is halved on while the
    objective falls.
    """
    tried, good = 0, False
    objective, value, pull, bend = 0.0, 0.0, 0.0, 0.0
    while tried < HALVINGS and not good:
        objective, value, pull, bend = _evaluate_at(
            t, turn, y, weight, l1, l2, coef, vectors, small, column, k, numbers
        )
        tried += 1
        good = accepts(objective, predicted, t, numbers)
        t *= 1.0 if good else 0.5
    if not good:
        # v and d are those of a point that was rejected.
        evaluated(y, vectors[Z], weight, numbers[INTERCEPT], vectors[V], vectors[D])
        return 0.0
    further = too_long(objective, predicted, t, numbers)
    while further and tried < HALVINGS:
        best = objective
        objective, value, pull, bend = _evaluate_at(
            0.5 * t, turn, y, weight, l1, l2, coef, vectors, small, column, k, numbers
        )
        tried += 1
        further = objective < best
        if further:
            t *= 0.5
        else:
            _, value, pull, bend = _evaluate_at(t, turn, y, weight, l1, l2, coef, vectors, small, column, k, numbers)
    move(t, coef, vectors, small, column, k)
    settle(y, weight, intercept, numbers[INTERCEPT] + t * turn, value, pull, bend, vectors, numbers)
    return t
