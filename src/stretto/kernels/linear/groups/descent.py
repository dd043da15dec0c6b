"""Block coordinate descent for a quadratic loss with penalties of groups, by inner products of the columns.

    ½ tr(W H Wᵀ) − tr(q Wᵀ) + Σ_g group_l1_g ‖W_g‖ + l1 Σ |w|          W [k, m]: k outputs, m columns

Group g has the columns bounds[g] … bounds[g + 1] − 1, and ‖W_g‖ is the root of the sum of squares of its coefficients
in all outputs. H [m, step] has rows that are padded to `step`. Ridge penalties are on its diagonal.
"""

from __future__ import annotations

import math

from stretto.kernels.core.compile import inner, kernel
from stretto.kernels.numeric.extrapolation import MOST, combine, weigh_differences

_POWERS = 30  # steps of the power method
_SURE = 1.02  # safety factor of the largest eigenvalue; the descent needs no more than half of it
_STEPS = 8  # proximal steps in a group at a visit, at most
_LEFT = 0.1  # of the length of the first of these steps, at which they end
_TURNS = 10  # extrapolations between two sweeps over all groups, at most
_ENOUGH = 0.3  # of the violation of a sweep over all groups, to which the non-zero ones are solved

# Slots of `said`: the largest violation of the last sweep over all groups, sweeps, extrapolations that were taken.
WORST, SWEPT, TAKEN = range(3)
RESULTS = 3


@inner(apart=True)
def largest_curvature(H, base, stride, size, x, made):
    """The largest eigenvalue of the block [size, size] that begins at H[base], or a little more. x, made: scratch."""
    if size == 1:
        return H[base]
    for i in range(size):
        x[i] = 1.0 + 0.1 * ((i * 7) % 11)
    value = 0.0
    for _ in range(_POWERS):
        norm = 0.0
        for i in range(size):
            norm += x[i] * x[i]
        norm = math.sqrt(norm)
        if norm == 0.0:
            break
        for i in range(size):
            x[i] /= norm
        value = 0.0
        for i in range(size):
            total = 0.0
            for j in range(size):
                total += H[base + i * stride + j] * x[j]
            made[i] = total
            value += total * total
        value = math.sqrt(value)
        for i in range(size):
            x[i] = made[i]
    trace, most = 0.0, 0.0
    for i in range(size):
        trace += H[base + i * stride + i]
        most = max(most, H[base + i * stride + i])
    return min(trace, _SURE * max(value, most))


@inner(apart=True)
def descend_group(H, base, stride, size, outputs, w, g, s, group_l1, l1, curve):
    """Minimise over one group. w, g [outputs·size]: its coefficients, minus the gradient; both follow the steps.

    H[base + i·stride + j]: products of its columns; curve: an upper bound of their eigenvalues; s [outputs·size]:
    scratch. Returns the violation at the start: the length of the first step times the curvature.
    """
    first, count, floor = 0.0, outputs * size, l1 / curve
    for turn in range(_STEPS):
        norm = 0.0
        for at in range(count):
            u = w[at] + g[at] / curve
            if l1 > 0.0:
                rest = abs(u) - floor
                u = 0.0 if rest <= 0.0 else (rest if u > 0.0 else -rest)
            s[at] = u
            norm += u * u
        norm = math.sqrt(norm) * curve
        share = 1.0 - group_l1 / norm if norm > group_l1 else 0.0
        length = 0.0
        for at in range(count):
            new = share * s[at]
            s[at] = new - w[at]
            w[at] = new
            length += s[at] * s[at]
        length = math.sqrt(length)
        if turn == 0:
            first = length
        if length <= _LEFT * first * (turn > 0) or size == 1:
            break
        for t in range(outputs):
            for i in range(size):
                total = 0.0
                for j in range(size):
                    total += H[base + i * stride + j] * s[t * size + j]
                g[t * size + i] -= total
    return curve * first


@inner(apart=True)
def _visit(H, group, bounds, q, W, h, group_l1, l1, curve, scratch):
    """Minimise over one group and update h = W H; return the violation before."""
    first, last = bounds[group], bounds[group + 1]
    size, outputs, step = last - first, W.shape[0], h.shape[1]
    w, g, s = scratch[0], scratch[1], scratch[2]
    for t in range(outputs):
        for i in range(size):
            w[t * size + i] = W[t, first + i]
            g[t * size + i] = q[t, first + i] - h[t, first + i]
    wrong = descend_group(
        H, first * step + first, step, size, outputs, w, g, s, group_l1[group], l1, curve[group]
    )  # fmt: skip
    if wrong > 0.0:
        for i in range(size):
            row = (first + i) * step
            for t in range(outputs):
                change = w[t * size + i] - W[t, first + i]
                if change != 0.0:
                    W[t, first + i] = w[t * size + i]
                    for c in range(step):
                        h[t, c] += change * H[row + c]
    return wrong


