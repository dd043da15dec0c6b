"""Block coordinate descent on the quadratic model of softmax regression, over sparse columns, in one thread.

    min over D:   Σ_j g_j·d_j + ½ Σ_i s_i a_i·(diag(p_i) − p_i p_iᵀ) a_i + Σ_j l1_j‖w_j + d_j‖₁ + ½ ridge_j‖w_j + d_j‖²

with a_i = x_i D, the weights w_j and steps d_j of feature j for all classes, and the gradient g of the loss. A block is
a feature. The intercepts are eliminated: they are at their minimum given all others, so that columns far from zero
converge as if they were centred. `u` [n, K] holds the model's gradient at each sample, without the step of the
intercepts. Visiting a feature reads the rows of u where it occurs, minimises over its classes one after the other with
the block's exact Hessian, and updates these rows.
"""

from __future__ import annotations

import numpy as np

from stretto.kernels.core.compile import inner, kernel
from stretto.kernels.linear.quadratic import soft
from stretto.kernels.linear.softmax_tiles import add_listed, add_rows4
from stretto.kernels.numeric.vector import add, fma, get, load_part, mul, splat, store_part, total

CHUNK = 64  # entries of a column that are copied together
_INNER = 3  # passes over the classes of a block
_LIVE = 6  # sweeps over the features that are not zero, between two sweeps over all


@inner(apart=True)
def _hessian(indptr, indices, values, weight, P, k, strip, j, intercept, block, lean, inverse, buffer):
    """Hessian of a column's block [K, K], and `lean` [K, K], its product with the intercepts.

    Both are Σ_i s_i f_ij (diag(p_i) − p_i p_iᵀ), with f = x² and f = x. The intercepts are eliminated from the first.
    buffer [3·CHUNK·K + K]: scratch.
    """
    K, wide = block.shape[1], 4 * len(strip)
    for c in range(K):
        for d in range(K):
            block[c, d] = 0.0
            lean[c, d] = 0.0
    to_block, to_lean, sums = CHUNK * K, 2 * CHUNK * K, 3 * CHUNK * K
    for c in range(K):
        buffer[sums + c] = 0.0
    for top in range(indptr[j], indptr[j + 1], CHUNK):
        count = min(CHUNK, indptr[j + 1] - top)
        for t in range(count):
            i, x = np.int64(get(indices, top + t)), np.float64(get(values, top + t))
            f, g = splat(get(weight, i) * x), splat(x)
            for s in range(0, K, 16):
                n, at = min(16, K - s), t * K + s
                p = load_part(P, i * K + s, n)
                h = mul(f, p)
                store_part(buffer, at, n, p)
                store_part(buffer, to_lean + at, n, h)
                h = mul(g, h)
                store_part(buffer, to_block + at, n, h)
                store_part(buffer, sums + s, n, add(load_part(buffer, sums + s, n), h))
        for c in range(0, K, 4):
            for s in range(0, K, wide):
                add_rows4(block, c * K + s, K, buffer, to_block + c, 1, K, count, buffer, s, K, strip)
                if intercept:
                    add_rows4(lean, c * K + s, K, buffer, to_lean + c, 1, K, count, buffer, s, K, strip)
    for c in range(k):
        for d in range(K):
            block[c, d] = -block[c, d]
            lean[c, d] = -lean[c, d]
        block[c, c] = max(block[c, c] + buffer[sums + c], 1e-14 * buffer[sums + c])
        lean[c, c] = 0.0
    for c in range(k):
        s = 0.0
        for d in range(k):
            s -= lean[c, d]
        lean[c, c] = s
    if not intercept:
        return
    for c in range(k):
        before = block[c, c]
        for e in range(k):
            s = 0.0
            for d in range(k):
                s += lean[c, d] * inverse[d, e]
            to, row = block[c], lean[e]
            for d in range(K):
                to[d] -= s * row[d]
        # What is left of the curvature may be rounding.
        block[c, c] = max(block[c, c], 1e-12 * before)


