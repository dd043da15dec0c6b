"""Solver of softmax regression: preconditioned L-BFGS steps, then Newton steps when those gain too little.

Few dense features and classes are left to `few_features`, an L1 penalty to `working_sets`, where their data suit them,
and sparse data with an L2 penalty alone to the steps of `ridge`; what follows is for all others, and for fits in which
those make no more progress.

A round is five L-BFGS steps, each one pass over the data, or one Newton step with many passes. With an L1 penalty,
steps stay in an orthant. A Gram-matrix preconditioner cannot respect orthants: with it, |w| is smoothed at zero, less
in each phase. The duality gap is known after every step and ends the fit.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.cached import cached_property
from stretto.runtime.blocks.crew import Crew
from stretto.solvers.linear.fit_saving import FitSaving
from stretto.solvers.linear.point import inside

from .constants import STEPS
from .few_features import NewtonFit, run, suits_newton
from .metric import DiagonalMetric, SampledGram, fits_table, room_for_table
from .newton import newton_step, smooth_step
from .nodes import passes_of
from .point import SoftmaxPoint, SoftmaxProblem
from .quasi_newton import LbfgsMemory
from .ridge import MOST, Moments, ridge_step, suits_ridge
from .working_sets import BEFORE, CLOSEST, SHARE, SMALL, by_columns, choose, closer, solve_part, walk
from .working_sets import newton_step as descent_step

Floats = NDArray[np.float64]

_ROUNDING = 1e-15  # relative error of the objective and of every logarithm in it
_CLOSE = 0.3, 0.1, 0.03  # tolerances of the first Newton systems; the last is for all later ones
_COARSE = 1e-4  # of the loss of the model without features
_ROUNDINGS = (50.0, 15.0, 5.0)  # widths of the smoothing of |w|, in units that the requested gap allows
_MANY = 1 << 18  # weights from which on the L-BFGS memory is float32, and short
_LARGE = 1 << 22  # products of a pass from which on float32 is used if the data allow it


@dataclass(frozen=True, eq=False)
class SoftmaxFit:
    """The solution of a softmax regression."""

    W: Floats  # [p + 1, K] weights
    gap: float  # duality gap: no weights have an objective smaller by more than this
    objective: float
    rounds: int
    passes: int  # passes over the data
    converged: bool


def solve(
    problem: SoftmaxProblem,
    crew: Crew,
    *,
    gap: float,
    max_rounds: int,
    profile: str = "exact",
    seed: int = 0,
    start: Floats | None = None,
    look: Callable[[dict[str, Any]], bool] | None = None,
    saved: FitSaving | None = None,
) -> SoftmaxFit:
    """Solve to a duality gap of `gap`, from `start` [p + 1, K] or from the model without features.

    saved : saves the state between rounds, and provides that of a fit to resume
    """
    saved = saved or FitSaving()
    found = saved.take("softmax")
    before = 0
    corners = bool(np.any(problem.l1 > 0.0))
    if found is None and not problem.rows.sparse and suits_newton(*problem.rows.shape, problem.classes, corners):
        fit = NewtonFit(problem, profile)
        if (at := saved.take("newton")) is not None:
            fit.restore(at)
        elif start is not None:
            fit.start(start)
        with saved.level("newton", fit.state):
            stopped = run(fit, crew, gap, max_rounds, look, saved.ended)
        before = int(fit.count[0])
        if fit.gap <= gap or stopped or before >= max_rounds:
            return SoftmaxFit(fit.W, fit.gap, fit.objective, before, before, fit.gap <= gap)
        start, max_rounds = fit.W, max_rounds - before
    if by_columns(problem) and not problem.rows.sparse:
        problem = replace(problem, rows=problem.rows.by_entries())
    passes = passes_of(problem, crew, profile)
    small = problem.rows.entries * passes.width < _LARGE
    single = not small and (problem.rows.sparse or problem.rows.dtype == np.float32)
    point = SoftmaxPoint(problem, passes, np.float32 if single else np.float64)
    if start is not None and found is None:
        point.start(start)
    search = SoftmaxSolver(point, gap, max_rounds, seed, look, saved.ended)
    if found is not None:
        search.restore(found)
    with saved.level("softmax", search.state):
        return search.run()


# widened: Newton rounds in float64 after float32.
_PHASES = "rounded", "smooth", "quasi", "newton", "widened", "sets", "ridge"


@dataclass
class _SearchPoint:
    """Position of the search between two rounds."""

    phase: str  # one of _PHASES
    step: int = 0  # index of the smoothing width, or of the Newton step with it
    failed: int = 0  # number of last Newton rounds without gain
    closeness: float = 0.1  # tolerance of Newton systems
    values: tuple[float, ...] = ()  # objectives of the quasi-Newton rounds so far


class SoftmaxSolver:
    """The state of a fit in progress."""

    def __init__(
        self,
        point: SoftmaxPoint,
        gap: float,
        max_rounds: int,
        seed: int,
        look: Callable[[dict[str, Any]], bool] | None,
        ended: Callable[[], None] | None = None,
    ) -> None:
        self.point, self.wanted, self.max_rounds, self.look, self._ended = point, gap, max_rounds, look, ended
        problem, passes = point.problem, point.passes
        self.cornered = bool(np.any(problem.l1 > 0.0))
        self._seed = seed
        size = passes.shape[0] * passes.width
        many = size > _MANY
        self.memory = LbfgsMemory(passes, size, 10 if many else 30, np.float32 if many else np.float64)
        self.looks, self.rounds, self.stopped = 1, 0, False
        self._place = _SearchPoint("")
        self._restored: _SearchPoint | None = None  # position to resume from, until it is reached

    @cached_property
    def metric(self) -> DiagonalMetric | SampledGram:
        """The preconditioner; working sets need none."""
        problem, passes = self.point.problem, self.point.passes
        if fits_table(problem) and room_for_table(problem):
            return SampledGram(problem, passes, self._seed)
        return DiagonalMetric(problem, passes)

    def state(self) -> dict[str, NDArray[Any]]:
        """Everything that decides later rounds, to be saved between two of them."""
        at = self._place
        found = {f"point/{name}": array for name, array in self.point.state().items()}
        found |= {f"memory/{name}": array for name, array in self.memory.state().items()}
        counts = [_PHASES.index(at.phase), at.step, at.failed, self.looks, self.rounds]
        return found | {"counts": np.array(counts, np.int64), "numbers": np.array([at.closeness, *at.values])}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Continue from a saved `state`."""
        self.point.restore(inside(state, "point"))
        self.memory.restore(inside(state, "memory"))
        phase, step, failed, self.looks, self.rounds = state["counts"].tolist()
        closeness, *values = state["numbers"].tolist()
        self._restored = _SearchPoint(_PHASES[phase], step, failed, closeness, tuple(values))

    def _reached(self, place: _SearchPoint) -> None:
        """Record the position between two rounds."""
        self._place = place
        if self._ended is not None and self.rounds:
            self._ended()

    def _take(self, *phases: str) -> _SearchPoint | None:
        """The position to resume from, if it is in one of these phases."""
        at = self._restored
        if at is None or at.phase not in phases:
            return None
        self._restored = None
        return at

    def run(self) -> SoftmaxFit:
        """Run quasi-Newton rounds, then Newton rounds when those gain too little."""
        point = self.point
        at = self._restored
        if by_columns(point.problem) and (at is None or at.phase == "sets"):
            self._sets()
            at = None
        elif suits_ridge(point.problem) and (at is None or at.phase == "ridge"):
            self._ridge()
            at = None
        if self.over:
            return SoftmaxFit(point.W, point.gap, point.plain, self.rounds, self.looks, point.gap <= self.wanted)
        if at is None or at.phase in ("rounded", "smooth", "quasi"):
            if isinstance(self.metric, SampledGram) and self.cornered:
                self._rounded(self.metric)
            else:
                if isinstance(self.metric, SampledGram):
                    self.metric.renew(1.0)
                if at is None:
                    point.scale = self.metric.scale
                    point.settle()  # again, in the units of the metric
                self._quasi(self._slow if self.cornered else self._still)
        if at is None or at.phase != "widened":
            self._newton("newton")
            if point.dtype != np.float64:
                point.widen()
                self._newton("widened")
        else:
            self._newton("widened")
        return SoftmaxFit(point.W, point.gap, point.plain, self.rounds, self.looks, point.gap <= self.wanted)

    @property
    def over(self) -> bool:
        return self.stopped or self.point.gap <= self.wanted or self.rounds >= self.max_rounds

    def _tell(self, phase: str) -> None:
        """Report the end of a round."""
        point = self.point
        self.rounds += 1
        state = {"round": self.rounds, "objective": point.plain, "gap": point.gap, "looks": self.looks}
        self.stopped |= point.passes.crew.asked
        if self.look is not None:
            self.stopped |= self.look({**state, "W": point.W, "phase": phase})

    # --- working sets -------------------------------------------------------------------------------------------------

    def _sets(self) -> None:
        """Solve sub-problems of features until the gap is small enough, or rounds make no more progress."""
        point = self.point
        at = self._take("sets") or _SearchPoint("sets", closeness=1.0)
        closeness, failed = at.closeness, at.failed
        if point.dtype != np.float64 and self.wanted < 1e-4 * point.plain:
            point.widen()
        crew, profile, rows = point.passes.crew, point.passes.profile, point.problem.rows
        lengths = np.diff(rows.csc[0])
        while not self.over and failed < 3:
            self._reached(_SearchPoint("sets", failed=failed, closeness=closeness))
            before, value = point.gap, point.plain
            which = choose(point)
            if int(lengths[which].sum()) <= SMALL * rows.entries:
                W, made = solve_part(point, which, max(SHARE * self.wanted, BEFORE * before), crew, profile)
                new = np.zeros_like(point.W)
                new[np.append(which, len(new) - 1)] = W
                point.start(new)
                self.looks += 1 + made
            else:
                walk(point, descent_step(point, which, min(before, self.wanted), closeness, profile))
                self.looks += 1
            stalled = closeness == CLOSEST and point.gap > 0.9 * before
            failed = failed + 1 if stalled else 0
            closeness = closer(closeness, before, value - point.plain)
            self._tell("sets")

    # --- an L2 penalty alone ----------------------------------------------------------------------------------------

    def _ridge(self) -> None:
        """Make Newton steps by conjugate gradients until the gap is small enough, or one needs too many iterations."""
        point = self.point
        moments = Moments.of(point)
        self._take("ridge")
        made = 0
        while not self.over and made < MOST:
            self._reached(_SearchPoint("ridge"))
            if point.dtype != np.float64 and self.wanted < 1e-5 * point.plain:
                point.widen()
            before, value = point.gap, point.value
            way, made = ridge_step(point, moments, self.wanted)
            self.looks += made
            t = self._walk(way, 1.0, free=True)
            self._tell("newton")
            if t == 0.0 or (point.gap >= before and point.value >= value):
                if point.dtype == np.float64:
                    return
                point.widen()  # float32 may have stopped it

    # --- quasi-Newton -------------------------------------------------------------------------------------------------

    def _quasi(self, enough: Callable[[list[float]], bool]) -> None:
        """Run rounds until `enough` of the objectives so far is true, or no step lowers the objective."""
        at = self._take("quasi")
        values = [self.point.value] if at is None else list(at.values)
        while not self.over:
            self._reached(_SearchPoint("quasi", values=tuple(values)))
            moved = True
            for _ in range(STEPS):
                moved = self._step()
                if not moved or self.point.gap <= self.wanted:
                    break
            self._tell("quasi")
            values.append(self.point.value)
            if not moved or enough(values):
                if self.point.dtype == np.float64 or self.over:
                    return
                # float32 may have stopped it; start again in float64.
                self.point.widen()
                self.memory.clear()
                values = [self.point.value]

    def _slow(self, values: list[float]) -> bool:
        """Whether two rounds gained less than the requested gap: then only the dual point keeps the gap large."""
        return len(values) > 2 and values[-3] - values[-1] <= 0.5 * self.wanted

    def _still(self, values: list[float]) -> bool:
        return len(values) > 2 and values[-3] - values[-1] <= 1e-3 * self.wanted

    def _step(self) -> bool:
        """Make one step; return whether it lowered the objective."""
        point, metric = self.point, self.metric
        metric.pull(point.turned)
        d = self.memory.direction(point.turned.reshape(3, -1), first=1.0).reshape(point.passes.shape)
        way = metric.push(d)
        t = 1.0
        if not self.memory.order and not isinstance(metric, SampledGram):
            bent = point.passes.curve(way.astype(point.dtype)) + point.problem.ridge[:, None] * way
            along = float(np.sum(way * bent))
            t = -float(np.sum(way * point.slope)) / along if along > 0.0 else 1.0
        t = self._walk(way, t)
        if isinstance(metric, SampledGram):
            point.turned[0] = t * d
        return t > 0.0

    def _walk(self, way: Floats, t: float, *, free: bool = False) -> float:
        """Line search: the objective must fall by a fixed share of what the slope predicts; 0 if no step does."""
        point = self.point
        before, slope = point.value, None
        noise = _ROUNDING * (abs(before) + float(point.problem.weight.sum()))
        for _ in range(25):
            value = point.attempt(way, t, free=free)
            self.looks += 1
            # Near the minimum, steps change the objective by less than its rounding, but still lower the gap.
            if value <= before + 1e-4 * min(point.fall, 0.0) + noise:
                point.settle()
                return t
            slope = float(np.sum(point.slope * way)) if slope is None else slope
            rise = value - before - t * slope
            t *= min(0.5, max(0.1, -t * slope / (2.0 * rise))) if np.isfinite(value) and rise > 0.0 else 0.1
        point.attempt(way, 0.0, free=True)
        point.settle()
        return 0.0

    # --- L1 with a Gram-matrix preconditioner -------------------------------------------------------------------------

    def _rounded(self, metric: SampledGram) -> None:
        """Solve with |w| smoothed, less each time: smooth problems that a Gram matrix preconditions well."""
        point, problem = self.point, self.point.problem
        count = problem.classes * problem.rows.shape[1]
        # A smaller gap is left to the Newton steps, which find exact zeros.
        coarse = max(self.wanted, _COARSE * problem.empty)
        least = coarse / max(float(problem.l1.mean()) * count, 1e-300)
        at = self._take("rounded", "smooth")
        if at is None:
            point.scale = metric.scale
        begin = 0 if at is None else at.step if at.phase == "rounded" else len(_ROUNDINGS)
        for k, times in enumerate(_ROUNDINGS[begin:], begin):
            if at is None:
                point.round = times * least
                point.start(point.W)
            at = None
            while not self.over:
                self._reached(_SearchPoint("rounded", k))
                metric.renew(point.spread(), problem.l1[:, None] / np.hypot(point.W, point.round))
                self.memory.clear()
                first = point.value
                for _ in range(2 * STEPS):
                    if not self._step():
                        break
                self._tell("rounded")
                if first - point.value <= 0.2 * times * coarse:
                    break
                point.start(point.W)
        if at is None:
            point.round = least
            point.start(point.W)
        for turn in itertools.count(0 if at is None else at.step):
            if self.over or point.gap <= coarse:
                break
            self._reached(_SearchPoint("smooth", turn))
            if self._walk(smooth_step(point, metric, _CLOSE[min(turn, len(_CLOSE) - 1)]), 1.0) == 0.0:
                break
            self._tell("smooth")
        self._sharpen()

    def _sharpen(self) -> None:
        """Set weights to zero that are non-zero only because of the smoothing, if the objective does not rise."""
        point = self.point
        small = (np.abs(point.W) <= 3.0 * point.round) & (point.problem.l1[:, None] > 0.0)
        kept, before, gap = point.W, point.plain, point.gap
        point.round = 0.0
        point.start(np.where(small, 0.0, kept))
        if point.gap > max(self.wanted, gap) and point.plain > before:
            point.start(kept)

    # --- Newton -------------------------------------------------------------------------------------------------------

    def _newton(self, phase: str) -> None:
        """Run Newton rounds until the gap is small enough."""
        point = self.point
        at = self._take(phase) or _SearchPoint(phase)
        closeness, failed = at.closeness, at.failed
        while not self.over and failed < 3:
            self._reached(_SearchPoint(phase, failed=failed, closeness=closeness))
            if point.dtype != np.float64 and (failed or self.wanted < 1e-5 * point.plain):
                point.widen()
                continue
            before, value = point.gap, point.value
            t = self._walk(newton_step(point, self.metric, closeness), 1.0, free=True)
            failed = failed + 1 if t == 0.0 or (point.gap >= before and point.value >= value) else 0
            closeness = max(1e-10, closeness * (0.1 if t == 1.0 or point.gap >= before else 0.5))
            self._tell("newton")
