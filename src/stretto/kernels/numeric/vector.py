"""Numba type of a sixteen-lane vector and its arithmetic, used for the row expressions of users' loops.

LLVM sees `Vec` as a vector of sixteen lanes; the intrinsics below are all its operations. A lane computes exactly what
the scalar operation would, nothing is contracted except by `fma`, and a reduction adds the lanes by the fixed tree of
`lanes`, so the bits do not depend on the instruction set. Arrays are C-contiguous, with any number of axes; positions
are counted in elements from the start.

    load(A, at)         load_part(A, at, n)             the first n lanes, zero in the others
    store(A, at, x)     store_part(A, at, n, x)
    get(A, at)          put(A, at, x)                   one element;  ahead(A, at): prefetch it
    splat(s)            add sub mul div neg absolute root fma       smaller larger      less less_equal equal …
    cast(x, kind)       kind is a number of the wanted type, such as np.float32(0)
    pick(mask, x, y)    both either invert of masks;  first(n) is the mask of the first n lanes
    total(x)            the tree sum;  largest(x, n), least(x, n) of the first n lanes
    each_exp, each_log  lane by lane, by the functions in `scalar`
"""

from __future__ import annotations

import math

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from .lanes import LANES, tree
from .lanes import splat as spread
from .vector_functions import each_exp as each_exp  # noqa: PLC0414  re-exported: loops use one module
from .vector_functions import each_log as each_log  # noqa: PLC0414
from .vector_memory import I1, I32, Vec, first_lanes, is_floating, mangled, zero
from .vector_memory import ahead as ahead  # noqa: PLC0414
from .vector_memory import get as get  # noqa: PLC0414
from .vector_memory import load as load  # noqa: PLC0414
from .vector_memory import load_part as load_part  # noqa: PLC0414
from .vector_memory import put as put  # noqa: PLC0414
from .vector_memory import store as store  # noqa: PLC0414
from .vector_memory import store_part as store_part  # noqa: PLC0414

# --- arithmetic, lane by lane ---------------------------------------------------------------------------------------


@intrinsic
def splat(typingctx, s):
    """Return a vector with one number in every lane."""
    if not isinstance(s, types.Number | types.Boolean):
        return None

    def codegen(context, builder, signature, args):
        value = builder.trunc(args[0], I1) if s == types.boolean and args[0].type != I1 else args[0]
        return spread(builder, value)

    return Vec(types.unliteral(s))(s), codegen


def _pairwise(floating, whole):
    """Create an intrinsic of two vectors of one type; `floating` and `whole` build the instruction."""

    @intrinsic
    def operation(typingctx, x, y):
        if not (isinstance(x, Vec) and x == y):
            return None
        build = floating if is_floating(x.dtype) else whole
        if build is None:
            return None

        def codegen(context, builder, signature, args):
            return build(builder, *args, x.dtype)

        return x(x, y), codegen

    return operation


add = _pairwise(lambda b, x, y, t: b.fadd(x, y), lambda b, x, y, t: b.add(x, y))
sub = _pairwise(lambda b, x, y, t: b.fsub(x, y), lambda b, x, y, t: b.sub(x, y))
mul = _pairwise(lambda b, x, y, t: b.fmul(x, y), lambda b, x, y, t: b.mul(x, y))
div = _pairwise(lambda b, x, y, t: b.fdiv(x, y), None)
both = _pairwise(None, lambda b, x, y, t: b.and_(x, y))
either = _pairwise(None, lambda b, x, y, t: b.or_(x, y))
differ = _pairwise(None, lambda b, x, y, t: b.xor(x, y))


def _ordered(builder, op, x, y, dtype):
    if is_floating(dtype):
        return builder.fcmp_ordered(op, x, y)
    return (builder.icmp_signed if getattr(dtype, "signed", False) else builder.icmp_unsigned)(op, x, y)


def _extreme(op):
    """NumPy's minimum or maximum: NaN if either is NaN, the left one if they are equal."""

    def build(builder, x, y, dtype):
        chosen = builder.select(_ordered(builder, op, y, x, dtype), y, x)
        if not is_floating(dtype):
            return chosen
        return builder.select(
            builder.fcmp_unordered("uno", y, y), builder.select(builder.fcmp_unordered("uno", x, x), x, y), chosen
        )

    return build


smaller = _pairwise(_extreme("<"), _extreme("<"))
larger = _pairwise(_extreme(">"), _extreme(">"))


def _comparing(op):
    @intrinsic
    def operation(typingctx, x, y):
        if not (isinstance(x, Vec) and x == y):
            return None

        def codegen(context, builder, signature, args):
            if is_floating(x.dtype) and op == "!=":
                return builder.fcmp_unordered(op, *args)
            return _ordered(builder, op, *args, x.dtype)

        return Vec(types.boolean)(x, y), codegen

    return operation


less, less_equal, equal, unequal = (_comparing(op) for op in ("<", "<=", "==", "!="))


@intrinsic
def pick(typingctx, mask, x, y):
    """Return x where the mask is set, else y."""
    if not (isinstance(mask, Vec) and mask.dtype == types.boolean and isinstance(x, Vec) and x == y):
        return None

    def codegen(context, builder, signature, args):
        return builder.select(*args)

    return x(mask, x, y), codegen


@intrinsic
def keep(typingctx, x, n, s):
    """Return the first n lanes of x, and the number s in the others."""
    if not (isinstance(x, Vec) and types.unliteral(s) == x.dtype):
        return None

    def codegen(context, builder, signature, args):
        return builder.select(first_lanes(builder, args[1]), args[0], spread(builder, args[2]))

    return x(x, types.int64, s), codegen


