"""Weighted sums of narrow rows (one number per class), accumulated in registers.

A linear model of k classes stores its weights by features, k numbers side by side, padded to a multiple of four (see
`strips`). All its passes are then one of two sums. Over the numbers of a dense matrix L, four sums at a time:

    add_rows4(C, c, c_step, L, at, row, step, count, R, r, width, strip)       and add_rows1, a single one
        C[c + i·c_step + j] += Σ_t L[at + i·row + t·step] · R[r + t·width + j]       i = 0 … 3, t = 0 … count − 1

where j runs over the lanes of a strip. If R holds the weights and t runs over features, these are the scores of four
samples; if R holds the residuals and t runs over samples, the gradients of four features. And over the entries of a
sparse row or column:

    add_listed(C, c, indices, values, first, last, R, r, width, strip)
        C[c + j] += Σ_t values[t] · R[r + indices[t]·width + j]                      t = first … last − 1

The arithmetic is in R's type, with fused multiply-adds, for all types of L and C. Every sum is one chain over t
(`add_listed`: two, of every other entry, added at the end), so the use of registers affects the speed only. Offsets are
counted in elements from the start of an array.
"""

from __future__ import annotations

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

_I32, _I64 = ir.IntType(32), ir.IntType(64)
_QUAD = 4
_WIDEST = 32  # classes in one strip; more would not fit in the registers
_SEVERAL = 16  # the width of a strip where there is more than one


