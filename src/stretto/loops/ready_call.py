"""`ReadyCall`: a call that was made before with the same arguments, so that nothing has to be bound or analysed again.

The first call with some arguments binds, analyses and compiles. Calls with the same arrays and data, in which only
numbers or accumulators differ, check what the preparation depends on and run it: some tens of microseconds, most of
them for the arrays of the pass. A pass that took less time than waking threads runs in the calling thread. Anything
unusual (buffers, schedules, structs, arrays that have to be copied, nodes) goes the long way of `Loop`.

    call = ready_call(loop, held, steps)        after a call that was made the long way; None if it is unusual
    if call.run(loop, values, crews): …         False: something has changed since, and nothing was run
"""

from __future__ import annotations

import types
import weakref
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from stretto.kernels.core.guard import SLOTS
from stretto.runtime.blocks.inline_pass import BRIEF, Stopwatch, run_inline
from stretto.runtime.blocks.step import BlockStep
from stretto.runtime.runtimes import Runtime, Serial, Threads
from stretto.state.accumulator import Accumulator
from stretto.state.state import State

from .front import loop_tree
from .front.bind import OPERATORS, BoundValues
from .front.user_functions import around, names_of

if TYPE_CHECKING:
    from stretto.runtime.blocks.crew import Crew
    from stretto.runtime.blocks.crew_pool import CrewPool

    from .emit.worker_source import WorkerSource
    from .execute.prepared import PreparedLoop
    from .loop_function import LoopFunction

NUMBERS = bool | int | float | np.generic
_SHORT = 60e-6  # seconds up to which a call runs on the calling thread where others could help
_LARGE = 1 << 20  # words of records whose checksums are computed by several threads


def key_of(values: Sequence[Any]) -> tuple[Any, ...]:
    """The key of a call: identities of arrays and data, types of numbers, kinds of accumulators."""
    found: list[Any] = []
    for value in values:
        if isinstance(value, NUMBERS):
            found.append(type(value))
        elif isinstance(value, Accumulator):
            found.append((value.op, value.array.dtype, value.array.shape))
        else:
            found.append(id(value))
    return tuple(found)


@dataclass(frozen=True, slots=True)
class _Array:
    """An array as it was: its object, and what could change of it in place."""

    owner: weakref.ref[Any]  # the argument, a State or an array
    array: weakref.ref[NDArray[Any]]
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: np.dtype[Any]
    writeable: bool

    @classmethod
    def of(cls, value: Any) -> _Array | None:
        """None for what a loop does not take as it is."""
        array = value.array if isinstance(value, State) else value
        usual = type(array) is np.ndarray and array.ndim and array.size and array.dtype.names is None
        if not usual or not array.flags.c_contiguous or not array.flags.aligned:
            return None
        shape, strides = array.shape, array.strides
        return cls(weakref.ref(value), weakref.ref(array), shape, strides, array.dtype, array.flags.writeable)

    def now(self, value: Any) -> NDArray[Any] | None:
        """The array of the same argument, None if it has changed."""
        if self.owner() is not value:
            return None
        array = self.array()
        if array is None or array is not (value.array if isinstance(value, State) else value):
            return None
        same = array.shape == self.shape and array.strides == self.strides
        return array if same and array.dtype == self.dtype and array.flags.writeable == self.writeable else None


@dataclass(frozen=True, eq=False)
class _Arguments:
    """The arguments of a compiled worker."""

    fixed: tuple[Any, ...]  # all of them, None for those of a call
    given: tuple[tuple[int, str], ...]  # position among them, and name, of arrays and numbers of a call
    partial: tuple[tuple[int, str], ...]  # the same of accumulators

    @classmethod
    def of(cls, lowered: WorkerSource, arrays: Mapping[tuple[str, str], NDArray[Any]]) -> _Arguments:
        """arrays: those of the visits."""
        found = list(enumerate(lowered.arguments))
        given = tuple((at, name) for at, (what, name) in found if what in ("array", "number"))
        partial = tuple((at, name) for at, (what, name) in found if what == "partial")
        return cls(tuple(arrays.get(argument) for argument in lowered.arguments), given, partial)

    def of_call(self, values: Mapping[str, Any], visits: int) -> list[Any]:
        """The arguments of one call."""
        args = list(self.fixed)
        for at, name in self.given:
            args[at] = values[name]
        for at, name in self.partial:
            args[at] = values[name].blank(visits)
        return args


