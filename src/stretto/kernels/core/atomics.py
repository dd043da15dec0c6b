"""Atomic operations, the time stamp counter, yield and sleep, for lock-free work sharing between threads.

    load(a, i)                  a[i], with acquire ordering
    store(a, i, x)              a[i] = x, with release ordering
    claim(a, i)                 turn a[i] from 0 to 1; True for exactly one of all threads that try
    add(a, i, x)                atomic a[i] += x; returns the old value
    cycles()                    the processor's time stamp counter
    rest()                      yield the processor to another thread
    nap(x)                      sleep for at least x microseconds

Arrays are one-dimensional, C-contiguous int64; those of `load` and `store` may be int32.
"""

from __future__ import annotations

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

_I64 = ir.IntType(64)
_I32 = ir.IntType(32)


def _slot(context, builder, array_type, value, index):
    array = context.make_array(array_type)(context, builder, value=value)
    return builder.gep(array.data, [index])


def _is_counter(ty, kinds=(types.int64,)):
    return isinstance(ty, types.Array) and ty.ndim == 1 and ty.layout == "C" and ty.dtype in kinds


_WORDS = (types.int64, types.int32)


@intrinsic
def load(typingctx, a, i):
    """Acquire-load of a[i]."""
    if not _is_counter(a, _WORDS):
        return None

    def codegen(context, builder, signature, args):
        return builder.load_atomic(_slot(context, builder, a, *args), "acquire", a.dtype.bitwidth // 8)

    return a.dtype(a, types.int64), codegen


@intrinsic
def store(typingctx, a, i, x):
    """Release-store of x into a[i]."""
    if not _is_counter(a, _WORDS):
        return None

    def codegen(context, builder, signature, args):
        at = _slot(context, builder, a, *args[:2])
        builder.store_atomic(args[2], at, "release", a.dtype.bitwidth // 8)
        return context.get_dummy_value()

    return types.void(a, types.int64, a.dtype), codegen


@intrinsic
def claim(typingctx, a, i):
    """Compare-and-swap a[i] from 0 to 1; True if this thread did it."""
    if not _is_counter(a):
        return None

    def codegen(context, builder, signature, args):
        at = _slot(context, builder, a, *args)
        pair = builder.cmpxchg(at, ir.Constant(_I64, 0), ir.Constant(_I64, 1), "acq_rel", "monotonic")
        return builder.extract_value(pair, 1)

    return types.boolean(a, types.int64), codegen


@intrinsic
def add(typingctx, a, i, x):
    """Atomic a[i] += x; return the value before."""
    if not _is_counter(a):
        return None

    def codegen(context, builder, signature, args):
        return builder.atomic_rmw("add", _slot(context, builder, a, *args[:2]), args[2], "acq_rel")

    return types.int64(a, types.int64, types.int64), codegen


@intrinsic
def cycles(typingctx):
    """The time stamp counter."""

    def codegen(context, builder, signature, args):
        fn = cgutils.get_or_insert_function(builder.module, ir.FunctionType(_I64, []), "llvm.readcyclecounter")
        return builder.call(fn, [])

    return types.int64(), codegen


@intrinsic
def rest(typingctx):
    """Yield the processor to another thread, if one is waiting."""

    def codegen(context, builder, signature, args):
        fn = cgutils.get_or_insert_function(builder.module, ir.FunctionType(_I32, []), "sched_yield")
        builder.call(fn, [])
        return context.get_dummy_value()

    return types.void(), codegen


@intrinsic
def nap(typingctx, x):
    """Sleep for x microseconds. For threads that wait for another process, which needs the processor."""

    def codegen(context, builder, signature, args):
        fn = cgutils.get_or_insert_function(builder.module, ir.FunctionType(_I32, [_I32]), "usleep")
        builder.call(fn, [builder.trunc(args[0], _I32)])
        return context.get_dummy_value()

    return types.void(types.int64), codegen
