"""Statistics of the columns of a matrix: sums, means, norms, standard deviations. All callers take them from here.

- `measure_worker`: sum, Σx², norm and the largest |x|, without weights, along the column. Schedules need them, also on
  nodes that hold a few of the columns.
- `survey_…_worker`, `square_…_worker`: weighted mean, norm and product; dense in lanes of sixteen, sparse along the
  column. Solvers need them in every fit, so they are the fastest.
- `dense_deviations`, `sparse_deviations`: weighted standard deviations in NumPy's order, for standardize=True.

Coefficients depend on the last bit of these sums, so each of the three keeps its order. What counts as a constant
column depends on the rounding error that an order leaves, so each has its own limit, too.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.kernels.core import atomics
from stretto.kernels.core.claims import next_visit
from stretto.kernels.core.compile import inner, kernel
from stretto.kernels.numeric.vector import add, cast, fma, load, load_part, mul, splat, total

from .columns import column_range, dot, sparse_dot

_ZERO = np.float64(0.0)
_CONSTANT = 1e-12  # a centred norm² below this share of the uncentred one is rounding error: the column is constant
_CONSTANT_MEAN = 1e-11  # the same of a surveyed column: its norm as a share of |mean|·√Σweight
_CHUNK = 1 << 22  # numbers of a dense matrix that `dense_deviations` converts at a time: temporaries of 32 MiB

Floats = NDArray[np.float64]


@kernel
def measure_worker(control, values, indptr, rows, centred, total, square, norm, peak):
    """Compute for every column: sum, Σx², norm (of the centred column if centred, 0 if it is constant), max|x|.

    control [≥ 1] int64: counter of the next chunk of columns. Dense: indptr is empty.
    """
    columns = total.shape[0]
    chunk = 64
    while True:
        first = atomics.add(control, 0, 1) * chunk
        if first >= columns:
            return
        for j in range(first, min(columns, first + chunk)):
            begin, end = column_range(indptr, rows, j)
            s, ss, most = 0.0, 0.0, 0.0
            for e in range(begin, end):
                x = np.float64(values[e])
                s += x
                ss += x * x
                most = max(most, abs(x))
            about = ss
            if centred:
                mean = s / rows
                about = (rows - (end - begin)) * mean * mean
                for e in range(begin, end):
                    about += (np.float64(values[e]) - mean) * (np.float64(values[e]) - mean)
                if about <= _CONSTANT * ss:
                    about = 0.0
            total[j], square[j], norm[j], peak[j] = s, ss, math.sqrt(about), most


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
    held, square, held_too, square_too = 0.0, 0.0, 0.0, 0.0
    t, last = indptr[j], indptr[j + 1]
    while t + 2 <= last:
        away, other = np.float64(values[t]) - m, np.float64(values[t + 1]) - m
        w, u = weight[indices[t]], weight[indices[t + 1]]
        held += w
        held_too += u
        square += w * away * away
        square_too += u * other * other
        t += 2
    if t < last:
        away = np.float64(values[t]) - m
        held += weight[indices[t]]
        square += weight[indices[t]] * away * away
    held += held_too
    square += square_too
    # Zeros have the weight that the stored entries leave; a difference within rounding error is 0.
    absent = mass - held
    if indptr[j + 1] - indptr[j] == weight.shape[0] or absent <= 1e-12 * mass:
        return square
    return square + absent * m * m


@inner
def _entry_sum(values, first, last):
    """Σ values[t] over the entries first … last − 1."""
    s0, s1 = splat(0.0), splat(0.0)
    t = first
    while t + 32 <= last:
        s0 = add(s0, cast(load(values, t), _ZERO))
        s1 = add(s1, cast(load(values, t + 16), _ZERO))
        t += 32
    while t < last:
        s0 = add(s0, cast(load_part(values, t, min(16, last - t)), _ZERO))
        t += 16
    return total(add(s0, s1))


@inner
def _entry_spread(values, first, last, m):
    """Σ (values[t] − m)² over the entries first … last − 1."""
    away = splat(-m)
    s0, s1 = splat(0.0), splat(0.0)
    t = first
    while t + 32 <= last:
        x, y = add(cast(load(values, t), _ZERO), away), add(cast(load(values, t + 16), _ZERO), away)
        s0, s1 = fma(x, x, s0), fma(y, y, s1)
        t += 32
    while t + 16 <= last:
        x = add(cast(load(values, t), _ZERO), away)
        s0 = fma(x, x, s0)
        t += 16
    s = total(add(s0, s1))
    while t < last:
        x = np.float64(values[t]) - m
        s += x * x
        t += 1
    return s


@kernel
def survey_dense_worker(pass_, worker, out, bounds, XT, weight, alike, mass, centred, v, mean, norm, product):
    """Compute for every column its weighted mean (0 unless centred), √Σ weight (x − mean)², and its product with v.

    weight, v [n]; mass = Σ weight; mean, norm, product [p]. out [V]: a sum that is finite if all entries are.
    alike: the weight of all samples if they have the same one, else −1; sparse columns then need no weights.
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
    pass_, worker, out, bounds, indptr, indices, values, weight, alike, mass, centred, v, mean, norm, product
):
    """`survey_dense_worker` for sparse columns."""
    visit = next_visit(pass_, worker)
    while visit >= 0:
        seen = 0.0
        for j in range(bounds[visit], bounds[visit + 1]):
            first, last = indptr[j], indptr[j + 1]
            m = 0.0
            if centred and alike >= 0.0:
                m = alike * _entry_sum(values, first, last) / mass
            elif centred:
                m = sparse_dot(indices, values, first, last, weight) / mass
            mean[j] = m
            if alike >= 0.0:
                absent = alike * (weight.shape[0] - (last - first))
                norm[j] = np.sqrt(alike * _entry_spread(values, first, last, m) + absent * m * m)
            else:
                norm[j] = np.sqrt(_spread_sparse(indptr, indices, values, j, weight, mass, m))
            product[j] = sparse_dot(indices, values, first, last, v)
            seen += norm[j]
        out[visit] = seen
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