@dataclass(frozen=True, eq=False)
class _Part:
    """One loop of the function."""

    prepared: PreparedLoop
    numbers: tuple[tuple[str, Any], ...]  # that its preparation depends on
    arguments: _Arguments
    alone: _Arguments | None  # of an execution by one worker, None if that is the same
    large: bool  # whether checking its records needs other threads
    seconds: list[float] = field(default_factory=lambda: [float("inf")])  # of its last execution

    @property
    def relies_on_arrays(self) -> bool:
        """Whether the content of arrays decides how it runs."""
        return bool(self.prepared.visits.relied.arrays)

    def unchanged(self, values: Mapping[str, Any], crew: Crew | None) -> bool:
        """Whether its preparation is still valid."""
        prepared = self.prepared
        workers = prepared.workers(1 if crew is None else crew.width)
        # One worker runs an inspected loop in its own order, whatever the arrays hold that decide on the waves.
        relied = prepared.visits.relied.arrays if prepared.execution(workers) is None else {}
        return (
            all(values[name] == value for name, value in self.numbers)
            and all(np.array_equal(values[name], value) for name, value in relied.items())
            and prepared.watched.unchanged(crew)
        )

    def run(self, values: Mapping[str, Any], crew: Crew | None) -> float:
        """Run the loop; return the seconds that its passes took."""
        from .execute.run import compiling, out_of_range

        prepared = self.prepared
        profile, visits = prepared.analysis.options.profile, prepared.visits
        if not len(prepared.analysis.space):
            return 0.0
        width = 1 if crew is None else crew.width
        workers = prepared.workers(width)
        alone = prepared.execution(workers)
        passes, arguments, lowered, worker = prepared.passes, self.arguments, prepared.lowered, prepared.worker
        if alone is not None and self.alone is not None:
            passes, arguments, lowered, worker = (alone.one,), self.alone, alone.lowered, alone.worker
        again = alone is None or bool(alone.ran)
        args = arguments.of_call(values, len(visits))
        fault = np.zeros(SLOTS, np.int64)
        seconds, watch = 0.0, Stopwatch()
        for one in passes:
            args_of_pass = (fault, one.visits, *args)
            step = BlockStep("visit", worker, one.order, one.weight, args_of_pass, np.zeros(len(one.visits)),
                             unstarted=one.unstarted)  # fmt: skip
            if crew is None:
                done = run_inline(step, profile)
            else:
                crew.width = workers
                try:
                    with compiling(prepared.analysis):
                        done = crew.run(step, profile, again=again)
                finally:
                    crew.width = width
            seconds += done.seconds
            if done.failed is not None:
                raise out_of_range(lowered, prepared.analysis, fault)
        if alone is not None and not again:
            alone.ran.append(True)  # compiling was a part of it
        else:
            prepared.paces[workers] = watch.seconds()
        for at, name in arguments.partial:
            values[name].fold(args[at])
        self.seconds[0] = seconds
        return seconds


