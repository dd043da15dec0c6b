"""Coordinate descent on the data itself, for working sets too large for a Gram matrix.

Minimises a quadratic model of the loss: u [n] is the pull −∂/∂z of every sample, d [n] its curvature. Moving b_j by δ
subtracts d_i (x_ij − m_j) δ from u_i. The mean's part is the same multiple of d for all samples, so it is kept as one
number, lag[0]: the true pull is u_i + d_i·lag, and sparse columns stay sparse.

which [k] columns; b, l1, ridge, unit, mean [k]; curve [k] = Σ d (x − m)² + ridge; mass = Σ d. said [3], the results:
the largest violation of the last sweep, the number of sweeps, coordinates that became zero or nonzero in the last one.
`enter_…` also tell the number of non-zero coordinates, entries read, entries read since the last progress, and whether
the violations of all columns are within the tolerance.
"""

from __future__ import annotations

import numpy as np

from stretto.kernels.core.compile import inner, kernel
from stretto.kernels.numeric.extrapolation import MOST, combine, weigh_differences

from .columns import dot, sparse_dot
from .quadratic import soft, violation

WORST, SWEPT, MOVED, COUNT, WORK, STALLED, SOLVED = range(7)
SEEN, HELD = 7, 8  # the largest violation and the coefficients at the last progress
RESULTS = 9
# Progress is to reduce the largest violation to this share, or the number of coefficients to that one.
_LESS, _FEWER = 0.5, 0.95
_WAITED = 3  # sweeps without progress, at least, before it ends
_FULL = 4  # entries of a sweep for each sample, from which on keeping iterates takes little of its time
_CLOSER = 0.3  # of the violation of all columns: that to which the support is solved before all are visited again


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


@inner
def _move_sparse(at, which, indptr, indices, values, b, l1, ridge, unit, mean, curve, u, d, mass, lag, positive, said):
    if curve[at] <= 0.0:
        return
    first, last = indptr[which[at]], indptr[which[at] + 1]
    said[WORK] += last - first
    pull = sparse_dot(indices, values, first, last, u) + lag[0] * mass * mean[at]
    change = _visit(pull, b[at], l1[at], ridge[at], curve[at], unit[at], positive, said) - b[at]
    if change != 0.0:
        b[at] += change
        if d.shape[0] == 0:
            for t in range(first, last):
                u[indices[t]] -= np.float64(values[t]) * change
        else:
            for t in range(first, last):
                u[indices[t]] -= d[indices[t]] * np.float64(values[t]) * change
        lag[0] += mean[at] * change


@inner
def _move_dense(at, which, XT, b, l1, ridge, unit, mean, curve, u, d, mass, lag, positive, said):
    if curve[at] <= 0.0:
        return
    row = XT[which[at]]
    said[WORK] += u.shape[0]
    pull = dot(XT, which[at], u) + lag[0] * mass * mean[at]
    change = _visit(pull, b[at], l1[at], ridge[at], curve[at], unit[at], positive, said) - b[at]
    if change != 0.0:
        b[at] += change
        if d.shape[0] == 0:
            for i in range(u.shape[0]):
                u[i] -= np.float64(row[i]) * change
        else:
            for i in range(u.shape[0]):
                u[i] -= d[i] * np.float64(row[i]) * change
        lag[0] += mean[at] * change


@inner
def _choose_all(on, said):
    """Choose all coordinates."""
    said[COUNT] = on.shape[0]
    for at in range(on.shape[0]):
        on[at] = at


@inner
def _ends(b, on, whole, began, goal, tolerance, patience, share, said):
    """End a sweep: keep the non-zero coordinates of `on`; return the violation to which the support is solved.

    It is negative where all columns should be visited next. began : entries read before this sweep
    """
    was, count = np.int64(said[COUNT]), 0
    for s in range(was):
        if b[on[s]] != 0.0:
            on[count] = on[s]
            count += 1
    said[COUNT] = count
    said[SWEPT] += 1.0
    if whole:
        said[STALLED], said[SEEN], said[HELD] = 0.0, said[WORST], count
        said[SOLVED] = 1.0 if said[WORST] <= tolerance else 0.0
        return max(0.5 * tolerance, _CLOSER * said[WORST])
    made = said[WORK] - began
    if said[WORST] <= _LESS * said[SEEN] or count <= _FEWER * said[HELD]:
        said[STALLED], said[SEEN], said[HELD] = 0.0, said[WORST], count
    else:
        said[STALLED] += made
    # Newton steps take longer with more coefficients.
    if said[STALLED] >= max(patience, made * max(_WAITED, share * count)):
        said[STALLED] = -1.0
    return goal if said[WORST] > goal else -1.0


