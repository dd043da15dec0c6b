"""Numba type of a sixteen-lane vector: its data model, and loads and stores between vectors and arrays.

Part of `vector`, which has the overview. Arrays are C-contiguous, with any number of axes; positions are counted in
elements from the start, and are not negative.
"""

from __future__ import annotations

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic, models, register_model
from numba.np.arrayobj import load_item, store_item

from .lanes import LANES

I1, I32 = ir.IntType(1), ir.IntType(32)
_EVERY = ir.Constant(ir.VectorType(I32, LANES), list(range(LANES)))


class Vec(types.Type):
    """Sixteen lanes of `dtype`."""

    def __init__(self, dtype):
        self.dtype = dtype
        super().__init__(name=f"vec{LANES}({dtype})")


@register_model(Vec)
class _VecModel(models.PrimitiveModel):  # type: ignore[misc]
    def __init__(self, dmm, fe_type):
        lane = I1 if fe_type.dtype == types.boolean else dmm.lookup(fe_type.dtype).get_value_type()
        super().__init__(dmm, fe_type, ir.VectorType(lane, LANES))


def is_floating(ty):
    return isinstance(ty, types.Float)


def zero(vec_type):
    return ir.Constant(vec_type, [0.0 if isinstance(vec_type.element, ir.FloatType | ir.DoubleType) else 0] * LANES)


def _is_array(ty):
    return isinstance(ty, types.Array) and ty.layout == "C"


# --- memory ---------------------------------------------------------------------------------------------------------


def _address(context, builder, array_type, value, at):
    """Return a pointer to element `at` of an array, as a pointer to sixteen of them, and the vector type in memory."""
    array = context.make_array(array_type)(context, builder, value=value)
    memory = context.get_data_type(array_type.dtype)
    vec = ir.VectorType(memory, LANES)
    return builder.bitcast(builder.gep(array.data, [at]), vec.as_pointer()), vec, memory


def _align(context, array_type):
    return context.get_abi_sizeof(context.get_data_type(array_type.dtype))


def first_lanes(builder, n):
    """Return a mask of the first n lanes."""
    count = builder.trunc(n, I32)
    many = builder.insert_element(ir.Constant(ir.VectorType(I32, LANES), ir.Undefined), count, ir.Constant(I32, 0))
    many = builder.shuffle_vector(
        many, ir.Constant(many.type, ir.Undefined), ir.Constant(ir.VectorType(I32, LANES), [0] * LANES)
    )
    return builder.icmp_signed("<", _EVERY, many)


def mangled(vec):
    element = vec.element
    if isinstance(element, ir.FloatType):
        return f"v{LANES}f32"
    if isinstance(element, ir.DoubleType):
        return f"v{LANES}f64"
    return f"v{LANES}i{element.width}"


def _masked(builder, kind, vec, arguments):
    """Call LLVM's masked load or store."""
    returns = vec if kind == "load" else ir.VoidType()
    name = f"llvm.masked.{kind}.{mangled(vec)}.p0"
    fn = cgutils.get_or_insert_function(
        builder.module, ir.FunctionType(returns, [argument.type for argument in arguments]), name
    )
    return builder.call(fn, arguments)


def _to_memory(builder, dtype, value, vec):
    return builder.zext(value, vec) if dtype == types.boolean else value


def _from_memory(builder, dtype, value):
    if dtype != types.boolean:
        return value
    return builder.icmp_unsigned("!=", value, zero(value.type))


@intrinsic
def load(typingctx, A, at):
    """Load sixteen elements from position `at` on."""
    if not _is_array(A):
        return None

    def codegen(context, builder, signature, args):
        pointer, _, _ = _address(context, builder, A, *args)
        return _from_memory(builder, A.dtype, builder.load(pointer, align=_align(context, A)))

    return Vec(A.dtype)(A, types.int64), codegen


@intrinsic
def load_part(typingctx, A, at, n):
    """Load the first n elements from position `at` on; zero in the other lanes."""
    if not _is_array(A):
        return None

    def codegen(context, builder, signature, args):
        pointer, vec, _ = _address(context, builder, A, *args[:2])
        align = ir.Constant(I32, _align(context, A))
        loaded = _masked(builder, "load", vec, [pointer, align, first_lanes(builder, args[2]), zero(vec)])
        return _from_memory(builder, A.dtype, loaded)

    return Vec(A.dtype)(A, types.int64, types.int64), codegen


@intrinsic
def store(typingctx, A, at, x):
    """Store sixteen elements from position `at` on."""
    if not (_is_array(A) and isinstance(x, Vec) and x.dtype == A.dtype):
        return None

    def codegen(context, builder, signature, args):
        pointer, vec, _ = _address(context, builder, A, *args[:2])
        builder.store(_to_memory(builder, A.dtype, args[2], vec), pointer, align=_align(context, A))
        return context.get_dummy_value()

    return types.void(A, types.int64, x), codegen


@intrinsic
def store_part(typingctx, A, at, n, x):
    """Store the first n lanes from position `at` on."""
    if not (_is_array(A) and isinstance(x, Vec) and x.dtype == A.dtype):
        return None

    def codegen(context, builder, signature, args):
        pointer, vec, _ = _address(context, builder, A, *args[:2])
        value = _to_memory(builder, A.dtype, args[3], vec)
        align = ir.Constant(I32, _align(context, A))
        _masked(builder, "store", vec, [value, pointer, align, first_lanes(builder, args[2])])
        return context.get_dummy_value()

    return types.void(A, types.int64, types.int64, x), codegen


@intrinsic
def get(typingctx, A, at):
    """Return the element at position `at`, which must not be negative: Numba's own subscript checks that, at a cost."""
    if not _is_array(A):
        return None

    def codegen(context, builder, signature, args):
        array = context.make_array(A)(context, builder, value=args[0])
        return load_item(context, builder, A, builder.gep(array.data, [args[1]]))

    return A.dtype(A, types.int64), codegen


@intrinsic
def put(typingctx, A, at, x):
    """Store the element at position `at`."""
    if not _is_array(A) or not typingctx.can_convert(x, A.dtype):
        return None

    def codegen(context, builder, signature, args):
        array = context.make_array(A)(context, builder, value=args[0])
        value = context.cast(builder, args[2], x, A.dtype)
        store_item(context, builder, A, value, builder.gep(array.data, [args[1]]))
        return context.get_dummy_value()

    return types.void(A, types.int64, x), codegen


@intrinsic
def ahead(typingctx, A, at):
    """Prefetch the cache line of position `at`, which will be read and written soon. Any position is allowed."""
    if not _is_array(A):
        return None

    def codegen(context, builder, signature, args):
        array = context.make_array(A)(context, builder, value=args[0])
        pointer = builder.bitcast(builder.gep(array.data, [args[1]]), ir.IntType(8).as_pointer())
        kind = ir.FunctionType(ir.VoidType(), [pointer.type, I32, I32, I32])
        fn = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        for_writing, stays, data = 1, 3, 1
        builder.call(fn, [pointer, *(ir.Constant(I32, flag) for flag in (for_writing, stays, data))])
        return context.get_dummy_value()

    return types.void(A, types.int64), codegen
