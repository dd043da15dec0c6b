"""Passes over the columns of a matrix: products with a vector, sums of columns, samples and blocks of rows.

There are two forms. The passes of solvers (`price_…`, `add_…`) take a design matrix: dense XT [p, n], the columns of X
as rows, or sparse indptr [p + 1], indices, values; a visit takes the columns `which[bounds[v]] … which[bounds[v + 1]]`,
so one kernel serves all columns and any subset. The others take a matrix in `values`, column by column: sparse with
`indices` (rows, ascending) and `indptr`, or dense with both empty, where column j begins at j·rows. Sums are float64.
Statistics of columns are in `column_statistics`.
"""

from __future__ import annotations

import numpy as np

from stretto.kernels.core import atomics
from stretto.kernels.core.claims import next_visit
from stretto.kernels.core.compile import inner, kernel
from stretto.kernels.numeric.random import mix
from stretto.kernels.numeric.vector import add, cast, fma, get, load, load_part, mul, splat, store, store_part, total

_ZERO = np.float64(0.0)
_KEY_ROW = 106


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
def sparse_dot(indices, values, first, last, v):
    """Σ values[t] v[indices[t]] over the entries first … last − 1, with four accumulators."""
    s0, s1, s2, s3 = 0.0, 0.0, 0.0, 0.0
    t = first
    while t + 4 <= last:
        s0 += np.float64(get(values, t)) * get(v, np.int64(get(indices, t)))
        s1 += np.float64(get(values, t + 1)) * get(v, np.int64(get(indices, t + 1)))
        s2 += np.float64(get(values, t + 2)) * get(v, np.int64(get(indices, t + 2)))
        s3 += np.float64(get(values, t + 3)) * get(v, np.int64(get(indices, t + 3)))
        t += 4
    while t < last:
        s0 += np.float64(get(values, t)) * get(v, np.int64(get(indices, t)))
        t += 1
    return (s0 + s1) + (s2 + s3)


@inner
def column_range(indptr, rows, j):
    """Return where column j begins and ends in `values`."""
    return (j * rows, (j + 1) * rows) if indptr.shape[0] == 0 else (indptr[j], indptr[j + 1])


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
            product[j] = sparse_dot(indices, values, indptr[j], indptr[j + 1], v)
        visit = next_visit(pass_, worker, visit)


@kernel
def price_both_dense_worker(pass_, worker, out, bounds, which, XT, v, d, product, other):
    """product[j] = x_j · v and other[j] = x_j · d for the columns of `which`."""
    n = v.shape[0]
    visit = next_visit(pass_, worker)
    while visit >= 0:
        for c in range(bounds[visit], bounds[visit + 1]):
            at = which[c] * n
            s0, s1, s2, s3 = splat(0.0), splat(0.0), splat(0.0), splat(0.0)
            i = 0
            while i + 32 <= n:
                x, y = cast(load(XT, at + i), _ZERO), cast(load(XT, at + i + 16), _ZERO)
                s0 = fma(x, load(v, i), s0)
                s1 = fma(y, load(v, i + 16), s1)
                s2 = fma(x, load(d, i), s2)
                s3 = fma(y, load(d, i + 16), s3)
                i += 32
            while i < n:
                rest = min(16, n - i)
                x = cast(load_part(XT, at + i, rest), _ZERO)
                s0 = fma(x, load_part(v, i, rest), s0)
                s2 = fma(x, load_part(d, i, rest), s2)
                i += 16
            product[which[c]] = total(add(s0, s1))
            other[which[c]] = total(add(s2, s3))
        visit = next_visit(pass_, worker, visit)


@kernel
def price_both_sparse_worker(pass_, worker, out, bounds, which, indptr, indices, values, v, d, product, other):
    """`price_both_dense_worker` for sparse columns."""
    visit = next_visit(pass_, worker)
    while visit >= 0:
        for at in range(bounds[visit], bounds[visit + 1]):
            j = which[at]
            product[j] = sparse_dot(indices, values, indptr[j], indptr[j + 1], v)
            other[j] = sparse_dot(indices, values, indptr[j], indptr[j + 1], d)
        visit = next_visit(pass_, worker, visit)


