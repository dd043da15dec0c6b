"""Sparse regression by working sets: the solver behind `Lasso`, `ElasticNet`, `LogisticRegression` and others.

    min over β, b:   Σ_i weight_i·loss(y_i, x_i·β + b)  +  l1·Σ_j scale_j|β_j|  +  ½·l2·Σ_j (scale_j β_j)²

A round evaluates all columns that are still in the pool, which gives the duality gap. It drops columns that the gap
proves zero, and minimises over a working set of columns alone, starting from the current point. The fit ends when the
gap, a proven bound, is small enough. With the squared loss, sweeps over all columns that violate their constraints find
the set (`solvers/linear/reduced/entering.py`). Otherwise, and with a schedule of the user, it is the columns nearest to
their constraints (`schedule/working_sets.py`).

To minimise over a working set (`solvers/linear/newton.py`), the solver builds a quadratic model of the loss, exact for
the squared loss. It computes the columns' inner products (`solvers/linear/gram.py`) and minimises by sweeps and Newton
steps (`kernels/linear/quadratic.py`). For sets too large for a Gram matrix it sweeps over the data
(`solvers/linear/sweeping.py`). With another loss and sparse columns a round takes all columns of the pool and
makes one Newton step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.cached import cached_property
from stretto.errors import RunError
from stretto.runtime.blocks.crew import Crew
from stretto.schedule.working_sets import WorkingSets

from .newton import NEAR, SetSolver, permitted
from .point import LinearPoint, PreparedProblem, inside
from .reduced.entering import candidates, enter
from .reduced.row_space import reduced_start, suits
from .regression import (
    ROUNDING,
    Fit,
    RegressionProblem,
    Request,
    restored_fit,
    saved_fit,
    spread_of_target,
    uniform,
)

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

# Columns whose products are kept: half a gigabyte. A constant, because the number kept can change the last bit.
_SLOTS = 8192
_LOOSE = 0.05  # violations that sweeps leave, as a share of l1, at most: with all that violate, few others follow
# The same over sparse columns, as a share of the largest violation: finding new ones costs no more than a few sweeps.
_SHARE = 0.05
_KNOWN = 0.8  # of a set of sparse columns have kept products: Newton steps on these cost less than sweeps
_IDLE = 20  # rounds without change, each stricter than the last, after which the fit ends


@dataclass
class _Progress:
    """State of a fit between two rounds."""

    point: LinearPoint
    pool: NDArray[np.bool_]  # [p] columns that are not proven zero
    epochs: int = 0  # sweeps and Newton steps so far
    dual: float = -np.inf  # the best dual value so far
    strict: float = 1.0  # factor by which sets are solved more closely than the estimate requires
    number: int = 0  # rounds completed
    idle: int = 0  # number of last rounds without change


class WorkingSetSolver:
    """A solver for one problem at any number of penalties; along a path, keep it: it stores inner products."""

    def __init__(
        self,
        problem: RegressionProblem,
        crew: Crew,
        *,
        profile: str = "exact",
        schedule: WorkingSets | None = None,
        slots: int = _SLOTS,
    ) -> None:
        if uniform(problem.weight):
            problem = replace(problem, weight=np.array(problem.weight))
        self.problem, self.crew = problem, crew
        self.spec = schedule if schedule is not None else WorkingSets()
        self.setting = PreparedProblem(problem, crew, profile)
        self._free = schedule is None and not self.setting.loss.quadratic  # sets may be of any size
        # A Newton step takes a few sweeps; compared with them, evaluating all sparse columns after each is cheap.
        self._whole = self._free and problem.design.sparse
        self._sweeps = schedule is None and self.setting.loss.quadratic  # sets are found by sweeps
        self._sets = SetSolver(self.setting, slots)
        self._last: tuple[Fit, LinearPoint] | None = None
        self._now: _Progress | None = None  # of the running fit, or of a restored one

    def largest_l1(self) -> float:
        """The smallest l1 at which β = 0."""
        return float(np.max(self._urge(self.setting.zero.pulls)[self.setting.usable], initial=0.0))

    def target_spread(self) -> tuple[float, float, float]:
        """Mean of y (zero without an intercept), Σ weight (y − mean)² and Σ weight |y − mean|."""
        return spread_of_target(self.problem)

    def _urge(self, pull: Floats) -> Floats:
        """Absolute gradient of each column, in units of the penalty."""
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
        ended: Callable[[], None] | None = None,
    ) -> Fit:
        """Solve to a duality gap of `gap`, and of `share` times the objective, from `start` (else from zero).

        look(state) receives the state after every round: round, objective, gap, goal, coef, intercept, how many columns
        are in the pool; it ends the fit by returning True. max_rounds=0 measures the start and changes nothing.
        ended() is called between two rounds, when `state` may be saved. After `restore` in the middle of a fit, this
        continues from there and ignores `start`.
        """
        if self._now is None and start is None and max_rounds > 0 and suits(self.setting, l1, l2):
            least = ROUNDING * self.setting.zero.at.value
            start = reduced_start(self.setting, l2, float(gap), float(share), least, max_rounds)
        self._now = self._now or self._started(l1, l2, gap, max_rounds, start)
        try:
            found = self._rounds(self._now, Request(l1, l2, gap, share, max_rounds, look, ended))
            self._last = found, self._now.point
        finally:
            self._now = None
        return found

    def _rounds(self, at: _Progress, request: Request) -> Fit:
        """Run the rounds of a fit from its current state."""
        setting, l1, l2 = self.setting, request.l1, request.l2
        least = max(ROUNDING * setting.zero.at.value, setting.loss.rounding)
        point, pool = at.point, at.pool
        while True:
            pull = point.pulls - l2 * setting.scale**2 * point.coef if l2 else point.pulls
            objective = setting.objective(point, l1, l2)
            if not np.isfinite(objective):
                raise RunError("the objective is not finite; standardize=True may help, or look for huge values in X")
            dual, c = self._dual(point, pool, l1, l2)
            at.dual = max(at.dual, dual)
            left = objective - at.dual
            if left < 0.0:
                # A gap below zero by more than rounding is a contradiction; the true gap is known to this size only.
                left = 0.0 if -left <= 1e-10 * abs(objective) else -left
            at.number += 1
            goal = request.goal(objective, least)
            rounds = min(at.number, request.max_rounds)
            found = Fit(point.coef, point.at.b, left, objective, rounds, at.epochs, left <= goal, goal)
            if self.spec.screen and l1 > 0.0 and not found.converged and request.max_rounds > 0:
                self._screen(pool, point, c, objective - dual, l1)
            if request.report(found, at.number, int(np.count_nonzero(pool))):
                break
            if found.converged or at.number >= request.max_rounds or self.crew.asked or at.idle == _IDLE:
                break
            every = self._whole or (l1 <= 0.0 and self._free)  # without l1 no coefficient is zero
            before, made = point.coef.copy(), 0
            if self._sweeps and l1 > 0.0:
                chosen = candidates(self._urge(pull), pool, point.coef, l1, setting.columns.entries)
                tolerance = at.strict * self._swept_to(point, pull, pool, chosen, l1, l2, left, goal)
                made = self._enter(point, chosen, l1, l2, tolerance, at.number > 1)
            if not made:
                if every and l1 > 0.0:
                    chosen = np.flatnonzero(pool & ((point.coef != 0.0) | (self._urge(pull) >= NEAR * l1)))
                elif every:
                    chosen = np.flatnonzero(pool)
                else:
                    chosen = self._choose(pool, point, pull, l1)
                if not len(chosen):
                    break
                tolerance = at.strict * self._tolerance(point, pull, pool, chosen, l1, l2, left, goal)
                made = self._sets.solve(
                    point, chosen, l1, l2, tolerance, once=self._whole, gap=at.strict * goal, left=left
                )
            at.epochs += made
            at.idle = at.idle + 1 if np.array_equal(point.coef, before) else 0
            # A set that already met its tolerance must be solved more closely, whatever the estimate.
            at.strict = at.strict if made > int(setting.loss.quadratic) else 0.2 * at.strict
            setting.pull(point, np.flatnonzero(pool).astype(np.int64))
            if request.ended is not None:
                request.ended()
        return found

    def _started(self, l1: float, l2: float, gap: float, max_rounds: int, start: Fit | None) -> _Progress:
        """The initial state of a fit."""
        setting = self.setting
        self._sets.start()
        point, known = self._begin(start)
        at = _Progress(point, setting.usable.copy())
        if not known:
            # Along a path the last penalty's gradients are a good enough start; all columns are evaluated afterwards.
            if max_rounds > 0 and l1 > 0.0:
                pull = point.pulls - l2 * setting.scale**2 * point.coef if l2 else point.pulls
                size = l1 * float(np.sum(np.abs(setting.scale * point.coef)))
                tolerance = l1 * min(0.3, 0.3 * gap / max(size, gap, 1e-300))
                if self._sweeps:
                    chosen = candidates(self._urge(pull), at.pool, point.coef, l1, setting.columns.entries)
                    at.epochs = self._enter(point, chosen, l1, l2, tolerance, True)
                if not at.epochs:
                    at.epochs = self._sets.solve(point, self._choose(at.pool, point, pull, l1), l1, l2, tolerance)
            setting.pull(point, setting.columns_in_use)
        return at

    def _enter(self, point: LinearPoint, which: Ints, l1: float, l2: float, tolerance: float, later: bool) -> int:
        """Sweep over these columns, and solve for those that remain if that is not enough.

        Returns the sweeps and Newton steps made; 0 if the point is as it was.
        """
        columns = self.setting.columns
        if columns.sparse and len(which):
            known = self._sets.known(which)
            if later and known >= _KNOWN:
                return self._sets.solve(point, which, l1, l2, tolerance)
            later = known > 0.0
        first = self.spec.start_size(columns.p, columns.sparse)
        entered = enter(self.setting, point, which, l1, l2, tolerance, first, later=later) if len(which) else None
        if entered is None:
            return 0
        made = entered.sweeps
        return made if entered.solved else made + self._sets.solve(point, entered.which, l1, l2, tolerance)

    def state(self) -> dict[str, NDArray[Any]]:
        """Everything that decides later rounds: of the running fit, or of the next one along a path."""
        if (at := self._now) is not None:
            found = {f"point/{name}": array for name, array in at.point.state().items()}
            found |= {f"sets/{name}": array for name, array in self._sets.state(at.point).items()}
            counts = np.array([at.epochs, at.number, at.idle], np.int64)
            return found | {"pool": at.pool, "numbers": np.array([at.dual, at.strict]), "counts": counts}
        if self._last is None:
            return {}
        fit, point = self._last
        found = {f"point/{name}": array for name, array in point.state().items()}
        found |= {f"sets/{name}": array for name, array in self._sets.state(None).items()}
        return found | saved_fit(fit)

    def restore(self, state: Mapping[str, NDArray[Any]]) -> Fit | None:
        """Continue from a saved `state`; return the last fit, from which the next one along the path starts."""
        if not state:
            return None
        point = self.setting.restored(inside(state, "point"))
        self._sets.restore(inside(state, "sets"), point)
        if "pool" in state:
            (dual, strict), (epochs, number, idle) = state["numbers"].tolist(), state["counts"].tolist()
            self._now = _Progress(point, np.array(state["pool"]), epochs, dual, strict, number, idle)
            return None
        fit = restored_fit(point.coef, state)
        self._last = fit, point
        return fit

    def _begin(self, start: Fit | None) -> tuple[LinearPoint, bool]:
        """The starting point, and whether its gradients are current for all columns.

        After a fit, gradients of columns that left the pool are out of date.
        """
        if start is None:
            return self.setting.zero.copy(), True
        if self._last is not None and self._last[0] is start:
            return self._last[1].copy(), False
        return self.setting.stand(start.coef, start.intercept), True

    def _dual(self, point: LinearPoint, pool: NDArray[np.bool_], l1: float, l2: float) -> tuple[float, float]:
        """The better of two dual values, and its c.

        One is θ = c·v at the largest c ≤ 1 that satisfies every constraint. With l2, constraints are penalties, and
        c = 1 is the other.
        """
        urge = self._urge(point.pulls)
        top = float(np.max(urge * pool, initial=0.0))
        c = min(1.0, l1 / top) if top > 0.0 else 1.0
        value = self.setting.loss.dual(point.at, c, point.z) if c > 0.0 else 0.0
        if l2 > 0.0:
            beyond = np.maximum(urge[pool] - l1, 0.0)
            whole = self.setting.loss.dual(point.at, 1.0, point.z) - float(np.sum(beyond * beyond)) / (2.0 * l2)
            if whole > value:
                return whole, 1.0
        return value, c

    def _screen(self, pool: NDArray[np.bool_], point: LinearPoint, c: float, gap: float, l1: float) -> None:
        """Remove columns from the pool that θ = c·v, with this gap, proves zero.

        The dual is strongly concave, so its optimum is within a ball around θ.
        """
        if (bend := self.setting.loss.bend) == 0.0:
            return
        urge = self._urge(point.pulls)
        radius = float(np.sqrt(2.0 * max(0.0, gap) / bend))
        out = pool & self.spec.safe(c * urge, self._lengths, np.asarray(l1), radius) & (point.coef == 0.0)
        pool[out] = False

    @cached_property
    def _lengths(self) -> Floats:
        """[p] norms of the columns in units of the penalty: about zero for the logistic loss."""
        norm: Floats = self.setting.norm / self.setting.scale
        if not self.setting.loss.quadratic and self.problem.intercept:
            norm = np.sqrt(norm**2 + float(np.sum(self.problem.weight)) * (self.setting.mean / self.setting.scale) ** 2)
        return norm

    def _choose(self, pool: NDArray[np.bool_], point: LinearPoint, pull: Floats, l1: float) -> Ints:
        norm = np.where(self.setting.usable, self.setting.norm, 1.0)
        distance = (l1 - self._urge(pull)) * self.setting.scale / norm
        distance[~pool] = np.inf
        return self.spec.choose(point.support, distance, self.setting.columns.n, sparse=self.problem.design.sparse)

    def _swept_to(
        self,
        point: LinearPoint,
        pull: Floats,
        pool: NDArray[np.bool_],
        chosen: Ints,
        l1: float,
        l2: float,
        left: float,
        gap: float,
    ) -> float:
        """The violation to which sweeps over all columns that violate their constraints solve."""
        if not self.setting.columns.sparse:
            return min(_LOOSE * l1, self._tolerance(point, pull, pool, chosen, l1, l2, left, gap))
        size = l1 * float(np.sum(np.abs(self.setting.scale * point.coef)))
        beyond = float(np.max(self._urge(pull)[pool], initial=0.0)) / l1 - 1.0
        return l1 * max(permitted(max(size, left), gap), _SHARE * beyond)

    def _tolerance(
        self,
        point: LinearPoint,
        pull: Floats,
        pool: NDArray[np.bool_],
        chosen: Ints,
        l1: float,
        l2: float,
        left: float,
        gap: float,
    ) -> float:
        """The violation to which a set is solved.

        At the end the requested gap decides; before, no closer than the columns outside the set justify.
        """
        if l1 <= 0.0:
            # Without l1 the gap is Σ violation² / 2 l2, so this share of the largest one permitted reaches it.
            enough = 0.9 * float(np.sqrt(2.0 * l2 * gap / max(1, len(chosen))))
            return max(enough, 1e-3 * float(np.max(np.abs(pull), initial=0.0)))
        size = l1 * float(np.sum(np.abs(self.setting.scale * point.coef)))
        final = permitted(max(size, left), gap)
        urge = np.where(pool, self._urge(pull), 0.0)
        beyond = float(np.max(urge, initial=0.0)) / l1 - 1.0
        if left <= 100.0 * gap or beyond <= 0.0:
            return l1 * final
        urge[chosen] = 0.0
        closed = float(np.max(urge, initial=0.0)) <= l1  # all columns with too large a gradient are in the set
        # With more columns than samples, a loose solution would leave many small coefficients, and the next set
        # would be larger still.
        crowded = len(chosen) > self.setting.columns.n
        return l1 * max(final, (0.01 if closed else 0.05 if crowded else 0.3) * beyond)
