"""Register tiles in float32: many dot products at once, each summed in one fixed order.

A tile is 4 rows by 64 columns of running sums, held in registers while k advances:

    sum[r, c] ±= left[k, p + r] · right[k, q + c]        r = 0 … 3, c = 0 … 63

Each step loads four numbers of `left` and 64 of `right` and uses them in 256 products, so the speed is limited by the
arithmetic units, not by the loads. Every sum is one chain of fused multiply-adds over k, so the assignment of columns
to registers changes no bits. A machine with 32 wide registers (AVX-512) takes all 64 columns at once, any other takes
them 16 at a time.

    outer(A, p, q, vectors, L, R, first, last)    A[p:p+4, q:q+w] += L[f:l, p:p+4]ᵀ R[f:l, q:q+w], w = 16·vectors
    outer_minus(…)                                the same, subtracted
    crossprod(A, P, first, last)                  upper triangle of A += P[first:last]ᵀ P[first:last]
    scores(S, bias, b, L, i, R, j, depth)         S[0:4, :] = bias[b] + L[i:i+depth, 0:4]ᵀ R[j:j+depth, 0:64]
    row_scores(S, r, bias, b, L, i, R, j, depth)  row r of the same
    above(S, r, limit)                            64 bits: bit c is set where S[r, c] > limit
    lowest_bit(word)                              the position of the lowest set bit
"""

from __future__ import annotations

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from stretto.kernels.core.compile import inner

from . import lanes

ROWS = 4
VECTORS = 4
COLUMNS = VECTORS * lanes.LANES
_I64 = ir.IntType(64)
_I16 = ir.IntType(16)


def _i64(n):
    return ir.Constant(_I64, n)


def _at_once(context):
    """Return how many vectors of a tile's width are kept in registers together; it affects speed only."""
    return VECTORS if "+avx512f" in context.codegen().magic_tuple()[2] else 1


def _fill(
    context, builder, vectors, start, finish, left, left_step, right, right_step, count, *, negate=False, rows=ROWS
):
    """Emit a tile of `vectors` vectors: start(r, v) returns the initial sums, finish(r, v, sum) takes the results."""
    group = _at_once(context) if rows > 1 else vectors
    for begin in range(0, vectors, group):
        here = range(begin, min(begin + group, vectors))
        total = {(r, v): cgutils.alloca_once_value(builder, start(r, v)) for r in range(rows) for v in here}
        with cgutils.for_range(builder, count, intp=_I64) as loop:
            line = builder.gep(right, [builder.mul(loop.index, right_step)])
            wide = {v: lanes.load(builder, line, _i64(lanes.LANES * v)) for v in here}
            at = builder.gep(left, [builder.mul(loop.index, left_step)])
            for r in range(rows):
                scalar = builder.load(builder.gep(at, [_i64(r)]))
                one = lanes.splat(builder, builder.fneg(scalar) if negate else scalar)
                for v in here:
                    place = total[r, v]
                    builder.store(lanes.fma(builder, one, wide[v], builder.load(place)), place)
        for (r, v), place in total.items():
            finish(r, v, builder.load(place))


def _outer(negate):
    def outer(typingctx, A, p, q, vectors, L, R, first, last):
        if not (lanes.is_rows(A) and lanes.is_rows(L) and lanes.is_rows(R)):
            return None
        n = types.int64

        def codegen(context, builder, signature, args):
            A_, p_, q_, vectors_, L_, R_, first_, last_ = args
            target, step = lanes.row_pointer(context, builder, A, A_, p_)
            left, left_step = lanes.row_pointer(context, builder, L, L_, first_)
            right, right_step = lanes.row_pointer(context, builder, R, R_, first_)
            target, left, right = builder.gep(target, [q_]), builder.gep(left, [p_]), builder.gep(right, [q_])
            count = builder.sub(last_, first_)

            def place(r, v):
                return builder.add(builder.mul(step, _i64(r)), _i64(lanes.LANES * v))

            def start(r, v):
                return lanes.load(builder, target, place(r, v))

            def finish(r, v, total):
                lanes.store(builder, total, target, place(r, v))

            for width in range(1, VECTORS + 1):
                with builder.if_then(builder.icmp_signed("==", vectors_, _i64(width))):
                    _fill(
                        context, builder, width, start, finish, left, left_step, right, right_step, count, negate=negate
                    )
            return context.get_dummy_value()

        return types.void(A, n, n, n, L, R, n, n), codegen

    return outer


