"""Prepare and run a loop: compile its body, run one pass (or one for each wave), fold results in visit order.

`prepare` does everything that depends on types, shapes and data alone; `run` does one epoch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.errors import PlanError, RunError
from stretto.kernels.core import generated
from stretto.kernels.core import merge as merge_kernels
from stretto.kernels.core.compile import Kernel
from stretto.kernels.core.guard import EXTENT, SITE, SLOTS, SUBSCRIPT
from stretto.loops.analyse.analysis import Analysis
from stretto.loops.emit.proofs import proven
from stretto.loops.emit.scalars import CHOICES, SIZE, own
from stretto.loops.emit.wave_worker import applies_to, wave_worker
from stretto.loops.emit.worker_source import WorkerSource, lower
from stretto.loops.front.bind import BoundValues, BufferInfo
from stretto.loops.front.user_functions import digest
from stretto.loops.layout.loop_visits import LoopVisits
from stretto.loops.layout.node_arrays import spec_for
from stretto.loops.layout.unchanged_records import watch
from stretto.loops.layout.visits import lay
from stretto.loops.types.body import Body
from stretto.plan.arrays import StepSpec
from stretto.runtime.blocks.crew import Crew
from stretto.runtime.blocks.inline_pass import Stopwatch, run_inline
from stretto.runtime.blocks.pass_control import UnstartedPass
from stretto.runtime.blocks.step import BlockStep
from stretto.schedule.orders.order import Ints, Order
from stretto.schedule.orders.rotation import independent

from . import aliasing
from .buffers import BufferArrays, capacity
from .prepared import Alone, PreparedLoop
from .waves import WaveRunner, wave_values


def prepare(analysis: Analysis, held: BoundValues, known: Mapping[str, Any], crew: Crew) -> PreparedLoop:
    """Lay out the iterations of a loop and compile its body."""
    visits = lay(analysis, crew, held, known)
    integers = {name: value for name, value in {**held.numbers, **known}.items() if isinstance(value, int | np.integer)}
    body, relied = proven(analysis.body, analysis.space, held.infos, {name: int(integers[name]) for name in integers})
    analysis = replace(analysis, consulted={**analysis.consulted, **relied})
    made = compiled(analysis, body, visits, held)
    waves = None if crew.needs_spec else _wave_runner(analysis, body, visits, held)
    return PreparedLoop(analysis, visits, *made, body, waves=waves, watched=watch(analysis, visits, crew))


def _wave_runner(analysis: Analysis, body: Body, visits: LoopVisits, held: BoundValues) -> WaveRunner | None:
    """What runs all waves of a buffered loop in one call, if that is possible."""
    buffers = {name: info for name, info in held.infos.items() if isinstance(info, BufferInfo)}
    if not visits.waves or analysis.options.schedule is not None or not applies_to(body, buffers):
        return None
    where = f"{analysis.function.name}, line {analysis.loop.line}"
    made = wave_worker(body, visits.form, where, _operators(held), buffers)
    kernels = generated.load(made.source, made.users, [digest(user) for user in made.users])
    return WaveRunner(analysis, visits, made, kernels["visit_worker"])


def _operators(held: BoundValues) -> dict[str, tuple[str, Any]]:
    """Name and function of the operator of each accumulator."""
    return {
        name: (analysis_op, _compiled_function(held.accumulators[name].op) if analysis_op == "user" else None)
        for name, analysis_op in ((n, getattr(held.infos[n], "op", "")) for n in held.accumulators)
    }


def compiled(
    analysis: Analysis, body: Body, visits: LoopVisits, held: BoundValues
) -> tuple[WorkerSource, dict[str, Kernel]]:
    """Generate the source of a loop and compile its workers. body: its body with the checks that are needed."""
    operators = _operators(held)
    buffers = {name: info for name, info in held.infos.items() if isinstance(info, BufferInfo)}
    applies = {name: _compiled_function(held.buffers[name].apply) for name, info in buffers.items() if not info.plain}
    function = analysis.function
    where = f"{function.name}, line {analysis.loop.line}"
    made = lower(
        body, visits.form, where, operators=operators, buffers=buffers, applies=applies, canonical=analysis.body
    )
    return made, generated.load(made.source, made.users, [digest(user) for user in made.users])


_FUNCTIONS: dict[Any, Any] = {}
_SMALL = 1 << 16  # elements that one thread merges faster than others are started


def _compiled_function(function: Any) -> Any:
    """The user's function, compiled if it is not: one object for each function, so that it is compiled once."""
    if hasattr(function, "py_func"):
        return function
    key = function, digest(function)  # a constant it uses may have changed since
    if key not in _FUNCTIONS:
        import numba

        _FUNCTIONS[key] = numba.njit(error_model="numpy")(function)
    return _FUNCTIONS[key]


