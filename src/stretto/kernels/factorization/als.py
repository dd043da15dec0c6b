"""Alternating least squares: with one side's factors fixed, solve a small least-squares problem for each row.

Row i of X minimises, over its ratings j (CSR arrays of the side being solved),

    Σ w_j (t_j / w_j − x·Y[j])²  +  xᵀ G x  +  ridge_i ‖x − prior_i‖²

which is solved by (Σ w_j Y[j] Y[j]ᵀ + G + ridge_i) x = Σ t_j Y[j] + ridge_i prior_i, with

              explicit                           implicit (Hu, Koren, Volinsky 2008), c = α |r|
    w, t      v, v·(r − mean − offset[j])        c, 1 + c if r > 0 else 0     (a negative r is a confident "no")
    G         nothing: gram has no rows          Yᵀ Y: gram [width, width]
    ridge_i   reg · Σ_j v_j                      reg · Σ_j (1 + c_j)
    prior_i   0, or the row's mean before its ratings are seen: prior [m, width], without rows for 0

where v is the weight of a rating, 1 without weights. So a rating with confidence 1 + c counts c more than the (1, 0)
that G already holds for every pair. A row without ratings becomes 0.

**Biases.** The kernel has none. A caller that wants biases solves for one more unknown: it keeps column `rank` of both
factors free (width = padded(rank + 1)), writes 1 into Y[:, rank], passes the other side's biases as `offset`, and reads
the row biases from X[:, rank] afterwards (for cg it writes the old ones there first). That column has its own ridge,
with own_reg instead of reg: own = rank; own = −1 for no such column.

Shapes: bounds [V + 1] row blocks; indptr [m + 1]; indices, values [n]; weights [n] float32, or length 0 without them
and for implicit; X [m, width], Y [k, width] float32, zero-padded; offset [k] float32 or length 0; prior as X or without
rows; mean, reg, own_reg, alpha float32; scratch from `scratch`, one part per worker.
"""

from __future__ import annotations

import numpy as np

from stretto.kernels.core.claims import fail, next_visit
from stretto.kernels.core.compile import inner, kernel
from stretto.kernels.core.scratch import zeros, zeros2
from stretto.kernels.numeric import lanes
from stretto.kernels.numeric.cholesky import solve, solve_wide
from stretto.kernels.numeric.tile import crossprod

# Ratings whose factors are gathered before they are multiplied: 32 KiB at width 64, which fits in the L1 cache.
PACKED = 128
_ZERO, _ONE = np.float32(0.0), np.float32(1.0)
# Conjugate gradients stop early when the squared residual has fallen by this factor, the limit of float32.
_SOLVED = np.float32(1e-12)


def scratch(workers: int, width: int) -> np.ndarray:
    """Working memory of `cholesky_worker` and `cg_worker`: [workers, width + 2 + PACKED, width] float32."""
    return lanes.aligned((workers, width + 2 + PACKED, width))


@inner
def _terms(values, weights, t, base, implicit, alpha):
    """Return weight and target (w, t) of rating t; base = mean + offset[j]."""
    value = values[t]
    if implicit:
        c = alpha * abs(value)
        return c, (_ONE + c if value > _ZERO else _ZERO)
    weight = weights[t] if weights.shape[0] > 0 else _ONE
    return weight, weight * (value - base)


@inner
def _total(first, last, values, weights, implicit, alpha):
    """Return the factor of a row's penalty: the weight of its ratings, or the total confidence of its entries."""
    if weights.shape[0] > 0:
        total = _ZERO
        for t in range(first, last):
            total += weights[t]
        return total
    total = np.float32(last - first)
    if implicit:
        for t in range(first, last):
            total += alpha * abs(values[t])
    return total


@inner
def _penalty(X, i, ridge, own, own_ridge):
    """Return the penalty of row i; its own column separately, as a strong ridge and a weak one may be far apart."""
    if own < 0:
        return np.float64(ridge) * lanes.dot(X, i, X, i)
    last = X[i, own]
    X[i, own] = _ZERO
    total = np.float64(ridge) * lanes.dot(X, i, X, i) + np.float64(own_ridge) * last * last
    X[i, own] = last
    return total


