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
import warnings
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, overload

from stretto.cached import cached_property
from stretto.checks import number
from stretto.errors import OrderWarning, PlanError, SerialWarning
from stretto.plan.planned import refuse_changed
from stretto.runtime import loop_calls
from stretto.runtime.chosen import BLOCKS, chosen, here, one_memory

from .analyse import serial_order
from .analyse.analysis import Analysis, LoopOptions
from .execute.scheduled import check
from .front import loop_tree as source
from .front.bind import (
    BoundValues,
)
from .loop_function import LoopFunction
from .options import checked_options
from .prepared_loops import CachedLoop, prepared_loop
from .ready_call import ReadyCall, key_of, ready_call

if TYPE_CHECKING:
    from stretto.runtime.blocks.crew_pool import CrewPool
    from stretto.runtime.runtimes import Runtime
    from stretto.schedule.automatic.trials import Decision
    from stretto.schedule.orders.order import Ints

    from .execute.prepared import PreparedLoop
    from .loop_plan import LoopPlan


_READY = 8  # sets of arguments whose next call skips binding


class Loop(LoopFunction):
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
    choices : tuple of Decision
        With `schedule="auto"` and an objective: the choices so far, each with its round and reason.
    """

    def __init__(self, fn: Callable[..., Any], options: LoopOptions, runtime: Runtime | None = None) -> None:
        super().__init__(fn)
        if runtime is not None:
            chosen(runtime, owner="st.parallel", give=BLOCKS, work="loops")
        check(options)
        self.options, self.runtime = options, runtime
        self._kept: dict[Any, CachedLoop] = {}
        self._inspections: Counter[int] = Counter()  # by line: inspections that no option asked for
        self._warned: set[tuple[int, type[Warning]]] = set()  # warnings that were issued, by the line of the loop
        self._ready: dict[tuple[Any, ...], ReadyCall] = {}  # calls that were made before, by their arguments
        self.seconds = 0.0  # of the last call: the passes alone, without analysis and layout
        self.rounds: list[Ints] = []  # of the last call, with a schedule: the iterations of each round, in order
        self.choices: tuple[Decision, ...] = ()
        functools.update_wrapper(self, fn)

    @cached_property
    def _crews(self) -> CrewPool:
        from stretto.runtime.blocks.crew_pool import CrewPool

        return CrewPool()

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
            made: dict[str, Any] = {}
            if not self._run_ready(args, kwargs, made):
                self._run(args, kwargs, made=made)
        except PlanError as problem:
            raise problem.with_traceback(None) from None  # hide the frames of Stretto, which do not help the user

    def _run_ready(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], made: dict[str, Any]) -> bool:
        """Run a call like one before; False if there is none, and no loop was run.

        made: receives the numbers of the lines before the loops, if these lines were run.
        """
        if not self._ready or loop_calls.watcher.get() is not None:
            return False
        values = self._values(args, kwargs)
        ready = None if values is None else self._ready.get(key_of(values))
        if ready is None:
            return False
        assert values is not None
        seconds = ready.run(self, values, self._crews, made)
        if seconds is None:
            return False
        self.seconds = seconds
        return True

    def _values(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Any, ...] | None:
        """The values of all parameters; None if some are missing or too many."""
        names = self.parameters
        if len(args) == len(names) and not kwargs:
            return args
        later = names[len(args) :]
        given = {**self.defaults, **kwargs}
        if len(args) > len(names) or not set(kwargs) <= set(later) or not all(name in given for name in later):
            return None
        return (*args, *(given[name] for name in later))

    def _run(
        self,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        runtime: Runtime | None = None,
        made: Mapping[str, Any] | None = None,
    ) -> None:
        from .execute.rounds import progress_of, run_rounds
        from .execute.run import run

        held = self._bind(args, kwargs, partial=False)
        listeners: list[Callable[[Decision], None]] = []
        if (watcher := loop_calls.watcher.get()) is not None:
            call = self._call_of(held, args, kwargs)
            watcher(call)
            listeners = call.listeners
        with self._crews.open(runtime or self._runtime()) as crew:
            known: dict[str, Any] = {}
            self.seconds = 0.0
            steps: list[Any] = []  # each setup statement, or prepared loop
            for step in self.tree.steps:
                if isinstance(step, source.Setup):
                    if made:
                        known |= {name: made[name] for name in step.names}
                    else:
                        self.set_up(step, held.values, known)
                    steps.append(step)
                    continue
                prepared = self._prepared(step, held, known, crew)
                steps.append(prepared)
                self._warn(prepared.analysis, step.line)
                if self.options.schedule is None:
                    self.seconds += run(prepared, held, known, crew)
                else:
                    objective, some = self._objective(args, kwargs), bool(len(prepared.analysis.space))
                    before = progress_of(prepared, held).choices if objective is not None and some else ()
                    self.seconds, self.rounds = run_rounds(prepared, held, known, crew, objective)
                    if objective is not None and some:
                        self.choices = progress_of(prepared, held).choices
                    for choice in self.choices[len(before) :]:
                        for listener in listeners:
                            listener(choice)
        values = self._values(args, kwargs)
        if runtime is None and self.options.schedule is None and values is not None:
            self._remember(values, ready_call(self, held, values, steps, known, self._runtime()))

    def _prepared(self, step: source.LoopNest, held: BoundValues, known: Mapping[str, Any], crew: Any) -> PreparedLoop:
        """One loop of the function, prepared for these arguments."""
        return prepared_loop(self._kept, self.tree, step, self.options, held, known, crew, self._inspections)

    def _warn(self, analysis: Analysis, line: int) -> None:
        """Warn of a loop whose order is not the one written, or that runs on one worker: once each."""
        found = ((OrderWarning, serial_order.warning(analysis)), (SerialWarning, serial_order.runs_serially(analysis)))
        for kind, message in found:
            if message and (line, kind) not in self._warned:
                self._warned.add((line, kind))
                warnings.warn(message, kind, stacklevel=4)

    def _remember(self, values: tuple[Any, ...], ready: ReadyCall | None) -> None:
        """Keep a call for the next one with the same arguments."""
        if ready is None:
            return
        for oldest in list(self._ready)[: 1 - _READY]:
            self._ready.pop(oldest, None)  # another thread may have been faster
        self._ready[key_of(values)] = ready

    def _objective(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Callable[[], float] | None:
        """A function that evaluates the objective of a call; None without one."""
        function = self.options.objective
        if function is None:
            return None

        def value() -> float:
            found = function(*args, **kwargs)
            number("objective", found, owner=f"{self.plain.__name__}: the result of {function.__name__}")
            return float(found)

        return value

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
                        self.set_up(step, held.values, known)
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
        return Loop(self.plain, replace(self.options, **checked_options(options)), runtime or self.runtime)

    def _forget(self) -> None:
        super()._forget()
        self._kept.clear()
        self._ready.clear()
        self._inspections.clear()
        self._warned.clear()

    def _runtime(self) -> Runtime:
        if self.runtime is not None:
            return self.runtime
        from stretto.runtime.runtimes import Threads

        return Threads()


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
    inspect : bool or None, default None
        Search the data for iterations that do not conflict, where subscripts come from the data. None: where no other
        strategy applies, and for the first few sets of data; True: at every call whose data are new; False: never.
    serial : bool or None, default None
        Of a loop that cannot run in parallel. None: compile it, run it in its order on one worker, and warn with
        `SerialWarning`. True: the same without a warning. False: refuse it. Others run in parallel all the same.
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
        "auto" takes what is safe by the analysis of the loop and the correlation of the data; with `objective=` it
        changes its choice between calls.
    seed : int, default 0
        Seed of the schedule.
    watch : str, default ""
        Name of the state whose changes the schedule learns from.
    objective : callable or None, default None
        With `schedule="auto"`: a function of the arguments of a call that returns a number, which the loop decreases.
        Candidates are compared by its decrease per unit of work, so choices are the same on every runtime.

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
        return lambda function: Loop(function, LoopOptions(**checked_options(options)), runtime)
    return Loop(fn, LoopOptions(), runtime)
