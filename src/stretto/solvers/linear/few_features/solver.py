"""Penalised logistic regression of few features: the solver behind `LogisticRegression` with small data.

A fit is one call of `kernels/newton/logistic_fit.py`, or where X is sparse of `sparse_fit.py`, which makes Newton steps
until the duality gap is small enough. Many sparse features with an L2 penalty alone have `smooth_fit.py`.
It runs in the calling thread. With callbacks or checkpoints, each step is a call of its own, with the same results.
Where the steps make no more progress, working sets continue from their solution.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.data.design.row_design import RowDesign
from stretto.errors import RunError
from stretto.kernels.newton import logistic_step as kernels
from stretto.runtime.blocks.crew import Crew

from ..regression import (
    ROUNDING,
    Fit,
    RegressionProblem,
    Request,
    continued,
    restored_fit,
    saved_fit,
    spread_of_target,
    uniform,
)
from ..working_sets import WorkingSetSolver
from .sampled_start import sampled_gap, sampled_problem
from .storage import storage_of

Floats = NDArray[np.float64]

_STEPS = 50  # a usual fit takes fewer than ten
_LONG = 1 << 21  # entries from which on each step is a call of its own
_SAMPLED = 20  # rounds of a fit to some of the samples, at most


@dataclass
class _Progress:
    """State of a fit between two rounds."""

    coef: Floats  # [p]
    vectors: Floats  # [VECTORS, n] predictions, gradients and curvatures of the samples
    numbers: Floats  # [NUMBERS] intercept, loss and sums over the samples
    epochs: int = 0  # sweeps and factors so far
    number: int = 0  # rounds completed


class FewFeaturesSolver:
    """A solver for one problem of logistic regression at any number of penalties. smooth: none of these is L1"""

    def __init__(self, problem: RegressionProblem, crew: Crew, *, profile: str = "exact", smooth: bool = False) -> None:
        if uniform(problem.weight):
            problem = replace(problem, weight=np.array(problem.weight))
        self.problem, self.crew, self.profile = problem, crew, profile
        n, p = problem.design.shape
        self._scale = np.ones(p) if problem.scale is None else problem.scale
        self._X = storage_of(problem, smooth=smooth)
        self._zero = np.empty((kernels.VECTORS, n)), np.zeros(kernels.NUMBERS)
        self._X.prepare(profile, *self._zero)
        # Ctrl-C waits for the end of a call.
        self._long = problem.design.sparse and problem.design.nnz > _LONG
        self._handed_out = False  # whether a fit has changed the vectors of `_zero`
        self._pulls = np.where(self._X.norm > 0.0, self._X.small[kernels.PULL], 0.0)
        self._last: tuple[Fit, _Progress] | None = None
        self._now: _Progress | None = None  # of the running fit, or of a restored one
        self._sets: WorkingSetSolver | None = None  # for fits in which Newton steps make no more progress

    def largest_l1(self) -> float:
        """The smallest l1 at which β = 0."""
        return float(np.max(np.abs(self._pulls) / self._scale, initial=0.0))

    def target_spread(self) -> tuple[float, float, float]:
        """Mean of y (zero without an intercept), Σ weight (y − mean)² and Σ weight |y − mean|."""
        return spread_of_target(self.problem)

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
        if self._now is None and start is None and max_rounds > 1:
            start = self._sampled(l1, l2, gap, share)
        at = self._now or self._started(start)
        self._now = at
        try:
            request = Request(l1, l2, gap, share, max_rounds, look, ended)
            found, stopped = self._rounds(at, request)
            if not stopped and not found.converged and found.rounds < max_rounds:
                found = continued(found, self._by_sets, request, max_rounds - found.rounds)
            self._last = found, at
        finally:
            self._now = None
        return found

    def _sampled(self, l1: float, l2: float, gap: float, share: float) -> Fit | None:
        """The solution for some of many samples, if β = 0 is not the one for all."""
        if self.largest_l1() <= l1 or (some := sampled_problem(self.problem)) is None:
            return None
        solver = FewFeaturesSolver(some, self.crew, profile=self.profile)
        loss = float(self._zero[1][kernels.VALUE])
        found = solver.fit(l1, l2, gap=sampled_gap(some, loss, gap, share), max_rounds=_SAMPLED)
        return found if found.objective < loss else None

    def _started(self, start: Fit | None) -> _Progress:
        """The initial state of a fit."""
        vectors, numbers = self._zero
        if start is None:
            self._X.small[kernels.PULL] = self._pulls
            if not self._handed_out:  # copying takes as long as a step of a small fit
                self._handed_out = True
                return _Progress(np.zeros(len(self._scale)), vectors, numbers.copy())
            fresh = np.empty_like(vectors), np.zeros(kernels.NUMBERS)
            self._X.prepare(self.profile, *fresh)
            return _Progress(np.zeros(len(self._scale)), *fresh)
        if self._last is not None and self._last[0] is start:
            last = self._last[1]
            if np.array_equal(last.coef, start.coef):
                # Another penalty has another model; the loss is the same.
                again = np.zeros(kernels.NUMBERS)
                again[: kernels.KNOWN] = last.numbers[: kernels.KNOWN]
                return _Progress(last.coef.copy(), last.vectors.copy(), again)
        if not self._handed_out:
            self._handed_out = True
        else:
            vectors = np.empty_like(vectors)
        at = _Progress(np.where(self._X.norm > 0.0, start.coef, 0.0), vectors, np.zeros(kernels.NUMBERS))
        at.numbers[kernels.INTERCEPT] = start.intercept + float(np.sum(self._X.shift * at.coef))
        self._X.predict(self.profile, at.coef, at.vectors, at.numbers)
        return at

    def _rounds(self, at: _Progress, request: Request) -> tuple[Fit, bool]:
        """Run the rounds of a fit; return its result, and whether it ended early on request.

        The first round evaluates the start, and each later one makes a Newton step.
        """
        alone = request.look is None and request.ended is None and at.number == 0 and not self._long
        numbers, most = at.numbers, min(request.max_rounds, _STEPS + 1)
        while True:
            steps = most - 1 if alone else int(at.number > 0)
            self._step(at, request, max(0, steps))
            made = int(numbers[kernels.STEPS])
            stalled = numbers[kernels.STALLED] != 0.0
            at.number += 1 + made if alone else 1
            at.epochs += int(numbers[kernels.WORK])
            found = self._found(at, request)
            if request.report(found, at.number, len(at.coef)):
                return found, True
            if found.converged or stalled or at.number >= most or self.crew.asked:
                return found, self.crew.asked
            if request.ended is not None:
                request.ended()

    def _step(self, at: _Progress, request: Request, steps: int) -> None:
        """Make Newton steps until the gap is reached, at most `steps`."""
        goals = float(request.gap), float(request.share), self._least
        penalties = request.l1 * self._scale, request.l2 * self._scale**2
        self._X.step(self.profile, *penalties, goals, steps, at.coef, at.vectors, at.numbers)

    @property
    def _least(self) -> float:
        return ROUNDING * float(self._zero[1][kernels.VALUE])

    def _found(self, at: _Progress, request: Request) -> Fit:
        """The fit as it is after `_step`."""
        objective, left = float(at.numbers[kernels.OBJECTIVE]), float(at.numbers[kernels.GAP])
        if not math.isfinite(objective):
            raise RunError("the objective is not finite; standardize=True may help, or look for huge values in X")
        intercept = float(at.numbers[kernels.INTERCEPT])
        if self.problem.intercept:
            intercept -= float(np.sum(self._X.shift * at.coef))
        goal = request.goal(objective, self._least)
        rounds = min(at.number, request.max_rounds)
        return Fit(at.coef.copy(), intercept, left, objective, rounds, at.epochs, left <= goal, goal)

    @property
    def _by_sets(self) -> WorkingSetSolver:
        """The solver for fits in which Newton steps make no more progress."""
        if self._sets is None:
            design = self.problem.design
            by_columns = design.columns if isinstance(design, RowDesign) else design
            problem = replace(self.problem, design=by_columns)
            self._sets = WorkingSetSolver(problem, self.crew, profile=self.profile)
        return self._sets

    def state(self) -> dict[str, NDArray[Any]]:
        """Everything that decides later rounds: of the running fit, or of the next one along a path."""
        if (at := self._now) is not None:
            counts = np.array([at.epochs, at.number], np.int64)
            found = {"coef": at.coef, "vectors": at.vectors[: kernels.D + 1], "running": at.numbers, "counts": counts}
            return found | {"small": self._X.small, "column": self._X.column, "H": self._X.H}
        if self._last is None:
            return {}
        fit, at = self._last
        reached = {"vectors": at.vectors[: kernels.D + 1], "reached": at.coef, "running": at.numbers}
        return {"coef": fit.coef, **reached, **saved_fit(fit)}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> Fit | None:
        """Continue from a saved `state`; return the last fit, from which the next one along the path starts."""
        if not state:
            return None
        coef = np.array(state["coef"])
        vectors = np.empty_like(self._zero[0])
        vectors[: kernels.D + 1] = state["vectors"]
        at = _Progress(np.array(state.get("reached", coef)), vectors, np.array(state["running"]))
        if "numbers" not in state:
            at.epochs, at.number = state["counts"].tolist()
            for to, name in ((self._X.small, "small"), (self._X.column, "column"), (self._X.H, "H")):
                to[:] = state[name]
            self._now = at
            return None
        fit = restored_fit(coef, state)
        self._last = fit, at
        return fit
