"""Sparse regression as a program: coordinate descent by rounds of any schedule, run by compiled code.

    program = SparseRegression(X, y, alpha=0.01, schedule=st.schedule.prioritised(width=64), intercept=True)
    print(program.explain())
    result = st.run(program, pipeline=3, rounds=2000, every=100)
    result.params["coef"]

minimises (1/n) Σ loss(y, Xβ + b) + alpha·(l1_ratio·‖β‖₁ + ½·(1 − l1_ratio)·‖β‖²); the squared loss is ½(y − z)², as
scikit-learn's Lasso and ElasticNet have it, the logistic one log(1 + exp(−y z)).

All jobs of a round read what was there after round t − pipeline, and their changes are applied together. Ready
schedules run in compiled code; with a schedule of your own, or with functions of yours in a ready one, the same update
runs from Python (`update`, `aggregate`), more slowly.
"""

from __future__ import annotations

import hashlib
from contextlib import closing
from dataclasses import replace
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.data.design import Design
from stretto.errors import DataError, PlanError
from stretto.plan.job import JobPlan
from stretto.plan.planned import refuse_changed
from stretto.runtime.chosen import one_memory
from stretto.runtime.runtimes import Runtime, Threads
from stretto.runtime.team import Team
from stretto.schedule.auto import Auto, ready_schedule
from stretto.schedule.checks import uncalled
from stretto.schedule.chooser import Compiled
from stretto.schedule.columns import Columns, columns_of
from stretto.schedule.prioritised import prioritised
from stretto.schedule.spec import Floats, Schedule
from stretto.schedule.working_sets import WorkingSets

from .auto import depth_of, launch_compiled
from .driving import drive
from .machine import Cut, Machine, curvature
from .program import Program
from .set_machine import launch_sets
from .values import Options, Result

LOSSES = ("squared", "logistic")
WAYS = ("auto", "rows", "columns")
_MOST_BLOCKS, _ROWS_OF_BLOCK = 16, 256
_JOBS_OF_TASK = 4
_ENTRIES_OF_BLOCK = 8  # of a column, on average; with fewer, cutting columns into blocks costs more than it gives


