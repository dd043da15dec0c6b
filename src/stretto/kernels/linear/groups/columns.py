"""Passes over the columns of a design for several outputs or groups of columns, and descent without their products.

v: minus the gradient of the loss for each sample and output, [k, n] with dense columns (XT [p, n]), [n, k] with sparse
ones (indptr [p + 1], indices, values). `column` [m] holds column numbers, and results are by position in it. Passes of
`…_worker` run over visits: `which[bounds[v]] … which[bounds[v + 1] − 1]` are positions in `column`.
"""

from __future__ import annotations

import math

import numpy as np

from stretto.kernels.core.claims import next_visit
from stretto.kernels.core.compile import inner, kernel
from stretto.kernels.numeric.vector import cast, fma, load, load_part, splat, total

from ..columns import dot, sparse_dot
from .descent import descend_group, largest_curvature

_ZERO = np.float64(0.0)


@inner
def _dot_four(XT, j, v, t):
    """XT[j] · v[t], …, XT[j] · v[t + 3]: the column is read once."""
    n = v.shape[1]
    at, a, b, c, d = j * n, t * n, (t + 1) * n, (t + 2) * n, (t + 3) * n
    s0, s1, s2, s3 = splat(0.0), splat(0.0), splat(0.0), splat(0.0)
    i = 0
    while i + 16 <= n:
        x = cast(load(XT, at + i), _ZERO)
        s0 = fma(x, load(v, a + i), s0)
        s1 = fma(x, load(v, b + i), s1)
        s2 = fma(x, load(v, c + i), s2)
        s3 = fma(x, load(v, d + i), s3)
        i += 16
    if i < n:
        rest = n - i
        x = cast(load_part(XT, at + i, rest), _ZERO)
        s0 = fma(x, load_part(v, a + i, rest), s0)
        s1 = fma(x, load_part(v, b + i, rest), s1)
        s2 = fma(x, load_part(v, c + i, rest), s2)
        s3 = fma(x, load_part(v, d + i, rest), s3)
    return total(s0), total(s1), total(s2), total(s3)


@inner
def products_dense(XT, j, v, out, at, stride):
    """out[at + t·stride] = x_j · v[t] for all outputs t."""
    t = 0
    while t + 4 <= v.shape[0]:
        a, b, c, d = _dot_four(XT, j, v, t)
        out[at + t * stride], out[at + (t + 1) * stride] = a, b
        out[at + (t + 2) * stride], out[at + (t + 3) * stride] = c, d
        t += 4
    while t < v.shape[0]:
        out[at + t * stride] = dot(XT, j, v[t])
        t += 1


@inner
def products_sparse(indptr, indices, values, j, v, out, at, stride):
    """`products_dense` for a sparse column; v [n, k]."""
    outputs = v.shape[1]
    if outputs == 1:
        out[at] = sparse_dot(indices, values, indptr[j], indptr[j + 1], v.reshape(v.shape[0]))
        return
    for t in range(outputs):
        out[at + t * stride] = 0.0
    for e in range(indptr[j], indptr[j + 1]):
        x, row = np.float64(values[e]), np.int64(indices[e])
        for t in range(outputs):
            out[at + t * stride] += x * v[row, t]


@kernel
def price_groups_dense_worker(pass_, worker, out, bounds, which, column, XT, v, product):
    """product[at·k + t] = x_j · v[t], j = column[at], for the positions of `which`."""
    visit = next_visit(pass_, worker)
    while visit >= 0:
        for s in range(bounds[visit], bounds[visit + 1]):
            products_dense(XT, column[which[s]], v, product, which[s] * v.shape[0], 1)
        visit = next_visit(pass_, worker, visit)


@kernel
def price_groups_sparse_worker(pass_, worker, out, bounds, which, column, indptr, indices, values, v, product):
    """`price_groups_dense_worker` for sparse columns."""
    visit = next_visit(pass_, worker)
    while visit >= 0:
        for s in range(bounds[visit], bounds[visit + 1]):
            products_sparse(indptr, indices, values, column[which[s]], v, product, which[s] * v.shape[1], 1)
        visit = next_visit(pass_, worker, visit)


