"""`GroupedRegressor`: what `GroupLasso`, `MultiTaskLasso` and `MultiTaskElasticNet` have in common."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.runtime.chosen import refuse_elsewhere
from stretto.runtime.runtimes import Runtime
from stretto.solvers.linear.groups.problem import GroupProblem, Groups
from stretto.solvers.linear.regression import Fit, PenaltySolver, RegressionProblem

from ..base import FitSession
from ..input import LinearInput, balanced
from ..regressor import PenalisedRegressor

Floats = NDArray[np.float64]

_SOLVER = (
    "working sets: the groups nearest to entering, solved by block coordinate descent with extrapolation, then the "
    "duality gap over all; groups proven zero are not read again"
)


class GroupedRegressor(PenalisedRegressor):
    """Base class of regressors by least squares that penalise groups of coefficients."""

    _squared = True

    def _runtime(self, other: Any = None) -> Runtime:
        found = super()._runtime(other)
        refuse_elsewhere(
            found,
            owner=type(self).__name__,
            why="groups of coefficients are solved in one memory",
            give="use st.Threads(n) or st.Serial()",
        )
        return found

    def _groups(self, given: LinearInput) -> Groups | None:
        """The groups of features; None: each is a group."""
        return None

    def _within(self) -> float:
        """Share of the penalty that is the sum of absolute coefficients."""
        return 0.0

    def _problem(self, given: LinearInput) -> RegressionProblem:
        return GroupProblem(
            given.design,
            np.ascontiguousarray(given.y.T) if given.y.ndim > 1 else given.y[None],
            balanced(given.weight),
            "squared",
            bool(self.fit_intercept),
            groups=self._groups(given),
            within=self._within(),
        )

    def _works(self, sitting: FitSession, problem: RegressionProblem) -> PenaltySolver:
        from stretto.solvers.linear.groups.solver import GroupSolver  # here, not above: it imports Numba

        assert isinstance(problem, GroupProblem)
        return GroupSolver(problem, sitting.crew, profile=self.profile)

    def _start(self, last: tuple[Any, ...], problem: RegressionProblem) -> Fit:
        coef, intercept = np.atleast_2d(last[0]), np.broadcast_to(last[1], problem.y.shape[:1])
        return Fit(coef, intercept, np.inf, np.inf, 0, 0, False)

    def _solver_text(self) -> str:
        return _SOLVER
