"""Coordinate descent over sparse columns in random order, with shrinking: columns that stay at zero are skipped.

Minimises the same quadratic model as `kernels/linear/descent.py`, with the same arrays. A sweep visits the columns in
a new random order; on a text data set the stored order needed fifteen times as many sweeps.
A column at zero whose pull is clearly below its penalty is skipped in later sweeps (shrinking, as in newGLMNET: Yuan,
Ho and Lin 2012); before the end all columns are visited once more.

order [k]: any permutation of 0 … k − 1. said [4], the results: the largest violation of the last sweep, the sum of its
violations, the number of sweeps, coordinates that became zero or nonzero in the last one.
"""

from __future__ import annotations

import numpy as np

from stretto.kernels.core.compile import kernel
from stretto.kernels.numeric.random import mix
from stretto.kernels.numeric.vector import ahead, get, put

from .columns import sparse_dot
from .quadratic import soft, violation

_AHEAD = 4  # columns whose first entries are fetched in advance: the order is random

WORST, SUM, SWEPT, MOVED = range(4)


@kernel
def sweep_shuffled(
    which, indptr, indices, values, b, l1, ridge, unit, mean, curve, u, d, mass, lag, order, seed, most, largest,
    sweeps, positive, said,
):  # fmt: skip
    """Sweep until the violations of all columns sum to at most `most`, the largest is at most `largest`, the support
    has not changed for three sweeps, or `sweeps` sweeps are made.
    """
    k = which.shape[0]
    active, steady, margin = k, 0, np.inf
    for _ in range(sweeps):
        for i in range(active - 1, 0, -1):
            other = np.int64(mix(seed, np.int64(said[SWEPT]), i, 0) % np.uint64(i + 1))
            order[i], order[other] = order[other], order[i]
        said[WORST] = said[SUM] = said[MOVED] = 0.0
        whole = active == k
        i = 0
        while i < active:
            at = order[i]
            if i + _AHEAD < active:
                soon = indptr[which[order[i + _AHEAD]]]
                ahead(values, soon)
                ahead(indices, soon)
            if curve[at] <= 0.0:
                i += 1
                continue
            first, last = indptr[which[at]], indptr[which[at] + 1]
            pull = sparse_dot(indices, values, first, last, u) + lag[0] * mass * mean[at]
            old = b[at]
            if old == 0.0 and (pull if positive else abs(pull)) < l1[at] - margin * unit[at]:
                active -= 1
                order[i], order[active] = order[active], at
                continue
            wrong = violation(old, pull - ridge[at] * old, l1[at], positive) / unit[at]
            said[WORST] = max(said[WORST], wrong)
            said[SUM] += wrong
            new = soft(pull - ridge[at] * old + curve[at] * old, l1[at], positive) / curve[at]
            if new != old:
                if new * old <= 0.0:
                    said[MOVED] += 1.0
                b[at] = new
                change = new - old
                for t in range(first, last):
                    row = np.int64(get(indices, t))
                    put(u, row, get(u, row) - get(d, row) * np.float64(get(values, t)) * change)
                lag[0] += mean[at] * change
            i += 1
        said[SWEPT] += 1.0
        steady = steady + 1 if said[MOVED] == 0.0 else 0
        if said[SUM] <= most or said[WORST] <= largest:
            if whole:
                return
            active, margin = k, np.inf
        elif steady == 3:
            return
        else:
            margin = said[WORST] / k