@kernel
def add_dense_worker(pass_, worker, out, bounds, which, coef, XT, z):
    """z[i] += Σ_j coef_j x_ij over the columns of `which`, for the rows bounds[v] … bounds[v + 1]."""
    n = z.shape[0]
    visit = next_visit(pass_, worker)
    while visit >= 0:
        first, last = bounds[visit], bounds[visit + 1]
        at = 0
        while at + 4 <= which.shape[0]:
            # Four columns for each time that z is read and written; the sums have the same order as one by one.
            one, two, three, four = which[at] * n, which[at + 1] * n, which[at + 2] * n, which[at + 3] * n
            b, c, d, e = splat(coef[at]), splat(coef[at + 1]), splat(coef[at + 2]), splat(coef[at + 3])
            i = first
            while i + 16 <= last:
                t = add(load(z, i), mul(b, cast(load(XT, one + i), _ZERO)))
                t = add(t, mul(c, cast(load(XT, two + i), _ZERO)))
                t = add(t, mul(d, cast(load(XT, three + i), _ZERO)))
                store(z, i, add(t, mul(e, cast(load(XT, four + i), _ZERO))))
                i += 16
            if i < last:
                rest = last - i
                t = add(load_part(z, i, rest), mul(b, cast(load_part(XT, one + i, rest), _ZERO)))
                t = add(t, mul(c, cast(load_part(XT, two + i, rest), _ZERO)))
                t = add(t, mul(d, cast(load_part(XT, three + i, rest), _ZERO)))
                store_part(z, i, rest, add(t, mul(e, cast(load_part(XT, four + i, rest), _ZERO))))
            at += 4
        while at < which.shape[0]:
            row, b = XT[which[at]], coef[at]
            for i in range(first, last):
                z[i] += b * np.float64(row[i])
            at += 1
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


@kernel
def times(values, indices, indptr, rows, scale, x, out):
    """out [rows] = A (scale ∘ x), one column after another."""
    out[:] = 0.0
    for j in range(x.shape[0]):
        c = scale[j] * x[j]
        if c != 0.0:
            begin, end = column_range(indptr, rows, j)
            for e in range(begin, end):
                out[e - begin if indptr.shape[0] == 0 else indices[e]] += c * np.float64(values[e])


@kernel
def times_transposed_worker(control, values, indices, indptr, rows, scale, shift, x, out):
    """out [columns] = scale ∘ (Aᵀ x − shift); workers claim chunks of columns through control [≥ 1]."""
    columns = out.shape[0]
    chunk = 64
    while True:
        first = atomics.add(control, 0, 1) * chunk
        if first >= columns:
            return
        for j in range(first, min(columns, first + chunk)):
            begin, end = column_range(indptr, rows, j)
            dot = 0.0
            for e in range(begin, end):
                dot += np.float64(values[e]) * x[e - begin if indptr.shape[0] == 0 else indices[e]]
            out[j] = scale[j] * (dot - shift[j])


@kernel
def hash_rows(seed, out):
    """out [rows] uint64: random bits for each row; the n rows with the smallest bits are a sample of size n."""
    for row in range(out.shape[0]):
        out[row] = mix(seed, _KEY_ROW, row, 0)


@kernel
def sample_columns(values, indices, indptr, rows, place, starts, size, out):
    """out[starts[j] + k] = column j in the k-th sampled row, for the columns with starts[j] ≥ 0.

    place [rows] int32: a row's index in the sample of `size` rows, or −1. out must be zero.
    """
    for j in range(starts.shape[0]):
        if starts[j] >= 0:
            begin, end = column_range(indptr, rows, j)
            for e in range(begin, end):
                k = place[e - begin if indptr.shape[0] == 0 else indices[e]]
                if k >= 0:
                    out[starts[j] + k] = values[e]


@kernel
def cut_columns(indices, indptr, bounds, cuts):
    """cuts [columns, blocks + 1] int32: how many entries of a column are in the row blocks before each block."""
    blocks = bounds.shape[0] - 1
    for j in range(cuts.shape[0]):
        e = indptr[j]
        for b in range(blocks + 1):
            while e < indptr[j + 1] and indices[e] < bounds[b]:
                e += 1
            cuts[j, b] = e - indptr[j]
