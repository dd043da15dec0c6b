"""What the log-likelihood of topics loses when two of them are merged."""

from __future__ import annotations

import numpy as np

from stretto.kernels.core.claims import next_visit
from stretto.kernels.core.compile import inner, kernel
from stretto.kernels.numeric.scalar import log


@inner
def _entropy(a, b):
    """Return a log((a + b) / a) + b log((a + b) / b) for a, b > 0, and 0 if one of them is 0."""
    if a <= 0.0 or b <= 0.0:
        return 0.0
    return a * log((a + b) / a) + b * log((a + b) / b)


@kernel
def merge_loss_worker(pass_, worker, out, bounds, counts, totals, live, row, loss):
    """loss[k] = (n_k + n_row) · JS(k, row) for the live topics k = bounds[v] … bounds[v + 1] − 1, inf for others.

    JS is the Jensen–Shannon divergence, in nats, of the two distributions of words, weighted by the tokens n of the
    topics. counts [K, V] float64, totals [K] float64: the sums of its rows; live [K] bool; loss [K] float64. Every sum
    is in the order of the words. out [V]: unused.
    """
    words = counts.shape[1]
    v = next_visit(pass_, worker)
    while v >= 0:
        for k in range(bounds[v], bounds[v + 1]):
            if k == row or not live[k]:
                loss[k] = np.inf
                continue
            shared = 0.0
            for w in range(words):
                shared += _entropy(counts[k, w], counts[row, w])
            loss[k] = max(0.0, _entropy(totals[k], totals[row]) - shared)
        v = next_visit(pass_, worker, v)
