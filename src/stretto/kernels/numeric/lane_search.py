"""Search among sixteen lanes: prefix sums, mask bits, gathered elements.

    collect(A, rows, at, shift)   A[rows[at + lane] >> shift] in every lane
    shift_right(x, n)             every lane shifted right
    running(x)                    lane l: x[0] + … + x[l], by a fixed tree
    lane(x, l)                    one lane
    bits(mask)                    lane l of the mask as bit l;  count_bits(n), lowest_bit(n)

Elements are gathered by sixteen plain loads. The processor's gather instruction was measured a third slower here
(security fixes slowed it down on many processors), and a load may directly follow a store to the same element.
"""

from __future__ import annotations

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from .lanes import LANES
from .lanes import splat as spread
from .vector_memory import I32, Vec, is_floating, zero

_I64 = ir.IntType(64)


def _is_flat(ty):
    return isinstance(ty, types.Array) and ty.layout == "C"


@intrinsic
def collect(typingctx, A, rows, at, shift):
    """Load A[rows[at + lane] >> shift] into every lane; rows are unsigned integers."""
    if not (_is_flat(A) and _is_flat(rows)):
        return None

    def codegen(context, builder, signature, args):
        table = context.make_array(A)(context, builder, value=args[0])
        packed = context.make_array(rows)(context, builder, value=args[1])
        first = builder.gep(packed.data, [args[2]])
        element = context.get_data_type(rows.dtype)
        amount = builder.trunc(args[3], element) if element.width < 64 else args[3]
        result = ir.Constant(ir.VectorType(context.get_data_type(A.dtype), LANES), ir.Undefined)
        for place in range(LANES):
            entry = builder.load(builder.gep(first, [ir.Constant(_I64, place)]))
            index = builder.lshr(entry, amount)
            index = builder.zext(index, _I64) if element.width < 64 else index
            value = builder.load(builder.gep(table.data, [index]))
            result = builder.insert_element(result, value, ir.Constant(I32, place))
        return result

    return Vec(A.dtype)(A, rows, types.int64, types.int64), codegen


@intrinsic
def shift_right(typingctx, x, n):
    """Shift every lane, an integer, right by n bits; zeros are shifted in."""
    if not isinstance(x, Vec) or is_floating(x.dtype):
        return None

    def codegen(context, builder, signature, args):
        element = args[0].type.element
        amount = builder.trunc(args[1], element) if element.width < 64 else args[1]
        return builder.lshr(args[0], spread(builder, amount))

    return x(x, types.int64), codegen


@intrinsic
def running(typingctx, x):
    """Return prefix sums: lane l holds the sum of lanes 0 to l, added by doubling distances."""
    if not isinstance(x, Vec) or x.dtype == types.boolean:
        return None

    def codegen(context, builder, signature, args):
        vec, nothing = args[0], zero(args[0].type)
        add = builder.fadd if is_floating(x.dtype) else builder.add
        distance = 1
        while distance < LANES:
            mask = [LANES if place < distance else place - distance for place in range(LANES)]
            vec = add(vec, builder.shuffle_vector(vec, nothing, ir.Constant(ir.VectorType(I32, LANES), mask)))
            distance *= 2
        return vec

    return x(x), codegen


@intrinsic
def lane(typingctx, x, place):
    """Return one lane."""
    if not isinstance(x, Vec):
        return None

    def codegen(context, builder, signature, args):
        return builder.extract_element(args[0], args[1])

    return x.dtype(x, types.int64), codegen


@intrinsic
def bits(typingctx, mask):
    """Return a mask as a number: bit l is lane l."""
    if not (isinstance(mask, Vec) and mask.dtype == types.boolean):
        return None

    def codegen(context, builder, signature, args):
        return builder.zext(builder.bitcast(args[0], ir.IntType(LANES)), _I64)

    return types.int64(mask), codegen


@intrinsic
def count_bits(typingctx, n):
    """Return how many bits are set."""

    def codegen(context, builder, signature, args):
        kind = ir.FunctionType(_I64, [_I64])
        return builder.call(cgutils.get_or_insert_function(builder.module, kind, "llvm.ctpop.i64"), [args[0]])

    return types.int64(types.int64), codegen


@intrinsic
def lowest_bit(typingctx, n):
    """Return the position of the lowest set bit; 64 if none is set."""

    def codegen(context, builder, signature, args):
        return builder.cttz(args[0], ir.Constant(ir.IntType(1), 0))

    return types.int64(types.int64), codegen
