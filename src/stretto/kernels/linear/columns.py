"""Passes over the columns of a design matrix: means and norms, products with a vector, sums of columns.

Dense: XT [p, n], the columns of X as rows, float64 or float32. Sparse: indptr [p + 1], indices, values by columns. Sums
are float64. A visit takes the columns `which[bounds[v]] … which[bounds[v + 1]]`, so one kernel serves all columns and
any subset.
"""

from __future__ import annotations

import numpy as np

from stretto.kernels.core.claims import next_visit
from stretto.kernels.core.compile import inner, kernel
from stretto.kernels.numeric.vector import add, cast, fma, load, load_part, mul, splat, total

_ZERO = np.float64(0.0)


@inner
def dot(XT, j, v):
    """XT[j] · v, with four accumulators of sixteen lanes."""
    n = v.shape[0]
    at = j * n
    s0, s1, s2, s3 = splat(0.0), splat(0.0), splat(0.0), splat(0.0)
    i = 0
    while i + 64 <= n:
        s0 = fma(cast(load(XT, at + i), _ZERO), load(v, i), s0)
        s1 = fma(cast(load(XT, at + i + 16), _ZERO), load(v, i + 16), s1)
        s2 = fma(cast(load(XT, at + i + 32), _ZERO), load(v, i + 32), s2)
        s3 = fma(cast(load(XT, at + i + 48), _ZERO), load(v, i + 48), s3)
        i += 64
    while i < n:
        rest = min(16, n - i)
        s0 = fma(cast(load_part(XT, at + i, rest), _ZERO), load_part(v, i, rest), s0)
        i += 16
    return total(add(add(s0, s1), add(s2, s3)))


@inner
def _spread(XT, j, weight, m):
    """Σ weight_i (XT[j, i] − m)²."""
    n = weight.shape[0]
    at = j * n
    s0, s1 = splat(0.0), splat(0.0)
    away = splat(-m)
    i = 0
    while i + 32 <= n:
        x = add(cast(load(XT, at + i), _ZERO), away)
        y = add(cast(load(XT, at + i + 16), _ZERO), away)
        s0 = fma(mul(x, load(weight, i)), x, s0)
        s1 = fma(mul(y, load(weight, i + 16)), y, s1)
        i += 32
    while i < n:
        rest = min(16, n - i)
        x = add(cast(load_part(XT, at + i, rest), _ZERO), away)
        s0 = fma(mul(x, load_part(weight, i, rest)), x, s0)
        i += 16
    return total(add(s0, s1))


@inner
def _spread_sparse(indptr, indices, values, j, weight, mass, m):
    """Σ weight_i (x_ij − m)², where entries that are not stored count as zeros."""
    held, square = 0.0, 0.0
    for t in range(indptr[j], indptr[j + 1]):
        away = np.float64(values[t]) - m
        held += weight[indices[t]]
        square += weight[indices[t]] * away * away
    # Zeros have the weight that the stored entries leave; a difference within rounding error is 0.
    absent = mass - held
    if indptr[j + 1] - indptr[j] == weight.shape[0] or absent <= 1e-12 * mass:
        return square
    return square + absent * m * m


@kernel
def survey_dense_worker(pass_, worker, out, bounds, XT, weight, mass, centred, v, mean, norm, product):
    """Compute for every column its weighted mean (0 unless centred), √Σ weight (x − mean)², and its product with v.

    weight, v [n]; mass = Σ weight; mean, norm, product [p]. out [V]: a sum that is finite if all entries are.
    """
    visit = next_visit(pass_, worker)
    while visit >= 0:
        seen = 0.0
        for j in range(bounds[visit], bounds[visit + 1]):
            m = dot(XT, j, weight) / mass if centred else 0.0
            mean[j] = m
            norm[j] = np.sqrt(_spread(XT, j, weight, m))
            product[j] = dot(XT, j, v)
            seen += norm[j]
        out[visit] = seen
        visit = next_visit(pass_, worker, visit)


