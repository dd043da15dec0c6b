"""Stochastic steps with variance reduction (SVRG, SVRG++, Katyusha) over the rows of a classification.

A step draws `batch` samples i with probabilities q_i and moves along −η (Σ (d_i(x) − d_i(snapshot)) x_i / (n q_i) + μ),
where d_i is the derivative of a sample's loss and μ the full gradient at the snapshot. It reads and writes only the
features of these samples: for the others the step is known in advance and made later (`lazy_steps`).

The losses are log(1 + e^−m) and max(0, 1 − m)², m = y z. The intercept is the coefficient w[p] of a feature with the
value `bias`, which every sample has.
"""

from __future__ import annotations

import numpy as np

from stretto.kernels.core.claims import next_visit
from stretto.kernels.core.compile import inner, kernel, merged
from stretto.kernels.numeric.alias import alias_draw
from stretto.kernels.numeric.random import entry_hash
from stretto.kernels.numeric.scalar import exp
from stretto.kernels.numeric.vector import ahead, get, put

from .lazy_steps import lazy_steps, smooth_steps
from .sample_rows import add_row, dot_row, prefetch_row

LOGISTIC, SQUARED_HINGE = range(2)
# Slots of `numbers`: step size; l1 and a = 1 / (1 + step size·l2), see `lazy_steps`; a of the intercept; and the
# coupling: x = of_w·w + of_snapshot·snapshot + of_follow·follow is where gradients are taken, and
# follow ← of_follow·follow + of_w·w + of_snapshot·snapshot after a step (Katyusha), or follow ← follow + w (a sum).
STEP, L1, SHRINK, SHRINK_BIAS, OF_W, OF_SNAPSHOT, OF_FOLLOW = range(7)
NUMBERS = 7
PLAIN, SUMMED, COUPLED = range(3)  # kinds of steps
# What a step reads of a feature is side by side in memory, half a cache line: w, follow, the step size times mu, and
# the step up to which both are computed.
RECORD = 4
_PAST, _DRIFT, _DUE = 1, 2, 3
_SOON = 2  # draws ahead of which a row is prefetched; the records of its features one draw ahead


@inner
def sample_slope(loss, sign, z):
    """The derivative of a sample's loss by z."""
    m = sign * z
    if loss == LOGISTIC:
        return -sign / (1.0 + exp(m))
    return -2.0 * sign * max(0.0, 1.0 - m)


@kernel
def margins_worker(pass_, worker, out, bounds, values, indices, indptr, p, bias, w, z):
    """z[i] = x_i · w + bias·w[p] for the rows bounds[v] … bounds[v + 1]."""
    visit = next_visit(pass_, worker)
    while visit >= 0:
        for i in range(bounds[visit], bounds[visit + 1]):
            z[i] = dot_row(values, indices, indptr, p, i, w) + bias * w[p]
        visit = next_visit(pass_, worker, visit)


@kernel
def gradient_worker(pass_, worker, out, bounds, values, indices, indptr, p, bias, pull, G):
    """G[v] [p + 1] = Σ pull_i (x_i, bias) over the rows bounds[v] … bounds[v + 1]."""
    visit = next_visit(pass_, worker)
    while visit >= 0:
        own = G[visit]
        own[:] = 0.0
        total = 0.0
        for i in range(bounds[visit], bounds[visit + 1]):
            if pull[i] != 0.0:
                add_row(values, indices, indptr, p, i, pull[i], own)
                total += pull[i]
        own[p] = bias * total
        out[visit] = total
        visit = next_visit(pass_, worker, visit)


@merged
def _write(record, j, w, past, drift):
    at = RECORD * j
    put(record, at, w)
    put(record, at + _PAST, past)
    put(record, at + _DRIFT, drift)
    put(record, at + _DUE, 0.0)


