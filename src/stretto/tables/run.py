"""`st.run` of a worker function, and `st.tables.plan`: check the arguments, plan, pass the job to the runtime."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from stretto.comm.policy import Policy
from stretto.consistency.rules import Rule
from stretto.plan.job import JobPlan
from stretto.plan.planned import refuse_changed
from stretto.runtime.chosen import TABLES, chosen, name_of
from stretto.runtime.files.run_checkpoints import Saving
from stretto.runtime.interrupts import raising_ctrl_c
from stretto.runtime.reported import check_session, reported
from stretto.runtime.runtimes import Threads
from stretto.runtime.session import Session
from stretto.runtime.tables.job import TableEvaluation
from stretto.runtime.tables.monitor import TableMonitor

from .job import TableRunRequest
from .options import CheckpointOptions, EvaluationOptions
from .planning import plan_tables
from .result import TableResult, result_of
from .table import Table
from .whole import View
from .worker import Worker


def run(
    worker: Callable[[Worker], Any],
    *,
    tables: Mapping[str, Table],
    workers: int = 1,
    sync: Rule | None = None,
    comm: Policy | None = None,
    runtime: Any = None,
    watch: Callable[[View], float] | None = None,
    every: int | None = None,
    every_seconds: str | float | Sequence[str | float] | None = None,
    until: Callable[[TableEvaluation], bool] | None = None,
    record: str | None = None,
    seed: int = 0,
    checkpoint: str | os.PathLike[str] | Saving | None = None,
    checkpoint_every: int | None = None,
    resume: bool = False,
    session: Session | None = None,
) -> TableResult:
    """Call `worker(w)` once for every logical worker, against tables that all of them read and add to.

    An error in any worker ends the run. Ctrl-C ends it at the end of the clock and saves a checkpoint if there is a
    folder; a second Ctrl-C ends it at once.

    Parameters
    ----------
    worker : callable
        A function worker(w) that reads tables, adds to them and ticks.
    tables : dict of Table
        The tables by name.
    workers : int, default 1
        Number of logical workers. Results depend on it, not on the number of threads or nodes.
    sync : BSP, SSP, ASP or None, default None
        How fresh a read must be; None for `st.BSP()`.
    comm : Eager, Lazy, Managed or None, default None
        What is sent when; None for `st.tables.Eager()`.
    runtime : runtime or None, default None
        `st.Threads(n)`, `st.Serial()`, `st.Simulated(…)` or `st.Cluster(…)`; None for all cores of this machine.
    watch : callable or None, default None
        function(view) -> objective, evaluated at the start, at the end, and in between as `every` and `every_seconds`
        say. `TableResult.history` has the values.
    every : int or None, default None
        Clocks of the slowest worker between two evaluations; None for 1, unless `every_seconds` is given.
    every_seconds : float, str, sequence or None, default None
        Seconds between two evaluations, such as 0.5 or "500ms", or a list of times of the run; virtual seconds on
        `st.Simulated`. Under `st.BSP()` the tables are evaluated at the next clock that ends, otherwise as they
        are then.
    until : callable or None, default None
        function(evaluation) -> bool; the run ends when it returns True.
    record : {"rows", "full"} or None, default None
        "full" keeps everything that the replay checker of stretto.testing needs, "rows" how often rows were sent (on a
        cluster that has lost a node, since the restart).
    seed : int, default 0
        Seed of `w.random` and of the communication policy.
    checkpoint : str, path, Saving or None, default None
        Folder for checkpoints.
    checkpoint_every : int or None, default None
        Clocks between two checkpoints; None chooses an interval that costs little, and saves once at the end.
        `st.Simulated` keeps checkpoints in memory: give only `checkpoint_every` there.
    resume : bool, default False
        Continue from the newest complete checkpoint, also from the end if the worker function has more clocks now.
    session : Session or None, default None
        Where to keep the run record, whether to show its page, and who listens. Evaluations of `watch` are its epochs.

    Returns
    -------
    TableResult
    """
    where = _where(runtime)
    asked = TableRunRequest.of(
        worker,
        tables,
        workers=workers,
        sync=sync,
        comm=comm,
        evaluations=EvaluationOptions(watch, every, every_seconds, until),
        record=record,
        seed=seed,
        checkpoints=CheckpointOptions(checkpoint, checkpoint_every, resume),
    )
    return _run(asked, where, session=session)


def plan(
    worker: Callable[[Worker], Any],
    *,
    tables: Mapping[str, Table],
    workers: int = 1,
    sync: Rule | None = None,
    comm: Policy | None = None,
    runtime: Any = None,
    watch: Callable[[View], float] | None = None,
    every: int | None = None,
    every_seconds: str | float | Sequence[str | float] | None = None,
    until: Callable[[TableEvaluation], bool] | None = None,
    record: str | None = None,
    seed: int = 0,
    checkpoint: str | os.PathLike[str] | Saving | None = None,
    checkpoint_every: int | None = None,
    resume: bool = False,
) -> JobPlan:
    """The plan that `st.run` with these arguments runs: grade and why, tables, rule, policy and fingerprint.

    Parameters
    ----------
    worker : callable
        A function worker(w) that reads tables, adds to them and ticks.
    tables : dict of Table
        The tables by name.
    workers : int, default 1
        Number of logical workers. Results depend on it, not on the number of threads or nodes.
    sync : BSP, SSP, ASP or None, default None
        How fresh a read must be; None for `st.BSP()`.
    comm : Eager, Lazy, Managed or None, default None
        What is sent when; None for `st.tables.Eager()`.
    runtime : runtime or None, default None
        Where it will run; None for all cores of this machine.
    watch : callable or None, default None
        function(view) -> objective.
    every : int or None, default None
        Clocks between two evaluations; None for 1, unless `every_seconds` is given.
    every_seconds : float, str, sequence or None, default None
        Seconds between two evaluations, or a list of times of the run.
    until : callable or None, default None
        Called with each evaluation; the run ends when it returns True.
    record : {"rows", "full"} or None, default None
        What the run records.
    seed : int, default 0
        Seed of `w.random` and of the communication policy.
    checkpoint : str, path, Saving or None, default None
        Folder for checkpoints.
    checkpoint_every : int or None, default None
        Clocks between two checkpoints; None chooses an interval that costs little.
    resume : bool, default False
        Continue from the newest checkpoint.

    Returns
    -------
    JobPlan
        Its grade is "identical" under `st.BSP()`, "replayable" under `st.SSP(s)` and `st.ASP()`,
        "statistical" where a table has placement="shared". `run(runtime=…)` returns the `TableResult` of `st.run`.

    Examples
    --------
    >>> import stretto as st
    >>> def worker(w):
    ...     for clock in w.clocks(2):
    ...         w.table("sum").add([0], [1.0])
    >>> plan = st.tables.plan(worker, workers=4, tables={"sum": st.tables.Table(rows=1, cols=1)}, sync=st.SSP(2))
    >>> plan.grade
    'replayable'
    """
    where = _where(runtime)
    asked = TableRunRequest.of(
        worker,
        tables,
        workers=workers,
        sync=sync,
        comm=comm,
        evaluations=EvaluationOptions(watch, every, every_seconds, until),
        record=record,
        seed=seed,
        checkpoints=CheckpointOptions(checkpoint, checkpoint_every, resume),
    )
    identity = asked.identity()
    made = plan_tables(asked, where, identity)
    asked.job(where, identity, simulated=_simulated(where))  # raises now if the runtime cannot execute it
    return replace(made, runner=partial(_run_plan, asked, made, where))


def _where(runtime: Any) -> Any:
    return chosen(runtime, owner="run", give=TABLES, default=Threads(), does="serve", work="tables")


def _simulated(runtime: Any) -> bool:
    """Whether the runtime is a simulation, which keeps checkpoints in memory."""
    return name_of(runtime) == "simulated"


def _run_plan(
    asked: TableRunRequest, made: JobPlan, where: Any, runtime: Any = None, session: Session | None = None
) -> TableResult:
    return _run(asked, where if runtime is None else _where(runtime), made, session)


def _run(
    asked: TableRunRequest, where: Any, made: JobPlan | None = None, session: Session | None = None
) -> TableResult:
    """Plan and run. made: the plan to run; PlanError if the arguments give another plan by now."""
    check_session(session)
    with raising_ctrl_c():
        identity = asked.identity()
        plan = plan_tables(asked, where, identity)
        if made is not None:
            refuse_changed(made, plan, "st.tables.plan(…)")
        job = asked.job(where, identity, simulated=_simulated(where))
        config = {"program": plan.program, "runtime": str(where), "comm": str(asked.policy)} | asked.settings()
        with reported(session, plan, config, unit="clocks", step="evaluation") as report:
            monitor = None if report.tell is None else TableMonitor(report.tell, asked.rule, asked.policy)
            outcome = where.serve(replace(job, monitor=monitor))
            if monitor is not None:
                monitor.ended(outcome, list(asked.tables))
            report.ended(outcome.stopped)
        result = replace(result_of(outcome, asked.tables, job.whole), plan=plan)
    if asked.evaluations.watch is not None:
        _warn_of_missing_ticks(result)
    return result


def _warn_of_missing_ticks(result: TableResult) -> None:
    """Warn if workers read tables and none ticked. That may be meant, but not by someone who watches the objective."""
    if result.stopped == "done" and not any(result.clocks) and result.staleness.any():
        warnings.warn(
            "run: no worker ticked, so watch= was evaluated at the start and the end only, and no worker read what "
            "others added; loop over w.clocks(n), or call w.tick() at the end of each step",
            RuntimeWarning,
            stacklevel=5,
        )
