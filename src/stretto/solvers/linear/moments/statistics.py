"""Sufficient statistics of least squares: means and centred inner products of all columns of [X, y]."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stretto.data.design.design import LARGEST, Design
from stretto.kernels.linear import moments as kernels
from stretto.kernels.linear.column_statistics import clear_constant
from stretto.runtime.blocks.crew import Crew
from stretto.runtime.blocks.step import make_step, parts
from stretto.schedule.orders.rotation import independent

from ..regression import RegressionProblem, uniform

Floats = NDArray[np.float64]

_VISITS, _ENTRIES = 64, 1 << 16  # visits, and entries of a visit, at least
_AT_ONCE = 8  # products of dense columns that take as long as one of a sparse column


@dataclass(frozen=True, eq=False)
class Moments:
    """Means and inner products of the columns of X and of y, about the means if there is an intercept."""

    mass: float  # Σ weight
    mean: Floats  # [p] zeros without an intercept
    middle: float  # mean of y, 0 without an intercept
    gram: Floats  # [p, step] zero in constant columns and beyond p; step is a multiple of sixteen
    product: Floats  # [p] Σ weight (x − mean)(y − middle)
    square: float  # Σ weight (y − middle)²

    @staticmethod
    def of(problem: RegressionProblem, crew: Crew, profile: str) -> Moments:
        """Compute them in one pass over X; DataError for NaN, infinity and numbers whose products overflow."""
        local = problem.design
        design = local if isinstance(local, Design) else local.pick(np.arange(local.shape[1], dtype=np.int64))
        n, p = design.shape
        k = p + 1
        bounds = parts(n, _VISITS, max(1, _ENTRIES // k))
        visits = len(bounds) - 1
        mean, rest, product = np.empty((visits, k)), np.empty((visits, k)), np.empty((visits, k, k))
        weight = np.empty(0) if uniform(problem.weight) else problem.weight
        args = (bounds, *design.parts, problem.y, weight, problem.intercept, mean, rest, product)
        step = make_step("moments", kernels.moments_worker, independent(visits), bounds[1:], *args)
        crew.run_pass(step, profile, n * k * (k + 1) // (2 * _AT_ONCE))
        middle, whole = np.empty(k), np.zeros((k, -(-k // 16) * 16))
        mass = kernels.merge[profile](step.out, mean, rest, product, middle, whole)
        gram = whole[:p]
        with np.errstate(invalid="ignore"):
            size = np.abs(middle[:p]) + np.sqrt(gram.diagonal())
        if not (size <= LARGEST).all():
            design.refuse_unbounded_values()
        q = gram[:, p].copy()
        gram[:, p] = 0.0
        norm = np.sqrt(gram.diagonal())
        clear_constant(norm, middle[:p], mass)
        if not norm.all():
            gram[norm == 0.0] = 0.0
            gram[:, :p][:, norm == 0.0] = 0.0
            q[norm == 0.0] = 0.0
        return Moments(mass, middle[:p], float(middle[p]), gram, q, float(whole[p, p]))
