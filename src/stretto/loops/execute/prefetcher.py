"""The prefetch function: compiled code that runs the sliced body and lists the elements that a loop will access.

    prefetch = epoch.plan(samples, w, 0.1).prefetch()
    found = prefetch.elements()
    ptr, elements = found.of("w")           elements[ptr[v] : ptr[v + 1]]: what visit v reads of w, sorted, once each
    print("\\n".join(prefetch.describe()))

The sliced body is compiled like the loop itself, with records instead of buffers: a first pass counts them, a second
one stores them. The list is cached while its inputs are unchanged: the data, and the numbers and arrays that the slice
reads.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from stretto.cached import cached_property
from stretto.errors import PlanError
from stretto.loops.analyse.analysis import Analysis
from stretto.loops.analyse.assumptions import Assumptions
from stretto.loops.analyse.prefetch_slice import PrefetchSlice, mutable, slice_body
from stretto.loops.emit.buffers import Buffers
from stretto.loops.emit.scalars import SourceBuilder
from stretto.loops.emit.statements import StatementWriter
from stretto.loops.emit.worker_source import arguments_of, claim_visits, iterate, parameter, source_of
from stretto.loops.front.bind import BoundValues, BufferInfo
from stretto.loops.front.user_functions import digest
from stretto.loops.layout.loop_visits import LoopVisits
from stretto.loops.types import typed_tree as t
from stretto.loops.types.body import Body
from stretto.loops.types.statements import every_step
from stretto.ranges import join_ranges
from stretto.schedule.orders.order import Ints
from stretto.schedule.orders.rotation import independent

if TYPE_CHECKING:
    from stretto.runtime.blocks.crew import Crew
    from stretto.runtime.runtimes import Runtime

_OWN = ("sizes", "starts", "first_", "base", "ptr_", "total", "elements", "fill")


@dataclass(frozen=True, eq=False)
class AccessTrace:
    """The elements that iterations access, in the order of the visits. Elements have numbers across all arrays.

    Of an array that is listed by rows, a row counts as one element.
    """

    arrays: tuple[str, ...]  # names
    starts: Ints  # [A + 1] the elements of arrays[k] have numbers starts[k] to starts[k + 1]
    ptr: Ints  # [N + 1] iteration n, counted across all visits, has keys[ptr[n]] to keys[ptr[n + 1]]
    keys: Ints  # [K] twice the number of the element, plus one if it is written
    bounds: Ints  # [V + 1] where the keys of each visit begin
    visit_ptr: Ints = field(repr=False)  # [V + 1] where each visit begins in `visit_elements`
    visit_elements: Ints = field(repr=False)  # elements of each visit, sorted, without duplicates
    lengths: Ints = field(
        default_factory=lambda: np.ones(0, np.int64)
    )  # [A] numbers in an element: 1, or those of a row

    def of(self, array: str) -> tuple[Ints, Ints]:
        """(ptr [V + 1], elements): the elements of one array that each visit accesses, as sorted flat indices."""
        if array not in self.arrays:
            raise PlanError(f"nothing is recorded of {array}; there are {', '.join(self.arrays) or 'no arrays'}")
        k = self.arrays.index(array)
        mine = (self.visit_elements >= self.starts[k]) & (self.visit_elements < self.starts[k + 1])
        before = np.concatenate([[0], np.cumsum(mine)])
        return before[self.visit_ptr].astype(np.int64), self.visit_elements[mine] - self.starts[k]

    def owner(self, element: int) -> tuple[str, int]:
        """The array of an element, and its flat index in the array."""
        k = int(np.searchsorted(self.starts, element, side="right")) - 1
        return self.arrays[k], element - int(self.starts[k])


class TooManyAccesses(PlanError):
    """A loop makes more accesses than are to be listed."""


class Prefetch:
    """Lists the elements that a loop accesses. arrays: which arrays; modes: 'read', 'write', 'buffer'.

    rows: whether to list an array by rows if only whole rows of it are accessed.
    """

    def __init__(
        self,
        analysis: Analysis,
        visits: LoopVisits,
        held: BoundValues,
        known: Mapping[str, Any],
        *,
        arrays: Iterable[str] | None = None,
        modes: tuple[str, ...] = ("read",),
        loosely: bool = False,
        rows: bool = False,
        runtime: Runtime | None = None,
        kept: dict[Any, Any] | None = None,
    ) -> None:
        self.analysis, self.visits, self.held, self.known = analysis, visits, held, dict(known)
        self.runtime, self.modes, self.loosely, self.rows = runtime, modes, loosely, rows
        self.arrays = tuple(sorted(random_arrays(analysis, held) if arrays is None else arrays))
        unknown = [name for name in self.arrays if name not in held.arrays]
        if unknown:
            raise PlanError(f"prefetch: the loop has no array {unknown[0]}; there are {', '.join(held.arrays)}")
        self._kept: dict[Any, Any] = {} if kept is None else kept

    @cached_property
    def sliced(self) -> PrefetchSlice:
        """The sliced body."""
        return slice_body(
            self.analysis.body, self.arrays, modes=self.modes, behind=behind(self.held), loosely=self.loosely
        )

    @cached_property
    def by_rows(self) -> frozenset[str]:
        """Arrays that are listed by rows."""
        if not self.rows:
            return frozenset()
        parts = {
            step.buffer.partition(" ")[2] for step in every_step(self.sliced.body.steps)
            if isinstance(step, t.BufferAdd) and not self._whole_row(step)
        }  # fmt: skip
        return frozenset(self.arrays) - parts

    def _whole_row(self, x: t.BufferAdd) -> bool:
        """Whether a record is of a whole row."""
        name = x.buffer.partition(" ")[2]
        shape = self.held.arrays[name].shape
        whole = x.value in (t.Const(t.INT, shape[-1]), t.AxisSize(t.INT, name, len(shape) - 1))
        return whole and shape[-1] > 1 and x.index[-1] == t.Const(t.INT, 0)

    @property
    def relied(self) -> Assumptions:
        """The current values that the list depends on, besides the data."""
        now = {**self.held.numbers, **self.known}
        return Assumptions(
            {name: now[name] for name in self.sliced.numbers},
            {name: self.held.arrays[name].copy() for name in self.sliced.reads},
        )

    def describe(self) -> list[str]:
        """Which accesses are listed ahead and which are not, a line each."""
        lines = [f"line {kept.line}: {kept.text} is {_DONE[kept.mode]}, listed ahead" for kept in self.sliced.recorded]
        lines += [
            f"line {out.line}: {out.text} is {_DONE[out.mode]}, not listed: {out.why}" for out in self.sliced.left_out
        ]
        return lines or [f"nothing to list: {', '.join(self.arrays) or 'no array'} is not {_DONE[self.modes[0]]}"]

    def elements(self, crew: Crew | None = None) -> AccessTrace:
        """The elements; cached while nothing they depend on changes."""
        key = (self.arrays, self.modes, self.loosely)
        kept = self._kept.get(key)
        if kept is None or not kept[0].holds(self.held, self.known):
            kept = self._kept[key] = (self.relied, self.record(crew))
        found: AccessTrace = kept[1]
        return found

    def record(self, crew: Crew | None = None, *, visits: bool = True, most: int | None = None) -> AccessTrace:
        """List the elements now.

        Parameters
        ----------
        visits : bool
            Whether to list also those of whole visits, not only of iterations.
        most : int or None
            Accesses to list at most; more of them raise `TooManyAccesses`.
        """
        if crew is not None:
            return self._record(crew, visits, most)
        from stretto.runtime.chosen import here as local

        here = local(self.runtime)
        with here.open() as opened:
            return self._record(opened, visits, most)

    # ---

    @cached_property
    def _compiled(self) -> tuple[tuple[tuple[str, str], ...], Any]:
        from stretto.kernels.core import generated

        where = f"{self.analysis.function.name}, line {self.analysis.loop.line}: what it touches"
        axes = {name: self.held.arrays[name].ndim for name in self.arrays}
        source, arguments, users = lowered(self.sliced.body, self.visits, axes, where, self.by_rows)
        made = generated.load(source, users, [digest(user) for user in users])
        return arguments, made["record_worker"]

    def _record(self, crew: Crew, whole: bool, most: int | None) -> AccessTrace:
        from stretto.runtime.blocks.step import BlockStep

        from .aliasing import contiguous

        shapes = [self.held.arrays[name].shape for name in self.arrays]
        by_rows = [name in self.by_rows for name in self.arrays]
        units = [shape[:-1] if rows else shape for shape, rows in zip(shapes, by_rows, strict=True)]
        starts = np.cumsum([0, *(int(np.prod(unit, dtype=np.int64)) for unit in units)]).astype(np.int64)
        lengths = np.array([shape[-1] if rows else 1 for shape, rows in zip(shapes, by_rows, strict=True)], np.int64)
        first = np.concatenate([[0], np.cumsum(iterations_in(self.visits))]).astype(np.int64)
        visits = len(self.visits)
        ptr = np.zeros(int(first[-1]) + 1, np.int64)
        total = np.zeros(visits, np.int64)
        arrays, _ = contiguous({name: self.held.arrays[name] for name in self.sliced.arrays})
        numbers = {**self.held.numbers, **self.known}
        scratch: dict[str, Any] = {
            "sizes": np.array([size for shape in shapes for size in shape] or [0], np.int64),
            "starts": starts, "first_": first, "base": np.zeros(visits, np.int64), "ptr_": ptr, "total": total,
            "elements": np.zeros(0, np.int64), "fill": False,
        }  # fmt: skip
        arguments, kernel = self._compiled

        def value(what: str, name: str) -> Any:
            if not name and what in scratch:
                return scratch[what]
            if what in ("array", "number"):
                return arrays[name] if what == "array" else numbers[name]
            return self.visits.arrays[what, name]

        ids, order, weight = np.arange(visits, dtype=np.int64), independent(visits), self.visits.weight
        bounds = np.zeros(visits + 1, np.int64)
        for fill in (False, True):
            if fill:
                np.cumsum(total, out=bounds[1:])
                if most is not None and bounds[-1] > most:
                    raise TooManyAccesses(f"the loop makes {int(bounds[-1]):,} accesses; list {most:,} at most")
                scratch |= {"fill": True, "base": bounds[:-1].copy(), "elements": np.empty(int(bounds[-1]), np.int64)}
            args = tuple(value(what, name) for what, name in arguments)
            crew.run(BlockStep("list", kernel, order, weight, (ids, *args), np.zeros(visits)), "exact")
        ptr[-1] = bounds[-1]
        keys: Ints = scratch["elements"]
        none = np.zeros(visits + 1, np.int64), np.zeros(0, np.int64)
        found = distinct(bounds, keys, int(starts[-1]), crew) if whole else none
        return AccessTrace(self.arrays, starts, ptr, keys, bounds, *found, lengths)


def distinct(bounds: Ints, keys: Ints, elements: int, crew: Crew) -> tuple[Ints, Ints]:
    """(ptr [V + 1], elements): the elements of each visit, sorted and without duplicates."""
    from stretto.kernels.rounds.colouring import distinct_worker
    from stretto.runtime.blocks.step import BlockStep

    visits = len(bounds) - 1
    marks = np.zeros((crew.workers, elements), np.uint8)
    kept, count = np.empty(len(keys), np.int64), np.zeros(visits, np.int64)
    args = (bounds, keys, marks, kept, count)
    crew.run(
        BlockStep("distinct", distinct_worker, independent(visits), np.diff(bounds), args, np.zeros(visits)), "exact"
    )
    entries, ptr = join_ranges(bounds[:-1], count)
    return ptr, kept[entries]


_DONE = {"read": "read", "write": "written", "buffer": "added to"}


def behind(held: BoundValues) -> dict[str, tuple[str, ...]]:
    """The arrays that each buffer changes, its target first."""
    return {name: (info.target, *info.helpers) for name, info in held.infos.items() if isinstance(info, BufferInfo)}


def random_arrays(analysis: Analysis, held: BoundValues) -> frozenset[str]:
    """Arrays read with subscripts known only at run time; if there are none, all arrays that are read and written."""
    read = [access for access in analysis.accesses if access.reads and access.array in held.arrays]
    found = {access.array for access in read if any(s.kind == "any" for s in access.subscripts)}
    changed = mutable(analysis.body, behind(held))
    return frozenset(found & changed or found or {access.array for access in read} & changed)


def iterations_in(visits: LoopVisits) -> Ints:
    """[V] upper bound of the iterations of each visit; exact except for skewed grids."""
    arrays = visits.arrays
    if ("ptr", "") in arrays:
        return np.diff(arrays["ptr", ""]).astype(np.int64)
    if visits.form.kind == "skewed":
        return visits.weight.astype(np.int64)
    steps = np.array(visits.form.steps or (1,), np.int64)
    span = np.maximum(0, -(-(arrays["hi", ""] - arrays["lo", ""]) // steps))
    found: Ints = np.prod(span, axis=1, dtype=np.int64)
    return found


# --- the compiled form ----------------------------------------------------------------------------------------------


class _Records(Buffers):
    """Replaces buffers: an addition to a buffer becomes a record in the list."""

    def __init__(self, sheet: SourceBuilder, body: Body, axes: Mapping[str, int], rows: frozenset[str]) -> None:
        super().__init__(sheet, body, {}, {})
        self.rows = rows
        self.number = {name: k for k, name in enumerate(axes)}
        self.axes = dict(
            zip(axes, itertools.accumulate(axes.values(), initial=0), strict=False)
        )  # positions in `sizes`

    def arguments(self) -> list[tuple[str, str]]:
        return [(name, "") for name in _OWN]

    def add(self, x: t.BufferAdd) -> None:
        mode, _, array = x.buffer.partition(" ")
        writer, sheet, axes = self.writer, self.sheet, self.axes[array]
        if array in self.rows:
            x = replace(x, index=x.index[:-1], checked=x.checked[:-1], value=t.Const(t.INT, 1))
        assert not t.is_row(x.value)
        if any(x.checked):
            sheet.write("bad[0] = 0")
        length = writer.named(writer.scalar(x.value))
        place = "" if x.index else "0"
        for axis, (k, check) in enumerate(zip(x.index, x.checked, strict=True)):
            text, size = writer.scalar(k), f"sizes[{axes + axis}]"
            if check:
                site = sheet.site(x.line, array, axis)
                last = axis == len(x.index) - 1 and array not in self.rows
                text = f"span({text}, {length}, {size}, bad, {site})" if last else f"at({text}, {size}, bad, {site})"
            place = f"({place}) * {size} + {text}" if place else text
        at, q = writer.named(place), sheet.new()
        if any(x.checked):
            sheet.write("if bad[0] == 0:")
            sheet.depth += 1
        sheet.write("if fill:")
        sheet.write(f"    for {q} in range({length}):")
        key = f"((starts[{self.number[array]}] + {at} + {q}) << 1) + {int(mode != 'read')}"
        sheet.write(f"        elements[here + {q}] = {key}")
        sheet.write(f"here += {length}")
        if any(x.checked):
            sheet.depth -= 1


def lowered(
    body: Body, visits: LoopVisits, axes: Mapping[str, int], where: str, rows: frozenset[str] = frozenset()
) -> tuple[str, tuple[tuple[str, str], ...], tuple[Any, ...]]:
    """(source, arguments, the user's functions) of a body of records.

    axes: of the arrays that are recorded; rows: those that are recorded by rows.
    """
    sheet = SourceBuilder()
    records = _Records(sheet, body, axes, rows)
    writer = StatementWriter(sheet, body, {}, records)
    arguments = arguments_of(body, visits.form, records)
    names = ", ".join(parameter(what, name) for what, name in arguments)
    sheet.write(f"def record_worker(pass_, worker, out, ids, {names}):")
    sheet.depth = 1
    claim_visits(sheet, body, writer)
    sheet.write("n = first_[g]")
    sheet.write("here = base[g]")
    iterate(sheet, body, visits.form)
    sheet.write("bad[0] = 0")  # the loop itself reports subscripts out of range
    sheet.write("ptr_[n] = here")
    sheet.write("n += 1")
    writer.block(body.steps)
    sheet.depth = 2
    sheet.write("while n < first_[g + 1]:")
    sheet.write("    ptr_[n] = here")
    sheet.write("    n += 1")
    sheet.write("total[g] = here - base[g]")
    sheet.write("v = next_visit(pass_, worker, v)")
    return source_of(sheet, where), tuple(arguments), tuple(sheet.users)