@dataclass(frozen=True, eq=False)
class Execution:
    """One execution of a loop."""

    prepared: PreparedLoop  # the loop
    held: BoundValues  # its arguments
    arrays: dict[str, NDArray[Any]]  # by name, as compiled code takes them
    borrowed: aliasing.Borrowed  # written arrays that were copied, with their copies
    partials: dict[str, NDArray[Any]]  # [V, …] parts of accumulators, by name
    buffer_arrays: dict[str, BufferArrays]  # memory of the buffers, by name
    again: bool  # whether it has run before with these types, so that nothing has to be compiled
    fault: Ints  # where a visit that fails stores the reason
    args: tuple[Any, ...]  # of the kernel
    lowered: WorkerSource  # the source of the kernel
    worker: Kernel

    def step(
        self,
        visits: Ints,
        order: Order,
        weight: Ints,
        spec: StepSpec | None = None,
        unstarted: UnstartedPass | None = None,
    ) -> BlockStep:
        """One pass over some of the visits."""
        args = (self.fault, visits, *self.args)
        which = visits if spec is not None and spec.waves is not None else None
        out = np.zeros(len(visits))
        return BlockStep("visit", self.worker, order, weight, args, out, visits=which, spec=spec, unstarted=unstarted)

    def check(self, failed: int | None) -> None:
        """Raise RunError if a visit has failed."""
        if failed is not None:
            aliasing.give_back(self.borrowed)
            raise out_of_range(self.lowered, self.prepared.analysis, self.fault)

    def merge(self, slots: int, crew: Crew, *, here: bool = False) -> float:
        """Merge the buffered writes of a wave into the arrays; return the seconds it took. here: on this thread."""
        return _merge(self.prepared, self.buffer_arrays, self.arrays, slots, crew, again=self.again, here=here)

    def fold(self) -> None:
        """Fold the parts of the visits into the accumulators."""
        for name, parts in self.partials.items():
            self.held.accumulators[name].fold(parts)

    def end(self) -> None:
        """Copy results back and release the buffer memory. Not called after a failure: unmerged writes would remain."""
        aliasing.give_back(self.borrowed)
        self.prepared.idle.append(self.buffer_arrays)


def begin(
    prepared: PreparedLoop,
    held: BoundValues,
    known: Mapping[str, Any],
    own: Mapping[tuple[str, str], NDArray[Any]] | None = None,
    alone: Alone | None = None,
) -> Execution:
    """Collect the arguments of compiled code for one execution. own: arrays that replace those of the visits."""
    analysis, visits = prepared.analysis, prepared.visits
    laid = {**visits.arrays, **(own or {}), **(alone.arrays if alone is not None else {})}
    lowered, worker = (prepared.lowered, prepared.worker) if alone is None else (alone.lowered, alone.worker)
    aliasing.check(analysis, held)
    arrays, borrowed = aliasing.contiguous(held.arrays, analysis.written)
    partials = {
        array.name: held.accumulators[array.name].blank(len(visits))
        for array in analysis.body.arrays
        if array.role == "accumulator"
    }
    try:
        buffer_arrays, again = prepared.idle.pop(), True
    except IndexError:  # the first run, or all memory is in use by other runs
        buffer_arrays, again = _buffer_arrays(prepared, held, arrays), False

    def value(what: str, name: str) -> Any:
        if what == "array":
            return arrays[name]
        if what == "number":
            return known[name] if name in known else held.numbers[name]
        if what == "partial":
            return partials[name]
        for memory in buffer_arrays.values():
            if (what, name) in memory.arrays:
                return memory.arrays[what, name]
        if what == "source":
            return arrays[name].reshape(-1)
        return laid[what, name]

    args = tuple(value(what, name) for what, name in lowered.arguments)
    fault = np.zeros(SLOTS, np.int64)
    return Execution(prepared, held, arrays, borrowed, partials, buffer_arrays, again, fault, args, lowered, worker)


