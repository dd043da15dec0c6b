"""`LoopPlan`: the plan of a call of an `st.parallel` function, with one `Plan` for each of its loops."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import astuple, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from stretto.cached import cached_property
from stretto.errors import PlanError
from stretto.plan.arrays import Array, Ranges, StepSpec
from stretto.plan.cost import Cost
from stretto.plan.kernel_reference import KernelReference
from stretto.plan.plan import GRADES, Logical, Physical, Plan
from stretto.plan.planned import BasePlan, Runner
from stretto.runtime.chosen import name_of, runtime_words

from .analyse.strategy import in_words
from .front.bind import BoundValues
from .front.user_functions import digest

if TYPE_CHECKING:
    from stretto.runtime.runtimes import Runtime

    from .analyse.analysis import Analysis
    from .execute.prefetcher import Prefetch
    from .execute.run import PreparedLoop
    from .parallel import Loop


_NONE = np.zeros(0, np.int64)


@dataclass(frozen=True, eq=False)
class PlannedLoop:
    """One loop of the function, ready to run, and the numbers computed before it."""

    prepared: PreparedLoop
    known: dict[str, Any]


@dataclass(frozen=True, eq=False, repr=False)
class LoopPlan(BasePlan):
    """The plan of a call of a parallel loop.

    Attributes
    ----------
    loop : Loop
        The loop.
    held : BoundValues
        The arguments, by kind.
    parts : tuple of PlannedLoop
        One for each loop of the function.
    runtime : runtime
        Where it will run.
    arguments : tuple or None
        Arguments of the call as they were given.
    runner : callable or None
        What `run` calls.
    title : str
        The plan in a few words, without its fingerprint.
    settings : dict
        What the fingerprint is made of, by name.
    grade : str
        The weakest grade of the loops.
    cost : Cost
        What the loops cost together.
    plans : tuple of Plan
        One plan for each loop.
    fingerprint : str
        A short hash of everything that can change a number.
    """

    loop: Loop
    held: BoundValues
    parts: tuple[PlannedLoop, ...]
    runtime: Runtime
    arguments: tuple[tuple[Any, ...], dict[str, Any]] | None = None  # of the call, as they were given

    @property
    def runner(self) -> Runner | None:  # type: ignore[override]
        """What `run` calls."""
        return None if self.arguments is None else partial(self.loop.run_plan, self)

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

    def explain(self) -> str:
        """Everything that was found and decided, in words."""
        from .explain import explain

        return explain(self)

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
        from .execute.prefetcher import Prefetch

        part = self.parts[loop]
        prepared = part.prepared
        prepared.visits.check_known()
        return Prefetch(prepared.analysis, prepared.visits, self.held, part.known, arrays=arrays,
                        runtime=self.runtime, kept=prepared.ahead)  # fmt: skip

    def order(self, data: Any, loop: int | None = None) -> Iterator[Any]:
        """The records of `data` in the order of the plan's visits: what a serial run of the undecorated function gets.

        Buffers are driven as the plan drives them: a visit sees the state as of the start of its wave.

        Parameters
        ----------
        data : object
            Data that a loop of the plan runs over.
        loop : int or None, default None
            Number of the loop; needed if several loops run over the data.
        """
        from .layout.plan_order import in_order

        known = self.held.data
        sources = [part.prepared.analysis.space.source for part in self.parts]
        fitting = [part for part, source in zip(self.parts, sources, strict=True) if source and known[source] is data]
        if not fitting:
            named = ", ".join(dict.fromkeys(source for source in sources if source))
            over = (
                f"its loops run over {named}; pass that" if named else "its loops run over ranges, as they are written"
            )
            raise PlanError(f"plan.order: none of the loops of this plan runs over these data; {over}")
        if len(fitting) > 1 and loop is None:
            raise PlanError("plan.order: several loops run over these data; say which with loop=0, 1, …")
        return in_order(fitting[loop or 0].prepared, self.held)


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


def cut_names(analysis: Analysis) -> tuple[str, ...]:
    """What is cut into blocks, along the rows and along the columns of the grid: i and j, or i and i + j."""
    strategy = analysis.strategy
    names = tuple(analysis.space.dims[dim].name for dim in strategy.dims)
    if strategy.transform:
        return tuple(in_words(row, names) for row in strategy.transform)
    return names or ("records",)


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