def strips(classes: int) -> tuple[int, tuple[int, ...]]:
    """Return (width, strip) for a number of classes: the padded length of a row, and the width of a strip.

    strip is a tuple whose length, known to the compiler, is the strip's width in fours. A row is a whole number of
    strips.

    >>> strips(10), strips(40)
    ((12, (0, 0, 0)), (48, (0, 0, 0, 0)))
    """
    if classes <= _WIDEST:
        width = -(-classes // _QUAD) * _QUAD
        return width, (0,) * (width // _QUAD)
    return -(-classes // _SEVERAL) * _SEVERAL, (0,) * (_SEVERAL // _QUAD)


def _i64(n):
    return ir.Constant(_I64, n)


def _pieces(strip):
    """Return (offset, lanes) of the vectors that make up a strip: sixteens, then an eight, then a four."""
    found, at, left = [], 0, strip.count * _QUAD
    for lanes in (16, 8, 4):
        while left >= lanes:
            found.append((at, lanes))
            at, left = at + lanes, left - lanes
    return found


def _together(context, strip, element):
    """Return how many sums of a strip's width fit in the registers beside the operands; affects speed only."""
    wide = "+avx512f" in context.codegen().magic_tuple()[2]
    size = 8 if isinstance(element, ir.DoubleType) else 4
    each = -(-strip.count * _QUAD * size // (64 if wide else 32))
    fit = (24 if wide else 12) // each
    return 4 if fit >= 4 else 2 if fit >= 2 else 1


def _convert(builder, value, element):
    """Convert a float, or a vector of sixteen, to another float type."""
    scalar = value.type.element if isinstance(value.type, ir.VectorType) else value.type
    if scalar == element:
        return value
    wanted = ir.VectorType(element, value.type.count) if isinstance(value.type, ir.VectorType) else element
    return builder.fpext(value, wanted) if isinstance(element, ir.DoubleType) else builder.fptrunc(value, wanted)


def _splat(builder, scalar, lanes):
    blank = ir.Constant(ir.VectorType(scalar.type, lanes), ir.Undefined)
    one = builder.insert_element(blank, scalar, ir.Constant(_I32, 0))
    return builder.shuffle_vector(one, blank, ir.Constant(ir.VectorType(_I32, lanes), [0] * lanes))


def _fma(builder, x, y, z):
    kind = "f64" if isinstance(x.type.element, ir.DoubleType) else "f32"
    name = f"llvm.fma.v{x.type.count}{kind}"
    fn = cgutils.get_or_insert_function(builder.module, ir.FunctionType(x.type, [x.type] * 3), name)
    return builder.call(fn, [x, y, z])


def _vector(builder, pointer, lanes):
    """Return a pointer to a vector, and its alignment."""
    element = pointer.type.pointee
    size = 8 if isinstance(element, ir.DoubleType) else 4
    return builder.bitcast(pointer, ir.VectorType(element, lanes).as_pointer()), size


def _load(builder, pointer, offset, lanes):
    at, align = _vector(builder, builder.gep(pointer, [_i64(offset)]), lanes)
    return builder.load(at, align=align)


def _add_to(builder, pointer, offset, total):
    """pointer[offset:] += total, in the type of the array."""
    at, align = _vector(builder, builder.gep(pointer, [_i64(offset)]), total.type.count)
    here = builder.load(at, align=align)
    builder.store(builder.fadd(here, _convert(builder, total, here.type.element)), at, align=align)


def _zeros(element, lanes):
    return ir.Constant(ir.VectorType(element, lanes), [0.0] * lanes)


def _data(context, builder, array_type, value):
    return context.make_array(array_type)(context, builder, value=value).data


def _is_floats(*arrays):
    floats = (types.float32, types.float64)
    return all(isinstance(a, types.Array) and a.layout == "C" and a.dtype in floats for a in arrays)


def _adding(rows):
    def add_rows(typingctx, C, c, c_step, L, at, row, step, count, R, r, width, strip):
        if not (_is_floats(C, L, R) and isinstance(strip, types.UniTuple)):
            return None
        n = types.int64

        def codegen(context, builder, signature, args):
            C_, c_, c_step_, L_, at_, row_, step_, count_, R_, r_, width_ = args[:11]
            target = builder.gep(_data(context, builder, C, C_), [c_])
            left = builder.gep(_data(context, builder, L, L_), [at_])
            right = builder.gep(_data(context, builder, R, R_), [r_])
            element = right.type.pointee
            pieces = _pieces(strip)
            group = min(rows, _together(context, strip, element))
            for begin in range(0, rows, group):
                here = range(begin, begin + group)
                sums = {
                    (i, lane): cgutils.alloca_once_value(builder, _zeros(element, lanes))
                    for i in here
                    for lane, lanes in pieces
                }
                with cgutils.for_range(builder, count_, intp=_I64) as loop:
                    line = builder.gep(right, [builder.mul(loop.index, width_)])
                    wide = {lane: _load(builder, line, lane, lanes) for lane, lanes in pieces}
                    place = builder.mul(loop.index, step_)
                    for i in here:
                        shift = builder.add(place, builder.mul(row_, _i64(i)))
                        scalar = _convert(builder, builder.load(builder.gep(left, [shift])), element)
                        for lane, lanes in pieces:
                            total = sums[i, lane]
                            more = _fma(builder, _splat(builder, scalar, lanes), wide[lane], builder.load(total))
                            builder.store(more, total)
                for i in here:
                    out = builder.gep(target, [builder.mul(c_step_, _i64(i))])
                    for lane, _ in pieces:
                        _add_to(builder, out, lane, builder.load(sums[i, lane]))
            return context.get_dummy_value()

        return types.void(C, n, n, L, n, n, n, n, R, n, n, strip), codegen

    return intrinsic(add_rows)


add_rows4, add_rows1 = _adding(4), _adding(1)


@intrinsic
def add_listed(typingctx, C, c, indices, values, first, last, R, r, width, strip):
    """C[c:] += Σ values[t] · R[r + indices[t]·width:] over one strip."""
    whole = isinstance(indices, types.Array) and indices.layout == "C" and isinstance(indices.dtype, types.Integer)
    if not (whole and _is_floats(C, values, R) and isinstance(strip, types.UniTuple)):
        return None
    n = types.int64

    def codegen(context, builder, signature, args):
        C_, c_, indices_, values_, first_, last_, R_, r_, width_ = args[:9]
        target = builder.gep(_data(context, builder, C, C_), [c_])
        numbers, factors = _data(context, builder, indices, indices_), _data(context, builder, values, values_)
        right = builder.gep(_data(context, builder, R, R_), [r_])
        element = right.type.pointee
        pieces = _pieces(strip)
        chains = [
            {lane: cgutils.alloca_once_value(builder, _zeros(element, lanes)) for lane, lanes in pieces}
            for _ in range(2)
        ]

        def take(t, chain):
            number = builder.load(builder.gep(numbers, [t]))
            number = number if number.type == _I64 else builder.sext(number, _I64)
            line = builder.gep(right, [builder.mul(number, width_)])
            scalar = _convert(builder, builder.load(builder.gep(factors, [t])), element)
            for lane, lanes in pieces:
                wide = _load(builder, line, lane, lanes)
                total = chain[lane]
                builder.store(_fma(builder, _splat(builder, scalar, lanes), wide, builder.load(total)), total)

        count = builder.sub(last_, first_)
        with cgutils.for_range(builder, builder.ashr(count, _i64(1)), intp=_I64) as loop:
            t = builder.add(first_, builder.shl(loop.index, _i64(1)))
            take(t, chains[0])
            take(builder.add(t, _i64(1)), chains[1])
        with builder.if_then(builder.icmp_signed("==", builder.and_(count, _i64(1)), _i64(1))):
            take(builder.sub(last_, _i64(1)), chains[0])
        for lane, _ in pieces:
            total = builder.fadd(builder.load(chains[0][lane]), builder.load(chains[1][lane]))
            _add_to(builder, target, lane, total)
        return context.get_dummy_value()

    return types.void(C, n, indices, values, n, n, R, n, n, strip), codegen
