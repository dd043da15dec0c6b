"""Linear support vector machines by mini-batch steps in three phases, whose batches grow.

Small batches make fast progress at first, and leave nothing to do in parallel; large ones have little noise near the
end, and their samples are shared among the workers. So each phase has a best number of workers of its own:

    state = BatchState.start(problem, crew, seed)
    for batch in batch_sizes(problem):
        small_batches(problem, state, crew, batch)      # an epoch; classes in parallel, batches one after another
        large_batches(problem, state, crew, batch)      # or: the samples of a batch in parallel, by parts
        evaluate(problem, state, crew, tol=tol)         # objective and duality gap; undo the epoch if it was too bold

An epoch that raises the objective is undone, and the step size halved; after one that lowers it, it grows a little. w
is a sum of subgradients of samples, so a dual point comes with it, and with that a duality gap, though a loose one.
Parts do not depend on the number of workers, so the bits do not either.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.kernels.samples import dual_descent
from stretto.kernels.samples import growing_batches as kernels
from stretto.runtime.blocks.crew import Crew

from .dual_descent import RowFit
from .fit_saving import FitSaving
from .row_passes import gradient, margins
from .row_problem import RowProblem

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

PHASES = 3
_SHARES = (1e-3, 1e-2, 1e-1)  # of the samples in a batch, by phase
_LARGE = 256  # samples of a batch from which on they are divided among workers
_PARTS = 8  # of a batch
_STEP, _LONGER, _SHORTER = 16.0, 1.1, 0.5  # the first step size, and its changes
_UNDONE = 3  # epochs of a phase
_SLOW = 0.01  # relative progress of the objective in an epoch, below which the next phase begins


def batch_sizes(problem: RowProblem) -> list[int]:
    """Samples of a batch in each phase."""
    used = int(np.count_nonzero(problem.weight))
    return [max(1, round(share * used)) for share in _SHARES]


@dataclass(eq=False)
class BatchState:
    """Everything that decides later epochs. k classes, p features, n samples."""

    u: Floats  # [k, p + 1] w = scale·u
    a: Floats  # [k, n] α = scale·a
    scale: Floats  # [k]
    mean: Floats  # [k, p + 1] mean of w over the steps of an epoch of large batches
    counts: Ints  # [3] epochs, phase, steps in `mean`
    step: Floats  # [k] step size, in units of the inverse of the mean square of a sample's size
    undone: Ints  # [k] epochs of this phase that were undone
    kept: tuple[Floats, Floats, Floats]  # u, a and scale before the last epoch that was kept
    square: float  # that mean square times the sum of weights
    best: Floats  # [k, p + 1] the weights with the smallest objective, and that objective
    least: Floats  # [k]
    dual: Floats  # [k] the best dual objective so far
    order: Ints  # [m] samples with a positive weight
    seed: int
    done: bool = False

    @staticmethod
    def start(problem: RowProblem, crew: Crew, seed: int = 0) -> BatchState:
        """w = 0."""
        n, p = problem.rows.shape
        k, bounds, norm = len(problem.positive), problem.bounds, np.empty(n)
        problem.run(
            crew, "norms", dual_descent.norms_worker, len(bounds) - 1, bounds, *problem.arrays, p, problem.bias, norm
        )
        square = float(np.sum(problem.weight * norm)) * (2.0 if problem.squared else 1.0)
        order = np.flatnonzero(problem.weight > 0).astype(np.int64)
        start, kept = np.zeros((k, p + 1)), (np.zeros((k, p + 1)), np.zeros((k, n)), np.ones(k))
        least = np.full(k, float(problem.weight.sum()))  # the objective at w = 0
        return BatchState(
            start, np.zeros((k, n)), np.ones(k), start.copy(), np.zeros(3, np.int64), np.full(k, _STEP),
            np.zeros(k, np.int64), kept, square, start.copy(), least, np.zeros(k), order, seed,
        )  # fmt: skip

    @property
    def shrink(self) -> Floats:
        """[k] the step size in units of the penalty: less than 1."""
        return 1.0 / (1.0 + self.square / self.step)

    def shuffled(self) -> Ints:
        """The order of the samples in the next epoch."""
        rng = np.random.default_rng([self.seed, int(self.counts[0])])
        return rng.permutation(self.order)

    @property
    def gap(self) -> Floats:
        """[k] duality gap of the best weights."""
        return np.maximum(self.least - self.dual, 0.0)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The state for a checkpoint, between two epochs."""
        names = ("u", "a", "scale", "counts", "step", "undone", "best", "least", "dual")
        return {name: getattr(self, name) for name in names}

    def restore(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Continue from what `arrays` returned."""
        for name, array in arrays.items():
            getattr(self, name)[...] = array
        for before, array in zip(self.kept, (self.u, self.a, self.scale), strict=True):
            before[...] = array


# --- phases -----------------------------------------------------------------------------------------------------------


def small_batches(problem: RowProblem, state: BatchState, crew: Crew, batch: int) -> None:
    """An epoch of batches one after another; the classes in parallel."""
    k = len(problem.positive)
    problem.run(
        crew, "batches", kernels.epoch_worker, k, np.arange(k), *problem.arrays, problem.rows.shape[1], problem.y,
        problem.positive, problem.weight, problem.bias, problem.squared, state.shuffled(), batch, state.shrink,
        state.u, state.a, state.scale, np.empty((k, batch)),
    )  # fmt: skip
    state.counts[0] += 1
    state.counts[2] = 0


def large_batches(problem: RowProblem, state: BatchState, crew: Crew, batch: int) -> None:
    """An epoch of batches, each divided among the workers by parts that are added in their order."""
    order, m, p, shrink = state.shuffled(), len(state.order), problem.rows.shape[1], state.shrink
    state.counts[2], state.mean[...] = 0, 0.0
    for first in range(0, m, batch):
        own = order[first : first + batch]
        bounds = np.unique(np.linspace(0, len(own), min(_PARTS, len(own)) + 1).astype(np.int64))
        state.counts[2] += 1
        for c, wanted in enumerate(problem.positive):
            move, G = np.empty(len(own)), np.empty((len(bounds) - 1, p + 1))
            problem.run(
                crew, "moves", kernels.moves_worker, len(G), bounds, *problem.arrays, p, problem.y, int(wanted),
                problem.weight, problem.bias, problem.squared, own, state.scale[c], state.u[c], move,
            )  # fmt: skip
            problem.run(
                crew, "sum", kernels.sum_worker, len(G), bounds, *problem.arrays, p, problem.y, int(wanted),
                problem.bias, own, move, G,
            )  # fmt: skip
            state.scale[c] *= 1.0 - shrink[c]
            step = shrink[c] * m / (len(own) * state.scale[c])
            for part in G:
                state.u[c] += step * part
            state.a[c, own] += step * move
            state.mean[c] += (state.scale[c] * state.u[c] - state.mean[c]) / float(state.counts[2])
    state.counts[0] += 1


def evaluate(problem: RowProblem, state: BatchState, crew: Crew, *, tol: float) -> None:
    """Objective and duality gap; undo the epoch of a class whose objective rose, else keep its weights as the best.

    The weights are the mean over the steps of large batches, or the last ones. α is brought into its box first.
    """
    for c, wanted in enumerate(problem.positive):
        signs = np.where(problem.y == wanted, 1.0, -1.0)
        w = state.mean[c] if state.counts[2] else state.scale[c] * state.u[c]
        slack = np.maximum(0.0, 1.0 - signs * margins(problem, crew, w))
        loss = float(np.sum(problem.weight * (slack * slack if problem.squared else slack)))
        objective = loss + 0.5 * float(w @ w)
        now = state.u, state.a, state.scale
        bold = not objective < state.least[c]
        for array, before in zip(now, state.kept, strict=True):
            if bold:
                array[c] = before[c]
            else:
                before[c] = array[c]
        state.step[c] *= _SHORTER if bold else _LONGER
        state.undone[c] += bold
        if not bold:
            state.least[c], state.best[c] = objective, w
        alpha, value = state.scale[c] * state.a[c], 0.0
        if problem.squared:
            value = -float(np.sum(np.divide(alpha**2, 4 * problem.weight, where=alpha > 0, out=np.zeros_like(alpha))))
        else:
            alpha = np.minimum(alpha, problem.weight)
        value += float(alpha.sum())
        back = gradient(problem, crew, alpha * signs)
        state.dual[c] = max(state.dual[c], value - 0.5 * float(back @ back))
    state.done = bool(np.all(state.gap <= np.maximum(tol * state.least, problem.rounding)))


# --- the fit ----------------------------------------------------------------------------------------------------------


def solve_growing(
    problem: RowProblem,
    crew: Crew,
    *,
    tol: float,
    epochs: int,
    seed: int = 0,
    look: Callable[[dict[str, Any]], bool] | None = None,
    saved: FitSaving | None = None,
) -> RowFit:
    """Run the phases, for `epochs` epochs at most, or until the duality gap is tol times the objective for every class.

    A phase ends when shorter steps bring little progress, and with the last one the fit.

    look : called after every epoch with its state; True stops the fit
    saved : saves the state between epochs, and provides that of a fit to resume
    """
    saved = saved or FitSaving()
    state = BatchState.start(problem, crew, seed)
    if (found := saved.take("batches")) is not None:
        state.restore(found)
    sizes = batch_sizes(problem)
    with saved.level("batches", state.arrays):
        while state.counts[0] < epochs and not state.done and not crew.asked:
            phase = int(state.counts[1])
            wide = sizes[phase] >= _LARGE or phase == PHASES - 1
            (large_batches if wide else small_batches)(problem, state, crew, sizes[phase])
            before = state.least.copy()
            evaluate(problem, state, crew, tol=tol)
            slow = np.all(before - state.least <= (_SLOW if phase < PHASES - 1 else tol) * before)
            if slow and np.all(state.undone >= _UNDONE):
                if phase == PHASES - 1:
                    state.done = True
                else:
                    state.counts[1] += 1
                    state.undone[...] = 0
            if look is not None and look(_seen(state)):
                break
            if saved.ended is not None:
                saved.ended()
    rounds = np.full(len(problem.positive), int(state.counts[0]))
    return RowFit(state.best, state.gap, state.least, rounds, state.done)


def _seen(state: BatchState) -> dict[str, Any]:
    """What `look` receives."""
    return {
        "round": int(state.counts[0]),
        "objective": float(state.least.sum()),
        "gap": float(state.gap.sum()),
        "w": state.best,
    }
