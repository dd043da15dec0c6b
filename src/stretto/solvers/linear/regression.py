"""Sparse linear regression: the problem (`RegressionProblem`) and its solution (`Fit`).

min over β, b:   Σ_i weight_i·loss(y_i, x_i·β + b)  +  l1·Σ_j scale_j|β_j|  +  ½·l2·Σ_j (scale_j β_j)²
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from stretto.data.design.design import Design

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


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
    loss: str  # "squared" or "logistic"
    intercept: bool  # whether b is fitted
    positive: bool = False  # whether β ≥ 0 is required
    scale: Floats | None = None  # [p] > 0, the penalty factors; None: ones


@dataclass(frozen=True, eq=False)
class Fit:
    """The solution of a sparse regression."""

    coef: Floats  # [p] coefficients
    intercept: float
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


def uniform(weight: NDArray[Any]) -> bool:
    """Whether this is the weight 1 of all samples, stored once."""
    return weight.strides == (0,)