@merged
def _prefetch(n, chance, other, values, indices, indptr, p, draw, batch, key, record):
    """Prefetch what the next draws read: they are known in advance."""
    if indptr.shape[0] == 0:
        return
    then = draw + _SOON
    prefetch_row(values, indices, indptr, p, alias_draw(n, chance, other, entry_hash(then // batch, then % batch, key)))
    then = draw + 1
    i = alias_draw(n, chance, other, entry_hash(then // batch, then % batch, key))
    for e in range(np.int64(get(indptr, i)), np.int64(get(indptr, i + 1))):
        ahead(record, RECORD * np.int64(get(indices, e)))


@merged
def _add_row(values, indices, indptr, p, i, factor, record):
    """Add factor·x_i to the w of the records."""
    first, last = i * p, (i + 1) * p
    if indptr.shape[0] > 0:
        first, last = np.int64(get(indptr, i)), np.int64(get(indptr, i + 1))
    for e in range(first, last):
        at = RECORD * (e - first if indptr.shape[0] == 0 else np.int64(get(indices, e)))
        put(record, at, get(record, at) + factor * get(values, e))


@kernel
def stochastic_worker(
    pass_, worker, out, which, values, indices, indptr, p, y, positive, loss, bias, chance, other, factor, slopes, mu,
    snapshot, w, follow, records, powers, kind, numbers, steps, batch, seed, drawn, moves,
):  # fmt: skip
    """Make `steps` steps for each class which[v].

    chance, other [n]: alias table of q; factor [n] = weight_i / (n q_i); slopes [k, n]: d_i at the snapshot; mu,
    snapshot, w, follow [k, p + 1]; numbers [7]; powers [steps + 1, 6]. Scratch: records [k, 4 p]; drawn [k,
    batch] int64, moves [k, batch]. seed: of this epoch.
    """
    n = factor.shape[0]
    visit = next_visit(pass_, worker)
    while visit >= 0:
        c = which[visit]
        own, past, drift, fixed = w[c], follow[c], mu[c], snapshot[c]
        slope, wanted, record = slopes[c], positive[c], records[c]
        rows, move = drawn[c], moves[c]
        eta, l1, shrink, shrink_bias = numbers[STEP], numbers[L1], numbers[SHRINK], numbers[SHRINK_BIAS]
        of_w, of_fixed, of_past = numbers[OF_W], numbers[OF_SNAPSHOT], numbers[OF_FOLLOW]
        coupled, share = kind == COUPLED, 0.0 if kind == PLAIN else of_w
        key = entry_hash(wanted, 1, seed)
        for j in range(p):
            _write(record, j, own[j], past[j], eta * drift[j])
        for s in range(steps):
            for r in range(batch):
                _prefetch(n, chance, other, values, indices, indptr, p, s * batch + r, batch, key, record)
                i = alias_draw(n, chance, other, entry_hash(s, r, key))
                first, last = i * p, (i + 1) * p
                if indptr.shape[0] > 0:
                    first, last = np.int64(get(indptr, i)), np.int64(get(indptr, i + 1))
                z = 0.0
                for e in range(first, last):
                    j = e - first if indptr.shape[0] == 0 else np.int64(get(indices, e))
                    at = RECORD * j
                    x = get(record, at)
                    late = s - np.int64(get(record, at + _DUE))
                    if late > 0:
                        then, pull = get(record, at + _PAST), of_fixed * get(fixed, j) if coupled else 0.0
                        if l1 == 0.0:
                            x, then = smooth_steps(x, then, late, shrink, get(record, at + _DRIFT), share, pull, powers)
                        else:
                            x, then = lazy_steps(
                                x, then, late, shrink, get(record, at + _DRIFT), l1, share, pull, powers
                            )
                        put(record, at, x)
                        put(record, at + _PAST, then)
                        put(record, at + _DUE, np.float64(s))
                    if coupled:
                        x = of_w * x + of_fixed * get(fixed, j) + of_past * get(record, at + _PAST)
                    z += get(values, e) * x
                x = own[p]
                if coupled:
                    x = of_w * x + of_fixed * fixed[p] + of_past * past[p]
                z += bias * x
                sign = 1.0 if get(y, i) == wanted else -1.0
                rows[r] = i
                move[r] = eta / batch * get(factor, i) * (sample_slope(loss, sign, z) - get(slope, i))
            total = 0.0
            for r in range(batch):
                if move[r] != 0.0:
                    _add_row(values, indices, indptr, p, rows[r], -move[r], record)
                    total += move[r]
            own[p] = shrink_bias * (own[p] - bias * total - eta * drift[p])
            past[p] = powers[1, 2] * past[p] + share * own[p] + of_fixed * fixed[p]
        for j in range(p):
            at = RECORD * j
            late = steps - np.int64(get(record, at + _DUE))
            own[j], past[j] = lazy_steps(
                get(record, at), get(record, at + _PAST), late, shrink, get(record, at + _DRIFT), l1, share,
                of_fixed * fixed[j], powers,
            )  # fmt: skip
        out[visit] = own[p]
        visit = next_visit(pass_, worker, visit)