def clear_constant(norm: Floats, mean: Floats, mass: float) -> None:
    """Set the norms of constant columns to 0. norm, mean [p]: from a survey with weights that sum to mass."""
    norm[norm <= _CONSTANT_MEAN * np.abs(mean) * np.sqrt(mass)] = 0.0


def dense_deviations(X: NDArray[Any], weight: Floats) -> Floats:
    """[p] standard deviation of each column of X [n, p] under these weights [n]; 1 for a column that is constant."""
    n, p = X.shape
    mass = float(weight.sum())
    mean, square = np.empty(p), np.empty(p)
    step = max(1, _CHUNK // max(1, n))
    for at in range(0, p, step):
        part = X[:, at : at + step].astype(np.float64)
        mean[at : at + step] = (part * weight[:, None]).sum(axis=0) / mass
        part -= mean[at : at + step]
        square[at : at + step] = (part * part * weight[:, None]).sum(axis=0)
    return _deviations(mean, square, n, mass)


def sparse_deviations(matrix: Any, weight: Floats) -> Floats:
    """`dense_deviations` of a SciPy CSC array. Zeros that are not stored count as what they are."""
    import scipy.sparse

    n = matrix.shape[0]
    mass = float(weight.sum())
    turned = matrix.T  # rows of it are our columns, so that products add up one column after another
    entries = np.diff(turned.indptr)
    mean = (turned @ weight) / mass
    away = turned.data.astype(np.float64) - np.repeat(mean, entries)
    stored = scipy.sparse.csr_array((np.ones(len(away)), turned.indices, turned.indptr), shape=turned.shape)
    held = stored @ weight
    away *= away
    stored.data = away
    # Zeros that are not stored have the remaining weight; a difference of rounding size counts as 0.
    absent = mass - held
    absent[(entries == n) | (absent <= n * np.finfo(np.float64).eps * mass)] = 0.0
    return _deviations(mean, stored @ weight + mean * mean * absent, n, mass)


def _deviations(mean: Floats, square: Floats, n: int, mass: float) -> Floats:
    """Standard deviations from the means and the sums of squares about them."""
    variance = square / mass
    # What rounding leaves of the variance of a constant column.
    constant = variance <= (n * np.finfo(np.float64).eps * mean) ** 2 + n * np.finfo(np.float64).eps * variance
    return np.where(constant, 1.0, np.sqrt(variance))
