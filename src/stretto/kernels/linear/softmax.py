"""Softmax regression: loss of k classes, gradient and Hessian products, over dense rows or CSR.

    z_i = x_i W + b        p_i = softmax(z_i)        loss = Σ_i s_i (log Σ_c e^z_ic − z_iy)        s: sample weights

Weights are stored by features: W [p + 1, K], row j the k classes of feature j, the last row the intercepts b, K = k
padded with zeros to a multiple of four or sixteen (`softmax_tiles.strips`). Gradients have the same shape. Sums have
W's type: float64, or float32, which is twice as fast and accurate to six digits; losses are float64.

A pass over dense data is one kernel: a block of rows of X is scored, turned into residuals and added to the gradient
while it is in the cache. Each visit has its own gradient, and `fold_worker` adds them in the order of the visits. A
pass over sparse data is two kernels: by rows to the residuals R [n, K], then by columns (CSC) to the gradient, so that
no two visits write to the same memory and one gradient is enough.

    look_dense_worker    look_sparse_worker       loss, probabilities P [n, K], and gradient or residuals
    curve_dense_worker   curve_sparse_worker      the same for a product of the Hessian with V [p + 1, K], from P
    back_worker                                   the gradient of given residuals, by columns
    mixed_entropy                                 the samples' part of the dual objective
    softmax_gradient                              loss and gradient of a mini-batch, at the caller's weights
"""

from __future__ import annotations

import numpy as np

from stretto.kernels.core.claims import next_visit
from stretto.kernels.core.compile import inner, kernel
from stretto.kernels.core.scratch import empty, empty2
from stretto.kernels.numeric.scalar import log, log_normal

from .softmax_tiles import add_listed, add_rows1, add_rows4, strips

_FAR = 700.0  # e^−700 is negligible
_LOG2E = 1.4426950408889634
_LN2_HIGH, _LN2_LOW = 0.6931471803691238, 1.9082149292705877e-10  # ln 2; k times the first is exact
_HALVES = 0.5 ** np.arange(1012.0)
_LEAST = 1e-300  # whose product with its logarithm is negligible
_CACHE = 1 << 18  # bytes of X that are processed together
_ROWS = 64


