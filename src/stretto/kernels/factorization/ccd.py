"""Cyclic coordinate descent in rank-one sweeps (CCD++; Yu, Hsieh, Si, Dhillon 2012).

Each latent column in turn, its vectors u [m] and v [n], is fitted to the residual of all other columns. With r̂ = r +
u_i v_j (the residual with the column's own old part added back), the best u for a fixed v is, row by row,

    u_i = Σ_j r̂_ij v_j / (ridge_i + Σ_j v_j²)          ridge_i = reg · n_i if weighted else reg

and v likewise from the columns. The residual is stored twice, in row order (CSR) and in column order (CSC), so that
both sweeps read memory sequentially. One pass subtracts the last column's new part, adds this column's old part back,
and computes the sums:

    for t in range(rank):                # last_u, last_v: the final vectors of the column before, zeros at first
        old_u = u.copy()
        turn_worker(rows: x=u, y=v, old_y=v, last_x=last_u, last_y=last_v)
        turn_worker(columns: x=v, y=u, old_y=old_u, last_x=last_v, last_y=last_u)
        sweep_worker(rows: x=u, y=v)     # further inner iterations: the residual stays as it is
        sweep_worker(columns: x=v, y=u)
    settle_worker(rows), settle_worker(columns)       # subtract the last column's part

Entry n of a row goes to lane n mod 16; lanes are reduced as in `lanes`, so the sums are fast and have one fixed order.

Shapes: bounds [V + 1] row blocks; ptr [m + 1], idx [n], residual [n] float32: the side's compressed rows; x, last_x
[m], y, old_y, last_y [columns] float32, contiguous. Factors are stored one latent column after another, U [rank, m];
`to_rows` transposes them.
"""

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from stretto.kernels.core.claims import fail, next_visit
from stretto.kernels.core.compile import inner, kernel
from stretto.kernels.numeric import lanes

_ZERO = np.float32(0.0)
_I32, _I64, _F4 = ir.IntType(32), ir.IntType(64), ir.FloatType()


def to_rows(columns: np.ndarray) -> np.ndarray:
    """Convert [rank, n] latent columns to [n, padded(rank)] rows with zero padding.

    >>> to_rows(np.ones((2, 3), dtype=np.float32)).shape
    (3, 16)
    """
    rows = lanes.aligned((columns.shape[1], lanes.padded(columns.shape[0])))
    rows[:, : columns.shape[0]] = columns.T
    return rows


def to_columns(rows: np.ndarray, rank: int) -> np.ndarray:
    """Convert [n, width] rows to [rank, n] latent columns."""
    return np.ascontiguousarray(rows[:, :rank].T)


# --- one row: gather, update, sum -----------------------------------------------------------------------------------


def _data(context, builder, array_type, value):
    return context.make_array(array_type)(context, builder, value=value).data


def _index(builder, idx, at):
    """Return idx[at] as a 64-bit number."""
    one = builder.load(builder.gep(idx, [at]))
    return one if idx.type.pointee == _I64 else builder.sext(one, _I64)


def _indices(builder, idx, at):
    """Return idx[at], …, idx[at + 15]."""
    return [_index(builder, idx, builder.add(at, ir.Constant(_I64, c))) for c in range(lanes.LANES)]


def _gather(builder, pointer, indices):
    """Load pointer[indices[c]] into lane c; plain loads took two thirds of the time of the gather instruction."""
    vec = ir.Constant(lanes.VEC, ir.Undefined)
    for c, at in enumerate(indices):
        vec = builder.insert_element(vec, builder.load(builder.gep(pointer, [at])), ir.Constant(_I32, c))
    return vec


