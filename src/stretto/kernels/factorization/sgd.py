"""Stochastic gradient descent over the blocks of a matrix, one worker call per thread and epoch.

The model is p = W[i]·H[j] + b[i] + c[j]. One visit processes the entries of a block in their stored order. For each
entry it moves both rows (and both biases) down the gradient of loss + λ(‖W[i]‖² + ‖H[j]‖²) of that entry alone.

Shapes, with V visits and n entries: ptr [V + 1]; u, i [n] indices local to the block, r [n] float32; row_base, col_base
[V] where the visit's blocks begin in W [rows, width] and H [cols, width] float32; b [rows], c [cols] float32, of length
0 without biases. limit: errors of the squared loss are clipped to this (float32, infinity for no limit). out
[V]: Σ loss before each update.
"""

from __future__ import annotations

import numpy as np

from stretto.kernels.core.claims import fail, next_visit
from stretto.kernels.core.compile import inner, kernel, merged
from stretto.kernels.core.scratch import empty2
from stretto.kernels.numeric.lanes import ahead_of, dot_of, pull, pull_squares

from .loss_codes import SQUARED
from .losses import cost_of, pull_of

_ZERO, _ONE = np.float32(0.0), np.float32(1.0)
_TABULATED = 1 << 14  # rows of a block whose steps are computed once for each visit, at most
_CACHED = 1 << 18  # bytes of a visit's rows that are taken to be in the cache
_AHEAD = 8  # prefetch distance, in entries


@inner
def is_sparse(ptr, W, H):
    """Whether visits load more rows than they have entries, so that waiting for memory takes most of the time.

    Prefetching then takes half of the time of a pass; where rows are in the cache it would add a twentieth.
    """
    visits = ptr.shape[0] - 1
    return np.sqrt(visits) * (W.shape[0] + H.shape[0]) > ptr[visits] - ptr[0]


@merged
def _shrink(step, lam, ridge, share):
    """Return what a step leaves of a number; a strong penalty shrinks it to zero, and never beyond."""
    return max(_ONE - step * (lam + ridge * share), _ZERO)


@merged
def _own_step(step, decay, share):
    """Return the step of a row with 1 / share ratings: step / √(1 + decay / share)."""
    return step * np.sqrt(share / (share + decay))


@merged
def _bias_step(step, decay, share):
    """Return the step of the bias of a row with 1 / share ratings: step / (1 + decay / share)."""
    return step * (share / (share + decay))


@inner
def _most(index, lo, hi):
    """Return the largest of index[lo:hi], plus one."""
    found = index[lo]
    for t in range(lo, hi):
        found = max(found, index[t])
    return np.int64(found) + 1


@inner
def _tabulate(share, first, rows, step, decay, lam, ridge, lam_bias, ridge_bias, bias_step, bias_decay, table):
    """Fill table [rows, 4]: step and shrinkage of rows first, …, first + rows − 1, then those of their biases."""
    for k in range(rows):
        part = share[first + k]
        own, own_bias = _own_step(step, decay, part), _bias_step(bias_step, bias_decay, part)
        table[k, 0] = own
        table[k, 1] = _shrink(own, lam, ridge, part)
        table[k, 2] = own_bias
        table[k, 3] = _shrink(own_bias, lam_bias, ridge_bias, part)


@inner
def _by_table(first, end, u, i, r, row_at, col_at, W, H, b, c, row_table, col_table, limit, far, count):
    """Entries first, …, end − 1 of a visit, as in `sgd_worker`, with biases and steps from tables; Σ loss.

    far: the rows are not in the cache, so they are prefetched.
    """
    total = 0.0
    for t in range(first, end):
        k, j = np.int64(u[t]), np.int64(i[t])
        x, y = row_at + k, col_at + j
        if far:
            soon = min(t + _AHEAD, end - 1)
            ahead_of(W, row_at + u[soon], count)
            ahead_of(H, col_at + i[soon], count)
        e = r[t] - (dot_of(W, x, H, y, count) + (b[x] + c[y]))
        total += e * e
        e = min(max(e, -limit), limit)
        pull(W, x, H, y, row_table[k, 1], row_table[k, 0] * e, col_table[j, 1], col_table[j, 0] * e, count)
        b[x] = row_table[k, 3] * b[x] + row_table[k, 2] * e
        c[y] = col_table[j, 3] * c[y] + col_table[j, 2] * e
    return total


