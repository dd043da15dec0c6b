"""`st.run`: one word for running what users write, whichever door it goes through.

st.run(program, rounds=100)                                 an st.Program: schedule, update, aggregate
st.run(worker, workers=8, tables={"weights": …})            a function of a worker: read, add, tick
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, overload

from stretto.errors import PlanError

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    from stretto.comm.policy import Policy
    from stretto.consistency.rules import Rule
    from stretto.programs.program import Program
    from stretto.programs.values import Look
    from stretto.programs.values import Result as ProgramResult
    from stretto.runtime.runtimes import Runtime
    from stretto.runtime.serving import Watched
    from stretto.runtime.train import Saving
    from stretto.tables.result import Result as TablesResult
    from stretto.tables.table import Table
    from stretto.tables.whole import View
    from stretto.tables.worker import Worker


@overload
def run(
    what: Program,
    *,
    rounds: int | None = None,
    pipeline: int = 1,
    seed: int = 0,
    every: int = 1,
    until: Callable[[Look], bool] | None = None,
    seconds: float | None = None,
    runtime: Runtime | None = None,
    record: bool = False,
    verbose: int = 0,
) -> ProgramResult: ...


@overload
def run(
    what: Callable[[Worker], Any],
    *,
    tables: Mapping[str, Table],
    workers: int = 1,
    sync: Rule | None = None,
    comm: Policy | None = None,
    runtime: Any = None,
    watch: Callable[[View], float] | None = None,
    every: int = 1,
    until: Callable[[Watched], bool] | None = None,
    record: str | None = None,
    seed: int = 0,
    checkpoint: str | os.PathLike[str] | Saving | None = None,
    checkpoint_every: int | None = None,
    resume: bool = False,
) -> TablesResult: ...


def run(what: Any, **options: Any) -> Any:
    """Run a program, or a worker function against parameter tables. Never changes a number: how many threads.

    Both
    ----
    seed : what random numbers are made from
    every : rounds or clocks between two looks at the objective
    until : called with each look; the run ends when it is true
    runtime : st.Threads(n), the default, or st.Serial(); for tables st.Simulated(…) too

    An st.Program
    -------------
    rounds : at most so many; None for no limit
    pipeline : rounds in flight: round t reads the parameters after round t − pipeline; 1 is no pipelining
    seconds : the run ends after the first round that is over by then; looks are not counted
    record : keep the jobs of every round and what it read in `Result.record`
    verbose : 0 quiet, 1 a progress bar, 2 every look

    A function worker(w)
    --------------------
    tables : name → st.Table. workers : how many logical workers, which is part of what is computed
    sync : st.BSP(), the default, st.SSP(s) or st.ASP(). comm : st.Eager(), the default, st.Managed(budget) or st.Lazy()
    watch : function(view) -> objective
    record : "rows" or "full", for the replay checker
    checkpoint : folder for checkpoints; checkpoint_every : clocks between them; resume : go on from the newest

    Ctrl-C ends a run with what is there. See `stretto.programs.run.run` and `stretto.tables.run.run`.
    """
    from stretto.programs.program import Program

    if isinstance(what, Program | type) or not callable(what):
        from stretto.programs.run import run as chosen
    else:
        from stretto.tables.run import run as chosen  # type: ignore[assignment]
    known = inspect.signature(chosen).parameters
    strange = sorted(options.keys() - known.keys())
    if strange:
        kind = "a program" if chosen.__module__.startswith("stretto.programs") else "a worker function"
        raise PlanError(
            f"run: {', '.join(strange)} is nothing that {kind} is run with; there are {', '.join(list(known)[1:])}"
        )
    if "tables" in known and "tables" not in options:
        raise PlanError(
            f"run: {getattr(what, '__name__', what)!r} is a function, so it is called with a worker, and that needs "
            "tables={name: st.Table(…)}; to run rounds of updates give an st.Program"
        )
    return chosen(what, **options)
