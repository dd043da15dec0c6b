"""Softmax regression at one point: objective, gradient and duality gap.

    min over W, b:   Σ_i weight_i·(log Σ_c e^z_ic − z_iy)  +  Σ_j l1_j‖w_j‖₁ + ½ridge_j‖w_j‖²          z_i = x_i W + b

The duality gap bounds the distance from the minimum. Any class probabilities q_i of the samples give a dual point
θ_i = weight_i·(own class − q_i). Its value is Σ weight_i·entropy(q_i) minus the conjugate of the penalty at Xᵀθ. We
take the model's probabilities and mix them with two others as far as needed: with one distribution for all samples, so
that Σ θ_i = 0, which a free intercept requires; and with the samples' own classes, until no element of Xᵀθ exceeds l1.
Entropy is concave, so the entropy of a mixture is at least the mixture of the entropies.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.cached import cached_property
from stretto.errors import RunError
from stretto.kernels.linear import softmax_vectors as vectors

from .passes import Passes
from .rows import DesignRows

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_ROUNDING = 1e-13  # relative error of a sum
_ARRAYS = "W", "there", "g", "slope", "G", "turned", "scale"
_SINGLE = 1e-6  # relative error of a bound in float32, of the objective and of every loss in it


@dataclass(frozen=True, eq=False)
class SoftmaxProblem:
    """The objective of softmax regression."""

    rows: DesignRows  # X [n, p]
    y: Ints  # [n] class indices
    classes: int  # number of classes
    weight: Floats  # [n] ≥ 0
    intercept: bool  # whether intercepts are fitted
    l1: Floats  # [p + 1] ≥ 0, zero for the intercept
    ridge: Floats  # [p + 1] likewise

    @cached_property
    def masses(self) -> Floats:
        """[k] total weight of every class."""
        return np.bincount(self.y, weights=self.weight, minlength=self.classes).astype(np.float64)

    @property
    def empty(self) -> float:
        """The loss of the model without features."""
        masses = self.masses
        if not self.intercept:
            return float(masses.sum()) * math.log(self.classes)
        return float(-sum(mass * math.log(mass / masses.sum()) for mass in masses if mass > 0))


class SoftmaxPoint:
    """The current point of a solver: W [p + 1, K], and everything known about it.

    whole, each : the point of a problem of more features, and which rows of its arrays this problem has; without them
        the model without features is evaluated
    """

    def __init__(
        self,
        problem: SoftmaxProblem,
        passes: Passes,
        dtype: Any = np.float64,
        *,
        whole: SoftmaxPoint | None = None,
        each: Ints | None = None,
    ) -> None:
        self.problem, self.passes, self.dtype = problem, passes, np.dtype(dtype)
        self.round = 0.0  # width of the smoothing of |w| at zero
        shape = passes.shape
        self.W, self.there = np.zeros(shape), np.zeros(shape)
        self.g, self.slope = np.zeros(shape), np.zeros(shape)
        self.G = np.zeros(shape)  # gradient of the loss
        # step, change of the gradient, and slope, in the units of a metric
        self.turned = np.zeros((3, *shape))
        self.scale = np.ones(shape[0])
        self.value = self.plain = math.inf  # objective with |w| smoothed; without
        self._dual = -math.inf
        self._mixed: tuple[float, float, float, float] | None = None  # dual point that was not evaluated yet
        self._weighed = float(problem.weight.sum())
        self._share0 = problem.masses / self._weighed
        self.G0 = np.zeros(shape)
        if whole is None:
            self.mass = passes.sums() if problem.intercept else np.zeros(shape[0])
            self._begin()
        else:
            self.mass, self.G0 = whole.mass[each], whole.G0[each]
            self.start(whole.W[each])

    def _begin(self) -> None:
        """Evaluate the model without features: its gradient is part of every bound."""
        k = self.problem.classes
        if self.problem.intercept:
            self.W[-1, :k] = np.log(np.maximum(self._share0, 1e-300))
            self.W[-1, :k] -= self.W[-1, :k].mean()
        self.start(self.W)
        self.G0 = self.G.copy()
        self.settle()  # again, with that gradient

    @property
    def dual(self) -> float:
        """The best of the dual values that were asked for. Most of its cost are logarithms of all samples."""
        if self._mixed is not None:
            found = self._bound(*self._mixed)
            if self.dtype != np.float64:
                found -= _SINGLE * (abs(self.plain) + self._weighed)
            self._dual, self._mixed = max(self._dual, found), None
        return self._dual

    @property
    def gap(self) -> float:
        """The duality gap at the current point."""
        return max(0.0, self.plain - self.dual)

    def start(self, W: Floats, *, dual: float = -math.inf) -> None:
        """Move to W, with the current dtype and smoothing. dual : a dual value found earlier"""
        self._dual = max(self._dual, dual)
        self.W = np.array(W)
        self.attempt(np.zeros_like(self.W), 0.0, free=True)
        self.settle()

    def state(self) -> dict[str, NDArray[Any]]:
        """The state of the point, for a checkpoint."""
        numbers = np.array([self.value, self.plain, self.dual, self.round])
        arrays = {name: getattr(self, name) for name in _ARRAYS}
        return {**arrays, "numbers": numbers, "bytes": np.array([self.dtype.itemsize])}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Restore a saved `state`."""
        for name in _ARRAYS:
            setattr(self, name, np.array(state[name]))
        self.value, self.plain, self._dual, self.round = state["numbers"].tolist()
        self._mixed = None
        self.dtype = np.dtype(f"f{int(state['bytes'][0])}")
        self.passes.look(self.W.astype(self.dtype))  # needed by the next products with the Hessian

    def widen(self) -> None:
        """Continue in float64."""
        self.dtype = np.dtype(np.float64)
        self.start(self.W)

    def attempt(self, d: Floats, t: float, *, free: bool = False) -> float:
        """The objective at W + t·d, inside the orthant unless free; `fall` is the decrease that the slope predicts."""
        made = np.empty(self.passes.shape, self.dtype)
        self.there = np.empty(self.passes.shape)
        problem = self.problem
        sums = self.passes.over_features(
            "trial", vectors.trial_worker, 3,
            self.W, d, float(t), self.slope, problem.l1, problem.ridge, self.round, free, self.there, made,
        )  # fmt: skip
        penalty, self.fall, self._plain = (math.fsum(column) for column in sums.T)
        self._mixed = None  # the next pass overwrites what it needs
        loss = self.passes.look(made)
        self._next = loss + penalty
        self._plain += loss
        return self._next

    def settle(self) -> None:
        """Make the last attempt the current point."""
        if not math.isfinite(self._next):
            raise RunError("the objective is not finite; standardize=True may help, or look for huge values in X")
        self.G = self.passes.gradient()
        if not self.problem.intercept:
            self.G[-1] = 0.0
        share, tilt, floor = self._free()
        sums = self.passes.over_features(
            "turn", vectors.turn_worker, 2,
            self.W, self.there, self.G, self.problem.l1, self.problem.ridge, self.round, self.scale, self.g, self.slope,
            *self.turned, share, self.G0, self.mass, tilt,
        )  # fmt: skip
        self.W, self.value, self.plain = self.there, self._next, self._plain
        self._mixed = share, floor, math.fsum(sums[:, 0]), float(sums[:, 1].max())

    def spread(self) -> float:
        """Curvature of the loss here, relative to the model with equal probabilities for all classes."""
        k = self.problem.classes
        return min(1.0, float(self.passes.unsure()[:k].sum()) * k / (k - 1))

    def _free(self) -> tuple[float, Floats, float]:
        """(share of the common distribution that makes Σ θ = 0, its distance from the class shares, its entropy)."""
        tilt = np.zeros(self.passes.width)
        if not self.problem.intercept:
            return 0.0, tilt, 0.0
        masses, k = self.problem.masses, self.problem.classes
        total, excess = float(masses.sum()), self.G[-1, :k]
        # Sums of residuals have rounding errors, which a class of almost no weight would magnify.
        least = _ROUNDING * float(np.sum(self.problem.weight * self.passes.wrong))
        excess = np.where(np.abs(excess) <= least, 0.0, excess)
        excess_up = np.maximum(excess, 0.0)
        share = float(np.max(excess_up / np.maximum(excess_up + masses, 1e-300)))
        if share <= 1e-15:
            return 0.0, tilt, 0.0
        common = np.maximum(masses - (1.0 - share) / share * excess, 0.0) / total
        common /= common.sum()
        tilt[:k] = self._share0 - common
        return share, tilt, total * float(-np.sum(common * np.log(np.maximum(common, 1e-300))))

    def _bound(self, share: float, floor: float, cost: float, most: float) -> float:
        """The dual value at the mixed point; the better of two if the penalty has both parts."""
        found = -math.inf
        penalised = slice(None, -1)
        if np.all(self.problem.ridge[penalised] > 0.0):
            found = (1.0 - share) * self.passes.entropy() + share * floor - cost
        if np.all(self.problem.l1[penalised] > 0.0):
            c = min(1.0, 1.0 / most) if most > 0.0 else 1.0
            found = max(found, (1.0 - share) * self.passes.entropy(c) + share * c * floor)
        return found
