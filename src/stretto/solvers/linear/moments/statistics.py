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

from ..losses.loss import Squared
from ..regression import RegressionProblem, uniform

Floats = NDArray[np.float64]

_VISITS, _ENTRIES = 64, 1 << 16  # visits, and entries of a visit, at least
_SPARSE_VISITS, _SPARSE_ENTRIES = 16, 1 << 17  # the same of sparse columns; each visit has products of its own
_CANCELLED = 1e-12  # what subtracting the mean leaves of a column's square, as a share, if that is rounding error
_AT_ONCE = 16  # products of dense columns that take as long as one of a sparse column


@dataclass(frozen=True, eq=False)
class Moments:
    """Means and inner products of the columns of X and of y, about the means if there is an intercept."""

    mass: float  # Σ weight
    mean: Floats  # [p] zeros without an intercept
    middle: float  # mean of y, 0 without an intercept
    gram: Floats  # [p, step] zero in constant columns and beyond p; step is a multiple of sixteen
    product: Floats  # [p] Σ weight (x − mean)(y − middle)
    square: float  # Σ weight (y − middle)²
    size: Floats  # [p] norms of the columns in the sums that `gram` was computed from, for its rounding error
    lost: bool = False  # whether subtracting a mean left rounding alone of a column that is not constant

    @staticmethod
    def of(problem: RegressionProblem, crew: Crew, profile: str) -> Moments:
        """Compute them from one pass over X; DataError for NaN, infinity and numbers whose products overflow."""
        given = problem.design
        design = given if isinstance(given, Design) else given.pick(np.arange(given.shape[1], dtype=np.int64))
        return (_of_sparse if design.sparse else _of_dense)(design, problem, crew, profile)


def _of_dense(design: Design, problem: RegressionProblem, crew: Crew, profile: str) -> Moments:
    n, p = design.shape
    k = p + 1
    bounds = parts(n, _VISITS, max(1, _ENTRIES // k))
    visits = len(bounds) - 1
    shift, rest, product = np.empty((visits, k)), np.empty((visits, k)), np.empty((visits, k, k))
    weight = np.empty(0) if uniform(problem.weight) else problem.weight
    args = (bounds, *design.parts, problem.y, weight, problem.intercept, shift, rest, product)
    step = make_step("moments", kernels.moments_worker, independent(visits), bounds[1:], *args)
    crew.run_pass(step, profile, n * k * (k + 1) // (2 * _AT_ONCE))
    middle, whole = np.empty(k), np.zeros((k, -(-k // 16) * 16))
    mass = kernels.merge[profile](step.out, shift, rest, product, middle, whole)
    mean, gram = middle[:p], whole[:p]
    with np.errstate(invalid="ignore"):
        norm = np.sqrt(gram.diagonal())
    if not (np.abs(mean) + norm <= LARGEST).all():
        design.refuse_unbounded_values()
    q = gram[:, p].copy()
    gram[:, p] = 0.0
    _clear_constant(norm, mean, mass, gram, q)
    return Moments(mass, mean, float(middle[p]), gram, q, float(whole[p, p]), norm)


def _of_sparse(design: Design, problem: RegressionProblem, crew: Crew, profile: str) -> Moments:
    """Products of the entries of each row; the means are subtracted at the end."""
    n, p = design.shape
    weight = np.array(problem.weight) if uniform(problem.weight) else problem.weight
    at = Squared(problem.y, weight, problem.intercept, profile).look(np.zeros(n), 0.0)
    bounds = parts(n, _SPARSE_VISITS, max(1, n * _SPARSE_ENTRIES // max(1, design.nnz)))
    visits = len(bounds) - 1
    linear, pulled, product = np.empty((visits, p)), np.empty((visits, p)), np.empty((visits, p, p))
    args = (bounds, *design.parts, weight, at.v, linear, pulled, product)
    step = make_step("moments", kernels.sparse_moments_worker, independent(visits), bounds[1:], *args)
    crew.run_pass(step, profile, 2 * design.nnz + design.nnz * design.nnz // n)
    mass, mean, q, gram = float(np.sum(weight)), np.empty(p), np.empty(p), np.zeros((p, -(-p // 16) * 16))
    kernels.merge_sparse[profile](mass, problem.intercept, linear, pulled, product, mean, q, gram)
    if problem.intercept:
        q -= mean * float(np.sum(at.v))  # of which only rounding is left
    square = gram.diagonal()
    size = np.sqrt(square + mass * mean * mean)
    norm = np.sqrt(np.where(square > _CANCELLED * size * size, square, 0.0))
    lost = not all(_constant(design, j) for j in np.flatnonzero((norm == 0.0) & (size > 0.0)).tolist())
    _clear_constant(norm, mean, mass, gram, q)
    return Moments(mass, mean, at.b if problem.intercept else 0.0, gram, q, 2.0 * at.value, size, lost)


def _constant(design: Design, j: int) -> bool:
    """Whether all values of a sparse column are the same."""
    start, _, values = design.parts
    stored = values[start[j] : start[j + 1]]
    value = stored[0] if len(stored) == design.shape[0] else 0.0
    return bool((stored == value).all())


def _clear_constant(norm: Floats, mean: Floats, mass: float, gram: Floats, q: Floats) -> None:
    """Set all products of constant columns to zero."""
    clear_constant(norm, mean, mass)
    if not norm.all():
        gram[norm == 0.0] = 0.0
        gram[:, : len(q)][:, norm == 0.0] = 0.0
        q[norm == 0.0] = 0.0
