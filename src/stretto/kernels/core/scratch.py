"""Array allocation inside kernels: `empty` and `zeros` without Numba's error paths.

    empty(n, np.int32)              like np.empty(n, np.int32)
    empty2(n, m, like.dtype)        like np.empty((n, m), like.dtype)
    zeros(n, np.int64)              like np.zeros(n, np.int64)
    zeros2(n, m, np.float64)        like np.zeros((n, m))

Only for kernels and helpers marked `allocates=True`. They do what NumPy's functions do. Numba compiles NumPy's with
the text of every error they could raise, which takes longer than compiling the kernel. Running out of memory raises
MemoryError here too.
"""

from __future__ import annotations

from numba.core import cgutils, types
from numba.core.typing.npydecl import parse_dtype
from numba.extending import intrinsic
from numba.np.arrayobj import get_itemsize, make_array, populate_array

_ALIGNMENT = 64


def _array(context, builder, arrtype, shape):
    """Return the array and its size in bytes."""
    one = context.get_constant(types.intp, get_itemsize(context, arrtype))
    strides = [one]
    for size in reversed(shape[1:]):
        strides.insert(0, builder.mul(strides[0], size))
    length = builder.mul(strides[0], shape[0])
    align = context.get_constant(types.uint32, _ALIGNMENT)
    meminfo = context.nrt.meminfo_alloc_aligned(builder, size=length, align=align)
    data = context.nrt.meminfo_data(builder, meminfo)
    array = make_array(arrtype)(context, builder)
    populate_array(
        array,
        data=builder.bitcast(data, context.get_data_type(arrtype.dtype).as_pointer()),
        shape=cgutils.pack_array(builder, shape),
        strides=cgutils.pack_array(builder, strides),
        itemsize=one,
        meminfo=meminfo,
    )
    return array, length


def _made(args, *, cleared):
    """Return the result type of `empty` or `zeros`, and the code generator."""
    *shape, dtype = args
    if not all(isinstance(size, types.Integer) for size in shape) or parse_dtype(dtype) is None:
        return None
    arrtype = types.Array(parse_dtype(dtype), len(shape), "C")

    def codegen(context, builder, signature, values):
        sizes = [
            context.cast(builder, value, ty, types.intp)
            for value, ty in zip(values[:-1], signature.args[:-1], strict=True)
        ]
        array, length = _array(context, builder, arrtype, sizes)
        if cleared:
            cgutils.memset(builder, array.data, length, 0)
        return array._getvalue()

    return arrtype(*args), codegen


@intrinsic
def empty(typingctx, n, dtype):
    """Uninitialised array [n]."""
    return _made((n, dtype), cleared=False)


@intrinsic
def empty2(typingctx, n, m, dtype):
    """Uninitialised array [n, m]."""
    return _made((n, m, dtype), cleared=False)


@intrinsic
def zeros(typingctx, n, dtype):
    """Array [n] of zeros."""
    return _made((n, dtype), cleared=True)


@intrinsic
def zeros2(typingctx, n, m, dtype):
    """Array [n, m] of zeros."""
    return _made((n, m, dtype), cleared=True)
