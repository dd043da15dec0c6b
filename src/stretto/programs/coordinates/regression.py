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

from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from typing import Any

from stretto.plan.job import JobPlan
from stretto.plan.planned import refuse_changed
from stretto.programs.auto import depth_of
from stretto.programs.choosing import remote_chooser
from stretto.programs.coordinates.auto_start import auto_start
from stretto.programs.program import Program
from stretto.programs.run import place, run
from stretto.programs.values import ProgramIdentity, ProgramResult, RunOptions
from stretto.runtime.blocks.team import Team
from stretto.runtime.chosen import one_memory
from stretto.runtime.runtimes import Runtime, Threads
from stretto.schedule.automatic.auto import Auto
from stretto.schedule.chooser import CompiledChooser
from stretto.schedule.working_sets import WorkingSets

from . import explain as explained
from .driving import drive
from .engine import CoordinateEngine
from .nodes import run_in_parts
from .problem import CoordinateProgramBase
from .segments import Restarted, SegmentEngine, Segments
from .set_segments import sets_start
from .state import CoordinateState


class SparseRegression(CoordinateProgramBase, Program):
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
        return explained.identity(self, pipeline, seed)

    def explain(self, *, pipeline: int | None = None, runtime: Runtime | None = None) -> str:
        """How the program would run and what is promised, in words.

        Parameters
        ----------
        pipeline : int or None, default None
            Pipeline depth, as for `st.run`.
        runtime : runtime or None, default None
            Where it would run.
        """
        return explained.explain(self, depth_of(self.schedule, pipeline, runtime or Threads()), runtime)

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
        where = place(runtime)
        depth = depth_of(self.schedule, pipeline, where)
        made = explained.plan(self, depth, seed, where)

        def run_plan(other: Any = None) -> ProgramResult:
            there = where if other is None else place(other)
            refuse_changed(made, explained.plan(self, depth, seed, there), "program.plan(…)")
            return run(self, pipeline=depth, seed=seed, runtime=there, **how)

        return replace(made, runner=run_plan)
