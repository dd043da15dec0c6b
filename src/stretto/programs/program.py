"""`st.Program`: what to update together, how to update it, and how to put the results together.

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

The three are apart so that each can be exchanged: another schedule never touches the update (SMPFRAME's scheduled model
parallelism). With `parts`, data are cut into logical parts: `update(job, part, params)` runs once for each part, where
that part is held, and the results of a job are merged in part order before `aggregate` gets them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from stretto.errors import PlanError
from stretto.schedule.automatic.auto import ready_schedule
from stretto.schedule.checks import uncalled
from stretto.schedule.spec import Schedule

if TYPE_CHECKING:
    from stretto.plan.job import JobPlan
    from stretto.runtime.runtimes import Runtime

    from .identity import Identity
    from .values import Options, Result

_NEEDED = {
    "schedule": 'a ready schedule such as st.schedule.cyclic(), "auto", or a method schedule(self, state) -> jobs',
    "update": "a method update(self, job, data, params) -> result",
    "aggregate": "a method aggregate(self, results, params)",
}
_TAKES = {"schedule": ("state",), "update": ("job", "data", "params"), "aggregate": ("results", "params")}


class Program:
    """An iterative algorithm as three functions over named arrays. Subclass it, or call `st.program`.

    params          dict of the arrays that are learned; they are written in place
    data            whatever `update` reads and nobody writes
    schedule        which jobs are updated together next: a ready spec, "auto", or schedule(state) -> a list of jobs
                    (None: the end). `state` has round, params, data, random, memory and last
    update          update(job, data, params) -> result, on any thread; params are read-only
    aggregate       aggregate(results, params) puts results into params in place; it may return how far each job moved,
                    which prioritised schedules learn from
    objective       objective(data, params) -> float, optional
    parts           None: `update` gets all data. A list: the parts of the data, or how they are read: a `pathlib.Path`
                    of a file or a function without arguments, which the node that holds the part reads or calls. A
                    number: data (an array, a CSR matrix, a tuple or dict of these) are cut by rows into that many. Part
                    of what decides bits
    merge           merge(a, b) -> the results of a job on two parts as one, from the left in part order; None adds
                    numbers and arrays, and tuples element by element
    local           local(part) -> state of a part, made where the part is held; `update` gets it as a fourth argument
                    and may write to it. The updates of a part then run in serial order. None: no state
    size            how many jobs a ready schedule chooses from; None: the rows of the first array of params
    columns         what a ready schedule finds conflicts in, a matrix with a column for each job; None: data
    """

    data: Any = None
    params: Any
    schedule: Any
    update: Any
    aggregate: Any
    objective: Any = None
    parts: Any = None
    merge: Any = None
    local: Any = None
    size: int | None = None
    columns: Any = None

    @property
    def name(self) -> str:
        """What messages call it."""
        return type(self).__name__

    def samples(self, jobs: Sequence[Any]) -> int:
        """How many data samples these jobs look at, for `Look.samples`; 0: nobody counts."""
        return 0

    def _check(self) -> None:
        """Refuse a program that lacks something."""
        check(self)

    def launch(self, options: Options) -> Result:
        """Run the program; `st.run` makes the options."""
        from .launch import launch

        return launch(self, options)

    def identity(self, pipeline: int, seed: int) -> Identity:
        """What decides the bits of the program, by name."""
        from .identity import identity_of

        return identity_of(self, pipeline, seed)

    def plan(
        self, *, pipeline: int | None = None, seed: int = 0, runtime: Runtime | None = None, **how: Any
    ) -> JobPlan:
        """The plan of `st.run(program, …)` with these arguments; nothing is run yet.

        Parameters
        ----------
        pipeline, seed, runtime, **how
            As for `st.run`; how says when it ends: rounds=, until= or seconds=.

        Returns
        -------
        JobPlan
            `run(runtime=…)` gives the `Result` of `st.run`. It begins where the parameters are now, so it runs once.
        """
        from .planning import plan

        return plan(self, pipeline, seed, runtime, how)

    def explain(self, *, pipeline: int | None = None, runtime: Runtime | None = None) -> str:
        """How the program would run, and what is promised, in words."""
        from .explain import explain

        return explain(self, pipeline, runtime)


class _Made(Program):
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
    """A program without a class: the parts of `st.Program` as arguments, functions without `self`."""
    given = {"update": update, "aggregate": aggregate, "schedule": schedule, "params": params, "data": data}
    given |= {"objective": objective, "parts": parts, "merge": merge, "local": local, "size": size, "columns": columns}
    return _Made(name or str(getattr(update, "__name__", "program")), given)


def settle_schedule(program: Program) -> None:
    """Replace the name of a schedule, "auto", by the schedule."""
    if isinstance(getattr(program, "schedule", None), str):
        program.schedule = ready_schedule(program.schedule)


def check(program: Program) -> None:
    """Refuse a program that lacks a part, or whose functions do not take what they will be given."""
    settle_schedule(program)
    for part, needed in _NEEDED.items():
        found = getattr(program, part, None)
        if found is None:
            raise PlanError(f"{program.name} has no `{part}`; give it {needed}")
        if part == "schedule" and isinstance(found, Schedule):
            continue
        if part == "schedule" and (instead := uncalled(found)):
            raise PlanError(f"{program.name}: `schedule` is a function that makes one; write schedule={instead}")
        if not callable(found):
            raise PlanError(f"{program.name}: `{part}` is {found!r}, which cannot be called; give it {needed}")
        takes = _TAKES[part]
        if part == "update" and program.parts is not None:
            takes = ("job", "part", "params")
        if part == "update" and program.local is not None:
            takes = (*takes, "local")
        _check_signature(program.name, part, found, takes)
    _check_parts(program)
    if not hasattr(program, "params"):
        raise PlanError(f"{program.name} has no `params`; set self.params to a dict of the arrays that are learned")
    if program.objective is not None:
        _check_signature(program.name, "objective", program.objective, ("data", "params"))


def _check_parts(program: Program) -> None:
    name, schedule = program.name, program.schedule
    for part, takes in (("merge", ("a", "b")), ("local", ("part",))):
        found = getattr(program, part)
        if found is None:
            continue
        if program.parts is None:
            raise PlanError(f"{name}: `{part}` is for data that are cut; give parts= as well, a list or a number")
        if not callable(found):
            raise PlanError(f"{name}: `{part}` is {found!r}, which cannot be called; give {part}({', '.join(takes)})")
        _check_signature(name, part, found, takes)
    if program.parts is not None and isinstance(schedule, Schedule) and schedule.waiting is not None:
        raise PlanError(
            f"{name}: jobs of {schedule!r} wait for each other within a round, and with parts= a round is merged as a "
            "whole; leave parts out"
        )


def _check_signature(name: str, part: str, function: Callable[..., Any], takes: tuple[str, ...]) -> None:
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # some compiled functions do not tell
        return
    try:
        signature.bind(*takes)
    except TypeError as problem:
        raise PlanError(
            f"{name}: `{part}` takes {signature}, and will be given ({', '.join(takes)}): {problem}"
        ) from None
