"""Run-time checks of subscripts that the loop compiler could not prove in range; they raise no exception.

    within(k, extent, fault, site, pass_, visit)                     k, if it is in 0 … extent - 1
    span_within(start, length, extent, fault, site, pass_, visit)    start, if start : start + length is in the axis

Otherwise they record the site of the subscript (plus one), the subscript and the extent in `fault` [3] int64, mark the
visit as failed, stop the pass and return from the worker. They must be called in the worker itself. Local arrays of the
worker are not freed then.

Other code, which must go on, has a `bad` array [3] int64 in the place of `fault`, and tests it:

    at(k, extent, bad, site)                 k, or 0 where it is not in 0 … extent - 1
    span(start, length, extent, bad, site)   start, or 0 where start : start + length is not inside the axis

They are intrinsics because a call with an array argument counts references, and those atomic additions cost far more
than the check: topic models ran at a quarter of their speed.
"""

from __future__ import annotations

from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from .claims import FAILED, STOP

SITE, SUBSCRIPT, EXTENT = range(3)
SLOTS = 3

_I64 = ir.IntType(64)
_ZERO = ir.Constant(_I64, 0)


def _note(context, builder, bad_type, bad, k, extent, site):
    """Record an error, unless one is recorded already."""
    data = context.make_array(bad_type)(context, builder, value=bad).data
    slots = [builder.gep(data, [ir.Constant(_I64, slot)]) for slot in range(SLOTS)]
    with builder.if_then(builder.icmp_signed("==", builder.load(slots[SITE]), _ZERO), likely=False):
        builder.store(builder.add(site, ir.Constant(_I64, 1)), slots[SITE])
        builder.store(k, slots[SUBSCRIPT])
        builder.store(extent, slots[EXTENT])


@intrinsic
def at(typingctx, k, extent, bad, site):
    """Return k, or 0 where it is out of range."""

    def codegen(context, builder, signature, args):
        k, extent, bad, site = args
        outside = builder.icmp_unsigned(">=", k, extent)  # one comparison: a negative k is large as unsigned
        with builder.if_then(outside, likely=False):
            _note(context, builder, signature.args[2], bad, k, extent, site)
        return builder.select(outside, _ZERO, k)

    return types.int64(types.int64, types.int64, bad, types.int64), codegen


def _past(builder, start, length, extent):
    """Return whether start : start + length is outside an axis, the first subscript that is, and whether it is."""
    stop = builder.add(start, length)
    before = builder.icmp_signed("<", start, _ZERO)
    empty = builder.icmp_signed("<", length, _ZERO)
    after = builder.icmp_signed(">", start, builder.sub(extent, length))  # start + length might overflow
    last = builder.select(empty, stop, builder.sub(stop, ir.Constant(_I64, 1)))
    return builder.or_(builder.or_(before, empty), after), builder.select(before, start, last)


@intrinsic
def span(typingctx, start, length, extent, bad, site):
    """Return start, or 0 where start : start + length is not inside the axis."""

    def codegen(context, builder, signature, args):
        start, length, extent, bad, site = args
        outside, which = _past(builder, start, length, extent)
        with builder.if_then(outside, likely=False):
            _note(context, builder, signature.args[3], bad, which, extent, site)
        return builder.select(outside, _ZERO, start)

    return types.int64(types.int64, types.int64, types.int64, bad, types.int64), codegen


def _leave(context, builder, pass_type, pass_, visit):
    """Mark the visit as failed, stop the pass, and return from the worker."""
    words = context.make_array(pass_type)(context, builder, value=pass_).data
    failed, stop = (builder.gep(words, [ir.Constant(_I64, slot)]) for slot in (FAILED, STOP))
    with builder.if_then(builder.icmp_signed("==", builder.load(failed), _ZERO)):
        builder.store_atomic(builder.add(visit, ir.Constant(_I64, 1)), failed, "release", 8)
    builder.store_atomic(ir.Constant(_I64, 1), stop, "release", 8)
    context.call_conv.return_value(builder, context.get_dummy_value())


@intrinsic
def within(typingctx, k, extent, fault, site, pass_, visit):
    """Return k if it is in range; otherwise record the error in `fault`, stop the pass and return from the worker."""

    def codegen(context, builder, signature, args):
        k, extent, fault, site, pass_, visit = args
        with builder.if_then(builder.icmp_unsigned(">=", k, extent), likely=False):
            _note(context, builder, signature.args[2], fault, k, extent, site)
            _leave(context, builder, signature.args[4], pass_, visit)
        return k

    return types.int64(types.int64, types.int64, fault, types.int64, pass_, types.int64), codegen


@intrinsic
def span_within(typingctx, start, length, extent, fault, site, pass_, visit):
    """Return start if start : start + length is inside the axis; otherwise do as `within` does."""

    def codegen(context, builder, signature, args):
        start, length, extent, fault, site, pass_, visit = args
        outside, which = _past(builder, start, length, extent)
        with builder.if_then(outside, likely=False):
            _note(context, builder, signature.args[3], fault, which, extent, site)
            _leave(context, builder, signature.args[5], pass_, visit)
        return start

    return types.int64(types.int64, types.int64, types.int64, fault, types.int64, pass_, types.int64), codegen
