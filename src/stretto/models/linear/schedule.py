"""Fit a linear model by rounds of a schedule (such as `st.schedule.prioritised()`) instead of working sets.

The round engine computes the objective but not the duality gap, which costs a pass over all features. So it runs until
the objective has nearly stopped falling; then the gap is measured. If that is too large, the engine continues, and the
next measurement waits until the objective falls more slowly still. On a cluster the rounds run on nodes, which are
started once, and the driver measures the gap. The runtime changes no number.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.data.design.design import Design
from stretto.errors import Diverged, PlanError
from stretto.programs.coordinates.regression import SparseRegression
from stretto.programs.run import run
from stretto.programs.values import Look
from stretto.runtime.rounds.started import started
from stretto.runtime.runtimes import Runtime
from stretto.schedule.automatic.auto import Auto
from stretto.schedule.spec import Schedule
from stretto.solvers.linear.fit_saving import FitSaving
from stretto.solvers.linear.regression import Fit, PenaltySolver, RegressionProblem

from .input import beginning


def fit_by_schedule(
    problem: RegressionProblem,
    works: PenaltySolver,
    l1: float,
    l2: float,
    *,
    schedule: Schedule,
    gap: float,
    share: float,
    max_rounds: int,
    start: Fit | None,
    look: Callable[[dict[str, Any]], bool] | None,
    runtime: Runtime,
    seed: int,
    saved: FitSaving,
) -> Fit:
    """Solve a problem by the rounds of a schedule until the duality gap, which `works` measures, is small enough.

    max_rounds : sweeps at most; a sweep is features / width rounds of the schedule
    saved : receives the state after each measurement of the gap
    """
    _refuse(problem)
    assert isinstance(problem.design, Design)
    if isinstance(schedule, Auto) and schedule.latency is None:
        schedule = replace(schedule, latency=0.0)  # that of the runtime would make other choices, and other bits
    samples, features = problem.design.shape
    each = float(problem.weight[0]) * samples  # the round engine minimises the mean loss
    program = SparseRegression(
        problem.design,
        problem.y,
        (l1 + l2) / each,
        l1_ratio=l1 / (l1 + l2),
        loss=problem.loss,
        intercept=problem.intercept,
        schedule=schedule,
    )
    # The objective at zero or at the start: no working schedule ends a leg above both.
    worst = program.objective(None, program.params)
    if start is not None:
        program.params["coef"][:] = start.coef
        program.params["fitted"][:] = problem.design.matrix @ start.coef
        program.params["intercept"][:] = start.intercept
        worst = max(worst, program.objective(None, program.params))
    sweep = math.ceil(features / max(1, getattr(schedule, "width", 1)))
    calm, sweeps, updates, leg = gap / each, 0, 0, 0
    if (state := saved.take("schedule")) is not None:
        for name, array in program.params.items():
            array[:] = state[name]
        sweeps, updates, leg = state["counts"].tolist()
        calm, worst = state["limits"].tolist()

    def now() -> dict[str, NDArray[Any]]:
        counts = np.array([sweeps, updates, leg], np.int64)
        return {**program.params, "counts": counts, "limits": np.array([calm, worst])}

    with saved.level("schedule", now), started(runtime) as where:
        while True:
            quiet = _ObjectiveSettled(calm, max_rounds - sweeps)
            result = run(program, every=sweep, until=quiet, runtime=where, seed=seed + leg)
            if result.stopped == "interrupted":
                raise KeyboardInterrupt
            if not result.objective <= worst + gap / each:  # also true for NaN
                raise Diverged(
                    f"the objective went up to {result.objective:.3g} from at most {worst:.3g}: schedule="
                    f"{schedule!r} updates features together that disturb each other; take a smaller width or "
                    "st.schedule.prioritised()"
                )
            sweeps, updates, leg = sweeps + quiet.looks, updates + result.updates, leg + 1
            found = beginning(result.params["coef"], float(result.params["intercept"][0]), problem)
            fit = works.fit(l1, l2, gap=gap, share=share, max_rounds=0, start=found)
            fit = replace(fit, rounds=sweeps, epochs=updates // max(1, features))
            seen = {"round": sweeps, "epochs": fit.epochs, "gap": fit.gap, "goal": fit.goal, "objective": fit.objective}
            stop = look is not None and look({**seen, "coef": fit.coef, "intercept": fit.intercept})
            if fit.converged or sweeps >= max_rounds or stop or result.stopped == "schedule":
                return fit
            calm /= 8.0
            if saved.ended is not None:
                saved.ended()


class _ObjectiveSettled:
    """Whether the objective fell by no more than `calm` in the last sweep."""

    def __init__(self, calm: float, most: int) -> None:
        self.calm, self.most, self.looks, self.last = calm, most, 0, math.inf

    def __call__(self, look: Look) -> bool:
        self.looks += 1
        over = self.last - look.objective <= self.calm or self.looks >= self.most
        self.last = look.objective
        return over


def _refuse(problem: RegressionProblem) -> None:
    asked = [
        (problem.positive, "positive=True"),
        (problem.scale is not None, "standardize=True"),
        (bool(np.ptp(problem.weight)), "weights that differ"),
    ]
    found = [words for there, words in asked if there]
    if found:
        raise PlanError(
            f"schedule= solves the plain problem, without {' and '.join(found)}; leave schedule=None for that"
        )
