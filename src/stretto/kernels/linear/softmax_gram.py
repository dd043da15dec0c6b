"""Gram matrix of the features and its Cholesky factor: the metric of a quasi-Newton method on dense data.

Some or all rows of X are packed into panels of sixteen features (`pack_rows_worker`) and multiplied by
`gram.dense_worker`. `factorise_worker` factorises a metric A = share·G + diagonal into UᵀU, one for all classes or one
for each. `solve_worker` transforms gradients and steps [p + 1, K] to the coordinates in which A is the identity, and
back. With an intercept, the last feature of a panel's row is 1.
"""

from __future__ import annotations

import numpy as np

from stretto.kernels.core.claims import next_visit
from stretto.kernels.core.compile import kernel
from stretto.kernels.core.scratch import empty
from stretto.kernels.numeric import blocked_cholesky

from .gram import PANEL


@kernel
def pack_rows_worker(pass_, worker, out, bounds, X, which, root, P):
    """P[panel, i, c] = root[i]·x of row which[i], feature 16·panel + c; 1 for feature p, 0 beyond. Visits take rows."""
    p = X.shape[1]
    visit = next_visit(pass_, worker)
    while visit >= 0:
        for i in range(bounds[visit], bounds[visit + 1]):
            row, s = which[i], root[i]
            for panel in range(P.shape[0]):
                for c in range(PANEL):
                    j = panel * PANEL + c
                    P[panel, i, c] = s * X[row, j] if j < p else (s if j == p else 0.0)
        visit = next_visit(pass_, worker, visit)


@kernel
def factorise_worker(pass_, worker, out, bounds, G, share, extra, U, inverse):
    """Visit v: U[v] [size, size] with UᵀU = share·G + diag(extra[v]), inverse[v] [size] one over its diagonal."""
    size = U.shape[2]
    visit = next_visit(pass_, worker)
    while visit >= 0:
        for which in range(bounds[visit], bounds[visit + 1]):
            here, over = U[which], inverse[which]
            for i in range(size):
                for j in range(i, size):
                    here[i, j] = share * G[i, j]
                here[i, i] += extra[which, i]
                over[i] = here[i, i]
            for top in range(0, size, blocked_cholesky.BLOCK):
                last = min(top + blocked_cholesky.BLOCK, size)
                blocked_cholesky.diagonal(here, over, top, last, size)
                pieces = (size - last + blocked_cholesky.CHUNK - 1) // blocked_cholesky.CHUNK
                for piece in range(pieces):
                    blocked_cholesky.finish(here, over, top, last, piece, size)
                for piece in range((size - last + blocked_cholesky.STRIP - 1) // blocked_cholesky.STRIP):
                    blocked_cholesky.trail(here, top, last, piece, size)
        visit = next_visit(pass_, worker, visit)


@kernel(allocates=True)
def solve_worker(pass_, worker, out, bounds, U, inverse, forth, back, A, B):
    """B [p + 1, K] = U⁻¹U⁻ᵀA, class by class; without `back` U⁻ᵀA, without `forth` U⁻¹A. A and B may be one array.

    Class c has the factor U[c], or U[0] if there is only one.
    """
    size, used = U.shape[2], A.shape[0]
    x = empty(size, np.float64)
    visit = next_visit(pass_, worker)
    while visit >= 0:
        for c in range(bounds[visit], bounds[visit + 1]):
            which = min(c, U.shape[0] - 1)
            x[:] = 0.0
            for j in range(used):
                x[j] = A[j, c]
            if forth:
                blocked_cholesky.forward(U[which], inverse[which], x, size)
            if back:
                blocked_cholesky.backward(U[which], inverse[which], x, size)
            for j in range(used):
                B[j, c] = x[j]
        visit = next_visit(pass_, worker, visit)
