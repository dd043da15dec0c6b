"""Shifts and float-to-integer conversions that LLVM leaves undefined, with NumPy's result on every processor.

    shl(x, n)       x << n      0 where n is not in 0 … bits - 1, as in NumPy
    shr(x, n)       x >> n      likewise 0, or -1 for a negative x
    whole(x, kind)  a float as an integer: truncated; see below for values out of range
    each(v, kind)   the same for the sixteen lanes of a vector

LLVM calls the result of such a shift or conversion poison: it may differ between the body of a vectorised loop and
its tail, and from one processor to the next. A float that is out of range of the integer type (NaN, infinite, too large
or too small) becomes what NumPy returns on x86-64 for a scalar:

    int64, int32            the least integer of the type
    int8, int16, uint8, uint16      as int32 first, then the lowest bits of that
    uint32                  as int64 first, then the lowest bits of that
    uint64                  below 2⁶³ as int64; from there on, 2⁶³ less as int64, and 2⁶³ more of that

They are a separate module, which only the loops that need one of them import.
"""

from __future__ import annotations

from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from .lanes import LANES
from .vector_memory import Vec


def _constant(kind, value):
    """Return a constant, or a vector with it in every lane."""
    return ir.Constant(kind, [value] * LANES if isinstance(kind, ir.VectorType) else value)


def _inside(builder, x, n):
    """Return whether n is a valid shift of x, and the width of x in bits."""
    bits = x.type.width
    return builder.icmp_unsigned("<", n, ir.Constant(n.type, bits)), bits


@intrinsic
def shl(typingctx, x, n):
    """Shift x to the left by n bits."""
    kind = types.unliteral(x)
    if not isinstance(kind, types.Integer):
        return None

    def codegen(context, builder, signature, args):
        x, n = args
        fits, _ = _inside(builder, x, n)
        zero = ir.Constant(x.type, 0)
        return builder.select(fits, builder.shl(x, builder.select(fits, n, zero)), zero)

    return kind(kind, kind), codegen


@intrinsic
def shr(typingctx, x, n):
    """Shift x to the right by n bits; arithmetic for a signed x."""
    kind = types.unliteral(x)
    if not isinstance(kind, types.Integer):
        return None

    def codegen(context, builder, signature, args):
        x, n = args
        fits, bits = _inside(builder, x, n)
        if kind.signed:  # a shift by all bits but one leaves the sign
            return builder.ashr(x, builder.select(fits, n, ir.Constant(n.type, bits - 1)))
        zero = ir.Constant(x.type, 0)
        return builder.select(fits, builder.lshr(x, builder.select(fits, n, zero)), zero)

    return kind(kind, kind), codegen


# --- floats to integers -----------------------------------------------------------------------------------------------


def _like(kind, element):
    """Return a type, as a vector if another one is a vector."""
    return ir.VectorType(element, LANES) if isinstance(kind, ir.VectorType) else element


def _least_beyond(builder, x, bits):
    """Convert x to a signed integer with a number of bits; the least integer if it does not fit."""
    wanted = _like(x.type, ir.IntType(bits))
    # -2ⁿ and 2ⁿ are exact in every float type; comparisons with NaN are false.
    low, past = _constant(x.type, -(2.0 ** (bits - 1))), _constant(x.type, 2.0 ** (bits - 1))
    fits = builder.and_(builder.fcmp_ordered(">=", x, low), builder.fcmp_ordered("<", x, past))
    safe = builder.select(fits, x, _constant(x.type, 0.0))
    return builder.select(fits, builder.fptosi(safe, wanted), _constant(wanted, -(2 ** (bits - 1))))


def _to_integer(builder, x, kind):
    """Convert x, a float or a vector of floats, to integers of a Numba type."""
    bits, signed = kind.bitwidth, kind.signed
    if bits == 64 and not signed:
        half = _constant(x.type, 2.0**63)
        high = builder.fcmp_ordered(">=", x, half)
        low_part = _least_beyond(builder, builder.select(high, builder.fsub(x, half), x), 64)
        return builder.xor(
            low_part, builder.select(high, _constant(low_part.type, -(2**63)), _constant(low_part.type, 0))
        )
    through = 64 if bits == 64 or (bits == 32 and not signed) else 32
    made = _least_beyond(builder, x, through)
    return made if through == bits else builder.trunc(made, _like(x.type, ir.IntType(bits)))


@intrinsic
def whole(typingctx, x, kind):
    """Convert a number to an integer of the type of `kind`, such as np.int64(0)."""
    wanted, given = types.unliteral(kind), types.unliteral(x)
    if not (isinstance(given, types.Number | types.Boolean) and isinstance(wanted, types.Integer)):
        return None

    def codegen(context, builder, signature, args):
        if not isinstance(given, types.Float):
            return context.cast(builder, args[0], signature.args[0], wanted)
        return _to_integer(builder, args[0], wanted)

    return wanted(x, kind), codegen


@intrinsic
def each(typingctx, x, kind):
    """Convert sixteen floats to integers of the type of `kind`."""
    wanted = types.unliteral(kind)
    if not (isinstance(x, Vec) and isinstance(x.dtype, types.Float) and isinstance(wanted, types.Integer)):
        return None

    def codegen(context, builder, signature, args):
        return _to_integer(builder, args[0], wanted)

    return Vec(wanted)(x, kind), codegen
