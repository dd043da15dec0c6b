"""Sparse linear regression: the problem (`RegressionProblem`), what a fit is asked for (`Request`), and its solution.

min over β, b:   Σ_i weight_i·loss(y_i, x_i·β + b)  +  l1·Σ_j scale_j|β_j|  +  ½·l2·Σ_j (scale_j β_j)²
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol, Self, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from stretto.data.design.design import Design

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

ROUNDING = 2.0**-46  # of the objective at zero: smaller gaps are rounding, so the solvers aim at no less


class AnyDesign(Protocol):
    """Interface of a design, as solvers use it: a local `Design`, or a `NodeDesign` whose columns are on nodes."""

    @property
    def shape(self) -> tuple[int, int]: ...
    @property
    def sparse(self) -> bool: ...
    @property
    def nnz(self) -> int: ...
    @property
    def entries(self) -> Ints: ...
    @property
    def parts(self) -> tuple[Any, ...]: ...
    def spread(self, weight: Floats) -> Floats:
        """[p] standard deviations of the columns under these weights [n]."""

    def take(self, rows: NDArray[np.integer[Any]]) -> Self:
        """Keep only these samples."""

    def pick(self, which: Ints) -> Design:
        """Keep only these columns, in local memory."""


@dataclass(frozen=True, eq=False)
class RegressionProblem:
    """The objective without the penalty strengths l1 and l2."""

    design: AnyDesign  # X [n, p]
    y: Floats  # [n]; logistic: −1 or +1
    weight: Floats  # [n] ≥ 0
    loss: str  # "squared", "logistic", "poisson" or "huber"
    intercept: bool  # whether b is fitted
    positive: bool = False  # whether β ≥ 0 is required
    scale: Floats | None = None  # [p] > 0, the penalty factors; None: ones
    epsilon: float = 0.0  # of the Huber loss: |y − z| from which on it is linear


@dataclass(frozen=True, eq=False)
class Fit:
    """The solution of a sparse regression."""

    coef: Floats  # [p] coefficients; [k, p] with several outputs
    intercept: Any  # float; array [k] with several outputs
    gap: float  # duality gap: no β has an objective smaller by more than this
    objective: float
    rounds: int
    epochs: int  # sweeps and Newton steps, all rounds together
    converged: bool
    goal: float = 0.0  # the gap that was requested


class PenaltySolver(Protocol):
    """Interface of a solver for one problem at any number of penalties."""

    def largest_l1(self) -> float:
        """The smallest l1 at which β = 0."""

    def target_spread(self) -> tuple[float, float, float]:
        """Mean of y (zero without an intercept), Σ weight (y − mean)², and Σ weight |y − mean| or a bound of it."""

    def fit(
        self,
        l1: float,
        l2: float = 0.0,
        *,
        gap: float,
        share: float = np.inf,
        max_rounds: int = 100,
        start: Fit | None = None,
        look: Callable[[dict[str, Any]], bool] | None = None,
        ended: Callable[[], None] | None = None,
    ) -> Fit:
        """Solve to a duality gap of `gap`, and of `share` times the objective, from `start` (else from zero)."""

    def state(self) -> dict[str, NDArray[Any]]:
        """Everything that decides later rounds, for a checkpoint."""

    def restore(self, state: Mapping[str, NDArray[Any]]) -> Fit | None:
        """Continue from a saved `state`; return the last fit, if no fit was running."""


@runtime_checkable
class PathSolver(PenaltySolver, Protocol):
    """A solver that can solve for several penalties in one call."""

    def fit_path(
        self, l1s: Floats, l2s: Floats, *, gap: float, max_rounds: int = 100, start: Fit | None = None
    ) -> list[Fit]:
        """Solve for the first ones of falling penalties [k], each from the solution before it; maybe for none."""


def uniform(weight: NDArray[Any]) -> bool:
    """Whether this is the weight 1 of all samples, stored once."""
    return weight.strides == (0,)


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
        """Report a round with n columns in the pool; return whether the fit ends here on request."""
        if self.max_rounds == 0:
            return True
        if self.look is None:
            return False
        state = {"round": number, "objective": found.objective, "gap": found.gap, "goal": found.goal}
        return self.look(state | {"coef": found.coef, "intercept": found.intercept, "pool": pool})


def continued(found: Fit, solver: PenaltySolver, request: Request, rounds: int) -> Fit:
    """Continue a fit by another solver of the problem. Nothing is saved meanwhile. rounds : the most it may make"""
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
