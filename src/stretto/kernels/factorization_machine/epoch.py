"""An epoch of AdaGrad over mini-batches, in one call of each worker.

For every batch the workers share its samples (scores, slopes of the loss, sums of factors), wait for each other, share
its features (gradients and steps), and wait again. One worker processes a sample, or a feature, in the order of its
entries, so the result does not depend on the number of workers.

A row of `weights` [p, width] has the parameters of a feature: for each field f its factors v_f [k], then its
coefficient w, then zeros up to a multiple of 16. `squares` [p, width] are AdaGrad's sums. With F = 1 field this is the
plain model

    z = b + Σ_j w_j x_j + ½ Σ_c (s_c² − Σ_j v_jc² x_j²),    s = Σ_j x_j v_j

and with more, s has a row for each field: sums [samples of a batch, F, width], sums[i, f] = Σ_j x_j (v_j of field f, at
the place of the field of j). The gradient of a feature j of field f is then Σ_i slope_i x_ij (sums[i, f] − x_ij v_jf),
the second term at the place of f only. The element of `sums` at the place of w is 1, which makes it the gradient of w.
"""

from __future__ import annotations

import numpy as np

from stretto.kernels.core.claims import is_stopped, next_visit
from stretto.kernels.core.compile import kernel, merged
from stretto.kernels.core.waves import claim, meet, over
from stretto.kernels.numeric.scalar import exp, log
from stretto.kernels.numeric.vector import (
    add,
    div,
    fma,
    get,
    load,
    load_part,
    mul,
    put,
    root,
    splat,
    store,
    store_part,
    sub,
    total,
)

SQUARED, LOGISTIC = range(2)
CODES = {"squared": SQUARED, "logistic": LOGISTIC}
SAMPLE_PARTS, FEATURE_PARTS = 8, 8  # of a batch; they change no result
_ZERO, _ONE, _HALF = np.float32(0.0), np.float32(1.0), np.float32(0.5)


@merged
def sum_factors(columns, values, first, last, weights, width, last_lane, sums, at):
    """Fill sums[at …] [width] with Σ x_j v_j, 1 at the place of w; return z without its intercept."""
    if width == 16:
        s, q = splat(_ZERO), splat(_ZERO)
        for e in range(first, last):
            xv = mul(splat(get(values, e)), load(weights, np.int64(get(columns, e)) * 16))
            s = add(s, xv)
            q = fma(xv, xv, q)
        store(sums, at, sub(mul(s, s), q))
        linear_square = get(sums, at + last_lane)
        pairs = _HALF * (total(load(sums, at)) - linear_square)
        store(sums, at, s)
        z = np.float64(pairs) + np.float64(get(sums, at + last_lane))
        put(sums, at + last_lane, _ONE)
        return z
    q = splat(_ZERO)
    for c in range(0, width, 16):
        store(sums, at + c, splat(_ZERO))
    own = _ZERO
    for e in range(first, last):
        x, base = get(values, e), np.int64(get(columns, e)) * width
        for c in range(0, width, 16):
            xv = mul(splat(x), load(weights, base + c))
            store(sums, at + c, add(load(sums, at + c), xv))
            q = fma(xv, xv, q)
        xw = x * get(weights, base + last_lane)
        own += xw * xw
    linear = get(sums, at + last_lane)
    put(sums, at + last_lane, _ZERO)
    s = splat(_ZERO)
    for c in range(0, width, 16):
        s = fma(load(sums, at + c), load(sums, at + c), s)
    put(sums, at + last_lane, _ONE)
    return np.float64(_HALF * (total(s) - (total(q) - own))) + np.float64(linear)


@merged
def sum_fields(columns, values, first, last, field, k, weights, width, last_lane, sums, at):
    """`sum_factors` for several fields: fill sums[at …] [F, width]."""
    F = last_lane // k
    for c in range(0, F * width, 16):
        store(sums, at + c, splat(_ZERO))
    linear, own = 0.0, _ZERO
    for e in range(first, last):
        j = np.int64(get(columns, e))
        x, base, f = get(values, e), j * width, np.int64(get(field, j))
        linear += np.float64(x) * np.float64(get(weights, base + last_lane))
        for other in range(F):
            to = at + other * width + f * k
            for c in range(0, k, 16):
                n = min(16, k - c)
                xv = mul(splat(x), load_part(weights, base + other * k + c, n))
                store_part(sums, to + c, n, add(load_part(sums, to + c, n), xv))
        v = splat(_ZERO)
        for c in range(0, k, 16):
            part = mul(splat(x), load_part(weights, base + f * k + c, min(16, k - c)))
            v = fma(part, part, v)
        own += total(v)
    both = 0.0
    for e in range(first, last):
        j = np.int64(get(columns, e))
        base, to = j * width, at + np.int64(get(field, j)) * width
        v = splat(_ZERO)
        for c in range(0, width, 16):
            v = fma(load(weights, base + c), load(sums, to + c), v)
        both += np.float64(get(values, e)) * np.float64(total(v))
    for f in range(F):
        put(sums, at + f * width + last_lane, _ONE)
    return 0.5 * (both - np.float64(own)) + linear


@merged
def cost_of(loss, y, z):
    """The loss of a sample: ½(z − y)², or log(1 + exp(z)) − y z for y = 0 or 1."""
    if loss == SQUARED:
        return 0.5 * (z - y) * (z - y)
    large = z if z > 0.0 else 0.0
    return large - y * z + log(1.0 + exp(-abs(z)))


