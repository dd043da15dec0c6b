"""Fold-in of factor rows for any loss, with the other side fixed: damped Newton steps, row by row.

Row i of X minimises, over its ratings j with values r_j,

    Σ loss(r_j, offset[j] + x·Y[j])  +  n_i / 2 · (reg ‖d‖² + (own_reg − reg)·d[own]²),    d = x − prior_i

whose gradient the SGD kernels follow. With pull = −∂loss/∂p and a curvature w, one step is x += s·d, where

    (Σ w Y[j] Y[j]ᵀ + ridge) d = Σ pull·Y[j] − ridge·(x − prior_i)

            pull                    w
squared     r − p                   1                          exact after one step
absolute    e / max(|e|, _NEAR)     1 / max(|e|, _NEAR)        iteratively reweighted least squares; e = r − p
logistic    y⁺ − σ(p)               σ(p)(1 − σ(p))             Newton

and s = 1, ½, ¼, … is the first that lowers the objective. The arithmetic is float64: rows are few and ill-conditioned.
A row without ratings becomes 0. Near 0 the absolute loss is a parabola of width _NEAR, so that it has a curvature.

Shapes: bounds [V + 1] row blocks; indptr [m + 1]; indices, values [n]; X [m, width], Y [k, width] float32; offset [k]
float32 or length 0; reg, own_reg float32; own: the column with its own ridge, −1 for none; loss: a code of
`losses`.
"""

from __future__ import annotations

import numpy as np

from stretto.kernels.core.claims import fail, next_visit
from stretto.kernels.core.compile import inner, kernel
from stretto.kernels.core.scratch import zeros, zeros2
from stretto.kernels.numeric.cholesky import solve_wide
from stretto.kernels.numeric.scalar import exp

from .loss_codes import ABSOLUTE, SQUARED
from .losses import cost_of

_NEAR = 1e-4
_STEPS, _HALVINGS = 100, 30
_SETTLED = 1e-10


@inner
def _cost(loss, y, p):
    e = abs(np.float64(y) - p)
    if loss == SQUARED:
        return 0.5 * e * e
    if loss == ABSOLUTE:
        return e if e > _NEAR else 0.5 * (e * e / _NEAR + _NEAR)
    return cost_of(loss, y, p)


@inner
def slope(loss, y, p):
    """Return (pull, curvature) of one rating."""
    e = np.float64(y) - p
    if loss == SQUARED:
        return e, 1.0
    if loss == ABSOLUTE:
        w = 1.0 / max(abs(e), _NEAR)
        return e * w, w
    s = 1.0 / (1.0 + exp(-p))
    return (1.0 if y > 0.0 else 0.0) - s, s * (1.0 - s)


@inner
def predicted(x, Y, j, offset):
    p = np.float64(offset[j]) if offset.shape[0] > 0 else 0.0
    for k in range(Y.shape[1]):
        p += x[k] * Y[j, k]
    return p


@inner
def _objective(x, start, first, last, indices, values, Y, offset, ridges, loss):
    total = 0.0
    for k in range(len(x)):
        total += 0.5 * ridges[k] * (x[k] - start[k]) * (x[k] - start[k])
    for t in range(first, last):
        total += _cost(loss, values[t], predicted(x, Y, np.int64(indices[t]), offset))
    return total


@kernel(allocates=True)
def newton_worker(pass_, worker, out, bounds, indptr, indices, values, X, Y, offset, reg, own, own_reg, prior, loss):
    """Set each row of X to the minimiser. out [V]: Σ of the objectives of a block."""
    n = Y.shape[1]
    A, b = zeros2(n, n, np.float64), zeros(n, np.float64)
    x, d, start = zeros(n, np.float64), zeros(n, np.float64), zeros(n, np.float64)
    tried, ridges = zeros(n, np.float64), zeros(n, np.float64)
    v = next_visit(pass_, worker)
    while v >= 0:
        total = 0.0
        for i in range(bounds[v], bounds[v + 1]):
            first, last = indptr[i], indptr[i + 1]
            for k in range(n):
                start[k] = prior[i, k] if prior.shape[0] > 0 else 0.0
                x[k] = start[k] if last > first else 0.0
                ridges[k] = np.float64(own_reg if k == own else reg) * (last - first)
            now = _objective(x, start, first, last, indices, values, Y, offset, ridges, loss)
            for _ in range(_STEPS if last > first else 0):
                A[:, :] = 0.0
                for k in range(n):
                    A[k, k] = ridges[k]
                    b[k] = -ridges[k] * (x[k] - start[k])
                for t in range(first, last):
                    j = np.int64(indices[t])
                    pull, w = slope(loss, values[t], predicted(x, Y, j, offset))
                    for p in range(n):
                        b[p] += pull * Y[j, p]
                        scaled = w * Y[j, p]
                        for q in range(p, n):
                            A[p, q] += scaled * Y[j, q]
                if not solve_wide(A, b, d):
                    break
                size, then = 1.0, now
                for _ in range(_HALVINGS):
                    for k in range(n):
                        tried[k] = x[k] + size * d[k]
                    then = _objective(tried, start, first, last, indices, values, Y, offset, ridges, loss)
                    if then < now:
                        break
                    size *= 0.5
                if not then < now:
                    break
                x[:] = tried
                settled = now - then <= _SETTLED * (1.0 + abs(then))
                now = then
                if settled:
                    break
            for k in range(n):
                X[i, k] = x[k]
            total += now
        out[v] = total
        if not np.isfinite(total):
            fail(pass_, v)
        v = next_visit(pass_, worker, v)
