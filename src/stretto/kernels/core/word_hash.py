"""Hash 64-bit words at the speed of memory: a fingerprint of data, without protection against forgery.

Word i belongs to lane i mod 16. A lane takes a word by a round of xxHash64, acc ← rotate(acc + word·P2, 31)·P1, which
is one-to-one in acc and in the word: one changed word always changes the result.
"""

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from stretto.kernels.numeric.vector import add, load, mul, splat, store
from stretto.kernels.numeric.vector_memory import Vec

from .compile import kernel

LANES = 16

_P1, _P2 = np.uint64(0x9E3779B185EBCA87), np.uint64(0xC2B2AE3D27D4EB4F)


@intrinsic
def _rotated(typingctx, x):
    """Return every uint64 lane, rotated left by 31 bits."""
    if not (isinstance(x, Vec) and x.dtype == types.uint64):
        return None

    def codegen(context, builder, signature, args):
        left, right = (ir.Constant(args[0].type, [by] * LANES) for by in (31, 33))
        return builder.or_(builder.shl(args[0], left), builder.lshr(args[0], right))

    return x(x), codegen


@kernel
def hash_words(words, lanes):
    """Take words [n] uint64 into lanes [16] uint64; n is a multiple of 16."""
    acc = load(lanes, 0)
    for i in range(0, words.shape[0], LANES):
        acc = mul(_rotated(add(acc, mul(load(words, i), splat(_P2)))), splat(_P1))
    store(lanes, 0, acc)
