"""Penalised logistic regression of few sparse features: a whole fit in one call, in one thread.

The problem and the steps are those of `logistic_fit`, but X is stored by rows (CSR). A row adds its entries to all
gradients, and the products of all pairs of its entries to the quadratic model. Gradients and products fit in the cache,
and the rows are read in their order. Where rows have so few entries that their loops take longer than the entries, X is
given by columns as well (`by_columns`; else `start` is empty), and gradients and predictions go by columns. The
products are those of the columns as they are; the means are subtracted at the end, as the intercept is eliminated.
"""

from __future__ import annotations

import math

import numpy as np

from stretto.kernels.core.compile import inner, kernel
from stretto.kernels.linear.columns import sparse_dot
from stretto.kernels.linear.sample_losses import added
from stretto.kernels.numeric.vector import get, put

from .logistic_step import (
    BEFORE,
    CLOSE,
    COUNT,
    GAP,
    H_B,
    INVERSE,
    KNOWN,
    L1,
    LEAN,
    MASS,
    PULL,
    STALLED,
    STEP,
    STEPS,
    THERE,
    UNIT,
    WAY,
    WORK,
    B,
    D,
    Q,
    V,
    Z,
    choose,
    ended,
    enough_products,
    evaluate,
    evaluate_zero,
    find_step,
    load_model,
    search_line,
    set_dual_point,
    shift_of,
    worst_violation,
)
from .small_model import minimise

_CANCELLED = 1e-12  # what subtracting the mean leaves of a column's square, as a share, if that is rounding error


@inner(apart=True)
def _spread(indptr, indices, values, start, row, value, coef, to):
    """to [n] = Xβ."""
    if start.shape[0] == 0:
        for i in range(to.shape[0]):
            s = 0.0
            for t in range(indptr[i], indptr[i + 1]):
                s += np.float64(values[t]) * coef[np.uint64(indices[t])]
            to[i] = s
        return
    for i in range(to.shape[0]):
        to[i] = 0.0
    for j in range(coef.shape[0]):
        b = coef[j]
        if b != 0.0:
            for t in range(start[j], start[j + 1]):
                i = np.int64(get(row, t))
                put(to, i, get(to, i) + b * np.float64(get(value, t)))


@inner(apart=True)
def _gather(indptr, indices, values, start, row, value, v, to):
    """to [p] = Xᵀv."""
    for j in range(to.shape[0]):
        to[j] = sparse_dot(row, value, start[j], start[j + 1], v) if start.shape[0] else 0.0
    if start.shape[0] == 0:
        for i in range(v.shape[0]):
            x = v[i]
            for t in range(indptr[i], indptr[i + 1]):
                to[np.uint64(indices[t])] += x * np.float64(values[t])


@kernel
def prepare(
    indptr, indices, values, start, row, value, y, weight, intercept, mean, norm, vectors, small, pair, numbers
):  # fmt: skip
    """Means [p] under the weights, norms about them, and the loss and gradients at β = 0; return Σ weight.

    X [n, p] by rows: indptr, indices, values; by columns, or empty: start, row, value. The means are 0 without an
    intercept. pair [6, 2]: scratch.
    """
    p = mean.shape[0]
    mass = evaluate_zero(y, weight, intercept, vectors, pair, numbers)
    v, pull = vectors[V], small[PULL]
    for j in range(p):
        mean[j], norm[j], pull[j] = 0.0, 0.0, 0.0
        if start.shape[0]:
            for t in range(start[j], start[j + 1]):
                i, x = np.int64(get(row, t)), np.float64(get(value, t))
                mean[j] += get(weight, i) * x
                norm[j] += get(weight, i) * x * x
                pull[j] += get(v, i) * x
    if start.shape[0] == 0:
        for i in range(y.shape[0]):
            w, u = weight[i], v[i]
            for t in range(indptr[i], indptr[i + 1]):
                j, x = np.uint64(indices[t]), np.float64(values[t])
                mean[j] += w * x
                norm[j] += w * x * x
                pull[j] += u * x
    rest = added(v)  # with an intercept, rounding alone
    for j in range(p):
        whole = norm[j]
        mean[j] = mean[j] / mass if intercept else 0.0
        square = whole - mass * mean[j] * mean[j]
        norm[j] = math.sqrt(square) if square > _CANCELLED * whole else 0.0
        if intercept:
            pull[j] -= mean[j] * rest
    return mass


@kernel
def predict(indptr, indices, values, start, row, value, y, weight, intercept, coef, vectors, numbers):
    """Evaluate the loss at β = coef, with the optimal intercept; the search for it starts at numbers[INTERCEPT]."""
    _spread(indptr, indices, values, start, row, value, coef, vectors[Z])
    evaluate(y, weight, intercept, vectors, numbers)


