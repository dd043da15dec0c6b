"""One working set, solved: a quadratic model of the loss, minimised, as often as needed.

The squared loss is its own model. The logistic one is modelled at the point reached, the model is minimised, and the
way to its minimum is followed as far as the objective falls (a proximal Newton method).

A model far from the solution is not worth an exact minimum. Over sparse columns the first ones get a single sweep each
(`kernels/linear/shuffled.py`); whenever one sweep is enough, the next model is minimised more closely.

Samples far from the border, on either side, have next to no curvature. Where such samples decide, the model's minimum
is millions of units away, no part of the way there is any use, and the next model would be the same. So the model is
damped: each sample gets at least a share of the curvature of the parabola that touches the loss at its prediction and
lies above it everywhere (Jaakkola and Jordan's bound). The share grows when a step has to be shortened and falls when
one is right as it is. At share 1 the model lies above the loss, so that its minimum is always an improvement; and since
a smaller share promises more, every step accepted gains at least a fixed part of what that one would: the objective
converges to its minimum whatever the data.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .gram import Gram
from .point import LinearPoint, PreparedProblem, inside
from .subproblem import Minimum, minimise
from .sweeping import QuadraticModel, minimise_shuffled, minimise_swept

Array = NDArray[Any]
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_NEWTONS = 20  # quadratic models made of one working set
_NEAR = 0.8  # of the pull at which a column moves: those that are pulled less are left out of a model
_TABLE = 4096  # columns of a table that a model with more of them falls back on
_CLOSER = 0.25  # how much more closely models are minimised once a single sweep was enough
_BLURRED = 1e-9  # of the objective: a sum over the samples is no better than that when they are millions
_ARMIJO = 1e-3  # of the fall that the model promises must be there
_SHORTEST = 2.0**-6  # of a step; below that the model is of no use
_FIRST, _LESS, _MOST = 2.0**-10, 4.0, 8.0  # the first share of damping; how many times less or at most more comes next
_FAITHFUL = 0.75  # of the promised fall that must come for less damping


class SetSolver:
    """Minimises over chosen columns. slots: columns whose inner products are kept."""

    def __init__(self, setting: PreparedProblem, slots: int) -> None:
        self.setting = setting
        problem = setting.problem
        self._gram = Gram(setting.columns, problem.weight, setting.mean, problem.intercept, slots)
        self._damping = 0.0  # the share of the bounding parabola's curvature that every sample has at least
        self.start()

    def start(self) -> None:
        """Begin a fit: nothing is damped, and models are minimised as loosely as can be."""
        self._damping = 0.0
        self._loose = 1.0  # a model over sparse columns is minimised until this share of the violations is left
        self._models = 0  # made over sparse columns
        self._spent = 0  # iterations of conjugate gradients since one of them was minimised

    def state(self, point: LinearPoint | None) -> dict[str, Array]:
        """Everything that decides the models to come, from this point on; None: another fit starts next."""
        # The squared loss has one table of products. Those of another loss hold for one model, made at one point.
        same = self.setting.loss.quadratic or (point is not None and self._gram.weight is point.at.d)
        found: dict[str, Array] = {f"gram/{name}": array for name, array in self._gram.state(keep=same).items()}
        found["shares"] = np.array([self._damping, self._loose])
        return found | {"counts": np.array([self._models, self._spent], np.int64)}

    def restore(self, state: Mapping[str, Array], point: LinearPoint) -> None:
        """Go on from what `state` gave, at the same point."""
        self._damping, self._loose = state["shares"].tolist()
        self._models, self._spent = state["counts"].tolist()
        self._gram.restore(inside(state, "gram"), point.at.d)

    def solve(
        self, point: LinearPoint, chosen: Ints, l1: float, l2: float, tolerance: float, *, once: bool = False
    ) -> int:
        """Minimise over the chosen columns alone, to violations of `tolerance`; sweeps and Newton steps made.

        once: take one Newton step; the squared loss, which needs no more, does not care.
        """
        if not once:
            self.setting.columns.need(chosen)  # else there may be very many, of which few are near to moving
        if not self.setting.loss.quadratic:
            return self._newton(point, chosen, l1, l2, tolerance, once)
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

    def _newton(self, point: LinearPoint, chosen: Ints, l1: float, l2: float, tolerance: float, once: bool) -> int:
        """One quadratic model of the loss after another, each minimised and walked towards as far as the loss falls."""
        setting = self.setting
        positive = setting.problem.positive
        scale = setting.scale[chosen]
        penalty, ridge = l1 * scale, l2 * scale * scale
        epochs, moved, rough = 0, False, False
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
            goals = max(0.3 * tolerance, 0.1 * worst), self._loose * wrong, 0.3 * tolerance
            done = self._model(point, few, l1, l2, d, *goals)
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
            rough = rough or length < 0.2
            self._adapt(length, agreement, done.sweeps + done.newtons)
            if moved and once:
                break
        if rough:
            setting.predict(point, point.at.b)  # long steps leave their rounding in z
        return epochs

    def _adapt(self, length: float, agreement: float, epochs: int) -> None:
        """Damp the next model more or less, and minimise it more closely, by how good this one was.

        agreement: what was gained, as a share of what the model promised for the whole step.
        """
        if length < 1.0:
            more = min(_MOST, 1.0 / length) if length > 0.0 else _MOST
            self._damping = min(1.0, max(_FIRST, more * self._damping))
            return
        if agreement >= _FAITHFUL:
            self._damping = self._damping / _LESS if self._damping > _FIRST else 0.0
        if epochs <= 1:
            self._loose *= _CLOSER

    def _walk(
        self, point: LinearPoint, chosen: Ints, b: Floats, change: Floats, fall: float, d: Floats, l1: float, l2: float
    ) -> tuple[float, float]:
        """Move along `change` as far as the objective falls by a fair part of `fall`: the part walked, or 0, and the
        share of what the model promised for the whole of it that was gained.
        """
        if not fall < 0.0:
            return 0.0, 0.0
        setting = self.setting
        moved = np.flatnonzero(change)
        way = np.zeros(setting.columns.n)
        setting.columns.add(chosen[moved], change[moved], way)
        before = setting.objective(point, l1, l2)
        scale = setting.scale[chosen]
        promised = fall + 0.5 * float(np.sum(d * way * way) + l2 * np.sum((scale * change) ** 2))
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
                return t, (value - before) / promised if promised < 0.0 else 1.0
            t *= 0.5
        return 0.0, 0.0

    def _slope(self, there: Floats, b: Floats, chosen: Ints, l1: float, l2: float) -> float:
        """How fast the penalty grows at the end of the way from b to `there`, for the whole of it."""
        scale = self.setting.scale[chosen]
        side = np.sign(np.where(there != 0.0, there, b))
        return float(np.sum((l1 * scale * side + l2 * scale * scale * there) * (there - b)))

    def _model(
        self, point: LinearPoint, chosen: Ints, l1: float, l2: float, d: Floats, tolerance: float, most: float = 0.0,
        largest: float = 0.0,
    ) -> Minimum:  # fmt: skip
        """Minimise the quadratic model with curvatures d [n] over the chosen columns, to violations of `tolerance`;
        where sparse columns are swept in random order, to violations that sum to `most` or are all at most `largest`.
        """
        setting = self.setting
        setting.columns.need(chosen)
        scale, positive = setting.scale[chosen], setting.problem.positive
        penalty, ridge = l1 * scale, l2 * scale * scale
        mean = self._means(chosen, d)
        b = point.coef[chosen]
        if self._tabled(chosen):
            if not setting.loss.quadratic:
                self._gram.renew(d, mean)
            return self._by_products(chosen, b, point.pulls[chosen] - ridge * b, penalty, ridge, tolerance)
        model = QuadraticModel(setting.columns, chosen, point.at.v, d, mean[chosen], penalty, ridge, scale, positive)
        if setting.loss.quadratic or not setting.columns.sparse:
            return minimise_swept(model, b, tolerance)

        def table(on: Ints, there: Floats, pulls: Floats) -> Minimum | None:
            if len(on) > min(_TABLE, self._gram.limit):
                return None
            if self._gram.weight is not d:
                self._gram.renew(d, mean)
            return self._by_products(chosen[on], there, pulls - ridge[on] * there, penalty[on], ridge[on], largest)

        self._models += 1
        done, self._spent = minimise_shuffled(model, b, most, largest, self._models, table, self._spent)
        return done

    def _by_products(
        self, chosen: Ints, b: Floats, slack: Floats, penalty: Floats, ridge: Floats, tolerance: float
    ) -> Minimum:
        """Minimise the model through the table of the columns' inner products. slack: minus the slopes at b."""
        setting = self.setting
        H = self._gram.of(chosen)
        diagonal = np.arange(len(chosen))
        H[diagonal, diagonal] += ridge
        q = slack + _times(H, b)
        return minimise(
            setting.crew, setting.profile, H, q, penalty, setting.scale[chosen], b, tolerance,
            positive=setting.problem.positive,
        )  # fmt: skip

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
        if columns.sparse and not self.setting.loss.quadratic:
            return k <= self._gram.limit and k * k <= max(64 * 64, entries // 4)  # a few sweeps are all a model gets
        return k <= self._gram.limit and k * k <= max(512 * 512, 8 * entries if columns.sparse else 4 * entries)


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
