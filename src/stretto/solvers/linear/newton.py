"""Minimise the objective over one working set by proximal Newton steps.

Each step minimises a quadratic model of the loss. For the squared loss the model is exact. For the others the solver
builds the model at the current point, minimises it, and moves towards the minimum while the objective falls.

A model far from the solution needs no exact minimum. Over sparse columns the first models get a single sweep each
(`kernels/linear/shuffled.py`). Whenever one sweep was enough, the next model is minimised more closely.

Samples far from the decision boundary have almost no curvature. If such samples dominate, the model's minimum is
millions of units away, no part of the step is useful, and the next model would be the same. So the model is damped:
each sample gets at least a share of the curvature of the parabola that touches the loss at its prediction and bounds it
from above (Jaakkola and Jordan's bound). The share grows when a step must be shortened and falls when the full step is
good. At share 1 the model is an upper bound of the loss, so its minimum always improves the objective. A smaller share
predicts a larger decrease, so every accepted step gains at least a fixed part of what the step at share 1 would. Hence
the objective converges to its minimum for any data.

The intercept is part of the model: the columns are centred by their means under the curvatures, and a step moves it as
the model predicts. It is made optimal for the predictions only after the last step, or while models are damped.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from stretto.kernels.linear import sample_losses

from .few_features.working_set import solve_compiled, suits_compiled
from .gram import Gram
from .losses.loss import CurvedLoss
from .point import LinearPoint, PreparedProblem, inside
from .subproblem import Minimum, minimise
from .sweeping import QuadraticModel, minimise_shuffled, minimise_smooth, minimise_swept

Array = NDArray[Any]
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_NEWTONS = 20  # quadratic models for one working set, at most
NEAR = 0.8  # of the gradient at which a column moves: a model leaves out columns with a smaller gradient
_FEW = 32  # columns whose products take no longer than a few sweeps
_FULL = 3  # columns of which one entry in so many is stored are multiplied as dense ones
_TABLE = 4096  # columns of a Gram matrix that larger models fall back on
_AS_SWEEPS = 10  # sweeps over the data that Newton steps save, where the products are known
_SMOOTH = 512  # dense columns without an L1 penalty above which conjugate gradients are tried before products
_PASSES = 32  # columns for each of their iterations, at most: then they take no longer than the products
_CLOSER = 0.25  # tolerance factor for the next models once a single sweep was enough
_BLURRED = 1e-9  # relative error of the objective: the rounding of a sum over millions of samples
_ARMIJO = 1e-3  # share of the predicted decrease that a step must reach
_SHORTEST = 2.0**-6  # shortest step; below that the model is of no use
_FIRST, _LESS, _MOST = 2.0**-10, 4.0, 8.0  # first damping share; factor by which it falls; most by which it grows
_REACH = 8.0  # predicted changes of the intercept beyond this are ignored
# The gap to which a small set is solved: these shares of the requested gap, and of that of the current point.
_SHARE_OF_GOAL, _SHARE_LEFT = 0.5, 0.03
_FAITHFUL = 0.75  # share of the predicted decrease from which on damping is reduced


class SetSolver:
    """Minimises over chosen columns. slots: columns whose inner products are kept."""

    def __init__(self, setting: PreparedProblem, slots: int) -> None:
        self.setting = setting
        problem = setting.problem
        self._gram = Gram(
            setting.columns, problem.weight, setting.mean, problem.intercept, slots, changing=not setting.loss.quadratic
        )
        self._damping = 0.0  # least share of the bounding parabola's curvature that every sample has
        self.start()

    def start(self) -> None:
        """Begin a fit: no damping, and the loosest tolerance for models."""
        self._damping = 0.0
        self._loose = 1.0  # share of the violations that may remain when a model over sparse columns is minimised
        self._models = 0  # models over sparse columns so far
        self._spent = 0  # conjugate-gradient iterations since one of them reached its tolerance

    def state(self, point: LinearPoint | None) -> dict[str, Array]:
        """Everything that decides later models, from this point on. None: the next call starts another fit."""
        # The squared loss has one Gram matrix. That of another loss is valid for one model only.
        same = self.setting.loss.quadratic or (point is not None and self._gram.weight is point.at.d)
        found: dict[str, Array] = {f"gram/{name}": array for name, array in self._gram.state(keep=same).items()}
        found["shares"] = np.array([self._damping, self._loose])
        return found | {"counts": np.array([self._models, self._spent], np.int64)}

    def restore(self, state: Mapping[str, Array], point: LinearPoint) -> None:
        """Continue from a saved `state`, at the same point."""
        self._damping, self._loose = state["shares"].tolist()
        self._models, self._spent = state["counts"].tolist()
        self._gram.restore(inside(state, "gram"), point.at.d)

    def solve(
        self,
        point: LinearPoint,
        chosen: Ints,
        l1: float,
        l2: float,
        tolerance: float,
        *,
        once: bool = False,
        gap: float = 0.0,
        left: float = 0.0,
    ) -> int:
        """Minimise over the chosen columns, to violations of `tolerance`; return the sweeps and Newton steps made.

        once : take one Newton step; no effect with the squared loss, which needs no more
        gap : the duality gap of the fit; between Newton steps it may permit larger violations than `tolerance`
        left : the gap of the current point
        """
        if not once:
            self.setting.columns.need(chosen)  # otherwise there may be very many, few of which are close to moving
        if not self.setting.loss.quadratic:
            if not once and gap > 0.0 and suits_compiled(self.setting, chosen):
                enough = max(_SHARE_OF_GOAL * gap, _SHARE_LEFT * left)
                if made := solve_compiled(self.setting, point, chosen, l1, l2, enough):
                    return made
            return self._newton(point, chosen, l1, l2, tolerance, once, gap)
        setting = self.setting
        done = self._model(point, chosen, l1, l2, setting.problem.weight, setting.mean, tolerance)
        before, kept = setting.objective(point, l1, l2), point.coef[chosen]
        point.coef[chosen] = done.b
        setting.predict(point, point.at.b)
        if not setting.objective(point, l1, l2) <= before + 1e-9 * abs(before):
            point.coef[chosen] = kept  # the products are too ill-conditioned
            setting.predict(point, point.at.b)
            return 0
        return done.sweeps + done.newtons

    def known(self, chosen: Ints) -> float:
        """The share of these columns whose products are kept; 0 where sweeps over the data are expected to be faster.

        A Newton step takes k³/24 operations on eight numbers at a time, a sweep one for each entry.
        """
        cheap = len(chosen) ** 3 <= 24 * _AS_SWEEPS * int(self.setting.columns.entries[chosen].sum())
        return self._gram.known(chosen) if len(chosen) and cheap and self._tabled(chosen) else 0.0

    def _newton(
        self, point: LinearPoint, chosen: Ints, l1: float, l2: float, tolerance: float, once: bool, gap: float
    ) -> int:
        """Build and minimise quadratic models, and step towards each minimum while the loss falls."""
        setting, loss = self.setting, cast("CurvedLoss", self.setting.loss)
        positive = setting.problem.positive
        scale = setting.scale[chosen]
        penalty, ridge = l1 * scale, l2 * scale * scale
        epochs, moved, rough = 0, False, False
        mean: Floats | None = None  # of the columns under point.at.d
        for _ in range(_NEWTONS):
            if moved:
                mean = self._gradients(point, chosen)
            b = point.coef[chosen]
            slack = point.pulls[chosen] - ridge * b
            each = violations(b, slack, penalty, positive) / scale
            worst, wrong = float(np.max(each, initial=0.0)), float(np.sum(each))
            if moved and gap > 0.0:
                tolerance = max(tolerance, l1 * permitted(l1 * float(np.sum(np.abs(scale * b))), gap))
            if worst <= tolerance or setting.crew.asked:
                break
            # Leave out columns that are zero and far from moving: each model computes its own products.
            near = np.flatnonzero((b != 0.0) | ((slack if positive else np.abs(slack)) >= NEAR * penalty))
            few, b = chosen[near], b[near]
            d = loss.curvature(point.z, point.at, self._damping)
            if d is setting.zero.at.d and loss.uniform_curvature:
                mean = setting.mean  # all predictions are the same, so d is a multiple of the weights
            elif mean is None or d is not point.at.d:
                mean = self._means(few, d)
            goals = max(0.3 * tolerance, 0.1 * worst), self._loose * wrong, 0.3 * tolerance
            done = self._model(point, few, l1, l2, d, mean, *goals)
            epochs += done.sweeps + done.newtons
            change = done.b - b
            if not change.any():
                break
            fall = float(np.sum(penalty[near] * (np.abs(done.b) - np.abs(b))) - np.sum(slack[near] * change))
            with np.errstate(over="ignore", invalid="ignore"):  # a step that overflows is rejected below
                length, agreement = self._walk(point, few, b, change, fall, d, l1, l2)
            moved = length > 0.0
            if not moved and self._damping == 1.0:
                break  # only rounding is left
            rough = rough or length < 0.2
            self._adapt(length, agreement, done.sweeps + done.newtons)
            if self._damping > 0.0:
                point.at = loss.settled(point.z, point.at)
            if moved and once:
                break
        if rough:
            setting.predict(point, point.at.b)  # long steps leave rounding errors in z
        point.at = loss.settled(point.z, point.at)
        return epochs

    def _gradients(self, point: LinearPoint, chosen: Ints) -> Floats:
        """Update the gradients of the columns, where the intercept follows them; return their means [p] under d."""
        setting, at = self.setting, point.at
        if not setting.problem.intercept:
            setting.pull(point, chosen)
            return setting.mean
        mean = np.empty(setting.columns.p)
        setting.columns.price_both(chosen, at.v, at.d, point.pulls, mean)
        mean[chosen] /= float(np.sum(at.d))
        point.pulls[chosen] -= mean[chosen] * float(np.sum(at.v))
        return mean

    def _adapt(self, length: float, agreement: float, epochs: int) -> None:
        """Set damping and tolerance of the next model by how good this one was.

        agreement : the decrease reached, as a share of what the model predicted for the full step
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
        """Line search along `change`: the objective must fall by a fixed share of `fall`.

        Returns the step length (0: none was accepted) and the decrease as a share of the prediction for the full step.
        """
        if not fall < 0.0:
            return 0.0, 0.0
        setting, loss = self.setting, cast("CurvedLoss", self.setting.loss)
        moved = np.flatnonzero(change)
        way = np.zeros(setting.columns.n)
        setting.columns.add(chosen[moved], change[moved], way)
        before = setting.objective(point, l1, l2)
        mass, drift, bend, _ = sample_losses.measure_way[setting.profile](d, point.at.v, way)
        shift, settle = 0.0, setting.problem.intercept
        if settle and mass > 0.0:
            # The model moves the intercept to where its own derivative is zero.
            shift = (point.at.pull - drift) / mass
            settle = not abs(shift) < _REACH
            bend -= drift * drift / mass
            fall -= 0.5 * point.at.pull * point.at.pull / mass
        promised = fall + 0.5 * (bend + l2 * float(np.sum((setting.scale[chosen] * change) ** 2)))
        coef, t = point.coef.copy(), 1.0
        while t >= _SHORTEST:
            coef[chosen] = b + t * change if t < 1.0 else b + change
            if settle:
                there = point.z + t * way
                at = loss.look(there, point.at.b)
            else:
                there, at = loss.step(point.z, way, t, point.at.b + t * shift)
            value = at.value + setting.penalty(coef, l1, l2)
            enough = value <= before + _ARMIJO * t * fall + 1e-15 * abs(before)
            if not enough and -fall <= _BLURRED * abs(before):
                # Rounding hides the decrease, but not whether the objective still falls at the end of the step.
                slope = self._slope(coef[chosen], b, chosen, l1, l2) - float(np.sum(at.v * way)) - shift * at.pull
                enough = slope <= -0.5 * fall
            if enough:
                point.coef, point.z, point.at = coef, there, at
                return t, (value - before) / promised if promised < 0.0 else 1.0
            t *= 0.5
        return 0.0, 0.0

    def _slope(self, there: Floats, b: Floats, chosen: Ints, l1: float, l2: float) -> float:
        """Derivative of the penalty at `there`, along the full step from b to `there`."""
        scale = self.setting.scale[chosen]
        side = np.sign(np.where(there != 0.0, there, b))
        return float(np.sum((l1 * scale * side + l2 * scale * scale * there) * (there - b)))

    def _model(
        self, point: LinearPoint, chosen: Ints, l1: float, l2: float, d: Floats, mean: Floats, tolerance: float,
        most: float = 0.0, largest: float = 0.0,
    ) -> Minimum:  # fmt: skip
        """Minimise the quadratic model with curvatures d [n] over the chosen columns, to violations of `tolerance`.

        mean : [p] means of these columns under d, zeros without an intercept
        Sparse columns swept in random order: to violations that sum to `most` or are all at most `largest`.
        """
        setting = self.setting
        setting.columns.need(chosen)
        scale, positive = setting.scale[chosen], setting.problem.positive
        penalty, ridge = l1 * scale, l2 * scale * scale
        b = point.coef[chosen]
        v = point.at.v
        if point.at.pull != 0.0:
            v = v - d * (point.at.pull / float(np.sum(d)))  # where the model's intercept is optimal
        model = QuadraticModel(setting.columns, chosen, v, d, mean[chosen], penalty, ridge, scale, positive)
        suited = not setting.columns.sparse or setting.problem.loss != "logistic"
        if l1 == 0.0 and not setting.loss.quadratic and suited and len(chosen) > _SMOOTH:
            smooth = minimise_smooth(model, b, tolerance, len(chosen) // _PASSES)
            if smooth is not None:
                return smooth
        if self._tabled(chosen):
            if not setting.loss.quadratic:
                self._gram.renew(d, mean)
            return self._by_products(chosen, b, point.pulls[chosen] - ridge * b, penalty, ridge, tolerance)
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
        """Minimise the model through the columns' Gram matrix. slack: minus the gradient at b."""
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
        if not setting.problem.intercept:
            return setting.mean
        mean = np.empty(setting.columns.p)
        setting.columns.price(chosen, d, mean)
        mean[chosen] /= float(np.sum(d))
        return mean

    def _tabled(self, chosen: Ints) -> bool:
        """Whether to use a Gram matrix.

        A sweep over it takes k² fast operations, a sweep over the data one slow operation per entry. With a loss other
        than the squared one, products are valid for one model, which gets a few sweeps. Over sparse columns these are
        faster, unless there are few, which Newton steps solve whatever the weights of the samples, or the columns are
        so full that they are multiplied as dense ones. `minimise_shuffled` changes to products where sweeps do not
        suffice.
        """
        columns, k = self.setting.columns, len(chosen)
        entries = int(columns.entries[chosen].sum())
        if columns.sparse and not self.setting.loss.quadratic:
            suited = k <= _FEW or (_FULL * entries >= columns.n * k and k * k <= max(64 * 64, entries // 4))
            return suited and k <= self._gram.limit
        return k <= self._gram.limit and k * k <= max(512 * 512, 8 * entries if columns.sparse else 4 * entries)


def permitted(size: float, gap: float) -> float:
    """The violation, as a share of l1, that a duality gap permits: it grows with this share of the penalty `size`."""
    return min(0.3, 0.3 * gap / max(size, gap))


def violations(b: Floats, slack: Floats, l1: Floats, positive: bool) -> Floats:
    """Distance of zero from the subdifferential of each coordinate; slack = −∂(smooth part)."""
    at_zero = np.maximum(slack if positive else np.abs(slack), l1) - l1
    return np.where(b == 0.0, at_zero, np.abs(slack - l1 * np.sign(b)))


def _times(H: Floats, b: Floats) -> Floats:
    """H b over the non-zero coefficients, in order. No BLAS: its summation order depends on the processor."""
    on = np.flatnonzero(b)
    if not len(on):
        return np.zeros(len(b))
    return cast("Floats", np.add.reduce(b[on, None] * H[on], axis=0)[: len(b)])
