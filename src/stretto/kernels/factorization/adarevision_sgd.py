"""AdaRevision SGD over the blocks of a matrix, without delays: one adaptive step size for every element.

AdaRevision corrects for updates that others made between the read of an element and the arrival of its gradient. On a
rotating schedule a visit owns its rows and columns, so there are no such updates. The rule for the gradient g of an
element is then

    z += g²        w −= α / √z · g        with z = 1 at the start,

and z is the only state. The form with delays, which also keeps the sum of all gradients, runs on served tables.

√ and ÷ of rows would take most of the time, so the inverse root is computed from products. Half the number's exponent
gives a first guess y (an integer shift and a subtraction); two Newton-like steps y·(B − z·y²) follow. Each step leaves
a known factor, which the learning rate compensates. B and the factors minimise the largest relative error over [1, 4),
which represents all z: 4.5e-7, less than the rounding error of the sum z. Shifts, products and fused multiply-adds are
exactly defined, so the result is the same on every instruction set.

Shapes as in `sgd`; zw [rows, width], zh [cols, width], zb [rows], zc [cols] float32 hold z of W, H, b and c (zb and zc
of length 0 without biases), never less than 1.
"""

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from stretto.kernels.core.claims import fail, next_visit
from stretto.kernels.core.compile import kernel
from stretto.kernels.numeric import lanes
from stretto.kernels.numeric.vector_memory import get

from .loss_codes import SQUARED
from .losses import cost_of, pull_of

GUESS = 0x5F200000
FIRST, SECOND = float(np.float32(2.389245)), float(np.float32(6.0538988))
FACTOR = 5.7332478  # two steps give FACTOR / √z

_BITS = ir.VectorType(ir.IntType(32), lanes.LANES)
_PAIR = ir.VectorType(ir.FloatType(), 2)
_I32 = ir.IntType(32)
_SHARE = np.float32(1.0 / FACTOR)


def _each(value):
    """A constant in every lane."""
    kind = _BITS if isinstance(value, int) else lanes.VEC
    return ir.Constant(kind, [value] * lanes.LANES)


def _moved(builder, old, pull, z):
    """Return old + FACTOR / √z · pull, in sixteen lanes."""
    halved = builder.lshr(builder.bitcast(z, _BITS), _each(1))
    y = builder.bitcast(builder.sub(_each(GUESS), halved), lanes.VEC)
    y = builder.fmul(lanes.fma(builder, builder.fneg(builder.fmul(z, y)), y, _each(FIRST)), y)
    bend = lanes.fma(builder, builder.fneg(builder.fmul(z, y)), y, _each(SECOND))
    return lanes.fma(builder, bend, builder.fmul(y, pull), old)


@intrinsic
def pull_each(typingctx, W, i, H, j, ZW, ZH, e, lam, a, count):
    """Update a pair of rows, with a = α / FACTOR and g = e·H[j] − lam·W[i].

    ZW[i] += g², W[i] += α / √ZW[i] · g; H[j] and ZH[j] likewise.
    """
    if not all(map(lanes.is_rows, (W, H, ZW, ZH))):
        return None
    f4, n = types.float32, types.int64

    def codegen(context, builder, signature, args):
        W_, i_, H_, j_, ZW_, ZH_ = args[:6]
        p, width = lanes.row_of(context, builder, W, W_, i_, count)
        q, _ = lanes.row_of(context, builder, H, H_, j_, count)
        p_squares, _ = lanes.row_of(context, builder, ZW, ZW_, i_, count)
        q_squares, _ = lanes.row_of(context, builder, ZH, ZH_, j_, count)
        e, lam, a = (lanes.splat(builder, x) for x in args[6:9])
        shrink = builder.fneg(lam)

        def body(at):
            w, h = lanes.load(builder, p, at), lanes.load(builder, q, at)
            g = lanes.fma(builder, e, h, builder.fmul(shrink, w))
            k = lanes.fma(builder, e, w, builder.fmul(shrink, h))
            for row, squares, old, pull in ((p, p_squares, w, g), (q, q_squares, h, k)):
                z = lanes.fma(builder, pull, pull, lanes.load(builder, squares, at))
                lanes.store(builder, z, squares, at)
                lanes.store(builder, _moved(builder, old, builder.fmul(a, pull), z), row, at)

        lanes.over_chunks(builder, width, count, body)
        return context.get_dummy_value()

    return types.void(W, n, H, n, ZW, ZH, f4, f4, f4, count), codegen