def _walk(builder, first, last, count, sixteen, single):
    """Compute `count` sums over entries first … last − 1, entry n in lane n mod 16; return the reduced sums.

    sixteen(at, sums) and single(at, sums) add the entries at[0:16] or the entry at to the running sums and return them.
    """
    whole = builder.add(first, builder.and_(builder.sub(last, first), ir.Constant(_I64, -lanes.LANES)))
    sums = [cgutils.alloca_once_value(builder, lanes.ZERO) for _ in range(count)]
    with cgutils.for_range_slice(builder, first, whole, ir.Constant(_I64, lanes.LANES), _I64) as (at, _):
        for place, value in zip(sums, sixteen(at, [builder.load(s) for s in sums]), strict=True):
            builder.store(value, place)
    # The remainder indexes lanes, which needs memory; the loop above stays in registers.
    spread = [cgutils.alloca_once_value(builder, builder.load(s)) for s in sums]
    flat = [builder.bitcast(s, _F4.as_pointer()) for s in spread]
    with cgutils.for_range_slice(builder, whole, last, ir.Constant(_I64, 1), _I64) as (at, _):
        slots = [builder.gep(f, [builder.sub(at, whole)]) for f in flat]
        for place, value in zip(slots, single(at, [builder.load(s) for s in slots]), strict=True):
            builder.store(value, place)
    return [lanes.tree(builder, builder.load(s)) for s in spread]


def _is_floats(ty):
    return isinstance(ty, types.Array) and ty.ndim == 1 and ty.layout == "C" and ty.dtype == types.float32


def _is_index(ty):
    return isinstance(ty, types.Array) and ty.ndim == 1 and ty.layout == "C" and ty.dtype in (types.int32, types.int64)


@intrinsic
def _sums(typingctx, residual, idx, first, last, y):
    """(Σ residual[t]·y[idx[t]], Σ y[idx[t]]²) over t = first … last − 1."""
    if not (_is_floats(residual) and _is_index(idx) and _is_floats(y)):
        return None
    result = types.UniTuple(types.float32, 2)

    def codegen(context, builder, signature, args):
        r = _data(context, builder, residual, args[0])
        index = _data(context, builder, idx, args[1])
        other = _data(context, builder, y, args[4])

        def sixteen(at, sums):
            b = _gather(builder, other, _indices(builder, index, at))
            return [lanes.fma(builder, lanes.load(builder, r, at), b, sums[0]), lanes.fma(builder, b, b, sums[1])]

        def single(at, sums):
            b = builder.load(builder.gep(other, [_index(builder, index, at)]))
            return [
                lanes.fma(builder, builder.load(builder.gep(r, [at])), b, sums[0]),
                lanes.fma(builder, b, b, sums[1]),
            ]

        return context.make_tuple(builder, result, _walk(builder, args[2], args[3], 2, sixteen, single))

    return result(residual, idx, types.int64, types.int64, y), codegen


@intrinsic
def _turned_sums(typingctx, residual, idx, first, last, y, on, old_y, off, last_y):
    """residual[t] += on·old_y[idx[t]] − off·last_y[idx[t]], and the sums of `_sums` over the new residual."""
    if not (_is_floats(residual) and _is_index(idx) and _is_floats(y) and _is_floats(old_y) and _is_floats(last_y)):
        return None
    result = types.UniTuple(types.float32, 2)
    f4, n = types.float32, types.int64

    def codegen(context, builder, signature, args):
        r = _data(context, builder, residual, args[0])
        index = _data(context, builder, idx, args[1])
        other, old, past = (_data(context, builder, ty, args[k]) for ty, k in ((y, 4), (old_y, 6), (last_y, 8)))
        on, off = args[5], builder.fneg(args[7])
        on16, off16 = lanes.splat(builder, on), lanes.splat(builder, off)

        def sixteen(at, sums):
            where = _indices(builder, index, at)
            e = lanes.fma(builder, off16, _gather(builder, past, where), lanes.load(builder, r, at))
            e = lanes.fma(builder, on16, _gather(builder, old, where), e)
            lanes.store(builder, e, r, at)
            b = _gather(builder, other, where)
            return [lanes.fma(builder, e, b, sums[0]), lanes.fma(builder, b, b, sums[1])]

        def single(at, sums):
            where = _index(builder, index, at)
            place = builder.gep(r, [at])
            e = lanes.fma(builder, off, builder.load(builder.gep(past, [where])), builder.load(place))
            e = lanes.fma(builder, on, builder.load(builder.gep(old, [where])), e)
            builder.store(e, place)
            b = builder.load(builder.gep(other, [where]))
            return [lanes.fma(builder, e, b, sums[0]), lanes.fma(builder, b, b, sums[1])]

        return context.make_tuple(builder, result, _walk(builder, args[2], args[3], 2, sixteen, single))

    return result(residual, idx, n, n, y, f4, old_y, f4, last_y), codegen