@kernel
def survey_sparse_worker(
    pass_, worker, out, bounds, indptr, indices, values, weight, mass, centred, v, mean, norm, product
):
    """`survey_dense_worker` for sparse columns."""
    visit = next_visit(pass_, worker)
    while visit >= 0:
        seen = 0.0
        for j in range(bounds[visit], bounds[visit + 1]):
            first, pulled = 0.0, 0.0
            for t in range(indptr[j], indptr[j + 1]):
                i, x = indices[t], np.float64(values[t])
                first += weight[i] * x
                pulled += x * v[i]
            m = first / mass if centred else 0.0
            mean[j] = m
            norm[j] = np.sqrt(_spread_sparse(indptr, indices, values, j, weight, mass, m))
            product[j] = pulled
            seen += norm[j]
        out[visit] = seen
        visit = next_visit(pass_, worker, visit)


@kernel
def price_dense_worker(pass_, worker, out, bounds, which, XT, v, product):
    """product[j] = x_j · v for the columns of `which`."""
    visit = next_visit(pass_, worker)
    while visit >= 0:
        for at in range(bounds[visit], bounds[visit + 1]):
            product[which[at]] = dot(XT, which[at], v)
        visit = next_visit(pass_, worker, visit)


@kernel
def price_sparse_worker(pass_, worker, out, bounds, which, indptr, indices, values, v, product):
    """product[j] = x_j · v for the columns of `which`."""
    visit = next_visit(pass_, worker)
    while visit >= 0:
        for at in range(bounds[visit], bounds[visit + 1]):
            j = which[at]
            pulled = 0.0
            for t in range(indptr[j], indptr[j + 1]):
                pulled += np.float64(values[t]) * v[indices[t]]
            product[j] = pulled
        visit = next_visit(pass_, worker, visit)


@kernel
def square_dense_worker(pass_, worker, out, bounds, which, XT, weight, mass, mean, square):
    """square[at] = Σ weight (x − mean[at])² for the columns which[at]; mass = Σ weight."""
    visit = next_visit(pass_, worker)
    while visit >= 0:
        for at in range(bounds[visit], bounds[visit + 1]):
            square[at] = _spread(XT, which[at], weight, mean[at])
        visit = next_visit(pass_, worker, visit)


@kernel
def square_sparse_worker(pass_, worker, out, bounds, which, indptr, indices, values, weight, mass, mean, square):
    """`square_dense_worker` for sparse columns."""
    visit = next_visit(pass_, worker)
    while visit >= 0:
        for at in range(bounds[visit], bounds[visit + 1]):
            j = which[at]
            square[at] = _spread_sparse(indptr, indices, values, j, weight, mass, mean[at])
        visit = next_visit(pass_, worker, visit)


@kernel
def add_dense_worker(pass_, worker, out, bounds, which, coef, XT, z):
    """z[i] += Σ_j coef_j x_ij over the columns of `which`, for the rows bounds[v] … bounds[v + 1]."""
    visit = next_visit(pass_, worker)
    while visit >= 0:
        first, last = bounds[visit], bounds[visit + 1]
        for at in range(which.shape[0]):
            row, b = XT[which[at]], coef[at]
            for i in range(first, last):
                z[i] += b * np.float64(row[i])
        visit = next_visit(pass_, worker, visit)


@kernel
def add_sparse_worker(pass_, worker, out, bounds, which, coef, indptr, indices, values, z):
    """`add_dense_worker` for sparse columns; one visit for all rows."""
    visit = next_visit(pass_, worker)
    while visit >= 0:
        for at in range(which.shape[0]):
            j, b = which[at], coef[at]
            for t in range(indptr[j], indptr[j + 1]):
                z[indices[t]] += b * np.float64(values[t])
        visit = next_visit(pass_, worker, visit)
