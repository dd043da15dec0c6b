"""Linear classification by stochastic steps with variance reduction: SVRG, SVRG++ and Katyusha.

The phases are functions of a problem and its state, which is all that outlives a phase:

    state = SvrgState.start(problem, crew, options, seed)
    while True:
        full_gradient(problem, state, crew)         # at the snapshot, by parts of the rows: uses every worker
        evaluate(problem, state, tol=tol)           # objective and duality gap, from what the gradient left
        if state.done:
            break
        stochastic_epoch(problem, state, crew)      # classes in parallel, the steps of a class one after another

The parts of the rows do not depend on the number of workers and are added in their order, and the steps of a class are
serial, so the bits do not depend on the number of workers either.

SVRG (Johnson and Zhang 2013) takes the last iterate for the next snapshot. SVRG++ (Allen-Zhu and Yuan 2016) begins with
short epochs, doubles them, and takes the mean iterate. Katyusha (Allen-Zhu 2017) adds momentum that the snapshot
holds back. Samples are drawn by their smoothness (Xiao and Zhang 2014), so that long rows do not dictate the step size.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.errors import Diverged
from stretto.kernels.numeric.alias import fill_alias
from stretto.kernels.samples import dual_descent, lazy_steps
from stretto.kernels.samples import variance_reduced as kernels
from stretto.runtime.blocks.crew import Crew

from .dual_descent import RowFit
from .fit_saving import FitSaving
from .row_passes import dual_value, gradient, loss_at, margins
from .row_problem import RowProblem

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

METHODS = ("svrg", "svrg++", "katyusha")
_CODES = {"logistic": kernels.LOGISTIC, "squared_hinge": kernels.SQUARED_HINGE}
_CURVATURE = {"logistic": 0.25, "squared_hinge": 2.0}  # of a sample's loss, at most
_STEP = {"svrg": 0.5, "svrg++": 1.0, "katyusha": 0.5}  # over the smoothness
_GROWTH, _MOST_GROWN = 1.25, 2.0  # of the step size of SVRG++: in an epoch, and at most
_PASSES = 2.0  # over the samples in an epoch
_FIRST_PASSES, _MOST_PASSES = 0.25, 4.0  # of SVRG++: at first, and at most
_PATIENCE = 3  # epochs without a better snapshot, after which the step size is halved
_FAR = 2.0  # likewise at once, for an objective so many times the smallest
_POWER = 12  # power iterations for the smoothness of the whole loss


@dataclass(frozen=True)
class SvrgOptions:
    """How the stochastic phase runs."""

    method: str = "svrg"  # one of METHODS
    batch: int = 1  # samples of a step
    step: float | None = None  # step size over 1 / smoothness; None: that of the method


@dataclass(eq=False)
class SvrgState:
    """Everything that decides later phases. k classes, p features, n samples."""

    options: SvrgOptions
    seed: int
    w: Floats  # [k, p + 1] the last iterate
    snapshot: Floats  # [k, p + 1]
    gradient: Floats  # [k, p + 1] of the loss at the snapshot, Σ weight·∂loss
    slopes: Floats  # [k, n] derivative of each sample's loss at the snapshot
    follow: Floats  # [k, p + 1] sum of the iterates, or Katyusha's coupled sequence
    objective: Floats  # [k]
    loss: Floats  # [k] Σ weight·loss at the snapshot
    dual: Floats  # [k] the best dual objective so far
    gap: Floats  # [k]
    best: Floats  # [k, p + 1] the snapshot with the smallest objective, and that objective
    least: Floats  # [k]
    counts: Ints  # [3] epochs, how often the step size was halved, last epochs without a better snapshot
    draw: tuple[Any, Any]  # alias table of the samples
    factor: Floats  # [n] weight / (n·probability) / mass
    smoothness: float
    done: bool = False

    @staticmethod
    def start(
        problem: RowProblem, crew: Crew, options: SvrgOptions, seed: int = 0, w: Floats | None = None
    ) -> SvrgState:
        """At w [k, p + 1], or at zero."""
        n, p = problem.rows.shape
        k = len(problem.positive)
        norm = np.empty(n)
        problem.run(
            crew, "norms", dual_descent.norms_worker, len(problem.bounds) - 1, problem.bounds, *problem.arrays, p,
            problem.bias, norm,
        )  # fmt: skip
        mass = float(problem.weight.sum())
        # A sample is drawn in proportion to the smoothness of its loss; a row of zeros has none and never moves w.
        rough = problem.weight * norm * (_CURVATURE[problem.loss] / mass)
        mean = float(rough.sum())
        factor = np.zeros(n)
        np.divide(mean, _CURVATURE[problem.loss] * norm, out=factor, where=rough > 0.0)
        start = np.zeros((k, p + 1)) if w is None else np.array(w)
        state = SvrgState(
            options, seed, start, start.copy(), np.zeros((k, p + 1)), np.zeros((k, n)), np.zeros((k, p + 1)),
            np.full(k, np.inf), np.zeros(k), np.full(k, -np.inf), np.full(k, np.inf), start.copy(),
            np.full(k, np.inf), np.zeros(3, np.int64), _alias(rough, mean), factor, mean,
        )  # fmt: skip
        if options.batch > 1:
            state.smoothness = _batch_smoothness(problem, crew, mean, options.batch, mass)
        return state

    @property
    def step(self) -> float:
        """The step size, in units of the loss over its mass."""
        share = _STEP[self.options.method] if self.options.step is None else self.options.step
        if self.options.method == "svrg++":
            share *= min(_GROWTH ** float(self.counts[0]), _MOST_GROWN)
        return float(share * 0.5 ** float(self.counts[1]) / max(self.smoothness, 1e-300))

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The state for a checkpoint, between two epochs."""
        names = ("w", "snapshot", "follow", "dual", "best", "least", "counts")
        return {name: getattr(self, name) for name in names}

    def restore(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Continue from what `arrays` returned."""
        for name, array in arrays.items():
            getattr(self, name)[...] = array


def _alias(weights: Floats, total: float) -> tuple[Any, Any]:
    """Alias table [n] of these weights."""
    n = len(weights)
    chance, other, left = np.ones(n, np.float32), np.arange(n, dtype=np.int32), np.empty(n, np.int32)
    if total > 0.0:
        single = (weights * (n / total)).astype(np.float32)
        fill_alias(single, np.float32(single.sum(dtype=np.float64)), chance, other, left)
    return chance, other


def _batch_smoothness(problem: RowProblem, crew: Crew, mean: float, batch: int, mass: float) -> float:
    """Expected smoothness of a mini-batch drawn with replacement: that of the whole loss, and that of one sample."""
    p = problem.rows.shape[1]
    v = 1.0 + 0.5 * np.cos(np.arange(p + 1.0))
    v[p] *= problem.bias != 0.0
    whole = 0.0
    for _ in range(_POWER):
        size = float(np.sqrt(v @ v))
        if size == 0.0:
            break
        v /= size
        v = gradient(problem, crew, problem.weight / mass * margins(problem, crew, v))
        whole = float(np.sqrt(v @ v))
    # Power iterations approach the largest eigenvalue from below; the trace bounds it.
    whole = min(1.2 * whole * _CURVATURE[problem.loss], mean)
    return mean / batch + (1.0 - 1.0 / batch) * whole


# --- phases -----------------------------------------------------------------------------------------------------------


def full_gradient(problem: RowProblem, state: SvrgState, crew: Crew) -> None:
    """Loss, slopes of the samples and gradient at the snapshot, for every class. A free intercept is optimised first.

    That makes the dual point feasible, and costs no pass over X.
    """
    for c, wanted in enumerate(problem.positive):
        signs = np.where(problem.y == wanted, 1.0, -1.0)
        z = margins(problem, crew, state.snapshot[c])
        shift, state.loss[c], pull = loss_at(problem, signs, z)
        if shift != 0.0:
            state.snapshot[c, -1] += shift
            state.w[c, -1] += shift
        state.slopes[c] = -np.divide(pull, problem.weight, out=np.zeros_like(pull), where=problem.weight > 0.0)
        state.gradient[c] = -gradient(problem, crew, pull)
        if problem.free:
            state.gradient[c, -1] = 0.0


def evaluate(problem: RowProblem, state: SvrgState, *, tol: float) -> None:
    """Objective and duality gap at the snapshot, from what `full_gradient` left.

    The state is done when the gap is at most tol times the objective, for every class.
    """
    better = False
    for c, wanted in enumerate(problem.positive):
        w, loss = state.snapshot[c], float(state.loss[c])
        own = w[:-1] if problem.free else w
        penalty = problem.l1 * float(np.abs(w[:-1]).sum()) + 0.5 * problem.l2 * float(own @ own)
        state.objective[c] = loss + penalty
        signs = np.where(problem.y == wanted, 1.0, -1.0)
        dual = dual_value(problem, signs, state.gradient[c], state.slopes[c])
        state.dual[c] = max(state.dual[c], dual)
        state.gap[c] = max(0.0, state.objective[c] - state.dual[c])
        if state.objective[c] < state.least[c]:
            state.least[c], state.best[c] = state.objective[c], state.snapshot[c]
            better = True
    state.counts[2] = 0 if better else state.counts[2] + 1
    goal = np.maximum(tol * state.objective, problem.rounding)
    state.done = bool(np.all(state.gap <= goal))


def stochastic_epoch(problem: RowProblem, state: SvrgState, crew: Crew) -> None:
    """Steps over mini-batches from the last iterate, then the next snapshot. First undo epochs that diverged."""
    if state.counts[2] >= _PATIENCE or not np.all(state.objective <= _FAR * state.least):
        _shorten(problem, state, crew)
    options, mass = state.options, float(problem.weight.sum())
    k, p = len(problem.positive), problem.rows.shape[1]
    steps = _steps(problem, state)
    kind, numbers = _numbers(problem, state, steps, mass)
    rest = {kernels.PLAIN: 1.0, kernels.SUMMED: 1.0, kernels.COUPLED: numbers[kernels.OF_FOLLOW]}[kind]
    powers = np.empty((steps + 1, lazy_steps.POWERS))
    lazy_steps.fill_powers[problem.profile](numbers[kernels.SHRINK], rest, powers)
    if kind == kernels.SUMMED:
        state.follow[...] = 0.0
    elif kind == kernels.COUPLED and state.counts[0] == 0:
        state.follow[...] = state.snapshot
    problem.run(
        crew, "steps", kernels.stochastic_worker, k, np.arange(k), *problem.arrays, p, problem.y, problem.positive,
        _CODES[problem.loss], problem.bias, *state.draw, state.factor, state.slopes, state.gradient / mass,
        state.snapshot, state.w, state.follow, np.empty((k, kernels.RECORD * p)), powers, kind, numbers, steps,
        options.batch,
        state.seed + int(state.counts[0]), np.empty((k, options.batch), np.int64), np.empty((k, options.batch)),
    )  # fmt: skip
    state.counts[0] += 1
    if kind == kernels.PLAIN:
        state.snapshot[...] = state.w
    else:
        state.snapshot[...] = state.follow / steps if kind == kernels.SUMMED else state.follow


def _steps(problem: RowProblem, state: SvrgState) -> int:
    """Steps of the next epoch."""
    passes = _PASSES
    if state.options.method == "svrg++":
        passes = min(_FIRST_PASSES * 2.0 ** float(state.counts[0]), _MOST_PASSES)
    used = int(np.count_nonzero(problem.weight))
    return max(1, math.ceil(passes * used / state.options.batch))


def _numbers(problem: RowProblem, state: SvrgState, steps: int, mass: float) -> tuple[int, Floats]:
    """(kind of steps, the numbers that the kernel takes)."""
    numbers = np.zeros(kernels.NUMBERS)
    kind = {"svrg": kernels.PLAIN, "svrg++": kernels.SUMMED, "katyusha": kernels.COUPLED}[state.options.method]
    step, of_w, of_snapshot = state.step, 1.0, 0.0
    if kind == kernels.COUPLED:
        of_snapshot = 0.5
        of_w = 2.0 / (float(state.counts[0]) + 4.0)
        if problem.l2 > 0.0:
            of_w = min(math.sqrt(steps * problem.l2 / mass * step), 0.5)
        step /= of_w
    numbers[kernels.STEP], numbers[kernels.L1] = step, step * problem.l1 / mass
    numbers[kernels.SHRINK] = 1.0 / (1.0 + step * problem.l2 / mass)
    numbers[kernels.SHRINK_BIAS] = 1.0 if problem.free else numbers[kernels.SHRINK]
    numbers[kernels.OF_W], numbers[kernels.OF_SNAPSHOT] = of_w, of_snapshot
    numbers[kernels.OF_FOLLOW] = 1.0 - of_w - of_snapshot
    return kind, numbers


def _shorten(problem: RowProblem, state: SvrgState, crew: Crew) -> None:
    """Return to the best snapshot with half the step size."""
    state.counts[1:] = state.counts[1] + 1, 0
    if state.counts[1] > 60 or not np.all(np.isfinite(state.least)):
        raise Diverged("the objective is not finite; scale the features, or look for huge values in X")
    for array in (state.w, state.snapshot, state.follow):
        array[...] = state.best
    full_gradient(problem, state, crew)


# --- the fit ----------------------------------------------------------------------------------------------------------


def solve_svrg(
    problem: RowProblem,
    crew: Crew,
    *,
    tol: float,
    epochs: int,
    options: SvrgOptions,
    seed: int = 0,
    start: Floats | None = None,
    look: Callable[[dict[str, Any]], bool] | None = None,
    saved: FitSaving | None = None,
) -> RowFit:
    """Run epochs until the duality gap is tol times the objective, for every class; return the best snapshots.

    start : [k, p + 1] coefficients to start from
    look : called after every epoch with its state; True stops the fit
    saved : saves the state between epochs, and provides that of a fit to resume
    """
    saved = saved or FitSaving()
    state = SvrgState.start(problem, crew, options, seed, start)
    if (found := saved.take("svrg")) is not None:
        state.restore(found)
    with saved.level("svrg", state.arrays):
        while True:
            full_gradient(problem, state, crew)
            evaluate(problem, state, tol=tol)
            done = int(state.counts[0])
            if done and look is not None and look(_seen(state)):
                break
            if state.done or done >= epochs or crew.asked:
                break
            stochastic_epoch(problem, state, crew)
            if saved.ended is not None:
                saved.ended()
    if state.done and problem.l1 > 0.0:
        _sharpen(problem, state, crew, tol)
    if not state.done and np.any(state.least < state.objective):
        state.snapshot[...] = state.best
        full_gradient(problem, state, crew)
        evaluate(problem, state, tol=tol)
    rounds = np.full(len(problem.positive), int(state.counts[0]))
    return RowFit(state.snapshot, state.gap, state.objective, rounds, state.done)


def _sharpen(problem: RowProblem, state: SvrgState, crew: Crew, tol: float) -> None:
    """Take the last iterate, which has exact zeros, in the place of a mean of iterates, if it is good enough too."""
    if np.array_equal(state.snapshot, state.w):
        return
    kept = state.snapshot.copy()
    state.snapshot[...] = state.w
    full_gradient(problem, state, crew)
    evaluate(problem, state, tol=tol)
    if not state.done:
        state.snapshot[...] = kept
        full_gradient(problem, state, crew)
        evaluate(problem, state, tol=tol)


def _seen(state: SvrgState) -> dict[str, Any]:
    """What `look` receives."""
    return {
        "round": int(state.counts[0]),
        "objective": float(state.objective.sum()),
        "gap": float(state.gap.sum()),
        "w": state.snapshot,
    }