# --- the workers ----------------------------------------------------------------------------------------------------


@inner
def _best(above, below, reg, weighted, count):
    """Return the minimiser for one row; 0 if the row is undetermined."""
    below += reg * np.float32(count) if weighted else reg
    return above / below if below > _ZERO else _ZERO


@kernel
def sweep_worker(pass_, worker, out, bounds, ptr, idx, residual, x, y, reg, weighted):
    """x[i] = the minimiser for fixed y; the residual must include the column's own part. out [V]: Σ x² of a block."""
    v = next_visit(pass_, worker)
    while v >= 0:
        total = 0.0
        for i in range(bounds[v], bounds[v + 1]):
            above, below = _sums(residual, idx, ptr[i], ptr[i + 1], y)
            x[i] = _best(above, below, reg, weighted, ptr[i + 1] - ptr[i])
            total += np.float64(x[i]) * x[i]
        out[v] = total
        if not np.isfinite(total):
            fail(pass_, v)
        v = next_visit(pass_, worker, v)


@kernel
def turn_worker(pass_, worker, out, bounds, ptr, idx, residual, x, y, old_y, last_x, last_y, reg, weighted):
    """Go from the last column to this one: residual += x old_yᵀ − last_x last_yᵀ, then x[i] = the minimiser for y.

    out [V]: Σ x² of a block.
    """
    v = next_visit(pass_, worker)
    while v >= 0:
        total = 0.0
        for i in range(bounds[v], bounds[v + 1]):
            above, below = _turned_sums(residual, idx, ptr[i], ptr[i + 1], y, x[i], old_y, last_x[i], last_y)
            x[i] = _best(above, below, reg, weighted, ptr[i + 1] - ptr[i])
            total += np.float64(x[i]) * x[i]
        out[v] = total
        if not np.isfinite(total):
            fail(pass_, v)
        v = next_visit(pass_, worker, v)


@kernel
def settle_worker(pass_, worker, out, bounds, ptr, idx, residual, last_x, last_y):
    """Finish a column: residual −= last_x last_yᵀ. out [V]: Σ residual² of a block, which is the squared loss."""
    v = next_visit(pass_, worker)
    while v >= 0:
        total = 0.0
        for i in range(bounds[v], bounds[v + 1]):
            off = -last_x[i]
            for t in range(ptr[i], ptr[i + 1]):
                e = lanes.fma32(off, last_y[idx[t]], residual[t])
                residual[t] = e
                total += np.float64(e) * e
        out[v] = total
        if not np.isfinite(total):
            fail(pass_, v)
        v = next_visit(pass_, worker, v)


@kernel
def residual_worker(pass_, worker, out, bounds, ptr, idx, values, W, H, row_bias, col_bias, mean, residual):
    """Recompute residual[t] = value − prediction (W, H as rows): at the start, or to remove rounding errors.

    out [V]: Σ residual² of a block.
    """
    row_biased, col_biased = row_bias.shape[0] > 0, col_bias.shape[0] > 0
    v = next_visit(pass_, worker)
    while v >= 0:
        total = 0.0
        for i in range(bounds[v], bounds[v + 1]):
            base = mean + row_bias[i] if row_biased else mean
            for t in range(ptr[i], ptr[i + 1]):
                j = np.int64(idx[t])
                p = base + col_bias[j] if col_biased else base
                e = values[t] - (p + lanes.dot(W, i, H, j))
                residual[t] = e
                total += np.float64(e) * e
        out[v] = total
        if not np.isfinite(total):
            fail(pass_, v)
        v = next_visit(pass_, worker, v)
