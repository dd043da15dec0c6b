"""A sparse regression: what is minimised, and what came of it.

min over β, b:   Σ_i weight_i·loss(y_i, x_i·β + b)  +  l1·Σ_j scale_j|β_j|  +  ½·l2·Σ_j (scale_j β_j)²
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from stretto.data.design.design import Design

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class AnyDesign(Protocol):
    """What solvers ask of a design: a `Design` in this memory, or a `NodeDesign` whose columns nodes hold."""

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
        """These samples alone."""

    def pick(self, which: Ints) -> Design:
        """These columns alone, in this memory."""


@dataclass(frozen=True, eq=False)
class RegressionProblem:
    """What is minimised, the strength of the penalty apart."""

    design: AnyDesign
    y: Floats  # [n]; logistic: −1 or +1
    weight: Floats  # [n] ≥ 0
    loss: str  # "squared" or "logistic"
    intercept: bool
    positive: bool = False
    scale: Floats | None = None  # [p] > 0


@dataclass(frozen=True, eq=False)
class Fit:
    """A solution. gap: no β has an objective smaller by more than this."""

    coef: Floats  # [p]
    intercept: float
    gap: float
    objective: float
    rounds: int
    epochs: int  # sweeps and Newton steps, all rounds together
    converged: bool
    goal: float = 0.0  # the gap that was asked for