@inner
def _add_prior(S, to, i, prior, ridge, own, own_ridge):
    """S[to] += ridge_i prior_i; nothing without priors."""
    if prior.shape[0] > 0:
        other = S[to, own] + own_ridge * prior[i, own] if own >= 0 else _ZERO
        lanes.axpy(S, to, ridge, prior, i)
        if own >= 0:
            S[to, own] = other


@inner
def _penalty_from(S, X, i, prior, ridge, own, own_ridge):
    """Return the penalty of row i; row n + 1 of S is used with priors."""
    if prior.shape[0] == 0:
        return _penalty(X, i, ridge, own, own_ridge)
    to = X.shape[1] + 1
    lanes.scaled(S, to, _ONE, X, i)
    lanes.axpy(S, to, -_ONE, prior, i)
    return _penalty(S, to, ridge, own, own_ridge)


@inner
def _normal(S, i, first, last, indices, values, weights, Y, gram, offset, mean, ridge, own, own_ridge, alpha, prior):
    """Build the normal matrix (j ≥ i) in rows 0 … n − 1 of S, and the right-hand side in row n."""
    n = Y.shape[1]
    implicit, shifted = gram.shape[0] > 0, offset.shape[0] > 0
    certain = prior.shape[0] == 0
    for k in range(n):
        if implicit:
            lanes.scaled(S, k, _ONE, gram, k)
        else:
            lanes.clear(S, k)
    lanes.clear(S, n)
    for begin in range(first, last, PACKED):
        end = min(begin + PACKED, last)
        to = n + 2
        for t in range(begin, end):
            j = np.int64(indices[t])
            w, pull = _terms(values, weights, t, mean + offset[j] if shifted else mean, implicit, alpha)
            lanes.scaled(S, to, np.sqrt(w), Y, j)
            lanes.axpy(S, n, pull, Y, j)
            to += 1
        crossprod(S, S, n + 2, to)
    _add_prior(S, n, i, prior, ridge, own, own_ridge)
    for k in range(n):
        if S[k, k] != _ZERO or not certain:
            S[k, k] += own_ridge if k == own else ridge


@inner(allocates=True)
def _solve_wide(
    X, i, first, last, indices, values, weights, Y, gram, offset, mean, ridge, own, own_ridge, alpha, prior
):
    """Solve the row once more in float64, term by term; rarely called, so not optimised."""
    n = Y.shape[1]
    implicit, shifted = gram.shape[0] > 0, offset.shape[0] > 0
    A = zeros2(n, n, np.float64)
    b = zeros(n, np.float64)
    x = zeros(n, np.float64)
    if implicit:
        for p in range(n):
            for q in range(p, n):
                A[p, q] = gram[p, q]
    for t in range(first, last):
        j = np.int64(indices[t])
        w, pull = _terms(values, weights, t, mean + offset[j] if shifted else mean, implicit, alpha)
        for p in range(n):
            b[p] += np.float64(pull) * Y[j, p]
            for q in range(p, n):
                A[p, q] += np.float64(w) * Y[j, p] * Y[j, q]
    for k in range(n):
        if A[k, k] != 0.0 or prior.shape[0] > 0:
            A[k, k] += own_ridge if k == own else ridge
        if prior.shape[0] > 0:
            b[k] += np.float64(own_ridge if k == own else ridge) * prior[i, k]
    solved = solve_wide(A, b, x)
    for k in range(n):
        X[i, k] = x[k] if solved else np.nan


@kernel(allocates=True)
def cholesky_worker(
    pass_,
    worker,
    out,
    bounds,
    indptr,
    indices,
    values,
    weights,
    X,
    Y,
    gram,
    offset,
    mean,
    reg,
    own,
    own_reg,
    alpha,
    prior,
    base,
    own_base,
    scratch,
):
    """Set each row of X to the exact solution. base, own_base float32: ridges that do not grow with the ratings.

    out [V]: the penalty Σ ridge_i ‖x_i‖² of a block."""
    n = Y.shape[1]
    S = scratch[worker]
    v = next_visit(pass_, worker)
    while v >= 0:
        penalty = 0.0
        for i in range(bounds[v], bounds[v + 1]):
            first, last = indptr[i], indptr[i + 1]
            if first == last:
                lanes.clear(X, i)
                continue
            weight = _total(first, last, values, weights, gram.shape[0] > 0, alpha)
            ridge, own_ridge = base + reg * weight, own_base + own_reg * weight
            at = (first, last, indices, values, weights, Y, gram, offset, mean, ridge, own, own_ridge, alpha, prior)
            _normal(S, i, *at)
            if solve(S, n):
                lanes.scaled(X, i, _ONE, S, n)
            else:
                _solve_wide(X, i, *at)
            penalty += _penalty_from(S, X, i, prior, ridge, own, own_ridge)
        out[v] = penalty
        if not np.isfinite(penalty):
            fail(pass_, v)
        v = next_visit(pass_, worker, v)


