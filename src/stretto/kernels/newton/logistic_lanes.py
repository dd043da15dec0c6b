"""The logistic loss log(1 + e^(−y z)) with y = ±1, its negative gradient and its curvature, sixteen samples at a time.

One division for each sample: with e = e^(−|y z|), 1 / (1 + e) and e / (2 + e) follow from 1 / ((1 + e)(2 + e)).
"""

from __future__ import annotations

from stretto.kernels.core.compile import inner
from stretto.kernels.numeric.vector import (
    absolute,
    add,
    div,
    down,
    fma,
    less,
    less_equal,
    load,
    load_part,
    mul,
    neg,
    pick,
    splat,
    store,
    store_part,
    total,
)
from stretto.kernels.numeric.vector_functions import halved

_FAR = 700.0  # e^−700 is negligible
_LOG2E = 1.4426950408889634
_LN2_HIGH, _LN2_LOW = 0.6931471803691238, 1.9082149292705877e-10  # ln 2; k times the first is exact


@inner
def _decay(t):
    """e^−|t|; NaN counts as `_FAR`, and shows in the loss."""
    size = absolute(t)
    size = pick(less(size, splat(_FAR)), size, splat(_FAR))
    k = down(fma(size, splat(_LOG2E), splat(0.5)))
    r = fma(k, splat(_LN2_LOW), fma(k, splat(_LN2_HIGH), neg(size)))
    p = fma(r, splat(1.0 / 6227020800.0), splat(1.0 / 479001600.0))
    p = fma(p, r, splat(1.0 / 39916800.0))
    p = fma(p, r, splat(1.0 / 3628800.0))
    p = fma(p, r, splat(1.0 / 362880.0))
    p = fma(p, r, splat(1.0 / 40320.0))
    p = fma(p, r, splat(1.0 / 5040.0))
    p = fma(p, r, splat(1.0 / 720.0))
    p = fma(p, r, splat(1.0 / 120.0))
    p = fma(p, r, splat(1.0 / 24.0))
    p = fma(p, r, splat(1.0 / 6.0))
    p = fma(p, r, splat(0.5))
    p = fma(p, r, splat(1.0))
    return mul(fma(p, r, splat(1.0)), halved(k))


@inner
def _atanh_over(ss):
    """atanh(s) / s for s² = ss ≤ 1/9."""
    q = fma(ss, splat(1.0 / 33.0), splat(1.0 / 31.0))
    q = fma(q, ss, splat(1.0 / 29.0))
    q = fma(q, ss, splat(1.0 / 27.0))
    q = fma(q, ss, splat(1.0 / 25.0))
    q = fma(q, ss, splat(1.0 / 23.0))
    q = fma(q, ss, splat(1.0 / 21.0))
    q = fma(q, ss, splat(1.0 / 19.0))
    q = fma(q, ss, splat(1.0 / 17.0))
    q = fma(q, ss, splat(1.0 / 15.0))
    q = fma(q, ss, splat(1.0 / 13.0))
    q = fma(q, ss, splat(1.0 / 11.0))
    q = fma(q, ss, splat(1.0 / 9.0))
    q = fma(q, ss, splat(1.0 / 7.0))
    q = fma(q, ss, splat(1.0 / 5.0))
    q = fma(q, ss, splat(1.0 / 3.0))
    return fma(q, ss, splat(1.0))


@inner(apart=True)
def evaluate_rows(y, z, weight, b, v, d, first, last):
    """Fill v and d of the samples first … last − 1 at z + b; return their Σ weight·loss, Σ v and Σ d."""
    one, two, none = splat(1.0), splat(2.0), splat(0.0)
    value, pull, bend = none, none, none
    for i in range(first, last, 16):
        rest = min(16, last - i)
        if rest == 16:
            sign, at, w = load(y, i), load(z, i), load(weight, i)
        else:
            sign, at, w = load_part(y, i, rest), load_part(z, i, rest), load_part(weight, i, rest)
        t = mul(sign, add(at, splat(b)))
        e = _decay(t)
        near, far = add(one, e), add(two, e)
        inverse = div(one, mul(near, far))
        likely = mul(far, inverse)  # 1 / (1 + e), the probability of the likelier class
        s = mul(mul(e, near), inverse)  # log(1 + e) = 2 atanh(e / (2 + e)), and the argument is at most a third
        right = less_equal(none, t)
        unlikely = mul(e, likely)
        loss = fma(add(s, s), _atanh_over(mul(s, s)), pick(right, none, neg(t)))
        pulled = mul(mul(w, sign), pick(right, unlikely, likely))
        bent = mul(w, mul(unlikely, likely))
        value, pull, bend = fma(w, loss, value), add(pull, pulled), add(bend, bent)
        if rest == 16:
            store(v, i, pulled)
            store(d, i, bent)
        else:
            store_part(v, i, rest, pulled)
            store_part(d, i, rest, bent)
    return total(value), total(pull), total(bend)