def run(prepared: PreparedLoop, held: BoundValues, known: dict[str, Any], crew: Crew) -> float:
    """Run the loop once; return the seconds its passes took."""
    analysis = prepared.analysis
    if not len(analysis.space):
        return 0.0
    if crew.needs_spec:
        return _run_passes(prepared, held, known, crew, spec_for(prepared, held, known, crew))
    width, crew.width = crew.width, prepared.workers(crew.width)
    try:
        if prepared.waves is not None:
            return _run_waves(prepared, prepared.waves, held, known, crew)
        return _run_passes(prepared, held, known, crew, None)
    finally:
        crew.width = width


def _run_passes(
    prepared: PreparedLoop, held: BoundValues, known: dict[str, Any], crew: Crew, spec: StepSpec | None
) -> float:
    """Run a loop pass by pass."""
    analysis = prepared.analysis
    alone = None if spec is not None else prepared.execution(crew.width)
    call = begin(prepared, held, known, alone=alone)
    seconds = 0.0
    stopwatch = Stopwatch()
    passes = prepared.passes if alone is None else (alone.one,)
    again = call.again if alone is None else call.again and bool(alone.ran)
    here = again and spec is None and prepared.brief(crew.width, len(passes))
    for one in passes:
        step = call.step(one.visits, one.order, one.weight, spec, one.unstarted)
        if here:
            done = run_inline(step, analysis.options.profile)
        else:
            with compiling(analysis):
                done = crew.run(step, analysis.options.profile, again=again)
        call.check(done.failed)
        seconds += done.seconds + call.merge(len(one.visits), crew, here=here)
    if again:  # otherwise compiling is part of it
        prepared.paces[crew.width] = stopwatch.seconds()
    if alone is not None and not alone.ran:
        alone.ran.append(True)
    crew.gather()
    call.fold()
    call.end()
    return seconds


def _run_waves(
    prepared: PreparedLoop, runner: WaveRunner, held: BoundValues, known: Mapping[str, Any], crew: Crew
) -> float:
    """Run all waves of a buffered loop in one call."""
    analysis, visits = prepared.analysis, prepared.visits
    aliasing.check(analysis, held)
    arrays, borrowed = aliasing.contiguous(held.arrays, analysis.written)
    partials = {
        array.name: held.accumulators[array.name].blank(len(visits))
        for array in analysis.body.arrays
        if array.role == "accumulator"
    }
    fault = np.zeros(SLOTS, np.int64)
    values = wave_values(held, known, arrays, visits.arrays, partials, runner.lowered.arguments)
    memory = runner.memory(crew.width, held.infos)
    with compiling(analysis):
        done = runner.run(values, fault, memory, crew)
    if memory[1]:  # otherwise compiling is part of it
        prepared.paces[crew.width] = done.seconds
    if done.failed is not None:
        aliasing.give_back(borrowed)
        raise out_of_range(runner.lowered, analysis, fault)
    for name, parts in partials.items():
        held.accumulators[name].fold(parts)
    aliasing.give_back(borrowed)
    runner.keep(crew.width, memory[0])
    return float(done.seconds)


