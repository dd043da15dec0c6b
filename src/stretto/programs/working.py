"""Sparse regression by working sets: the solver behind `Lasso`, `ElasticNet` and `LogisticRegression`.

    min over β, b:   Σ_i weight_i·loss(y_i, x_i·β + b)  +  l1·Σ_j scale_j|β_j|  +  ½·l2·Σ_j (scale_j β_j)²

A round looks at all columns that are still in the pool, which gives the duality gap; drops those the gap proves zero;
picks the columns nearest to their constraints (`schedule/working_sets.py`); and solves for these alone, starting from
where it stands. It ends when the gap is small enough, which is a proof and not a guess.

Solving for a set means: a quadratic model of the loss, exact for the squared one, in which the columns enter through
their inner products (`programs/gram.py`), minimised by sweeps and Newton steps (`kernels/quadratic.py`). Sets too large
for a table of inner products are swept over the data itself (`programs/sweeping.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.data.design import Design
from stretto.errors import PlanError, RunError
from stretto.runtime.runtimes import Crew
from stretto.schedule.working_sets import WorkingSets

from .columns import Columns
from .gram import Gram
from .inner import Minimum, minimise
from .loss import At, Logistic, Loss, Squared
from .sweeping import Model, minimise_swept

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_LOSSES: dict[str, type[Squared] | type[Logistic]] = {"squared": Squared, "logistic": Logistic}
# Columns whose products are kept: half a gigabyte. A constant, since what is kept can change the last bit.
_SLOTS = 8192
_NEWTONS = 20  # quadratic models made of one working set
_NEAR = 0.8  # of the pull at which a column moves: those that are pulled less are left out of a model
# What is left of a column after its mean is taken off, relative to what it was, when it is constant but for rounding.
_CONSTANT = 1e-11


@dataclass(frozen=True, eq=False)
class Problem:
    """What is minimised, the strength of the penalty apart."""

    design: Design
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


@dataclass
class _Point:
    """Where the solver stands."""

    coef: Floats  # [p]
    z: Floats  # [n] Xβ
    at: At
    pull: Floats  # [p] x_j · v for the columns of the pool

    @property
    def support(self) -> Ints:
        return np.flatnonzero(self.coef).astype(np.int64)


class Solver:
    """A solver for one problem at any number of penalties; keep it along a path, it remembers inner products."""

    def __init__(
        self,
        problem: Problem,
        crew: Crew,
        *,
        profile: str = "exact",
        schedule: WorkingSets | None = None,
        slots: int = _SLOTS,
    ) -> None:
        if problem.loss not in _LOSSES:
            raise PlanError(f"no loss {problem.loss!r}; there are {', '.join(_LOSSES)}")
        self.problem, self.crew, self.profile = problem, crew, profile
        self.spec = schedule if schedule is not None else WorkingSets()
        self.columns = Columns(problem.design, crew, profile)
        self.loss: Loss = _LOSSES[problem.loss](problem.y, problem.weight, problem.intercept, profile)
        n, p = problem.design.shape
        self.scale = np.ones(p) if problem.scale is None else problem.scale
        z = np.zeros(n)
        at = self.loss.look(z, 0.0)
        mean, norm, pull = self.columns.survey(problem.weight, problem.intercept, at.v)
        self.mean = mean
        self._centre(pull, slice(None), at)
        mass = float(np.sum(problem.weight))
        norm[norm <= _CONSTANT * np.abs(mean) * np.sqrt(mass)] = 0.0
        self.norm = norm
        self._usable = norm > 0.0
        self._zero = _Point(np.zeros(p), z, at, pull)
        self._last: tuple[Fit, _Point] | None = None
        self._gram = Gram(self.columns, problem.weight, mean, problem.intercept, slots)

    def largest_l1(self) -> float:
        """The smallest l1 at which β = 0."""
        return float(np.max(self._urge(self._zero.pull)[self._usable], initial=0.0))

    def _urge(self, pull: Floats) -> Floats:
        """How hard each column is pulled, in units of the penalty."""
        return (pull if self.problem.positive else np.abs(pull)) / self.scale

    def fit(
        self,
        l1: float,
        l2: float = 0.0,
        *,
        gap: float,
        max_rounds: int = 100,
        start: Fit | None = None,
        look: Callable[[dict[str, Any]], bool] | None = None,
    ) -> Fit:
        """Solve to a duality gap of `gap`, from `start` (else from zero).

        look(state) is told of every round: round, objective, gap, coef, intercept, how many columns are in the pool; it
        ends the fit by returning True. max_rounds=0 measures the start and changes nothing.
        """
        point, known = self._begin(start)
        pool = self._usable.copy()
        best_dual, epochs, number = -np.inf, 0, 0
        if not known:
            # Along a path the last penalty's pulls say well enough where to begin; a look at all columns comes after.
            if max_rounds > 0 and l1 > 0.0:
                pull = point.pull - l2 * self.scale**2 * point.coef
                size = l1 * float(np.sum(np.abs(self.scale * point.coef)))
                tolerance = l1 * min(0.3, 0.3 * gap / max(size, gap, 1e-300))
                epochs = self._solve(point, self._choose(pool, point, pull, l1), l1, l2, tolerance)
            self._look(point, np.flatnonzero(pool).astype(np.int64))
        strict = 1.0
        while True:
            pull = point.pull - l2 * self.scale**2 * point.coef if l2 else point.pull
            objective = point.at.value + self._penalty(point.coef, l1, l2)
            if not np.isfinite(objective):
                raise RunError("the objective is not finite; standardize=True may help, or look for huge values in X")
            dual, c = self._dual(point, pool, l1, l2)
            best_dual = max(best_dual, dual)
            left = objective - best_dual
            if left < 0.0:
                # Below zero by more than rounding the two contradict each other, and the gap is no better than that.
                left = 0.0 if -left <= 1e-10 * abs(objective) else -left
            number += 1
            found = Fit(point.coef, point.at.b, left, objective, min(number, max_rounds), epochs, left <= gap)
            if max_rounds == 0:
                break
            if self.spec.screen and l1 > 0.0:
                self._screen(pool, point, c, objective - dual, l1)
            told = {"round": number, "objective": objective, "gap": left, "pool": int(np.count_nonzero(pool))}
            if look is not None and look({**told, "coef": point.coef, "intercept": point.at.b}):
                break
            if found.converged or number >= max_rounds or self.crew.asked:
                break
            chosen = self._choose(pool, point, pull, l1)
            if not len(chosen):
                break
            tolerance = strict * self._tolerance(point, pull, pool, chosen, l1, left, gap)
            made = self._solve(point, chosen, l1, l2, tolerance)
            epochs += made
            # A set that was found good enough as it was must be solved more closely, whatever the estimate says.
            strict = strict if made > 1 else 0.2 * strict
            self._look(point, np.flatnonzero(pool).astype(np.int64))
        self._last = found, point
        return found

    def _begin(self, start: Fit | None) -> tuple[_Point, bool]:
        """A point to start from, and whether its pulls are those of all columns: after a fit, those of columns that
        were let go of are old.
        """
        if start is None:
            return _Point(self._zero.coef.copy(), self._zero.z.copy(), self._zero.at, self._zero.pull.copy()), True
        if self._last is not None and self._last[0] is start:
            last = self._last[1]
            return _Point(last.coef.copy(), last.z.copy(), last.at, last.pull.copy()), False
        point = _Point(start.coef.copy(), np.zeros(self.columns.n), self._zero.at, np.zeros(self.columns.p))
        point.coef[~self._usable] = 0.0
        self._predict(point, start.intercept)
        self._look(point, np.flatnonzero(self._usable).astype(np.int64))
        return point, True

    def _predict(self, point: _Point, b: float) -> None:
        """z and the loss at the point's coefficients, worked out anew."""
        point.z[:] = 0.0
        support = point.support
        if len(support):
            self.columns.add(support, point.coef[support], point.z)
        point.at = self.loss.look(point.z, b)

    def _look(self, point: _Point, which: Ints) -> None:
        """The pulls of these columns at the point."""
        self.columns.price(which, point.at.v, point.pull)
        self._centre(point.pull, which, point.at)

    def _centre(self, pull: Floats, which: Ints | slice, at: At) -> None:
        """Take off what rounding left in Σ v: zero with an intercept, but columns far from zero would magnify it."""
        if self.problem.intercept:
            with np.errstate(over="ignore", invalid="ignore"):  # said when the objective is looked at
                pull[which] -= self.mean[which] * float(np.sum(at.v))

    def _penalty(self, coef: Floats, l1: float, l2: float) -> float:
        scaled = self.scale * coef
        return float(l1 * np.sum(np.abs(scaled)) + 0.5 * l2 * np.sum(scaled * scaled))

    def _dual(self, point: _Point, pool: NDArray[np.bool_], l1: float, l2: float) -> tuple[float, float]:
        """The better of two dual values, and its c: θ = c·v at the largest c ≤ 1 that keeps every constraint and, with
        l2, where they are costs and not limits, at c = 1.
        """
        urge = self._urge(point.pull)[pool]
        top = float(np.max(urge, initial=0.0))
        c = min(1.0, l1 / top) if top > 0.0 else 1.0
        value = self.loss.dual(point.at, c)
        if l2 > 0.0:
            beyond = np.maximum(urge - l1, 0.0)
            whole = self.loss.dual(point.at, 1.0) - float(np.sum(beyond * beyond)) / (2.0 * l2)
            if whole > value:
                return whole, 1.0
        return value, c

    def _screen(self, pool: NDArray[np.bool_], point: _Point, c: float, gap: float, l1: float) -> None:
        """Take out of the pool what θ = c·v proves zero, whose own gap this is. The dual is strongly concave: its
        optimum lies in a ball around θ.
        """
        urge = self._urge(point.pull)
        # ∂²conj ≥ 1 for the squared loss, ≥ 4 for the logistic one, in units of the weights.
        radius = float(np.sqrt(2.0 * max(0.0, gap) / (1.0 if self.loss.quadratic else 4.0)))
        norm = self.norm / self.scale
        if not self.loss.quadratic and self.problem.intercept:
            norm = np.sqrt(norm**2 + float(np.sum(self.problem.weight)) * (self.mean / self.scale) ** 2)
        out = pool & self.spec.safe(c * urge, norm, np.full(len(urge), l1), radius) & (point.coef == 0.0)
        pool[out] = False

    def _choose(self, pool: NDArray[np.bool_], point: _Point, pull: Floats, l1: float) -> Ints:
        norm = np.where(self._usable, self.norm, 1.0)
        distance = (l1 - self._urge(pull)) * self.scale / norm
        distance[~pool] = np.inf
        return self.spec.choose(point.support, distance, self.columns.n, sparse=self.problem.design.sparse)

    def _tolerance(
        self, point: _Point, pull: Floats, pool: NDArray[np.bool_], chosen: Ints, l1: float, left: float, gap: float
    ) -> float:
        """To which violation a set is solved: at the end as the gap asks, before no closer than the columns that are
        left out deserve.
        """
        if l1 <= 0.0:
            # Without l1 the gap grows with the square of what is left.
            return 1e-3 * float(np.max(np.abs(pull), initial=0.0))
        size = l1 * float(np.sum(np.abs(self.scale * point.coef)))
        final = min(0.3, 0.3 * gap / max(size, left))  # the gap grows with this share of the penalty
        urge = np.where(pool, self._urge(pull), 0.0)
        beyond = float(np.max(urge, initial=0.0)) / l1 - 1.0
        if left <= 100.0 * gap or beyond <= 0.0:
            return l1 * final
        urge[chosen] = 0.0
        closed = float(np.max(urge, initial=0.0)) <= l1  # what pulls too hard is all in the set
        # More columns than samples: a loose solution would leave many of them with a little each, and the next set
        # would be larger still.
        crowded = len(chosen) > self.columns.n
        return l1 * max(final, (0.01 if closed else 0.05 if crowded else 0.3) * beyond)

    def _solve(self, point: _Point, chosen: Ints, l1: float, l2: float, tolerance: float) -> int:
        """Minimise over the chosen columns alone; sweeps and Newton steps made."""
        if self.loss.quadratic:
            done = self._model(point, chosen, l1, l2, self.problem.weight, tolerance)
            before, kept = point.at.value + self._penalty(point.coef, l1, l2), point.coef[chosen]
            point.coef[chosen] = done.b
            self._predict(point, point.at.b)
            if not point.at.value + self._penalty(point.coef, l1, l2) <= before + 1e-9 * abs(before):
                point.coef[chosen] = kept  # products too ill-conditioned to be of use
                self._predict(point, point.at.b)
                return 0
            return done.sweeps + done.newtons
        return self._newton(point, chosen, l1, l2, tolerance)

    def _newton(self, point: _Point, chosen: Ints, l1: float, l2: float, tolerance: float) -> int:
        """One quadratic model of the loss after another, each minimised and walked towards as far as the loss falls."""
        epochs = 0
        for turn in range(_NEWTONS):
            if turn:
                self._look(point, chosen)
            scale = self.scale[chosen]
            penalty, ridge = l1 * scale, l2 * scale * scale
            b = point.coef[chosen]
            slack = point.pull[chosen] - ridge * b
            worst = float(np.max(violations(b, slack, penalty, self.problem.positive) / scale, initial=0.0))
            if worst <= tolerance or self.crew.asked:
                break
            # What is zero and far from moving is left out of this model: products are made anew for each.
            near = np.flatnonzero((b != 0.0) | ((slack if self.problem.positive else np.abs(slack)) >= _NEAR * penalty))
            few, b = chosen[near], b[near]
            done = self._model(point, few, l1, l2, point.at.d, max(0.3 * tolerance, 0.1 * worst))
            epochs += done.sweeps + done.newtons
            change = done.b - b
            moved = np.flatnonzero(change)
            if not len(moved):
                break
            way = np.zeros(self.columns.n)
            self.columns.add(few[moved], change[moved], way)
            before = point.at.value + self._penalty(point.coef, l1, l2)
            fall = float(np.sum(penalty[near] * (np.abs(done.b) - np.abs(b))) - np.sum(slack[near] * change))
            if not self._walk(point, few, b, change, way, before, fall, l1, l2):
                break
        return epochs

    def _walk(
        self, point: _Point, chosen: Ints, b: Floats, change: Floats, way: Floats, before: float, fall: float,
        l1: float, l2: float,
    ) -> bool:  # fmt: skip
        """Go as far along the way as the objective falls by a fair part of what the model promised; whether it did."""
        z, t = point.z, 1.0
        coef = point.coef.copy()
        while t > 1e-6:
            coef[chosen] = b + t * change if t < 1.0 else b + change
            at = self.loss.look(z + t * way, point.at.b)
            if at.value + self._penalty(coef, l1, l2) <= before + 1e-3 * t * fall + 1e-15 * abs(before):
                point.coef, point.z, point.at = coef, z + t * way, at
                return True
            t *= 0.5
        return False

    def _model(self, point: _Point, chosen: Ints, l1: float, l2: float, d: Floats, tolerance: float) -> Minimum:
        """Minimise the quadratic model with curvature d over the chosen columns."""
        scale = self.scale[chosen]
        penalty, ridge = l1 * scale, l2 * scale * scale
        mean = self._means(chosen, d)
        b = point.coef[chosen]
        if not self._tabled(chosen):
            model = Model(
                self.columns, chosen, point.at.v, d, mean[chosen], penalty, ridge, scale, self.problem.positive
            )
            return minimise_swept(model, b, tolerance)
        if not self.loss.quadratic:
            self._gram.renew(d, mean)
        H = self._gram.of(chosen)
        diagonal = np.arange(len(chosen))
        H[diagonal, diagonal] += ridge
        q = point.pull[chosen] - ridge * b + _times(H, b)
        return minimise(self.crew, self.profile, H, q, penalty, scale, b, tolerance, positive=self.problem.positive)

    def _means(self, chosen: Ints, d: Floats) -> Floats:
        """[p] means of the chosen columns under the curvatures d; zeros without an intercept."""
        if self.loss.quadratic or not self.problem.intercept:
            return self.mean
        mean = np.empty(self.columns.p)
        self.columns.price(chosen, d, mean)
        mean[chosen] /= float(np.sum(d))
        return mean

    def _tabled(self, chosen: Ints) -> bool:
        """Whether to work with a table of inner products: a sweep over it costs k² quick steps, one over the data as
        many slow ones as there are entries.
        """
        k = len(chosen)
        entries = int(self.columns.entries[chosen].sum())
        return k <= self._gram.limit and k * k <= max(
            512 * 512, 8 * entries if self.columns.design.sparse else 4 * entries
        )


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
