"""`st.unit`, `st.seq`, `st.loop`, `st.branch`, `st.parallel_units`, `st.below`, `st.stalls`: how trees are made."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from stretto.checks import number, shown, whole
from stretto.consistency.rules import BSP, Rule
from stretto.errors import PlanError

from .adaptive.syncing import ADAPTIVE, checked_sync, loop_sync
from .logical import describe
from .partitions.declared import refuse_in_loops, unit_argument
from .partitions.unit_options import (
    check_replicated,
    checked_partition,
    checked_preparation,
    fresh_positions,
    names_of,
    parts_of,
    placed,
)
from .plan import TaskPlan
from .run import plan_of
from .transactions.declared import mailbox_of
from .tree import BranchTask, Criterion, ParallelTasks, RepeatedTask, SequenceTask, Task, Unit, is_loop

MODES = ("sequential", "locked", "hogwild")


class _Methods:
    """What a tree can be asked for."""

    def logical(self, task: Task) -> str:
        """The tree in words."""
        return describe(task)

    def plan(self, task: Task, workers: int | None, nodes: int, memory: str | int | None) -> TaskPlan:
        """The physical plan."""
        return plan_of(task, workers, nodes, memory)


Task._methods = _Methods()


def unit(
    function: Callable[..., Any],
    *arguments: Any,
    workers: int | str | None = None,
    parts: int | None = None,
    iterations: int = 1,
    placement: Mapping[int, int] | None = None,
    priority: float = 0.0,
    mode: str | None = None,
    sync: Rule | str | None = None,
    fresh: Sequence[Any] = (),
    batch: int | None = None,
    preparation: str | None = None,
    partition: Mapping[str, Any] | None = None,
    name: str | None = None,
) -> Unit:
    """A unit of a task: a function over data and states, which runs as a stage of its own width.

    The function is called as `function(worker, *arguments)` once for every part and iteration. What it gets for each
    argument depends on what was given: of data (arrays, sparse matrices, `st.Data`, tuples of them) the rows of the
    part; of a state (`st.state`, `st.zeros`, …) a handle with `read` and `add`, as for tables; numbers and text as they
    are. What it returns is the value of the unit: the sum over the parts, in their order, in the last iteration.

    Parameters
    ----------
    function : callable or Loop
        `function(worker, *arguments)`, or a loop of `@st.parallel`, which is called with the arguments themselves.
    *arguments
        Data, states and plain values.
    workers : int, "auto" or None, default None
        Width: workers that run the parts. "auto" measures and chooses; None takes all that the runtime has. Never
        changes a result under `st.BSP()`.
    parts : int or None, default None
        Logical parts that data and work are cut into; results depend on it. None: 16 where data are given, else 1;
        of files at most one for each block.
    iterations : int, default 1
        Calls for each part. Every iteration ends with a tick.
    placement : dict of int or None, default None
        Workers by node, followed strictly: {0: 4, 2: 4}. None leaves it to the scheduler.
    priority : float, default 0.0
        Stages of a higher priority start first.
    mode : {"sequential", "locked", "hogwild"} or None, default None
        States as one array of this process: parts one after another, in threads that lock the chunks they touch, or in
        threads without locks. None: served states, whose freshness `sync` says.
    sync : BSP, SSP, ASP, "adaptive" or None, default None
        How fresh a read must be; None for that of the loop around it, or `st.BSP()`. "adaptive": chosen while it
        runs, by the criterion of the loop around it (see `st.loop`).
    fresh : sequence of states, default ()
        States that start from their first values each time the unit runs.
    batch : int or None, default None
        Samples of an iteration, under which the best width is remembered.
    preparation : {"whole", "on-demand", "served"} or None, default None
        How a stage on one node of a cluster gets its states: all rows before it starts, or chunks of rows when they are
        first used. None: whole for small states and for many iterations, otherwise on demand. "served" leaves them cut
        over all nodes, from which they are read and to which changes are sent in every iteration.
    partition : dict or None, default None
        By parameter of the function: how a stage on several nodes cuts that state over them. "range" for a contiguous
        range of rows on each node; "parts" for an even range for each part, on the node where the part runs; or
        function(rows [n], nodes) -> [n] the place of each row among the nodes, which is asked for the first row of
        every chunk (64 KiB). None: even shares, with as few moves as possible.
    name : str or None, default None
        Its name in plans and events; None for the name of the function.

    Returns
    -------
    Unit

    Examples
    --------
    >>> import numpy as np, stretto as st
    >>> def count(worker, rows, total):
    ...     total.add([0], [len(rows)])
    >>> total = st.zeros(1, "i8")
    >>> result = st.run(st.unit(count, np.arange(100), total), runtime=st.Serial())
    >>> total.array.tolist()
    [100]
    """
    if not callable(function):
        raise PlanError(f"unit: {shown(function)} cannot be called; give a function(worker, *states) or a loop")
    called = str(name or getattr(function, "__name__", type(function).__name__))
    owner = f"unit {called}"
    looped = is_loop(function)
    if workers == "auto" and placement is not None:
        raise PlanError(f"{owner}: workers='auto' and placement= contradict each other; leave one of them out")
    made = tuple(
        unit_argument(owner, given, named)
        for given, named in zip(arguments, names_of(function, arguments, looped), strict=True)
    )
    if mode is not None and mode not in MODES:
        raise PlanError(f"{owner}: mode={mode!r}; choose {', '.join(map(repr, MODES))}, or leave it out")
    rule = checked_sync(owner, sync)
    if sync == ADAPTIVE and mode is not None:
        raise PlanError(f"{owner}: sync='adaptive' and mode={mode!r} contradict each other; leave one of them out")
    if workers is not None and workers != "auto":
        workers = whole("workers", workers, 1, owner, "or 'auto'")
    number("priority", priority, owner=owner)
    check_replicated(owner, made, mode, parts)
    blocks = [argument for argument in made if argument.kind in ("block", "blocks")]
    if looped and blocks:
        raise PlanError(f"{owner}: a loop cannot use {blocks[0].name!r}, which is read in blocks; give a function")
    if looped:
        refuse_in_loops(owner, made)
    if looped and (parts is not None or mode is not None or sync is not None or fresh):
        raise PlanError(f"{owner}: a loop has its own blocks and order; leave out parts=, mode=, sync= and fresh=")
    many = parts_of(owner, made, parts)
    if not looped:
        made += mailbox_of(owner, made, many, mode)
    return Unit(
        function,
        made,
        workers,
        many,
        whole("iterations", iterations, 1, owner),
        placed(owner, placement),
        float(priority),
        mode,
        BSP() if rule is None else rule,
        fresh_positions(owner, made, fresh),
        None if batch is None else whole("batch", batch, 1, owner),
        called,
        checked_preparation(owner, preparation),
        checked_partition(owner, made, partition),
        sync is not None,
        sync == ADAPTIVE,
    )


def seq(*tasks: Task) -> SequenceTask:
    """Tasks one after another: each sees what those before it have written.

    Parameters
    ----------
    *tasks : task
        Units, loops, branches.

    Returns
    -------
    Task

    Examples
    --------
    >>> import stretto as st
    >>> def add_one(worker, x):
    ...     x.add([0], [1.0])
    >>> x = st.zeros(1)
    >>> result = st.run(st.seq(st.unit(add_one, x), st.unit(add_one, x)), runtime=st.Serial())
    >>> x.array.tolist()
    [2.0]
    """
    return SequenceTask(_tasks("seq", tasks))


def loop(body: Task, *, times: int | None = None, until: Any = None, sync: Rule | str | None = None) -> RepeatedTask:
    """Repeat a task.

    Parameters
    ----------
    body : task
        What is repeated.
    times : int or None, default None
        The most turns; None for no limit, which needs `until`.
    until : unit or criterion, default None
        Runs after every turn; the loop ends when it holds. A unit holds when its value is true; see `st.below` and
        `st.stalls`.
    sync : BSP, SSP, ASP, "adaptive" or None, default None
        How fresh reads must be in the units below that give no sync of their own. "adaptive": chosen while the loop
        runs, so that the value of the criterion, which must be `st.below` or `st.stalls`, falls as fast as possible;
        numbers that units expose with `st.knob` are chosen too. See `result.moves`.

    Returns
    -------
    Task

    Examples
    --------
    >>> import stretto as st
    >>> def halve(worker, x):
    ...     x.add([0], -x.read([0]) / 2)
    >>> def size(worker, x):
    ...     return float(x.read([0])[0])
    >>> x = st.full(1, 1.0)
    >>> result = st.run(st.loop(st.unit(halve, x), until=st.below(st.unit(size, x), 0.2)), runtime=st.Serial())
    >>> x.array.tolist()
    [0.125]
    """
    if times is None and until is None:
        raise PlanError("loop: it would never end; give times=, until=, or both")
    criterion = None if until is None else _criterion("loop", until)
    inside, adaptive = loop_sync(_tasks("loop", (body,))[0], criterion, sync)
    return RepeatedTask(inside, None if times is None else whole("times", times, 1, "loop"), criterion, adaptive)


def branch(condition: Any, then: Task, otherwise: Task | None = None) -> BranchTask:
    """Run one of two tasks, as the value of a unit says.

    Parameters
    ----------
    condition : unit or criterion
        Runs first.
    then : task
        Runs if it holds.
    otherwise : task or None, default None
        Runs if it does not.

    Returns
    -------
    Task

    Examples
    --------
    >>> import stretto as st
    >>> def large(worker, x):
    ...     return bool(x.read([0])[0] > 10)
    >>> def reset(worker, x):
    ...     x.add([0], -x.read([0]))
    >>> x = st.full(1, 20.0)
    >>> result = st.run(st.branch(st.unit(large, x), st.unit(reset, x)), runtime=st.Serial())
    >>> x.array.tolist()
    [0.0]
    """
    return BranchTask(
        _criterion("branch", condition), *_tasks("branch", (then, *((otherwise,) if otherwise is not None else ())))
    )


def parallel_units(*tasks: Task) -> ParallelTasks:
    """Tasks that do not wait for each other. No state may be written by one and used by another.

    Parameters
    ----------
    *tasks : task
        Units, loops, branches.

    Returns
    -------
    Task

    Examples
    --------
    >>> import stretto as st
    >>> def add_one(worker, x):
    ...     x.add([0], [1.0])
    >>> x, y = st.zeros(1), st.zeros(1)
    >>> result = st.run(st.parallel_units(st.unit(add_one, x), st.unit(add_one, y)), runtime=st.Serial())
    >>> x.array.tolist(), y.array.tolist()
    ([1.0], [1.0])
    """
    made = _tasks("parallel_units", tasks)
    used: dict[int, str] = {}
    for task in made:
        mine = {
            id(argument.value): one.name
            for one in task.units()
            for argument in one.arguments
            if argument.kind == "state"
        }
        for state, named in mine.items():
            if state in used:
                raise PlanError(
                    f"parallel_units: {used[state]} and {named} use one state, and their order would change the "
                    "result; put them in st.seq, or give each its own state"
                )
        used |= mine
    return ParallelTasks(made)


def below(criterion: Unit, bound: float) -> Criterion:
    """A criterion that holds when the value of a unit is below a bound.

    Parameters
    ----------
    criterion : unit
        Its value is a number.
    bound : float
        The bound.

    Returns
    -------
    Criterion

    Examples
    --------
    >>> import stretto as st
    >>> st.below(st.unit(lambda worker: 0.5, name="gap"), 1e-4).words()
    'gap is below 0.0001'
    """
    number("bound", bound, owner="below")
    return Criterion(_unit("below", criterion), "below", float(bound))


def stalls(criterion: Unit, share: float) -> Criterion:
    """A criterion that holds when the value of a unit changes by less than a share of itself from turn to turn.

    Parameters
    ----------
    criterion : unit
        Its value is a number.
    share : float
        The share, such as 1e-6.

    Returns
    -------
    Criterion

    Examples
    --------
    >>> import stretto as st
    >>> st.stalls(st.unit(lambda worker: 0.5, name="loss"), 1e-6).words()
    'loss changes by less than 1e-06 of itself'
    """
    number("share", share, above=0, owner="stalls")
    return Criterion(_unit("stalls", criterion), "stalls", float(share))


def _criterion(owner: str, given: Any) -> Criterion:
    return given if isinstance(given, Criterion) else Criterion(_unit(owner, given))


def _unit(owner: str, given: Any) -> Unit:
    if not isinstance(given, Unit):
        raise PlanError(f"{owner}: {shown(given)} is not a unit; give st.unit(function, …), whose value decides")
    return given


def _tasks(owner: str, tasks: tuple[Any, ...]) -> tuple[Task, ...]:
    if not tasks:
        raise PlanError(f"{owner}: no task; give at least one st.unit(…)")
    for task in tasks:
        if not isinstance(task, Task):
            raise PlanError(
                f"{owner}: {shown(task)} is not a task; give st.unit(function, …), st.seq, st.loop or st.branch"
            )
    return tasks
