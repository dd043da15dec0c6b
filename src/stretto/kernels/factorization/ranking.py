"""Stochastic gradient descent for rankings over the blocks of a matrix: BPR, WARP and logistic loss.

The values of a matrix say which items y a row x prefers; the items j that it lacks are sampled. With the score
s_j = W[x]·H[j] + c[j], one step goes down the gradient of

    BPR        log(1 + e^−(s_y − s_j))                   for one item j drawn at random
    WARP       L·max(0, 1 − s_y + s_j)                   for the first of at most `draws` items with s_j > s_y − 1
    logistic   log(1 + e^−p_y) + Σ_j log(1 + e^p_j)      for `draws` items, with p_j = s_j + b[x]

L = log(1 + q) / log(1 + N), where q = (N − 1) / draws made estimates how many of all N items are ranked above y.

A visit draws from the items of its own column block, so no other visit may touch their rows while it runs. The numbers
are counter-based: a visit's are those of its key (epoch, visit), on every worker. Items that the row prefers
are not drawn: a table of hashed pairs holds those of the visit.

Shapes as in `sgd`. pool [n] int32: the columns that may be drawn, ascending; pool_first, pool_end [V]: those of each
visit. out [V]: Σ loss before each update.
"""

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from stretto.kernels.core.claims import fail, next_visit
from stretto.kernels.core.compile import inner, kernel, merged
from stretto.kernels.core.scratch import empty
from stretto.kernels.numeric import lanes
from stretto.kernels.numeric.random import _scramble as scramble
from stretto.kernels.numeric.random import mix
from stretto.kernels.numeric.scalar import exp, log

from .sgd import is_sparse

BPR, WARP, LOGISTIC = range(3)
METHODS = {"bpr": BPR, "warp": WARP, "logistic": LOGISTIC}
MOST_WEIGHT = 10.0  # of a value, in units of the mean weight: a count of a million must not ruin its row
TRIES = 10  # draws until one is of an item that the row does not prefer
_ZERO, _ONE = np.float32(0.0), np.float32(1.0)
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_HALF = np.uint64(32)
_AHEAD = 8  # prefetch distance, in entries
_LARGE = 1e250  # a product of factors up to 2 is replaced by its logarithm from here on


@intrinsic
def pull_apart(typingctx, W, x, H, y, j, g, shrink_w, shrink_h, count):
    """W[x], H[y], H[j] = shrink_w·W[x] + g·(H[y] − H[j]), shrink_h·H[y] + g·W[x], shrink_h·H[j] − g·W[x]; y ≠ j."""
    if not (lanes.is_rows(W) and lanes.is_rows(H)):
        return None
    f4, n = types.float32, types.int64

    def codegen(context, builder, signature, args):
        p, width = lanes.row_of(context, builder, W, args[0], args[1], count)
        q, _ = lanes.row_of(context, builder, H, args[2], args[3], count)
        s, _ = lanes.row_of(context, builder, H, args[2], args[4], count)
        g, keep_w, keep_h = (lanes.splat(builder, x) for x in args[5:8])
        back = builder.fneg(g)
        pieces = []

        def put():
            for at, *rows in pieces:
                for values, to in zip(rows, (p, q, s), strict=True):
                    lanes.store(builder, values, to, at)
            pieces.clear()

        def body(at):
            w, one, other = (lanes.load(builder, row, at) for row in (p, q, s))
            new_w = lanes.fma(builder, g, builder.fsub(one, other), builder.fmul(keep_w, w))
            new_one = lanes.fma(builder, g, w, builder.fmul(keep_h, one))
            pieces.append((at, new_w, new_one, lanes.fma(builder, back, w, builder.fmul(keep_h, other))))
            if not isinstance(at, ir.Constant):
                put()

        lanes.over_chunks(builder, width, count, body)
        put()
        return context.get_dummy_value()

    return types.void(W, n, H, n, n, f4, f4, f4, count), codegen


@merged
def _weight(value, confidence, mean_weight):
    """Return the weight of a value: 1 + confidence·|value|, divided by the mean weight."""
    return min((_ONE + confidence * abs(value)) / mean_weight, np.float32(MOST_WEIGHT))


@merged
def _share(d):
    """Return (σ(−d), e^−|d|): minus the derivative of log(1 + e^−d), and what the loss follows from."""
    e = exp(-abs(d))
    p = 1.0 / (1.0 + e)
    return (e * p if d > 0.0 else p), e


@merged
def _level(items, made, top):
    """Return the weight of a violation found by the draw number `made`; top: 1 / log(1 + items)."""
    return log(1.0 + (items - 1.0) / made) * top


@inner
def _find(table, key, move):
    """Return the place of a key in a table of hashed keys, or the free place where it belongs."""
    last = np.uint64(table.shape[0] - 1)
    at = (key * _GOLDEN) >> move
    while table[at] != 0 and table[at] != key:
        at = (at + np.uint64(1)) & last
    return at


