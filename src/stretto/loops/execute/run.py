"""Running a loop: the arrays behind its arguments, one compiled pass (or one for each wave), results folded in order.

`prepare` does everything that depends on types, shapes and data alone; `run` does one epoch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from stretto.cached import cached_property
from stretto.errors import PlanError, RunError
from stretto.kernels.core import generated
from stretto.kernels.core import merge as merge_kernels
from stretto.kernels.core.compile import Kernel
from stretto.kernels.core.guard import EXTENT, SITE, SLOTS, SUBSCRIPT
from stretto.loops.analyse.analysis import Analysis
from stretto.loops.analyse.assumptions import Relied
from stretto.loops.emit.scalars import CHOICES, own
from stretto.loops.emit.worker_source import Lowered, lower
from stretto.loops.front.bind import BufferInfo, Held
from stretto.loops.front.user_functions import digest
from stretto.loops.layout.unchanged_records import Watched, watch
from stretto.loops.layout.visits import Visits, lay
from stretto.runtime.blocks.crew import Crew
from stretto.runtime.blocks.step import Step
from stretto.schedule.orders.order import Ints, Order, part_of
from stretto.schedule.orders.rotation import independent

from . import aliasing
from .buffers import Room, capacity

if TYPE_CHECKING:
    from stretto.plan.arrays import StepSpec


@dataclass(frozen=True, eq=False)
class Prepared:
    """A loop that is ready to run: what was decided, how it is cut, and its compiled worker."""

    analysis: Analysis
    visits: Visits
    lowered: Lowered
    kernels: dict[str, Kernel]
    idle: list[dict[str, Room]] = field(default_factory=list)  # memory of the buffers, of runs that have ended
    ahead: dict[Any, Any] = field(default_factory=dict)  # what `prefetch` has listed
    watched: Watched = field(default_factory=Watched)  # what of the records it relies on
    progress: dict[Any, Any] = field(default_factory=dict)  # how far schedules have got, see `rounds`
    described: list[tuple[StepSpec, Relied]] = field(default_factory=list)  # `spec`, and the values it depends on

    @property
    def worker(self) -> Kernel:
        return self.kernels["visit_worker"]

    def spec(self, held: Held, known: Mapping[str, Any], crew: Crew) -> StepSpec:
        """What its arguments are, by name; kept as long as the values are the same that it depends on."""
        from stretto.loops.layout.node_arrays import spec_of

        if not self.described or not self.described[0][1].holds(held, known):
            self.described[:] = [spec_of(self, held, known, crew)]
        return self.described[0][0]

    @cached_property
    def passes(self) -> tuple[tuple[Ints, Order], ...]:
        """What one execution runs, one after another: the visits and their order; one pass where there are no waves."""
        visits = self.visits
        if not visits.waves:
            return ((np.arange(len(visits), dtype=np.int64), visits.order),)
        return tuple((wave, part_of(visits.order, wave)) for wave in visits.waves)


def prepare(analysis: Analysis, held: Held, known: Mapping[str, Any], crew: Crew) -> Prepared:
    """Lay out the iterations of a loop and compile its body."""
    visits = lay(analysis, crew, held, known)
    made = compiled(analysis, visits, held)
    return Prepared(analysis, visits, *made, watched=watch(analysis, visits, crew))


def compiled(analysis: Analysis, visits: Visits, held: Held) -> tuple[Lowered, dict[str, Kernel]]:
    """The loop's source and its compiled workers."""
    operators = {
        name: (analysis_op, _compiled_function(held.accumulators[name].op) if analysis_op == "user" else None)
        for name, analysis_op in ((n, getattr(held.infos[n], "op", "")) for n in held.accumulators)
    }
    buffers = {name: info for name, info in held.infos.items() if isinstance(info, BufferInfo)}
    applies = {name: _compiled_function(held.buffers[name].apply) for name, info in buffers.items() if not info.plain}
    function = analysis.function
    where = f"{function.name}, line {analysis.loop.line}"
    made = lower(analysis.body, visits.form, where, operators=operators, buffers=buffers, applies=applies)
    return made, generated.load(made.source, made.users, [digest(user) for user in made.users])


