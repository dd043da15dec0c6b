"""Small working sets of dense columns with the logistic loss: all Newton steps in one compiled call, in one thread.

The set is copied and solved as a problem of its own (`kernels/newton/logistic_fit.py`), to a duality gap. With few
samples, a step of `SetSolver` takes longer in Python than in its kernels.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from stretto.kernels.newton import logistic_fit
from stretto.kernels.newton import logistic_step as kernels
from stretto.kernels.newton.block_products import ROWS

from ..losses.loss import Logistic, LossPoint
from ..point import LinearPoint, PreparedProblem
from .choice import suits_newton

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_MOST = 512  # columns where all samples are one block of rows: more are factorised faster by several threads
_STEPS = 20  # at most
_ROUNDING = 2.0**-46  # of the loss at zero: smaller gaps are rounding


def suits_compiled(setting: PreparedProblem, chosen: Ints) -> bool:
    """Whether a set is so small that one thread solves it in less time than the calls of several would take."""
    columns = setting.columns
    plain = isinstance(setting.loss, Logistic) and not columns.sparse
    few = suits_newton(columns.n, len(chosen)) or (columns.n <= ROWS and 0 < len(chosen) <= _MOST)
    return plain and not setting.problem.positive and few


def solve_compiled(setting: PreparedProblem, point: LinearPoint, chosen: Ints, l1: float, l2: float, gap: float) -> int:
    """Minimise over the chosen columns, to a duality gap; return the sweeps and factors made.

    Where steps make no more progress, the point is better than before, and `gap` may not be reached.
    """
    assert isinstance(setting.loss, Logistic)
    problem, scale, mean = setting.problem, setting.scale[chosen], setting.mean[chosen]
    n, k = setting.columns.n, len(chosen)
    XT = setting.columns.parts[0][chosen]
    coef, norm = point.coef[chosen], setting.norm[chosen]
    shift = float(np.sum(mean * coef))
    vectors = np.empty((kernels.VECTORS, n))
    np.subtract(point.z, shift, out=vectors[kernels.Z])
    vectors[kernels.V], vectors[kernels.D] = point.at.v, point.at.d
    numbers = np.zeros(kernels.NUMBERS)
    numbers[kernels.INTERCEPT], numbers[kernels.VALUE] = point.at.b + shift, point.at.value
    numbers[kernels.KNOWN] = 1.0
    small = np.empty((kernels.SMALL, k))
    small[kernels.PULL] = point.pulls[chosen]
    width = (k + 4) // 4 * 4
    least = _ROUNDING * setting.zero.at.value
    logistic_fit.fit[setting.profile](
        XT, problem.y, problem.weight, mean, norm, problem.intercept, l1 * scale, l2 * scale * scale,
        max(gap, least), np.inf, least, _STEPS, coef, vectors, small, np.empty(2 * k, np.int64),
        np.empty((width + 1) * ROWS), np.empty(width * width), np.empty((k, k)), np.empty((k, k)), numbers,
    )  # fmt: skip
    if numbers[kernels.STEPS] == 0.0:
        return 0
    shift = float(np.sum(mean * coef))
    point.coef[chosen] = coef
    point.z = vectors[kernels.Z] + shift
    at = float(numbers[kernels.VALUE]), float(numbers[kernels.INTERCEPT]) - shift
    v, d = vectors[kernels.V].copy(), vectors[kernels.D].copy()
    point.at = setting.loss.settled(point.z, LossPoint(*at, v, d, float(numbers[kernels.PULLED])))
    return int(numbers[kernels.WORK])
