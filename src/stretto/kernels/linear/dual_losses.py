"""Losses of one sample with their conjugates, and the steps of dual coordinate descent.

z is the prediction. The dual variable a of a sample with weight s is stored as b = a (squared loss) or b = y·a (the
others), where −a is a subgradient of s·loss at z. Its domain is all numbers, [0, s], or [0, ∞) (squared hinge).

code             loss                   s·loss*(−a)
0 squared        ½(y − z)²              b²/2s − y·b
1 logistic       log(1 + e^−yz)         b·log(b/s) + (s − b)·log(1 − b/s)
2 hinge          max(0, 1 − yz)         −b
3 squared hinge  max(0, 1 − yz)²        b²/4s − b
"""

from __future__ import annotations

from stretto.kernels.core.compile import inner
from stretto.kernels.numeric.scalar import exp, log

SQUARED, LOGISTIC, HINGE, SQUARED_HINGE = range(4)
CODES = {"squared": SQUARED, "logistic": LOGISTIC, "hinge": HINGE, "squared_hinge": SQUARED_HINGE}

_STEPS = 60  # of Newton's method for one sample: bisection alone would need about 50


@inner
def sigmoid(x):
    """Return 1/(1 + e^−x)."""
    if x >= 0.0:
        return 1.0 / (1.0 + exp(-x))
    e = exp(x)
    return e / (1.0 + e)


@inner
def loss_of(code, y, z):
    """Return the loss of a sample."""
    if code == SQUARED:
        return 0.5 * (y - z) * (y - z)
    m = y * z
    if code == HINGE:
        return max(0.0, 1.0 - m)
    if code == SQUARED_HINGE:
        return max(0.0, 1.0 - m) * max(0.0, 1.0 - m)
    return log(1.0 + exp(-m)) if m > 0.0 else log(1.0 + exp(m)) - m


@inner
def _entropy(t):
    return t * log(t) if t > 0.0 else 0.0


@inner
def conjugate_of(code, y, b, s):
    """Return s·loss*(−a) of a sample from its b."""
    if code == SQUARED:
        return b * b / (2.0 * s) - y * b
    if code == HINGE:
        return -b
    if code == SQUARED_HINGE:
        return b * b / (4.0 * s) - b
    share = min(b / s, 1.0)
    return s * (_entropy(share) + _entropy(1.0 - share))


@inner
def _logistic_share(m, start, c):
    """Return σ(t) where t + m + c·(σ(t) − start) = 0: Newton's method, kept inside an interval that has the root."""
    low, high = -m - c * (1.0 - start), -m + c * start
    t = min(max(-m, low), high)
    for _ in range(_STEPS):
        value = sigmoid(t)
        f = t + m + c * (value - start)
        if f > 0.0:
            high = t
        else:
            low = t
        following = t - f / (1.0 + c * value * (1.0 - value))
        if not (low < following < high):
            following = 0.5 * (low + high)
        if following == t or abs(following - t) <= 1e-15 * max(1.0, abs(t)):
            t = following
            break
        t = following
    return sigmoid(t)


@inner
def dual_step(code, y, z, b, s, q):
    """Return the b that is best for one sample: with −s·loss*(−a) − z·δ − ½q·δ², where δ is the change of a."""
    if code == SQUARED:
        return b + (y - z - b / s) / (1.0 / s + q)
    if code == HINGE:
        # A sample without features has no curvature: its variable goes to the bound.
        return min(max(b + (1.0 - y * z) / q, 0.0), s) if q > 0.0 else (s if y * z < 1.0 else 0.0)
    if code == SQUARED_HINGE:
        return max(0.0, b + (1.0 - y * z - b / (2.0 * s)) / (1.0 / (2.0 * s) + q))
    return s * _logistic_share(y * z, b / s, q * s)
