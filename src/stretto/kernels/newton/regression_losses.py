"""Poisson and Huber loss of samples, their negative gradient (pull) and curvature, at given predictions.

The Poisson loss is half of a sample's deviance, μ − y + y·log(y/μ) with μ = e^z. `base` [n] holds its part without z,
y·log y − y. The Huber loss of r = y − z is ½r² up to |r| = ε, and ε|r| − ½ε² beyond. y, z, weight [n] float64; z are
the predictions without the intercept b. `look_*` fill v [n] = −weight·∂loss/∂z and d [n] = weight·∂²loss/∂z², and
return (Σ weight·loss, Σ v). Sums of the Poisson loss run in lanes of sixteen, those of the Huber loss in the order of
the samples.
"""

from __future__ import annotations

import numpy as np

from stretto.kernels.core.compile import inner, kernel
from stretto.kernels.numeric import scalar, vector_exp
from stretto.kernels.numeric.vector import (
    add,
    div,
    less,
    load_part,
    mul,
    pick,
    splat,
    store_part,
    sub,
    total,
)  # fmt: skip

_FLAT = 1e-3  # curvature beyond ε, as a share of that of the parabola which touches the Huber loss and bounds it
_STEPS = 100  # of the search for an intercept, at most


@inner(apart=True)
def _look_poisson(y, z, weight, base, b, v, d):
    none = splat(0.0)
    value, pull = none, none
    n = y.shape[0]
    for i in range(0, n, 16):
        rest = min(16, n - i)
        at, w, count = add(load_part(z, i, rest), splat(b)), load_part(weight, i, rest), load_part(y, i, rest)
        mean = vector_exp.exp(at)
        pulled = mul(w, sub(count, mean))
        used = less(none, w)  # a weight of zero counts as no sample, also where μ is not finite
        loss = add(sub(mean, mul(count, at)), load_part(base, i, rest))
        pulled = pick(used, pulled, none)
        value = add(value, pick(used, mul(w, loss), none))
        pull = add(pull, pulled)
        store_part(v, i, rest, pulled)
        store_part(d, i, rest, pick(used, mul(w, mean), none))
    return total(value), total(pull)


@kernel
def look_poisson(y, z, weight, base, b, v, d):
    """(loss, Σ v) at z + b."""
    return _look_poisson(y, z, weight, base, b, v, d)


@kernel
def settle_poisson(y, z, weight, base, v, d):
    """`look_poisson` at the best intercept, log(Σ weight·y / Σ weight·e^z): (intercept, loss, Σ v)."""
    n = y.shape[0]
    top, count = -np.inf, 0.0
    for i in range(n):
        if weight[i] > 0.0:
            top = max(top, z[i])
            count += weight[i] * y[i]
    if not abs(top) < np.inf:
        value, pull = _look_poisson(y, z, weight, base, 0.0, v, d)
        return 0.0, value, pull
    mass = splat(0.0)
    for i in range(0, n, 16):
        rest = min(16, n - i)
        grown = vector_exp.exp(sub(load_part(z, i, rest), splat(top)))
        w = load_part(weight, i, rest)
        mass = add(mass, pick(less(splat(0.0), w), mul(w, grown), splat(0.0)))
    b = scalar.log(count) - scalar.log(total(mass)) - top
    value, pull = _look_poisson(y, z, weight, base, b, v, d)
    return b, value, pull


@kernel
def dual_poisson(y, weight, base, v, scale):
    """−Σ conj(−θ) for θ = scale·v, 0 ≤ scale ≤ 1: with s = y − θ/weight ≥ 0 it is −Σ weight (s log s − s − base)."""
    none, one = splat(0.0), splat(1.0)
    value = none
    n = y.shape[0]
    for i in range(0, n, 16):
        rest = min(16, n - i)
        w = load_part(weight, i, rest)
        used = less(none, w)
        s = sub(load_part(y, i, rest), mul(splat(scale), div(load_part(v, i, rest), pick(used, w, one))))
        some = less(none, s)
        entropy = pick(some, sub(mul(s, vector_exp.log(pick(some, s, one))), s), none)
        value = add(value, pick(used, mul(w, sub(load_part(base, i, rest), entropy)), none))
    return total(value)


@inner(apart=True)
def _look_huber(y, z, weight, epsilon, b, v, d):
    value, pull, bend = 0.0, 0.0, 0.0
    for i in range(y.shape[0]):
        away = y[i] - z[i] - b
        size = abs(away)
        near = size <= epsilon
        held = away if near else (epsilon if away > 0.0 else -epsilon)
        v[i] = weight[i] * held
        d[i] = weight[i] * (1.0 if near else _FLAT * epsilon / size)
        value += weight[i] * abs(held) * (size - 0.5 * abs(held))
        pull += v[i]
        bend += d[i]
    return value, pull, bend


@kernel
def look_huber(y, z, weight, epsilon, b, v, d):
    """(loss, Σ v) at z + b. Beyond ε a sample has a small curvature, so that no model of the loss is flat."""
    value, pull, _ = _look_huber(y, z, weight, epsilon, b, v, d)
    return value, pull


@kernel
def settle_huber(y, z, weight, epsilon, b, v, d):
    """`look_huber` at the best intercept, from b on by Newton steps within a bracket: (intercept, loss, Σ v)."""
    low, high = np.inf, -np.inf
    for i in range(y.shape[0]):
        if weight[i] > 0.0:
            low, high = min(low, y[i] - z[i]), max(high, y[i] - z[i])
    b = min(max(b, low), high)
    value, pull, bend = _look_huber(y, z, weight, epsilon, b, v, d)
    if not high - low < np.inf:
        return b, value, pull
    for _ in range(_STEPS):
        size = 0.0
        for i in range(y.shape[0]):
            size += abs(v[i])
        if abs(pull) <= 1e-15 * size:
            break
        if pull > 0.0:
            low = b
        else:
            high = b
        there = b + pull / bend
        if not low < there < high:
            there = 0.5 * (low + high)
        if there in (b, low, high):
            break
        b = there
        value, pull, bend = _look_huber(y, z, weight, epsilon, b, v, d)
    return b, value, pull