@inner
def _add_pairs(d, whose, value, m, step, lean, H):
    """Add d·x to `lean` and d·x·xᵀ to the lower triangle of H, for a row x of m entries.

    Two entries at a time go with all before them: loops over entries are short, and each end of one costs as much as
    several products.
    """
    for r in range(0, m - 1, 2):
        a, x = get(whose, r), d * get(value, r)
        b, y = get(whose, r + 1), d * get(value, r + 1)
        put(lean, a, get(lean, a) + x)
        put(lean, b, get(lean, b) + y)
        base, other = a * step, b * step
        for c in range(r + 1):
            column, z = get(whose, c), get(value, c)
            put(H, base + column, get(H, base + column) + x * z)
            put(H, other + column, get(H, other + column) + y * z)
        put(H, other + b, get(H, other + b) + y * get(value, r + 1))
    if m % 2:
        a, x = get(whose, m - 1), d * get(value, m - 1)
        put(lean, a, get(lean, a) + x)
        base = a * step
        for c in range(m):
            at = base + get(whose, c)
            put(H, at, get(H, at) + x * get(value, c))


@inner(apart=True)
def _build(indptr, indices, values, intercept, l2, vectors, small, column, k, place, whose, value, H):
    """H [k, ·] and Σ d x of the model of k columns, in rising order; return Σ d.

    place [p], whose and value [longest row]: scratch.
    """
    d, lean, p = vectors[D], small[LEAN], place.shape[0]
    for j in range(p):
        place[j] = -1
    for a in range(k):
        place[column[a]] = a
        lean[a] = 0.0
        for c in range(a + 1):
            H[a, c] = 0.0
    step = H.shape[1]
    for i in range(d.shape[0]):
        m = 0
        for t in range(indptr[i], indptr[i + 1]):
            a = get(place, np.int64(get(indices, t)))
            put(whose, m, a)
            put(value, m, np.float64(get(values, t)))
            m += 1 if a >= 0 else 0
        _add_pairs(d[i], whose, value, m, step, lean, H)
    mass = added(d) if intercept else 0.0
    for a in range(k):
        share = lean[a] / mass if mass > 0.0 else 0.0
        lean[a] = lean[a] if intercept else 0.0
        for c in range(a + 1):
            x = H[a, c] - share * lean[c]
            H[a, c], H[c, a] = x, x
    for a in range(k):
        # A column that d makes constant has no curvature: without a penalty its coefficient stays.
        H[a, a] = max(0.0, H[a, a]) + l2[column[a]]
    return mass


@inner(apart=True)
def _advance(
    indptr, indices, values, start, row, value, y, weight, intercept, l1, l2, mass, coef, vectors, small, column, k,
    change, numbers,
):  # fmt: skip
    """Move along the line to the model's minimum; return the share of the way, 0 if none decreases the objective.

    change [p]: scratch.
    """
    moved, turn, predicted = find_step(l1, l2, mass, coef, small, column, k, numbers)
    if not moved:
        return 0.0
    for j in range(change.shape[0]):
        change[j] = 0.0
    for a in range(k):
        change[column[a]] = small[STEP, a]
    _spread(indptr, indices, values, start, row, value, change, vectors[WAY])
    return search_line(y, weight, intercept, l1, l2, turn, predicted, 1.0, coef, vectors, small, column, k, numbers)


@kernel
def fit(
    indptr, indices, values, start, row, value, y, weight, mean, norm, intercept, l1, l2, goal, share, least, steps,
    coef, vectors, small, column, whose, entry, change, H, U, numbers,
):  # fmt: skip
    """Make Newton steps until the gap is at most min(goal, max(share · objective, least)), at most `steps`.

    `vectors` and numbers[: KNOWN + 1] hold the state at coef [p], the start and the solution. Results in `numbers`;
    `small` and all arrays from `column` on are scratch: column [3 p], whose and entry [longest row], change [p].
    """
    p = coef.shape[0]
    numbers[STEPS], numbers[WORK], numbers[STALLED] = 0.0, 0.0, 0.0
    while True:
        pull = small[PULL]
        if numbers[KNOWN] == 0.0:
            set_dual_point(vectors, shift_of(numbers))
            theta = vectors[THERE]
            _gather(indptr, indices, values, start, row, value, theta, pull)
            rest = added(theta) if intercept else 0.0
            for j in range(p):
                pull[j] -= mean[j] * rest
        for j in range(p):
            if norm[j] == 0.0:
                pull[j] = 0.0
        done, wanted = ended(y, weight, l1, l2, goal, share, least, steps, coef, vectors, small, numbers)
        if done:
            return
        k, gap = np.int64(numbers[COUNT]), numbers[GAP]
        again = enough_products(l1, coef, small, column, wanted, numbers)
        if not again:
            k = choose(norm, l1, l2, coef, small, column)
            numbers[COUNT] = k
            numbers[MASS] = _build(
                indptr, indices, values, intercept, l2, vectors, small, column, k, column[2 * p :], whose, entry, H
            )
        load_model(norm, l1, l2, coef, small, column, k, H)
        numbers[WORK] += minimise(
            H, small[Q], small[L1], small[UNIT], k, CLOSE * worst_violation(norm, l1, l2, coef, small), small[B],
            small[H_B], U, small[INVERSE], small[STEP], column[p:], column, 0,
        )  # fmt: skip
        t = _advance(
            indptr, indices, values, start, row, value, y, weight, intercept, l1, l2, numbers[MASS], coef, vectors,
            small, column, k, change, numbers,
        )  # fmt: skip
        numbers[KNOWN], numbers[BEFORE] = 0.0, gap if t == 1.0 else 0.0
        if t == 0.0 and not again:
            numbers[STALLED] = 1.0
            return
        numbers[STEPS] += 1.0
