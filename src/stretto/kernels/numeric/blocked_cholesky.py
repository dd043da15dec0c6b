"""Blocked Cholesky factorisation of large symmetric systems, shared by the threads of a gang.

U [size, step] float64, row-major: on entry the upper triangle of A (rows and columns 0 … size − 1, size a multiple of
32, step ≥ size), on return U with A = UᵀU. `inverse` [size]: on entry the diagonal of A, on return 1 / U[k, k].
Sixty-four rows at a time: the leader factorises the diagonal block; the rest of its rows is computed by columns
(FINISH); then their products are subtracted from the rows below, tile by tile (TRAIL). A pivot that is lost in rounding
belongs to a column that depends on earlier ones: its unknown is set to zero and does not affect the others, which
solves the system as well as possible.
"""

from __future__ import annotations

import numpy as np

from stretto.kernels.core.compile import inner

from .tile64 import COLUMNS, ROWS, add_tile
from .vector import add, fma, get, load, mul, splat, store, total

BLOCK = 64
STRIP = 16  # rows of a chunk of TRAIL
CHUNK = 64  # columns of a chunk of FINISH
_LOST = 1e-13


@inner
def diagonal(U, inverse, top, last, size):
    """Factorise the block of rows top … last in its own columns."""
    for k in range(top, last):
        pivot = U[k, k]
        for m in range(top, k):
            pivot -= U[m, k] * U[m, k]
        # inverse[k] still holds the diagonal of A, before the subtractions.
        if not pivot > _LOST * inverse[k]:
            U[k, k] = 1.0
            inverse[k] = 0.0
        else:
            U[k, k] = np.sqrt(pivot)
            inverse[k] = 1.0 / U[k, k]
        for c in range(k + 1, last):
            rest = U[k, c]
            for m in range(top, k):
                rest -= U[m, k] * U[m, c]
            U[k, c] = rest * inverse[k]


@inner
def finish(U, inverse, top, last, piece, size):
    """Compute the rows top … last of U in the columns of one chunk to the right of the block."""
    step = U.shape[1]
    left = last + piece * CHUNK
    for c in range(left, min(left + CHUNK, size), 16):
        for k in range(top, last):
            rest = load(U, k * step + c)
            for m in range(top, k):
                rest = fma(splat(-get(U, m * step + k)), load(U, m * step + c), rest)
            store(U, k * step + c, mul(rest, splat(inverse[k])))


@inner
def trail(U, top, last, piece, size):
    """Subtract the products of the rows top … last from sixteen rows below."""
    step = U.shape[1]
    first = last + piece * STRIP
    for p in range(first, min(first + STRIP, size), ROWS):
        for q in range(p // COLUMNS * COLUMNS, size, COLUMNS):
            at = top * step
            add_tile(U, p * step + q, step, -1.0, U, at + p, step, U, at + q, at + q + 16, step, last - top)


@inner
def forward(U, inverse, x, size):
    """Solve Uᵀ x = x in place; x [size]."""
    step = U.shape[1]
    for k in range(size):
        x[k] *= inverse[k]
        here = splat(-x[k])
        c = k + 1
        while c < size and c % 16 != 0:
            x[c] -= x[k] * U[k, c]
            c += 1
        while c < size:
            store(x, c, fma(here, load(U, k * step + c), load(x, c)))
            c += 16


@inner
def backward(U, inverse, x, size):
    """Solve U x = x in place; x [size]."""
    step = U.shape[1]
    for k in range(size - 1, -1, -1):
        rest = x[k]
        c = k + 1
        while c < size and c % 16 != 0:
            rest -= U[k, c] * x[c]
            c += 1
        s, t = splat(0.0), splat(0.0)
        while c + 32 <= size:
            s = fma(load(U, k * step + c), load(x, c), s)
            t = fma(load(U, k * step + c + 16), load(x, c + 16), t)
            c += 32
        while c < size:
            s = fma(load(U, k * step + c), load(x, c), s)
            c += 16
        x[k] = (rest - total(add(s, t))) * inverse[k]


@inner
def substitute(U, inverse, x, size):
    """Solve UᵀU x = x in place; x [size]."""
    forward(U, inverse, x, size)
    backward(U, inverse, x, size)
