"""Sparse regression by working sets: the solver behind `Lasso`, `ElasticNet` and `LogisticRegression`.

    min over β, b:   Σ_i weight_i·loss(y_i, x_i·β + b)  +  l1·Σ_j scale_j|β_j|  +  ½·l2·Σ_j (scale_j β_j)²

A round evaluates all columns that are still in the pool, which gives the duality gap; drops those the gap proves zero;
picks the columns nearest to their constraints (`schedule/working_sets.py`); and solves for these alone, starting from
where it stands. It ends when the gap is small enough, which is a proof and not a guess.

Solving for a set (`solvers/newton.py`) means: a quadratic model of the loss, exact for the squared one, in which the
columns enter through their inner products (`solvers/gram.py`), minimised by sweeps and Newton steps
(`kernels/quadratic.py`). Sets too large for a table of inner products are swept over the data itself
(`solvers/sweeping.py`). With the logistic loss and sparse columns a round takes all columns of the pool and makes one
Newton step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.errors import RunError
from stretto.runtime.crew import Crew
from stretto.schedule.working_sets import WorkingSets

from .newton import SetSolver
from .point import Point, Setting
from .regression import Fit, Problem

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

# Columns whose products are kept: half a gigabyte. A constant, since what is kept can change the last bit.
_SLOTS = 8192
_ROUNDING = 2.0**-46  # of the objective at zero: a gap below that cannot be told from rounding, so none is asked for
_IDLE = 20  # rounds that change nothing, each stricter than the last, after which no other will


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
        self.problem, self.crew = problem, crew
        self.spec = schedule if schedule is not None else WorkingSets()
        self.setting = Setting(problem, crew, profile)
        # A Newton step takes a few sweeps; beside them it costs little to evaluate all sparse columns after every one.
        self._whole = schedule is None and problem.design.sparse and not self.setting.loss.quadratic
        self._sets = SetSolver(self.setting, slots)
        self._last: tuple[Fit, Point] | None = None

    def largest_l1(self) -> float:
        """The smallest l1 at which β = 0."""
        return float(np.max(self._urge(self.setting.zero.pulls)[self.setting.usable], initial=0.0))

    def _urge(self, pull: Floats) -> Floats:
        """How hard each column is pulled, in units of the penalty."""
        return (pull if self.problem.positive else np.abs(pull)) / self.setting.scale

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
    ) -> Fit:
        """Solve to a duality gap of `gap`, and of `share` times the objective, from `start` (else from zero).

        look(state) receives the state after every round: round, objective, gap, goal, coef, intercept, how many columns
        are in the pool; it ends the fit by returning True. max_rounds=0 measures the start and changes nothing.
        """
        setting = self.setting
        least = _ROUNDING * setting.zero.at.value
        point, known = self._begin(start)
        pool = setting.usable.copy()
        best_dual, epochs, number, idle = -np.inf, 0, 0, 0
        if not known:
            # Along a path the last penalty's pulls say well enough where to begin; a look at all columns comes after.
            if max_rounds > 0 and l1 > 0.0:
                pull = point.pulls - l2 * setting.scale**2 * point.coef
                size = l1 * float(np.sum(np.abs(setting.scale * point.coef)))
                tolerance = l1 * min(0.3, 0.3 * gap / max(size, gap, 1e-300))
                epochs = self._sets.solve(point, self._choose(pool, point, pull, l1), l1, l2, tolerance)
            setting.pull(point, np.flatnonzero(pool).astype(np.int64))
        strict = 1.0
        while True:
            pull = point.pulls - l2 * setting.scale**2 * point.coef if l2 else point.pulls
            objective = setting.objective(point, l1, l2)
            if not np.isfinite(objective):
                raise RunError("the objective is not finite; standardize=True may help, or look for huge values in X")
            dual, c = self._dual(point, pool, l1, l2)
            best_dual = max(best_dual, dual)
            left = objective - best_dual
            if left < 0.0:
                # Below zero by more than rounding the two contradict each other, and the gap is no better than that.
                left = 0.0 if -left <= 1e-10 * abs(objective) else -left
            number += 1
            goal = min(gap, max(share * objective, least))
            found = Fit(point.coef, point.at.b, left, objective, min(number, max_rounds), epochs, left <= goal, goal)
            if max_rounds == 0:
                break
            if self.spec.screen and l1 > 0.0:
                self._screen(pool, point, c, objective - dual, l1)
            state: dict[str, Any] = {"round": number, "objective": objective, "gap": left, "goal": goal}
            state |= {"coef": point.coef, "intercept": point.at.b, "pool": int(np.count_nonzero(pool))}
            if look is not None and look(state):
                break
            if found.converged or number >= max_rounds or self.crew.asked or idle == _IDLE:
                break
            chosen = np.flatnonzero(pool).astype(np.int64) if self._whole else self._choose(pool, point, pull, l1)
            if not len(chosen):
                break
            tolerance = strict * self._tolerance(point, pull, pool, chosen, l1, left, goal)
            before = point.coef[chosen]
            made = self._sets.solve(point, chosen, l1, l2, tolerance, once=self._whole)
            epochs += made
            idle = idle + 1 if np.array_equal(point.coef[chosen], before) else 0
            # A set that was found good enough as it was must be solved more closely, whatever the estimate says.
            strict = strict if made > int(setting.loss.quadratic) else 0.2 * strict
            setting.pull(point, np.flatnonzero(pool).astype(np.int64))
        self._last = found, point
        return found

    def _begin(self, start: Fit | None) -> tuple[Point, bool]:
        """A point to start from, and whether its pulls are those of all columns: after a fit, those of columns that
        left the pool are old.
        """
        self._sets.start()
        if start is None:
            return self.setting.zero.copy(), True
        if self._last is not None and self._last[0] is start:
            return self._last[1].copy(), False
        return self.setting.stand(start.coef, start.intercept), True

    def _dual(self, point: Point, pool: NDArray[np.bool_], l1: float, l2: float) -> tuple[float, float]:
        """The better of two dual values, and its c: θ = c·v at the largest c ≤ 1 that keeps every constraint and, with
        l2, where they are costs and not limits, at c = 1.
        """
        urge = self._urge(point.pulls)[pool]
        top = float(np.max(urge, initial=0.0))
        c = min(1.0, l1 / top) if top > 0.0 else 1.0
        value = self.setting.loss.dual(point.at, c)
        if l2 > 0.0:
            beyond = np.maximum(urge - l1, 0.0)
            whole = self.setting.loss.dual(point.at, 1.0) - float(np.sum(beyond * beyond)) / (2.0 * l2)
            if whole > value:
                return whole, 1.0
        return value, c

    def _screen(self, pool: NDArray[np.bool_], point: Point, c: float, gap: float, l1: float) -> None:
        """Take out of the pool what θ = c·v proves zero, whose own gap this is. The dual is strongly concave: its
        optimum lies in a ball around θ.
        """
        urge = self._urge(point.pulls)
        # ∂²conj ≥ 1 for the squared loss, ≥ 4 for the logistic one, in units of the weights.
        radius = float(np.sqrt(2.0 * max(0.0, gap) / (1.0 if self.setting.loss.quadratic else 4.0)))
        norm = self.setting.norm / self.setting.scale
        if not self.setting.loss.quadratic and self.problem.intercept:
            norm = np.sqrt(norm**2 + float(np.sum(self.problem.weight)) * (self.setting.mean / self.setting.scale) ** 2)
        out = pool & self.spec.safe(c * urge, norm, np.full(len(urge), l1), radius) & (point.coef == 0.0)
        pool[out] = False

    def _choose(self, pool: NDArray[np.bool_], point: Point, pull: Floats, l1: float) -> Ints:
        norm = np.where(self.setting.usable, self.setting.norm, 1.0)
        distance = (l1 - self._urge(pull)) * self.setting.scale / norm
        distance[~pool] = np.inf
        return self.spec.choose(point.support, distance, self.setting.columns.n, sparse=self.problem.design.sparse)

    def _tolerance(
        self, point: Point, pull: Floats, pool: NDArray[np.bool_], chosen: Ints, l1: float, left: float, gap: float
    ) -> float:
        """To which violation a set is solved: at the end as the gap asks, before no closer than the columns that are
        left out deserve.
        """
        if l1 <= 0.0:
            # Without l1 the gap grows with the square of what is left.
            return 1e-3 * float(np.max(np.abs(pull), initial=0.0))
        size = l1 * float(np.sum(np.abs(self.setting.scale * point.coef)))
        final = min(0.3, 0.3 * gap / max(size, left))  # the gap grows with this share of the penalty
        urge = np.where(pool, self._urge(pull), 0.0)
        beyond = float(np.max(urge, initial=0.0)) / l1 - 1.0
        if left <= 100.0 * gap or beyond <= 0.0:
            return l1 * final
        urge[chosen] = 0.0
        closed = float(np.max(urge, initial=0.0)) <= l1  # what pulls too hard is all in the set
        # More columns than samples: a loose solution would leave many of them with a little each, and the next set
        # would be larger still.
        crowded = len(chosen) > self.setting.columns.n
        return l1 * max(final, (0.01 if closed else 0.05 if crowded else 0.3) * beyond)
