"""Coordinate descent for penalised least squares on sufficient statistics, with the duality gap after every sweep.

    min over b:   ½‖y − Xb‖² + Σ_j l1_j|b_j| + ½ Σ_j l2_j b_j²        from G = XᵀX, q = Xᵀy and ‖y‖²

With h = G b the residual r = y − Xb has ‖r‖² = ‖y‖² − Σ b(2q − h), Xᵀr = q − h and y·r = ‖y‖² − b·q, so neither a sweep
nor the gap reads the data. θ = c·r is a dual point of value c·y·r − ½c²‖r‖² − Σ_j max(0, c|x_j·r| − l1_j)²/2l2_j.
"""

from __future__ import annotations

import math

from stretto.kernels.core.compile import inner, kernel

from .quadratic import soft

# Slots of `numbers`: the best dual value so far, in and out, and results.
DUAL, OBJECTIVE, GAP, SWEPT = range(4)
NUMBERS = 4


@inner
def _dual(c, square, product, pulls, l1, l2, positive):
    """The dual value at θ = c·r; −inf if θ violates a constraint that has no l2."""
    value = c * product - 0.5 * c * c * square
    for j in range(pulls.shape[0]):
        beyond = c * (pulls[j] if positive else abs(pulls[j])) - l1[j]
        if beyond > 0.0:
            if l2[j] <= 0.0:
                return -math.inf
            value -= beyond * beyond / (2.0 * l2[j])
    return value


@inner
def _measure(q, whole, l1, l2, positive, b, h, pulls, numbers):
    """Write the objective, the best dual value and the gap at b to `numbers`."""
    square, product, penalty, most = whole, whole, 0.0, math.inf
    for j in range(b.shape[0]):
        square -= b[j] * (2.0 * q[j] - h[j])
        product -= b[j] * q[j]
        penalty += l1[j] * abs(b[j]) + 0.5 * l2[j] * b[j] * b[j]
        pulls[j] = q[j] - h[j]
        size = pulls[j] if positive else abs(pulls[j])
        if size * most > l1[j]:
            # Rounded down, so that rounding violates no constraint.
            most = l1[j] / size * (1.0 - 2.0**-50)
    square = max(0.0, square)
    numbers[OBJECTIVE] = 0.5 * square + penalty
    # Along the ray of r, y·r / ‖r‖² is the best multiple, if the constraints permit it.
    best = product / square if square > 0.0 else 1.0
    c = max(0.0, min(best, most))
    dual = max(0.0, c * product - 0.5 * c * c * square)
    if most < 1.0:
        dual = max(dual, _dual(1.0, square, product, pulls, l1, l2, positive))
    numbers[DUAL] = max(numbers[DUAL], dual)
    gap = numbers[OBJECTIVE] - numbers[DUAL]
    # A gap below zero by more than rounding is a contradiction; the true gap is known to this size only.
    numbers[GAP] = gap if gap >= 0.0 else (0.0 if -gap <= 1e-10 * numbers[OBJECTIVE] else -gap)


@inner
def _descend(G, q, whole, l1, l2, positive, goal, share, least, sweeps, b, h, pulls, numbers):
    """`descend`."""
    p, step = G.shape
    for c in range(step):
        h[c] = 0.0
    for j in range(p):
        if b[j] != 0.0:
            for c in range(step):
                h[c] += b[j] * G[j, c]
    _measure(q, whole, l1, l2, positive, b, h, pulls, numbers)
    made = 0
    while numbers[GAP] > min(goal, max(share * numbers[OBJECTIVE], least)):
        if made == sweeps:
            return False
        for j in range(p):
            d = G[j, j]
            if d <= 0.0:
                continue
            old = b[j]
            new = soft(q[j] - h[j] + d * old, l1[j], positive) / (d + l2[j])
            if new != old:
                change = new - old
                b[j] = new
                for c in range(step):
                    h[c] += change * G[j, c]
        made += 1
        numbers[SWEPT] += 1.0
        _measure(q, whole, l1, l2, positive, b, h, pulls, numbers)
    return True


@kernel
def descend(G, q, whole, l1, l2, positive, goal, share, least, sweeps, b, h, pulls, numbers):
    """Make sweeps until the gap is at most min(goal, max(share · objective, least)), at most `sweeps`.

    G [p, step], zero beyond p; a column with G_jj = 0 is constant, and b_j = 0. whole = ‖y‖². b [p]: start and
    solution; h [step], pulls [p]: scratch space. Returns whether the gap is reached.
    """
    return _descend(G, q, whole, l1, l2, positive, goal, share, least, sweeps, b, h, pulls, numbers)


@kernel
def descend_path(
    G, q, whole, l1s, l2s, scale, positive, goal, least, sweeps, most, b, h, pulls, l1, l2, coefs, numbers
):
    """`descend` for one penalty after the other, each from the solution before it; return how many were solved.

    l1s, l2s [k]: penalties, of which those of a column are l1·scale_j and l2·scale_j². most: products of a coefficient
    and a column of G after which no further penalty is begun. b [p]: the start. coefs [k, p], numbers [k, NUMBERS]: the
    solutions, and what `descend` writes. l1, l2 [p]: scratch space. It ends at a penalty whose gap is not reached.
    """
    p = b.shape[0]
    made = 0.0
    for k in range(l1s.shape[0]):
        for j in range(p):
            l1[j] = l1s[k] * scale[j]
            l2[j] = l2s[k] * (scale[j] * scale[j])
        for i in range(NUMBERS):
            numbers[k, i] = 0.0
        if made > most:
            return k
        if not _descend(G, q, whole, l1, l2, positive, goal, math.inf, least, sweeps, b, h, pulls, numbers[k]):
            return k
        made += p * (1.0 + numbers[k, SWEPT])
        for j in range(p):
            coefs[k, j] = b[j]
    return l1s.shape[0]
