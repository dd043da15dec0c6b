"""Row arithmetic in sixteen fixed lanes, with the same bits on every instruction set.

A row is a C-contiguous run of float32 whose length is a multiple of 16 (rows are padded with zeros, see `padded`).
Element c belongs to lane c mod 16. A reduction keeps one partial sum per lane, in column order, and adds the lanes
by a fixed tree (8 + 8, 4 + 4, 2 + 2, 1 + 1). Products are added with an explicit fused multiply-add, which IEEE 754
defines to the last bit, so the compiler may use 512-, 256- or 128-bit registers (or a library call where the machine
has no such instruction) and the result is the same. No operation here has a fast-math flag; under profile
`fast` Numba adds them.

    dot(W, i, H, j)                          W[i] · H[j]
    pull(W, i, H, j, cw, gw, ch, gh)         W[i], H[j] = cw·W[i] + gw·H[j], ch·H[j] + gh·W[i]
    pull_squares(W, i, H, j, e, lam, a, b)   W[i] += a·(e·H[j] − lam·W[i]), H[j] likewise with b; sums of squared steps
    axpy(A, i, s, B, j)                      A[i] += s·B[j]
    scaled(A, i, s, B, j), clear(A, i)       A[i] = s·B[j], A[i] = 0
    dot4, axpy4                              four times dot or axpy, with the same bits in less time
"""

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

LANES = 16
MOST_UNROLLED = 8  # chunks; wider rows would not fit in the registers
_F4 = ir.FloatType()
_I32 = ir.IntType(32)
_I64 = ir.IntType(64)
VEC = ir.VectorType(_F4, LANES)
ZERO = ir.Constant(VEC, [0.0] * LANES)


