"""`st.run`: one word for running what users write, whichever door it goes through.

st.run(program, rounds=100)                                 an st.Program: schedule, update, aggregate
st.run(worker, workers=8, tables={"weights": …})            a function of a worker: read, add, tick
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar, overload

from stretto.errors import PlanError


def _run(what: Any, **options: Any) -> Any:
    """Run a program, or a worker function against parameter tables. Never changes a number: how many threads.

    Both
    ----
    seed : what random numbers are made from
    every : rounds or clocks between two looks at the objective
    until : called with each look; the run ends when it is true
    runtime : st.Threads(n), the default, st.Serial(), st.Simulated(…) or st.Cluster(…)
    checkpoint : folder for checkpoints. checkpoint_every : rounds or clocks between two. resume : go on from the newest

    An st.Program
    -------------
    rounds : at most so many; None for no limit
    pipeline : rounds in flight: round t reads the parameters after round t − pipeline; 1 is no pipelining
    seconds : the run ends after the first round that is over by then; looks are not counted
    record : keep the jobs of every round and what it read in `Result.record`
    verbose : 0 quiet, 1 a progress bar, 2 every look
    session : an st.Session, in the place of checkpoint, checkpoint_every and resume; with it the run can be recorded

    A function worker(w)
    --------------------
    tables : name → st.tables.Table. workers : how many logical workers, which is part of what is computed
    sync : st.tables.BSP(), the default, st.tables.SSP(s) or st.tables.ASP()
    comm : st.tables.Eager(), the default, st.tables.Managed(budget) or st.tables.Lazy()
    watch : function(view) -> objective
    record : "rows" or "full", for the replay checker

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
            "tables={name: st.tables.Table(…)}; to run rounds of updates give an st.Program"
        )
    return chosen(what, **options)


if TYPE_CHECKING:
    from stretto.programs.run import run as run_program
    from stretto.tables.run import run as run_worker

    P = ParamSpec("P")
    Q = ParamSpec("Q")
    R_co = TypeVar("R_co", covariant=True)
    S_co = TypeVar("S_co", covariant=True)

    class Either(Protocol[P, R_co, Q, S_co]):
        """Called as one function or as the other: whoever checks types hears of both, and each is written down once."""

        @overload
        def __call__(self, *args: P.args, **options: P.kwargs) -> R_co: ...

        @overload
        def __call__(self, *args: Q.args, **options: Q.kwargs) -> S_co: ...

    def either(one: Callable[P, R_co], other: Callable[Q, S_co]) -> Either[P, R_co, Q, S_co]: ...

    run = either(run_program, run_worker)
else:
    run = _run
    run.__name__ = run.__qualname__ = "run"