class SparseRegression(Program):
    """Coordinate descent for a sparse linear model.

    X: samples × features, dense or sparse. y [n]: numbers, or for the logistic loss −1 and 1 (or 0 and 1). intercept:
    fit b as well; columns then count as centred. schedule: one of st.schedule, "auto" to have it chosen by progress, or
    None for st.schedule.prioritised(). by: gather sums by blocks of "rows" (every worker has some of the samples) or by
    "columns" (every worker has some of the features), or "auto". params: coef [p], intercept [1] and
    fitted [n] = Xβ, where a run begins and what it leaves.
    """

    def __init__(
        self,
        X: Any,
        y: Any,
        alpha: float,
        *,
        l1_ratio: float = 1.0,
        loss: str = "squared",
        intercept: bool = False,
        schedule: Schedule | str | None = None,
        by: str = "auto",
    ) -> None:
        if loss not in LOSSES:
            raise PlanError(f"SparseRegression: no loss {loss!r}; there are {', '.join(LOSSES)}")
        if by not in WAYS:
            raise PlanError(f"SparseRegression: by={by!r} is not one of {', '.join(WAYS)}")
        numbers = all(isinstance(value, Real) for value in (alpha, l1_ratio))
        if not numbers or not (np.isfinite(alpha) and alpha >= 0) or not 0 <= l1_ratio <= 1:
            raise PlanError(
                f"SparseRegression: alpha is 0 or more and l1_ratio from 0 to 1, got alpha={alpha!r}, "
                f"l1_ratio={l1_ratio!r}"
            )
        self.schedule = prioritised() if schedule is None else _chosen(schedule)
        self.design = Design.of(X)
        if not self.design.shape[0]:
            raise DataError("SparseRegression: X has no rows; give it at least one sample")
        self.y = _target(y, self.design.shape[0], loss)
        self.alpha, self.l1_ratio, self.loss, self.intercept = float(alpha), float(l1_ratio), loss, intercept
        self.by = by
        self.columns: Columns = columns_of(self.design, centred=intercept)
        self.size = self.design.shape[1]
        self.params: dict[str, NDArray[Any]] = {
            "coef": np.zeros(self.size),
            "intercept": np.full(1, self.y.mean() if intercept and loss == "squared" else 0.0),
            "fitted": np.zeros(self.design.shape[0]),
        }

    @property
    def penalty(self) -> tuple[float, float]:
        """l1 and l2 of the objective times n."""
        scale = self.design.shape[0] * self.alpha
        return scale * self.l1_ratio, scale * (1.0 - self.l1_ratio)

    def cut(self, width: int) -> tuple[Cut, str]:
        """How a round is cut into tasks, and why."""
        rows, size = self.design.shape
        blocks = max(1, min(_MOST_BLOCKS, rows // _ROWS_OF_BLOCK))
        each = self.design.nnz / max(1, size) / blocks
        by_rows = self.by == "rows"
        why = "as asked"
        if self.by == "auto":
            by_rows = blocks > 1 and each >= _ENTRIES_OF_BLOCK
            enough = "enough to be worth" if by_rows else "too few to be worth"
            why = f"a column has {each:,.0f} entries in each of {blocks} blocks of rows on average, {enough} cutting"
            if blocks == 1:
                why = f"{rows:,} samples are too few to be cut"
        return Cut(by_rows, blocks, blocks if by_rows else max(1, min(_MOST_BLOCKS, width // _JOBS_OF_TASK))), why

    def launch(self, options: Options) -> Result:
        """Run it: by compiled code where the schedule is compiled, otherwise like any program."""
        if isinstance(self.schedule, Auto) and one_memory(options.runtime):
            return self._left(launch_compiled(self, options))
        if isinstance(self.schedule, WorkingSets) and one_memory(options.runtime):
            return self._left(launch_sets(self, options))
        chooser = self.schedule.start(self.size, options.seed, self.columns)
        if not (isinstance(chooser, Compiled) and chooser.compiled):
            return super().launch(options)
        cut, workers = self.cut(chooser.width)[0], options.runtime.workers
        with closing(Team(workers)) as team:
            machine = Machine(
                self.columns, self.y, chooser, cut, self.params, loss=self.loss, penalty=self.penalty,
                depth=options.pipeline, last=options.rounds, team=team, workers=workers, record=options.record,
            )  # fmt: skip
            result = drive(
                self.name, machine, options, lambda: self.explain(pipeline=options.pipeline, runtime=options.runtime)
            )
        return self._left(result)

    def _left(self, result: Result) -> Result:
        """Leave what was learned in the parameters."""
        for name, array in self.params.items():
            array[...] = result.params[name]
        return result

    def fingerprint(self, pipeline: int = 1, seed: int = 0) -> str:
        """A short hash of all that can change a number: same fingerprint, same bits."""
        width = getattr(self.schedule, "width", 0) or 0
        said = (self.alpha, self.l1_ratio, self.loss, self.intercept, self.schedule, self.cut(width)[0], pipeline, seed)
        digest = hashlib.sha256(repr(said).encode())
        columns, start = self.columns, (self.params["coef"], self.params["intercept"])
        for array in (columns.values, columns.indices, columns.indptr, self.y, *start):
            digest.update(f"{array.dtype}{array.shape}".encode())
            digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()[:16]

    def explain(self, *, pipeline: int | None = None, runtime: Runtime | None = None) -> str:
        from .coordinates_explain import explain

        return explain(self, depth_of(self.schedule, pipeline, runtime or Threads()), runtime)

    def plan(
        self, *, pipeline: int | None = None, seed: int = 0, runtime: Runtime | None = None, **how: Any
    ) -> JobPlan:
        """The plan of `st.run(program, …)` with these arguments; nothing is run yet.

        Parameters
        ----------
        pipeline, seed, runtime, **how : as for `st.run`; how says when it ends: rounds=, until= or seconds=

        Returns
        -------
        JobPlan
            `run(runtime=…)` gives the `Result` of `st.run`. It begins where the parameters are now, so it runs once.
        """
        from .coordinates_explain import plan
        from .run import place, run

        where = place(runtime)
        depth = depth_of(self.schedule, pipeline, where)
        made = plan(self, depth, seed, where)

        def run_plan(other: Any = None) -> Result:
            there = where if other is None else place(other)
            refuse_changed(made, plan(self, depth, seed, there), "program.plan(…)")
            return run(self, pipeline=depth, seed=seed, runtime=there, **how)

        return replace(made, runner=run_plan)

    # --- the same update from Python, for schedules that compiled code does not know ---------------------------------

    def samples(self, jobs: Any) -> int:
        return int(self.columns.length[list(jobs)].sum())

    def update(self, job: int, data: Any, params: Any) -> tuple[int, float]:
        """How far coordinate `job` should move, from what is fitted now."""
        rows, x = self._column(job)
        z = params["fitted"] + params["intercept"][0]
        pull = self.y - z if self.loss == "squared" else self.y / (1.0 + np.exp(self.y * z))
        slope = float(x @ pull[rows])
        if self.intercept:
            slope -= float(self.columns.measured["total"][job]) * float(pull.mean())
        old, h = float(params["coef"][job]), float(curvature(self.columns, self.loss)[job])
        l1, l2 = self.penalty
        u = h * old + slope
        new = np.sign(u) * max(abs(u) - l1, 0.0) / (h + l2) if h > 0 else 0.0
        return job, float(new - old)

    def aggregate(self, results: Any, params: Any) -> Floats:
        """Move the coordinates, what is fitted, and the intercept."""
        level = params["intercept"]
        if self.intercept and self.loss == "logistic":
            z = self.y * (params["fitted"] + level[0])
            level += 4.0 * (self.y / (1.0 + np.exp(z))).mean()
        for job, change in results:
            rows, x = self._column(job)
            params["coef"][job] += change
            params["fitted"][rows] += change * x
            if self.intercept:
                level -= change * self.columns.measured["total"][job] / self.columns.rows
        return np.array([change for _, change in results])

    def objective(self, data: Any, params: Any) -> float:
        """(1/n) Σ loss + penalty."""
        z, beta = params["fitted"] + params["intercept"][0], params["coef"]
        loss = 0.5 * (self.y - z) ** 2 if self.loss == "squared" else np.logaddexp(0.0, -self.y * z)
        l1, l2 = self.penalty
        return float((loss.sum() + l1 * np.abs(beta).sum() + 0.5 * l2 * (beta @ beta)) / len(self.y))

    def _column(self, job: int) -> tuple[Any, NDArray[Any]]:
        columns = self.columns
        if columns.dense:
            return slice(None), columns.values[job * columns.rows : (job + 1) * columns.rows]
        where = slice(columns.indptr[job], columns.indptr[job + 1])
        return columns.indices[where], columns.values[where]


def _chosen(schedule: Any) -> Schedule:
    """A schedule that coordinates can go by."""
    schedule = ready_schedule(schedule)
    if instead := uncalled(schedule):
        raise PlanError(f"SparseRegression: schedule is a function that makes one; write schedule={instead}")
    if not isinstance(schedule, Schedule):
        raise PlanError(
            f"SparseRegression: schedule={schedule!r} does not choose rounds; give one that does, such as "
            "st.schedule.prioritised()"
        )
    if schedule.waiting is not None:
        raise PlanError(
            f"SparseRegression: jobs of {schedule!r} are blocks that wait for each other, and those of a regression "
            "are single coordinates; take another schedule, such as st.schedule.prioritised()"
        )
    return schedule


def _target(y: Any, rows: int, loss: str) -> Floats:
    """y as float64, checked; the logistic loss wants −1 and 1."""
    target = np.ascontiguousarray(y, dtype=np.float64)
    if target.shape != (rows,):
        raise DataError(f"y has shape {target.shape}, and X has {rows} rows; give one number for each row")
    if not np.isfinite(target).all():
        raise DataError(f"y holds NaN or infinity at row {int(np.flatnonzero(~np.isfinite(target))[0])}")
    if loss == "logistic":
        found = set(np.unique(target).tolist())
        if found <= {0.0, 1.0}:
            target = 2.0 * target - 1.0
        elif not found <= {-1.0, 1.0}:
            raise DataError("the logistic loss takes y of −1 and 1, or of 0 and 1; encode the classes first")
    return target