def padded(width: int) -> int:
    """The row length that holds `width` numbers: the next multiple of 16.

    >>> padded(64), padded(10)
    (64, 16)
    """
    return max(LANES, -(-width // LANES) * LANES)


def aligned(shape: tuple[int, ...]) -> np.ndarray:
    """Return float32 zeros aligned to a cache line, so that sixteen lanes never straddle two (a third faster)."""
    length = int(np.prod(shape))
    room = np.zeros(length + LANES, dtype=np.float32)
    skip = (-room.ctypes.data // room.itemsize) % LANES
    return room[skip : skip + length].reshape(shape)


# --- IR fragments, shared by the intrinsics here and in tile.py -----------------------------------------------------


def fma(builder, x, y, z):
    """Return x·y + z, rounded once."""
    name = f"llvm.fma.v{LANES}f32" if isinstance(x.type, ir.VectorType) else "llvm.fma.f32"
    fn = cgutils.get_or_insert_function(builder.module, ir.FunctionType(x.type, [x.type] * 3), name)
    return builder.call(fn, [x, y, z])


def splat(builder, scalar):
    """Return a vector with one scalar, of any type, in every lane."""
    blank = ir.Constant(ir.VectorType(scalar.type, LANES), ir.Undefined)
    one = builder.insert_element(blank, scalar, ir.Constant(_I32, 0))
    return builder.shuffle_vector(one, blank, ir.Constant(ir.VectorType(_I32, LANES), [0] * LANES))


def tree(builder, vec):
    """Add sixteen lanes, of any type, by halves."""
    size = LANES
    add = builder.fadd if isinstance(vec.type.element, ir.FloatType | ir.DoubleType) else builder.add
    while size > 1:
        half = size // 2
        mask = ir.VectorType(_I32, half)
        blank = ir.Constant(vec.type, ir.Undefined)
        low = builder.shuffle_vector(vec, blank, ir.Constant(mask, list(range(half))))
        high = builder.shuffle_vector(vec, blank, ir.Constant(mask, list(range(half, size))))
        vec = add(low, high)
        size = half
    return builder.extract_element(vec, ir.Constant(_I32, 0))


def row_pointer(context, builder, array_type, value, index):
    """Return the address of row `index` of a C-contiguous 2-D float32 array, and its length."""
    array = context.make_array(array_type)(context, builder, value=value)
    width = cgutils.unpack_tuple(builder, array.shape)[1]
    return builder.gep(array.data, [builder.mul(index, width)]), width


def load(builder, pointer, offset):
    """Load sixteen floats from pointer[offset:]."""
    at = builder.bitcast(builder.gep(pointer, [offset]), VEC.as_pointer())
    return builder.load(at, align=4)


def store(builder, vec, pointer, offset):
    """Store sixteen floats at pointer[offset:]."""
    builder.store(vec, builder.bitcast(builder.gep(pointer, [offset]), VEC.as_pointer()), align=4)


def chunks(builder, width):
    """Emit a loop over offsets 0, 16, … below width; yields (offset, _)."""
    return cgutils.for_range_slice(builder, ir.Constant(_I64, 0), width, ir.Constant(_I64, LANES), _I64)


def is_rows(ty):
    """Whether a Numba type is a C-contiguous 2-D float32 array."""
    return isinstance(ty, types.Array) and ty.ndim == 2 and ty.layout == "C" and ty.dtype == types.float32


# --- the intrinsics -------------------------------------------------------------------------------------------------


@intrinsic
def dot(typingctx, W, i, H, j):
    """W[i] · H[j] in sixteen lanes."""
    if not (is_rows(W) and is_rows(H)):
        return None

    def codegen(context, builder, signature, args):
        p, width = row_pointer(context, builder, W, args[0], args[1])
        q, _ = row_pointer(context, builder, H, args[2], args[3])
        acc = cgutils.alloca_once_value(builder, ZERO)
        with chunks(builder, width) as (at, _):
            builder.store(fma(builder, load(builder, p, at), load(builder, q, at), builder.load(acc)), acc)
        return tree(builder, builder.load(acc))

    return types.float32(W, types.int64, H, types.int64), codegen


def unrolled(width: int) -> tuple[int, ...]:
    """Return the `count` that `dot_of`, `pull` and `pull_squares` take for rows of this width.

    Its length is the number of unrolled chunks, so that the compiler keeps both rows in registers from the product to
    the update (a fifth faster). Wider rows use a loop; their count is the empty tuple.
    """
    chunks_in = width // LANES
    return (0,) * chunks_in if chunks_in <= MOST_UNROLLED else ()


def over_chunks(builder, width, count, body):
    """Emit body(offset) for every chunk of a row: unrolled if the type of `count` has a length."""
    if isinstance(count, types.UniTuple) and count.count:
        for c in range(count.count):
            body(ir.Constant(_I64, c * LANES))
        return
    with chunks(builder, width) as (at, _):
        body(at)


def row_of(context, builder, array_type, value, index, count):
    """`row_pointer`, with a width known to the compiler if `count` specifies it."""
    if not (isinstance(count, types.UniTuple) and count.count):
        return row_pointer(context, builder, array_type, value, index)
    array = context.make_array(array_type)(context, builder, value=value)
    width = ir.Constant(_I64, count.count * LANES)
    return builder.gep(array.data, [builder.mul(index, width)]), width


def store_pairs(builder, pieces, p, q):
    """Store the collected (offset, new chunk of p, new chunk of q) and clear the list."""
    for at, new_p, new_q in pieces:
        store(builder, new_p, p, at)
        store(builder, new_q, q, at)
    pieces.clear()


@intrinsic
def ahead_of(typingctx, W, i, count):
    """Prefetch row i, which will be read and written soon: all of it if unrolled, else its first eight lines."""
    if not is_rows(W):
        return None

    def codegen(context, builder, signature, args):
        p, _ = row_of(context, builder, W, args[0], args[1], count)
        known = isinstance(count, types.UniTuple) and count.count
        byte = ir.IntType(8).as_pointer()
        kind = ir.FunctionType(ir.VoidType(), [byte, _I32, _I32, _I32])
        fn = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        for_writing, stays, data = (ir.Constant(_I32, flag) for flag in (1, 3, 1))
        for c in range(count.count if known else MOST_UNROLLED):
            at = builder.bitcast(builder.gep(p, [ir.Constant(_I64, c * LANES)]), byte)
            builder.call(fn, [at, for_writing, stays, data])
        return context.get_dummy_value()

    return types.void(W, types.int64, count), codegen


@intrinsic
def dot_of(typingctx, W, i, H, j, count):
    """`dot` for rows of known width; see `unrolled`."""
    if not (is_rows(W) and is_rows(H)):
        return None

    def codegen(context, builder, signature, args):
        p, width = row_of(context, builder, W, args[0], args[1], count)
        q, _ = row_of(context, builder, H, args[2], args[3], count)
        acc = cgutils.alloca_once_value(builder, ZERO)

        def body(at):
            builder.store(fma(builder, load(builder, p, at), load(builder, q, at), builder.load(acc)), acc)

        over_chunks(builder, width, count, body)
        return tree(builder, builder.load(acc))

    return types.float32(W, types.int64, H, types.int64, count), codegen


@intrinsic
def pull(typingctx, W, i, H, j, cw, gw, ch, gh, count):
    """W[i], H[j] = cw·W[i] + gw·H[j], ch·H[j] + gh·W[i]: one plain SGD step of a pair of rows."""
    if not (is_rows(W) and is_rows(H)):
        return None
    f4 = types.float32

    def codegen(context, builder, signature, args):
        p, width = row_of(context, builder, W, args[0], args[1], count)
        q, _ = row_of(context, builder, H, args[2], args[3], count)
        shrink_w, step_w, shrink_h, step_h = (splat(builder, x) for x in args[4:8])
        pieces = []

        def body(at):
            w, h = load(builder, p, at), load(builder, q, at)
            new_w = fma(builder, step_w, h, builder.fmul(shrink_w, w))
            new_h = fma(builder, step_h, w, builder.fmul(shrink_h, h))
            pieces.append((at, new_w, new_h))
            if not isinstance(at, ir.Constant):
                store_pairs(builder, pieces, p, q)

        # If unrolled, all loads come before all stores: to the compiler W and H may be the same memory, so it reuses
        # the rows loaded for the product only if nothing was stored in between.
        over_chunks(builder, width, count, body)
        store_pairs(builder, pieces, p, q)
        return context.get_dummy_value()

    return types.void(W, types.int64, H, types.int64, f4, f4, f4, f4, count), codegen


@intrinsic
def pull_squares(typingctx, W, i, H, j, e, lam, a, b, count):
    """One AdaGrad step of a pair of rows: (Σ g², Σ k²) of the gradients g = e·H[j] − lam·W[i] and k likewise."""
    if not (is_rows(W) and is_rows(H)):
        return None
    f4 = types.float32
    result = types.UniTuple(f4, 2)

    def codegen(context, builder, signature, args):
        p, width = row_of(context, builder, W, args[0], args[1], count)
        q, _ = row_of(context, builder, H, args[2], args[3], count)
        e, lam, a, b = (splat(builder, x) for x in args[4:8])
        shrink = builder.fsub(ZERO, lam)
        sum_w = cgutils.alloca_once_value(builder, ZERO)
        sum_h = cgutils.alloca_once_value(builder, ZERO)
        pieces = []

        def body(at):
            w, h = load(builder, p, at), load(builder, q, at)
            g = fma(builder, e, h, builder.fmul(shrink, w))
            k = fma(builder, e, w, builder.fmul(shrink, h))
            builder.store(fma(builder, g, g, builder.load(sum_w)), sum_w)
            builder.store(fma(builder, k, k, builder.load(sum_h)), sum_h)
            pieces.append((at, fma(builder, a, g, w), fma(builder, b, k, h)))
            if not isinstance(at, ir.Constant):
                store_pairs(builder, pieces, p, q)

        over_chunks(builder, width, count, body)
        store_pairs(builder, pieces, p, q)
        sums = [tree(builder, builder.load(sum_w)), tree(builder, builder.load(sum_h))]
        return context.make_tuple(builder, result, sums)

    return result(W, types.int64, H, types.int64, f4, f4, f4, f4, count), codegen


@intrinsic
def axpy(typingctx, A, i, s, B, j):
    """A[i] += s·B[j]."""
    if not (is_rows(A) and is_rows(B)):
        return None

    def codegen(context, builder, signature, args):
        p, width = row_pointer(context, builder, A, args[0], args[1])
        q, _ = row_pointer(context, builder, B, args[3], args[4])
        s = splat(builder, args[2])
        with chunks(builder, width) as (at, _):
            store(builder, fma(builder, s, load(builder, q, at), load(builder, p, at)), p, at)
        return context.get_dummy_value()

    return types.void(A, types.int64, types.float32, B, types.int64), codegen


@intrinsic
def fma32(typingctx, x, y, z):
    """x·y + z for three float32 scalars, rounded once."""
    f4 = types.float32

    def codegen(context, builder, signature, args):
        return fma(builder, *args)

    return f4(f4, f4, f4), codegen


# --- four rows at a time: the same bits as one after the other, in a third of the time ------------------------------


def trees(builder, vecs):
    """Add the lanes of several vectors at once; lane n of the result equals `tree` of vecs[n], addition for addition.

    Two vectors are reduced into the halves of one, so four cost five additions instead of sixteen.
    """
    size = LANES
    while size > 1:
        half = size // 2
        merged = []
        for n in range(0, len(vecs), 2):
            pair = vecs[n : n + 2]
            groups = len(pair) * pair[0].type.count // size
            mask = ir.VectorType(_I32, groups * half)
            low = [g * size + c for g in range(groups) for c in range(half)]
            other = pair[-1] if len(pair) == 2 else ir.Constant(pair[0].type, ir.Undefined)
            parts = [
                builder.shuffle_vector(pair[0], other, ir.Constant(mask, [c + shift for c in low]))
                for shift in (0, half)
            ]
            merged.append(builder.fadd(*parts))
        vecs = merged
        size = half
    return vecs[0]


@intrinsic
def dot4(typingctx, Y, j0, j1, j2, j3, P, i):
    """(Y[j0]·P[i], Y[j1]·P[i], Y[j2]·P[i], Y[j3]·P[i]), each with the bits of `dot`."""
    if not (is_rows(Y) and is_rows(P)):
        return None
    n = types.int64
    result = types.UniTuple(types.float32, 4)

    def codegen(context, builder, signature, args):
        rows = [row_pointer(context, builder, Y, args[0], j)[0] for j in args[1:5]]
        p, width = row_pointer(context, builder, P, args[5], args[6])
        sums = [cgutils.alloca_once_value(builder, ZERO) for _ in rows]
        with chunks(builder, width) as (at, _):
            x = load(builder, p, at)
            for row, acc in zip(rows, sums, strict=True):
                builder.store(fma(builder, load(builder, row, at), x, builder.load(acc)), acc)
        folded = trees(builder, [builder.load(acc) for acc in sums])
        return context.make_tuple(
            builder, result, [builder.extract_element(folded, ir.Constant(_I32, c)) for c in range(4)]
        )

    return result(Y, n, n, n, n, P, n), codegen


@intrinsic
def axpy4(typingctx, A, i, s0, s1, s2, s3, B, j0, j1, j2, j3):
    """A[i] += s0·B[j0], then s1·B[j1], s2·B[j2], s3·B[j3]: four times `axpy` with one load and store of A."""
    if not (is_rows(A) and is_rows(B)):
        return None
    n, f4 = types.int64, types.float32

    def codegen(context, builder, signature, args):
        p, width = row_pointer(context, builder, A, args[0], args[1])
        scales = [splat(builder, s) for s in args[2:6]]
        rows = [row_pointer(context, builder, B, args[6], j)[0] for j in args[7:]]
        with chunks(builder, width) as (at, _):
            total = load(builder, p, at)
            for s, row in zip(scales, rows, strict=True):
                total = fma(builder, s, load(builder, row, at), total)
            store(builder, total, p, at)
        return context.get_dummy_value()

    return types.void(A, n, f4, f4, f4, f4, B, n, n, n, n), codegen


@intrinsic
def scaled(typingctx, A, i, s, B, j):
    """A[i] = s·B[j]."""
    if not (is_rows(A) and is_rows(B)):
        return None

    def codegen(context, builder, signature, args):
        p, width = row_pointer(context, builder, A, args[0], args[1])
        q, _ = row_pointer(context, builder, B, args[3], args[4])
        s = splat(builder, args[2])
        with chunks(builder, width) as (at, _):
            store(builder, builder.fmul(s, load(builder, q, at)), p, at)
        return context.get_dummy_value()

    return types.void(A, types.int64, types.float32, B, types.int64), codegen


@intrinsic
def clear(typingctx, A, i):
    """A[i] = 0."""
    if not is_rows(A):
        return None

    def codegen(context, builder, signature, args):
        p, width = row_pointer(context, builder, A, args[0], args[1])
        with chunks(builder, width) as (at, _):
            store(builder, ZERO, p, at)
        return context.get_dummy_value()

    return types.void(A, types.int64), codegen