@inner(apart=True)
def _invert(P, weight, k, own, inverse):
    """inverse [k, K] of the intercepts' Hessian, with 0 for the last class; own [k, K]: scratch.

    Any generalised inverse will do: what it is applied to adds up to zero.
    """
    K = own.shape[1]
    for c in range(k):
        for d in range(K):
            own[c, d] = 0.0
            inverse[c, d] = 1.0 if c == d and c < k - 1 else 0.0
    for i in range(P.shape[0]):
        s, row = weight[i], P[i]
        for c in range(k):
            h = s * np.float64(row[c])
            own[c, c] += h
            to = own[c]
            for d in range(K):
                to[d] -= h * np.float64(row[d])
    for c in range(k - 1):
        pivot = own[c, c]
        if not pivot > 1e-300:
            for d in range(k - 1):
                inverse[c, d], inverse[d, c] = 0.0, 0.0
            continue
        for d in range(k - 1):
            own[c, d] /= pivot
            inverse[c, d] /= pivot
        for e in range(k - 1):
            if e != c and own[e, c] != 0.0:
                by = own[e, c]
                for d in range(k - 1):
                    own[e, d] -= by * own[c, d]
                    inverse[e, d] -= by * inverse[c, d]


@inner
def _settle(k, inverse, rest, turn):
    """turn = −inverse·rest: the step of the intercepts at which their gradient is zero."""
    for c in range(k):
        s = 0.0
        for d in range(k):
            s += inverse[c, d] * rest[d]
        turn[c] = -s


@inner(apart=True)
def cheapest_shift(x, k, l1, ridge, order):
    """The t that minimises Σ_c l1|x_c − t| + ½ridge (x_c − t)²; the nearest to 0 of several. order [≥ k]: scratch."""
    whole = 0.0
    for c in range(k):
        whole += x[c]
        r = c
        while r > 0 and order[r - 1] > x[c]:
            order[r] = order[r - 1]
            r -= 1
        order[r] = x[c]
    for r in range(k):
        below = l1 * (2 * r - k) + ridge * (k * order[r] - whole)  # the slope just before order[r]
        if below > 0.0:
            # Between two values the slope is linear; it is not positive at the lower one.
            return (ridge * whole - l1 * (2 * r - k)) / (k * ridge)
        if below == 0.0 and r > 0 and ridge == 0.0:
            return max(order[r - 1], min(order[r], 0.0))
        if below + 2.0 * l1 >= 0.0 and (ridge > 0.0 or below + 2.0 * l1 > 0.0):
            return order[r]
    return 0.0