@dataclass(frozen=True, eq=False)
class ReadyCall:
    """A call, prepared for arguments that it was made with."""

    runtime: Runtime
    names: tuple[str, ...]  # of the parameters
    arrays: tuple[tuple[int, _Array], ...]  # parameters that are arrays
    data: tuple[tuple[int, weakref.ref[Any]], ...]  # parameters that are data
    captured: tuple[tuple[str, Any], ...]  # arrays and numbers from around the function that the loops use
    around: tuple[tuple[Mapping[str, Any], str, Any], ...]  # (namespace, name, value) of all names from around it
    cells: tuple[tuple[Any, Any], ...]  # the same of its closure
    steps: tuple[loop_tree.Setup | _Part, ...]
    known: Mapping[str, Any]  # numbers that the lines between the loops have made

    def run(
        self, function: LoopFunction, values: Sequence[Any], crews: CrewPool, known: dict[str, Any]
    ) -> float | None:
        """Run the call; return the seconds that its passes took, None if something has changed and no loop was run.

        known: receives the numbers that the lines between the loops make. They are made once in a call, since such a
        line may draw a random number.
        """
        now = dict(zip(self.names, values, strict=True))
        if not self._same(values, now):
            return None
        for step in self.steps:
            if isinstance(step, loop_tree.Setup):
                function.set_up(step, now, known)
        if not _equal(known, self.known):
            return None
        now |= known
        parts = [step for step in self.steps if isinstance(step, _Part)]
        width = self.runtime.workers
        most = BRIEF if width == 1 else _SHORT
        if all(part.seconds[0] < most and not part.large for part in parts):
            return self._run(parts, now, None)
        with crews.open(self.runtime) as crew:
            return self._run(parts, now, crew)

    @staticmethod
    def _run(parts: list[_Part], now: Mapping[str, Any], crew: Crew | None) -> float | None:
        if not all(part.unchanged(now, crew) for part in parts):
            return None
        return sum(part.run(now, crew) for part in parts)

    def _same(self, values: Sequence[Any], now: dict[str, Any]) -> bool:
        """Whether arguments and surroundings are the same; in `now`, states become their arrays."""
        for namespace, name, value in self.around:
            if namespace.get(name, MISSING) is not value:
                return False
        try:
            if any(cell.cell_contents is not value for cell, value in self.cells):
                return False
        except ValueError:  # a name that was deleted since
            return False
        for at, kept in self.arrays:
            array = kept.now(values[at])
            if array is None:
                return False
            now[self.names[at]] = array
        for at, reference in self.data:
            if reference() is not values[at]:
                return False
        for value in values:
            if type(value) is int and value.bit_length() > 63:
                return False
        for name, kept in self.captured:
            if isinstance(kept, _Array):
                array = kept.now(kept.owner())
                if array is None:
                    return False
                now[name] = array
            else:
                now[name] = kept
        return True


MISSING = object()


def _equal(now: Mapping[str, Any], before: Mapping[str, Any]) -> bool:
    return now.keys() == before.keys() and all(
        type(value) is type(before[name]) and value == before[name] for name, value in now.items()
    )


def ready_call(
    function: LoopFunction, held: BoundValues, values: Sequence[Any], steps: Sequence[Any], known: Mapping[str, Any],
    runtime: Runtime,
) -> ReadyCall | None:  # fmt: skip
    """What a call that was just made leaves for the next one; None if it is unusual.

    Parameters
    ----------
    steps : sequence
        Of each step of the function: the setup statement, or the prepared loop.
    """
    if type(runtime) not in (Serial, Threads) or held.buffers:
        return None
    names = tuple(function.parameters)
    arrays, data = [], []
    for at, (name, value) in enumerate(zip(names, values, strict=True)):
        if isinstance(value, State | np.ndarray):
            kept = _Array.of(value)
            if kept is None:
                return None
            arrays.append((at, kept))
        elif name in held.data:
            data.append((at, weakref.ref(value)))
        elif isinstance(value, Accumulator):
            if value.op not in OPERATORS:
                return None
        elif not isinstance(value, NUMBERS):
            return None
    captured: list[tuple[str, Any]] = []
    for name, value in function.captured().items():
        if isinstance(value, NUMBERS):
            captured.append((name, value))
            continue
        kept = _Array.of(value) if isinstance(value, State | np.ndarray) else None
        if kept is None:
            return None
        captured.append((name, kept))
    parts = [step if isinstance(step, loop_tree.Setup) else _part(step, held, known) for step in steps]
    setups = [isinstance(step, loop_tree.Setup) for step in steps]
    if setups != sorted(setups, reverse=True):
        return None  # a statement between two loops may read what the first one wrote
    loops = [part for part in parts if isinstance(part, _Part)]
    in_waves = [part for part in loops if runtime.workers > 1 or part.alone is None]
    if len(loops) > 1 and (
        any(part.relies_on_arrays for part in in_waves) or any(_may_change(part, loops, held) for part in loops)
    ):
        return None
    surroundings = _surroundings(function.plain)
    if surroundings is None:
        return None
    return ReadyCall(
        runtime, names, tuple(arrays), tuple(data), tuple(captured), *surroundings,
        tuple(parts), dict(known),
    )  # fmt: skip


