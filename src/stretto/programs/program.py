"""`st.Program` and `st.program`: an iterative algorithm as schedule, update and aggregate.

    class Halve(st.Program):
        schedule = st.schedule.cyclic(width=8)              # which jobs next; or a method schedule(self, state)

        def __init__(self, x):
            self.params = {"x": x}

        def update(self, job, data, params):                # one job; reads params, writes nothing
            return job, params["x"][job] / 2

        def aggregate(self, results, params):               # the results of a round, in the order of its jobs
            for job, value in results:
                params["x"][job] = value

    result = st.run(Halve(np.ones(100)), rounds=50, pipeline=3)

The three are separate so that each can be replaced: another schedule needs no change of the update (SMPFRAME's
scheduled model parallelism). With `parts`, data are cut into logical parts: `update(job, part, params)` runs once for
each part, on the node that holds the part, and the results of a job are merged in part order before `aggregate`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from stretto.schedule.spec import Schedule

from .base import ProgramBase
from .values import ProgramIdentity, ProgramResult, RunOptions

if TYPE_CHECKING:
    from stretto.plan.job import JobPlan
    from stretto.runtime.runtimes import Runtime


class Program(ProgramBase):
    """An iterative algorithm as three functions over named arrays. Subclass it, or call `st.program`.

    Attributes
    ----------
    params : dict of ndarray
        The arrays that are learned; `aggregate` writes them in place.
    data : object
        What `update` reads and nothing writes.
    schedule : Schedule, str or callable
        Which jobs are updated together next: a ready schedule, "auto", or schedule(state) -> a list of jobs (None ends
        the run). `state` has round, params, data, random, memory and last.
    update : callable
        update(job, data, params) -> result, on any thread; params are read-only.
    aggregate : callable
        aggregate(results, params) applies the results of a round to params in place. It may return how far each job
        moved, which prioritised schedules learn from.
    objective : callable or None
        objective(data, params) -> float.
    parts : list, int or None
        None: `update` gets all data. A list: the parts of the data, or how they are read: a `pathlib.Path` of a file or
        a function without arguments, which the node that holds the part reads or calls. A number: data (an array, a CSR
        matrix, a tuple or dict of these) are cut by rows into that many parts. Results depend on the number of parts.
    merge : callable or None
        merge(a, b) -> the results of a job on two parts as one, from the left in part order. None adds numbers and
        arrays, and tuples element by element.
    local : callable or None
        local(part) -> state of a part, created where the part is held. `update` gets it as a fourth argument and may
        write to it; the updates of a part then run in serial order. None: no state.
    size : int or None
        Number of jobs that a ready schedule chooses from; None: the rows of the first array of params.
    columns : matrix or None
        What a ready schedule finds conflicts in, with a column for each job; None: data.

    Examples
    --------
    >>> import numpy as np, stretto as st
    >>> class Halve(st.Program):
    ...     schedule = st.schedule.cyclic(width=2)
    ...
    ...     def __init__(self, x):
    ...         self.params = {"x": x}
    ...
    ...     def update(self, job, data, params):
    ...         return job, params["x"][job] / 2
    ...
    ...     def aggregate(self, results, params):
    ...         for job, value in results:
    ...             params["x"][job] = value
    >>> st.run(Halve(np.ones(4)), rounds=2, runtime=st.Serial()).params["x"].tolist()
    [0.5, 0.5, 0.5, 0.5]
    """

    def launch(self, options: RunOptions) -> ProgramResult:
        """Run the program. `st.run` calls this.

        Parameters
        ----------
        options : RunOptions
            The arguments of `st.run`, checked.
        """
        from .launch import launch

        return launch(self, options)

    def identity(self, pipeline: int, seed: int) -> ProgramIdentity:
        """What decides the bits of a run, by name.

        Parameters
        ----------
        pipeline : int
            Pipeline depth.
        seed : int
            Seed of the run.
        """
        from .identity import identity_of

        return identity_of(self, pipeline, seed)

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
        from .planning import plan

        return plan(self, pipeline, seed, runtime, how)

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

        return explain(self, pipeline, runtime)


class _FunctionProgram(Program):
    """A program from functions."""

    def __init__(self, name: str, given: Mapping[str, Any]) -> None:
        self._name = name
        for part, value in given.items():
            setattr(self, part, value)

    @property
    def name(self) -> str:
        return self._name


def program(
    *,
    update: Callable[..., Any],
    aggregate: Callable[..., Any],
    schedule: Schedule | Callable[..., Any] | str,
    params: Mapping[str, Any],
    data: Any = None,
    objective: Callable[..., float] | None = None,
    parts: Sequence[Any] | int | None = None,
    merge: Callable[[Any, Any], Any] | None = None,
    local: Callable[[Any], Any] | None = None,
    size: int | None = None,
    columns: Any = None,
    name: str | None = None,
) -> Program:
    """A program from functions, without a class. The functions take no `self`.

    Parameters
    ----------
    update : callable
        update(job, data, params) -> result, on any thread; params are read-only.
    aggregate : callable
        aggregate(results, params) applies the results of a round to params in place.
    schedule : Schedule, str or callable
        A ready schedule, "auto", or schedule(state) -> a list of jobs.
    params : dict of ndarray
        The arrays that are learned.
    data : object, default None
        What `update` reads.
    objective : callable or None, default None
        objective(data, params) -> float.
    parts : list, int or None, default None
        Parts of the data, or how many; None gives `update` all data.
    merge : callable or None, default None
        merge(a, b) -> the results of a job on two parts as one; None adds.
    local : callable or None, default None
        local(part) -> state of a part.
    size : int or None, default None
        Number of jobs; None: the rows of the first array of params.
    columns : matrix or None, default None
        What a ready schedule finds conflicts in, with a column for each job; None: data.
    name : str or None, default None
        Name of the program in messages; None takes that of `update`.

    Returns
    -------
    Program

    Examples
    --------
    >>> import numpy as np, stretto as st
    >>> def update(job, data, params):
    ...     return job, data[job].mean()
    >>> def aggregate(results, params):
    ...     for job, value in results:
    ...         params["mean"][job] = value
    >>> params = {"mean": np.zeros(3)}
    >>> means = st.program(
    ...     update=update, aggregate=aggregate, schedule=st.schedule.cyclic(3), data=np.eye(3), params=params
    ... )
    >>> st.run(means, rounds=1, runtime=st.Serial()).params["mean"].round(2).tolist()
    [0.33, 0.33, 0.33]
    """
    given = {"update": update, "aggregate": aggregate, "schedule": schedule, "params": params, "data": data}
    given |= {"objective": objective, "parts": parts, "merge": merge, "local": local, "size": size, "columns": columns}
    return _FunctionProgram(name or str(getattr(update, "__name__", "program")), given)