@inner
def _value(pulls, b, l1, ridge):
    """Return the objective at coefficients b, where all samples weigh 1."""
    value = 0.0
    for i in range(pulls.shape[0]):
        value += pulls[i] * pulls[i]
    value *= 0.5
    for at in range(b.shape[0]):
        value += l1[at] * abs(b[at]) + 0.5 * ridge[at] * b[at] * b[at]
    return value


@inner(apart=True)
def _keep(b, l1, ridge, u, lag, positive, on, said, kept, pulls, coefs, square, c):
    """Keep this iterate, or extrapolate from the last ones where that lowers the objective; return how many are kept.

    pulls [MOST + 2, n], coefs [MOST + 2, k]: iterates, and in the last row the new point. Both are affine in the
    coefficients, so that a combination needs no pass over the columns.
    """
    for i in range(u.shape[0]):
        pulls[kept, i] = u[i] + lag[0]
    for at in range(b.shape[0]):
        coefs[kept, at] = b[at]
    if kept < MOST:
        return kept + 1
    if not weigh_differences(pulls, square, c):
        return 0
    combine(pulls, c, pulls[MOST + 1])
    combine(coefs, c, coefs[MOST + 1])
    new = coefs[MOST + 1]
    for at in range(new.shape[0]):
        if positive and new[at] < 0.0:
            return 0
    if _value(pulls[MOST + 1], new, l1, ridge) < _value(pulls[MOST], b, l1, ridge):
        for i in range(u.shape[0]):
            u[i] = pulls[MOST + 1, i]
        lag[0] = 0.0
        count = 0
        for at in range(b.shape[0]):
            b[at] = new[at]
            if new[at] != 0.0:  # also what has left the support since the first iterate
                on[count] = at
                count += 1
        said[COUNT] = count
    return 0


@kernel
def enter_sparse(
    which, indptr, indices, values, b, l1, ridge, unit, mean, curve, u, d, mass, lag, tolerance, patience, share, most,
    positive, on, said, pulls, coefs, square, c,
):  # fmt: skip
    """Sweep over all columns, over the support until it is nearly solved, over all columns again, and so on.

    A column enters the support only if the columns before it have left enough of the residual to explain, so that of
    many correlated columns few enter. It ends with violations of `tolerance` units at most, and also after `most`
    entries or, without progress, after `patience` entries and `share` sweeps for each coefficient: then columns are
    correlated, and Newton steps take less time.
    d: empty if all are 1. said [9]; on [k] int64: its first said[COUNT] entries are the non-zero coordinates.
    pulls, coefs, square [MOST, MOST], c [MOST]: memory for extrapolation (`_keep`); empty for none.
    """
    said[:] = 0.0
    goal, kept = -1.0, 0
    while said[SOLVED] == 0.0 and said[STALLED] >= 0.0 and said[WORK] < most:
        whole = goal < 0.0
        if whole:
            _choose_all(on, said)
        began, said[WORST] = said[WORK], 0.0
        for s in range(np.int64(said[COUNT])):
            _move_sparse(
                on[s], which, indptr, indices, values, b, l1, ridge, unit, mean, curve, u, d, mass, lag, positive, said
            )
        goal = _ends(b, on, whole, began, goal, tolerance, patience, share, said)
        if pulls.shape[0] and said[SOLVED] == 0.0 and said[WORK] - began >= _FULL * u.shape[0]:
            kept = _keep(b, l1, ridge, u, lag, positive, on, said, kept, pulls, coefs, square, c)


@kernel
def enter_dense(
    which, XT, b, l1, ridge, unit, mean, curve, u, d, mass, lag, tolerance, patience, share, most, positive, on, said
):  # fmt: skip
    """`enter_sparse` for dense columns, XT [p, n]."""
    said[:] = 0.0
    goal = -1.0
    while said[SOLVED] == 0.0 and said[STALLED] >= 0.0 and said[WORK] < most:
        whole = goal < 0.0
        if whole:
            _choose_all(on, said)
        began, said[WORST] = said[WORK], 0.0
        for s in range(np.int64(said[COUNT])):
            _move_dense(on[s], which, XT, b, l1, ridge, unit, mean, curve, u, d, mass, lag, positive, said)
        goal = _ends(b, on, whole, began, goal, tolerance, patience, share, said)
