"""Predictions of the factor model for (row, column) pairs, and their loss against known values.

The model is p = mean + row_bias[i] + col_bias[j] + W[i]·H[j]. A bias array of length 0 means no biases. An index
outside the factors (usually −1) is an unknown row or column: it adds nothing, and the mean and the bias of the known
side remain.

Shapes, with V chunks and n pairs: bounds [V + 1] where each chunk begins; rows, cols [n] integers; W [m, width], H
[k, width] float32; row_bias [m], col_bias [k] float32; mean float32.
"""

from __future__ import annotations

import numpy as np

from stretto.kernels.core.claims import fail, next_visit
from stretto.kernels.core.compile import inner, kernel
from stretto.kernels.numeric.lanes import dot
from stretto.kernels.numeric.vector_memory import ahead

from .losses import cost_of

_AHEAD, _LINE, _FETCHED = 8, 16, 128  # prefetch distance in rows; numbers of a cache line; numbers fetched of a row


@inner
def _unknown(index, count):
    return index < 0 or index >= count


@kernel
def predict_worker(pass_, worker, out, bounds, rows, cols, W, H, row_bias, col_bias, mean, result):
    """result [n] float32: the prediction of every pair. out [V]: the sum of a chunk's predictions."""
    row_biased, col_biased = row_bias.shape[0] > 0, col_bias.shape[0] > 0
    v = next_visit(pass_, worker)
    while v >= 0:
        total = 0.0
        for t in range(bounds[v], bounds[v + 1]):
            i, j = np.int64(rows[t]), np.int64(cols[t])
            p = np.float32(mean)
            new_row, new_col = _unknown(i, W.shape[0]), _unknown(j, H.shape[0])
            if row_biased and not new_row:
                p += row_bias[i]
            if col_biased and not new_col:
                p += col_bias[j]
            if not (new_row or new_col):
                p += dot(W, i, H, j)
            result[t] = p
            total += p
        out[v] = total
        if not np.isfinite(total):
            fail(pass_, v)
        v = next_visit(pass_, worker, v)


@kernel
def cost_worker(pass_, worker, out, bounds, rows, cols, values, W, H, row_bias, col_bias, mean, loss):
    """out [V]: Σ loss(values[t], prediction) over a chunk; `loss` is a code of `losses`.

    With the squared loss, √(fsum(out) / n) is the RMSE.
    """
    row_biased, col_biased = row_bias.shape[0] > 0, col_bias.shape[0] > 0
    v = next_visit(pass_, worker)
    while v >= 0:
        total = 0.0
        for t in range(bounds[v], bounds[v + 1]):
            i, j = np.int64(rows[t]), np.int64(cols[t])
            p = np.float32(mean)
            new_row, new_col = _unknown(i, W.shape[0]), _unknown(j, H.shape[0])
            if row_biased and not new_row:
                p += row_bias[i]
            if col_biased and not new_col:
                p += col_bias[j]
            if not (new_row or new_col):
                p += dot(W, i, H, j)
            total += cost_of(loss, values[t], p)
        out[v] = total
        if not np.isfinite(total):
            fail(pass_, v)
        v = next_visit(pass_, worker, v)


@kernel
def numbered_worker(pass_, worker, out, bounds, place, W, unit, result):
    """result[i] = unit · W[place[i]], without the padding of W: rows in the user's numbering.

    bounds [V + 1]: rows of each visit; place [m] int32; W [m, padded] float32; result [m, width] float32.
    """
    width, padded = result.shape[1], W.shape[1]
    v = next_visit(pass_, worker)
    while v >= 0:
        for i in range(bounds[v], bounds[v + 1]):
            if i + _AHEAD < bounds[v + 1]:
                for c in range(0, min(width, _FETCHED), _LINE):
                    ahead(W, np.int64(place[i + _AHEAD]) * padded + c)
            p = place[i]
            for c in range(width):
                result[i, c] = unit * W[p, c]
        v = next_visit(pass_, worker, v)
