"""Linear support vector machines by dual coordinate descent: the solver of `LinearSVC`.

The phases are functions of a problem and its state, which is all that outlives a phase:

    state = DualState.start(problem, crew, seed)
    while not state.done.all():
        sweep(problem, state, crew, tol=tol, max_sweeps=1000)       # sweeps for every class that is not done
        evaluate(problem, state, crew, tol=tol)                     # exact objective and duality gap

Classes run in parallel, and the sweeps of a class one after another, so the bits do not depend on the number of
workers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.kernels.samples import dual_descent as kernels
from stretto.runtime.blocks.crew import Crew

from .fit_saving import FitSaving
from .row_problem import RowProblem

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

SWEEPS = 10  # of a class between two evaluations, at most
_TIGHTER = 0.7  # factor on the aim of the next sweeps if the estimated gap was too small


@dataclass(frozen=True, eq=False)
class RowFit:
    """The solution of a `RowProblem`."""

    w: Floats  # [k, p + 1] coefficients, and those of the intercept's feature
    gap: Floats  # [k] duality gap: no w has an objective smaller by more than this
    objective: Floats  # [k]
    rounds: Ints  # [k] sweeps or epochs
    converged: bool


@dataclass(eq=False)
class DualState:
    """Everything that decides later sweeps."""

    w: Floats  # [k, p + 1] Σ α_i y_i (x_i, bias)
    alpha: Floats  # [k, n] dual variables
    order: NDArray[np.int32] | Ints  # [k, m] samples with a positive weight; those at work first
    status: Floats  # [k, 7] counts and estimates: see the slots of the kernel
    aim: Floats  # [k] share of the objective that the estimated gap must reach
    norm: Floats  # [n] ‖x_i‖² + bias²
    objective: Floats  # [k] at the last evaluation
    gap: Floats  # [k] likewise
    done: NDArray[np.bool_]  # [k]
    known: NDArray[np.bool_]  # [k] whether objective and gap are those of the present w
    seed: int

    @staticmethod
    def start(problem: RowProblem, crew: Crew, seed: int = 0) -> DualState:
        """α = 0."""
        n, p = problem.rows.shape
        k, bounds = len(problem.positive), problem.bounds
        norm = np.empty(n)
        problem.run(
            crew, "norms", kernels.norms_worker, len(bounds) - 1, bounds, *problem.arrays, p, problem.bias, norm
        )
        used = np.flatnonzero(problem.weight > 0).astype(np.int32 if n < 2**31 else np.int64)
        status = np.zeros((k, kernels.SLOTS))
        status[:, kernels.ACTIVE], status[:, kernels.HIGH], status[:, kernels.LOW] = len(used), np.inf, -np.inf
        value = np.full(k, float(problem.weight.sum()))
        return DualState(
            np.zeros((k, p + 1)), np.zeros((k, n)), np.tile(used, (k, 1)), status, np.full(k, np.nan), norm, value,
            value.copy(), np.zeros(k, bool), np.zeros(k, bool), seed,
        )  # fmt: skip

    @property
    def swept(self) -> Ints:
        """[k] sweeps made."""
        return self.status[:, kernels.SWEPT].astype(np.int64)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The state for a checkpoint."""
        names = ("w", "alpha", "order", "status", "aim", "objective", "gap", "done", "known")
        return {name: getattr(self, name) for name in names}

    def restore(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Continue from what `arrays` returned."""
        for name, array in arrays.items():
            getattr(self, name)[...] = array


def sweep(problem: RowProblem, state: DualState, crew: Crew, *, tol: float, max_sweeps: int) -> None:
    """Make sweeps for every class that is not done: `SWEEPS`, or until its gap seems small enough."""
    open_ = np.flatnonzero(~state.done).astype(np.int64)
    fresh = np.isnan(state.aim)
    state.aim[fresh] = tol
    problem.run(
        crew, "sweep", kernels.descend_worker, len(open_), open_, *problem.arrays, problem.rows.shape[1], problem.y,
        problem.positive, problem.weight, state.norm, problem.bias, problem.squared, state.aim, problem.rounding,
        max_sweeps, SWEEPS, state.seed, state.w, state.alpha, state.order, state.status,
    )  # fmt: skip
    state.known[open_] = False
    state.done[open_] |= state.swept[open_] >= max_sweeps


def evaluate(problem: RowProblem, state: DualState, crew: Crew, *, tol: float, every: bool = False) -> None:
    """Objective and duality gap of the classes whose estimated gap is small enough, or that made all their sweeps.

    every : of all classes
    """
    ready = np.ones(len(state.done), bool) if every else (state.status[:, kernels.READY] > 0) | state.done
    which = np.flatnonzero(ready & ~state.known).astype(np.int64)
    if not len(which):
        return
    bounds = problem.bounds
    parts = len(bounds) - 1
    sums = np.zeros((len(which) * parts, 2))
    problem.run(
        crew, "evaluate", kernels.evaluate_worker, len(sums), bounds, parts, which, *problem.arrays,
        problem.rows.shape[1], problem.y, problem.positive, problem.weight, problem.bias, problem.squared, state.w,
        state.alpha, sums,
    )  # fmt: skip
    for at, c in enumerate(which):
        mine = sums[at * parts : (at + 1) * parts]
        state.objective[c] = math.fsum(mine[:, 0]) + 0.5 * float(np.sum(state.w[c] * state.w[c]))
        state.gap[c] = max(0.0, math.fsum(mine[:, 1]))
        if state.gap[c] <= max(tol * state.objective[c], problem.rounding):
            state.done[c] = True
        elif state.status[c, kernels.READY]:
            state.aim[c] *= _TIGHTER
        state.status[c, kernels.READY] = 0.0
        state.known[c] = True


def solve_dual(
    problem: RowProblem,
    crew: Crew,
    *,
    tol: float,
    max_sweeps: int,
    seed: int = 0,
    look: Callable[[dict[str, Any]], bool] | None = None,
    saved: FitSaving | None = None,
) -> RowFit:
    """Solve to a duality gap of tol times the objective, for every class, or until max_sweeps sweeps are made.

    look : called after every round with its state; True stops the fit
    saved : saves the state between rounds, and provides that of a fit to resume
    """
    saved = saved or FitSaving()
    state = DualState.start(problem, crew, seed)
    if (found := saved.take("dual")) is not None:
        state.restore(found)
    rounds = 0
    with saved.level("dual", state.arrays):
        while not state.done.all():
            sweep(problem, state, crew, tol=tol, max_sweeps=max_sweeps)
            evaluate(problem, state, crew, tol=tol, every=look is not None)
            rounds += 1
            if crew.asked or (look is not None and look(_seen(state, rounds))):
                break
            if saved.ended is not None and not state.done.all():
                saved.ended()
    evaluate(problem, state, crew, tol=tol, every=True)
    close = state.gap <= np.maximum(tol * state.objective, problem.rounding)
    return RowFit(state.w, state.gap, state.objective, state.swept, bool(close.all()))


def _seen(state: DualState, rounds: int) -> dict[str, Any]:
    """What `look` receives."""
    return {
        "round": rounds,
        "sweeps": int(state.swept.max()),
        "objective": float(state.objective.sum()),
        "gap": float(state.gap.sum()),
        "w": state.w,
    }
