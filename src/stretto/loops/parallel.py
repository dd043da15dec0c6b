"""`st.parallel`: the decorator that analyses, plans and runs the loops of a function when it is called.

    @st.parallel
    def epoch(ratings, W, H, lr, lam, loss):
        for (i, j), r in ratings:
            ...

    epoch(ratings, W, H, 0.01, 0.05, loss)              # in parallel
    print(epoch.explain(ratings, W, H))                 # the analysis and the plan in words
    epoch.plan(ratings, W, H).draw("plan.svg")
    epoch.using(runtime=st.Threads(4))(ratings, …)      # elsewhere, or otherwise
    epoch.plain(ratings, W, H, 0.01, 0.05, loss)        # the function as it was written

Analysis and layout are kept as long as the data live, so the second epoch costs nothing but its work.
"""

from __future__ import annotations

import functools
import inspect
import types
import warnings
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from stretto.cached import cached_property
from stretto.errors import LoopError, OrderWarning, PlanError
from stretto.loops.analyse.analyse_loop import analyse
from stretto.plan.planned import refuse_changed
from stretto.runtime import loop_calls
from stretto.runtime.chosen import BLOCKS, chosen, here, one_memory
from stretto.schedule.automatic.auto import ready_schedule

from .analyse import serial_order
from .analyse.analysis import Analysis, LoopOptions
from .execute.scheduled import check
from .front import loop_tree as source
from .front.bind import (
    AccumulatorInfo,
    ArrayInfo,
    BoundValues,
    BufferInfo,
    DataInfo,
    NumberInfo,
    StructInfo,
    bind,
    refuse_overlap,
)
from .front.names import is_function
from .front.parse import parse
from .front.refusals import placed, refuse
from .front.user_functions import around, digest

if TYPE_CHECKING:
    from stretto.loops.execute.prepared import PreparedLoop
    from stretto.runtime.blocks.crew_pool import CrewPool
    from stretto.runtime.runtimes import Runtime
    from stretto.schedule.orders.order import Ints

    from .loop_plan import LoopPlan

_NUMBERS = bool | int | float | np.generic
_KEPT = 8  # sets of arguments for which a loop caches its preparation


@dataclass(frozen=True, eq=False)
class _CachedPlan:
    """The cached preparation for a set of arguments, valid while its data exist."""

    prepared: PreparedLoop
    known: Mapping[str, Any]
    alive: tuple[weakref.ref[Any], ...]


