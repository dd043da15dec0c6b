"""How much each rating of a row contributes to its scores, for rows that are solved for with the other side fixed.

At its minimum, the row x of `als` and `fold_in` is a weighted least-squares solution

    A x = Σ_t w_t z_t Y[t],      A = Σ_t w_t Y[t] Y[t]ᵀ + G + ridge

over its ratings t, so that the score of column j is a sum with one term for each rating:

    x·Y[j] = Σ_t (Y[j]ᵀ A⁻¹ Y[t]) w_t z_t

             w_t                 w_t z_t                              G
squared      1                   r − offset[t]                        nothing
others       curvature at x      w_t x·Y[t] + pull                    nothing; curvature and pull as in `fold_in`
implicit     c = α |r|           1 + c if r > 0 else 0                Yᵀ Y: gram [width, width]

Shapes: bounds [V + 1] of targets; indices, values [n]: the ratings of the row; x [width]; Y [k, width] float32,
zero-padded; targets [T]: columns to explain; gram [width, width] or [0, 0]; offset [k] float32 or length 0; ridge,
own_ridge: penalties of the row, of its column `own` (−1 for none); parts [T, n] float64.
"""

from __future__ import annotations

import numpy as np

from stretto.kernels.core.claims import fail, next_visit
from stretto.kernels.core.compile import inner, kernel
from stretto.kernels.core.scratch import zeros, zeros2
from stretto.kernels.numeric.cholesky import solve_wide

from .fold_in import predicted, slope


@inner
def _term(value, j, x, Y, gram, offset, alpha, loss):
    """Return (w_t, w_t z_t) of one rating."""
    if gram.shape[0] > 0:
        c = np.float64(alpha) * abs(np.float64(value))
        return c, 1.0 + c if value > 0.0 else 0.0
    p = predicted(x, Y, j, offset)
    pull, w = slope(loss, value, p)
    base = np.float64(offset[j]) if offset.shape[0] > 0 else 0.0
    return w, w * (p - base) + pull


@kernel(allocates=True)
def explain_worker(
    pass_, worker, out, bounds, indices, values, x, Y, targets, gram, offset, ridge, own, own_ridge, alpha, loss, parts
):
    """Fill parts [T, n]: their sum over the ratings is the row's score of a target. out [V]: the sum of those."""
    n = Y.shape[1]
    A, b, q = zeros2(n, n, np.float64), zeros(n, np.float64), zeros(n, np.float64)
    v = next_visit(pass_, worker)
    while v >= 0:
        total = 0.0
        for i in range(bounds[v], bounds[v + 1]):
            A[:, :] = 0.0
            for p in range(gram.shape[0]):
                for k in range(p, n):
                    A[p, k] = gram[p, k]
            for t in range(indices.shape[0]):
                j = np.int64(indices[t])
                w, _ = _term(values[t], j, x, Y, gram, offset, alpha, loss)
                for p in range(n):
                    scaled = w * Y[j, p]
                    for k in range(p, n):
                        A[p, k] += scaled * Y[j, k]
            for k in range(n):
                b[k] = Y[targets[i], k]
                if A[k, k] != 0.0:
                    A[k, k] += own_ridge if k == own else ridge
            solved = solve_wide(A, b, q)
            for t in range(indices.shape[0]):
                j = np.int64(indices[t])
                _, response = _term(values[t], j, x, Y, gram, offset, alpha, loss)
                weight = 0.0
                for k in range(n):
                    weight += q[k] * Y[j, k]
                parts[i, t] = weight * response if solved else np.nan
                total += parts[i, t]
        out[v] = total
        if not np.isfinite(total):
            fail(pass_, v)
        v = next_visit(pass_, worker, v)
