"""Products with one row of a design matrix, and sums of rows, for dense and sparse storage in one kernel.

A matrix is three arrays. Sparse (CSR): values [entries], indices [entries], indptr [n + 1]. Dense: values [n·p], the
rows one after another; indices and indptr are empty. w holds at least p numbers; only the first p are used.
"""

from __future__ import annotations

import numpy as np

from stretto.kernels.core.compile import merged
from stretto.kernels.numeric.vector import add, ahead, cast, fma, get, load, load_part, put, splat, total

_ZERO = np.float64(0.0)
_AHEAD = 128  # entries of a sparse row that are prefetched, at most


@merged
def dot_row(values, indices, indptr, p, i, w):
    """x_i · w."""
    if indptr.shape[0] == 0:
        return _dot_dense(values, i * p, p, w)
    return _dot_sparse(values, indices, get(indptr, i), get(indptr, i + 1), w)


@merged
def add_row(values, indices, indptr, p, i, factor, w):
    """Add factor·x_i to w."""
    if indptr.shape[0] == 0:
        at = i * p
        for j in range(p):
            w[j] += factor * np.float64(values[at + j])
        return
    for e in range(get(indptr, i), get(indptr, i + 1)):
        j = np.int64(get(indices, e))
        put(w, j, get(w, j) + factor * get(values, e))


@merged
def row_square(values, indptr, p, i):
    """‖x_i‖²."""
    e, end = i * p, (i + 1) * p
    if indptr.shape[0] > 0:
        e, end = np.int64(get(indptr, i)), np.int64(get(indptr, i + 1))
    a, b, c, d = 0.0, 0.0, 0.0, 0.0  # four independent sums
    while e + 4 <= end:
        a += np.float64(get(values, e)) * np.float64(get(values, e))
        b += np.float64(get(values, e + 1)) * np.float64(get(values, e + 1))
        c += np.float64(get(values, e + 2)) * np.float64(get(values, e + 2))
        d += np.float64(get(values, e + 3)) * np.float64(get(values, e + 3))
        e += 4
    while e < end:
        a += np.float64(get(values, e)) * np.float64(get(values, e))
        e += 1
    return (a + b) + (c + d)


@merged
def prefetch_row(values, indices, indptr, p, i):
    """Prefetch the first entries of a row that is read soon; the processor's own prefetching fetches the others."""
    if indptr.shape[0] == 0:
        ahead(values, i * p)
        return
    e = np.int64(get(indptr, i))
    end = min(np.int64(get(indptr, i + 1)), e + _AHEAD)
    while e < end:  # a cache line holds 8 values, or 16 indices
        ahead(values, e)
        ahead(values, e + 8)
        ahead(indices, e)
        e += 16


@merged
def _dot_dense(values, at, p, w):
    s0, s1 = splat(0.0), splat(0.0)
    j = 0
    while j + 32 <= p:
        s0 = fma(cast(load(values, at + j), _ZERO), load(w, j), s0)
        s1 = fma(cast(load(values, at + j + 16), _ZERO), load(w, j + 16), s1)
        j += 32
    while j < p:
        rest = min(16, p - j)
        s0 = fma(cast(load_part(values, at + j, rest), _ZERO), load_part(w, j, rest), s0)
        j += 16
    return total(add(s0, s1))


@merged
def _dot_sparse(values, indices, begin, end, w):
    a, b, c, d = 0.0, 0.0, 0.0, 0.0  # four independent sums
    e = begin
    while e + 4 <= end:
        a += get(values, e) * get(w, np.int64(get(indices, e)))
        b += get(values, e + 1) * get(w, np.int64(get(indices, e + 1)))
        c += get(values, e + 2) * get(w, np.int64(get(indices, e + 2)))
        d += get(values, e + 3) * get(w, np.int64(get(indices, e + 3)))
        e += 4
    while e < end:
        a += get(values, e) * get(w, np.int64(get(indices, e)))
        e += 1
    return (a + b) + (c + d)
