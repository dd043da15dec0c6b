"""`opaque`: a number that the compiler takes for unknown.

    for q in range(opaque(16)):

A loop with a constant number of iterations is unrolled where that fits, and then the loop around it becomes the one
that is turned into vector instructions: often with strided loads and stores, at a third of the speed. With a number
that is not known the innermost loop keeps its vectors. Likewise a loop with a constant stride of two or more is turned
into vector instructions that load and store element by element, which takes longer than the loop as it stands.
"""

from __future__ import annotations

from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

_I64 = ir.IntType(64)


@intrinsic
def opaque(typingctx, x):
    """Return x, an integer."""

    def codegen(context, builder, signature, args):
        return builder.asm(ir.FunctionType(_I64, [_I64]), "", "=r,0", [args[0]], False)

    return types.int64(types.int64), codegen
