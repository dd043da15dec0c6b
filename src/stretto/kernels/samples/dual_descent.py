"""Dual coordinate descent for linear support vector machines (Hsieh et al. 2008), one class against the rest.

The primal problem is ½‖w‖² + Σ cost_i·loss(1 − y_i z_i), with loss(t) = max(0, t) (hinge) or max(0, t)² (squared), and
z_i = x_i · w + bias·w[p]. The dual variables α_i are in [0, cost_i], or [0, ∞) for the squared loss. The kernels keep
w = Σ α_i y_i (x_i, bias), so that a step for one sample costs one product with its row and one sum.

A sweep visits the samples in random order. A sample at a bound whose gradient points clearly out of the box is skipped
in later sweeps (shrinking); before the end all samples are visited once more.

The duality gap is a sum over the samples of a number that a visit knows anyway, so every sweep estimates it. The sum is
the gap itself if w does not change in between; `evaluate_worker` computes that.

k classes, n samples, p features. status [k, 7], the state of each class: see the slots.
"""

from __future__ import annotations

import numpy as np

from stretto.kernels.core.claims import next_visit
from stretto.kernels.core.compile import kernel, merged
from stretto.kernels.numeric.random import entry_hash
from stretto.kernels.numeric.vector import ahead, get, put

from .sample_rows import add_row, dot_row, prefetch_row, row_square

# Samples at work, sweeps made, bounds on gradients for shrinking, estimates of gap and dual objective, and whether
# the estimate of the last sweep, over all samples, was small enough.
ACTIVE, SWEPT, HIGH, LOW, GAP, DUAL, READY = range(7)
SLOTS = 7

_S32 = np.uint64(32)
_SOON = 4  # visits ahead of which a row is prefetched


@merged
def _shuffle(order, count, sweep, key):
    for i in range(count - 1, 0, -1):
        bits = entry_hash(sweep, i, key) >> _S32
        other = np.int64((bits * np.uint64(i + 1)) >> _S32)
        mine = get(order, i)
        put(order, i, get(order, other))
        put(order, other, mine)


@merged
def _sample_gap(margin, a, cost, squared):
    """What a sample adds to the duality gap; margin: y z."""
    slack = max(0.0, 1.0 - margin)
    if not squared:
        return cost * slack - a * (1.0 - margin)
    if slack > 0.0:
        return cost * (slack - a / (2.0 * cost)) ** 2
    return a * (margin - 1.0) + a * a / (4.0 * cost)


@kernel
def norms_worker(pass_, worker, out, bounds, values, indices, indptr, p, bias, norm):
    """norm[i] = ‖x_i‖² + bias², for the rows bounds[v] … bounds[v + 1]."""
    visit = next_visit(pass_, worker)
    while visit >= 0:
        for i in range(bounds[visit], bounds[visit + 1]):
            norm[i] = row_square(values, indptr, p, i) + bias * bias
        visit = next_visit(pass_, worker, visit)


@kernel
def descend_worker(
    pass_, worker, out, which, values, indices, indptr, p, y, positive, cost, norm, bias, squared, tol, least, most,
    sweeps, seed, w, alpha, order, status,
):  # fmt: skip
    """Make up to `sweeps` sweeps for each class which[v], `most` in all; stop when the estimated gap is small enough.

    y [n] class indices; positive [k] the class index that counts as +1; w [k, p + 1]; alpha [k, n]; order [k, m]: the
    samples with a positive cost, in any order. tol [k]: share of the primal objective that the gap may have;
    least: a gap that is always small enough.
    """
    visit = next_visit(pass_, worker)
    while visit >= 0:
        c = which[visit]
        own, a, places, state, wanted = w[c], alpha[c], order[c], status[c], positive[c]
        count = places.shape[0]
        active, made = np.int64(state[ACTIVE]), np.int64(state[SWEPT])
        high, low, dual, gap = state[HIGH], state[LOW], state[DUAL], state[GAP]
        key = entry_hash(wanted, 0, seed)
        ready = False
        for _ in range(min(sweeps, most - made)):
            _shuffle(places, active, made, key)
            whole = active == count
            most_up, most_down, gap = -np.inf, np.inf, 0.0
            s = 0
            while s < active:
                i = np.int64(get(places, s))
                if s + _SOON < active:
                    soon = np.int64(get(places, s + _SOON))
                    prefetch_row(values, indices, indptr, p, soon)
                    ahead(a, soon)
                sign = 1.0 if get(y, i) == wanted else -1.0
                margin = sign * (dot_row(values, indices, indptr, p, i, own) + bias * own[p])
                old, limit = get(a, i), get(cost, i)
                g, q, top = margin - 1.0, get(norm, i), limit
                if squared:
                    g += old / (2.0 * limit)
                    q += 1.0 / (2.0 * limit)
                    top = np.inf
                projected = g
                if old == 0.0:
                    if g > high:
                        active -= 1
                        put(places, s, get(places, active))
                        put(places, active, i)
                        continue
                    projected = min(g, 0.0)
                elif old == top:
                    if g < low:
                        active -= 1
                        put(places, s, get(places, active))
                        put(places, active, i)
                        continue
                    projected = max(g, 0.0)
                most_up, most_down = max(most_up, projected), min(most_down, projected)
                gap += _sample_gap(margin, old, limit, squared)
                if projected != 0.0:
                    # A row of zeros has no curvature: its variable goes to the bound.
                    new = min(max(old - g / q, 0.0), top) if q > 0.0 else (top if g < 0.0 else 0.0)
                    d = new - old
                    put(a, i, new)
                    dual -= d * (g + 0.5 * q * d)
                    add_row(values, indices, indptr, p, i, sign * d, own)
                    own[p] += sign * d * bias
                s += 1
            made += 1
            if gap <= max(tol[c] * (dual + gap), least):
                # Samples that were skipped add nothing where they are, so a sweep that began with all has met all.
                active, high, low, ready = count, np.inf, -np.inf, whole
                if ready:
                    break
                continue
            high = most_up if most_up > 0.0 else np.inf
            low = most_down if most_down < 0.0 else -np.inf
        state[ACTIVE], state[SWEPT], state[HIGH], state[LOW] = active, made, high, low
        state[GAP], state[DUAL], state[READY] = gap, dual, ready
        out[visit] = gap
        visit = next_visit(pass_, worker, visit)


@kernel
def evaluate_worker(
    pass_, worker, out, bounds, parts, which, values, indices, indptr, p, y, positive, cost, bias, squared, w, alpha,
    sums,
):  # fmt: skip
    """Visit v: the loss and the gap of class which[v // parts] over part v % parts of the rows, into sums[v] [2]."""
    visit = next_visit(pass_, worker)
    while visit >= 0:
        c, part = which[visit // parts], visit % parts
        own, a, wanted = w[c], alpha[c], positive[c]
        loss, gap = 0.0, 0.0
        for i in range(bounds[part], bounds[part + 1]):
            limit = cost[i]
            if limit > 0.0:
                sign = 1.0 if y[i] == wanted else -1.0
                margin = sign * (dot_row(values, indices, indptr, p, i, own) + bias * own[p])
                slack = max(0.0, 1.0 - margin)
                loss += limit * (slack * slack if squared else slack)
                gap += _sample_gap(margin, a[i], limit, squared)
        sums[visit, 0], sums[visit, 1] = loss, gap
        out[visit] = gap
        visit = next_visit(pass_, worker, visit)
