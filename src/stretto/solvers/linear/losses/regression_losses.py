"""Poisson and Huber loss for the working-set solver; the interface is `loss.py`.

No model of a Newton step can fail permanently. The damped curvature of the Huber loss is that of the parabola that
touches it at the prediction and bounds it. The Poisson loss grows too fast for a parabola: its damped curvature keeps
the step of every sample within about one unit of its prediction, so that the line search finds a step.
"""

from __future__ import annotations

from abc import abstractmethod

import numpy as np
from numpy.typing import NDArray

from stretto.kernels.linear import sample_losses
from stretto.kernels.newton import regression_losses as kernels

from ..regression import ROUNDING
from .loss import LossPoint

Floats = NDArray[np.float64]

_SAFE = 8.0  # damped curvature of the Poisson loss, in units of the count or the mean


class _Regression:
    """What both losses have in common: an intercept that is fitted for the predictions, or follows a model."""

    quadratic = False

    def __init__(self, y: Floats, weight: Floats, intercept: bool, profile: str) -> None:
        self.y, self.weight, self.intercept, self.profile = y, weight, intercept, profile

    @abstractmethod
    def _look(self, z: Floats, b: float, v: Floats, d: Floats) -> tuple[float, float]:
        """Σ weight·loss and Σ v at z + b; fill v and d."""

    @abstractmethod
    def _settle(self, z: Floats, b: float, v: Floats, d: Floats) -> tuple[float, float]:
        """The best intercept, searched from b on, and Σ weight·loss there; fill v and d."""

    def look(self, z: Floats, b: float, *, settle: bool = True) -> LossPoint:
        v, d = np.empty_like(z), np.empty_like(z)
        if self.intercept and settle:
            b, value = self._settle(z, b, v, d)
        else:
            value, _ = self._look(z, b, v, d)
        return LossPoint(value, b, v, d)

    def constant(self) -> float:
        return 0.0

    def step(self, z: Floats, way: Floats, t: float, b: float) -> tuple[Floats, LossPoint]:
        """z + t·way, and the loss there with intercept b, which need not be optimal."""
        there, v, d = z + t * way, np.empty_like(z), np.empty_like(z)
        value, pull = self._look(there, b, v, d)
        return there, LossPoint(value, b, v, d, pull if self.intercept else 0.0)

    def settled(self, z: Floats, at: LossPoint) -> LossPoint:
        """The loss at z with the optimal intercept; `at` is at z too."""
        return at if at.pull == 0.0 else self.look(z, at.b)


class Poisson(_Regression):
    """e^z − y z + y log y − y: half of the deviance of a Poisson distribution with the logarithm as link."""

    bend = 0.0  # the conjugate's curvature, 1/μ, has no bound
    uniform_curvature = True

    def __init__(self, y: Floats, weight: Floats, intercept: bool, profile: str) -> None:
        super().__init__(y, weight, intercept, profile)
        self._base = y * np.log(np.where(y > 0.0, y, 1.0)) - y
        mean = float(np.sum(weight * y)) / float(np.sum(weight))
        self._floor = weight * np.maximum(y, mean)
        # Means and counts cancel.
        self.rounding = ROUNDING * float(np.sum(weight * (y + np.abs(self._base))))

    def _look(self, z: Floats, b: float, v: Floats, d: Floats) -> tuple[float, float]:
        value, pull = kernels.look_poisson[self.profile](self.y, z, self.weight, self._base, b, v, d)
        return float(value), float(pull)

    def _settle(self, z: Floats, b: float, v: Floats, d: Floats) -> tuple[float, float]:
        b, value, _ = kernels.settle_poisson[self.profile](self.y, z, self.weight, self._base, v, d)
        return float(b), float(value)

    def curvature(self, z: Floats, at: LossPoint, share: float) -> Floats:
        return at.d if share == 0.0 else np.maximum(at.d, share * _SAFE * np.maximum(at.d, self._floor))

    def dual(self, at: LossPoint, scale: float, z: Floats) -> float:
        if scale == 1.0:
            return at.value + float(np.sum(at.v * (z + at.b)))
        return float(kernels.dual_poisson[self.profile](self.y, self.weight, self._base, at.v, scale))


class Huber(_Regression):
    """½r² for |r| ≤ ε, ε|r| − ½ε² beyond, with r = y − z."""

    bend = 1.0
    uniform_curvature = False

    def __init__(self, y: Floats, weight: Floats, intercept: bool, profile: str, *, epsilon: float) -> None:
        super().__init__(y, weight, intercept, profile)
        self.epsilon = epsilon
        # Rounding of the intercept limits the accuracy of y − b.
        at = self.look(np.zeros_like(y), 0.0)
        self.rounding = 4.0 * np.finfo(np.float64).eps * abs(at.b) * float(np.sum(np.abs(at.v)))

    def _look(self, z: Floats, b: float, v: Floats, d: Floats) -> tuple[float, float]:
        value, pull = kernels.look_huber[self.profile](self.y, z, self.weight, self.epsilon, b, v, d)
        return float(value), float(pull)

    def _settle(self, z: Floats, b: float, v: Floats, d: Floats) -> tuple[float, float]:
        b, value, _ = kernels.settle_huber[self.profile](self.y, z, self.weight, self.epsilon, b, v, d)
        return float(b), float(value)

    def curvature(self, z: Floats, at: LossPoint, share: float) -> Floats:
        if share == 0.0:
            return at.d
        away = np.abs(self.y - z - at.b)
        return np.maximum(at.d, share * self.weight * (self.epsilon / np.maximum(away, self.epsilon)))

    def dual(self, at: LossPoint, scale: float, z: Floats) -> float:
        # |θ| ≤ ε·weight holds for every multiple of a gradient, and within these bounds the conjugate is that of ½r².
        b = at.b if self.intercept else 0.0
        return float(sample_losses.dual_squared[self.profile](self.y, self.weight, at.v, b, scale))