@inner
def _apply(
    S, to, V, i, first, last, indices, values, weights, Y, gram, offset, mean, ridge, own, own_ridge, alpha, aim
):
    """S[to] = A V[i] − aim·b without forming A: ridge·V[i] + G V[i] + Σ (w_j (Y[j]·V[i]) − aim·t_j) Y[j]."""
    implicit, shifted = gram.shape[0] > 0, offset.shape[0] > 0
    lanes.scaled(S, to, ridge, V, i)
    x = V[i]
    if own >= 0:
        S[to, own] = own_ridge * x[own]
    for k in range(0, gram.shape[0], 4):
        lanes.axpy4(S, to, x[k], x[k + 1], x[k + 2], x[k + 3], gram, k, k + 1, k + 2, k + 3)
    t = first
    while t + 4 <= last:
        j0, j1, j2, j3 = (
            np.int64(indices[t]),
            np.int64(indices[t + 1]),
            np.int64(indices[t + 2]),
            np.int64(indices[t + 3]),
        )
        d0, d1, d2, d3 = lanes.dot4(Y, j0, j1, j2, j3, V, i)
        w0, b0 = _terms(values, weights, t, mean + offset[j0] if shifted else mean, implicit, alpha)
        w1, b1 = _terms(values, weights, t + 1, mean + offset[j1] if shifted else mean, implicit, alpha)
        w2, b2 = _terms(values, weights, t + 2, mean + offset[j2] if shifted else mean, implicit, alpha)
        w3, b3 = _terms(values, weights, t + 3, mean + offset[j3] if shifted else mean, implicit, alpha)
        s0, s1, s2, s3 = w0 * d0 - aim * b0, w1 * d1 - aim * b1, w2 * d2 - aim * b2, w3 * d3 - aim * b3
        lanes.axpy4(S, to, s0, s1, s2, s3, Y, j0, j1, j2, j3)
        t += 4
    while t < last:
        j = np.int64(indices[t])
        w, b = _terms(values, weights, t, mean + offset[j] if shifted else mean, implicit, alpha)
        lanes.axpy(S, to, w * lanes.dot(Y, j, V, i) - aim * b, Y, j)
        t += 1


@kernel
def cg_worker(
    pass_,
    worker,
    out,
    bounds,
    indptr,
    indices,
    values,
    weights,
    X,
    Y,
    gram,
    offset,
    mean,
    reg,
    own,
    own_reg,
    alpha,
    prior,
    steps,
    scratch,
):
    """Make `steps` conjugate-gradient steps on each row of X. out [V]: as for `cholesky_worker`."""
    S = scratch[worker]
    residual, along, image = 0, 1, 2
    v = next_visit(pass_, worker)
    while v >= 0:
        penalty = 0.0
        for i in range(bounds[v], bounds[v + 1]):
            first, last = indptr[i], indptr[i + 1]
            if first == last:
                lanes.clear(X, i)
                continue
            weight = _total(first, last, values, weights, gram.shape[0] > 0, alpha)
            ridge, own_ridge = reg * weight, own_reg * weight
            at = (first, last, indices, values, weights, Y, gram, offset, mean, ridge, own, own_ridge, alpha)
            _apply(S, image, X, i, *at, _ONE)
            lanes.scaled(S, residual, -_ONE, S, image)
            _add_prior(S, residual, i, prior, ridge, own, own_ridge)
            lanes.scaled(S, along, _ONE, S, residual)
            size = lanes.dot(S, residual, S, residual)
            enough = _SOLVED * size
            for _ in range(steps):
                if not size > enough:
                    break
                _apply(S, image, S, along, *at, _ZERO)
                curvature = lanes.dot(S, along, S, image)
                if not curvature > _ZERO:
                    break
                step = size / curvature
                lanes.axpy(X, i, step, S, along)
                lanes.axpy(S, residual, -step, S, image)
                before = size
                size = lanes.dot(S, residual, S, residual)
                lanes.scaled(S, along, size / before, S, along)
                lanes.axpy(S, along, _ONE, S, residual)
            penalty += _penalty_from(S, X, i, prior, ridge, own, own_ridge)
        out[v] = penalty
        if not np.isfinite(penalty):
            fail(pass_, v)
        v = next_visit(pass_, worker, v)


