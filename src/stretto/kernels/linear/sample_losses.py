"""Per-sample loss, negative gradient (pull) and curvature of a regression at given predictions.

y, z, weight [n] float64; z are the predictions without the intercept b. `look_*` fill v [n] = −weight·∂loss/∂z and, for
the logistic loss, d [n] = weight·∂²loss/∂z², and return (Σ weight·loss, Σ v, Σ d). The squared loss is ½(y − z)², the
logistic one log(1 + e^(−y z)) with y = ±1. Sums of the squared loss run in the order of the samples, those of the
logistic one in lanes of sixteen. cost [n] is scratch.
"""

from __future__ import annotations

import numpy as np

from stretto.kernels.core.compile import inner, kernel
from stretto.kernels.newton.logistic_lanes import evaluate_rows
from stretto.kernels.numeric.vector import add, fma, load, load_part, mul, splat, total

_CLOSE = 4e-6  # steps of the intercept in which v is quadratic to the last digit: its third derivative is below 1/8
_TINY = 1e-300  # smaller shares are taken as this in logarithms: the entropy they add is no more than rounding
_LN2_HIGH, _LN2_LOW = 0.6931471803691238, 1.9082149292705877e-10  # ln 2; k times the first is exact
_SQRT2 = 1.4142135623730951
# Bits of a float64: the exponent of 1, the digits, and 2⁵², to which a small integer can be added as bits.
_ONE, _DIGITS, _SHIFTED = np.int64(0x3FF0000000000000), np.int64(0x000FFFFFFFFFFFFF), np.int64(0x4330000000000000)
_BIAS = 2.0**52 + 1023.0


@kernel
def look_squared(y, z, weight, b, v):
    """(loss, Σ v) at z + b."""
    value, pull = 0.0, 0.0
    for i in range(y.shape[0]):
        away = y[i] - z[i] - b
        v[i] = weight[i] * away
        value += 0.5 * v[i] * away
        pull += v[i]
    return value, pull


# Written out: with a loop over the terms the compiler would not vectorise over samples.


@inner
def _log(x):
    """log x for x from `_TINY` to 1, as `scalar.log` without its branches."""
    bits = np.float64(x).view(np.int64)
    e = np.int64((bits >> 52) | _SHIFTED).view(np.float64) - _BIAS
    m = np.int64((bits & _DIGITS) | _ONE).view(np.float64)
    large = m > _SQRT2
    m = 0.5 * m if large else m
    e = e + 1.0 if large else e
    z = (m - 1.0) / (m + 1.0)
    zz = z * z
    p = zz / 23.0 + 1.0 / 21.0
    p = (p * zz + 1.0 / 19.0) * zz + 1.0 / 17.0
    p = (p * zz + 1.0 / 15.0) * zz + 1.0 / 13.0
    p = (p * zz + 1.0 / 11.0) * zz + 1.0 / 9.0
    p = (p * zz + 1.0 / 7.0) * zz + 1.0 / 5.0
    p = (p * zz + 1.0 / 3.0) * zz + 1.0
    return (e * _LN2_LOW + 2.0 * z * p) + e * _LN2_HIGH


@inner
def added(x):
    """Σ x, with four accumulators of sixteen lanes."""
    n = x.shape[0]
    s0, s1, s2, s3 = splat(0.0), splat(0.0), splat(0.0), splat(0.0)
    i = 0
    while i + 64 <= n:
        s0 = add(s0, load(x, i))
        s1 = add(s1, load(x, i + 16))
        s2 = add(s2, load(x, i + 32))
        s3 = add(s3, load(x, i + 48))
        i += 64
    while i < n:
        s0 = add(s0, load_part(x, i, min(16, n - i)))
        i += 16
    return total(add(add(s0, s1), add(s2, s3)))


@inner
def evaluated(y, z, weight, b, v, d):
    """Return Σ weight·loss, Σ v, Σ d."""
    return evaluate_rows(y, z, weight, b, v, d, 0, y.shape[0])


@kernel
def look_logistic(y, z, weight, b, v, d):
    """(loss, Σ v, Σ d) at z + b."""
    return evaluated(y, z, weight, b, v, d)


@kernel
def step_logistic(y, z, way, t, weight, b, there, v, d):
    """`look_logistic` at z + t·way + b; fills there [n] = z + t·way."""
    for i in range(y.shape[0]):
        there[i] = z[i] + t * way[i]
    return evaluated(y, there, weight, b, v, d)


@kernel
def measure_way(d, v, way):
    """(Σ d, Σ d·way, Σ d·way², Σ v·way) of a direction in the predictions."""
    n = d.shape[0]
    s0, s1, s2, s3 = splat(0.0), splat(0.0), splat(0.0), splat(0.0)
    i = 0
    while i < n:
        rest = min(16, n - i)
        curved, step = load_part(d, i, rest), load_part(way, i, rest)
        bent = mul(curved, step)
        s0 = add(s0, curved)
        s1 = add(s1, bent)
        s2 = fma(bent, step, s2)
        s3 = fma(load_part(v, i, rest), step, s3)
        i += 16
    return total(s0), total(s1), total(s2), total(s3)