def _call_float(builder, name, args):
    vec = args[0].type
    fn = cgutils.get_or_insert_function(
        builder.module, ir.FunctionType(vec, [vec] * len(args)), f"llvm.{name}.{mangled(vec)}"
    )
    return builder.call(fn, args)


def _floats_alone(name):
    """Create an intrinsic of one float vector from LLVM's own operation, which rounds correctly."""

    @intrinsic
    def operation(typingctx, x):
        if not (isinstance(x, Vec) and is_floating(x.dtype)):
            return None

        def codegen(context, builder, signature, args):
            return _call_float(builder, name, list(args))

        return x(x), codegen

    return operation


root, down, up = (_floats_alone(name) for name in ("sqrt", "floor", "ceil"))


@intrinsic
def fma(typingctx, x, y, z):
    """Return x·y + z, rounded once."""
    if not (isinstance(x, Vec) and x == y == z and is_floating(x.dtype)):
        return None

    def codegen(context, builder, signature, args):
        return _call_float(builder, "fma", list(args))

    return x(x, y, z), codegen


@intrinsic
def neg(typingctx, x):
    """Return −x; only the sign bit changes."""
    if not isinstance(x, Vec) or x.dtype == types.boolean:
        return None

    def codegen(context, builder, signature, args):
        return builder.fneg(args[0]) if is_floating(x.dtype) else builder.neg(args[0])

    return x(x), codegen


@intrinsic
def absolute(typingctx, x):
    """Return |x|."""
    if not isinstance(x, Vec) or x.dtype == types.boolean:
        return None

    def codegen(context, builder, signature, args):
        if is_floating(x.dtype):
            return _call_float(builder, "fabs", list(args))
        negative = _ordered(builder, "<", args[0], zero(args[0].type), x.dtype)
        return builder.select(negative, builder.neg(args[0]), args[0])

    return x(x), codegen


@intrinsic
def invert(typingctx, x):
    """Invert every bit; of a mask, every lane."""
    if not isinstance(x, Vec) or is_floating(x.dtype):
        return None

    def codegen(context, builder, signature, args):
        return builder.not_(args[0])

    return x(x), codegen


@intrinsic
def cast(typingctx, x, kind):
    """Convert every lane to the type of the number `kind`, as NumPy's astype does."""
    dtype = types.unliteral(kind)
    if not isinstance(x, Vec) or not isinstance(dtype, types.Number | types.Boolean):
        return None

    def codegen(context, builder, signature, args):
        value = args[0]
        if x.dtype == dtype:
            return value
        wanted = ir.VectorType(I1 if dtype == types.boolean else context.get_value_type(dtype), LANES)
        if dtype == types.boolean:
            nothing = zero(value.type)
            if is_floating(x.dtype):
                return builder.fcmp_unordered("!=", value, nothing)
            return builder.icmp_unsigned("!=", value, nothing)
        signed = x.dtype != types.boolean and getattr(x.dtype, "signed", False)
        if is_floating(x.dtype) and is_floating(dtype):
            return builder.fpext(value, wanted) if dtype.bitwidth > x.dtype.bitwidth else builder.fptrunc(value, wanted)
        if is_floating(dtype):
            return builder.sitofp(value, wanted) if signed else builder.uitofp(value, wanted)
        if is_floating(x.dtype):
            return builder.fptosi(value, wanted) if dtype.signed else builder.fptoui(value, wanted)
        if wanted.element.width > value.type.element.width:
            return builder.sext(value, wanted) if signed else builder.zext(value, wanted)
        if wanted.element.width < value.type.element.width:
            return builder.trunc(value, wanted)
        return value

    return Vec(dtype)(x, kind), codegen


# --- reductions and functions ---------------------------------------------------------------------------------------


@intrinsic
def total(typingctx, x):
    """Add the lanes by halves: 8 + 8, 4 + 4, 2 + 2, 1 + 1."""
    if not isinstance(x, Vec) or x.dtype == types.boolean:
        return None

    def codegen(context, builder, signature, args):
        return tree(builder, args[0])

    return x.dtype(x), codegen


def _neutral(vec_type, dtype, op):
    """Return the neutral element of `larger` (op '>') or `smaller` (op '<') in every lane."""
    greatest = op == "<"
    if is_floating(dtype):
        value = math.inf if greatest else -math.inf
    elif dtype == types.boolean:
        value = int(greatest)
    else:
        value = dtype.maxval if greatest else dtype.minval
    return ir.Constant(vec_type, [value] * LANES)


def _folding(op):
    """Return the extreme of the first n lanes, by halves; the other lanes count as the neutral element."""

    @intrinsic
    def operation(typingctx, x, n):
        if not isinstance(x, Vec):
            return None

        def codegen(context, builder, signature, args):
            vec, n = args
            vec = builder.select(first_lanes(builder, n), vec, _neutral(vec.type, x.dtype, op))
            size = LANES
            while size > 1:
                size //= 2
                blank, mask = ir.Constant(vec.type, ir.Undefined), ir.VectorType(I32, size)
                low = builder.shuffle_vector(vec, blank, ir.Constant(mask, list(range(size))))
                high = builder.shuffle_vector(vec, blank, ir.Constant(mask, list(range(size, 2 * size))))
                vec = _extreme(op)(builder, low, high, x.dtype)
            return builder.extract_element(vec, ir.Constant(I32, 0))

        return x.dtype(x, types.int64), codegen

    return operation


largest, least = _folding(">"), _folding("<")