class Loop:
    """A function whose loops run in parallel. Made by `st.parallel`.

    Parameters
    ----------
    fn : callable
        The function.
    options : LoopOptions
        Options of `st.parallel`.
    runtime : runtime or None, default None
        Where to run.

    Attributes
    ----------
    plain : callable
        The function itself, which runs in serial order.
    options : LoopOptions
        Options of `st.parallel`.
    runtime : runtime or None
        Where it runs.
    seconds : float
        Seconds of the last call: the passes alone, without analysis and layout.
    rounds : list of ndarray
        With a schedule: the iterations of each round of the last call, in order.
    """

    def __init__(self, fn: Callable[..., Any], options: LoopOptions, runtime: Runtime | None = None) -> None:
        if hasattr(fn, "py_func"):
            raise TypeError(
                f"{fn.__name__} is compiled already; leave out numba.njit, st.parallel compiles the loop itself"
            )
        if runtime is not None:
            chosen(runtime, owner="st.parallel", give=BLOCKS, work="loops")
        check(options)
        self.plain = fn
        self.options, self.runtime = options, runtime
        self._signature = inspect.signature(fn)
        self._kept: dict[Any, _CachedPlan] = {}
        self._around: dict[str, Any] = {}  # values that its tree depends on, besides its source
        self._warned: set[int] = set()  # lines of loops whose order was checked
        self.seconds = 0.0  # of the last call: the passes alone, without analysis and layout
        self.rounds: list[Ints] = []  # of the last call, with a schedule: the iterations of each round, in order
        functools.update_wrapper(self, fn)

    @cached_property
    def _crews(self) -> CrewPool:
        from stretto.runtime.blocks.crew_pool import CrewPool

        return CrewPool()

    @cached_property
    def tree(self) -> source.Function:
        """The function's loop tree."""
        return parse(self.plain)

    def __repr__(self) -> str:
        return f"<parallel loop {self.plain.__name__}{self._signature}>"

    def __get__(self, instance: object, owner: type | None = None) -> Loop:
        if instance is not None:
            raise TypeError(
                f"{self.plain.__name__} is a method, and a loop takes arrays, numbers and data alone; make it a "
                "function outside the class and pass what it needs"
            )
        return self

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        try:
            self._run(args, kwargs)
        except PlanError as problem:
            raise problem.with_traceback(None) from None  # hide the frames of Stretto, which do not help the user

    def _run(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], runtime: Runtime | None = None) -> None:
        from .execute.rounds import run_rounds
        from .execute.run import run

        held = self._bind(args, kwargs, partial=False)
        if (watcher := loop_calls.watcher.get()) is not None:
            watcher(self._call_of(held, args, kwargs))
        with self._crews.open(runtime or self._runtime()) as crew:
            known: dict[str, Any] = {}
            self.seconds = 0.0
            for step in self.tree.steps:
                if isinstance(step, source.Setup):
                    self._set_up(step, held, args, kwargs, known)
                    continue
                prepared = self._prepared(step, held, known, crew)
                if step.line not in self._warned:
                    self._warned.add(step.line)
                    if message := serial_order.warning(prepared.analysis):
                        warnings.warn(message, OrderWarning, stacklevel=3)
                if self.options.schedule is None:
                    self.seconds += run(prepared, held, known, crew)
                else:
                    self.seconds, self.rounds = run_rounds(prepared, held, known, crew)

    def _call_of(self, held: BoundValues, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> loop_calls.LoopCall:
        """A call, for a run of `st.epochs` that watches."""
        from .execute.rounds import restore_schedules, schedule_arrays

        name, data = self.plain.__qualname__, tuple(id(data) for data in held.data.values())

        def plan() -> LoopPlan:
            return self.plan(*args, **kwargs)

        if self.options.schedule is None:
            return loop_calls.LoopCall(name, data, plan)
        return loop_calls.LoopCall(
            name, data, plan, lambda: schedule_arrays(plan()), lambda saved: restore_schedules(plan(), saved)
        )

    def plan(self, *args: Any, **kwargs: Any) -> LoopPlan:
        """The plan of a call with these arguments. Numbers and accumulators may be left out.

        Parameters
        ----------
        *args
            Arguments of the call.
        **kwargs
            Arguments of the call by name.
        """
        from .execute.rounds import progress_of
        from .loop_plan import LoopPlan
        from .planned_call import PlannedLoop

        held = self._bind(args, kwargs, partial=True)
        known: dict[str, Any] = {}
        parts = []
        try:
            where = self._runtime()
            # Planning needs no cluster, so none is started.
            with self._crews.open(where) if one_memory(where) else here(where).open() as crew:
                for step in self.tree.steps:
                    if isinstance(step, source.Setup):
                        self._set_up(step, held, args, kwargs, known)
                    else:
                        prepared = self._prepared(step, held, dict(known), crew)
                        if self.options.schedule is not None and len(prepared.analysis.space):
                            progress_of(prepared, held)  # raises errors of the schedule now
                        parts.append(PlannedLoop(prepared, dict(known)))
        except PlanError as problem:
            self._blame_stand_ins(problem, args, kwargs)
            raise problem.with_traceback(None) from None
        made = LoopPlan(self, held, tuple(parts), self._runtime(), (args, kwargs))
        _ = made.fingerprint  # of the current data, so that `run` can detect changes
        return made

    def run_plan(self, made: LoopPlan, runtime: Any = None) -> None:
        """Call the loop by a plan that was made earlier.

        Parameters
        ----------
        made : LoopPlan
            The plan.
        runtime : runtime or None, default None
            Where to run; None: where the plan was made for.

        Raises
        ------
        PlanError
            If it would be another plan by now.
        """
        assert made.arguments is not None
        name, (args, kwargs) = self.plain.__name__, made.arguments
        if runtime is not None:
            chosen(runtime, owner=f"plan of {name}", give=BLOCKS, work="loops")
        try:
            self._signature.bind(*args, **kwargs)
        except TypeError as problem:
            raise PlanError(
                f"plan {made.fingerprint} of {name} cannot run: {problem}; give {name}.plan(…) every argument of a call"
            ) from None
        refuse_changed(made, self.plan(*args, **kwargs), f"{name}.plan(…)")
        self._run(args, kwargs, runtime)

    def recorded(self, *args: Any, **kwargs: Any) -> LoopPlan:
        """The plan of the rounds that the last call of a scheduled loop made.

        Parameters
        ----------
        *args
            Arguments of the call.
        **kwargs
            Arguments of the call by name.
        """
        from .loop_plan import recorded

        return recorded(self.plan(*args, **kwargs), self.rounds)

    def explain(self, *args: Any, **kwargs: Any) -> str:
        """The iteration space, every access, the dependence vectors, the strategy and why, in words.

        Parameters
        ----------
        *args
            Arguments of the call.
        **kwargs
            Arguments of the call by name.
        """
        return self.plan(*args, **kwargs).explain()

    def using(self, *, runtime: Runtime | None = None, **options: Any) -> Loop:
        """The same loop with other options. It keeps nothing of the earlier loop: a schedule starts anew.

        Parameters
        ----------
        runtime : runtime or None, default None
            Where to run; None keeps the present one.
        **options
            Options of `st.parallel`.
        """
        return Loop(self.plain, replace(self.options, **_checked(options)), runtime or self.runtime)

    # ---

    def _runtime(self) -> Runtime:
        if self.runtime is not None:
            return self.runtime
        from stretto.runtime.runtimes import Threads

        return Threads()

    def _bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], *, partial: bool) -> BoundValues:
        self._notice()
        given = self._signature.bind_partial(*args, **kwargs) if partial else self._signature.bind(*args, **kwargs)
        given.apply_defaults()
        arguments = dict(given.arguments)
        if partial:
            for name in self._signature.parameters:
                if name not in arguments:
                    arguments[name] = self._stand_in(name)
        return bind(arguments, self._captured())

    def _notice(self) -> None:
        """Clear the caches if a value in the tree has changed, as happens in notebooks.

        Such values are functions that the loop calls, modules, and numbers in modules (`settings.rate`).
        """
        now = {name: value for name, value in around(self.plain).items() if is_function(value) or _in_tree(name, value)}
        before, self._around = self._around, now
        if now.keys() != before.keys() or any(_differ(now[name], before[name]) for name in now):
            vars(self).pop("tree", None)
            self._kept.clear()
            self._warned.clear()

    def _stand_in(self, name: str) -> Any:
        """The placeholder of `explain` for a missing argument: an accumulator if it is folded into, else a float."""
        from stretto.state.accumulator import Accumulator

        from .front.placeholders import folded_into, subscripted_at

        if line := subscripted_at(self.tree, name):
            raise refuse(self.tree, line, f"{name} is not a number, so it cannot be left out", f"give {name} too")
        return Accumulator(0.0) if folded_into(self.tree, name) else 0.5

    def _blame_stand_ins(self, problem: PlanError, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Add to an error which arguments were left out and which placeholders were used."""
        given = self._signature.bind_partial(*args, **kwargs)
        given.apply_defaults()
        left = [name for name in self._signature.parameters if name not in given.arguments]
        floats = [name for name in left if isinstance(self._stand_in(name), float)]
        if floats:
            was = (
                "was left out and taken for a float; pass it"
                if len(floats) == 1
                else "were left out and taken for floats; pass them"
            )
            problem.args = (f"{problem}\n({', '.join(floats)} {was} if that is wrong)",)

    def _captured(self) -> dict[str, Any]:
        found = {}
        cells = dict(zip(self.plain.__code__.co_freevars, self.plain.__closure__ or (), strict=True))
        for name in self.tree.captured:
            if name in cells:
                found[name] = cells[name].cell_contents
            elif name in self.plain.__globals__:
                found[name] = self.plain.__globals__[name]
            else:
                remedy = "assign it above the function, or pass it as a parameter"
                raise LoopError(
                    self.tree.file, self.tree.line, f"{self.tree.name} uses {name}, which has no value", remedy
                )
        return found

    def _set_up(
        self,
        step: source.Setup,
        held: BoundValues,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        known: dict[str, Any],
    ) -> None:
        """Run a statement between the loops, on the driver, and store the numbers it assigns."""
        names: dict[str, Any] = {
            **held.arrays,
            **held.numbers,
            **held.accumulators,
            **held.buffers,
            **held.data,
            **known,
        }
        try:
            exec(step.code, {**self.plain.__globals__, **self._captured()}, names)
        except Exception as problem:
            raise refuse(self.tree, step.line, f"this statement failed: {problem}") from problem
        for name in step.names:
            value = names[name]
            if isinstance(value, int) and not -(2**63) <= value < 2**63:
                raise refuse(self.tree, step.line, f"{name} is {value}, which does not fit in 64 bits", "use a float")
            if isinstance(value, bool | int | float | np.generic):
                known[name] = value
            else:
                raise refuse(
                    self.tree,
                    step.line,
                    f"{name} is a {type(value).__name__}; statements between loops make numbers",
                    "make arrays outside and pass them as arguments",
                )

    def _prepared(self, loop: source.LoopNest, held: BoundValues, known: dict[str, Any], crew: Any) -> PreparedLoop:
        """The prepared loop: from the cache if possible, otherwise analysed, laid out and compiled."""
        from .execute.run import prepare

        key = (loop.line, self.options, signature(held), tuple(sorted((name, type(v)) for name, v in known.items())))
        kept = self._kept.get(key)
        if kept is not None and self._still(kept, held, known, crew):
            refuse_overlap(held, kept.prepared.analysis.written)
            return kept.prepared
        analysis = analyse(self.tree, loop, held.infos, known, self.options)
        refuse_overlap(held, analysis.written)
        try:
            prepared = prepare(analysis, held, known, crew)
        except LoopError:
            raise
        except PlanError as problem:
            raise placed(self.tree, problem) from None
        alive = tuple(weakref.ref(data) for data in held.data.values())
        self._kept.pop(key, None)
        for oldest in list(self._kept)[: 1 - _KEPT]:
            self._kept.pop(oldest, None)  # another thread may have been faster
        self._kept[key] = _CachedPlan(prepared, dict(known), alive)
        return prepared

    def _still(self, kept: _CachedPlan, held: BoundValues, known: Mapping[str, Any], crew: Any) -> bool:
        """Whether a preparation is still valid: the same data, and the same values of all numbers it depends on."""
        same = all(ref() is data for ref, data in zip(kept.alive, held.data.values(), strict=True))
        same = same and kept.prepared.watched.unchanged(crew)
        now = {**held.numbers, **known}
        relied = kept.prepared.analysis.consulted
        grid = kept.prepared.analysis.space.kind == "grid"
        return (
            same
            and all(now.get(name) == value for name, value in relied.items())
            and (not grid or _same_dims(kept.prepared.analysis, held, known))
            and kept.prepared.visits.relied.holds(held, known)
        )


def _in_tree(name: str, value: Any) -> bool:
    """Whether a value of an enclosing scope is part of the loop tree: a module, a number in a module, a type."""
    return isinstance(value, types.ModuleType | str | np.dtype) or ("." in name and isinstance(value, _NUMBERS))


def _differ(now: Any, before: Any) -> bool:
    """Whether two such values differ; numbers are compared by value, other objects by identity."""
    if now is before:
        return False
    value = isinstance(now, _NUMBERS | str | np.dtype) and type(now) is type(before)
    return not (value and now == before)


def _same_dims(analysis: Analysis, held: BoundValues, known: Mapping[str, Any]) -> bool:
    from .analyse.space import space_of

    return space_of(analysis.loop, held.infos, known).dims == analysis.space.dims


def signature(held: BoundValues) -> tuple[Any, ...]:
    """The cache key of a prepared loop: everything that it depends on except values."""
    found: list[Any] = []
    for name, info in held.infos.items():
        match info:
            case DataInfo():
                found.append((name, id(held.data[name])))
            case NumberInfo(kind=kind):
                found.append((name, kind))
            case AccumulatorInfo():
                found.append((info, _code_of(held.accumulators[name].op)))
            case BufferInfo():
                found.append((info, _code_of(held.buffers[name].apply)))
            case ArrayInfo() | StructInfo():
                found.append(info)
    return tuple(found)


def _code_of(function: Any) -> tuple[int, str]:
    """Identity of a function; for one that Stretto compiles also the values that it reads from enclosing scopes."""
    ours = isinstance(function, types.FunctionType)
    return id(function), digest(function) if ours else ""


def _checked(options: Mapping[str, Any]) -> dict[str, Any]:
    known = {field.name for field in fields(LoopOptions)}
    for name in options:
        if name not in known:
            raise TypeError(f"st.parallel has no option {name!r}; there are runtime, {', '.join(sorted(known))}")
    fixed = dict(options)
    if "schedule" in fixed:
        fixed["schedule"] = ready_schedule(fixed["schedule"])
    for name in ("cut", "blocks"):
        value = fixed.get(name)
        if value is not None and not isinstance(value, tuple):
            fixed[name] = (value,) if isinstance(value, str | int) else tuple(value)
    if fixed.get("width", 1) < 1:
        raise PlanError(f"width={fixed['width']}: at least one visit runs at a time; leave it out, or pass 1 or more")
    if fixed.get("profile", "exact") not in ("exact", "fast"):
        raise PlanError(f"there is no profile {fixed['profile']!r}; pass 'exact' or 'fast'")
    return fixed


@overload
def parallel(fn: Callable[..., Any], /) -> Loop: ...
@overload
def parallel(*, runtime: Runtime | None = None, **options: Any) -> Callable[[Callable[..., Any]], Loop]: ...
def parallel(fn: Callable[..., Any] | None = None, /, *, runtime: Runtime | None = None, **options: Any) -> Any:
    """Run the loops of a function in parallel, with the answer of a serial execution. A decorator.

    Parameters
    ----------
    fn : callable or None, default None
        The function. Without it, the options make a decorator.
    runtime : runtime or None, default None
        Where to run; None for all cores of this machine.
    ordered : bool or None, default None
        True keeps the order of the loop (of sparse records that of their indices), False allows any serial order. None:
        ranges keep their order, loops over data may run in another.
    inspect : bool, default False
        Search the data for iterations that do not conflict, where subscripts come from the data.
    cut : str or tuple of str, default ()
        Names of the indices to cut, space dimension first; () lets the planner choose.
    blocks : int or tuple of int, default ()
        Blocks along each cut index; () lets the planner choose.
    width : int, default 16
        Visits that may run together. The answer depends on it, and not on the number of workers.
    profile : {"exact", "fast"}, default "exact"
        "exact" gives the same bits on every x86-64 processor.
    schedule : Schedule, "auto" or None, default None
        What chooses the iterations of a loop over one index, round by round, such as `st.schedule.prioritised()`.
        "auto" takes what is safe by the analysis of the loop and the correlation of the data.
    seed : int, default 0
        Seed of the schedule.
    watch : str, default ""
        Name of the state whose changes the schedule learns from.

    Returns
    -------
    Loop
        Call it like the function. `plan(…)` and `explain(…)` take the same arguments and run nothing.

    Raises
    ------
    LoopError
        If a loop holds something that cannot be compiled.

    Examples
    --------
    >>> import stretto as st
    >>> @st.parallel(runtime=st.Serial())
    ... def scale(x, c):
    ...     for i in range(len(x)):
    ...         x[i] *= c
    >>> x = st.full(4, 2.0)
    >>> scale(x, 3.0)
    >>> x.array.tolist()
    [6.0, 6.0, 6.0, 6.0]
    """
    if fn is None:
        return lambda function: Loop(function, LoopOptions(**_checked(options)), runtime)
    return Loop(fn, LoopOptions(), runtime)
