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
from stretto.kernels.core.compile import inner, kernel
from stretto.kernels.numeric.alias import alias_draw
from stretto.kernels.numeric.random import entry_hash
from stretto.kernels.numeric.scalar import exp
from stretto.kernels.numeric.vector import get, put

from .lazy_steps import lazy_steps
from .sample_rows import add_row, dot_row

LOGISTIC, SQUARED_HINGE = range(2)
# Slots of `numbers`: step size; l1 and a = 1 / (1 + step size·l2), see `lazy_steps`; a of the intercept; and the
# coupling: x = of_w·w + of_snapshot·snapshot + of_follow·follow is where gradients are taken, and
# follow ← of_follow·follow + of_w·w + of_snapshot·snapshot after a step (Katyusha), or follow ← follow + w (a sum).
STEP, L1, SHRINK, SHRINK_BIAS, OF_W, OF_SNAPSHOT, OF_FOLLOW = range(7)
NUMBERS = 7
PLAIN, SUMMED, COUPLED = range(3)  # kinds of steps


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


@kernel
def stochastic_worker(
    pass_, worker, out, which, values, indices, indptr, p, y, positive, loss, bias, chance, other, factor, slopes, mu,
    snapshot, w, follow, due, powers, kind, numbers, steps, batch, seed, drawn, moves,
):  # fmt: skip
    """Make `steps` steps for each class which[v].

    chance, other [n]: alias table of q; factor [n] = weight_i / (n q_i); slopes [k, n]: d_i at the snapshot; mu,
    snapshot, w, follow [k, p + 1]; due [k, p] int32: scratch; numbers [7]; powers [steps + 1, 6]; drawn [k,
    batch] int64, moves [k, batch]: scratch. seed: of this epoch.
    """
    n = factor.shape[0]
    visit = next_visit(pass_, worker)
    while visit >= 0:
        c = which[visit]
        own, past, behind, drift, fixed = w[c], follow[c], due[c], mu[c], snapshot[c]
        slope, wanted = slopes[c], positive[c]
        rows, move = drawn[c], moves[c]
        eta, l1, shrink, shrink_bias = numbers[STEP], numbers[L1], numbers[SHRINK], numbers[SHRINK_BIAS]
        of_w, of_fixed, of_past = numbers[OF_W], numbers[OF_SNAPSHOT], numbers[OF_FOLLOW]
        coupled, share = kind == COUPLED, 0.0 if kind == PLAIN else of_w
        key = entry_hash(wanted, 1, seed)
        behind[:] = 0
        for s in range(steps):
            for r in range(batch):
                i = alias_draw(n, chance, other, entry_hash(s, r, key))
                first, last = i * p, (i + 1) * p
                if indptr.shape[0] > 0:
                    first, last = np.int64(get(indptr, i)), np.int64(get(indptr, i + 1))
                z = 0.0
                for e in range(first, last):
                    j = e - first if indptr.shape[0] == 0 else np.int64(get(indices, e))
                    late = s - np.int64(get(behind, j))
                    if late > 0:
                        now, then = lazy_steps(
                            get(own, j), get(past, j), late, shrink, eta * get(drift, j), l1, share,
                            of_fixed * get(fixed, j), powers,
                        )  # fmt: skip
                        put(own, j, now)
                        put(past, j, then)
                        put(behind, j, s)
                    x = get(own, j)
                    if coupled:
                        x = of_w * x + of_fixed * get(fixed, j) + of_past * get(past, j)
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
                    add_row(values, indices, indptr, p, rows[r], -move[r], own)
                    total += move[r]
            own[p] = shrink_bias * (own[p] - bias * total - eta * drift[p])
            past[p] = powers[1, 2] * past[p] + share * own[p] + of_fixed * fixed[p]
        for j in range(p):
            late = steps - np.int64(behind[j])
            own[j], past[j] = lazy_steps(
                own[j], past[j], late, shrink, eta * drift[j], l1, share, of_fixed * fixed[j], powers
            )
        out[visit] = own[p]
        visit = next_visit(pass_, worker, visit)
