"""The smooth part of a sparse regression at a point: squared or logistic, with the best intercept.

at = loss.look(z, b)            # z [n] = Xβ; the intercept is settled when there is one
at.value, at.v, at.d, at.b      # Σ weight·loss, −∂/∂z, ∂²/∂z², intercept
loss.dual(at, scale)            # the dual objective of θ = scale·v, the penalty's part apart
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from stretto.kernels.linear import sample_losses

Floats = NDArray[np.float64]

_NEAR_ZERO = 1e-4  # below that tanh(t/2)/2t is ¼ to nine digits, and the quotient would lose them


@dataclass(frozen=True, eq=False)
class LossPoint:
    """The loss at one point."""

    value: float
    b: float
    v: Floats
    d: Floats


class Loss(Protocol):
    """What a solver asks of a loss."""

    quadratic: bool  # whether d is the same everywhere

    def look(self, z: Floats, b: float, *, settle: bool = True) -> LossPoint:
        """The loss at z + b; settle: with the intercept that fits z best, from b on."""

    def curvature(self, z: Floats, at: LossPoint, share: float) -> Floats:
        """[n] at.d, each at least `share` of the curvature of a parabola that touches the loss at z and lies above it
        everywhere.
        """

    def dual(self, at: LossPoint, scale: float) -> float:
        """The loss's part of the dual objective at θ = scale·at.v."""


class Squared:
    """½(y − z)²."""

    quadratic = True

    def __init__(self, y: Floats, weight: Floats, intercept: bool, profile: str) -> None:
        self.y, self.weight, self.intercept, self.profile = y, weight, intercept, profile
        self._mass = float(np.sum(weight))

    def look(self, z: Floats, b: float, *, settle: bool = True) -> LossPoint:
        v = np.empty_like(z)
        see = sample_losses.look_squared[self.profile]
        value, pull = see(self.y, z, self.weight, b, v)
        if self.intercept and settle and self._mass > 0.0:
            # Twice: the second time takes off what rounding left, which matters where the mean is far from zero.
            for _ in range(2):
                b += pull / self._mass
                value, pull = see(self.y, z, self.weight, b, v)
        return LossPoint(value, b, v, self.weight)

    def curvature(self, z: Floats, at: LossPoint, share: float) -> Floats:
        return at.d

    def dual(self, at: LossPoint, scale: float) -> float:
        return float(
            sample_losses.dual_squared[self.profile](self.y, self.weight, at.v, at.b if self.intercept else 0.0, scale)
        )


class Logistic:
    """log(1 + e^(−y z)), y = ±1."""

    quadratic = False

    def __init__(self, y: Floats, weight: Floats, intercept: bool, profile: str) -> None:
        self.y, self.weight, self.intercept, self.profile = y, weight, intercept, profile

    def look(self, z: Floats, b: float, *, settle: bool = True) -> LossPoint:
        v, d, cost = np.empty_like(z), np.empty_like(z), np.empty_like(z)
        if self.intercept and settle:
            b, value, _ = sample_losses.settle_logistic[self.profile](self.y, z, self.weight, b, v, d, cost)
        else:
            value, _, _ = sample_losses.look_logistic[self.profile](self.y, z, self.weight, b, v, d, cost)
        return LossPoint(value, b, v, d)

    def curvature(self, z: Floats, at: LossPoint, share: float) -> Floats:
        # tanh(t/2)/2t, the parabola's, is (½ − a)/t with a = σ(−t), which v holds already.
        if share == 0.0:
            return at.d
        t = self.y * (z + at.b)
        a = np.divide(at.v * self.y, self.weight, out=np.zeros_like(t), where=self.weight > 0.0)
        bound = np.full_like(t, 0.25)
        np.divide(0.5 - a, t, out=bound, where=np.abs(t) > _NEAR_ZERO)
        return np.maximum(at.d, share * self.weight * bound)

    def dual(self, at: LossPoint, scale: float) -> float:
        return float(sample_losses.dual_logistic[self.profile](self.y, self.weight, at.v, scale))
