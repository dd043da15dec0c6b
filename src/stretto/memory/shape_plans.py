"""Plans of a step for batches: one for each shape, and for values and branches that the step depends on."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.utils import _pytree as pytree

from stretto.memory import planning
from stretto.memory.capture.batch_numbers import BatchNumbers, is_number
from stretto.memory.capture.read_values import ValueReads
from stretto.memory.capture.side_effects import CannotCapture
from stretto.memory.capture.trace_step import TracedStep, trace
from stretto.memory.measure.update_memory import UpdateMemory
from stretto.memory.options import StepOptions, StepSource
from stretto.memory.planner.graph import Graph
from stretto.memory.planner.planner import PlannedProgram, PlannerSettings
from stretto.memory.planning import CapturedStep
from stretto.memory.report.report import Report
from stretto.memory.run.devices import Device
from stretto.memory.run.execute import Runner
from stretto.memory.run.graph_segments import Segment
from stretto.memory.run.replay_policy import recorded

_LOG = logging.getLogger("stretto.memory")
KEPT = 8  # shapes of batches whose plans are kept
_WATCHED = 4  # steps whose real peak is compared with the budget: the second has optimizer state, the third a recording


@dataclass(eq=False)
class ShapePlan:
    """The plan for one shape of batch."""

    shapes: Any  # shapes and dtypes of the batch (`shapes_of`)
    numbers: BatchNumbers  # Python numbers of the batch, and the conditions under which the plan holds
    captured: CapturedStep  # the step as traced
    planned: PlannedProgram  # its program
    report: Report  # the same for the user
    order: list[int]  # by node of the program's graph: its number in the trace
    segments: list[Segment] | None  # what is recorded; None if operations are called one by one
    runner: Runner | None = None  # the program as code; made when it first runs
    unwatched: int = _WATCHED  # steps whose peak is still to be compared with the budget


class ShapePlanner:
    """Makes the plans of one step.

    Parameters
    ----------
    source : StepSource
        The step function with the modules and optimizers that it uses.
    settings : PlannerSettings
        Budget and policy.
    device : Device
        Where it runs.
    options : StepOptions
        How it is planned and run.
    others : int
        Bytes on the device that do not belong to the step.
    updates : UpdateMemory or None
        What updates take beside the step's own storages, where that is measured.

    Attributes
    ----------
    budget : int
        The budget to plan for: smaller than requested once a step exceeded its plan.
    """

    def __init__(
        self,
        source: StepSource,
        settings: PlannerSettings,
        device: Device,
        options: StepOptions,
        others: int,
        updates: UpdateMemory | None,
    ) -> None:
        self._source, self._settings, self._device, self._options = source, settings, device, options
        self._function = source.function
        self._others, self._updates = others, updates
        self.budget = settings.budget
        self._warned = False
        self._warned_numbers: set[int] = set()  # numbers of the batch that were reported

    def made(self, batch: Any, known: ShapePlan | None = None, read: Sequence[Any] = ()) -> ShapePlan:
        """Plan for a batch like this. Nothing moves.

        Parameters
        ----------
        batch : object
            An example.
        known : ShapePlan, optional
            A plan for such batches whose trace can be used.
        read : sequence
            Values that the step reads first.
        """
        numbers = BatchNumbers(batch, self._device.torch) if known is None else known.numbers
        if known is not None:
            captured, graph, made = self._planned(self._function, batch, known.captured.plain)
        elif numbers.names:
            try:
                captured, graph, made = self._planned(numbers.traced(self._function), batch, read=read)
            except CannotCapture:  # perhaps because of the numbers
                captured, graph, made = self._planned(self._function, batch, read=read)
                numbers.constant()
        else:
            captured, graph, made = self._planned(self._function, batch, read=read)
        segments = None
        if self._options.record and not captured.traced.reads.conditions:
            made, segments = recorded(made, len(captured.traced.watched.parameters))
        places = {id(node): n for n, node in enumerate(graph.nodes)}
        order = [places[id(node)] for node in made.program.graph.nodes]
        return ShapePlan(shapes_of(batch), numbers, captured, made, Report(made, captured.lifted), order, segments)

    def _planned(
        self, function: Callable[[Any], Any], batch: Any, traced: TracedStep | None = None, read: Sequence[Any] = ()
    ) -> tuple[CapturedStep, Graph, PlannedProgram]:
        return planning.planned(
            replace(self._source, function=function, batch=batch),
            replace(self._settings, budget=self.budget),
            self._options,
            budget=self._settings.budget,
            others=self._others,
            traced=traced,
            updates=self._updates,
            reads=ValueReads(read),
        )

    def warn(self, numbers: BatchNumbers, values: Sequence[Any]) -> None:
        """Report, once, a number of the batch whose value a plan depends on."""
        unmet = numbers.unmet(values)
        assert unmet is not None
        names = " and ".join(numbers.names[k] for k in unmet.entries)
        at = f" ({unmet.line})" if unmet.line else ""
        if not unmet.exact:
            _LOG.info("making a plan for another outcome of a condition on %s%s", names, at)
        elif not self._warned_numbers.issuperset(unmet.entries):
            self._warned_numbers.update(unmet.entries)
            _LOG.warning(
                "%s: the step uses the value of this Python number%s, so every value needs a plan of its own, and "
                "%d plans are kept; if it only enters arithmetic, pass torch.tensor(value) instead",
                names,
                at,
                KEPT,
            )

    def holds(self, plan: ShapePlan, batch: Any) -> bool:
        """Whether a plan still holds; traces again if a Python number that the step can reach has changed.

        Such numbers are attributes, for example. The new trace shows whether the step reads the number, and whether its
        operations differ.
        """
        known = plan.captured.traced
        changed = known.numbers.changed()
        if not changed:
            return True
        numbers = BatchNumbers(batch, self._device.torch)
        function = numbers.traced(self._function) if numbers.names else self._function
        again = None
        with known.numbers.reading(changed) as looked_at, contextlib.suppress(CannotCapture):
            values = ValueReads(known.reads.values)
            again = trace(function, self._source.modules, self._source.optimizers, batch, self._device.torch, values)
        if not looked_at or (again is not None and _alike(again, known) and numbers.log == plan.numbers.log):
            return True
        if not self._warned:
            self._warned = True
            _LOG.warning(
                "%s has changed since the step was planned: the step is planned again, as for every such change; "
                "pass the number with the batch to avoid that",
                looked_at[0].label,
            )
        return False


def _alike(a: TracedStep, b: TracedStep) -> bool:
    """Whether two traces have the same operations, and compare what they read with the same numbers."""
    return a.operations == b.operations and a.reads.log == b.reads.log


def shapes_of(batch: Any) -> Any:
    """The key of a plan: shapes and dtypes of tensors, which entries are numbers, and everything else by value."""
    leaves, spec = pytree.tree_flatten(batch)
    return spec, tuple(map(_shape, leaves))


def _shape(leaf: Any) -> Any:
    if isinstance(leaf, torch.Tensor):
        return tuple(leaf.shape), leaf.dtype
    return (type(leaf), None) if is_number(leaf) else (type(leaf), leaf)


def numbers_of(batch: Any) -> list[Any]:
    """The Python numbers of a batch."""
    return [x for x in pytree.tree_leaves(batch) if is_number(x)]
