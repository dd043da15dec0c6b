"""Least squares with penalties of groups: the solver behind `GroupLasso`, `MultiTaskLasso` and `MultiTaskElasticNet`.

A round evaluates all columns that are still in the pool, which gives the duality gap. It drops groups that the gap
proves zero, and minimises over a working set of groups (`descent.py`). The fit ends when the gap is small enough.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.errors import RunError
from stretto.kernels.linear.groups import columns as group_columns
from stretto.runtime.blocks.crew import Crew
from stretto.schedule.working_sets import WorkingSets

from ..losses.loss import LossPoint
from ..newton import permitted
from ..point import inside
from ..regression import ROUNDING, Fit, Request, spread_of_target, uniform
from .descent import GroupDescent, GroupPenalty
from .point import GroupPoint, PreparedGroups
from .problem import GroupProblem

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_IDLE = 20  # rounds without change, each stricter than the last, after which the fit ends
_LEAST = 10  # groups of the first set, at least
_OUTSIDE = 0.1  # share of the largest violation outside a set to which the set is solved


@dataclass
class _Progress:
    """State of a fit between two rounds."""

    point: GroupPoint
    pool: NDArray[np.bool_]  # [G] groups that are not proven zero
    epochs: int = 0  # sweeps so far
    dual: float = -np.inf  # the best dual value so far
    strict: float = 1.0  # factor by which sets are solved more closely than the estimate requires
    number: int = 0  # rounds completed
    idle: int = 0  # number of last rounds without change


class GroupSolver:
    """A solver for one problem at any number of penalties."""

    def __init__(self, problem: GroupProblem, crew: Crew, *, profile: str = "exact") -> None:
        if uniform(problem.weight):
            problem = replace(problem, weight=np.array(problem.weight))
        self.problem, self.crew = problem, crew
        self.setting = PreparedGroups(problem, crew, profile)
        self._descent = GroupDescent(self.setting)
        sizes = self.setting.groups.sizes
        typical = max(1.0, len(self.setting.column) / max(1, len(sizes)))
        self._samples = max(1, int(self.setting.columns.n / typical))  # in units of groups
        first = WorkingSets().start_size(len(self.setting.column), problem.design.sparse)
        self.spec = WorkingSets(first=max(_LEAST, int(first / typical)))
        self._now: _Progress | None = None  # of the running fit, or of a restored one

    def largest_l1(self) -> float:
        """The smallest l1 at which W = 0."""
        setting, within = self.setting, self.problem.within
        factor = (1.0 - within) * setting.groups.factor
        low, high = 0.0, 1.0
        while self._allowed(setting.zero, GroupPenalty(high * factor, high * within, 0.0)) < 1.0:
            low, high = high, 2.0 * high
        for _ in range(60):
            middle = 0.5 * (low + high)
            fits = self._allowed(setting.zero, GroupPenalty(middle * factor, middle * within, 0.0)) >= 1.0
            low, high = (low, middle) if fits else (middle, high)
        return high

    def _allowed(self, point: GroupPoint, penalty: GroupPenalty) -> float:
        """The largest c ≤ 1 at which c·v satisfies every constraint of the dual."""
        return self._measure(np.arange(len(penalty.group_l1)), point, penalty, 1.0)[1]

    def _measure(self, which: Ints, point: GroupPoint, penalty: GroupPenalty, c: float) -> tuple[Floats, float]:
        """‖soft(c·A_g, l1)‖ of each group of `which` [G], and `_allowed` among them."""
        setting = self.setting
        norm, ratio = np.zeros(len(penalty.group_l1)), np.ones(1)
        group_columns.measure_groups[setting.profile](
            which, setting.groups.bounds, point.A, penalty.group_l1, penalty.l1, c, norm, ratio
        )
        return norm, float(ratio[0])

    def target_spread(self) -> tuple[float, float, float]:
        """Mean of the targets, Σ weight (y − mean)² and Σ weight |y − mean|; summed over the outputs."""
        parts = [spread_of_target(replace(self.problem, y=y)) for y in self.problem.y]
        means, squares, sizes = np.array(parts).T
        return float(np.max(np.abs(means))), float(np.sum(squares)), float(np.sum(sizes))

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
        ended: Callable[[], None] | None = None,
    ) -> Fit:
        """`WorkingSetSolver.fit`, with coefficients [k, p] and intercepts [k]."""
        within = self.problem.within
        penalty = GroupPenalty(l1 * (1.0 - within) * self.setting.groups.factor, l1 * within, l2)
        if self._now is None:
            point = self.setting.zero.copy() if start is None else self._begin(start)
            self._now = _Progress(point, np.ones(len(penalty.group_l1), bool))
        try:
            return self._rounds(self._now, penalty, Request(l1, l2, gap, share, max_rounds, look, ended))
        finally:
            self._now = None

    def _begin(self, start: Fit) -> GroupPoint:
        """The point with the coefficients [k, p] of a fit."""
        setting, point = self.setting, self.setting.zero.copy()
        point.W = np.ascontiguousarray(start.coef[:, setting.column].T)
        point.b = np.array(start.intercept, np.float64)
        setting.predict(point)
        setting.price(point, np.arange(len(setting.column)))
        return point

    def _rounds(self, at: _Progress, penalty: GroupPenalty, request: Request) -> Fit:
        """Run the rounds of a fit from its current state."""
        setting, point = self.setting, at.point
        least = ROUNDING * setting.zero.loss
        while True:
            live = np.flatnonzero(at.pool)
            norm, c = self._measure(live, point, penalty, 1.0)
            objective = point.loss + penalty.value(point.W, setting.groups.bounds)
            if not np.isfinite(objective):
                raise RunError("the objective is not finite; look for huge values in X")
            dual, c = self._dual(point, norm[live], penalty, c, live)
            at.dual = max(at.dual, dual)
            left = objective - at.dual
            if left < 0.0:
                # A gap below zero by more than rounding is a contradiction; the true gap is known to this size only.
                left = 0.0 if -left <= 1e-10 * abs(objective) else -left
            at.number += 1
            goal = request.goal(objective, least)
            rounds = min(at.number, request.max_rounds)
            found = self._fit(point, left, objective, rounds, at.epochs, goal)
            if not found.converged and request.max_rounds > 0:
                self._screen(at.pool, live, point, penalty, c, objective - dual)
            if request.report(found, at.number, int(np.count_nonzero(at.pool))):
                break
            if found.converged or at.number >= request.max_rounds or self.crew.asked or at.idle == _IDLE:
                break
            chosen = self._choose(at.pool, point, norm, penalty)
            if not len(chosen):
                break
            before = point.W.copy()
            tolerance = at.strict * self._tolerance(point, at.pool, norm, penalty, left, goal)
            made = self._descent.solve(point, chosen, penalty, tolerance)
            at.epochs += made
            at.idle = at.idle + 1 if np.array_equal(point.W, before) else 0
            # A set that already met its tolerance must be solved more closely, whatever the estimate.
            at.strict = at.strict if made > 1 else 0.2 * at.strict
            setting.price(point, np.flatnonzero(at.pool[setting.group_of]))
            if request.ended is not None:
                request.ended()
        return found

    def _fit(self, point: GroupPoint, gap: float, objective: float, rounds: int, epochs: int, goal: float) -> Fit:
        """The fit as it is; coefficients of constant columns are zero."""
        coef = np.zeros((self.setting.outputs, self.problem.design.shape[1]))
        coef[:, self.setting.column] = point.W.T
        return Fit(coef, point.b.copy(), gap, objective, rounds, epochs, gap <= goal, goal)

    def _dual(
        self, point: GroupPoint, norm: Floats, penalty: GroupPenalty, c: float, live: Ints
    ) -> tuple[float, float]:
        """The better of two dual values, and its c, as in `WorkingSetSolver`: feasible, or penalised by the ridge."""
        value = self._dual_loss(point, c) if c > 0.0 else 0.0
        if penalty.l2 > 0.0:
            beyond = np.maximum(norm - penalty.group_l1[live], 0.0)
            whole = self._dual_loss(point, 1.0) - float(np.sum(beyond * beyond)) / (2.0 * penalty.l2)
            if whole > value:
                return whole, 1.0
        return value, c

    def _dual_loss(self, point: GroupPoint, c: float) -> float:
        """The loss's part of the dual objective at c·v."""
        total = 0.0
        for t, loss in enumerate(self.setting.losses):
            at = LossPoint(0.0, float(point.b[t]), point.v[t], self.problem.weight)
            total += loss.dual(at, c, point.z[t])
        return total

    def _screen(
        self, pool: NDArray[np.bool_], live: Ints, point: GroupPoint, penalty: GroupPenalty, c: float, gap: float
    ) -> None:
        """Remove groups from the pool that θ = c·v, with this gap, proves zero."""
        norm, _ = self._measure(live, point, penalty, c)
        radius = float(np.sqrt(2.0 * max(0.0, gap)))
        out = pool & (norm + radius * self.setting.length < penalty.group_l1)
        out[self._support(point)] = False
        pool[out] = False

    def _support(self, point: GroupPoint) -> Ints:
        """Groups with a coefficient other than zero."""
        on = np.flatnonzero((point.W != 0.0).any(axis=1))
        return np.unique(self.setting.group_of[on])

    def _choose(self, pool: NDArray[np.bool_], point: GroupPoint, norm: Floats, penalty: GroupPenalty) -> Ints:
        """The groups to solve for next: those that are not zero, and those nearest to moving."""
        if not (penalty.group_l1.any() or penalty.l1):
            return np.flatnonzero(pool)
        length = self.setting.length
        with np.errstate(over="ignore"):  # too far to enter
            # A length is 0 where squares of tiny values are.
            distance = (penalty.group_l1 - norm) / np.where(length > 0.0, length, 1.0)
        distance[~pool] = np.inf
        sparse = self.problem.design.sparse
        return self.spec.choose(self._support(point), distance, self._samples, sparse=sparse)

    def _tolerance(
        self, point: GroupPoint, pool: NDArray[np.bool_], norm: Floats, penalty: GroupPenalty, left: float, gap: float
    ) -> float:
        """The violation to which a set is solved: by the requested gap, or by the violations outside the set."""
        if not (penalty.group_l1.any() or penalty.l1):
            # Without l1 the gap is Σ violation² / 2 l2, so this share of the largest one permitted reaches it.
            return 0.9 * float(np.sqrt(2.0 * penalty.l2 * gap / max(1, len(norm))))
        size = penalty.value(point.W, self.setting.groups.bounds)
        final = permitted(max(size, left), gap)
        with np.errstate(over="ignore"):  # a tiny penalty; the tolerance must be finite
            beyond = float(np.max(np.where(pool, (norm - penalty.group_l1) / penalty.unit, 0.0), initial=0.0))
        return final if left <= 100.0 * gap else max(final, _OUTSIDE * min(beyond, float(np.finfo(np.float64).max)))

    def state(self) -> dict[str, NDArray[Any]]:
        """Everything that decides later rounds of the running fit."""
        if (at := self._now) is None:
            return {}
        point = at.point
        found = {"W": point.W, "z": point.z, "b": point.b, "v": point.v, "A": point.A, "pool": at.pool}
        found["numbers"] = np.array([point.loss, at.dual, at.strict])
        found["counts"] = np.array([at.epochs, at.number, at.idle], np.int64)
        return found | {f"gram/{name}": array for name, array in self._descent.gram.state(keep=True).items()}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> Fit | None:
        """Continue from a saved `state`."""
        if not state:
            return None
        loss, dual, strict = state["numbers"].tolist()
        epochs, number, idle = state["counts"].tolist()
        W, z, b, v, A = (np.array(state[name]) for name in "WzbvA")
        self._now = _Progress(
            GroupPoint(W, z, b, v, loss, A), np.array(state["pool"]), epochs, dual, strict, number, idle
        )
        self._descent.gram.restore(inside(state, "gram"), self.problem.weight)
        return None
