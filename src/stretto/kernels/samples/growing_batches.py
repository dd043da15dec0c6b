"""Mini-batch subgradient steps for linear support vector machines, with the dual variables that belong to them.

The weights are w = scale·u and the dual variables α = scale·a, so that the shrinking of an L2 penalty costs one
product. A step with a batch is w ← (1 − shrink)·w + Σ move_i y_i (x_i, bias) and likewise for α, so that
w = Σ α_i y_i (x_i, bias) at all times.

move_i = shrink·m / batch·cost_i·pull_i with m samples, and pull_i is 1 for a margin below 1, or twice the slack if the
loss is squared.
"""

from __future__ import annotations

from stretto.kernels.core.claims import next_visit
from stretto.kernels.core.compile import inner, kernel

from .sample_rows import add_row, dot_row


@inner
def _pull(margin, squared):
    slack = max(0.0, 1.0 - margin)
    if squared:
        return 2.0 * slack
    return 1.0 if slack > 0.0 else 0.0


@kernel
def epoch_worker(
    pass_, worker, out, which, values, indices, indptr, p, y, positive, cost, bias, squared, order, batch, shrink, u, a,
    scale, move,
):  # fmt: skip
    """Steps over all samples order [m], one batch after another, for each class which[v].

    shrink [k]: the step size in units of the penalty; u [k, p + 1], a [k, n], scale [k]; move [k, batch]: scratch.
    """
    m = order.shape[0]
    visit = next_visit(pass_, worker)
    while visit >= 0:
        c = which[visit]
        own, dual, moves, wanted, factor, by_penalty = u[c], a[c], move[c], positive[c], scale[c], shrink[c]
        first = 0
        while first < m:
            last = min(first + batch, m)
            for r in range(first, last):
                i = order[r]
                sign = 1.0 if y[i] == wanted else -1.0
                z = factor * (dot_row(values, indices, indptr, p, i, own) + bias * own[p])
                moves[r - first] = cost[i] * _pull(sign * z, squared)
            factor *= 1.0 - by_penalty
            step = by_penalty * m / ((last - first) * factor)
            for r in range(first, last):
                if moves[r - first] > 0.0:
                    i = order[r]
                    sign = 1.0 if y[i] == wanted else -1.0
                    by = step * moves[r - first]
                    add_row(values, indices, indptr, p, i, sign * by, own)
                    own[p] += sign * by * bias
                    dual[i] += by
            first = last
        scale[c] = factor
        out[visit] = factor
        visit = next_visit(pass_, worker, visit)


@kernel
def moves_worker(
    pass_, worker, out, bounds, values, indices, indptr, p, y, wanted, cost, bias, squared, order, scale, u, move
):
    """move[r] = cost·pull of the samples order[bounds[v]] … order[bounds[v + 1]], at scale·u [p + 1]."""
    visit = next_visit(pass_, worker)
    while visit >= 0:
        for r in range(bounds[visit], bounds[visit + 1]):
            i = order[r]
            sign = 1.0 if y[i] == wanted else -1.0
            z = scale * (dot_row(values, indices, indptr, p, i, u) + bias * u[p])
            move[r] = cost[i] * _pull(sign * z, squared)
        visit = next_visit(pass_, worker, visit)


@kernel
def sum_worker(pass_, worker, out, bounds, values, indices, indptr, p, y, wanted, bias, order, move, G):
    """G[v] [p + 1] = Σ move_r y (x, bias) over the samples order[bounds[v]] … order[bounds[v + 1]]."""
    visit = next_visit(pass_, worker)
    while visit >= 0:
        own = G[visit]
        own[:] = 0.0
        for r in range(bounds[visit], bounds[visit + 1]):
            if move[r] > 0.0:
                i = order[r]
                by = move[r] if y[i] == wanted else -move[r]
                add_row(values, indices, indptr, p, i, by, own)
                own[p] += by * bias
        out[visit] = own[p]
        visit = next_visit(pass_, worker, visit)
