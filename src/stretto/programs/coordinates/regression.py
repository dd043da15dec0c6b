"""`st.SparseRegression`: L1 and elastic-net regression by coordinate descent with any schedule, in compiled code.

    program = SparseRegression(X, y, alpha=0.01, schedule=st.schedule.prioritised(width=64), intercept=True)
    print(program.explain())
    result = st.run(program, pipeline=3, rounds=2000, every=100)
    result.params["coef"]

minimises (1/n) Σ loss(y, Xβ + b) + alpha·(l1_ratio·‖β‖₁ + ½·(1 − l1_ratio)·‖β‖²); the squared loss is ½(y − z)², as
scikit-learn's Lasso and ElasticNet have it, the logistic one log(1 + exp(−y z)).

All jobs of round t read the parameters after round t − pipeline, and their changes are applied together. In one memory,
ready schedules run in compiled code. With a schedule or functions of the user's, with checkpoints and on several nodes,
rounds run part by part: slower, with the same bits.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.data.design.design import Design
from stretto.errors import DataError
from stretto.plan.job import JobPlan
from stretto.plan.planned import refuse_changed
from stretto.programs.auto import auto_start, depth_of
from stretto.programs.choosing import remote_chooser
from stretto.programs.identity import ProgramIdentity
from stretto.programs.program import Program
from stretto.programs.values import ProgramResult, RunOptions
from stretto.runtime.blocks.team import Team
from stretto.runtime.chosen import one_memory
from stretto.runtime.runtimes import Runtime, Threads
from stretto.schedule.automatic.auto import Auto
from stretto.schedule.chooser import CompiledChooser
from stretto.schedule.columns import Columns, columns_of
from stretto.schedule.prioritised import prioritised
from stretto.schedule.spec import Schedule
from stretto.schedule.working_sets import WorkingSets

from .arguments import MOST_BLOCKS, check_options, checked_schedule, row_blocks, target_of
from .driving import drive
from .engine import CoordinateEngine
from .nodes import run_in_parts
from .segments import Restarted, SegmentEngine, Segments
from .set_segments import sets_start
from .state import CoordinateState, Cut

_JOBS_OF_TASK = 4
_ENTRIES_OF_BLOCK = 8  # of a column, on average; with fewer, cutting columns into blocks costs more than it gives


class SparseRegression(Program):
    """Coordinate descent for a sparse linear model, as a program for `st.run`.

    Parameters
    ----------
    X : array or sparse matrix [n, p]
        Samples × features.
    y : array [n]
        Targets; for the logistic loss −1 and 1, or 0 and 1.
    alpha : float
        Strength of the penalty.
    l1_ratio : float, default 1.0
        Share of the penalty that is ‖w‖₁.
    loss : {"squared", "logistic"}, default "squared"
        The loss of a sample.
    intercept : bool, default False
        Fit an intercept as well; columns then count as centred.
    schedule : Schedule, "auto" or None, default None
        Which coordinates make a round; None for `st.schedule.prioritised()`. "auto" chooses by progress.
    by : {"rows", "columns", "auto"}, default "auto"
        How sums are computed: by blocks of rows (every worker has some of the samples) or by columns (some of the
        features).
    blocks : int or None, default None
        Blocks of rows. Results depend on it, and by rows at most this many nodes have work. None: up to 16, of 256 rows
        or more.

    Attributes
    ----------
    params : dict
        coef [p], intercept [1] and fitted [n] = Xβ: where a run begins and what it leaves.

    Examples
    --------
    >>> import numpy as np, stretto as st
    >>> X = np.random.default_rng(0).normal(size=(50, 6))
    >>> problem = st.SparseRegression(X, 3 * X[:, 4], alpha=0.1, schedule=st.schedule.cyclic(2))
    >>> result = st.run(problem, rounds=30, runtime=st.Serial())
    >>> np.flatnonzero(result.params["coef"])
    array([4])
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
        """Weights of ‖w‖₁ and ½‖w‖² in n times the objective."""
        scale = self.design.shape[0] * self.alpha
        return scale * self.l1_ratio, scale * (1.0 - self.l1_ratio)

    def cut(self, width: int) -> tuple[Cut, str]:
        """How a round is cut into tasks, and why.

        Parameters
        ----------
        width : int
            Coordinates of a round.
        """
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

    def _check(self) -> None:
        """Nothing to do: the constructor checks all arguments, and the program has no functions of the user's."""

    def launch(self, options: RunOptions) -> ProgramResult:
        """Run the program: in one memory by the compiled engine, otherwise the same rounds part by part.

        Parameters
        ----------
        options : RunOptions
            The arguments of `st.run`, checked.
        """
        here = one_memory(options.runtime) and options.keeping is None
        if isinstance(self.schedule, Auto | WorkingSets):
            start = (auto_start if isinstance(self.schedule, Auto) else sets_start)(self, options)
            arrays = self._state(options, start.cut, start.width)
            if here:
                return self._left(self._drive(arrays, start.chooser, options, start.begin))
            return self._left(run_in_parts(self, arrays, start.chooser, options, start.begin))
        if options.schedulers_on == "nodes":
            remote = remote_chooser(self.schedule, self.columns.size)
            arrays = self._state(options, remote.width, remote.width, remote.queues)
            return self._left(run_in_parts(self, arrays, remote, options))
        chooser = self.schedule.start(self.size, options.seed, self.columns)
        if not isinstance(chooser, CompiledChooser):  # a schedule of the user's
            width = getattr(self.schedule, "width", None)
            width = min(self.columns.size, width) if isinstance(width, int) and width > 0 else self.columns.size
            return self._left(run_in_parts(self, self._state(options, width, width), chooser, options))
        arrays = self._state(options, chooser.width, chooser.width, len(chooser.choice.place))
        if here and chooser.compiled:
            return self._left(self._drive(arrays, chooser, options))
        return self._left(run_in_parts(self, arrays, chooser, options))

    def _state(self, options: RunOptions, cut: int, width: int, queues: int = 1) -> CoordinateState:
        """The arrays of a run. cut: width of a round, which decides how it is cut; queues: number of schedulers."""
        return CoordinateState(
            self.columns, self.y, self.cut(cut)[0], self.params, loss=self.loss, penalty=self.penalty,
            depth=options.pipeline, width=width, queues=queues,
        )  # fmt: skip

    def _left(self, result: ProgramResult) -> ProgramResult:
        """Copy the result into the parameters of the program."""
        for name, array in self.params.items():
            array[...] = result.params[name]
        return result

    def _drive(
        self,
        arrays: CoordinateState,
        chooser: CompiledChooser,
        options: RunOptions,
        begin: Callable[[Restarted], Segments] | None = None,
    ) -> ProgramResult:
        """Run rounds in one memory. begin: creates the segments of a schedule that has segments."""
        workers = options.runtime.workers
        with closing(Team(workers)) as team:
            machine = CoordinateEngine(
                arrays, chooser, depth=options.pipeline, last=options.rounds if begin is None else 0, team=team,
                workers=workers, record=options.record,
            )  # fmt: skip
            return drive(
                self.name,
                machine if begin is None else SegmentEngine(machine, begin),
                options,
                lambda: self.explain(pipeline=options.pipeline, runtime=options.runtime),
            )

    def identity(self, pipeline: int, seed: int) -> ProgramIdentity:
        """What decides the bits of a run, by name.

        Parameters
        ----------
        pipeline : int
            Pipeline depth.
        seed : int
            Seed of the run.
        """
        from .explain import identity

        return identity(self, pipeline, seed)

    def fingerprint(self, pipeline: int = 1, seed: int = 0) -> str:
        """A short hash of everything that can change a number: same fingerprint, same bits.

        Parameters
        ----------
        pipeline : int, default 1
            Pipeline depth.
        seed : int, default 0
            Seed of the run.
        """
        width = getattr(self.schedule, "width", 0) or 0
        said = (self.alpha, self.l1_ratio, self.loss, self.intercept, self.schedule, self.cut(width)[0], pipeline, seed)
        digest = hashlib.sha256(repr(said).encode())
        columns, start = self.columns, (self.params["coef"], self.params["intercept"])
        for array in (columns.values, columns.indices, columns.indptr, self.y, *start):
            digest.update(f"{array.dtype}{array.shape}".encode())
            digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()[:16]

    def explain(self, *, pipeline: int | None = None, runtime: Runtime | None = None) -> str:
        """How the program would run and what is promised, in words.

        Parameters
        ----------
        pipeline : int or None, default None
            Pipeline depth, as for `st.run`.
        runtime : runtime or None, default None
            Where it would run.
        """
        from .explain import explain

        return explain(self, depth_of(self.schedule, pipeline, runtime or Threads()), runtime)

    def plan(
        self, *, pipeline: int | None = None, seed: int = 0, runtime: Runtime | None = None, **how: Any
    ) -> JobPlan:
        """The plan of `st.run(program, …)` with these arguments. Nothing runs yet.

        Parameters
        ----------
        pipeline : int or None, default None
            Pipeline depth, as for `st.run`.
        seed : int, default 0
            Seed of the run.
        runtime : runtime or None, default None
            Where it will run.
        **how
            When it ends: rounds=, until= or seconds=, and other options of `st.run`.

        Returns
        -------
        JobPlan
            `run(runtime=…)` returns the `ProgramResult` of `st.run`. It starts from the present parameters, so it runs
            once.
        """
        from stretto.programs.run import place, run

        from .explain import plan

        where = place(runtime)
        depth = depth_of(self.schedule, pipeline, where)
        made = plan(self, depth, seed, where)

        def run_plan(other: Any = None) -> ProgramResult:
            there = where if other is None else place(other)
            refuse_changed(made, plan(self, depth, seed, there), "program.plan(…)")
            return run(self, pipeline=depth, seed=seed, runtime=there, **how)

        return replace(made, runner=run_plan)

    def objective(self, data: Any, params: Any) -> float:
        """(1/n) Σ loss + penalty.

        Parameters
        ----------
        data : object
            The samples.
        params : mapping
            The arrays that are learned.
        """
        z, beta = params["fitted"] + params["intercept"][0], params["coef"]
        loss = 0.5 * (self.y - z) ** 2 if self.loss == "squared" else np.logaddexp(0.0, -self.y * z)
        l1, l2 = self.penalty
        return float((loss.sum() + l1 * np.abs(beta).sum() + 0.5 * l2 * (beta @ beta)) / len(self.y))
