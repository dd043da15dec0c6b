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
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.checks import shown
from stretto.data.design import Design
from stretto.errors import DataError, PlanError
from stretto.plan.job import JobPlan
from stretto.plan.planned import refuse_changed
from stretto.runtime.chosen import one_memory
from stretto.runtime.runtimes import Runtime, Threads
from stretto.runtime.team import Team
from stretto.schedule.auto import Auto
from stretto.schedule.chooser import Compiled
from stretto.schedule.columns import Columns, columns_of
from stretto.schedule.prioritised import prioritised
from stretto.schedule.spec import Floats, Schedule
from stretto.schedule.working_sets import WorkingSets

from .auto import depth_of, launch_compiled
from .coordinate_nodes import run_in_parts
from .coordinate_state import CoordinateState, Cut, curvature
from .coordinates_checks import MOST_BLOCKS, check_options, check_segments, checked_schedule, row_blocks, target_of
from .driving import drive
from .identity import Identity
from .machine import Machine
from .program import Program
from .set_machine import launch_sets
from .values import Options, Result

_JOBS_OF_TASK = 4
_ENTRIES_OF_BLOCK = 8  # of a column, on average; with fewer, cutting columns into blocks costs more than it gives


class SparseRegression(Program):
    """Coordinate descent for a sparse linear model.

    Parameters
    ----------
    X : array or sparse matrix [n, p]
        Samples × features.
    y : array [n]
        Numbers, or for the logistic loss −1 and 1 (or 0 and 1).
    alpha, l1_ratio : float
        Of the penalty.
    loss : "squared" or "logistic"
    intercept : bool
        Fit b as well; columns then count as centred.
    schedule : Schedule or "auto"
        Which coordinates make a round; st.schedule.prioritised() where none is given. "auto" has it chosen by progress.
    by : "rows", "columns" or "auto"
        Gather sums by blocks of rows (every worker has some of the samples) or by columns (some of the features).
    blocks : int or None
        Blocks of rows. It decides bits, and by rows at most as many nodes have work. None: up to 16, of 256 rows or
        more.

    Attributes
    ----------
    params : dict
        coef [p], intercept [1] and fitted [n] = Xβ: where a run begins and what it leaves.
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
        blocks: int | None = None,
    ) -> None:
        check_options(loss, by, alpha, l1_ratio)
        self.schedule = prioritised() if schedule is None else checked_schedule(schedule)
        self.design = Design.of(X)
        if not self.design.shape[0]:
            raise DataError("SparseRegression: X has no rows; give it at least one sample")
        self.y = target_of(y, self.design.shape[0], loss)
        self.alpha, self.l1_ratio, self.loss, self.intercept = float(alpha), float(l1_ratio), loss, intercept
        self.by, self.blocks = by, row_blocks(blocks, self.design.shape[0])
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
        blocks = self.blocks
        each = self.design.nnz / max(1, size) / blocks
        by_rows = self.by == "rows"
        why = "as asked"
        if self.by == "auto":
            by_rows = blocks > 1 and each >= _ENTRIES_OF_BLOCK
            enough = "enough to be worth" if by_rows else "too few to be worth"
            why = f"a column has {each:,.0f} entries in each of {blocks} blocks of rows on average, {enough} cutting"
            if blocks == 1:
                why = f"{rows:,} samples are too few to be cut"
        return Cut(by_rows, blocks, blocks if by_rows else max(1, min(MOST_BLOCKS, width // _JOBS_OF_TASK))), why

    def launch(self, options: Options) -> Result:
        """Run it: by compiled code where the schedule is compiled, otherwise like any program."""
        if isinstance(self.schedule, Auto | WorkingSets):
            check_segments(self.name, self.schedule, options)
            return self._left(
                launch_compiled(self, options) if isinstance(self.schedule, Auto) else launch_sets(self, options)
            )
        chooser, here = self.schedule.start(self.size, options.seed, self.columns), one_memory(options.runtime)
        if not (isinstance(chooser, Compiled) and chooser.compiled):
            if not here:
                raise PlanError(
                    f"{self.name}: runtime={shown(options.runtime)}: {self.schedule!r} calls functions of yours, so "
                    "updates run from Python, on threads; give st.Threads(n), or a schedule without functions"
                )
            return super().launch(options)
        arrays = CoordinateState(
            self.columns, self.y, chooser, self.cut(chooser.width)[0], self.params, loss=self.loss,
            penalty=self.penalty, depth=options.pipeline,
        )  # fmt: skip
        if here and options.keeping is None:
            return self._left(self._drive(arrays, chooser, options))
        return self._left(run_in_parts(self, arrays, chooser, options))  # the same rounds, part by part

    def _left(self, result: Result) -> Result:
        """Leave what was learned in the parameters."""
        for name, array in self.params.items():
            array[...] = result.params[name]
        return result

    def _drive(self, arrays: CoordinateState, chooser: Compiled, options: Options) -> Result:
        """Rounds in one memory."""
        workers = options.runtime.workers
        with closing(Team(workers)) as team:
            machine = Machine(
                arrays, chooser, depth=options.pipeline, last=options.rounds, team=team, workers=workers,
                record=options.record,
            )  # fmt: skip
            return drive(
                self.name, machine, options, lambda: self.explain(pipeline=options.pipeline, runtime=options.runtime)
            )

    def identity(self, pipeline: int, seed: int) -> Identity:
        from .coordinates_explain import identity

        return identity(self, pipeline, seed)

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
