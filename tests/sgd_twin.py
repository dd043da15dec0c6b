"""SGD in plain NumPy, operation for operation what the compiled kernels promise: lanes, fused multiply-adds, a tree.

`fma` is exact: a product of two float32 is exact in float64, the sum is rounded to odd there and then once to float32,
which is the same as rounding the true value once (Boldo and Melquiond).
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from stretto.kernels.factorization.adarevision_sgd import FACTOR, FIRST, GUESS, SECOND
from stretto.kernels.factorization.loss_codes import SQUARED
from stretto.kernels.factorization.losses import cost_of, pull_of

f4 = np.float32
Array = NDArray[Any]


@numba.njit  # type: ignore[untyped-decorator]
def _loss(code: int, y: Any, p: Any) -> Any:
    return cost_of(code, y, p), pull_of(code, y, p)


def fma(x: Any, y: Any, z: Any) -> Array:
    """x·y + z of float32 numbers or arrays, rounded once."""
    product = np.multiply(x, y, dtype=np.float64)
    wide = np.asarray(z, np.float64)
    total = product + wide
    # The error of that sum, exactly (Knuth's two-sum).
    part = total - product
    error = (product - (total - part)) + (wide - part)
    even = (np.atleast_1d(total).view(np.int64) & 1 == 0).reshape(np.shape(total))
    odd = np.nextafter(total, np.where(error > 0, np.inf, -np.inf))
    rounded: Array = np.where((error != 0) & even, odd, total).astype(f4)
    return rounded


def tree(lanes: Array) -> Any:
    """Fold sixteen lanes: 8 + 8, 4 + 4, 2 + 2, 1 + 1."""
    while len(lanes) > 1:
        half = len(lanes) // 2
        lanes = lanes[:half] + lanes[half:]
    return lanes[0]


def dot(w: Array, h: Array) -> Any:
    lanes = np.zeros(16, f4)
    for at in range(0, len(w), 16):
        lanes = fma(w[at : at + 16], h[at : at + 16], lanes)
    return tree(lanes)


def squares(g: Array) -> Any:
    return dot(g, g)


def moved(old: Array, pull: Array, z: Array) -> Array:
    """old + FACTOR / √z · pull of float32 numbers, as the kernel works it out."""
    y = (np.uint32(GUESS) - (z.view(np.uint32) >> np.uint32(1))).view(f4)
    y = fma(-(z * y), y, f4(FIRST)) * y
    return fma(fma(-(z * y), y, f4(SECOND)), y * pull, old)


def _error(loss: int, limit: Any, r: Any, p: Any) -> tuple[Any, float]:
    if loss == SQUARED:
        e = f4(r - p)
        return np.clip(e, -limit, limit), float(f4(e * e))
    cost, pull = _loss(loss, r, p)
    return f4(pull), cost


def shrinks(steps: Any, lam: Any, ridge: Any, shares: Any, x: int, y: int) -> tuple[Any, Any]:
    """What a step leaves of a row and of a column whose ridge is shared by their ratings."""
    if shares is None:
        return (f4(f4(1) - f4(steps[0] * lam)),) * 2
    each = (f4(lam + f4(ridge * share)) for share in (shares[0][x], shares[1][y]))
    left = [max(f4(f4(1) - f4(step * penalty)), f4(0)) for step, penalty in zip(steps, each, strict=True)]
    return left[0], left[1]


def own_steps(step: Any, decay: Any, shares: Any, x: int, y: int) -> tuple[Any, Any]:
    """The steps of a row and of a column, which shrink with their ratings if decay > 0."""
    if not decay:
        return step, step
    row, col = (f4(step * np.sqrt(f4(share / f4(share + decay)))) for share in (shares[0][x], shares[1][y]))
    return row, col


def bias_steps(step: Any, decay: Any, shares: Any, x: int, y: int) -> tuple[Any, Any]:
    """The steps of the biases of a row and of a column."""
    if not decay:
        return step, step
    row, col = (f4(step * f4(share / f4(share + decay))) for share in (shares[0][x], shares[1][y]))
    return row, col


def sgd(
    blocks: Any,
    W: Array,
    H: Array,
    b: Array,
    c: Array,
    step: Any,
    lam: Any,
    lam_bias: Any,
    loss: int,
    limit: Any,
    ridges: tuple[Any, Any] = (0, 0),
    shares: Any = None,
    decay: Any = 0,
    bias: tuple[Any, Any] | None = None,
) -> Array:
    """One pass of plain SGD in serial order, in place; the loss of each visit."""
    out = np.zeros(len(blocks.ptr) - 1)
    for v in range(len(out)):
        total = 0.0
        for t in range(blocks.ptr[v], blocks.ptr[v + 1]):
            x, y = int(blocks.row_base[v]) + int(blocks.u[t]), int(blocks.col_base[v]) + int(blocks.i[t])
            p = dot(W[x], H[y])
            if len(b):
                p = f4(p + f4(b[x] + c[y]))
            e, cost = _error(loss, limit, blocks.r[t], p)
            total += cost
            steps = own_steps(step, decay, shares, x, y)
            g, k = f4(steps[0] * e), f4(steps[1] * e)
            w, h = W[x].copy(), H[y].copy()
            shrink_w, shrink_h = shrinks(steps, lam, ridges[0], shares, x, y)
            W[x] = fma(g, h, shrink_w * w)
            H[y] = fma(k, w, shrink_h * h)
            if len(b):
                bias_step, bias_decay = bias or (step, 0)
                steps = bias_steps(bias_step, bias_decay, shares, x, y)
                shrink_b, shrink_c = shrinks(steps, lam_bias, ridges[1], shares, x, y)
                b[x] = f4(f4(shrink_b * b[x]) + f4(steps[0] * e))
                c[y] = f4(f4(shrink_c * c[y]) + f4(steps[1] * e))
        out[v] = total
    return out


def adagrad(
    blocks: Any,
    W: Array,
    H: Array,
    b: Array,
    c: Array,
    gw: Array,
    gh: Array,
    step: Any,
    lam: Any,
    lam_bias: Any,
    loss: int,
    limit: Any,
    rank: int,
) -> Array:
    """One pass of AdaGrad with an accumulator for each row."""
    share = f4(f4(1) / f4(rank))
    out = np.zeros(len(blocks.ptr) - 1)
    for v in range(len(out)):
        total = 0.0
        for t in range(blocks.ptr[v], blocks.ptr[v + 1]):
            x, y = int(blocks.row_base[v]) + int(blocks.u[t]), int(blocks.col_base[v]) + int(blocks.i[t])
            step_w, step_h = f4(step / np.sqrt(gw[x])), f4(step / np.sqrt(gh[y]))
            p = dot(W[x], H[y])
            if len(b):
                p = f4(p + f4(b[x] + c[y]))
            e, cost = _error(loss, limit, blocks.r[t], p)
            total += cost
            w, h = W[x].copy(), H[y].copy()
            g, k = fma(e, h, f4(-lam) * w), fma(e, w, f4(-lam) * h)
            W[x], H[y] = fma(step_w, g, w), fma(step_h, k, h)
            gw[x] = f4(gw[x] + f4(squares(g) * share))
            gh[y] = f4(gh[y] + f4(squares(k) * share))
            if len(b):
                b[x] = f4(b[x] + f4(step_w * f4(e - f4(lam_bias * b[x]))))
                c[y] = f4(c[y] + f4(step_h * f4(e - f4(lam_bias * c[y]))))
        out[v] = total
    return out


def adarevision(
    blocks: Any,
    W: Array,
    H: Array,
    b: Array,
    c: Array,
    zw: Array,
    zh: Array,
    zb: Array,
    zc: Array,
    step: Any,
    lam: Any,
    lam_bias: Any,
    loss: int,
    limit: Any,
) -> Array:
    """One pass of AdaRevision without delays: a sum of squared gradients for each element and bias."""
    share = f4(step * f4(1.0 / FACTOR))
    out = np.zeros(len(blocks.ptr) - 1)
    for v in range(len(out)):
        total = 0.0
        for t in range(blocks.ptr[v], blocks.ptr[v + 1]):
            x, y = int(blocks.row_base[v]) + int(blocks.u[t]), int(blocks.col_base[v]) + int(blocks.i[t])
            p = dot(W[x], H[y])
            if len(b):
                p = f4(p + f4(b[x] + c[y]))
            e, cost = _error(loss, limit, blocks.r[t], p)
            total += cost
            w, h = W[x].copy(), H[y].copy()
            g, k = fma(e, h, f4(-lam) * w), fma(e, w, f4(-lam) * h)
            zw[x], zh[y] = fma(g, g, zw[x]), fma(k, k, zh[y])
            W[x], H[y] = moved(w, share * g, zw[x]), moved(h, share * k, zh[y])
            if len(b):
                for bias, z, at in ((b, zb, x), (c, zc, y)):
                    pull = f4(e - f4(lam_bias * bias[at]))
                    z[at] = f4(z[at] + f4(pull * pull))
                    bias[at] = f4(bias[at] + f4(f4(step / np.sqrt(z[at])) * pull))
        out[v] = total
    return out
