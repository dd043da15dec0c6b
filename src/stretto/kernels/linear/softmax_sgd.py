"""Mini-batch SGD of softmax regression by logical workers, in rounds: the same result with any number of threads.

In a round every logical worker w takes the next samples of the epoch's order and computes their gradient at the weights
at the start of the round (`batch_dense_worker`, `batch_sparse_worker`). Then `apply_worker` applies the gradients one
worker after another; each visit updates the features of its shard. So the gradient of worker w is w updates out of
date, which AdaRevision corrects.

The gradient of worker w is G[w] [m, K], for the features listed in names[w] [m], counts[w] of them; dense data list all
features. State, by features, float32: W [p + 1, K]; square [p + 1, K], the sum of squared gradients; for AdaRevision
also past [p + 1, K], the sum of gradients, seen [p + 1, K], that sum at the start of the round, and most [p + 1, K],
the largest sum of squares so far. The penalty of a feature is due for every update of the run. It is applied lazily:
when the feature changes, or by `pay_worker` for all. due [p + 1]: the update up to which it was applied.
"""

from __future__ import annotations

import numpy as np

from stretto.kernels.core.claims import next_visit
from stretto.kernels.core.compile import inner, kernel
from stretto.kernels.core.scratch import empty, empty2, zeros

from .softmax import gradient_dense_inner, gradient_sparse_inner

SGD, ADAGRAD, ADAREVISION = range(3)
CODES = {"sgd": SGD, "adagrad": ADAGRAD, "adarevision": ADAREVISION}


@kernel(allocates=True)
def batch_dense_worker(pass_, worker, out, bounds, X, y, weight, order, W, k, strip, G):
    """Visit w: the gradient of the samples order[bounds[w]] … order[bounds[w + 1]] into G[w] [p + 1, K] float64."""
    p = X.shape[1]
    visit = next_visit(pass_, worker)
    while visit >= 0:
        first, last = bounds[visit], bounds[visit + 1]
        rows = last - first
        part, names, shares = empty2(rows, p, X.dtype), empty(rows, np.int64), empty(rows, np.float64)
        for r in range(rows):
            i = order[first + r]
            part[r], names[r], shares[r] = X[i], y[i], weight[i]
        G[visit] = 0.0
        out[visit] = gradient_dense_inner(part, names, shares, W, k, strip, G[visit])
        visit = next_visit(pass_, worker, visit)


@kernel(allocates=True)
def batch_sparse_worker(
    pass_, worker, out, bounds, indptr, indices, values, y, weight, order, W, k, strip, mark, names, counts, G
):  # fmt: skip
    """`batch_dense_worker` for CSR: G[w] has a row for every feature that occurs, and a last one for the intercepts.

    names[w] lists the features. mark [V, p] int32: −1 everywhere before and after.
    """
    p, K = W.shape[0] - 1, W.shape[1]
    visit = next_visit(pass_, worker)
    while visit >= 0:
        first, last = bounds[visit], bounds[visit + 1]
        rows = last - first
        entries, found = 0, 0
        for r in range(rows):
            i = order[first + r]
            entries += indptr[i + 1] - indptr[i]
            for t in range(indptr[i], indptr[i + 1]):
                if mark[visit, indices[t]] < 0:
                    mark[visit, indices[t]] = found
                    names[visit, found] = indices[t]
                    found += 1
        own, starts = empty(rows, np.int64), zeros(rows + 1, np.int64)
        shares, where, what = empty(rows, np.float64), empty(entries, np.int64), empty(entries, values.dtype)
        at = 0
        for r in range(rows):
            i = order[first + r]
            own[r], shares[r] = y[i], weight[i]
            for t in range(indptr[i], indptr[i + 1]):
                where[at], what[at] = mark[visit, indices[t]], values[t]
                at += 1
            starts[r + 1] = at
        here = empty2(found + 1, K, W.dtype)
        for f in range(found):
            here[f] = W[names[visit, f]]
            mark[visit, names[visit, f]] = -1
        here[found] = W[p]
        names[visit, found] = p
        counts[visit] = found + 1
        G[visit, : found + 1] = 0.0
        out[visit] = gradient_sparse_inner(starts, where, what, own, shares, here, k, strip, G[visit, : found + 1])
        visit = next_visit(pass_, worker, visit)


@inner
def _pay(W, j, c, rate, times, l1, ridge):
    """Apply the penalty of `times` updates at once, as a proximal step."""
    w = np.float64(W[j, c])
    size = abs(w) - rate * times * l1
    if size <= 0.0:
        W[j, c] = 0.0
    else:
        W[j, c] = (size if w > 0.0 else -size) / (1.0 + rate * times * ridge)


@inner
def _rate(kind, step, square):
    return step if kind == SGD else step / np.sqrt(square)


@kernel
def apply_worker(
    pass_, worker, out, bounds, kind, step, scale, update, first, last, names, counts, G, W, square, past, seen, most,
    due, l1, ridge, free, shards
):  # fmt: skip
    """Apply in visit s scale·G[w] of the workers first … last, in that order, to the features of shard s.

    update: the number of the first of these updates. l1, ridge [p + 1] in the units of the scaled gradient. free:
    whether the intercepts, the last row, are learned.
    """
    p, K = W.shape[0] - 1, W.shape[1]
    visit = next_visit(pass_, worker)
    while visit >= 0:
        if kind == ADAREVISION:
            for w in range(first, last):
                for f in range(counts[w]):
                    j = names[w, f]
                    if j % shards == visit:
                        for c in range(K):
                            seen[j, c] = past[j, c]
        for w in range(first, last):
            now = update + (w - first)
            for f in range(counts[w]):
                j = np.int64(names[w, f])
                if j % shards != visit or (j == p and not free):
                    continue
                behind = now - due[j]
                due[j] = now
                for c in range(K):
                    if behind > 0 and j < p:
                        # AdaRevision's sum may decrease, even below zero; its steps use the largest so far.
                        size = np.float64(most[j, c] if kind == ADAREVISION else square[j, c])
                        _pay(W, j, c, _rate(kind, step, size), behind, l1[j], ridge[j])
                    g = scale * G[w, f, c]
                    if kind == SGD:
                        W[j, c] -= step * g
                    elif kind == ADAGRAD:
                        square[j, c] += g * g
                        W[j, c] -= step * g / np.sqrt(np.float64(square[j, c]))
                    else:
                        back = np.float64(past[j, c]) - np.float64(seen[j, c])
                        old = step / np.sqrt(np.float64(most[j, c]))
                        square[j, c] += g * g + 2.0 * g * back
                        most[j, c] = max(most[j, c], square[j, c])
                        new = step / np.sqrt(np.float64(most[j, c]))
                        W[j, c] += (old - new) * back - new * g
                        past[j, c] += g
        visit = next_visit(pass_, worker, visit)


@kernel
def pay_worker(pass_, worker, out, bounds, kind, step, update, W, square, due, l1, ridge):
    """Apply the penalties due up to `update`, for the features bounds[v] … bounds[v + 1]."""
    visit = next_visit(pass_, worker)
    while visit >= 0:
        for j in range(bounds[visit], min(bounds[visit + 1], W.shape[0] - 1)):
            for c in range(W.shape[1]):
                _pay(W, j, c, _rate(kind, step, np.float64(square[j, c])), update - due[j], l1[j], ridge[j])
            due[j] = update
        visit = next_visit(pass_, worker, visit)