@kernel
def measure_groups(which, bounds, A, group_l1, l1, c, norm, ratio):
    """norm[g] = ‖soft(c·A_g, l1)‖ for the groups `which`, A [m, k] by groups; ratio: the largest factor of A allowed.

    A factor f is allowed if ‖soft(f·A_g, l1)‖ ≤ group_l1_g for all these groups.
    """
    allowed, k = ratio[0], A.shape[1]
    for s in range(which.shape[0]):
        group = which[s]
        first, last = bounds[group], bounds[group + 1]
        norm[group] = _shrunk(A, first, last, k, c, l1)
        if _shrunk(A, first, last, k, allowed, l1) <= group_l1[group]:
            continue
        if l1 == 0.0:
            allowed *= group_l1[group] / _shrunk(A, first, last, k, allowed, l1)
            continue
        low, high = 0.0, allowed
        for _ in range(60):
            middle = 0.5 * (low + high)
            if _shrunk(A, first, last, k, middle, l1) <= group_l1[group]:
                low = middle
            else:
                high = middle
        allowed = low
    ratio[0] = allowed


@inner
def _shrunk(A, first, last, k, c, l1):
    square = 0.0
    for i in range(first, last):
        for t in range(k):
            size = c * abs(A[i, t]) - l1
            if size > 0.0:
                square += size * size
    return math.sqrt(square)


@inner
def _product_sparse(indptr, indices, values, a, b, d):
    """Σ d x_a x_b of two sparse columns with rising row numbers. d: empty if all are 1"""
    s, t, value = indptr[a], indptr[b], 0.0
    while s < indptr[a + 1] and t < indptr[b + 1]:
        if indices[s] == indices[t]:
            x = np.float64(values[s]) * np.float64(values[t])
            value += x if d.shape[0] == 0 else d[indices[s]] * x
            s += 1
            t += 1
        elif indices[s] < indices[t]:
            s += 1
        else:
            t += 1
    return value


@inner
def _product_dense(XT, a, b, d):
    value = 0.0
    for i in range(XT.shape[1]):
        x = np.float64(XT[a, i]) * np.float64(XT[b, i])
        value += x if d.shape[0] == 0 else d[i] * x
    return value


@kernel
def square_groups_dense_worker(pass_, worker, out, visits, bounds, start, column, XT, d, mass, mean, ridge, H):
    """H[start[g] + i·size + j] = Σ d (x_i − mean_i)(x_j − mean_j) of two columns of group g, plus a ridge."""
    visit = next_visit(pass_, worker)
    while visit >= 0:
        for group in range(visits[visit], visits[visit + 1]):
            first, size = bounds[group], bounds[group + 1] - bounds[group]
            for i in range(size):
                for j in range(i + 1):
                    value = _product_dense(XT, column[first + i], column[first + j], d)
                    value -= mass * mean[first + i] * mean[first + j]
                    H[start[group] + i * size + j] = H[start[group] + j * size + i] = value
                H[start[group] + i * size + i] += ridge
        visit = next_visit(pass_, worker, visit)


@kernel
def square_groups_sparse_worker(
    pass_, worker, out, visits, bounds, start, column, indptr, indices, values, d, mass, mean, ridge, H
):  # fmt: skip
    """`square_groups_dense_worker` for sparse columns."""
    visit = next_visit(pass_, worker)
    while visit >= 0:
        for group in range(visits[visit], visits[visit + 1]):
            first, size = bounds[group], bounds[group + 1] - bounds[group]
            for i in range(size):
                for j in range(i + 1):
                    value = _product_sparse(indptr, indices, values, column[first + i], column[first + j], d)
                    value -= mass * mean[first + i] * mean[first + j]
                    H[start[group] + i * size + j] = H[start[group] + j * size + i] = value
                H[start[group] + i * size + i] += ridge
        visit = next_visit(pass_, worker, visit)


