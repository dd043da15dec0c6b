"""Per-sample loss, negative gradient (pull) and curvature of a regression at given predictions.

y, z, weight [n] float64; z are the predictions without the intercept b. `look_*` fill v [n] = −weight·∂loss/∂z and, for
the logistic loss, d [n] = weight·∂²loss/∂z², and return (Σ weight·loss, Σ v, Σ d). The squared loss is ½(y − z)², the
logistic one log(1 + e^(−y z)) with y = ±1. All sums run in the order of the samples. cost [n] is scratch.
"""

from __future__ import annotations

import numpy as np

from stretto.kernels.core.compile import inner, kernel
from stretto.kernels.numeric.scalar import log

_FAR = 700.0  # e^−700 is negligible
_LINEAR = 3e-8  # steps of the intercept in which v is linear to the last digit: its second derivative is below 0.1
_LOG2E = 1.4426950408889634
_LN2_HIGH, _LN2_LOW = 0.6931471803691238, 1.9082149292705877e-10  # ln 2; k times the first is exact
_HALVES = 0.5 ** np.arange(1012.0)


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
def _series(r):
    """e^r for |r| ≤ ln 2 / 2."""
    p = r / 6227020800.0 + 1.0 / 479001600.0
    p = (p * r + 1.0 / 39916800.0) * r + 1.0 / 3628800.0
    p = (p * r + 1.0 / 362880.0) * r + 1.0 / 40320.0
    p = (p * r + 1.0 / 5040.0) * r + 1.0 / 720.0
    p = (p * r + 1.0 / 120.0) * r + 1.0 / 24.0
    p = (p * r + 1.0 / 6.0) * r + 0.5
    return (p * r + 1.0) * r + 1.0


@inner
def _atanh_over(ss):
    """atanh(s) / s for s² = ss ≤ 1/9."""
    q = ss / 33.0 + 1.0 / 31.0
    q = (q * ss + 1.0 / 29.0) * ss + 1.0 / 27.0
    q = (q * ss + 1.0 / 25.0) * ss + 1.0 / 23.0
    q = (q * ss + 1.0 / 21.0) * ss + 1.0 / 19.0
    q = (q * ss + 1.0 / 17.0) * ss + 1.0 / 15.0
    q = (q * ss + 1.0 / 13.0) * ss + 1.0 / 11.0
    q = (q * ss + 1.0 / 9.0) * ss + 1.0 / 7.0
    q = (q * ss + 1.0 / 5.0) * ss + 1.0 / 3.0
    return q * ss + 1.0


@inner
def _look(y, z, weight, b, v, d, cost):
    """Return Σ weight·loss, Σ v, Σ d. The first loop has neither branches nor sums, so that it vectorises."""
    for i in range(y.shape[0]):
        t = y[i] * (z[i] + b)
        size = abs(t)
        size = size if size < _FAR else _FAR  # NaN becomes _FAR here, and shows in the loss
        # e = exp(−size): a power of two times a series, as in `scalar`.
        k = np.floor(size * _LOG2E + 0.5)
        r = k * _LN2_HIGH - size + k * _LN2_LOW
        e = _series(r) * _HALVES[np.uint64(k)]
        # log(1 + e) = 2 atanh(e / (2 + e)), and the argument is at most a third.
        s = e / (2.0 + e)
        q = _atanh_over(s * s)
        wrong = (e if t >= 0.0 else 1.0) / (1.0 + e)
        cost[i] = weight[i] * (2.0 * s * q + (0.0 if t >= 0.0 else -t))
        v[i] = weight[i] * y[i] * wrong
        d[i] = weight[i] * (e / ((1.0 + e) * (1.0 + e)))
    value, pull, bend = 0.0, 0.0, 0.0
    for i in range(y.shape[0]):
        value += cost[i]
        pull += v[i]
        bend += d[i]
    return value, pull, bend


@kernel
def look_logistic(y, z, weight, b, v, d, cost):
    """(loss, Σ v, Σ d) at z + b."""
    return _look(y, z, weight, b, v, d, cost)


@kernel
def settle_logistic(y, z, weight, b, v, d, cost):
    """Find the intercept at which Σ v = 0, starting from b, by bracketed Newton steps.

    Returns the intercept and (loss, Σ d) there; v and d are filled.
    """
    low, high = -np.inf, np.inf
    value, pull, bend = _look(y, z, weight, b, v, d, cost)
    # Where all samples are saturated the slope gives no distance: double the step each time.
    reach = 8.0
    for _ in range(120):
        size = 0.0
        for i in range(y.shape[0]):
            size += abs(v[i])
        if abs(pull) <= 1e-15 * size:
            break
        if pull > 0.0:
            low = b
        else:
            high = b
        step = pull / bend if bend > 0.0 else (1.0 if pull > 0.0 else -1.0)
        there = b + min(reach, max(-reach, step))
        reach *= 2.0
        if not low < there < high:
            there = 0.5 * (low + high)
        if there in (b, low, high):
            break
        if abs(there - b) <= _LINEAR:
            step = there - b
            for i in range(y.shape[0]):
                v[i] -= step * d[i]
            return there, value + step * (0.5 * step * bend - pull), bend
        b = there
        value, pull, bend = _look(y, z, weight, b, v, d, cost)
    return b, value, bend


@kernel
def dual_squared(y, weight, v, b, scale):
    """−Σ conj(−θ) for θ = scale·v: Σ θ (y − b) − θ²/2 weight; where Σ θ = 0, b has no effect and saves digits."""
    value = 0.0
    for i in range(y.shape[0]):
        if weight[i] > 0.0:
            t = scale * v[i]
            value += t * (y[i] - b) - 0.5 * t * t / weight[i]
    return value


@kernel
def dual_logistic(y, weight, v, scale):
    """−Σ conj(−θ) for θ = scale·v, 0 ≤ scale ≤ 1: the entropy of a = θ y / weight, which is between 0 and 1."""
    value = 0.0
    for i in range(y.shape[0]):
        if weight[i] > 0.0:
            a = min(1.0, max(0.0, scale * v[i] * y[i] / weight[i]))
            if a > 0.0:
                value -= weight[i] * a * log(a)
            if a < 1.0:
                value -= weight[i] * (1.0 - a) * log(1.0 - a)
    return value
