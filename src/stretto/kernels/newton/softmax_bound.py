"""Objective and duality gap of softmax regression, from the gradients and the samples' probabilities.

`solvers/softmax/point.py` has the formulas.
"""

from __future__ import annotations

from stretto.kernels.core.compile import inner
from stretto.kernels.linear.sample_losses import added
from stretto.kernels.numeric.scalar import log
from stretto.kernels.numeric.vector import load, mul, store

from .logistic_step import GAP, NUMBERS, OBJECTIVE, PULL, VALUE
from .softmax_rows import COST, WEIGHT, WRONG, mixed_entropy

# Rows of `classes` [CLASSES, k + 4]: weight of each class, its log odds without features, sums of residuals, and
# scratch.
MASSES, ODDS, EXCESS, COMMON = range(4)
CLASSES = 4
# Of `numbers` [SIZE]: the slots of `logistic_step`, and the best dual value so far.
DUAL = NUMBERS
SIZE = NUMBERS + 1
_DOWN = 1.0 - 2.0**-50  # rounds the scale of the dual point, so that rounding violates no constraint
_ROUNDING = 1e-13  # relative error of a sum


@inner(apart=True)
def mixing(excess, masses, k, intercept, least, common):
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
def measure(p, k, intercept, l1, l2, coef, first, small, samples, classes, numbers):
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
    share = mixing(excess, masses, k, intercept, least, common)
    floor = 0.0
    if share > 0.0:
        for c in range(k):
            floor -= total_mass(masses, k) * common[c] * log(max(common[c], 1e-300))
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
def total_mass(masses, k):
    """Σ weight."""
    s = 0.0
    for c in range(k):
        s += masses[c]
    return s
