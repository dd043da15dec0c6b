"""Softmax regression with an L1 penalty: Newton steps over working sets of features, by coordinate descent.

A round evaluates the gradients of all features and the duality gap, chooses the features that are not zero and those
whose gradients exceed l1 by most, and solves the problem of these alone. Each Newton step of that problem minimises the
quadratic model by sweeps over the features' columns (`kernels/newton/softmax_descent.py`). So features that stay zero
cost a pass for each round, not for each step.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from stretto.kernels.newton import softmax_descent as kernels
from stretto.runtime.blocks.crew import Crew

from .metric import fits_table
from .passes import Passes
from .point import SoftmaxPoint, SoftmaxProblem

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

SMALL = 0.2  # share of the entries below which the features of a round are solved as a problem of their own
SHARE = 0.2  # of the wanted gap that a sub-problem is solved to
BEFORE = 0.05  # or of the gap before
CLOSEST = 1e-5  # least closeness of a step
_ENOUGH = 1e-3  # of the gap that is wanted: no sweep follows one that gains less
_LOW = 1e-3  # of the gap: a step that decreases the objective by less was not close enough
_STEPS, _SWEEPS = 20, 100  # Newton steps of a sub-problem, and sweeps of a step, at most
_LITTLE = 0.1  # a sweep that gains less than this share of all sweeps of a step is the last one
_ROUNDING = 1e-15
_COPIED = 1 << 25  # values of a dense matrix that is copied as a sparse one, at most
_FILLED = 0.3  # share of its values that are not zero, at most


def by_columns(problem: SoftmaxProblem) -> bool:
    """Whether coordinate descent over sparse columns solves a problem, rather than quasi-Newton steps.

    It needs an L1 penalty. Dense columns are converted if most values are zero, or if there are too many for a Gram
    matrix, without which quasi-Newton steps converge slowly.
    """
    rows = problem.rows
    if rows.sparse or not np.any(problem.l1 > 0.0):
        return bool(np.any(problem.l1 > 0.0))
    return rows.entries <= _COPIED and (not fits_table(problem) or rows.filled <= _FILLED)


def choose(point: SoftmaxPoint) -> Ints:
    """The features that are not zero, and those whose gradient exceeds l1, in rising order."""
    used = np.any(point.W[:-1] != 0.0, axis=1)
    beyond = np.abs(point.g[:-1]).max(axis=1) > point.problem.l1[:-1]
    return np.flatnonzero(used | beyond).astype(np.int64)


def part_of(problem: SoftmaxProblem, which: Ints) -> SoftmaxProblem:
    """The problem of these features alone."""
    each = np.append(which, len(problem.l1) - 1)
    return SoftmaxProblem(
        problem.rows.columns(which), problem.y, problem.classes, problem.weight, problem.intercept,
        problem.l1[each], problem.ridge[each],
    )  # fmt: skip


def solve_part(point: SoftmaxPoint, which: Ints, gap: float, crew: Crew, profile: str) -> tuple[Floats, int]:
    """([m + 1, K] weights, steps) of the problem of these features, to a duality gap of its own of `gap`."""
    problem = part_of(point.problem, which)
    each = np.append(which, len(point.W) - 1)
    passes = Passes(problem.rows, problem.y, problem.weight, problem.classes, crew, profile)
    part = SoftmaxPoint(problem, passes, whole=point, each=each)
    made, every, closeness = 0, np.arange(len(which), dtype=np.int64), 1.0
    while part.gap > gap and made < _STEPS:
        made += 1
        before, value = part.gap, part.value
        if not walk(part, newton_step(part, every, min(gap, before), closeness, profile)) and closeness <= CLOSEST:
            break
        closeness = closer(closeness, before, value - part.value)
    return part.W, made


def closer(closeness: float, gap: float, decrease: float) -> float:
    """The closeness of the next Newton step, after one that decreased the objective by so much, from this gap.

    Where the decrease is far below the gap, the gap comes from errors in the gradient, not in the objective.
    """
    return max(CLOSEST, 0.1 * closeness) if decrease <= _LOW * gap else closeness


def newton_step(point: SoftmaxPoint, which: Ints, gap: float, closeness: float, profile: str) -> Floats:
    """[p + 1, K] the step to the minimum of the quadratic model over these features and the intercept.

    gap : the gap that is wanted
    closeness : 1, or less for a step that is closer to the minimum
    """
    problem, passes = point.problem, point.passes
    shape = passes.shape
    blocks = np.empty((2, len(which), shape[1], shape[1]))
    P = passes.probabilities().astype(np.float64)
    buffer = np.empty((3 * kernels.CHUNK + 1) * shape[1])
    d, u = np.zeros(shape), np.zeros((passes.n, shape[1]))
    scratch = np.empty((2 * problem.classes + 5, shape[1]))
    kernels.descend[profile](
        *problem.rows.csc, which, problem.weight, P, problem.classes, passes.strip, point.W, point.G, problem.l1,
        problem.ridge, problem.intercept, _ENOUGH * gap * closeness**2, _LITTLE * closeness, _SWEEPS, *blocks, u, d,
        scratch, buffer,
    )  # fmt: skip
    return d


def walk(point: SoftmaxPoint, way: Floats) -> bool:
    """Move along a step by the largest 2⁻ᵏ that decreases the objective; return whether one does."""
    before, t = point.value, 1.0
    noise = _ROUNDING * (abs(before) + float(point.problem.weight.sum()))
    for _ in range(25):
        value = point.attempt(way, t, free=True)
        # With a penalty, the slope at the start is no bound: a full step to the model's minimum must just not rise.
        if value <= before + noise:
            point.settle()
            return True
        t *= 0.5
    point.attempt(way, 0.0, free=True)
    point.settle()
    return False
