"""Plan a training step: trace it, lift it to storages, estimate its costs, and search a program within the budget."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from stretto.text import show_bytes

from .addresses.place_plan import make_placed
from .capture.lift import BUCKET, lift
from .capture.lifted import UPDATES, LiftedStep, OptimizerUpdate
from .capture.read_values import ValueReads
from .capture.side_effects import CannotCapture
from .capture.trace_step import TracedStep, trace
from .chunk.chunks import ALL as ALL_OPERATIONS
from .chunk.chunks import LOSSES, Chunks
from .chunk.chunks import cut as cut_operations
from .measure.costs import CALLED, REPLAYED, costed
from .measure.meter import CostCache
from .measure.meter import link as measured_link
from .measure.update_memory import UpdateMemory
from .operations.dropouts import cut_dropouts
from .operations.fuse import ALL, BACKWARD, NONE, fused
from .options import StepOptions, StepSource
from .planner.graph import Graph
from .planner.planner import Infeasible, PlannedProgram, PlannerSettings, make
from .planner.program import HostLink
from .run.optimizers import state_bytes, update_chunk_bytes

_SLOW = 0.1  # a plan is slow if it waits or recomputes for this share of the step
_LARGE = 8  # state of parameters larger than the budget divided by this may stay on the host
_DEFAULTS = StepOptions()


@dataclass(frozen=True, eq=False)
class CapturedStep:
    """A training step as operations and storages, before it is planned."""

    traced: TracedStep  # its operations, with chunks and fused chains
    lifted: LiftedStep  # the same operations as a graph of storages
    notes: list[str] = field(default_factory=list)  # what was changed, for the report
    plain: TracedStep | None = None  # its operations as they were traced, without those changes


def capture(source: StepSource, budget: int, options: StepOptions = _DEFAULTS, *, tight: int = 0) -> CapturedStep:
    """Trace a step and lift it to storages.

    Parameters
    ----------
    source : StepSource
        The step function and what it uses.
    budget : int
        Bytes on the device. They limit how many small parameters are updated together.
    options : StepOptions
        `chunks`, `compile` and `record` are used. If a step is recorded, its batch has a fixed address.
    tight : int
        How much to cut with chunks="auto", see `chunk.chunks.cut`.
    """
    plain = trace(source.function, source.modules, source.optimizers, source.batch, source.device)
    traced, notes = cut_operations(plain, options.chunks, budget, tight=tight)
    chains = ALL if options.compile else NONE
    held = source.batch_on_device
    return lift_traced(traced, notes, chains, source.optimizers, budget, batch_held=held, record=options.record)


def lift_traced(
    traced: TracedStep,
    notes: list[str],
    chains: str,
    optimizers: Sequence[torch.optim.Optimizer],
    budget: int,
    *,
    batch_held: bool,
    record: bool,
    stream_above: int = 0,
    rounding: bool = False,
) -> CapturedStep:
    """Fuse chains of a traced step, and lift it to storages.

    Parameters
    ----------
    chains : str
        Which chains are fused, see `operations.fuse.fused`.
    batch_held : bool
        Whether the caller holds the batch on the device.
    record : bool
        Whether the step will be recorded.
    stream_above, rounding
        See `capture.lift.lift`.
    """
    traced, more = fused(traced, chains)
    parameters = traced.watched.parameters
    # A bucket no larger than the largest parameter: the update of that one takes as much memory anyway.
    largest = max((p.numel() * p.element_size() for p in parameters), default=0)
    try:
        lifted = lift(
            traced,
            _states_kept(parameters, optimizers),
            min(BUCKET, budget // 128, largest),
            chunk_bytes=[update_chunk_bytes(one, budget) for one in optimizers],
            batch_held=batch_held or record,
            stream_above=stream_above,
            rounding=rounding,
        )
        lifted.graph.check()
    except CannotCapture:
        raise
    except (AttributeError, KeyError, NotImplementedError, TypeError, ValueError) as error:
        raise CannotCapture(f"an operation of the step is not understood: {type(error).__name__}: {error}") from error
    if batch_held and record:  # the caller's batch, and the buffer with a fixed address that it is copied to
        lifted.other_bytes = {kind: 2 * nbytes for kind, nbytes in lifted.other_bytes.items()}
    return CapturedStep(traced, lifted, notes + more)


def _states_kept(
    parameters: Sequence[nn.Parameter], optimizers: Sequence[torch.optim.Optimizer]
) -> Callable[[int, int], dict[str, int]]:
    """A function of optimizer and parameter that returns {name: bytes} of the optimizer's state for the parameter.

    Parameters with the same shape and dtype are tried once.
    """
    known: dict[Any, dict[str, int]] = {}

    def kept(optimizer: int, number: int) -> dict[str, int]:
        p = parameters[number]
        key = (optimizer, p.shape, p.dtype) if not optimizers[optimizer].state.get(p) else (optimizer, number)
        if key not in known:
            known[key] = state_bytes(optimizers[optimizer], p)
        return known[key]

    return kept


_Candidate = tuple[CapturedStep, Graph, PlannedProgram]


def planned(
    source: StepSource,
    settings: PlannerSettings,
    options: StepOptions = _DEFAULTS,
    *,
    budget: int | None = None,
    others: int = 0,
    traced: TracedStep | None = None,
    updates: UpdateMemory | None = None,
    reads: ValueReads | None = None,
) -> tuple[CapturedStep, Graph, PlannedProgram]:
    """Trace a step and plan it. With chunks="auto", plan it in chunks if there is no plan otherwise.

    Parameters
    ----------
    source : StepSource
        The step function and what it uses.
    settings : PlannerSettings
        The budget to plan for, and what the planner may do.
    options : StepOptions
        `rates`, `chunks`, `compile` and `record` are used.
    budget : int, optional
        The budget that the user gave, if `settings.budget` is smaller.
    others : int
        Bytes on the device that the step does not own, such as workspaces of libraries.
    traced : TracedStep, optional
        The step, if it was traced before.
    updates : UpdateMemory, optional
        Measured workspaces of optimizer updates.
    reads : ValueReads, optional
        Values that the step reads into Python, as far as they are known. Without it a step that reads any is refused.

    Returns
    -------
    captured : CapturedStep
    graph : Graph
        The graph of the step with its costs.
    plan : PlannedProgram

    Raises
    ------
    Infeasible
        If no plan fits the budget.
    CannotCapture
        If the step cannot be traced.
    """
    device = source.device
    if device.type == "cuda" and settings.link == HostLink():
        settings = replace(settings, link=measured_link(device, CostCache.of(torch.cuda.get_device_name(device))))
    plain = traced or trace(source.function, source.modules, source.optimizers, source.batch, device, reads)
    if plain.reads.conditions:  # CUDA graphs cannot stop at a condition
        options = replace(options, record=False)
    search = _VariantSearch(plain, source, settings, options, budget or settings.budget, others, updates)
    return search.run()


class _VariantSearch:
    """Plans variants of a traced step (chunks, fused chains, split dropouts, state on the host) and keeps the fastest.

    Parameters
    ----------
    plain : TracedStep
        The step as it was traced.
    whole : int
        The budget that the user gave.
    others, updates
        As for `planned`.
    """

    def __init__(
        self,
        plain: TracedStep,
        source: StepSource,
        settings: PlannerSettings,
        options: StepOptions,
        whole: int,
        others: int,
        updates: UpdateMemory | None,
    ) -> None:
        self.plain, self.source, self.settings, self.options = plain, source, settings, options
        self.whole, self.others, self.updates = whole, others, updates
        self.movable = _with_gradients([*tensors_of(source.modules), *states_of(source.optimizers)])
        self.best: _Candidate | None = None  # the fastest plan so far
        self.refused: Infeasible | None = None  # the refusal with the smallest budget so far

    def run(self) -> _Candidate:
        """The first plan that is not slow; otherwise the fastest one."""
        for stream_above in self._stream_thresholds():
            found = self._try_chunks(stream_above)
            if found is not None:
                return found
            if self.best is not None or self._host_binds():
                break
        if self.best is not None:
            return self.best
        assert self.refused is not None
        raise self.refused

    def _stream_thresholds(self) -> tuple[int, ...]:
        """Sizes from which on optimizer state stays on the host; 0: for no parameter."""
        large = self.whole // _LARGE
        allowed = self.settings.swap and self.settings.place
        if allowed and any(p.numel() * p.element_size() > large for p in self.plain.watched.parameters):
            return 0, large
        return (0,)

    def _try_chunks(self, stream_above: int) -> _Candidate | None:
        """Plan the step with more and more operations in chunks. Returns the first plan that is not slow."""
        chunks, tried = self.options.chunks, list[list[str]]()
        for tight in (0, LOSSES, ALL_OPERATIONS) if chunks == "auto" else (0,):
            traced, notes = cut_operations(self.plain, chunks, self.whole, tight=tight)
            if notes in tried:
                continue
            tried.append(notes)
            for chains in (ALL, BACKWARD, NONE) if self.options.compile else (NONE,):
                found = self._attempt(traced, notes, chains, stream_above)
                # A fused chain is recomputed or copied as a whole, so the step may be faster without fusing.
                if found is not None and not _slow(found):
                    return found
            if self.best is None or _slow(self.best):
                split, count = cut_dropouts(traced)
                if count:
                    more = [*notes, f"{count} dropouts are recomputed from their masks"]
                    self._attempt(split, more, NONE, stream_above)
            # A loss in chunks leaves more bytes for the rest. So it may be faster, even where a plan was found.
            if self.best is not None and (tight or self._waits_little(self.best)):
                break
            if self._host_binds():
                break
        return None

    def _attempt(self, traced: TracedStep, notes: list[str], chains: str, stream_above: int) -> _Candidate | None:
        """Plan one variant. Keeps it if it is the fastest; keeps the refusal if it has no plan."""
        captured, graph = self._cost(traced, notes, chains, stream_above)
        try:
            left = remaining_budget(self.settings, captured.lifted)
            plan = make_placed(graph, left) if self.source.device.type == "cuda" else make(graph, left)
        except Infeasible as error:
            error = error.with_other_memory(captured.lifted.other_bytes, self.settings.budget)
            error = _with_advice(error, self.options.chunks, captured.notes)
            if self.refused is None or error.side != "device" or error.smallest < self.refused.smallest:
                self.refused = error
            return None
        plan.notes.extend(captured.notes)
        plan = replace(plan, costs=replace(plan.costs, host=plan.costs.host + captured.lifted.streamed))
        found = captured, graph, plan
        if self.best is None or plan.costs.seconds < self.best[2].costs.seconds:
            self.best = found
        return found

    def _cost(self, traced: TracedStep, notes: list[str], chains: str, stream_above: int) -> tuple[CapturedStep, Graph]:
        """Lift one variant to storages and estimate what its operations cost."""
        source, record = self.source, self.options.record
        captured = lift_traced(
            traced,
            notes,
            chains,
            source.optimizers,
            self.whole,
            batch_held=source.batch_on_device,
            record=record,
            stream_above=stream_above,
            rounding=self.options.chunks == "auto",
        )
        lifted = captured.lifted
        captured = replace(captured, plain=self.plain, notes=[*captured.notes, *_streaming_notes(lifted)])
        constants = bytes_on(lifted.constants.values(), source.device)
        lifted.other_bytes["others on the device"] = max(0, self.others - constants)
        graph = costed(
            lifted,
            source.device,
            self.options.rates,
            call=REPLAYED if record else CALLED,
            movable=self.movable,
            updating=None if self.updates is None else partial(self.updates.bytes, self.plain.watched.parameters),
        )
        if record or source.device.type == "cuda":
            graph, lifted.other_bytes[UPDATES] = without_update_workspaces(graph)
        return captured, graph

    def _host_binds(self) -> bool:
        """Whether a variant was refused for its bytes on the host, which chunks do not reduce."""
        return self.refused is not None and self.refused.side != "device"

    @staticmethod
    def _waits_little(found: _Candidate) -> bool:
        return found[2].costs.waited < _SLOW * found[2].costs.seconds


def _streaming_notes(lifted: LiftedStep) -> list[str]:
    """What a report says about optimizer state that stays on the host."""
    updates = [run for run in lifted.runs if isinstance(run, OptimizerUpdate)]
    found, in_rows = [run for run in updates if run.streamed], sum(run.gradient is not None for run in updates)
    large = f"{len(found)} large parameters ({show_bytes(lifted.streamed)})"
    notes = [f"optimizer state of {large} stays on the host, updated in rows"] if found else []
    return notes + ([f"gradients of {in_rows} tables are computed and used in rows"] if in_rows else [])


def _slow(found: _Candidate) -> bool:
    """Whether a plan waits or recomputes for much of the step."""
    costs = found[2].costs
    return costs.waited + costs.repeated >= _SLOW * costs.seconds


def _with_advice(refused: Infeasible, chunks: Chunks, notes: list[str]) -> Infeasible:
    """Add to a refusal what was changed in the step, and whether chunks may help."""
    if chunks is None and ("log_softmax" in refused.node or "nll_loss" in refused.node):
        refused.add_note('the loss needs the most memory: chunks="auto" computes it in chunks')
    elif chunks is None and refused.side == "device":
        refused.add_note('chunks="auto" computes operations that are too large in chunks')
    for note in notes:
        refused.add_note(note)
    return refused


def without_update_workspaces(graph: Graph) -> tuple[Graph, int]:
    """The graph without the workspaces of optimizer updates, and the largest of these workspaces in bytes.

    Updates allocate outside the arena and outside a recording, so their workspaces are counted separately.
    """
    most = max((node.workspace for node in graph.nodes if node.phase == "update"), default=0)
    nodes = tuple(replace(node, workspace=0) if node.phase == "update" else node for node in graph.nodes)
    return replace(graph, nodes=nodes), most


def remaining_budget(settings: PlannerSettings, lifted: LiftedStep) -> PlannerSettings:
    """The settings with budgets reduced by bytes that the planner does not see: `other_bytes` of the device, and
    optimizer state that stays on the host."""
    host = settings.host_budget
    if host is not None:
        if lifted.streamed > host:
            raise Infeasible(host, lifted.streamed, "host", "state that stays on the host", {})
        host -= lifted.streamed
    return replace(settings, budget=max(1, settings.budget - lifted.borrowed), host_budget=host)


def tensors_of(modules: Sequence[nn.Module]) -> list[torch.Tensor]:
    """All parameters and buffers of modules, each once."""
    found = [t for module in modules for t in (*module.parameters(), *module.buffers())]
    return list({id(t): t for t in found}.values())


def states_of(optimizers: Sequence[torch.optim.Optimizer]) -> list[torch.Tensor]:
    """All values in the state of optimizers."""
    return [x for one in optimizers for x in pytree.tree_leaves(list(one.state.values()))]


def _with_gradients(found: Iterable[Any]) -> list[torch.Tensor]:
    """The tensors among some objects, and their gradients."""
    tensors = [x for x in found if isinstance(x, torch.Tensor)]
    return tensors + [x.grad for x in tensors if x.is_leaf and x.grad is not None]


def bytes_on(found: Iterable[Any], device: torch.device) -> int:
    """Bytes of tensors, and of their gradients, that are on a device."""
    storages = [x.untyped_storage() for x in _with_gradients(found) if x.device == device]
    return sum({one.data_ptr(): one.nbytes() for one in storages}.values())