_FUNCTIONS: dict[Any, Any] = {}
_SMALL = 1 << 16  # elements that are merged sooner than threads are started


def _compiled_function(function: Any) -> Any:
    """The user's function, compiled if it is not: one object for each function, so that its code is made once."""
    if hasattr(function, "py_func"):
        return function
    key = function, digest(function)  # a constant it uses may have changed since
    if key not in _FUNCTIONS:
        import numba

        _FUNCTIONS[key] = numba.njit(error_model="numpy")(function)
    return _FUNCTIONS[key]


@dataclass(frozen=True, eq=False)
class Call:
    """One execution under way: what compiled code is given, and what is put back when it is over.

    again: it has run like this before, so that there is nothing to compile.
    """

    prepared: Prepared
    held: Held
    arrays: dict[str, NDArray[Any]]
    borrowed: aliasing.Borrowed
    partials: dict[str, NDArray[Any]]
    rooms: dict[str, Room]
    again: bool
    fault: Ints
    args: tuple[Any, ...]

    def step(self, visits: Ints, order: Order, weight: Ints, spec: StepSpec | None = None) -> Step:
        """One pass over some of the visits."""
        args = (self.fault, visits, *self.args)
        which = visits if spec is not None and spec.waves is not None else None
        return Step("visit", self.prepared.worker, order, weight, args, np.zeros(len(visits)), visits=which, spec=spec)

    def check(self, failed: int | None) -> None:
        """RunError where a visit has failed."""
        if failed is not None:
            aliasing.give_back(self.borrowed)
            raise _out_of_range(self.prepared, self.fault)

    def merge(self, slots: int, crew: Crew) -> float:
        """Fold what the visits of a wave wrote to buffers into the arrays; the seconds it took."""
        return _merge(self.prepared, self.rooms, self.arrays, slots, crew, again=self.again)

    def fold(self) -> None:
        """Fold the parts of the visits into the accumulators."""
        for name, parts in self.partials.items():
            self.held.accumulators[name].fold(parts)

    def end(self) -> None:
        """Give back what was borrowed; not after a failure, which leaves in the rooms what was never merged."""
        aliasing.give_back(self.borrowed)
        self.prepared.idle.append(self.rooms)


def begin(
    prepared: Prepared,
    held: Held,
    known: Mapping[str, Any],
    own: Mapping[tuple[str, str], NDArray[Any]] | None = None,
) -> Call:
    """Everything that compiled code needs for one execution. own: arrays to take instead of those of the visits."""
    analysis, visits = prepared.analysis, prepared.visits
    laid = {**visits.arrays, **(own or {})}
    aliasing.check(analysis, held)
    arrays, borrowed = aliasing.contiguous(held.arrays, analysis.written)
    partials = {
        array.name: held.accumulators[array.name].blank(len(visits))
        for array in analysis.body.arrays
        if array.role == "accumulator"
    }
    try:
        rooms, again = prepared.idle.pop(), True
    except IndexError:  # the first run, or others are under way
        rooms, again = _rooms(prepared, held, arrays), False

    def value(what: str, name: str) -> Any:
        if what == "array":
            return arrays[name]
        if what == "number":
            return known[name] if name in known else held.numbers[name]
        if what == "partial":
            return partials[name]
        for room in rooms.values():
            if (what, name) in room.arrays:
                return room.arrays[what, name]
        if what == "source":
            return arrays[name].reshape(-1)
        return laid[what, name]

    args = tuple(value(what, name) for what, name in prepared.lowered.arguments)
    return Call(prepared, held, arrays, borrowed, partials, rooms, again, np.zeros(SLOTS, np.int64), args)