def _buffer_arrays(
    prepared: PreparedLoop, held: BoundValues, arrays: dict[str, NDArray[Any]]
) -> dict[str, BufferArrays]:
    """Allocate the memory of the buffers, for the first run of a loop over its data; later epochs reuse it."""
    visits = prepared.visits
    slots = max((len(wave) for wave in visits.waves), default=0)
    buffer_arrays = {}
    for what, name in prepared.lowered.arguments:
        if what == "copy":
            buffer_arrays[name] = BufferArrays.of_copies(name, arrays[name], slots)
        elif what in ("delta", "pending"):
            info = held.infos[name]
            assert isinstance(info, BufferInfo)
            size = 0 if info.plain else capacity(prepared.analysis, visits, name, info)
            buffer_arrays[name] = BufferArrays.of_buffer(name, info, slots, size, held)
    return buffer_arrays


def _merge(
    prepared: PreparedLoop,
    buffer_arrays: dict[str, BufferArrays],
    arrays: dict[str, NDArray[Any]],
    slots: int,
    crew: Crew,
    *,
    again: bool,
    here: bool,
) -> float:
    """Merge the buffered writes of a wave into the arrays, visit after visit."""
    seconds = 0.0
    for name, memory in buffer_arrays.items():
        if memory.info is None:
            continue
        target = arrays[memory.info.target].reshape(-1)
        if memory.info.plain and (here or target.size * slots <= _SMALL):
            merge_kernels.add_all(memory.arrays["delta", name].reshape(-1, target.size)[:slots], target)
            continue
        bounds = memory.ranges(target.size)
        order, weight = independent(len(bounds) - 1), np.diff(bounds)
        if memory.info.plain:
            delta = memory.arrays["delta", name].reshape(-1, target.size)[:slots]
            step = BlockStep(
                "merge", merge_kernels.add_worker, order, weight, (bounds, delta, target), np.zeros(len(order))
            )
        else:
            merge = dict(prepared.lowered.merges)[name]
            args = tuple(
                bounds
                if what == "bounds"
                else arrays[array].reshape(-1)
                if what == "source"
                else memory.arrays[what, array][:slots]
                for what, array in merge
            )
            kernel = prepared.kernels[f"merge_{own(name)}worker"]
            step = BlockStep("merge", kernel, order, weight, args, np.zeros(len(order)))
        if here:
            seconds += run_inline(step, prepared.analysis.options.profile).seconds
            continue
        with compiling(prepared.analysis):
            seconds += crew.run(step, prepared.analysis.options.profile, again=again).seconds
    return seconds


@contextmanager
def compiling(analysis: Analysis) -> Iterator[None]:
    """Turn a compile error of Numba, caused by a user's function or its use, into a PlanError."""
    from numba.core.errors import NumbaError

    try:
        yield
    except NumbaError as problem:
        said = [line.strip() for line in str(problem).splitlines() if line.strip()]
        telling = next((line for line in said if line.startswith(("Invalid", "No implementation", "failed"))), said[0])
        raise PlanError(
            f"{analysis.function.name}: Numba cannot compile a function that the loop uses: {telling}; check what it "
            "is given, and that it returns a value for each array it changes"
        ) from problem


def out_of_range(lowered: WorkerSource, analysis: Analysis, fault: Ints) -> RunError:
    """The error for a subscript out of range."""
    site = lowered.sites[int(fault[SITE]) - 1]
    function = analysis.function
    row = site.line - function.line
    source = function.lines[row].strip() if 0 <= row < len(function.lines) else ""
    name = function.file.replace("\\", "/").rpartition("/")[2]
    if site.array == CHOICES:
        return RunError(
            f"{name}:{site.line}: st.integers chooses among 1 to {int(fault[EXTENT])} numbers, and was asked for "
            f"{int(fault[SUBSCRIPT]) + 1}; iterations before it have been made\n    {source}"
        )
    if site.array == SIZE:
        return RunError(
            f"{name}:{site.line}: a local array of {int(fault[SUBSCRIPT])} elements; its size is from 0 to 2**31; "
            f"iterations before it have been made\n    {source}"
        )
    return RunError(
        f"{name}:{site.line}: subscript {int(fault[SUBSCRIPT])} of {site.array} is outside its axis {site.axis}, which "
        f"has {int(fault[EXTENT])} elements (subscripts never wrap); iterations before it have been made\n    {source}"
    )
