"""A regression at one point: its problem, the predictions there, how hard each column pulls.

setting = Setting.of(problem, crew, profile)
point = setting.start()                # β = 0
setting.pull(point, which)             # the pulls of some columns, one pass over them
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.errors import PlanError
from stretto.runtime.blocks.crew import Crew

from .columns import ColumnPasses
from .loss import Logistic, Loss, LossPoint, Squared
from .node_columns import columns_of
from .regression import RegressionProblem

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_LOSSES: dict[str, type[Squared] | type[Logistic]] = {"squared": Squared, "logistic": Logistic}
# What is left of a column after its mean is taken off, relative to what it was, when it is constant but for rounding.
_CONSTANT = 1e-11


@dataclass
class LinearPoint:
    """Where a solver stands."""

    coef: Floats  # [p]
    z: Floats  # [n] Xβ
    at: LossPoint
    pulls: Floats  # [p] x_j · v; current for the columns that were asked for last

    @property
    def support(self) -> Ints:
        return np.flatnonzero(self.coef).astype(np.int64)

    def copy(self) -> LinearPoint:
        """A point that can be moved without moving this one."""
        return LinearPoint(self.coef.copy(), self.z.copy(), self.at, self.pulls.copy())

    def state(self) -> dict[str, NDArray[Any]]:
        """The point, to be saved."""
        numbers = np.array([self.at.value, self.at.b])
        return {"coef": self.coef, "z": self.z, "v": self.at.v, "d": self.at.d, "pulls": self.pulls, "at": numbers}


def inside(state: Mapping[str, NDArray[Any]], name: str) -> dict[str, NDArray[Any]]:
    """The arrays of one part of a saved state: those named name/…"""
    return {key.removeprefix(f"{name}/"): array for key, array in state.items() if key.startswith(f"{name}/")}


class PreparedProblem:
    """A problem with what is known of its columns before anything is learned."""

    def __init__(self, problem: RegressionProblem, crew: Crew, profile: str) -> None:
        if problem.loss not in _LOSSES:
            raise PlanError(f"no loss {problem.loss!r}; there are {', '.join(_LOSSES)}")
        self.problem, self.crew, self.profile = problem, crew, profile
        self.columns: ColumnPasses = columns_of(problem.design, crew, profile)
        self.loss: Loss = _LOSSES[problem.loss](problem.y, problem.weight, problem.intercept, profile)
        n, p = problem.design.shape
        self.scale = np.ones(p) if problem.scale is None else problem.scale
        z = np.zeros(n)
        at = self.loss.look(z, 0.0)
        self.mean, norm, pulls = self.columns.survey(problem.weight, problem.intercept, at.v)
        self._centre(pulls, slice(None), at)
        mass = float(np.sum(problem.weight))
        norm[norm <= _CONSTANT * np.abs(self.mean) * np.sqrt(mass)] = 0.0
        self.norm = norm  # [p] zero for a column that is constant
        self.usable = norm > 0.0
        self.zero = LinearPoint(np.zeros(p), z, at, pulls)

    def stand(self, coef: Floats, intercept: float) -> LinearPoint:
        """The point with these coefficients [p]; those of constant columns are zero."""
        point = LinearPoint(
            np.where(self.usable, coef, 0.0), np.zeros(self.columns.n), self.zero.at, np.zeros(len(coef))
        )
        self.predict(point, intercept)
        self.pull(point, np.flatnonzero(self.usable).astype(np.int64))
        return point

    def restored(self, state: Mapping[str, NDArray[Any]]) -> LinearPoint:
        """The point that `LinearPoint.state` saved."""
        value, b = state["at"].tolist()
        d = self.zero.at.d if self.loss.quadratic else np.array(state["d"])
        at = LossPoint(value, b, np.array(state["v"]), d)
        return LinearPoint(np.array(state["coef"]), np.array(state["z"]), at, np.array(state["pulls"]))

    def predict(self, point: LinearPoint, b: float) -> None:
        """z and the loss at the point's coefficients, worked out anew."""
        point.z[:] = 0.0
        support = point.support
        if len(support):
            self.columns.add(support, point.coef[support], point.z)
        point.at = self.loss.look(point.z, b)

    def pull(self, point: LinearPoint, which: Ints) -> None:
        """The pulls of these columns at the point."""
        self.columns.price(which, point.at.v, point.pulls)
        self._centre(point.pulls, which, point.at)

    def _centre(self, pulls: Floats, which: Ints | slice, at: LossPoint) -> None:
        """Take off what rounding left in Σ v: zero with an intercept, but columns far from zero would magnify it."""
        if self.problem.intercept:
            with np.errstate(over="ignore", invalid="ignore"):  # said when the objective is evaluated
                pulls[which] -= self.mean[which] * float(np.sum(at.v))

    def penalty(self, coef: Floats, l1: float, l2: float) -> float:
        """l1·Σ scale|β| + ½·l2·Σ (scale β)²."""
        scaled = self.scale * coef
        value = float(l1 * np.sum(np.abs(scaled)))
        return value + float(0.5 * l2 * np.sum(scaled * scaled)) if l2 else value

    def objective(self, point: LinearPoint, l1: float, l2: float) -> float:
        """What is minimised, at the point."""
        return point.at.value + self.penalty(point.coef, l1, l2)