def run(prepared: Prepared, held: Held, known: dict[str, Any], crew: Crew) -> float:
    """One execution of the loop; the seconds its passes took."""
    analysis, visits = prepared.analysis, prepared.visits
    if not len(analysis.space):
        return 0.0
    spec = prepared.spec(held, known, crew) if crew.needs_spec else None
    call = begin(prepared, held, known)
    seconds = 0.0
    for wave, order in prepared.passes:
        step = call.step(wave, order, visits.weight[wave], spec)
        with compiling(analysis):
            done = crew.run(step, analysis.options.profile, again=call.again)
        call.check(done.failed)
        seconds += done.seconds + call.merge(len(wave), crew)
    crew.gather()
    call.fold()
    call.end()
    return seconds


def _rooms(prepared: Prepared, held: Held, arrays: dict[str, NDArray[Any]]) -> dict[str, Room]:
    """The memory that buffers need: made for the first run of a loop over its data, and used again every epoch."""
    visits = prepared.visits
    slots = max((len(wave) for wave in visits.waves), default=0)
    rooms = {}
    for what, name in prepared.lowered.arguments:
        if what == "copy":
            rooms[name] = Room.of_copies(name, arrays[name], slots)
        elif what in ("delta", "pending"):
            info = held.infos[name]
            assert isinstance(info, BufferInfo)
            size = 0 if info.plain else capacity(prepared.analysis, visits, name, info)
            rooms[name] = Room.of_buffer(name, info, slots, size, held)
    return rooms


def _merge(
    prepared: Prepared, rooms: dict[str, Room], arrays: dict[str, NDArray[Any]], slots: int, crew: Crew, *, again: bool
) -> float:
    """Between waves: what the visits wrote is folded into the real arrays, visit after visit."""
    seconds = 0.0
    for name, room in rooms.items():
        if room.info is None:
            continue
        target = arrays[room.info.target].reshape(-1)
        if room.info.plain and target.size * slots <= _SMALL:
            merge_kernels.add_all(room.arrays["delta", name].reshape(-1, target.size)[:slots], target)
            continue
        bounds = room.ranges(target.size)
        order, weight = independent(len(bounds) - 1), np.diff(bounds)
        if room.info.plain:
            delta = room.arrays["delta", name].reshape(-1, target.size)[:slots]
            step = Step("merge", merge_kernels.add_worker, order, weight, (bounds, delta, target), np.zeros(len(order)))
        else:
            merge = dict(prepared.lowered.merges)[name]
            args = tuple(
                bounds
                if what == "bounds"
                else arrays[array].reshape(-1)
                if what == "source"
                else room.arrays[what, array][:slots]
                for what, array in merge
            )
            kernel = prepared.kernels[f"merge_{own(name)}worker"]
            step = Step("merge", kernel, order, weight, args, np.zeros(len(order)))
        with compiling(prepared.analysis):
            seconds += crew.run(step, prepared.analysis.options.profile, again=again).seconds
    return seconds


@contextmanager
def compiling(analysis: Analysis) -> Iterator[None]:
    """What Numba cannot compile is a function of the user's, or the way it is used."""
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


def _out_of_range(prepared: Prepared, fault: Ints) -> RunError:
    """The error for a subscript that was found out of range while the loop ran."""
    site = prepared.lowered.sites[int(fault[SITE]) - 1]
    function = prepared.analysis.function
    row = site.line - function.line
    source = function.lines[row].strip() if 0 <= row < len(function.lines) else ""
    name = function.file.replace("\\", "/").rpartition("/")[2]
    if site.array == CHOICES:
        return RunError(
            f"{name}:{site.line}: st.integers chooses among 1 to {int(fault[EXTENT])} numbers, and was asked for "
            f"{int(fault[SUBSCRIPT]) + 1}; iterations before it have been made\n    {source}"
        )
    return RunError(
        f"{name}:{site.line}: subscript {int(fault[SUBSCRIPT])} of {site.array} is outside its axis {site.axis}, which "
        f"has {int(fault[EXTENT])} elements (subscripts never wrap); iterations before it have been made\n    {source}"
    )
