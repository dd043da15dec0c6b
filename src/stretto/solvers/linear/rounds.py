"""Rounds of a fit of a `PenaltySolver`: what is requested, how a round is reported, and how a fit is saved."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .regression import Fit, PenaltySolver, RegressionProblem

ROUNDING = 2.0**-46  # of the objective at zero: smaller gaps are rounding, so the solvers aim at no less


@dataclass(frozen=True)
class Request:
    """The arguments of `PenaltySolver.fit`, apart from the start."""

    l1: float
    l2: float
    gap: float
    share: float
    max_rounds: int
    look: Callable[[dict[str, Any]], bool] | None = None
    ended: Callable[[], None] | None = None

    def goal(self, objective: float, least: float) -> float:
        """The duality gap that is wanted at this objective. least: the smallest that rounding allows"""
        return min(self.gap, max(self.share * objective, least))

    def report(self, found: Fit, number: int, pool: int) -> bool:
        """Report a round with so many columns in the pool; return whether the fit ends here on request."""
        if self.max_rounds == 0:
            return True
        if self.look is None:
            return False
        state = {"round": number, "objective": found.objective, "gap": found.gap, "goal": found.goal}
        return self.look(state | {"coef": found.coef, "intercept": found.intercept, "pool": pool})


def continued(found: Fit, solver: PenaltySolver, request: Request, rounds: int) -> Fit:
    """Continue a fit by another solver of the problem, for so many rounds at most. Nothing is saved meanwhile."""
    look, before = request.look, found.rounds

    def later(state: dict[str, Any]) -> bool:
        return look is not None and look(state | {"round": before + state["round"]})

    done = solver.fit(
        request.l1, request.l2, gap=request.gap, share=request.share, max_rounds=rounds, start=found, look=later
    )
    total = min(request.max_rounds, before + done.rounds)
    return replace(done, rounds=total, epochs=found.epochs + done.epochs)


def spread_of_target(problem: RegressionProblem) -> tuple[float, float, float]:
    """Mean of y (zero without an intercept), Σ weight (y − mean)² and Σ weight |y − mean|."""
    y, weight = problem.y, problem.weight
    mean = float((weight * y).sum() / weight.sum()) if problem.intercept else 0.0
    return mean, float((weight * (y - mean) ** 2).sum()), float((weight * np.abs(y - mean)).sum())


def saved_fit(fit: Fit) -> dict[str, NDArray[Any]]:
    """A fit without its coefficients, for a checkpoint."""
    numbers = np.array([fit.intercept, fit.gap, fit.objective, fit.goal])
    return {"numbers": numbers, "counts": np.array([fit.rounds, fit.epochs, fit.converged], np.int64)}


def restored_fit(coef: NDArray[np.float64], state: Mapping[str, NDArray[Any]]) -> Fit:
    """The fit that `saved_fit` described, with these coefficients [p]."""
    intercept, gap, objective, goal = state["numbers"].tolist()
    rounds, epochs, converged = state["counts"].tolist()
    return Fit(coef, intercept, gap, objective, rounds, epochs, bool(converged), goal)
