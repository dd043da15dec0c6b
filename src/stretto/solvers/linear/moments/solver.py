"""Penalised least squares from sufficient statistics: the solver behind `Lasso` and `ElasticNet` with few features.

One pass over the data computes means and inner products (`statistics`). Coordinate descent and the duality gap need
nothing else (`kernels/linear/moment_descent.py`), so that a fit, or all penalties of a path, cost little more than
that pass. Where sweeps converge slowly, Newton steps on the same products follow (`solvers/linear/subproblem.py`).

‖r‖² and the gap are differences of sums of the size of ‖y‖². Where the requested gap is close to their rounding error,
working sets continue from the solution, with residuals computed from the data.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.errors import RunError
from stretto.kernels.linear import moment_descent as kernels
from stretto.runtime.blocks.crew import Crew
from stretto.schedule.spec import Schedule
from stretto.schedule.working_sets import WorkingSets

from ..few_features.choice import suits_newton, suits_rows
from ..few_features.solver import FewFeaturesSolver
from ..newton import permitted
from ..regression import (
    ROUNDING,
    Fit,
    PenaltySolver,
    RegressionProblem,
    Request,
    continued,
    restored_fit,
    saved_fit,
)
from ..subproblem import minimise
from ..working_sets import WorkingSetSolver
from .choice import suits_moments
from .statistics import Moments

Floats = NDArray[np.float64]

_SWEEPS = 100  # before Newton steps; a sweep takes a microsecond or a few
_MOST_PRODUCTS = 1 << 27  # of entries of the Gram matrix in one call for several penalties: a tenth of a second
_ERROR = 2.0**-46  # relative rounding error of inner products, generously
_CLEAR = 0.1  # share of the requested gap that rounding may take
_IDLE = 20  # Newton steps without change, each stricter than the last, after which the fit ends


@dataclass
class _Progress:
    """State of a fit between two rounds."""

    coef: Floats  # [p]
    dual: float = 0.0  # the best dual value so far; zero is the value of θ = 0
    strict: float = 1.0  # factor by which Newton steps are more accurate than the estimate requires
    epochs: int = 0  # sweeps and Newton steps so far
    number: int = 0  # rounds completed
    idle: int = 0  # number of last rounds without change


class MomentSolver:
    """A solver for one problem of least squares at any number of penalties."""

    def __init__(self, problem: RegressionProblem, crew: Crew, *, profile: str = "exact") -> None:
        self.problem, self.crew, self.profile = problem, crew, profile
        self.moments = Moments.of(problem, crew, profile)
        p, step = self.moments.gram.shape
        self._scale = np.ones(p) if problem.scale is None else problem.scale
        self._space = np.empty(step), np.empty(p)
        self._numbers = np.zeros(kernels.NUMBERS)
        # Gaps that sweeps can tell from rounding.
        self._least = _ERROR / _CLEAR * 0.5 * self.moments.square
        self._last: Fit | None = None
        self._now: _Progress | None = None  # of the running fit, or of a restored one
        self._sets: WorkingSetSolver | None = None  # for gaps near the rounding error

    def largest_l1(self) -> float:
        """The smallest l1 at which β = 0."""
        if self.moments.lost:
            return self._by_sets.largest_l1()
        pull = self.moments.product
        return float(np.max((pull if self.problem.positive else np.abs(pull)) / self._scale, initial=0.0))

    def target_spread(self) -> tuple[float, float, float]:
        """Mean of y (zero without an intercept), Σ weight (y − mean)², and a bound of Σ weight |y − mean|."""
        moments = self.moments
        return moments.middle, moments.square, math.sqrt(moments.mass * moments.square)

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
        """`WorkingSetSolver.fit`: solve to a duality gap of `gap`, and of `share` times the objective."""
        at = self._now or _Progress(np.zeros(len(self._scale)) if start is None else self._allowed(start.coef))
        self._now = at
        try:
            request = Request(l1, l2, gap, share, max_rounds, look, ended)
            found, stopped = self._rounds(at, request)
            if not stopped and not self._clear(found):
                # Residuals of working sets come from the data.
                found = continued(found, self._by_sets, request, max(1, max_rounds - found.rounds))
            self._last = found
        finally:
            self._now = None
        return found

    def fit_path(
        self, l1s: Floats, l2s: Floats, *, gap: float, max_rounds: int = 100, start: Fit | None = None
    ) -> list[Fit]:
        """Solve for the first ones of falling penalties [k], each from the solution before it: what `fit` gives.

        In one compiled call, until a penalty needs Newton steps or working sets, or the call has taken a while; so the
        list may be empty.
        """
        count, p = len(l1s), len(self._scale)
        if self._now is not None or max_rounds < 2 or self.moments.lost or self.crew.asked:
            return []
        moments, coefs, numbers = self.moments, np.empty((count, p)), np.empty((count, kernels.NUMBERS))
        b = np.zeros(p) if start is None else self._allowed(start.coef)
        solved = kernels.descend_path[self.profile](
            moments.gram, moments.product, moments.square, l1s, l2s, self._scale, self.problem.positive,
            max(gap, self._least), self._least, _SWEEPS, _MOST_PRODUCTS / moments.gram.shape[1], b, *self._space,
            np.empty(p), np.empty(p), coefs, numbers,
        )  # fmt: skip
        if gap < self._least or not solved:
            return []
        coefs, numbers = coefs[:solved], numbers[:solved]
        intercepts = (
            moments.middle - np.sum(moments.mean * coefs, axis=1) if self.problem.intercept else np.zeros(solved)
        )
        sizes = math.sqrt(moments.square) + np.sum(moments.size * np.abs(coefs), axis=1)
        finished = np.isfinite(numbers[:, kernels.OBJECTIVE]) & (_ERROR * sizes * sizes <= _CLEAR * gap)
        fits = []
        for row, intercept, (_, objective, left, swept), fine in zip(
            coefs, intercepts.tolist(), numbers.tolist(), finished.tolist(), strict=True
        ):
            if not fine:
                break
            fits.append(Fit(row, intercept, left, objective, 2 if swept else 1, int(swept), True, gap))
        if fits:
            self._last = fits[-1]
        return fits

    def _allowed(self, coef: Floats) -> Floats:
        """Coefficients [p] to start from; those of constant columns are zero."""
        return np.where(self.moments.gram.diagonal() > 0.0, coef, 0.0)

    def _rounds(self, at: _Progress, request: Request) -> tuple[Fit, bool]:
        """Run the rounds of a fit; return its result, and whether it ended early on request.

        The first round evaluates the start, the second one makes sweeps, all others Newton steps.
        """
        # Without listeners the first two rounds are one call.
        alone = request.look is None and request.ended is None
        joined = at.number == 0 and alone and request.max_rounds > 1
        while True:
            swept = self._descend(at, request, _SWEEPS if joined or at.number == 1 else 0)
            found = self._found(at, request)
            at.number += 2 if joined and swept else 1
            joined = False
            found = replace(found, rounds=min(at.number, request.max_rounds))
            if request.report(found, at.number, len(at.coef)):
                return found, True
            enough = found.gap <= max(found.goal, self._least)
            if enough or at.number >= request.max_rounds or self.crew.asked or at.idle == _IDLE:
                return found, self.crew.asked
            if at.number > 1:
                self._newton(at, request.l1, request.l2, found)
            if request.ended is not None:
                request.ended()

    def _descend(self, at: _Progress, request: Request, sweeps: int) -> int:
        """Make sweeps until the gap is reached; return how many."""
        moments, numbers = self.moments, self._numbers
        penalties = request.l1 * self._scale, request.l2 * self._scale**2
        numbers[:] = 0.0
        numbers[kernels.DUAL] = at.dual
        kernels.descend[self.profile](
            moments.gram, moments.product, moments.square, *penalties, self.problem.positive,
            max(request.gap, self._least), request.share, self._least, sweeps, at.coef, *self._space, numbers,
        )  # fmt: skip
        swept = int(numbers[kernels.SWEPT])
        at.dual, at.epochs = float(numbers[kernels.DUAL]), at.epochs + swept
        return swept

    def _found(self, at: _Progress, request: Request) -> Fit:
        """The fit as it is after `_descend`."""
        _, objective, left, _ = self._numbers.tolist()
        if not math.isfinite(objective):
            raise RunError("the objective is not finite; standardize=True may help, or look for huge values in X")
        b, moments = at.coef, self.moments
        intercept = moments.middle - float(np.sum(moments.mean * b)) if self.problem.intercept else 0.0
        goal = request.goal(objective, ROUNDING * 0.5 * moments.square)
        return Fit(b.copy(), intercept, left, objective, at.number, at.epochs, left <= goal, goal)

    def _newton(self, at: _Progress, l1: float, l2: float, found: Fit) -> None:
        """Minimise by Newton steps, closer than the last time if those changed nothing."""
        moments, scale = self.moments, self._scale
        H = moments.gram.copy()
        p = len(scale)
        H[np.arange(p), np.arange(p)] += l2 * scale**2
        goal = max(found.goal, self._least)
        if l1 > 0.0:
            size = l1 * float(np.sum(scale * np.abs(at.coef)))
            tolerance = l1 * permitted(max(size, found.gap), goal)
        else:
            tolerance = 0.9 * math.sqrt(2.0 * l2 * goal / p)
        done = minimise(
            self.crew, self.profile, H, moments.product, l1 * scale, scale, at.coef, at.strict * tolerance,
            positive=self.problem.positive,
        )  # fmt: skip
        at.idle = at.idle + 1 if np.array_equal(done.b, at.coef) else 0
        at.coef, at.strict, at.epochs = done.b, 0.2 * at.strict, at.epochs + done.sweeps + done.newtons

    def _clear(self, found: Fit) -> bool:
        """Whether the gap that was requested is far above the rounding error of the moments."""
        if self.moments.lost:
            return False
        size = math.sqrt(self.moments.square) + float(np.sum(self.moments.size * np.abs(found.coef)))
        return _ERROR * size * size <= _CLEAR * found.goal

    @property
    def _by_sets(self) -> WorkingSetSolver:
        """The solver for what moments cannot tell from rounding."""
        if self._sets is None:
            self._sets = WorkingSetSolver(self.problem, self.crew, profile=self.profile)
        return self._sets

    def state(self) -> dict[str, NDArray[Any]]:
        """Everything that decides later rounds: of the running fit, or of the next one along a path."""
        if (at := self._now) is not None:
            counts = np.array([at.epochs, at.number, at.idle], np.int64)
            return {"coef": at.coef, "running": np.array([at.dual, at.strict]), "counts": counts}
        if (fit := self._last) is None:
            return {}
        return {"coef": fit.coef, **saved_fit(fit)}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> Fit | None:
        """Continue from a saved `state`; return the last fit, from which the next one along the path starts."""
        if not state:
            return None
        coef = np.array(state["coef"])
        if "running" in state:
            (dual, strict), (epochs, number, idle) = state["running"].tolist(), state["counts"].tolist()
            self._now = _Progress(coef, dual, strict, epochs, number, idle)
            return None
        self._last = restored_fit(coef, state)
        return self._last


def solver_of(
    problem: RegressionProblem,
    crew: Crew,
    *,
    profile: str,
    schedule: Schedule | WorkingSets | None = None,
    smooth: bool = False,
) -> PenaltySolver:
    """The solver of a problem: with a schedule, working sets; else what costs least for the loss and the shape.

    smooth : none of its penalties is L1
    """
    samples, features = problem.design.shape
    newton = problem.loss == "logistic" and not problem.positive
    entries = problem.design.nnz if problem.design.sparse else None
    if entries is None:
        few = suits_newton(samples, features)
    else:
        few = suits_rows(samples, features, entries, smooth=smooth)
    if schedule is None and newton and few:
        return FewFeaturesSolver(problem, crew, profile=profile, smooth=smooth)
    few = suits_moments(samples, features, entries)
    if schedule is None and problem.loss == "squared" and few:
        return MomentSolver(problem, crew, profile=profile)
    sets = schedule if isinstance(schedule, WorkingSets) else None
    return WorkingSetSolver(problem, crew, profile=profile, schedule=sets)
