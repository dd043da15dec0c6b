"""Losses of a prediction p against a rating y, and their negative derivatives.

code          loss            −∂loss/∂p (up to a factor)
0 squared     (y − p)²        y − p
1 absolute    |y − p|         sign(y − p)
2 logistic    log(1 + e^−z), z = p if y > 0 else −p       σ(z)-weighted: y⁺ − σ(p), with y⁺ = 1 if y > 0 else 0
"""

from __future__ import annotations

import numpy as np

from stretto.kernels.core.compile import inner
from stretto.kernels.numeric.scalar import exp, log

from .loss_codes import ABSOLUTE, SQUARED


@inner
def pull_of(code, y, p):
    """Return −∂loss/∂p as float32 (half of it for the squared loss)."""
    if code == SQUARED:
        return y - p
    if code == ABSOLUTE:
        return np.float32(1.0) if y > p else (np.float32(-1.0) if y < p else np.float32(0.0))
    return np.float32((1.0 if y > 0.0 else 0.0) - 1.0 / (1.0 + exp(-np.float64(p))))


@inner
def cost_of(code, y, p):
    """Return the loss as float64."""
    e = np.float64(y) - np.float64(p)
    if code == SQUARED:
        return e * e
    if code == ABSOLUTE:
        return abs(e)
    z = np.float64(p) if y > 0.0 else -np.float64(p)
    return log(1.0 + exp(-z)) if z > 0.0 else log(1.0 + exp(z)) - z
