"""Coordinate descent on the data itself, for working sets too large for a Gram matrix.

Minimises a quadratic model of the loss: u [n] is the pull −∂/∂z of every sample, d [n] its curvature. Moving b_j by δ
subtracts d_i (x_ij − m_j) δ from u_i. The mean's part is the same multiple of d for all samples, so it is kept as one
number, lag[0]: the true pull is u_i + d_i·lag, and sparse columns stay sparse.

which [k] columns; b, l1, ridge, unit, mean [k]; curve [k] = Σ d (x − m)² + ridge; mass = Σ d. said [3], the results:
the largest violation of the last sweep, the number of sweeps, coordinates that became zero or nonzero in the last one.
"""

from __future__ import annotations

import numpy as np

from stretto.kernels.core.compile import inner, kernel

from .columns import dot
from .quadratic import soft, violation

WORST, SWEPT, MOVED = range(3)


@inner
def _visit(pull, b, l1, ridge, curve, unit, positive, said):
    """Return the new value of a coordinate from its pull."""
    said[WORST] = max(said[WORST], violation(b, pull - ridge * b, l1, positive) / unit)
    new = soft(pull - ridge * b + curve * b, l1, positive) / curve
    if new != b and new * b <= 0.0:
        said[MOVED] += 1.0
    return new


@inner
def _steady(said, steady):
    """End a sweep; return for how many sweeps in a row the support has not changed."""
    said[SWEPT] += 1.0
    return steady + 1 if said[MOVED] == 0.0 else 0


@kernel
def sweep_sparse(
    which, indptr, indices, values, b, l1, ridge, unit, mean, curve, u, d, mass, lag, tolerance, sweeps,
    positive, said,
):  # fmt: skip
    """Sweep until the largest violation is at most the tolerance, the support has not changed for three sweeps, or the
    limit of sweeps is reached.
    """
    steady = 0
    for _ in range(sweeps):
        said[WORST] = said[MOVED] = 0.0
        for at in range(which.shape[0]):
            if curve[at] <= 0.0:
                continue
            first, last = indptr[which[at]], indptr[which[at] + 1]
            pull = 0.0
            for t in range(first, last):
                pull += np.float64(values[t]) * u[indices[t]]
            pull += lag[0] * mass * mean[at]
            new = _visit(pull, b[at], l1[at], ridge[at], curve[at], unit[at], positive, said)
            change = new - b[at]
            if change != 0.0:
                b[at] = new
                for t in range(first, last):
                    u[indices[t]] -= d[indices[t]] * np.float64(values[t]) * change
                lag[0] += mean[at] * change
        steady = _steady(said, steady)
        if said[WORST] <= tolerance or steady == 3:
            return


@kernel
def sweep_dense(
    which, XT, b, l1, ridge, unit, mean, curve, u, d, mass, lag, tolerance, sweeps, positive, said
):  # fmt: skip
    """`sweep_sparse` for dense columns, XT [p, n]."""
    n = u.shape[0]
    steady = 0
    for _ in range(sweeps):
        said[WORST] = said[MOVED] = 0.0
        for at in range(which.shape[0]):
            if curve[at] <= 0.0:
                continue
            row = XT[which[at]]
            pull = lag[0] * mass * mean[at] + dot(XT, which[at], u)
            new = _visit(pull, b[at], l1[at], ridge[at], curve[at], unit[at], positive, said)
            change = new - b[at]
            if change != 0.0:
                b[at] = new
                for i in range(n):
                    u[i] -= d[i] * np.float64(row[i]) * change
                lag[0] += mean[at] * change
        steady = _steady(said, steady)
        if said[WORST] <= tolerance or steady == 3:
            return