@kernel
def bound_curvatures(bounds, start, H, scratch, curve):
    """curve[g]: the largest eigenvalue of the products of group g, or a little more. scratch [2, ·]: working memory"""
    for group in range(curve.shape[0]):
        size = bounds[group + 1] - bounds[group]
        curve[group] = largest_curvature(H, start[group], size, size, scratch[0], scratch[1])


@inner
def _take(W, mean, ridge, lag, mass, first, size, outputs, w, g):
    """Copy the coefficients of a group, and complete minus its gradient: of the ridge, and of the mean's part."""
    for i in range(size):
        for t in range(outputs):
            w[t * size + i] = W[first + i, t]
            g[t * size + i] += lag[t] * mass * mean[first + i] - ridge * w[t * size + i]


@kernel
def sweep_groups_dense(
    which, bounds, start, column, XT, v, d, mean, mass, lag, ridge, H, curve, W, group_l1, l1, unit, scratch
):  # fmt: skip
    """One sweep of descent over the groups `which`, W [m, k]: updates W, v and lag; returns the largest violation.

    The pull of a sample is v + d·lag: the part of the means is the same multiple of d for all samples. d: empty if all
    are 1.
    """
    n, outputs, worst = v.shape[1], v.shape[0], 0.0
    w, g, s = scratch[0], scratch[1], scratch[2]
    for at in range(which.shape[0]):
        group = which[at]
        first, size = bounds[group], bounds[group + 1] - bounds[group]
        if curve[group] <= 0.0:
            continue
        for i in range(size):
            products_dense(XT, column[first + i], v, g, i, size)
        _take(W, mean, ridge, lag, mass, first, size, outputs, w, g)
        wrong = descend_group(H, start[group], size, size, outputs, w, g, s, group_l1[group], l1, curve[group])
        worst = max(worst, wrong / unit[group])
        if wrong == 0.0:
            continue
        for i in range(size):
            row = XT[column[first + i]]
            for t in range(outputs):
                change = w[t * size + i] - W[first + i, t]
                if change == 0.0:
                    continue
                W[first + i, t] = w[t * size + i]
                lag[t] += mean[first + i] * change
                if d.shape[0] == 0:
                    for r in range(n):
                        v[t, r] -= np.float64(row[r]) * change
                else:
                    for r in range(n):
                        v[t, r] -= d[r] * np.float64(row[r]) * change
    return worst


@kernel
def sweep_groups_sparse(
    which, bounds, start, column, indptr, indices, values, v, d, mean, mass, lag, ridge, H, curve, W, group_l1, l1,
    unit, scratch,
):  # fmt: skip
    """`sweep_groups_dense` for sparse columns, v [n, k]."""
    outputs, worst = v.shape[1], 0.0
    w, g, s = scratch[0], scratch[1], scratch[2]
    for at in range(which.shape[0]):
        group = which[at]
        first, size = bounds[group], bounds[group + 1] - bounds[group]
        if curve[group] <= 0.0:
            continue
        for i in range(size):
            products_sparse(indptr, indices, values, column[first + i], v, g, i, size)
        _take(W, mean, ridge, lag, mass, first, size, outputs, w, g)
        wrong = descend_group(H, start[group], size, size, outputs, w, g, s, group_l1[group], l1, curve[group])
        worst = max(worst, wrong / unit[group])
        if wrong == 0.0:
            continue
        for i in range(size):
            j = column[first + i]
            for t in range(outputs):
                s[t] = w[t * size + i] - W[first + i, t]
                W[first + i, t] = w[t * size + i]
                lag[t] += mean[first + i] * s[t]
            for e in range(indptr[j], indptr[j + 1]):
                r = np.int64(indices[e])
                x = np.float64(values[e]) * (1.0 if d.shape[0] == 0 else d[r])
                for t in range(outputs):
                    v[r, t] -= x * s[t]
    return worst
