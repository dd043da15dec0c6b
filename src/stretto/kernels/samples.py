"""What every sample of a regression says at given predictions: its loss, its pull on them, its curvature.

y, z, weight [n] float64; z are the predictions without the intercept b. `look_*` fill v [n] = −weight·∂loss/∂z and, for
the logistic loss, d [n] = weight·∂²loss/∂z², and return (Σ weight·loss, Σ v, Σ d). The squared loss is ½(y − z)², the
logistic one log(1 + e^(−y z)) with y = ±1. All sums are one chain in the order of the samples.
"""

from __future__ import annotations

import numpy as np

from .compile import inner, kernel
from .scalar import exp, log


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


@inner
def _at(y, z):
    """Loss of one sample and the probability that it is misread."""
    t = y * z
    if t >= 0.0:
        e = exp(-t)
        return log(1.0 + e), e / (1.0 + e)
    e = exp(t)
    return log(1.0 + e) - t, 1.0 / (1.0 + e)


@inner
def _look(y, z, weight, b, v, d):
    value, pull, bend = 0.0, 0.0, 0.0
    for i in range(y.shape[0]):
        loss, wrong = _at(y[i], z[i] + b)
        v[i] = weight[i] * y[i] * wrong
        d[i] = weight[i] * wrong * (1.0 - wrong)
        value += weight[i] * loss
        pull += v[i]
        bend += d[i]
    return value, pull, bend


@kernel
def look_logistic(y, z, weight, b, v, d):
    """(loss, Σ v, Σ d) at z + b."""
    return _look(y, z, weight, b, v, d)


@kernel
def settle_logistic(y, z, weight, b, v, d):
    """The intercept at which Σ v = 0, from b on, (loss, Σ d) there; v and d are filled. Newton, kept in brackets."""
    low, high = -np.inf, np.inf
    value, pull, bend = _look(y, z, weight, b, v, d)
    size = 0.0
    for i in range(y.shape[0]):
        size += weight[i]
    for _ in range(60):
        if abs(pull) <= 1e-15 * size:
            break
        if pull > 0.0:
            low = b
        else:
            high = b
        step = pull / bend if bend > 0.0 else (1.0 if pull > 0.0 else -1.0)
        there = b + min(8.0, max(-8.0, step))
        if not low < there < high:
            there = 0.5 * (low + high)
        if there in (b, low, high):
            break
        b = there
        value, pull, bend = _look(y, z, weight, b, v, d)
    return b, value, bend


@kernel
def dual_squared(y, weight, v, b, scale):
    """−Σ conj(−θ) for θ = scale·v: Σ θ (y − b) − θ²/2 weight; b moves nothing where Σ θ = 0, and keeps digits."""
    value = 0.0
    for i in range(y.shape[0]):
        if weight[i] > 0.0:
            t = scale * v[i]
            value += t * (y[i] - b) - 0.5 * t * t / weight[i]
    return value


@kernel
def dual_logistic(y, weight, v, scale):
    """−Σ conj(−θ) for θ = scale·v, 0 ≤ scale ≤ 1: the entropy of a = θ y / weight, which lies in [0, 1]."""
    value = 0.0
    for i in range(y.shape[0]):
        if weight[i] > 0.0:
            a = min(1.0, max(0.0, scale * v[i] * y[i] / weight[i]))
            if a > 0.0:
                value -= weight[i] * a * log(a)
            if a < 1.0:
                value -= weight[i] * (1.0 - a) * log(1.0 - a)
    return value