outer = intrinsic(_outer(negate=False))
outer_minus = intrinsic(_outer(negate=True))


@inner
def crossprod(A, P, first, last):
    """A[i, j] += Σ P[k, i]·P[k, j] over k = first … last − 1, for the chunks of sixteen columns with some j ≥ i."""
    width = P.shape[1]
    for p in range(0, width, ROWS):
        q = p & ~15
        while q < width:
            vectors = min(VECTORS, (width - q) >> 4)
            outer(A, p, q, vectors, P, P, first, last)
            q += 16 * vectors


def _scores(context, builder, signature, args, only=None):
    """Emit the scores of four rows, or of the row `only`."""
    S, bias, _, L, _, R, _, _ = signature
    S_, bias_, b_, L_, l_, R_, r_, depth_ = args
    target, step = lanes.row_pointer(context, builder, S, S_, _i64(0) if only is None else only)
    first, _ = lanes.row_pointer(context, builder, bias, bias_, b_)
    left, left_step = lanes.row_pointer(context, builder, L, L_, l_)
    right, right_step = lanes.row_pointer(context, builder, R, R_, r_)
    if only is not None:
        left = builder.gep(left, [only])

    def start(r, v):
        return lanes.load(builder, first, _i64(lanes.LANES * v))

    def finish(r, v, total):
        lanes.store(builder, total, target, builder.add(builder.mul(step, _i64(r)), _i64(lanes.LANES * v)))

    rows = ROWS if only is None else 1
    _fill(context, builder, VECTORS, start, finish, left, left_step, right, right_step, depth_, rows=rows)
    return context.get_dummy_value()


@intrinsic
def scores(typingctx, S, bias, b, L, left_at, R, right_at, depth):
    """S[0:4, 0:64] = bias[b, 0:64] + L[left_at:, 0:4]ᵀ R[right_at:, 0:64], `depth` rows of each."""
    if not (lanes.is_rows(S) and lanes.is_rows(bias) and lanes.is_rows(L) and lanes.is_rows(R)):
        return None
    n = types.int64

    def codegen(context, builder, signature, args):
        return _scores(context, builder, signature.args, args)

    return types.void(S, bias, n, L, n, R, n, n), codegen


@intrinsic
def row_scores(typingctx, S, r, bias, b, L, left_at, R, right_at, depth):
    """S[r, 0:64] as `scores` computes it, to the bit."""
    if not (lanes.is_rows(S) and lanes.is_rows(bias) and lanes.is_rows(L) and lanes.is_rows(R)):
        return None
    n = types.int64

    def codegen(context, builder, signature, args):
        kept = [k for k in range(len(args)) if k != 1]
        return _scores(context, builder, [signature.args[k] for k in kept], [args[k] for k in kept], args[1])

    return types.void(S, n, bias, n, L, n, R, n, n), codegen


@intrinsic
def above(typingctx, S, r, limit):
    """Return a word whose bit c is set if S[r, c] > limit, c = 0 … 63."""
    if not lanes.is_rows(S):
        return None

    def codegen(context, builder, signature, args):
        row, _ = lanes.row_pointer(context, builder, S, args[0], args[1])
        limit = lanes.splat(builder, args[2])
        word = _i64(0)
        for v in range(VECTORS):
            shift = lanes.LANES * v
            bits = builder.fcmp_ordered(">", lanes.load(builder, row, _i64(shift)), limit)
            piece = builder.zext(builder.bitcast(bits, _I16), _I64)
            word = builder.or_(word, builder.shl(piece, _i64(shift)))
        return word

    return types.int64(S, types.int64, types.float32), codegen


@intrinsic
def lowest_bit(typingctx, word):
    """Return the position of the lowest set bit of an int64; 64 if none is set."""

    def codegen(context, builder, signature, args):
        return builder.cttz(args[0], ir.Constant(ir.IntType(1), 0))

    return types.int64(types.int64), codegen
