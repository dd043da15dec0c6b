"""In-place Cholesky solver for small symmetric systems A x = b in float32, with a float64 fallback.

A worker has one scratch array S [n + 3 + …, n] float32: rows 0 … n − 1 hold A (only the part j ≥ i is read, in whole
sixteens), row n holds b and later x, rows n + 1 and n + 2 are scratch. A becomes Uᵀ U: sixteen rows of U at a time,
then their tile products are subtracted from the rows below.

A column of zero padding has an empty row and a zero on the diagonal; its unknown is 0. If a pivot has lost nearly all
of its digits, float32 is not accurate enough for the system: `solve` returns False, and `solve_wide` solves it in
float64.
"""

from __future__ import annotations

import numpy as np
from numba.core import cgutils, types
from numba.extending import intrinsic

from stretto.kernels.core.compile import inner
from stretto.kernels.core.scratch import zeros2

from . import lanes
from .tile import ROWS, VECTORS, outer_minus

_ZERO, _ONE = np.float32(0.0), np.float32(1.0)
# A pivot below this fraction of its diagonal is rounding error: float32 has 24 bits, long sums lose 4 of them.
_LOST = np.float32(1e-6)
_FIRST_JITTER, _LAST_JITTER = 1e-12, 1e-2


@intrinsic
def _axpy_from(typingctx, S, i, s, j, start):
    """S[i, start:] += s·S[j, start:]; start is a multiple of 16."""
    if not lanes.is_rows(S):
        return None
    n = types.int64

    def codegen(context, builder, signature, args):
        p, width = lanes.row_pointer(context, builder, S, args[0], args[1])
        q, _ = lanes.row_pointer(context, builder, S, args[0], args[3])
        s = lanes.splat(builder, args[2])
        step = lanes.LANES
        with cgutils.for_range_slice(builder, args[4], width, width.type(step), width.type) as (at, _):
            lanes.store(builder, lanes.fma(builder, s, lanes.load(builder, q, at), lanes.load(builder, p, at)), p, at)
        return context.get_dummy_value()

    return types.void(S, n, types.float32, n, n), codegen


@intrinsic
def _take_off(typingctx, S, k, first):
    """S[k, first:] −= Σ S[m, k]·S[m, first:] over m = first … k − 1, in that order; first is a multiple of 16."""
    if not lanes.is_rows(S):
        return None
    n = types.int64

    def codegen(context, builder, signature, args):
        top, width = lanes.row_pointer(context, builder, S, args[0], args[2])
        row, _ = lanes.row_pointer(context, builder, S, args[0], args[1])
        rows = builder.sub(args[1], args[2])
        acc = cgutils.alloca_once_value(builder, lanes.ZERO)
        step = width.type(lanes.LANES)
        with cgutils.for_range_slice(builder, args[2], width, step, width.type) as (at, _):
            builder.store(lanes.load(builder, row, at), acc)
            with cgutils.for_range(builder, rows, intp=width.type) as loop:
                above = builder.gep(top, [builder.mul(loop.index, width)])
                scale = lanes.splat(builder, builder.fneg(builder.load(builder.gep(above, [args[1]]))))
                builder.store(lanes.fma(builder, scale, lanes.load(builder, above, at), builder.load(acc)), acc)
            lanes.store(builder, builder.load(acc), row, at)
        return context.get_dummy_value()

    return types.void(S, n, n), codegen


@intrinsic
def _dot_from(typingctx, S, i, j, start):
    """S[i, start:]·S[j, start:]; start is a multiple of 16."""
    if not lanes.is_rows(S):
        return None
    n = types.int64

    def codegen(context, builder, signature, args):
        p, width = lanes.row_pointer(context, builder, S, args[0], args[1])
        q, _ = lanes.row_pointer(context, builder, S, args[0], args[2])
        acc = cgutils.alloca_once_value(builder, lanes.ZERO)
        step = lanes.LANES
        with cgutils.for_range_slice(builder, args[3], width, width.type(step), width.type) as (at, _):
            total = lanes.fma(builder, lanes.load(builder, p, at), lanes.load(builder, q, at), builder.load(acc))
            builder.store(total, acc)
        return lanes.tree(builder, builder.load(acc))

    return types.float32(S, n, n, n), codegen


@inner
def _factorise(S, n):
    """A = Uᵀ U in place; row n + 1 of S holds 1 / U[k, k]. False when a pivot is lost."""
    inverse = S[n + 1]
    for k in range(n):
        inverse[k] = S[k, k]
    for top in range(0, n, 16):
        for k in range(top, top + 16):
            _take_off(S, k, top)
            pivot = S[k, k]
            if inverse[k] == _ZERO:
                pivot = _ONE
                S[k, k] = _ONE
            elif not pivot > _LOST * inverse[k]:
                return False
            scale = _ONE / np.sqrt(pivot)
            inverse[k] = scale
            lanes.scaled(S, k, scale, S, k)
        for p in range(top + 16, n, ROWS):
            q = p & ~15
            while q < n:
                vectors = min(VECTORS, (n - q) >> 4)
                outer_minus(S, p, q, vectors, S, S, top, top + 16)
                q += 16 * vectors
    return True


@inner
def solve(S, n):
    """Turn b (row n of S) into x and overwrite A. False if float32 is not accurate enough; S is then invalid."""
    if not _factorise(S, n):
        return False
    b, inverse, z = S[n], S[n + 1], S[n + 2]
    # Uᵀ z = b. Single numbers go to a separate row: written into b, they would delay the next vector read of b.
    for k in range(n):
        z[k] = b[k] * inverse[k]
        _axpy_from(S, n, -z[k], k, k & ~15)
    # U x = z, from below; inside a block from the oldest x to the newest, so that only one product depends on it.
    for k in range(n - 1, -1, -1):
        end = (k & ~15) + 16
        rest = z[k] - _dot_from(S, k, n, end)
        for i in range(end - 1, k, -1):
            rest = lanes.fma32(-S[k, i], b[i], rest)
        b[k] = rest * inverse[k]
    return True


@inner(allocates=True)
def _try_wide(A, b, x, jitter):
    """Solve (A + jitter·diag(A)) x = b by Cholesky in float64, row by row. False if it is not positive definite."""
    n = b.shape[0]
    U = zeros2(n, n, np.float64)
    for k in range(n):
        pivot = A[k, k] + jitter * A[k, k]
        for m in range(k):
            pivot -= U[m, k] * U[m, k]
        if A[k, k] == 0.0:
            pivot = 1.0
        if not pivot > jitter * 0.5 * A[k, k]:
            return False
        U[k, k] = np.sqrt(pivot)
        for c in range(k + 1, n):
            total = A[k, c]
            for m in range(k):
                total -= U[m, k] * U[m, c]
            U[k, c] = total / U[k, k]
    for k in range(n):
        total = b[k]
        for m in range(k):
            total -= U[m, k] * x[m]
        x[k] = total / U[k, k]
    for k in range(n - 1, -1, -1):
        total = x[k]
        for c in range(k + 1, n):
            total -= U[k, c] * x[c]
        x[k] = total / U[k, k]
    return True


@inner(allocates=True)
def solve_wide(A, b, x):
    """Solve A x = b in float64, with the smallest jitter on the diagonal that works. False if none does."""
    jitter = _FIRST_JITTER
    while jitter <= _LAST_JITTER:
        if _try_wide(A, b, x, jitter):
            return True
        jitter *= 100.0
    return False