@merged
def slope_of(loss, y, z):
    """Its derivative by z."""
    if loss == SQUARED:
        return z - y
    if z >= 0.0:
        return 1.0 / (1.0 + exp(-z)) - y
    e = exp(z)
    return e / (1.0 + e) - y


@kernel
def epoch_worker(
    pass_, worker, out, workers, state, order, batches, starts, columns, values, y, mass, first_feature, features,
    entries, entry_row, entry_value, field, fields, k, width, penalty, share, mask, rate, loss, bias, rate_bias,
    weights, squares, sums, slopes, costs,
):  # fmt: skip
    """Visit the batches `order`. Arrays of several axes are flat.

    y, mass [n]: target and weight of each sample, in the order of the batches. field [p]: of each feature; penalty,
    rate [width]: of each parameter; share [p]: multiplies the penalties of a feature, which count once for each sample
    that has it; mask [F, width]: 1 at the factors of field f. bias [2]: the intercept and its
    squares. slopes [samples of a batch]; costs [B · SAMPLE_PARTS]: the weighted losses before each step.
    """
    if is_stopped(pass_):
        return
    last_lane, met = fields * k, True
    for step in range(order.shape[0]):
        b = order[step]
        low, high = batches[b], batches[b + 1]
        part = claim(state, 2 * step)
        while part < SAMPLE_PARTS:
            begin, end = low + (high - low) * part // SAMPLE_PARTS, low + (high - low) * (part + 1) // SAMPLE_PARTS
            cost = 0.0
            for r in range(begin, end):
                at = (r - low) * fields * width
                if fields == 1:
                    z = sum_factors(columns, values, starts[r], starts[r + 1], weights, width, last_lane, sums, at)
                else:
                    z = sum_fields(
                        columns, values, starts[r], starts[r + 1], field, k, weights, width, last_lane, sums, at
                    )
                z += bias[0]
                put(slopes, r - low, np.float32(mass[r] * slope_of(loss, y[r], z)))
                cost += mass[r] * cost_of(loss, y[r], z)
            costs[b * SAMPLE_PARTS + part] = cost
            part = claim(state, 2 * step)
        met = meet(state, pass_, workers, 2 * step + 1)
        if not met:
            break
        first, last = first_feature[b], first_feature[b + 1]
        part = claim(state, 2 * step + 1)
        while part < FEATURE_PARTS:
            if part == 0 and rate_bias > 0.0:
                slope = 0.0
                for r in range(high - low):
                    slope += np.float64(get(slopes, r))
                bias[1] += slope * slope
                bias[0] -= rate_bias * slope / np.sqrt(bias[1])
            for t in range(
                first + (last - first) * part // FEATURE_PARTS, first + (last - first) * (part + 1) // FEATURE_PARTS
            ):
                j = np.int64(features[t])
                f = np.int64(0) if fields == 1 else np.int64(get(field, j))
                begin, end = entries[t], entries[t + 1]
                own, count = _ZERO, _ZERO  # Σ slope x², Σ mass
                for e in range(begin, end):
                    i, x = np.int64(get(entry_row, e)), get(entry_value, e)
                    own += get(slopes, i) * x * x
                    count += np.float32(mass[low + i])
                count *= get(share, j)
                for c in range(0, width, 16):
                    g = splat(_ZERO)
                    for e in range(begin, end):
                        i = np.int64(get(entry_row, e))
                        pull = get(slopes, i) * get(entry_value, e)
                        g = fma(splat(pull), load(sums, (i * fields + f) * width + c), g)
                    v = load(weights, j * width + c)
                    back = sub(mul(splat(count), load(penalty, c)), mul(splat(own), load(mask, f * width + c)))
                    g = fma(back, v, g)
                    a = fma(g, g, load(squares, j * width + c))
                    store(squares, j * width + c, a)
                    store(weights, j * width + c, sub(v, div(mul(load(rate, c), g), root(a))))
            part = claim(state, 2 * step + 1)
        met = meet(state, pass_, workers, 2 * step + 2)
        if not met:
            break
    if met and worker == 0:
        over(pass_)


@kernel
def scores_worker(
    pass_, worker, out, bounds, starts, columns, values, field, fields, k, width, bias, weights, sums, z
):  # fmt: skip
    """z of the rows bounds[v] … bounds[v + 1] with these parameters; sums [V, F, width]: memory."""
    visit = next_visit(pass_, worker)
    while visit >= 0:
        at, lane = visit * fields * width, fields * k
        for r in range(bounds[visit], bounds[visit + 1]):
            if fields == 1:
                z[r] = bias[0] + sum_factors(columns, values, starts[r], starts[r + 1], weights, width, lane, sums, at)
            else:
                z[r] = bias[0] + sum_fields(
                    columns, values, starts[r], starts[r + 1], field, k, weights, width, lane, sums, at
                )
        out[visit] = 0.0
        visit = next_visit(pass_, worker, visit)


@kernel
def costs_worker(pass_, worker, out, bounds, loss, y, mass, z, costs):
    """The weighted loss of each sample, costs [n], at scores z [n]."""
    visit = next_visit(pass_, worker)
    while visit >= 0:
        for r in range(bounds[visit], bounds[visit + 1]):
            costs[r] = mass[r] * cost_of(loss, y[r], z[r])
        out[visit] = 0.0
        visit = next_visit(pass_, worker, visit)
