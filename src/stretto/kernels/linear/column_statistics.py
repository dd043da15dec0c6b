"""Column statistics of a matrix: sums, norms, row-block bounds, a sample of rows; products with a vector.

A matrix is stored in `values`, column by column: sparse with `indices` (rows, ascending) and `indptr`, or dense with
empty indices, where column j begins at j·rows. Sums run along a column in order.
"""

from __future__ import annotations

import math

import numpy as np

from stretto.kernels.core import atomics
from stretto.kernels.core.compile import inner, kernel
from stretto.kernels.numeric.random import mix

_KEY_ROW = 106
_CONSTANT = 1e-12  # a centred norm² below this share of the uncentred one is rounding error: the column is constant


@inner
def _ends(indptr, rows, j):
    """Return where column j begins and ends in `values`."""
    return (j * rows, (j + 1) * rows) if indptr.shape[0] == 0 else (indptr[j], indptr[j + 1])


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
            begin, end = _ends(indptr, rows, j)
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
            begin, end = _ends(indptr, rows, j)
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


@kernel
def times(values, indices, indptr, rows, scale, x, out):
    """out [rows] = A (scale ∘ x), one column after another."""
    out[:] = 0.0
    for j in range(x.shape[0]):
        c = scale[j] * x[j]
        if c != 0.0:
            begin, end = _ends(indptr, rows, j)
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
            begin, end = _ends(indptr, rows, j)
            dot = 0.0
            for e in range(begin, end):
                dot += np.float64(values[e]) * x[e - begin if indptr.shape[0] == 0 else indices[e]]
            out[j] = scale[j] * (dot - shift[j])
