"""exp and log of sixteen lanes at a time, with the bits of the functions in `scalar`.

    exp(x)      sixteen float64 lanes to as many
    log(x)

Every lane goes through the operations of the scalar function in the same order; what that one decides by branches is
selected at the end. Compilers make no vector instructions of a loop that calls the scalar functions.

They are helpers, so they are compiled without `fastmath` in both profiles: the parts of ln 2 must not be merged.
"""

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from stretto.kernels.core.compile import merged

from . import scalar
from . import vector as vx
from .lanes import LANES
from .vector_memory import Vec

_I64, _F64 = ir.IntType(64), ir.DoubleType()
_HUGE, _TINY = scalar._HUGE_EXP, scalar._TINY_EXP
_LOG2E, _LN2_HIGH, _LN2_LOW = scalar._LOG2E, scalar._LN2_HIGH, scalar._LN2_LOW
_TERMS, _SQRT2, _LEAST = scalar._TERMS, scalar._SQRT2, scalar._LEAST_NORMAL
_MAGIC = 6755399441055744.0  # 2⁵² + 2⁵¹: the lowest bits of k + this are those of the integer k
_LOG_TERMS = tuple(1.0 / n for n in range(23, 0, -2))
_PARTS_54 = (54.0 * _LN2_HIGH, 54.0 * _LN2_LOW)


def _whole(builder, value):
    return builder.bitcast(value, ir.VectorType(_I64, LANES))


def _every(value):
    return ir.Constant(ir.VectorType(_I64, LANES), [value] * LANES)


def _on_bits(build):
    """Create an intrinsic of one float64 vector that works on its bits and returns one."""

    @intrinsic
    def operation(typingctx, x):
        if not (isinstance(x, Vec) and x.dtype == types.float64):
            return None

        def codegen(context, builder, signature, args):
            return builder.bitcast(build(builder, _whole(builder, args[0])), args[0].type)

        return x(x), codegen

    return operation


# 2ᵏ of k + _MAGIC, for integers k from −1022 to 1023.
_power_of_two = _on_bits(lambda b, bits: b.shl(b.add(bits, _every(1023)), _every(52)))
# The biased exponent in the low bits of 2⁵² + exponent, and the mantissa in [0.5, 1).
_exponent = _on_bits(lambda b, bits: b.or_(b.lshr(bits, _every(52)), _every(0x4330000000000000)))
_mantissa = _on_bits(lambda b, bits: b.or_(b.and_(bits, _every(0x000FFFFFFFFFFFFF)), _every(0x3FE0000000000000)))


@merged
def exp(x):
    """Return eˣ of every lane."""
    k = vx.down(vx.add(vx.mul(x, vx.splat(_LOG2E)), vx.splat(0.5)))
    r = vx.sub(vx.sub(x, vx.mul(k, vx.splat(_LN2_HIGH))), vx.mul(k, vx.splat(_LN2_LOW)))
    p = vx.splat(0.0)
    for term in _TERMS:
        p = vx.add(vx.mul(p, r), vx.splat(term))
    half = vx.down(vx.mul(vx.splat(0.5), k))
    first = _power_of_two(vx.add(half, vx.splat(_MAGIC)))
    second = _power_of_two(vx.add(vx.sub(k, half), vx.splat(_MAGIC)))
    value = vx.mul(vx.mul(p, first), second)
    value = vx.pick(vx.less(vx.splat(_HUGE), x), vx.splat(np.inf), value)
    value = vx.pick(vx.less(x, vx.splat(_TINY)), vx.splat(0.0), value)
    return vx.pick(vx.unequal(x, x), x, value)


@merged
def log(x):
    """Return the natural logarithm of every lane; −∞ for zero, NaN for a negative number."""
    tiny = vx.less(x, vx.splat(_LEAST))
    y = vx.pick(tiny, vx.mul(x, vx.splat(2.0**54)), x)
    e = vx.sub(_exponent(y), vx.splat(2.0**52 + 1022.0))
    m = _mantissa(y)
    low = vx.less(vx.mul(m, vx.splat(_SQRT2)), vx.splat(1.0))
    m = vx.pick(low, vx.mul(vx.splat(2.0), m), m)
    e = vx.pick(low, vx.sub(e, vx.splat(1.0)), e)
    z = vx.div(vx.sub(m, vx.splat(1.0)), vx.add(m, vx.splat(1.0)))
    zz = vx.mul(z, z)
    p = vx.splat(0.0)
    for term in _LOG_TERMS:
        p = vx.add(vx.mul(p, zz), vx.splat(term))
    series = vx.mul(vx.mul(vx.splat(2.0), z), p)
    value = vx.add(vx.add(vx.mul(e, vx.splat(_LN2_LOW)), series), vx.mul(e, vx.splat(_LN2_HIGH)))
    value = vx.pick(tiny, vx.sub(vx.sub(value, vx.splat(_PARTS_54[0])), vx.splat(_PARTS_54[1])), value)
    value = vx.pick(vx.equal(x, vx.splat(np.inf)), x, value)
    other = vx.pick(vx.equal(x, vx.splat(0.0)), vx.splat(-np.inf), vx.splat(np.nan))
    return vx.pick(vx.less(vx.splat(0.0), x), value, other)