@kernel(allocates=True)
def sgd_worker(
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
    row_share,
    col_share,
    step,
    lam,
    lam_bias,
    ridge,
    ridge_bias,
    decay,
    bias_step,
    bias_decay,
    loss,
    limit,
    count,
):
    """SGD with steps of size `step` (float32), smaller for rows and columns with many ratings if decay > 0.

    row_share [rows], col_share [cols] float32: 1 / ratings of the row or column, so that the penalties `ridge` and
    `ridge_bias` are counted once for each row and column in an epoch; both of length 0 for none. decay, bias_step,
    bias_decay float32: with n ratings a row or column moves by step / √(1 + n·decay), its bias by bias_step /
    (1 + n·bias_decay); decays need the shares.

    The steps of the rows of a block are computed once for each visit if it has at least as many entries: two roots and
    four divisions for each entry take a sixth of a pass.
    """
    biased = b.shape[0] > 0
    limited = limit < np.inf
    ridged = row_share.shape[0] > 0
    own = decay > _ZERO
    step_w = step_h = step
    sparse = is_sparse(ptr, W, H)
    shrink_w = shrink_h = _ONE - step * lam
    shrink_b = shrink_c = _ONE - step * lam_bias
    tables = ridged and biased and loss == SQUARED and not sparse
    row_table = empty2(_TABULATED if tables else 0, 4, np.float32)
    col_table = empty2(_TABULATED if tables else 0, 4, np.float32)
    step_b = step_c = bias_step
    v = next_visit(pass_, worker)
    while v >= 0:
        total = 0.0
        row_at, col_at = row_base[v], col_base[v]
        begin, end = ptr[v], ptr[v + 1]
        last = end - 1
        if tables and begin < end:
            rows, cols = _most(u, begin, end), _most(i, begin, end)
            if rows + cols <= end - begin and max(rows, cols) <= _TABULATED:
                numbers = (step, decay, lam, ridge, lam_bias, ridge_bias, bias_step, bias_decay)
                _tabulate(row_share, row_at, rows, *numbers, row_table)
                _tabulate(col_share, col_at, cols, *numbers, col_table)
                far = 4 * (rows + cols) * W.shape[1] > _CACHED
                parts = (row_table, col_table, limit, far, count)
                total = _by_table(begin, end, u, i, r, row_at, col_at, W, H, b, c, *parts)
                begin = end
        for t in range(begin, end):
            x, y = row_at + u[t], col_at + i[t]
            if sparse:
                soon = min(t + _AHEAD, last)
                ahead_of(W, row_at + u[soon], count)
                ahead_of(H, col_at + i[soon], count)
            p = dot_of(W, x, H, y, count)
            if biased:
                p += b[x] + c[y]
            if loss == SQUARED:
                e = r[t] - p
                total += e * e
                if limited:
                    e = min(max(e, -limit), limit)
            else:
                e = pull_of(loss, r[t], p)
                total += cost_of(loss, r[t], p)
            if own:
                step_w, step_h = _own_step(step, decay, row_share[x]), _own_step(step, decay, col_share[y])
            g, k = step_w * e, step_h * e
            if ridged:
                shrink_w = _shrink(step_w, lam, ridge, row_share[x])
                shrink_h = _shrink(step_h, lam, ridge, col_share[y])
            pull(W, x, H, y, shrink_w, g, shrink_h, k, count)
            if biased:
                if ridged:
                    step_b = _bias_step(bias_step, bias_decay, row_share[x])
                    step_c = _bias_step(bias_step, bias_decay, col_share[y])
                    shrink_b = _shrink(step_b, lam_bias, ridge_bias, row_share[x])
                    shrink_c = _shrink(step_c, lam_bias, ridge_bias, col_share[y])
                b[x] = shrink_b * b[x] + step_b * e
                c[y] = shrink_c * c[y] + step_c * e
        out[v] = total
        if not np.isfinite(total):
            fail(pass_, v)
        v = next_visit(pass_, worker, v)


@kernel
def adagrad_worker(
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
    gw,
    gh,
    step,
    lam,
    lam_bias,
    loss,
    limit,
    rank,
    count,
):
    """AdaGrad with one accumulator per row: gw [rows], gh [cols] hold 1 + the mean squared gradient so far."""
    biased = b.shape[0] > 0
    limited = limit < np.inf
    sparse = is_sparse(ptr, W, H)
    share = _ONE / np.float32(rank)
    v = next_visit(pass_, worker)
    while v >= 0:
        total = 0.0
        row_at, col_at = row_base[v], col_base[v]
        last = ptr[v + 1] - 1
        for t in range(ptr[v], ptr[v + 1]):
            x, y = row_at + u[t], col_at + i[t]
            if sparse:
                soon = min(t + _AHEAD, last)
                ahead_of(W, row_at + u[soon], count)
                ahead_of(H, col_at + i[soon], count)
            step_w = step / np.sqrt(gw[x])
            step_h = step / np.sqrt(gh[y])
            p = dot_of(W, x, H, y, count)
            if biased:
                p += b[x] + c[y]
            if loss == SQUARED:
                e = r[t] - p
                total += e * e
                if limited:
                    e = min(max(e, -limit), limit)
            else:
                e = pull_of(loss, r[t], p)
                total += cost_of(loss, r[t], p)
            moved_w, moved_h = pull_squares(W, x, H, y, e, lam, step_w, step_h, count)
            gw[x] += moved_w * share
            gh[y] += moved_h * share
            if biased:
                b[x] += step_w * (e - lam_bias * b[x])
                c[y] += step_h * (e - lam_bias * c[y])
        out[v] = total
        if not np.isfinite(total):
            fail(pass_, v)
        v = next_visit(pass_, worker, v)