@inner
def _third(y, weight, v, d, cost):
    """Σ ∂d/∂b; the summands in cost."""
    for i in range(y.shape[0]):
        # ∂d/∂b = −y d (1 − 2a), where a = y v / weight is the probability of the other class.
        cost[i] = d[i] * (2.0 * v[i] / (weight[i] if weight[i] > 0.0 else 1.0) - y[i])
    return added(cost)


@inner(apart=True)
def log_odds(y, weight, cost):
    """The best intercept where all predictions are 0: the log odds. 0 if a class has no weight."""
    for i in range(y.shape[0]):
        cost[i] = weight[i] if y[i] > 0.0 else 0.0
    up = added(cost)
    for i in range(y.shape[0]):
        cost[i] = weight[i] if y[i] < 0.0 else 0.0
    down = added(cost)
    most = max(up, down)
    if not min(up, down) > _TINY * most:
        return 0.0
    return _log(up / most) - _log(down / most)


@kernel
def constant_logistic(y, weight, cost):
    """`log_odds`, called from Python."""
    return log_odds(y, weight, cost)


@inner(apart=True)
def settled(y, z, weight, b, v, d, cost, known, value):
    """Find the intercept at which Σ v = 0, starting from b, by bracketed steps of Newton's and Halley's methods.

    known : v, d and value, the loss, are those at b

    Returns the intercept and (loss, Σ d) there; v and d are filled.
    """
    low, high = -np.inf, np.inf
    if known:
        pull, bend = added(v), added(d)
    else:
        value, pull, bend = evaluated(y, z, weight, b, v, d)
    # Where all samples are saturated the slope gives no distance: double the step each time.
    reach = 8.0
    for _ in range(120):
        for i in range(y.shape[0]):
            cost[i] = abs(v[i])
        if abs(pull) <= 1e-15 * added(cost):
            break
        if pull > 0.0:
            low = b
        else:
            high = b
        third = 0.0
        step = pull / bend if bend > 0.0 else (1.0 if pull > 0.0 else -1.0)
        if abs(step) < 1.0 and bend > 0.0:
            # Σ v is pull − bend·s − ½·third·s² at a distance of s, up to terms of third order.
            third = _third(y, weight, v, d, cost)
            turn = 0.5 * third * step / bend
            if abs(turn) < 0.5:
                step /= 1.0 + turn
        there = b + min(reach, max(-reach, step))
        reach *= 2.0
        if there == b:
            break  # the step is less than the intercept's last digit
        if not low < there < high:
            there = 0.5 * (low + high)
        if there in (b, low, high):
            break
        if abs(there - b) <= _CLOSE and third != 0.0:
            step = there - b
            for i in range(y.shape[0]):
                v[i] -= step * (d[i] + 0.5 * step * cost[i])
                d[i] += step * cost[i]
            value += step * (step * (0.5 * bend + third * step / 6.0) - pull)
            return there, value, bend + step * third
        b = there
        value, pull, bend = evaluated(y, z, weight, b, v, d)
    return b, value, bend


@kernel
def settle_logistic(y, z, weight, b, v, d, cost, known, value):
    """`settled`, called from Python."""
    return settled(y, z, weight, b, v, d, cost, known, value)


@kernel
def dual_squared(y, weight, v, b, scale):
    """−Σ conj(−θ) for θ = scale·v: Σ θ (y − b) − θ²/2 weight; where Σ θ = 0, b has no effect and saves digits."""
    value = 0.0
    for i in range(y.shape[0]):
        if weight[i] > 0.0:
            t = scale * v[i]
            value += t * (y[i] - b) - 0.5 * t * t / weight[i]
    return value


@inner(apart=True)
def entropy_of(y, weight, v, scale, cost):
    """−Σ conj(−θ) for θ = scale·v, 0 ≤ scale ≤ 1: the entropy of a = θ y / weight, which is between 0 and 1."""
    for i in range(y.shape[0]):
        a = scale * v[i] * y[i] / (weight[i] if weight[i] > 0.0 else 1.0)
        a = a if a > 0.0 else 0.0
        a = a if a < 1.0 else 1.0
        rest = 1.0 - a
        entropy = a * _log(a if a > _TINY else _TINY) + rest * _log(rest if rest > _TINY else _TINY)
        cost[i] = -weight[i] * entropy
    return added(cost)


@kernel
def dual_logistic(y, weight, v, scale, cost):
    """`entropy_of`, called from Python."""
    return entropy_of(y, weight, v, scale, cost)