def _may_change(part: _Part, loops: Sequence[_Part], held: BoundValues) -> bool:
    """Whether one of the loops may write to the records that the preparation of a loop depends on."""
    watched = part.prepared.watched
    records = [array for array, *_ in (*watched.copied, *watched.ranges)]
    written = {name for each in loops for name in each.prepared.analysis.written}
    return any(np.may_share_memory(held.arrays[name], array) for name in written for array in records)


def _part(prepared: PreparedLoop, held: BoundValues, known: Mapping[str, Any]) -> _Part:
    analysis, visits = prepared.analysis, prepared.visits
    numbers = {**held.numbers, **known}
    relied = {**analysis.consulted, **visits.relied.numbers}
    relied |= {name: numbers[name] for name in _bounds(analysis.loop) if name in numbers}
    alone = prepared.execution(1)
    arguments = _Arguments.of(prepared.lowered, visits.arrays)
    in_order = None if alone is None else _Arguments.of(alone.lowered, alone.arrays)
    large = sum(array.nbytes for array, _ in prepared.watched.copied) >= 8 * _LARGE
    return _Part(prepared, tuple(relied.items()), arguments, in_order, large)


def _bounds(loop: loop_tree.LoopNest) -> Iterator[str]:
    """Names in the bounds of the ranges of a loop."""
    waiting: list[Any] = [level.over for level in loop.levels]
    while waiting:
        match waiting.pop():
            case loop_tree.Range(start=start, stop=stop, step=step):
                waiting += [start, stop, step]
            case loop_tree.Name(name=name):
                yield name
            case loop_tree.Unary(operand=operand):
                waiting.append(operand)
            case loop_tree.Binary(left=left, right=right):
                waiting += [left, right]
            case loop_tree.Call(args=args):
                waiting += args


def _surroundings(plain: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]] | None:
    """Names from around a function and plain functions that it calls, with their values; cells likewise."""
    places: dict[tuple[int, str], tuple[Mapping[str, Any], str, Any]] = {}
    cells: list[tuple[Any, Any]] = []
    waiting, met = [plain], {id(plain)}
    while waiting:
        function = waiting.pop()
        values = around(function)
        try:
            cells += [(cell, cell.cell_contents) for cell in function.__closure__ or ()]
        except ValueError:  # no value yet
            return None
        modules = {id(value): vars(value) for value in values.values() if isinstance(value, types.ModuleType)}
        names = names_of(function.__code__)
        for space in (function.__globals__, *modules.values()):
            places |= {(id(space), name): (space, name, space.get(name, MISSING)) for name in names}
        for value in values.values():
            library = (getattr(value, "__module__", None) or "").partition(".")[0] in ("numpy", "numba", "stretto")
            if isinstance(value, types.FunctionType) and not library and id(value) not in met:
                met.add(id(value))
                waiting.append(value)
    return tuple(places.values()), tuple(cells)
