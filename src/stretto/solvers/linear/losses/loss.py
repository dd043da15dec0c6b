"""Squared and logistic loss: value, gradient, curvature, optimal intercept and dual objective.

The Poisson and Huber losses are in `regression_losses.py`.

at = loss.look(z, b)            # z [n] = Xβ; optimises the intercept if the model has one
at.value, at.v, at.d, at.b      # Σ weight·loss, −∂/∂z, ∂²/∂z², intercept
loss.dual(at, scale, z)         # dual objective of θ = scale·v, without the penalty's part
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from stretto.kernels.linear import sample_losses

Floats = NDArray[np.float64]

_NEAR_ZERO = 1e-4  # below this tanh(t/2)/2t is ¼ to nine digits, and the quotient would lose them


@dataclass(frozen=True, eq=False)
class LossPoint:
    """Value and derivatives of the loss at one point."""

    value: float  # Σ weight·loss
    b: float  # intercept
    v: Floats  # [n] −∂/∂z
    d: Floats  # [n] ∂²/∂z²
    pull: float = 0.0  # Σ v where an intercept was fitted but is not optimal for z; else 0


class Loss(Protocol):
    """Interface of a loss, as solvers use it."""

    quadratic: bool  # whether d is constant
    bend: float  # the least curvature of the conjugate in units of the weights; 0 if there is no bound
    uniform_curvature: bool  # whether equal predictions have equal curvatures, but for their weights
    rounding: float  # smaller gaps are rounding errors of the loss, whatever its value

    def look(self, z: Floats, b: float, *, settle: bool = True) -> LossPoint:
        """Evaluate the loss at z + b. settle: optimise the intercept for z, starting from b."""

    def constant(self) -> float:
        """An intercept close to the best one for predictions of 0, or 0."""

    def curvature(self, z: Floats, at: LossPoint, share: float) -> Floats:
        """[n] at.d, each at least `share` of the curvature of a parabola.

        The parabola touches the loss at z and is an upper bound of it.
        """

    def dual(self, at: LossPoint, scale: float, z: Floats) -> float:
        """The loss's part of the dual objective at θ = scale·at.v. z: the predictions of `at`, without intercept."""


class CurvedLoss(Loss, Protocol):
    """Interface of a loss whose curvature changes, for Newton steps."""

    def step(self, z: Floats, way: Floats, t: float, b: float) -> tuple[Floats, LossPoint]:
        """z + t·way, and the loss there with intercept b, which need not be optimal."""

    def settled(self, z: Floats, at: LossPoint) -> LossPoint:
        """The loss at z with the optimal intercept; `at`, at z too, becomes invalid."""


class Squared:
    """½(y − z)²."""

    quadratic, bend, uniform_curvature, rounding = True, 1.0, True, 0.0

    def __init__(self, y: Floats, weight: Floats, intercept: bool, profile: str) -> None:
        self.y, self.weight, self.intercept, self.profile = y, weight, intercept, profile
        self._mass = float(np.sum(weight))

    def look(self, z: Floats, b: float, *, settle: bool = True) -> LossPoint:
        v = np.empty_like(z)
        see = sample_losses.look_squared[self.profile]
        value, pull = see(self.y, z, self.weight, b, v)
        if self.intercept and settle and self._mass > 0.0:
            # Repeat it: the second pass removes rounding errors, which matter when the mean is far from zero.
            for _ in range(2):
                b += pull / self._mass
                value, pull = see(self.y, z, self.weight, b, v)
        return LossPoint(value, b, v, self.weight)

    def constant(self) -> float:
        return 0.0

    def curvature(self, z: Floats, at: LossPoint, share: float) -> Floats:
        return at.d

    def dual(self, at: LossPoint, scale: float, z: Floats) -> float:
        return float(
            sample_losses.dual_squared[self.profile](self.y, self.weight, at.v, at.b if self.intercept else 0.0, scale)
        )


class Logistic:
    """log(1 + e^(−y z)), y = ±1."""

    quadratic, bend, uniform_curvature, rounding = False, 4.0, True, 0.0

    def __init__(self, y: Floats, weight: Floats, intercept: bool, profile: str) -> None:
        self.y, self.weight, self.intercept, self.profile = y, weight, intercept, profile

    def look(self, z: Floats, b: float, *, settle: bool = True) -> LossPoint:
        v, d = np.empty_like(z), np.empty_like(z)
        if self.intercept and settle:
            find = sample_losses.settle_logistic[self.profile]
            b, value, _ = find(self.y, z, self.weight, b, v, d, np.empty_like(z), False, 0.0)
        else:
            value, _, _ = sample_losses.look_logistic[self.profile](self.y, z, self.weight, b, v, d)
        return LossPoint(value, b, v, d)

    def constant(self) -> float:
        if not self.intercept:
            return 0.0
        return float(sample_losses.constant_logistic[self.profile](self.y, self.weight, np.empty_like(self.y)))

    def step(self, z: Floats, way: Floats, t: float, b: float) -> tuple[Floats, LossPoint]:
        """z + t·way, and the loss there with intercept b, which need not be optimal."""
        there, v, d = np.empty_like(z), np.empty_like(z), np.empty_like(z)
        look = sample_losses.step_logistic[self.profile]
        value, pull, _ = look(self.y, z, way, t, self.weight, b, there, v, d)
        return there, LossPoint(value, b, v, d, pull if self.intercept else 0.0)

    def settled(self, z: Floats, at: LossPoint) -> LossPoint:
        """The loss at z with the optimal intercept; `at`, at z too, becomes invalid."""
        if at.pull == 0.0:
            return at
        find = sample_losses.settle_logistic[self.profile]
        b, value, _ = find(self.y, z, self.weight, at.b, at.v, at.d, np.empty_like(z), True, at.value)
        return LossPoint(value, b, at.v, at.d)

    def curvature(self, z: Floats, at: LossPoint, share: float) -> Floats:
        # tanh(t/2)/2t, the parabola's curvature, is (½ − a)/t with a = σ(−t), which v holds already.
        if share == 0.0:
            return at.d
        t = self.y * (z + at.b)
        a = np.divide(at.v * self.y, self.weight, out=np.zeros_like(t), where=self.weight > 0.0)
        bound = np.full_like(t, 0.25)
        np.divide(0.5 - a, t, out=bound, where=np.abs(t) > _NEAR_ZERO)
        return np.maximum(at.d, share * self.weight * bound)

    def dual(self, at: LossPoint, scale: float, z: Floats) -> float:
        if scale == 1.0:
            # Where θ is the gradient, loss and conjugate add up to its product with the predictions: no logarithms.
            return at.value + float(np.sum(at.v * (z + at.b)))
        cost = np.empty_like(z)
        return float(sample_losses.dual_logistic[self.profile](self.y, self.weight, at.v, scale, cost))