@inner
def _block(p, size):
    """Return how many rows of X are processed together; a number has `size` bytes."""
    return max(4, min(_ROWS, _CACHE // (p * size) & ~3))


@inner
def _series(r):
    """e^r for |r| ≤ ln 2 / 2."""
    q = r / 6227020800.0 + 1.0 / 479001600.0
    q = (q * r + 1.0 / 39916800.0) * r + 1.0 / 3628800.0
    q = (q * r + 1.0 / 362880.0) * r + 1.0 / 40320.0
    q = (q * r + 1.0 / 5040.0) * r + 1.0 / 720.0
    q = (q * r + 1.0 / 120.0) * r + 1.0 / 24.0
    q = (q * r + 1.0 / 6.0) * r + 0.5
    return (q * r + 1.0) * r + 1.0


@inner
def _settle(z, e, sums, rows, k, top, y, weight, P, R, at, wrong, spread):
    """Turn scores z [rows·K] into probabilities P[top …] and residuals weight·(p − 1 of the class) at R[at …], flat.

    Also wrong[top …], the probability of the other classes, and spread[top …], the entropy of p. Returns Σ weight·loss.
    e [rows·K] and sums [3·64] are scratch; columns beyond the k classes become zero.
    """
    K = P.shape[1]
    for r in range(rows):
        most = z[r * K]
        for c in range(1, k):
            most = max(most, z[r * K + c])
        for c in range(K):
            z[r * K + c] -= most
    # Neither branches nor sums, so that it vectorises.
    for i in range(rows * K):
        size = -z[i]
        size = size if size < _FAR else _FAR  # NaN becomes _FAR here, and shows in the loss
        size = size if size > 0.0 else 0.0  # may be negative in padding, or in a row with NaN
        n = np.floor(size * _LOG2E + 0.5)
        e[i] = _series(n * _LN2_HIGH - size + n * _LN2_LOW) * _HALVES[np.uint64(n)]
    # Sums of rows, then all their logarithms and reciprocals, which vectorises too.
    for r in range(rows):
        own = y[top + r]
        total = others = 0.0
        for c in range(k):
            total += e[r * K + c]
            others += e[r * K + c] if c != own else 0.0
        sums[r], sums[_ROWS + r] = total, others
    for r in range(rows):
        total = sums[r]
        sums[2 * _ROWS + r] = log_normal(total)
        sums[r] = 1.0 / total
    loss = 0.0
    for r in range(rows):
        i, s, part = top + r, weight[top + r], sums[r]
        mean = 0.0
        for c in range(k):
            chance = e[r * K + c] * part
            mean += chance * z[r * K + c]
            P[i, c] = chance
            R[at + r * K + c] = s * chance
        for c in range(k, K):
            P[i, c] = 0.0
            R[at + r * K + c] = 0.0
        # The class's own residual is the sum of the others: 1 − p would lose digits for p near 1.
        own = y[i]
        wrong[i] = sums[_ROWS + r] * part
        R[at + r * K + own] = -s * wrong[i]
        high = sums[2 * _ROWS + r]
        loss += s * (high - z[r * K + own])
        spread[i] = high - mean
    return loss


@inner
def _bend(a, rows, k, top, weight, P, R, at):
    """Turn products a [rows·K] into weight·(p∘a − p·(p·a)) at R[at …], flat."""
    K = P.shape[1]
    for r in range(rows):
        i, s = top + r, weight[top + r]
        mean = 0.0
        for c in range(k):
            mean += np.float64(P[i, c]) * a[r * K + c]
        for c in range(K):
            R[at + r * K + c] = s * np.float64(P[i, c]) * (a[r * K + c] - mean)


@inner
def _score_dense(X, top, rows, W, strip, z):
    """z [rows·K] = the scores of the rows top … top + rows."""
    p, K = X.shape[1], W.shape[1]
    wide = 4 * len(strip)
    for r in range(rows):
        for c in range(K):
            z[r * K + c] = W[p, c]
    r = 0
    while r < rows:
        for s in range(0, K, wide):
            if r + 4 <= rows:
                add_rows4(z, r * K + s, K, X, (top + r) * p, p, 1, p, W, s, K, strip)
            else:
                add_rows1(z, r * K + s, K, X, (top + r) * p, p, 1, p, W, s, K, strip)
        r += 4 if r + 4 <= rows else 1


@inner
def _back_dense(X, top, rows, R, strip, G, at):
    """Add the products of the rows top … top + rows with the residuals R [rows·K] to a gradient at G[at …], flat."""
    p, K = X.shape[1], G.shape[G.ndim - 1]
    wide = 4 * len(strip)
    j = 0
    while j < p:
        for s in range(0, K, wide):
            if j + 4 <= p:
                add_rows4(G, at + j * K + s, K, X, top * p + j, 1, p, rows, R, s, K, strip)
            else:
                add_rows1(G, at + j * K + s, K, X, top * p + j, 1, p, rows, R, s, K, strip)
        j += 4 if j + 4 <= p else 1


@inner
def _score_sparse(indptr, indices, values, top, rows, W, strip, z):
    """`_score_dense` for CSR."""
    p, K = W.shape[0] - 1, W.shape[1]
    for r in range(rows):
        for c in range(K):
            z[r * K + c] = W[p, c]
        for s in range(0, K, 4 * len(strip)):
            first, last = np.int64(indptr[top + r]), np.int64(indptr[top + r + 1])
            add_listed(z, r * K + s, indices, values, first, last, W, s, K, strip)


@inner
def _sum_rows(R, at, rows, total, K):
    """total [K] += the rows of R [rows·K] at R[at …]."""
    for r in range(rows):
        for c in range(K):
            total[c] += np.float64(R[at + r * K + c])


# --- dense rows -------------------------------------------------------------------------------------------------------


@kernel(allocates=True)
def look_dense_worker(pass_, worker, out, bounds, X, y, weight, W, k, strip, P, G, wrong, spread):
    """Visit v: the rows bounds[v] … bounds[v + 1]. X [n, p], y [n] int, weight [n].

    out[v] is their loss, G[v] of G [V, p + 1, K] float64 their gradient. P [n, K] in W's type: the probabilities;
    wrong [n]: of all classes but the sample's own; spread [n]: their entropy.
    """
    p, K = X.shape[1], W.shape[1]
    block = _block(p, X.itemsize)
    z, e, R = empty(block * K, np.float64), empty(block * K, np.float64), empty(block * K, W.dtype)
    sums = empty(3 * _ROWS, np.float64)
    visit = next_visit(pass_, worker)
    while visit >= 0:
        G[visit] = 0.0
        loss = 0.0
        for top in range(bounds[visit], bounds[visit + 1], block):
            rows = min(block, bounds[visit + 1] - top)
            _score_dense(X, top, rows, W, strip, z)
            loss += _settle(z, e, sums, rows, k, top, y, weight, P, R, 0, wrong, spread)
            _back_dense(X, top, rows, R, strip, G, visit * (p + 1) * K)
            _sum_rows(R, 0, rows, G[visit, p], K)
        out[visit] = loss
        visit = next_visit(pass_, worker, visit)


@kernel(allocates=True)
def curve_dense_worker(pass_, worker, out, bounds, X, weight, P, V, k, strip, G):
    """Visit v: the product of the Hessian at P with V [p + 1, K], of the rows bounds[v] … bounds[v + 1], into G[v]."""
    p, K = X.shape[1], V.shape[1]
    block = _block(p, X.itemsize)
    a, R = empty(block * K, np.float64), empty(block * K, V.dtype)
    visit = next_visit(pass_, worker)
    while visit >= 0:
        G[visit] = 0.0
        for top in range(bounds[visit], bounds[visit + 1], block):
            rows = min(block, bounds[visit + 1] - top)
            _score_dense(X, top, rows, V, strip, a)
            _bend(a, rows, k, top, weight, P, R, 0)
            _back_dense(X, top, rows, R, strip, G, visit * (p + 1) * K)
            _sum_rows(R, 0, rows, G[visit, p], K)
        visit = next_visit(pass_, worker, visit)


@kernel
def fold_worker(pass_, worker, out, bounds, G, total):
    """total [p + 1, K] = Σ_v G[v], for the features bounds[v] … bounds[v + 1], in the order of the visits."""
    visit = next_visit(pass_, worker)
    while visit >= 0:
        for j in range(bounds[visit], bounds[visit + 1]):
            for c in range(total.shape[1]):
                total[j, c] = 0.0
            for v in range(G.shape[0]):
                for c in range(total.shape[1]):
                    total[j, c] += G[v, j, c]
        visit = next_visit(pass_, worker, visit)


# --- sparse rows ------------------------------------------------------------------------------------------------------


@kernel(allocates=True)
def look_sparse_worker(
    pass_, worker, out, bounds, indptr, indices, values, y, weight, W, k, strip, P, R, gb, wrong, spread
):  # fmt: skip
    """Visit v: the rows bounds[v] … bounds[v + 1] of CSR. R [n, K] in W's type: residuals; gb [V, K]: their sums."""
    K = W.shape[1]
    z, e, sums = empty(_ROWS * K, np.float64), empty(_ROWS * K, np.float64), empty(3 * _ROWS, np.float64)
    flat = R.reshape(R.size)
    visit = next_visit(pass_, worker)
    while visit >= 0:
        gb[visit] = 0.0
        loss = 0.0
        for top in range(bounds[visit], bounds[visit + 1], _ROWS):
            rows = min(_ROWS, bounds[visit + 1] - top)
            _score_sparse(indptr, indices, values, top, rows, W, strip, z)
            loss += _settle(z, e, sums, rows, k, top, y, weight, P, flat, top * K, wrong, spread)
            _sum_rows(flat, top * K, rows, gb[visit], K)
        out[visit] = loss
        visit = next_visit(pass_, worker, visit)


@kernel(allocates=True)
def curve_sparse_worker(pass_, worker, out, bounds, indptr, indices, values, weight, P, V, k, strip, R, gb):
    """Compute in visit v the residuals of the Hessian product at P with V, for the rows bounds[v] … bounds[v + 1].

    `back_worker` then sums them by columns.
    """
    K = V.shape[1]
    a = empty(_ROWS * K, np.float64)
    flat = R.reshape(R.size)
    visit = next_visit(pass_, worker)
    while visit >= 0:
        gb[visit] = 0.0
        for top in range(bounds[visit], bounds[visit + 1], _ROWS):
            rows = min(_ROWS, bounds[visit + 1] - top)
            _score_sparse(indptr, indices, values, top, rows, V, strip, a)
            _bend(a, rows, k, top, weight, P, flat, top * K)
            _sum_rows(flat, top * K, rows, gb[visit], K)
        visit = next_visit(pass_, worker, visit)


@kernel
def back_worker(pass_, worker, out, bounds, indptr, indices, values, R, strip, G):
    """G[j] = Σ_i x_ij R[i] for the columns bounds[v] … bounds[v + 1] of CSC; G [p + 1, K]."""
    K = R.shape[1]
    visit = next_visit(pass_, worker)
    while visit >= 0:
        for j in range(bounds[visit], bounds[visit + 1]):
            for c in range(K):
                G[j, c] = 0.0
            for s in range(0, K, 4 * len(strip)):
                add_listed(G, j * K + s, indices, values, np.int64(indptr[j]), np.int64(indptr[j + 1]), R, s, K, strip)
        visit = next_visit(pass_, worker, visit)


# --- sums over samples ------------------------------------------------------------------------------------------------


@kernel(allocates=True)
def mixed_entropy(wrong, spread, weight, share):
    """Σ weight·entropy of share·p + (1 − share)·(all on the sample's own class), from the output of `look_*`."""
    here = empty(_ROWS, np.float64)
    less, total = 1.0 - share, 0.0
    of_share = share * log(share) if share > 0.0 else 0.0
    for top in range(0, wrong.shape[0], _ROWS):
        rows = min(_ROWS, wrong.shape[0] - top)
        if share < 1.0:
            for r in range(rows):
                apart = wrong[top + r]
                own, mixed = 1.0 - apart, 1.0 - share * apart
                own = own if own > _LEAST else _LEAST  # NaN becomes _LEAST, and shows in spread
                mixed = mixed if mixed > less else less
                mixed = mixed if mixed > _LEAST else _LEAST
                here[r] = share * own * log_normal(own) - mixed * log_normal(mixed) - of_share * apart
        else:
            here[:rows] = 0.0
        for r in range(rows):
            total += weight[top + r] * (share * spread[top + r] + here[r])
    return total


# --- a mini-batch -----------------------------------------------------------------------------------------------------


@inner(allocates=True)
def gradient_dense_inner(X, y, weight, W, k, strip, G):
    """G [p + 1, K] += the gradient of the rows of X [n, p] at W; their loss."""
    n, p, K = X.shape[0], X.shape[1], W.shape[1]
    z, e, R = empty(_ROWS * K, np.float64), empty(_ROWS * K, np.float64), empty(_ROWS * K, W.dtype)
    sums = empty(3 * _ROWS, np.float64)
    P, wrong, spread = empty2(n, K, W.dtype), empty(n, np.float64), empty(n, np.float64)
    loss = 0.0
    for top in range(0, n, _ROWS):
        rows = min(_ROWS, n - top)
        _score_dense(X, top, rows, W, strip, z)
        loss += _settle(z, e, sums, rows, k, top, y, weight, P, R, 0, wrong, spread)
        _back_dense(X, top, rows, R, strip, G, 0)
        for r in range(rows):
            for c in range(K):
                G[p, c] += R[r * K + c]
    return loss


@inner(allocates=True)
def gradient_sparse_inner(indptr, indices, values, y, weight, W, k, strip, G):
    """`gradient_dense_inner` for CSR rows. Only the rows of G whose feature occurs, and the last, are changed."""
    n, p, K = indptr.shape[0] - 1, W.shape[0] - 1, W.shape[1]
    z, e, R = empty(_ROWS * K, np.float64), empty(_ROWS * K, np.float64), empty(_ROWS * K, W.dtype)
    sums = empty(3 * _ROWS, np.float64)
    P, wrong, spread = empty2(n, K, W.dtype), empty(n, np.float64), empty(n, np.float64)
    loss = 0.0
    for top in range(0, n, _ROWS):
        rows = min(_ROWS, n - top)
        _score_sparse(indptr, indices, values, top, rows, W, strip, z)
        loss += _settle(z, e, sums, rows, k, top, y, weight, P, R, 0, wrong, spread)
        for r in range(rows):
            for t in range(indptr[top + r], indptr[top + r + 1]):
                j, x = indices[t], values[t]
                for c in range(K):
                    G[j, c] += x * R[r * K + c]
            for c in range(K):
                G[p, c] += R[r * K + c]
    return loss


@kernel(allocates=True)
def gradient_dense(X, y, weight, W, k, strip, G):
    """`gradient_dense_inner` as an entry point for Python."""
    return gradient_dense_inner(X, y, weight, W, k, strip, G)


@kernel(allocates=True)
def gradient_sparse(indptr, indices, values, y, weight, W, k, strip, G):
    """`gradient_sparse_inner` as an entry point for Python."""
    return gradient_sparse_inner(indptr, indices, values, y, weight, W, k, strip, G)


def padded(coef, intercept, dtype=np.float64):
    """Return (W [p + 1, K], strip) in the kernels' layout, from coef [p, k] and intercept [k]."""
    features, classes = coef.shape
    width, strip = strips(classes)
    W = np.zeros((features + 1, width), dtype)
    W[:features, :classes], W[features, :classes] = coef, intercept
    return W, strip


def softmax_gradient(batch, y, coef, intercept, weight=None, profile="exact"):
    """Compute loss and gradient of a mini-batch, as a worker does between reading weights and adding updates.

    Sums over the batch, not means, without a penalty. The arithmetic is in the type of coef: float64 or float32. For
    CSR with many empty columns, number the features that occur 0 … m − 1 and pass only their m rows of coef.

    Parameters
    ----------
    batch : array [n, p], SciPy CSR matrix, or tuple (indptr, indices, values)
        The samples; a dense array in C order.
    y : array [n]
        Classes, 0 … k − 1.
    coef : array [p, k]
        Weights by features, as rows of a table hold them.
    intercept : array [k]
        One intercept for each class.
    weight : array [n] or None
        Sample weights; None: ones.
    profile : str, default "exact"
        Numeric profile of the kernel.

    Returns
    -------
    tuple
        Loss, gradient of coef [p, k], gradient of intercept [k].

    Examples
    --------
    >>> X, y = np.array([[1.0, 0.0], [0.0, 2.0]]), np.array([0, 1])
    >>> loss, slope, bias = softmax_gradient(X, y, np.zeros((2, 2)), np.zeros(2))
    >>> round(float(loss), 4), slope.tolist(), bias.tolist()
    (1.3863, [[-0.5, 0.5], [1.0, -1.0]], [0.0, 0.0])
    """
    features, classes = coef.shape
    dtype = np.dtype(np.float32 if coef.dtype == np.float32 else np.float64)
    W, strip = padded(coef, intercept, dtype)
    y = np.asarray(y, np.int64)
    weight = np.ones(len(y)) if weight is None else np.asarray(weight, np.float64)
    G = np.zeros(W.shape)
    if hasattr(batch, "indptr"):
        batch = batch.indptr, batch.indices, batch.data
    if isinstance(batch, tuple):
        loss = gradient_sparse[profile](*batch, y, weight, W, classes, strip, G)
    else:
        loss = gradient_dense[profile](batch, y, weight, W, classes, strip, G)
    return loss, G[:features, :classes], G[features, :classes]