@kernel
def gram_worker(pass_, worker, out, bounds, Y, partial):
    """partial [V, width, width] float32: Yᵀ Y of each row block (j ≥ i), for `fold_gram`. out [V]: its trace."""
    v = next_visit(pass_, worker)
    while v >= 0:
        mine = partial[v]
        for k in range(Y.shape[1]):
            lanes.clear(mine, k)
        for begin in range(bounds[v], bounds[v + 1], PACKED):
            crossprod(mine, Y, begin, min(begin + PACKED, bounds[v + 1]))
        trace = 0.0
        for k in range(Y.shape[1]):
            trace += mine[k, k]
        out[v] = trace
        if not np.isfinite(trace):
            fail(pass_, v)
        v = next_visit(pass_, worker, v)


@kernel
def fold_gram(partial, gram):
    """gram [width, width] float32 = Σ partial, summed in float64 in block order, both triangles."""
    width = gram.shape[0]
    for p in range(width):
        for q in range(p, width):
            total = 0.0
            for block in range(partial.shape[0]):
                total += partial[block, p, q]
            gram[p, q] = total
            gram[q, p] = total


@kernel
def squared_worker(pass_, worker, out, bounds, indptr, indices, values, weights, X, Y, row_bias, col_bias, mean):
    """out [V]: Σ v·(r − p)² over the ratings of a block; model and order of additions as in `predict`."""
    row_biased, col_biased, weighted = row_bias.shape[0] > 0, col_bias.shape[0] > 0, weights.shape[0] > 0
    v = next_visit(pass_, worker)
    while v >= 0:
        total = 0.0
        for i in range(bounds[v], bounds[v + 1]):
            base = mean + row_bias[i] if row_biased else mean
            for t in range(indptr[i], indptr[i + 1]):
                j = np.int64(indices[t])
                p = base + col_bias[j] if col_biased else base
                e = np.float64(values[t] - (p + lanes.dot(X, i, Y, j)))
                total += weights[t] * (e * e) if weighted else e * e
        out[v] = total
        if not np.isfinite(total):
            fail(pass_, v)
        v = next_visit(pass_, worker, v)


@kernel
def implicit_worker(pass_, worker, out, bounds, indptr, indices, values, X, Y, gram, alpha, scratch):
    """out [V]: Σ confidence·(preference − x·y)² over *every* pair of a block's rows, in O(n width + rows width²).

    Over all pairs with confidence 1 and preference 0 it is Σ xᵀ G x; for a rating, s² is replaced by (1 + c)(p − s)².
    """
    S = scratch[worker]
    v = next_visit(pass_, worker)
    while v >= 0:
        total = 0.0
        for i in range(bounds[v], bounds[v + 1]):
            x = X[i]
            lanes.clear(S, 0)
            for k in range(0, gram.shape[0], 4):
                lanes.axpy4(S, 0, x[k], x[k + 1], x[k + 2], x[k + 3], gram, k, k + 1, k + 2, k + 3)
            total += lanes.dot(S, 0, X, i)
            for t in range(indptr[i], indptr[i + 1]):
                s = np.float64(lanes.dot(X, i, Y, np.int64(indices[t])))
                e = (1.0 if values[t] > _ZERO else 0.0) - s
                total += (1.0 + np.float64(alpha) * abs(values[t])) * e * e - s * s
        out[v] = total
        if not np.isfinite(total):
            fail(pass_, v)
        v = next_visit(pass_, worker, v)
