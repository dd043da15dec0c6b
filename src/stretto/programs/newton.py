"""One working set, solved: a quadratic model of the loss, minimised, as often as needed.

The squared loss is its own model. The logistic one is modelled at the point reached, the model is minimised, and the
way to its minimum is followed as far as the objective falls (a proximal Newton method).

Samples far from the border, on either side, have next to no curvature. Where such samples decide, the model's minimum
is millions of units away, no part of the way there is any use, and the next model would be the same. So the model is
damped: each sample gets at least a share of the curvature of the parabola that touches the loss at its prediction and
lies above it everywhere (Jaakkola and Jordan's bound). The share grows when a step has to be shortened a lot and falls
when one is right as it is. At share 1 the model lies above the loss, so that its minimum is always an improvement; and
since a smaller share promises more, every step accepted gains at least a fixed part of what that one would: the
objective converges to its minimum whatever the data.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .gram import Gram
from .inner import Minimum, minimise
from .point import Point, Setting
from .sweeping import Model, minimise_shuffled, minimise_swept

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_NEWTONS = 20  # quadratic models made of one working set
_NEAR = 0.8  # of the pull at which a column moves: those that are pulled less are left out of a model
_TURNS, _MODEL_TURNS = 50, 10  # of sweeps and conjugate gradients over the data; a passing model gets fewer
_SWEEPS, _MANY_SWEEPS = 10, 100  # of a turn; a sweep over sparse columns is cheap beside conjugate gradients
_BLURRED = 1e-9  # of the objective: a sum over the samples is no better than that when they are millions
_ARMIJO = 1e-3  # of the fall that the model promises must be there
_SHORTEST = 2.0**-6  # of a step; below that the model is of no use
import os
_LOOSE=float(os.environ.get("LOOSE","1")); _LEAST=float(os.environ.get("LEAST","1e-6")); _FEWSW=int(os.environ.get("FEWSW","1")); _MAXSW=int(os.environ.get("MAXSW","20")); _TURNSX=int(os.environ.get("TURNSX","3"))
_FIRST, _CHANGE = 2.0**-10, float(os.environ.get("CHANGE","4"))  # the first share of damping, and how many times more or less of it is tried next


class SetSolver:
    """Minimises over chosen columns. slots: columns whose inner products are kept."""

    def __init__(self, setting: Setting, slots: int) -> None:
        self.setting = setting
        problem = setting.problem
        self._gram = Gram(setting.columns, problem.weight, setting.mean, problem.intercept, slots)
        self._damping = 0.0  # the share of the bounding parabola's curvature that every sample has at least

    def start(self) -> None:
        """Begin a fit: nothing is damped."""
        self._damping = 0.0
        self._loose, self._seed = _LOOSE, 0

    def solve(self, point: Point, chosen: Ints, l1: float, l2: float, tolerance: float, single: bool = False) -> int:
        """Minimise over the chosen columns alone, to violations of `tolerance`; sweeps and Newton steps made."""
        if not self.setting.loss.quadratic:
            return self._newton(point, chosen, l1, l2, tolerance, single)
        setting = self.setting
        done = self._model(point, chosen, l1, l2, setting.problem.weight, tolerance)
        before, kept = setting.objective(point, l1, l2), point.coef[chosen]
        point.coef[chosen] = done.b
        setting.predict(point, point.at.b)
        if not setting.objective(point, l1, l2) <= before + 1e-9 * abs(before):
            point.coef[chosen] = kept  # products too ill-conditioned to be of use
            setting.predict(point, point.at.b)
            return 0
        return done.sweeps + done.newtons

    def _newton(self, point: Point, chosen: Ints, l1: float, l2: float, tolerance: float, single: bool = False) -> int:
        """One quadratic model of the loss after another, each minimised and walked towards as far as the loss falls."""
        setting = self.setting
        positive = setting.problem.positive
        scale = setting.scale[chosen]
        penalty, ridge = l1 * scale, l2 * scale * scale
        epochs, moved = 0, False
        for _ in range(_NEWTONS):
            if moved:
                setting.pull(point, chosen)
            b = point.coef[chosen]
            slack = point.pulls[chosen] - ridge * b
            each = violations(b, slack, penalty, positive) / scale
            worst, wrong = float(np.max(each, initial=0.0)), float(np.sum(each))
            if worst <= tolerance or setting.crew.asked:
                break
            # What is zero and far from moving is left out of this model: products are made anew for each.
            near = np.flatnonzero((b != 0.0) | ((slack if positive else np.abs(slack)) >= _NEAR * penalty))
            few, b = chosen[near], b[near]
            d = setting.loss.curvature(point.z, point.at, self._damping)
            done = self._model(point, few, l1, l2, d, max(0.3 * tolerance, 0.1 * worst), self._loose * wrong, 0.3 * tolerance)
            epochs += done.sweeps + done.newtons
            change = done.b - b
            if not change.any():
                break
            fall = float(np.sum(penalty[near] * (np.abs(done.b) - np.abs(b))) - np.sum(slack[near] * change))
            with np.errstate(over="ignore", invalid="ignore"):  # a step that goes nowhere useful is not taken
                length, agreement = self._walk(point, few, b, change, fall, d, l1, l2)
            moved = length > 0.0
            if not moved and self._damping == 1.0:
                break  # only rounding is left
            self._adapt(length, agreement, done.sweeps)
            if moved and single:
                break
        return epochs

    def _adapt(self, length: float, agreement: float, sweeps: int) -> None:
        """Damp the next model more or less, and solve it more or less closely, by how good this one was."""
        if length < 1.0:
            more = 8.0 if length < 0.2 else 4.0 if length < 0.4 else 2.0
            self._damping = min(1.0, max(_FIRST, more * self._damping))
            return
        if agreement > 0.75:
            self._damping = self._damping / _CHANGE if self._damping > _FIRST else 0.0
        if sweeps <= _FEWSW:
            self._loose = max(_LEAST, 0.25 * self._loose)

    def _walk(
        self, point: Point, chosen: Ints, b: Floats, change: Floats, fall: float, d: Floats, l1: float, l2: float
    ) -> tuple[float, float]:
        """Move along `change` as far as the objective falls by a fair part of `fall`; the part walked, or 0."""
        if not fall < 0.0:
            return 0.0, 0.0
        setting = self.setting
        moved = np.flatnonzero(change)
        way = np.zeros(setting.columns.n)
        setting.columns.add(chosen[moved], change[moved], way)
        before = setting.objective(point, l1, l2)
        bend = float(np.sum(d * way * way))
        coef, t = point.coef.copy(), 1.0
        while t >= _SHORTEST:
            coef[chosen] = b + t * change if t < 1.0 else b + change
            at = setting.loss.look(point.z + t * way, point.at.b)
            value = at.value + setting.penalty(coef, l1, l2)
            enough = value <= before + _ARMIJO * t * fall + 1e-15 * abs(before)
            if not enough and -fall <= _BLURRED * abs(before):
                # Rounding hides what is gained, but not whether the objective still falls where the step ends.
                slope = self._slope(coef[chosen], b, chosen, l1, l2) - float(np.sum(at.v * way))
                enough = slope <= -0.5 * fall
            if enough:
                point.coef, point.z, point.at = coef, point.z + t * way, at
                promised = fall + 0.5 * bend
                return t, ((value - before) / promised if promised < 0 else 1.0)
            t *= 0.5
        return 0.0, 0.0

    def _slope(self, there: Floats, b: Floats, chosen: Ints, l1: float, l2: float) -> float:
        """How fast the penalty grows at the end of the way from b to `there`, for the whole of it."""
        scale = self.setting.scale[chosen]
        side = np.sign(np.where(there != 0.0, there, b))
        return float(np.sum((l1 * scale * side + l2 * scale * scale * there) * (there - b)))

    def _model(self, point: Point, chosen: Ints, l1: float, l2: float, d: Floats, tolerance: float, most: float = 0.0, largest: float = 0.0) -> Minimum:
        """Minimise the quadratic model with curvatures d [n] over the chosen columns."""
        setting = self.setting
        scale, positive = setting.scale[chosen], setting.problem.positive
        penalty, ridge = l1 * scale, l2 * scale * scale
        mean = self._means(chosen, d)
        b = point.coef[chosen]
        if not self._tabled(chosen):
            model = Model(setting.columns, chosen, point.at.v, d, mean[chosen], penalty, ridge, scale, positive)
            if not setting.loss.quadratic and setting.columns.design.sparse:
                self._seed += 1
                return minimise_shuffled(model, b, most, largest, self._seed)
            return minimise_swept(model, b, tolerance, _SWEEPS, _TURNS)
        if not setting.loss.quadratic:
            self._gram.renew(d, mean)
        H = self._gram.of(chosen)
        diagonal = np.arange(len(chosen))
        H[diagonal, diagonal] += ridge
        q = point.pulls[chosen] - ridge * b + _times(H, b)
        return minimise(setting.crew, setting.profile, H, q, penalty, scale, b, tolerance, positive=positive)

    def _means(self, chosen: Ints, d: Floats) -> Floats:
        """[p] means of the chosen columns under the curvatures d; zeros without an intercept."""
        setting = self.setting
        if setting.loss.quadratic or not setting.problem.intercept:
            return setting.mean
        mean = np.empty(setting.columns.p)
        setting.columns.price(chosen, d, mean)
        mean[chosen] /= float(np.sum(d))
        return mean

    def _tabled(self, chosen: Ints) -> bool:
        """Whether to work with a table of inner products: a sweep over it costs k² quick steps, one over the data as
        many slow ones as there are entries.
        """
        columns, k = self.setting.columns, len(chosen)
        entries = int(columns.entries[chosen].sum())
        if not columns.design.sparse:
            worth = 4
        else:
            # A table that serves one model has to pay for itself there.
            worth = 8 if self.setting.loss.quadratic else float(os.environ.get("WORTH","0.25"))
        floor = 512*512 if self.setting.loss.quadratic or not columns.design.sparse else int(os.environ.get("FLOOR","64"))**2
        return k <= self._gram.limit and k * k <= max(floor, worth * entries)


def violations(b: Floats, slack: Floats, l1: Floats, positive: bool) -> Floats:
    """How far zero is from the subdifferential of each coordinate; slack = −∂(smooth part)."""
    at_zero = np.maximum(slack if positive else np.abs(slack), l1) - l1
    return np.where(b == 0.0, at_zero, np.abs(slack - l1 * np.sign(b)))


def _times(H: Floats, b: Floats) -> Floats:
    """H b over the coefficients that are not zero, in their order: no BLAS, whose sums depend on the processor."""
    total = np.zeros(H.shape[1])
    for j in np.flatnonzero(b):
        total += b[j] * H[j]
    return total[: len(b)]
