"""`st.run`: run a program, a worker function against parameter tables, or a task.

st.run(program, rounds=100)                                 an st.Program: schedule, update, aggregate
st.run(worker, workers=8, tables={"weights": …})            a function of a worker: read, add, tick
st.run(st.seq(st.unit(…), …))                               a task: units in order, in loops, side by side
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar, overload

from stretto.errors import PlanError


def _run(what: Any, **options: Any) -> Any:
    """Run a program, a worker function against parameter tables, or a task.

    The number of threads never changes a result. Ctrl-C ends a run early and returns what was learned so far.

    Parameters
    ----------
    what : Program, callable or Task
        An `st.Program`; a function worker(w) that reads tables, adds to them and ticks; or a tree of `st.unit`,
        `st.seq`, `st.loop`, `st.branch` and `st.parallel_units`.
    seed : int, default 0
        Seed of everything that is drawn.
    every : int
        Rounds (1 unless given) or clocks between two evaluations of the objective.
    until : callable or None, default None
        Called with each evaluation; the run ends when it returns True.
    runtime : runtime or None, default None
        `st.Threads(n)`, `st.Serial()`, `st.Simulated(…)` or `st.Cluster(…)`; None for all cores of this machine.
    checkpoint : str, path, Saving or None, default None
        Folder for checkpoints.
    checkpoint_every : int, str or None, default None
        Rounds, clocks or stages between two checkpoints; for a task also text such as "100 iterations" or "30s". None
        chooses an interval that costs little.
    resume : bool, default False
        Continue from the newest checkpoint. What a program's schedule and parts remember is pickled: resume only from
        folders that you trust.
    record : bool or str
        Program: True keeps the jobs of every round and what it read in `Result.record`. Worker and task: "rows" counts
        how often rows were sent, "full" keeps everything that the replay checker needs.
    rounds : int or None, default None
        Program: the most rounds; None for no limit.
    pipeline : int or None, default None
        Program: pipeline depth. Round t reads the parameters after round t − pipeline; 1 is no pipelining. None: 1, or
        3 with schedule="auto" on several machines.
    seconds : float or None, default None
        Program: end after the first round that ends later than this; evaluations are not counted.
    verbose : int, default 0
        Program: 0 quiet, 1 a progress bar, 2 a line for every evaluation.
    session : Session or None, default None
        Where to record the run, whether to show its page, and who listens. Of a program also when to save checkpoints
        and whether to resume, as for estimators; in place of checkpoint, checkpoint_every and resume.
    check_every : int or None, default None
        Program: rounds between two checks that `update` depends on its arguments alone: one job is updated twice on
        every part and both calls must give the same bits. None: in round 1, where an update takes less than 50 ms. 0:
        never.
    schedulers_on : str, default "driver"
        Program: "nodes" runs each of the `schedulers` of `st.schedule.prioritised` on a node of its own, the last
        nodes of the runtime, with its share of the columns. Never changes a number.
    tables : dict of Table
        Worker: the tables by name.
    workers : int, default 1
        Worker: number of logical workers. Results depend on it, not on the number of threads or nodes.
    sync : BSP, SSP, ASP or None, default None
        Worker: how fresh a read must be; None for `st.BSP()`.
    comm : Eager, Lazy, Managed or None, default None
        Worker: what is sent when; None for `st.tables.Eager()`.
    watch : callable or None, default None
        Worker: function(view) -> objective, evaluated at the start, at the end and in between.
    every_seconds : float, str or sequence, default None
        Worker: seconds between two evaluations, such as 0.5 or "500ms", or a list of times of the run. Virtual seconds
        on `st.Simulated`.
    on_stage : callable or None, default None
        Task: called with the record of every stage that has ended.
    on_event : callable or None, default None
        Task: called with an event for every decision of a loop with sync="adaptive".
    memory : str, int or None, default None
        Task: bytes of each state that a node of a cluster keeps in memory in stages on one node, such as "1GiB".
    transfer : {"direct", "shards"}, default "direct"
        Task: how a state gets from a stage on one node to a stage on another, from node to node or over all nodes.

    Returns
    -------
    Result
        Of a program: `params`, `history`, `stopped` and more. Of a worker function: `tables`, `history`, `staleness`
        and more. Of a task: `value`, `stages` and more; what was learned is in its states.

    Raises
    ------
    PlanError
        If an option does not exist for what is run, or has a wrong value.
    RunError
        If a function of the user fails.

    Examples
    --------
    A program: jobs are updated by a schedule.

    >>> import numpy as np, stretto as st
    >>> halve = st.program(
    ...     update=lambda job, data, params: (job, params["x"][job] / 2),
    ...     aggregate=lambda results, params: [params["x"].__setitem__(job, value) for job, value in results] and None,
    ...     schedule=st.schedule.cyclic(width=2),
    ...     params={"x": np.ones(4)},
    ... )
    >>> st.run(halve, rounds=3, runtime=st.Serial()).params["x"].tolist()
    [0.25, 0.25, 0.5, 0.5]

    A worker function: each logical worker reads and adds.

    >>> def worker(w):
    ...     counts = w.table("counts")
    ...     for clock in w.clocks(3):
    ...         counts.add([w.number], [1.0])
    >>> result = st.run(worker, workers=2, tables={"counts": st.tables.Table(rows=2, cols=1)}, runtime=st.Serial())
    >>> result.tables["counts"].tolist()
    [3.0, 3.0]
    """
    from stretto.programs.program import Program
    from stretto.tasks.tree import Task

    kind = "a worker function"
    if isinstance(what, Task):
        from stretto.tasks.run import run as chosen

        kind = "a task"
    elif isinstance(what, Program | type) or not callable(what):
        from stretto.programs.run import run as chosen  # type: ignore[assignment]

        kind = "a program"
    else:
        from stretto.tables.run import run as chosen  # type: ignore[assignment]
    known = inspect.signature(chosen).parameters
    strange = sorted(options.keys() - known.keys())
    if strange:
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
    from stretto.tasks.run import run as run_task

    P = ParamSpec("P")
    Q = ParamSpec("Q")
    T = ParamSpec("T")
    R_co = TypeVar("R_co", covariant=True)
    S_co = TypeVar("S_co", covariant=True)
    U_co = TypeVar("U_co", covariant=True)

    class AnyOf(Protocol[P, R_co, Q, S_co, T, U_co]):
        """Called as one of three functions: type checkers see all signatures, and each is written once."""

        @overload
        def __call__(self, *args: P.args, **options: P.kwargs) -> R_co: ...

        @overload
        def __call__(self, *args: Q.args, **options: Q.kwargs) -> S_co: ...

        @overload
        def __call__(self, *args: T.args, **options: T.kwargs) -> U_co: ...

    def any_of(
        one: Callable[P, R_co], two: Callable[Q, S_co], three: Callable[T, U_co]
    ) -> AnyOf[P, R_co, Q, S_co, T, U_co]: ...

    run = any_of(run_task, run_program, run_worker)
else:
    run = _run
    run.__name__ = run.__qualname__ = "run"
