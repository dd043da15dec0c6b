"""The state of a sparse regression solver: coefficients, predictions, loss and column gradients at a point.

prepared = PreparedProblem(problem, crew, profile)
point = prepared.zero.copy()            # β = 0
prepared.pull(point, which)             # x_j · v of some columns, in one pass over them
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.data.design.design import Design
from stretto.errors import PlanError
from stretto.kernels.linear.column_statistics import clear_constant
from stretto.runtime.blocks.crew import Crew

from .columns import ColumnPasses
from .losses.loss import Logistic, Loss, LossPoint, Squared
from .losses.regression_losses import Huber, Poisson
from .node_columns import columns_of
from .regression import RegressionProblem

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_LOSSES: dict[str, Any] = {"squared": Squared, "logistic": Logistic, "poisson": Poisson, "huber": Huber}


@dataclass
class LinearPoint:
    """The current point of a solver."""

    coef: Floats  # [p] coefficients
    z: Floats  # [n] Xβ
    at: LossPoint  # the loss at z
    pulls: Floats  # [p] x_j · v; current for the columns that were requested last

    @property
    def support(self) -> Ints:
        return np.flatnonzero(self.coef != 0.0).astype(np.int64)

    def copy(self) -> LinearPoint:
        """Copy the point, so that changes to the copy leave this one as it is."""
        return LinearPoint(self.coef.copy(), self.z.copy(), self.at, self.pulls.copy())

    def state(self) -> dict[str, NDArray[Any]]:
        """The point's arrays, for a checkpoint."""
        numbers = np.array([self.at.value, self.at.b])
        return {"coef": self.coef, "z": self.z, "v": self.at.v, "d": self.at.d, "pulls": self.pulls, "at": numbers}


def inside(state: Mapping[str, NDArray[Any]], name: str) -> dict[str, NDArray[Any]]:
    """The arrays of one part of a saved state: those named name/…"""
    return {key.removeprefix(f"{name}/"): array for key, array in state.items() if key.startswith(f"{name}/")}


class PreparedProblem:
    """A problem with the statistics of its columns."""

    def __init__(self, problem: RegressionProblem, crew: Crew, profile: str) -> None:
        if problem.loss not in _LOSSES:
            raise PlanError(f"no loss {problem.loss!r}; there are {', '.join(_LOSSES)}")
        self.problem, self.crew, self.profile = problem, crew, profile
        self.columns: ColumnPasses = columns_of(problem.design, crew, profile)
        more = {"epsilon": problem.epsilon} if problem.loss == "huber" else {}
        self.loss: Loss = _LOSSES[problem.loss](problem.y, problem.weight, problem.intercept, profile, **more)
        n, p = problem.design.shape
        self.scale = np.ones(p) if problem.scale is None else problem.scale
        z = np.zeros(n)
        at = self.loss.look(z, self.loss.constant())
        self.mean, norm, pulls = self.columns.survey(problem.weight, problem.intercept, at.v)
        if isinstance(problem.design, Design) and not problem.design.sparse:
            problem.design.refuse_unproven_values(self.mean, norm, problem.weight)
        self._centre(pulls, slice(None), at)
        clear_constant(norm, self.mean, float(np.sum(problem.weight)))
        self.norm = norm  # [p] zero for a constant column
        self.usable = norm > 0.0
        self.columns_in_use = np.flatnonzero(self.usable).astype(np.int64)
        self.ones = bool((problem.weight == 1.0).all())  # whether all samples weigh 1
        self.zero = LinearPoint(np.zeros(p), z, at, pulls)

    def stand(self, coef: Floats, intercept: float) -> LinearPoint:
        """The point with these coefficients [p]; coefficients of constant columns are set to zero."""
        point = LinearPoint(
            np.where(self.usable, coef, 0.0), np.zeros(self.columns.n), self.zero.at, np.zeros(len(coef))
        )
        self.predict(point, intercept)
        self.pull(point, self.columns_in_use)
        return point

    def restored(self, state: Mapping[str, NDArray[Any]]) -> LinearPoint:
        """The point that `LinearPoint.state` saved."""
        value, b = state["at"].tolist()
        d = self.zero.at.d if self.loss.quadratic else np.array(state["d"])
        at = LossPoint(value, b, np.array(state["v"]), d)
        return LinearPoint(np.array(state["coef"]), np.array(state["z"]), at, np.array(state["pulls"]))

    def predict(self, point: LinearPoint, b: float) -> None:
        """Recompute z and the loss at the point's coefficients."""
        point.z[:] = 0.0
        support = point.support
        if len(support):
            self.columns.add(support, point.coef[support], point.z)
        point.at = self.loss.look(point.z, b)

    def pull(self, point: LinearPoint, which: Ints) -> None:
        """Compute x_j · v of these columns at the point."""
        self.columns.price(which, point.at.v, point.pulls)
        # Nothing reads the pulls of columns that are not usable.
        self._centre(point.pulls, which if len(which) < len(self.columns_in_use) else slice(None), point.at)

    def _centre(self, pulls: Floats, which: Ints | slice, at: LossPoint) -> None:
        """Remove rounding errors of Σ v, which is zero with an intercept; columns far from zero would magnify them."""
        if self.problem.intercept:
            with np.errstate(over="ignore", invalid="ignore"):  # reported when the objective is evaluated
                pulls[which] -= self.mean[which] * float(np.sum(at.v))

    def penalty(self, coef: Floats, l1: float, l2: float) -> float:
        """l1·Σ scale|β| + ½·l2·Σ (scale β)²."""
        scaled = self.scale * coef
        value = float(l1 * np.sum(np.abs(scaled)))
        return value + float(0.5 * l2 * np.sum(scaled * scaled)) if l2 else value

    def objective(self, point: LinearPoint, l1: float, l2: float) -> float:
        """The objective at the point."""
        return point.at.value + self.penalty(point.coef, l1, l2)
