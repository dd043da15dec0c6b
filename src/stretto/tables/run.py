"""`st.run` of a worker function, and `st.tables.plan`: check what was asked, plan, hand the job to the runtime."""

from __future__ import annotations

import os
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
from stretto.runtime.runtimes import Threads
from stretto.runtime.tables.job import Watched

from .job import Asked
from .planning import plan_tables
from .result import Result, result_of
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
    until: Callable[[Watched], bool] | None = None,
    record: str | None = None,
    seed: int = 0,
    checkpoint: str | os.PathLike[str] | Saving | None = None,
    checkpoint_every: int | None = None,
    resume: bool = False,
) -> Result:
    """Call `worker(w)` once for every logical worker, against tables they all read and add to.

    Parameters
    ----------
    tables : name → st.tables.Table
    workers : how many logical workers; part of what is computed, unlike the number of threads or nodes
    sync : st.tables.BSP(), the default, st.tables.SSP(s) or st.tables.ASP(): how fresh a read must be
    comm : st.tables.Eager(), the default, st.tables.Managed(budget, …) or st.tables.Lazy(): what is sent when
    runtime : st.Threads(n), the default, st.Serial(), st.Simulated(…) or st.Cluster(…)
    watch : function(view) -> objective, evaluated at the start and at the end, and in between as `every` and
        `every_seconds` say: `Result.history`
    every : clocks of the slowest worker between two evaluations; 1 unless `every_seconds` is given
    every_seconds : seconds between two evaluations, such as 0.5 or "500ms", or a list of seconds of the run; virtual
        seconds on st.Simulated. Under st.tables.BSP() the tables are evaluated at the next clock that ends, otherwise
        as they are at that second
    until : function(look) -> bool, asked after each evaluation; the run ends when it is true
    record : "full" keeps everything the replay checker of stretto.testing needs, "rows" how often rows travelled (on a
        cluster that has lost a node, since all began again)
    seed : what `w.random` and the communication policy draw from
    checkpoint : folder to save checkpoints in (or st.Saving); checkpoint_every : clocks between them, None for as often
        as it is worth it, and once at the end; resume : go on from the newest one that is whole, also from the end, if
        the worker function has more clocks now. st.Simulated(…) keeps them in memory: say only checkpoint_every

    An error in any worker ends the run. Ctrl-C ends it at the end of the clock with what is there, and saves it where
    there is a checkpoint folder; a second one at once.
    """
    where = _where(runtime)
    asked = Asked.of(
        worker,
        tables=tables,
        workers=workers,
        sync=sync,
        comm=comm,
        watch=watch,
        every=every,
        every_seconds=every_seconds,
        until=until,
        record=record,
        seed=seed,
        checkpoint=checkpoint,
        checkpoint_every=checkpoint_every,
        resume=resume,
    )
    return _run(asked, where)


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
    until: Callable[[Watched], bool] | None = None,
    record: str | None = None,
    seed: int = 0,
    checkpoint: str | os.PathLike[str] | Saving | None = None,
    checkpoint_every: int | None = None,
    resume: bool = False,
) -> JobPlan:
    """The plan that `st.run` with these arguments runs: its grade and why, tables, rule, policy and fingerprint.

    Parameters
    ----------
    worker, tables, … : as for `st.run`

    Returns
    -------
    JobPlan
        Grade "identical" under st.tables.BSP(), "replayable" under st.tables.SSP(s) and st.tables.ASP(), "statistical"
        where a table has placement="shared". `run(runtime=…)` gives the `Result` of `st.run`.
    """
    where = _where(runtime)
    asked = Asked.of(
        worker,
        tables=tables,
        workers=workers,
        sync=sync,
        comm=comm,
        watch=watch,
        every=every,
        every_seconds=every_seconds,
        until=until,
        record=record,
        seed=seed,
        checkpoint=checkpoint,
        checkpoint_every=checkpoint_every,
        resume=resume,
    )
    identity = asked.identity()
    made = plan_tables(asked, where, identity)
    asked.job(where, identity, simulated=_simulated(where))  # what cannot run there is refused now
    return replace(made, runner=partial(_run_plan, asked, made, where))


def _where(runtime: Any) -> Any:
    return chosen(runtime, owner="run", give=TABLES, default=Threads(), does="serve", work="tables")


def _simulated(runtime: Any) -> bool:
    """Whether checkpoints are kept in memory, with everything else."""
    return name_of(runtime) == "simulated"


def _run_plan(asked: Asked, made: JobPlan, where: Any, runtime: Any = None) -> Result:
    return _run(asked, where if runtime is None else _where(runtime), made)


def _run(asked: Asked, where: Any, made: JobPlan | None = None) -> Result:
    """Plan and run. made: the plan that is to run; PlanError if it would be another one by now."""
    with raising_ctrl_c():
        identity = asked.identity()
        plan = plan_tables(asked, where, identity)
        if made is not None:
            refuse_changed(made, plan, "st.tables.plan(…)")
        job = asked.job(where, identity, simulated=_simulated(where))
        return replace(result_of(where.serve(job), asked.tables, job.whole), plan=plan)