@intrinsic
def pull_biases(typingctx, b, i, c, j, zb, zc, e, lam, a):
    """Update b[i] and c[j] likewise, with a = α: one root and one division for both, in two lanes."""
    if not all(isinstance(x, types.Array) and x.ndim == 1 and x.layout == "C" for x in (b, c, zb, zc)):
        return None
    f4, n = types.float32, types.int64

    def codegen(context, builder, signature, args):
        b_, i_, c_, j_, zb_, zc_ = args[:6]

        def place(array_type, value, at):
            return builder.gep(context.make_array(array_type)(context, builder, value=value).data, [at])

        def pair(one, two):
            first = builder.insert_element(ir.Constant(_PAIR, ir.Undefined), one, ir.Constant(_I32, 0))
            return builder.insert_element(first, two, ir.Constant(_I32, 1))

        biases, squares = (place(b, b_, i_), place(c, c_, j_)), (place(zb, zb_, i_), place(zc, zc_, j_))
        e, lam, a = (pair(x, x) for x in args[6:9])
        old = pair(*map(builder.load, biases))
        pull = builder.fsub(e, builder.fmul(lam, old))
        z = builder.fadd(pair(*map(builder.load, squares)), builder.fmul(pull, pull))
        root = cgutils.get_or_insert_function(builder.module, ir.FunctionType(_PAIR, [_PAIR]), "llvm.sqrt.v2f32")
        new = builder.fadd(old, builder.fmul(builder.fdiv(a, builder.call(root, [z])), pull))
        for places, values in ((biases, new), (squares, z)):
            for k in range(2):
                builder.store(builder.extract_element(values, ir.Constant(_I32, k)), places[k])
        return context.get_dummy_value()

    return types.void(b, n, c, n, zb, zc, f4, f4, f4), codegen


@kernel
def adarevision_worker(
    pass_,
    worker,
    out,
    ptr,
    u,
    i,
    r,
    row_base,
    col_base,
    W,
    H,
    b,
    c,
    zw,
    zh,
    zb,
    zc,
    step,
    lam,
    lam_bias,
    loss,
    limit,
    count,
):
    """Make SGD steps of size step / √z for every element; step is α, float32.

    The dot product of an entry's rows has a long latency. So it is started before the rows of the previous entry are
    updated, unless that entry updates one of them.
    """
    biased = b.shape[0] > 0
    limited = limit < np.inf
    a = step * _SHARE
    v = next_visit(pass_, worker)
    while v >= 0:
        total = 0.0
        row_at, col_at = row_base[v], col_base[v]
        end = ptr[v + 1]
        next_x, next_y, next_p = np.int64(-1), np.int64(-1), np.float32(0.0)
        for t in range(ptr[v] - 1, end):  # the first iteration only starts the first product
            x, y, p = next_x, next_y, next_p
            more, apart = t + 1 < end, False
            if more:
                next_x, next_y = row_at + get(u, t + 1), col_at + get(i, t + 1)
                apart = next_x != x and next_y != y
                if apart:
                    next_p = lanes.dot_of(W, next_x, H, next_y, count)
                    if biased:
                        next_p += get(b, next_x) + get(c, next_y)
            if x < 0:
                continue
            rating = get(r, t)
            if loss == SQUARED:
                e = rating - p
                total += e * e
                if limited:
                    e = min(max(e, -limit), limit)
            else:
                e = pull_of(loss, rating, p)
                total += cost_of(loss, rating, p)
            pull_each(W, x, H, y, zw, zh, e, lam, a, count)
            if biased:
                pull_biases(b, x, c, y, zb, zc, e, lam_bias, step)
            if more and not apart:
                next_p = lanes.dot_of(W, next_x, H, next_y, count)
                if biased:
                    next_p += get(b, next_x) + get(c, next_y)
        out[v] = total
        if not np.isfinite(total):
            fail(pass_, v)
        v = next_visit(pass_, worker, v)