@inner
def _tabulate(table, u, i, r, lo, hi):
    """Put the preferred pairs of a visit into a table of hashed keys; (length, shift) of the part that is used."""
    bits = 4
    while (1 << bits) < 2 * (hi - lo):
        bits += 1
    length = 1 << bits
    move = np.uint64(64 - bits)
    used = table[:length]
    for k in range(length):
        used[k] = 0
    for t in range(lo, hi):
        if r[t] > _ZERO:
            key = (np.uint64(u[t]) << _HALF) | (np.uint64(i[t]) + np.uint64(1))
            used[_find(used, key, move)] = key
    return length, move


@kernel(allocates=True)
def ranking_worker(
    pass_,
    worker,
    out,
    ptr,
    u,
    i,
    r,
    row_base,
    col_base,
    W,
    H,
    b,
    c,
    pool,
    pool_first,
    pool_end,
    step,
    lam,
    lam_bias,
    confidence,
    mean_weight,
    method,
    draws,
    seed,
    epoch,
    count,
):
    """One pass of a ranking loss, with steps of size `step` (float32); draws: as above, for BPR pairs of an entry.

    confidence, mean_weight float32: see `_weight`. Of values up to 0 the logistic loss learns that the row does not
    prefer the item; the others use them as items that the row lacks.
    """
    longest = 0
    for v in range(ptr.shape[0] - 1):
        longest = max(longest, ptr[v + 1] - ptr[v])
    room = 16
    while room < 2 * longest:
        room *= 2
    table = empty(room, np.uint64)
    biased = c.shape[0] > 0
    sparse = is_sparse(ptr, W, H)
    items = np.float64(pool.shape[0])
    top = 1.0 / log(1.0 + items)
    keep, keep_bias = _ONE - step * lam, _ONE - step * lam_bias
    v = next_visit(pass_, worker)
    while v >= 0:
        total, product = 0.0, 1.0
        row_at, col_at = row_base[v], col_base[v]
        lo, hi = ptr[v], ptr[v + 1]
        length, move = _tabulate(table, u, i, r, lo, hi)
        preferred = table[:length]
        first = pool_first[v]
        choice = np.uint64(pool_end[v] - first)
        state = mix(seed, epoch, v, 0)
        for t in range(lo, hi):
            value = r[t]
            if value <= _ZERO and method != LOGISTIC:
                continue
            x, y = row_at + u[t], col_at + i[t]
            if sparse:
                soon = min(t + _AHEAD, hi - 1)
                lanes.ahead_of(W, row_at + u[soon], count)
                lanes.ahead_of(H, col_at + i[soon], count)
            weight = step * _weight(value, confidence, mean_weight)
            if method == LOGISTIC:
                p = lanes.dot_of(W, x, H, y, count)
                if biased:
                    p += b[x] + c[y]
                sign = 1.0 if value > _ZERO else -1.0
                pull, e = _share(sign * np.float64(p))
                product *= 1.0 + e
                total += max(-sign * np.float64(p), 0.0)
                g = weight * np.float32(sign * pull)
                lanes.pull(W, x, H, y, keep, g, keep, g, count)
                if biased:
                    b[x] = keep_bias * b[x] + g
                    c[y] = keep_bias * c[y] + g
                if value <= _ZERO:
                    continue
            made = 0
            local = np.uint64(u[t]) << _HALF
            score = lanes.dot_of(W, x, H, y, count) if method == WARP else _ZERO
            if method == WARP and biased:
                score += c[y]
            for _ in range(draws):
                j = np.int64(-1)
                for _ in range(TRIES):
                    state += _GOLDEN
                    k = pool[first + np.int64(((scramble(state) >> _HALF) * choice) >> _HALF)]
                    key = local | np.uint64(k - col_at + 1)
                    if preferred[_find(preferred, key, move)] != key:
                        j = np.int64(k)
                        break
                if j < 0:
                    break
                made += 1
                if method == LOGISTIC:
                    p = lanes.dot_of(W, x, H, j, count)
                    if biased:
                        p += b[x] + c[j]
                    pull, e = _share(-np.float64(p))
                    product *= 1.0 + e
                    total += max(np.float64(p), 0.0)
                    g = -step * np.float32(pull)
                    lanes.pull(W, x, H, j, keep, g, keep, g, count)
                    if biased:
                        b[x] = keep_bias * b[x] + g
                        c[j] = keep_bias * c[j] + g
                    continue
                if method == BPR:
                    score = lanes.dot_of(W, x, H, y, count)
                    if biased:
                        score += c[y]
                d = score - lanes.dot_of(W, x, H, j, count)
                if biased:
                    d -= c[j]
                if method == BPR:
                    pull, e = _share(np.float64(d))
                    product *= 1.0 + e
                    total += max(-np.float64(d), 0.0)
                else:
                    if d >= _ONE:
                        continue
                    pull = _level(items, made, top)
                    total += pull * (1.0 - np.float64(d))
                g = weight * np.float32(pull)
                pull_apart(W, x, H, y, j, g, keep, keep, count)
                if biased:
                    c[y] = keep_bias * c[y] + g
                    c[j] = keep_bias * c[j] - g
                if method == WARP:
                    break
            if product > _LARGE:
                total += log(product)
                product = 1.0
        total += log(product)
        out[v] = total
        if not np.isfinite(total):
            fail(pass_, v)
        v = next_visit(pass_, worker, v)
