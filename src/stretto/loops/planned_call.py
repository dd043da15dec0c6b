"""`PlannedCall`: the loops of one call of an `st.parallel` function, with one `Plan` for each."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable
from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from stretto.cached import cached_property
from stretto.plan.arrays import Array, Ranges, StepSpec
from stretto.plan.cost import Cost
from stretto.plan.kernel_reference import KernelReference
from stretto.plan.plan import GRADES, Logical, Physical, Plan
from stretto.plan.planned import BasePlan
from stretto.runtime.chosen import name_of, runtime_words

from .analyse.strategy.cut_names import cut_names
from .execute.prefetcher import Prefetch
from .execute.prepared import PreparedLoop
from .front import loop_tree
from .front.bind import BoundValues
from .front.user_functions import digest

if TYPE_CHECKING:
    from stretto.runtime.runtimes import Runtime

_NONE = np.zeros(0, np.int64)


class PlannedFunction(Protocol):
    """What a plan uses of the `Loop` that made it."""

    plain: Callable[..., Any]

    @property
    def tree(self) -> loop_tree.Function:
        """The function's loop tree."""
        ...

    def run_plan(self, made: Any, runtime: Any = None) -> None:
        """Call the loop by a plan."""
        ...


@dataclass(frozen=True, eq=False)
class PlannedLoop:
    """One loop of the function, ready to run, and the numbers computed before it."""

    prepared: PreparedLoop
    known: dict[str, Any]


@dataclass(frozen=True, eq=False, repr=False)
class PlannedCall(BasePlan):
    """The part of a `LoopPlan` that its explanation and its schedules read."""

    loop: PlannedFunction
    held: BoundValues
    parts: tuple[PlannedLoop, ...]
    runtime: Runtime
    arguments: tuple[tuple[Any, ...], dict[str, Any]] | None = None  # of the call, as they were given

    @property
    def title(self) -> str:
        """The plan in a few words, without its fingerprint."""
        names = ", ".join(part.prepared.analysis.strategy.name for part in self.parts)
        return f"{self.loop.plain.__name__}, {names}, {self.grade}, {runtime_words(self.runtime)}"

    @property
    def settings(self) -> dict[str, Any]:
        """What the fingerprint is made of, by name."""
        if len(self.plans) == 1:
            return self.plans[0].settings
        return {f"{name} of loop {k}": value for k, p in enumerate(self.plans) for name, value in p.settings.items()}

    @property
    def grade(self) -> str:
        """The weakest grade of the loops."""
        return max((plan.grade for plan in self.plans), key=GRADES.index, default="identical")

    @property
    def cost(self) -> Cost:
        """What the loops cost together."""
        costs = [plan.cost for plan in self.plans]
        return (
            Cost(*(sum(values) for values in zip(*map(astuple, costs), strict=True))) if costs else Cost(0, 0, 0, 0, 0)
        )

    @cached_property
    def plans(self) -> tuple[Plan, ...]:
        """One plan for each loop."""
        return tuple(plan_of(part, self.held, self.runtime) for part in self.parts)

    @property
    def fingerprint(self) -> str:
        """A short hash of everything that can change a number."""
        if len(self.plans) == 1:
            return self.plans[0].fingerprint
        return hashlib.sha256("".join(plan.fingerprint for plan in self.plans).encode()).hexdigest()[:16]

    def draw(self, path: str | None = None, workers: int | None = None, loop: int = 0) -> str:
        """The schedule of one of the loops as SVG text.

        Parameters
        ----------
        path : str or None, default None
            File to write it to (.svg or .png).
        workers : int or None, default None
            Workers to colour by; None for those of the plan.
        loop : int, default 0
            Number of the loop.
        """
        return self.plans[loop].draw(path, workers)

    def prefetch(self, loop: int = 0, arrays: Iterable[str] | None = None) -> Prefetch:
        """The function that lists in advance which elements each visit reads.

        Parameters
        ----------
        loop : int, default 0
            Number of the loop.
        arrays : iterable of str or None, default None
            Names of arrays; None for those whose subscripts are known only at run time.
        """
        part = self.parts[loop]
        prepared = part.prepared
        prepared.visits.check_known()
        return Prefetch(prepared.analysis, prepared.visits, self.held, part.known, arrays=arrays,
                        runtime=self.runtime, kept=prepared.ahead)  # fmt: skip


def plan_of(part: PlannedLoop, held: BoundValues, runtime: Runtime) -> Plan:
    """The frozen plan of one loop."""
    analysis, visits = part.prepared.analysis, part.prepared.visits
    names = cut_names(analysis)
    axes = {name: axis for axis, name in zip(("rows", "cols"), names, strict=False)}
    arrays = []
    for name, placement, _ in analysis.placements:
        array, axis = held.arrays.get(name), axes.get(_follows(part, name), "")
        known = {"dtype": "<f8"} if array is None else {"dtype": array.dtype, "shape": array.shape}
        ranges, written = Ranges(axis, _NONE, _NONE) if axis else None, name in analysis.written
        arrays.append(Array(name, "cut" if axis else "replicated", placement, ranges, written, **known))
    options = analysis.options
    parameters = (
        ("strategy", analysis.strategy.name),
        ("cut", ", ".join(_cut_indices(part)) or "records"),
        ("waves", len(visits.waves)),
        ("source", part.prepared.lowered.identity),
        *(() if options.schedule is None else (("schedule", repr(options.schedule)), ("watch", options.watch))),
        *(() if options.objective is None else (("objective", digest(options.objective)),)),
    )
    logical = Logical(
        f"loop/{analysis.function.name}:{analysis.loop.line}",
        parameters,
        _digest(part),
        options.seed,
        options.profile,
        options.width,
        visits.order,
        visits.rows,
        visits.cols,
    )
    entry_bytes = sum(int(array.nbytes) for array in visits.arrays.values())
    state_bytes = sum(array.nbytes for array in arrays)
    moved = sum(array.nbytes for array in arrays if array.placement != "owned") * max(1, len(visits.waves))
    cost = Cost(len(analysis.space), entry_bytes, state_bytes, moved, 0)
    steps = StepSpec(analysis.function.name, KernelReference("", "visit_worker"), tuple(arrays))
    physical = Physical(name_of(runtime), runtime.workers)
    return Plan(logical, (steps,), visits.weight, cost, physical, waves=visits.waves, axes=(*names, "", "")[:2])


def _cut_indices(part: PlannedLoop) -> tuple[str, ...]:
    analysis = part.prepared.analysis
    return tuple(analysis.space.dims[dim].name for dim in analysis.strategy.dims)


def _follows(part: PlannedLoop, array: str) -> str:
    """The cut index along which an array is partitioned; '' if none."""
    analysis = part.prepared.analysis
    for access in analysis.accesses:
        if access.array == array and access.subscripts and access.subscripts[0].kind == "index":
            return analysis.space.dims[access.subscripts[0].dim].name
    return ""


def _digest(part: PlannedLoop) -> str:
    """A hash of the iteration space and of everything the records hold."""
    space = part.prepared.analysis.space
    head = [space.kind, [(dim.name, dim.start, dim.stop, dim.step) for dim in space.dims]]
    found = hashlib.sha256(json.dumps(head).encode())
    if space.records is not None:
        for array in space.records.index:
            found.update(np.ascontiguousarray(array).tobytes())
        for _, column in space.fields:
            found.update(np.ascontiguousarray(column.values).tobytes())
        for _, ragged in space.ragged:
            for array in (ragged.ptr, *ragged.parts):
                found.update(np.ascontiguousarray(array).tobytes())
    return found.hexdigest()[:32]
