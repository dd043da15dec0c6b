"""Functions of every lane of a vector: exp and log of `scalar`, power of `functions.tables`, and those of `elementary`.

    each_exp(x)          sixteen float64 lanes to as many
    each_power(x, y)     the same of two vectors
    halved(k)            2^−k of float64 lanes that are whole numbers from 0 to 1022

The lanes are stored, and a loop calls the scalar function for each: where that has no branches, as exp and log, the
compiler makes vector instructions of the loop again.
"""

from __future__ import annotations

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from stretto.kernels.functions import tables

from . import elementary
from .lanes import LANES
from .scalar import exp, log
from .vector_memory import Vec


def _each(function):
    """Make the intrinsic that calls a scalar function of one float64 for every lane."""

    @intrinsic
    def operation(typingctx, x):
        if not _is_float64(x):
            return None
        return x(x), _calls(typingctx, function, 1)

    return operation


def _each_pair(function):
    """Make the intrinsic that calls a scalar function of two float64 for every lane."""

    @intrinsic
    def operation(typingctx, x, y):
        if not (_is_float64(x) and _is_float64(y)):
            return None
        return x(x, y), _calls(typingctx, function, 2)

    return operation


def _is_float64(x):
    return isinstance(x, Vec) and x.dtype == types.float64


def _calls(typingctx, function, count):
    resolved = typingctx.resolve_value_type(function)
    signature = resolved.get_call_type(typingctx, (types.float64,) * count, {})

    def codegen(context, builder, outer, args):
        call = context.get_function(resolved, signature)
        lane = ir.DoubleType().as_pointer()
        places = [cgutils.alloca_once(builder, arg.type) for arg in args]
        for place, arg in zip(places, args, strict=True):
            builder.store(arg, place)
        lanes = [builder.bitcast(place, lane) for place in places]
        with cgutils.for_range(builder, ir.Constant(ir.IntType(64), LANES)) as loop:
            at = [builder.gep(one, [loop.index]) for one in lanes]
            builder.store(call(builder, [builder.load(one) for one in at]), at[0])
        return builder.load(places[0])

    return codegen


each_exp, each_log = _each(exp), _each(log)
each_expm1, each_log1p = _each(elementary.expm1), _each(elementary.log1p)
each_tanh, each_sin, each_cos = _each(elementary.tanh), _each(elementary.sin), _each(elementary.cos)
each_erf, each_lgamma, each_sign = _each(elementary.erf), _each(elementary.lgamma), _each(elementary.sign)
each_power = _each_pair(tables.power)


@intrinsic
def halved(typingctx, k):
    """Return 2^−k of whole numbers from 0 to 1022, float64: the exponent's bits."""
    if not _is_float64(k):
        return None

    def codegen(context, builder, signature, args):
        vec, whole = args[0].type, ir.VectorType(ir.IntType(64), LANES)
        # The low bits of 2⁵² + m are m: the exponent is 1023 − k.
        base = ir.Constant(vec, [2.0**52 + 1023.0] * LANES)
        bits = builder.bitcast(builder.fsub(base, args[0]), whole)
        return builder.bitcast(builder.shl(bits, ir.Constant(whole, [52] * LANES)), vec)

    return k(k), codegen
