"""Transpose a dense matrix in tiles of eight rows and columns, each of which stays in registers.

A tile reads and writes whole cache lines. Three rounds of interleaving rows k and k + 4 transpose it.
"""

from __future__ import annotations

from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from stretto.kernels.numeric.vector import get, put

from .compile import kernel

_SIDE = 8
_WIDTH = 64  # columns of a strip: its rows are read eight at a time
_HALF = _SIDE // 2
_LOW = [lane // 2 + (_SIDE if lane % 2 else 0) for lane in range(_SIDE)]
_HIGH = [lane + _HALF for lane in _LOW]


@intrinsic
def _turn_tile(typingctx, X, at, to, there):
    """Write the tile of X from element `at` on, transposed, to the elements of `to` from `there` on."""
    plain = all(isinstance(A, types.Array) and A.layout == "C" and A.ndim == 2 for A in (X, to))
    if not plain or X.dtype != to.dtype:
        return None

    def codegen(context, builder, signature, args):
        kind = ir.VectorType(context.get_data_type(X.dtype), _SIDE)
        align = context.get_abi_sizeof(kind.element)
        mask = ir.VectorType(ir.IntType(32), _SIDE)
        given, made = (context.make_array(A)(context, builder, value=v) for A, v in ((X, args[0]), (to, args[2])))

        def row(array, first, r):
            step = builder.extract_value(array.shape, 1)
            where = builder.add(first, builder.mul(step, ir.Constant(step.type, r)))
            return builder.bitcast(builder.gep(array.data, [where]), kind.as_pointer())

        rows = [builder.load(row(given, args[1], r), align=align) for r in range(_SIDE)]
        for _ in range(3):
            pairs = [(rows[k], rows[k + _HALF]) for k in range(_HALF)]
            rows = [
                builder.shuffle_vector(*pair, ir.Constant(mask, lanes)) for pair in pairs for lanes in (_LOW, _HIGH)
            ]
        for r in range(_SIDE):
            builder.store(rows[r], row(made, args[3], r), align=align)
        return context.get_dummy_value()

    return types.void(X, types.int64, to, types.int64), codegen


@kernel
def transpose(X, to):
    """to [p, n] = Xᵀ, for X [n, p]."""
    n, p = X.shape
    rows, columns = n // _SIDE * _SIDE, p // _SIDE * _SIDE
    for first in range(0, columns, _WIDTH):
        last = min(first + _WIDTH, columns)
        for i in range(0, rows, _SIDE):
            for j in range(first, last, _SIDE):
                _turn_tile(X, i * p + j, to, j * n + i)
        for i in range(rows, n):
            for j in range(first, last):
                put(to, j * n + i, get(X, i * p + j))
    for i in range(n):
        for j in range(columns, p):
            put(to, j * n + i, get(X, i * p + j))