@inner(apart=True)
def penalty_of(W, bounds, group_l1, l1):
    """Σ group_l1 ‖W_g‖ + l1 Σ |w|."""
    value = 0.0
    for group in range(bounds.shape[0] - 1):
        square, size = 0.0, 0.0
        for t in range(W.shape[0]):
            for i in range(bounds[group], bounds[group + 1]):
                square += W[t, i] * W[t, i]
                size += abs(W[t, i])
        value += group_l1[group] * math.sqrt(square) + l1 * size
    return value


@inner
def _objective(W, h, q, bounds, group_l1, l1):
    value = penalty_of(W, bounds, group_l1, l1)
    for t in range(W.shape[0]):
        for i in range(W.shape[1]):
            value += W[t, i] * (0.5 * h[t, i] - q[t, i])
    return value


@inner
def _is_zero(W, first, last):
    for t in range(W.shape[0]):
        for i in range(first, last):
            if W[t, i] != 0.0:
                return False
    return True


@inner
def _keep(W, h, slot, points, products):
    """Store an iterate in the histories."""
    m, step = W.shape[1], h.shape[1]
    for t in range(W.shape[0]):
        for i in range(m):
            points[slot, t * m + i] = W[t, i]
        for i in range(step):
            products[slot, t * step + i] = h[t, i]


@inner(apart=True)
def _extrapolate(W, h, q, bounds, group_l1, l1, points, products, small, flat):
    """Move to the extrapolated point if the objective is lower there; return whether it is."""
    m, step = W.shape[1], h.shape[1]
    if not weigh_differences(points, small[:MOST], small[MOST]):
        return False
    there, followed = flat[: W.shape[0] * m], flat[W.shape[0] * m :]
    combine(points, small[MOST], there)
    combine(products, small[MOST], followed)
    before = _objective(W, h, q, bounds, group_l1, l1)
    after = _objective(
        there.reshape((W.shape[0], m)), followed.reshape((W.shape[0], step)), q, bounds, group_l1, l1
    )  # fmt: skip
    if not after < before:
        return False
    for t in range(W.shape[0]):
        for i in range(m):
            W[t, i] = there[t * m + i]
        for i in range(step):
            h[t, i] = followed[t * step + i]
    return True


@kernel
def descend_products(
    H, bounds, q, W, h, group_l1, l1, unit, tolerance, sweeps, on, curve, scratch, points, products, small, flat, said
):  # fmt: skip
    """Sweep until no group violates its optimality by more than `tolerance` units.

    H [m·step]; h [k, step] = W H; unit, curve [G]; on [G] int64, scratch [3, ·], points [6, k·m], products [6, k·step],
    small [6, 5], flat [k·(m + step)]: scratch. Between sweeps over all groups, the non-zero ones are swept alone, and
    after every fifth of these sweeps the last iterates are extrapolated.
    """
    groups = bounds.shape[0] - 1
    said[:] = 0.0
    for group in range(groups):
        size, first = bounds[group + 1] - bounds[group], bounds[group]
        curve[group] = largest_curvature(H, first * h.shape[1] + first, h.shape[1], size, scratch[0], scratch[1])
    while said[SWEPT] < sweeps:
        said[WORST] = 0.0
        count = 0
        for group in range(groups):
            if curve[group] > 0.0:
                wrong = _visit(H, group, bounds, q, W, h, group_l1, l1, curve, scratch)
                said[WORST] = max(said[WORST], wrong / unit[group])
                if not _is_zero(W, bounds[group], bounds[group + 1]):
                    on[count] = group
                    count += 1
        said[SWEPT] += 1.0
        if said[WORST] <= tolerance:
            return
        goal = max(0.5 * tolerance, _ENOUGH * said[WORST])
        for turn in range(_TURNS * (MOST + 1)):
            worst = 0.0
            _keep(W, h, turn % (MOST + 1), points, products)
            if turn % (MOST + 1) == MOST and _extrapolate(
                W, h, q, bounds, group_l1, l1, points, products, small, flat
            ):  # fmt: skip
                said[TAKEN] += 1.0
            for at in range(count):
                wrong = _visit(H, on[at], bounds, q, W, h, group_l1, l1, curve, scratch)
                worst = max(worst, wrong / unit[on[at]])
            said[SWEPT] += 1.0
            if worst <= goal or said[SWEPT] >= sweeps:
                break


@kernel
def multiply_products(H, W, h):
    """h [k, step] = W H for H [m·step]."""
    step = h.shape[1]
    h[:] = 0.0
    for t in range(W.shape[0]):
        for j in range(W.shape[1]):
            if W[t, j] != 0.0:
                for c in range(step):
                    h[t, c] += W[t, j] * H[j * step + c]