@inner(apart=True)
def _visit(
    indptr, indices, values, weight, P, k, strip, j, w, g, l1, ridge, intercept, block, lean, inverse, u, d, slope,
    move, order, rest, turn,
):  # fmt: skip
    """Minimise over the block of feature j; return the decrease of the model."""
    K = u.shape[1]
    first, last = np.int64(indptr[j]), np.int64(indptr[j + 1])
    for c in range(K):
        slope[c] = 0.0
        move[c] = 0.0
    wide = 4 * len(strip)
    for s in range(0, K, wide):
        add_listed(slope, s, indices, values, first, last, u, s, K, strip)
    if intercept:
        for c in range(k):
            row = lean[c]
            for e in range(K):
                slope[e] += turn[c] * row[e]
    still = True
    for c in range(k):
        x = w[j, c] + d[j, c]
        slope[c] += g[j, c] + ridge * x
        still = still and x == 0.0 and abs(slope[c]) <= l1
    if still:
        return 0.0
    fall, moved = 0.0, False
    for _ in range(_INNER):
        most = 0.0
        for c in range(k):
            h = block[c, c] + ridge
            if h <= 0.0:
                continue
            old = w[j, c] + d[j, c] + move[c]
            new = soft(h * old - slope[c], l1, False) / h
            by = new - old
            if by == 0.0:
                continue
            fall -= by * (slope[c] + 0.5 * h * by) + l1 * (abs(new) - abs(old))
            move[c] += by
            if new == 0.0:
                move[c] = -(w[j, c] + d[j, c])
            row = block[c]
            for e in range(K):
                slope[e] += by * row[e]
            slope[c] += by * ridge
            moved = True
            most = max(most, abs(by))
        if most == 0.0:
            break
    if not moved:
        return 0.0
    # A constant added to all classes changes the penalty alone; `slope` becomes the block's coefficients.
    for c in range(k):
        old = w[j, c] + d[j, c]
        slope[c] = 0.0 if move[c] == -old else old + move[c]
    shift = cheapest_shift(slope, k, l1, ridge, order) if l1 > 0.0 else 0.0
    if shift != 0.0:
        for c in range(k):
            old, new = slope[c], 0.0 if slope[c] == shift else slope[c] - shift
            fall += l1 * (abs(old) - abs(new)) + 0.5 * ridge * (old * old - new * new)
            slope[c] = new
    for c in range(k):
        d[j, c] = slope[c] - w[j, c]
    if intercept:
        for c in range(k):
            row, by = lean[c], move[c]
            for e in range(K):
                rest[e] += by * row[e]
        _settle(k, inverse, rest, turn)
    for t in range(first, last):
        i = np.int64(get(indices, t))
        row, x, mean = i * K, splat(get(weight, i) * np.float64(get(values, t))), 0.0
        for s in range(0, K, 16):
            n = min(16, K - s)
            mean += total(mul(load_part(P, row + s, n), load_part(move, s, n)))
        away = splat(-mean)
        for s in range(0, K, 16):
            n, at = min(16, K - s), row + s
            by = mul(x, load_part(P, at, n))
            store_part(u, at, n, fma(by, add(load_part(move, s, n), away), load_part(u, at, n)))
    return fall


@kernel
def descend(
    indptr, indices, values, which, weight, P, k, strip, w, g, l1, ridge, intercept, enough, share, sweeps, blocks,
    leans, u, d, scratch, buffer,
):  # fmt: skip
    """Sweep over the features `which` until a sweep decreases the model little; return the sweeps made.

    Little: by no more than `enough`, or this share of all sweeps together.

    indptr, indices, values: CSC [n, m]; P [n, K]: probabilities, float64; w, g [m + 1, K]; l1, ridge [m + 1]; u [n, K]
    and d [m + 1, K]: zeros, then the result. blocks and leans [len(which), K, K], scratch [2 k + 5, K] and buffer
    [3·CHUNK·K + K]: scratch.
    """
    m, count, K = l1.shape[0] - 1, which.shape[0], u.shape[1]
    slope, move, order, rest, turn = scratch[0], scratch[1], scratch[2], scratch[3], scratch[4]
    inverse = scratch[5 : 5 + k]
    if intercept:
        _invert(P, weight, k, scratch[5 + k :], inverse)
        for c in range(K):
            rest[c] = g[m, c]
        _settle(k, inverse, rest, turn)
    whole, made, live = 0.0, 0, 0
    while made < sweeps:
        fall = 0.0
        for a in range(count):
            j = which[a]
            if made == 0:
                _hessian(
                    indptr, indices, values, weight, P, k, strip, j, intercept, blocks[a], leans[a], inverse, buffer
                )
            if live > 0:
                used = False
                for c in range(k):
                    used = used or w[j, c] + d[j, c] != 0.0
                if not used:
                    continue
            fall += _visit(
                indptr, indices, values, weight, P, k, strip, j, w, g, l1[j], ridge[j], intercept, blocks[a], leans[a],
                inverse, u, d, slope, move, order, rest, turn,
            )  # fmt: skip
        made += 1
        whole += fall
        small = fall <= max(enough, share * whole)
        if small and live == 0:
            break
        live = 0 if small or live == _LIVE else live + 1
    if intercept:
        for c in range(k):
            d[m, c] = turn[c]
    return made
