"""From a step function to a plan: trace it, lift it to storages, cost it, and find a program within the budget."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from stretto.plan.cost import show_bytes

from .capture.lift import BUCKET, lift
from .capture.lifted import UPDATES, Lifted, Update
from .capture.read_values import Reads
from .capture.side_effects import CannotCapture
from .capture.trace_step import Traced, trace
from .chunk.chunks import ALL as ALL_OPERATIONS
from .chunk.chunks import LOSSES, Chunks
from .chunk.chunks import cut as cut_operations
from .measure.costs import CALLED, PLAYED, Rates, costed
from .measure.meter import Remembered
from .measure.meter import link as measured_link
from .measure.update_memory import UpdateMemory
from .operations.dropouts import cut_dropouts
from .operations.fuse import ALL, BACKWARD, NONE, fused
from .planner.graph import Graph
from .planner.planner import Infeasible, Planned, Settings, make, make_placed
from .planner.program import Link
from .run.optimizers import at_a_time, kept_for

_MUCH = 0.1  # of a step
_LARGE = 8  # a share of the budget: state of larger parameters may stay on the host


@dataclass(frozen=True, eq=False)
class Captured:
    """A step that is written down. notes: what was done to it. plain: its trace before that."""

    traced: Traced
    lifted: Lifted
    notes: list[str] = field(default_factory=list)
    plain: Traced | None = None


def capture(
    step: Callable[[Any], Any],
    modules: Sequence[nn.Module],
    optimizers: Sequence[torch.optim.Optimizer],
    batch: Any,
    device: torch.device,
    budget: int,
    chunks: Chunks = None,
    *,
    tight: int = 0,
    record: bool = False,
    join: bool = False,
) -> Captured:
    """Write a step down: operations and storages, small parameters updated together as far as the budget allows.
    chunks, tight: see `chunks.cut`. record: it will be recorded, and a batch then has a place that stays.
    join: see `fuse.fused`."""
    traced, notes = cut_operations(trace(step, modules, optimizers, batch, device), chunks, budget, tight=tight)
    return _lifted(traced, notes, ALL if join else NONE, optimizers, _lent(batch, device), budget, record=record)


def _lifted(
    traced: Traced,
    notes: list[str],
    join: str,
    optimizers: Sequence[torch.optim.Optimizer],
    lent: bool,
    budget: int,
    *,
    record: bool,
    streamed: int = 0,
    rounding: bool = False,
) -> Captured:
    """A step that is traced, with chains of it joined, as storages. lent: the caller holds on to the batch. streamed,
    rounding: see `lift`."""
    traced, more = fused(traced, join)
    parameters = traced.watched.parameters
    # No larger than the largest parameter, whose update takes that much anyway: it must not be the bucket that binds.
    largest = max((p.numel() * p.element_size() for p in parameters), default=0)
    try:
        lifted = lift(
            traced,
            _states_kept(parameters, optimizers),
            min(BUCKET, budget // 128, largest),
            pieces=[at_a_time(one, budget) for one in optimizers],
            lent=lent or record,
            streamed=streamed,
            rounding=rounding,
        )
        lifted.graph.check()
    except CannotCapture:
        raise
    except (AttributeError, KeyError, NotImplementedError, TypeError, ValueError) as error:
        raise CannotCapture(f"an operation of the step is not understood: {type(error).__name__}: {error}") from error
    if lent and record:  # the caller's batch, and the place that it is copied to
        lifted.besides = {kind: 2 * nbytes for kind, nbytes in lifted.besides.items()}
    return Captured(traced, lifted, notes + more)


def _states_kept(
    parameters: Sequence[nn.Parameter], optimizers: Sequence[torch.optim.Optimizer]
) -> Callable[[int, int], dict[str, int]]:
    """By optimizer and parameter: {name: bytes} of the state that is kept. Parameters alike are tried once."""
    known: dict[Any, dict[str, int]] = {}

    def kept(optimizer: int, number: int) -> dict[str, int]:
        p = parameters[number]
        key = (optimizer, p.shape, p.dtype) if not optimizers[optimizer].state.get(p) else (optimizer, number)
        if key not in known:
            known[key] = kept_for(optimizers[optimizer], p)
        return known[key]

    return kept


_Candidate = tuple[Captured, Graph, Planned]


def planned(
    step: Callable[[Any], Any],
    modules: Sequence[nn.Module],
    optimizers: Sequence[torch.optim.Optimizer],
    batch: Any,
    device: torch.device,
    settings: Settings,
    *,
    rates: Rates | None = None,
    chunks: Chunks = None,
    budget: int | None = None,
    record: bool = False,
    join: bool = False,
    others: int = 0,
    traced: Traced | None = None,
    updates: UpdateMemory | None = None,
    reads: Reads | None = None,
) -> tuple[Captured, Graph, Planned]:
    """Write a step down and plan it; with chunks="auto" again in chunks if there is no plan otherwise. budget: what
    was asked for, if the plan is made for less. record: as a step that is recorded. others: bytes on the device
    that are not the step's, such as workspaces of libraries. traced: the step, if it was traced before.
    updates: what updates allocate, where that was tried. reads: values that the step reads, as far as they are known;
    without it a step that reads any is refused."""
    whole, lent = budget or settings.budget, _lent(batch, device)
    refused: Infeasible | None = None
    best: _Candidate | None = None
    movable = _with_gradients([*tensors_of(modules), *states_of(optimizers)])
    if device.type == "cuda" and settings.link == Link():
        settings = replace(settings, link=measured_link(device, Remembered.of(torch.cuda.get_device_name(device))))
    plain = traced or trace(step, modules, optimizers, batch, device, reads)
    record = record and not plain.reads.conditions  # a recording cannot stop halfway

    def attempt(traced: Traced, notes: list[str], chains: str) -> _Candidate | None:
        """A plan of the step with these changes; keeps the fastest of all in `best`."""
        nonlocal best, refused
        given = traced, notes, chains, optimizers, lent, whole
        captured = _lifted(*given, record=record, streamed=streamed, rounding=chunks == "auto")
        captured = replace(captured, plain=plain, notes=[*captured.notes, *_streamed(captured.lifted)])
        constants = bytes_on(captured.lifted.constants.values(), device)
        captured.lifted.besides["others on the device"] = max(0, others - constants)
        graph = costed(
            captured.lifted,
            device,
            rates,
            call=PLAYED if record else CALLED,
            movable=movable,
            updating=None if updates is None else partial(updates.bytes, plain.watched.parameters),
        )
        if record or device.type == "cuda":
            graph, captured.lifted.besides[UPDATES] = updates_apart(graph)
        try:
            left = beside(settings, captured.lifted)
            made = make_placed(graph, left) if device.type == "cuda" else make(graph, left)
        except Infeasible as error:
            error = _told(error.beside(captured.lifted.besides, settings.budget), chunks, captured.notes)
            if refused is None or error.side != "device" or error.smallest < refused.smallest:
                refused = error
            return None
        made.notes.extend(captured.notes)
        made = replace(made, costs=replace(made.costs, host=made.costs.host + captured.lifted.streamed))
        found = captured, graph, made
        if best is None or made.costs.seconds < best[2].costs.seconds:
            best = found
        return found

    for streamed in (0, whole // _LARGE) if settings.swap and settings.place else (0,):
        if streamed and not any(p.numel() * p.element_size() > streamed for p in plain.watched.parameters):
            break
        known: list[list[str]] = []
        for tight in (0, LOSSES, ALL_OPERATIONS) if chunks == "auto" else (0,):
            traced, notes = cut_operations(plain, chunks, whole, tight=tight)
            if notes in known:
                continue
            known.append(notes)
            for chains in (ALL, BACKWARD, NONE) if join else (NONE,):
                found = attempt(traced, notes, chains)
                # What is joined can only be recomputed, or wait on the host, as a whole: it may be faster apart.
                if found is not None and not _slow(found):
                    return found
            if best is None or _slow(best):
                split, count = cut_dropouts(traced)
                if count:
                    attempt(split, [*notes, f"{count} dropouts are recomputed from their masks"], NONE)
            # A loss in chunks leaves more bytes for all else, so it may also be faster where a plan was found.
            if best is not None and (tight or best[2].costs.waited < _MUCH * best[2].costs.seconds):
                break
            if refused is not None and refused.side != "device":
                break
        if best is not None or (refused is not None and refused.side != "device"):
            break
    if best is not None:
        return best
    assert refused is not None
    raise refused


def _streamed(lifted: Lifted) -> list[str]:
    """What a report says about state that stays on the host."""
    updates = [run for run in lifted.runs if isinstance(run, Update)]
    found, in_rows = [run for run in updates if run.streamed], sum(run.gradient is not None for run in updates)
    large = f"{len(found)} large parameters ({show_bytes(lifted.streamed)})"
    told = [f"optimizer state of {large} stays on the host, updated in rows"] if found else []
    return told + ([f"gradients of {in_rows} tables are made and used in rows"] if in_rows else [])


def _slow(found: _Candidate) -> bool:
    """Whether a plan waits or recomputes much."""
    costs = found[2].costs
    return costs.waited + costs.repeated >= _MUCH * costs.seconds


def _told(refused: Infeasible, chunks: Chunks, notes: list[str]) -> Infeasible:
    """With what else is known about it."""
    if chunks is None and ("log_softmax" in refused.node or "nll_loss" in refused.node):
        refused.add_note('the loss binds: chunks="auto" makes it in pieces')
    elif chunks is None and refused.side == "device":
        refused.add_note('chunks="auto" makes operations that are too large in pieces')
    for note in notes:
        refused.add_note(note)
    return refused


def updates_apart(graph: Graph) -> tuple[Graph, int]:
    """The graph of a step without the workspaces of updates, and bytes for those. Updates allocate apart from all else:
    what they take cannot be a recording's, and must not be in the way of what was planned."""
    most = max((node.workspace for node in graph.nodes if node.phase == "update"), default=0)
    nodes = tuple(replace(node, workspace=0) if node.phase == "update" else node for node in graph.nodes)
    return replace(graph, nodes=nodes), most


def beside(settings: Settings, lifted: Lifted) -> Settings:
    """What is left of the budget beside a batch that is the caller's, and on the host beside state that stays there."""
    host = settings.host_budget
    if host is not None:
        if lifted.streamed > host:
            raise Infeasible(host, lifted.streamed, "host", "state that stays on the host", {})
        host -= lifted.streamed
    return replace(settings, budget=max(1, settings.budget - lifted.borrowed), host_budget=host)


def tensors_of(modules: Sequence[nn.Module]) -> list[torch.Tensor]:
    found = [t for module in modules for t in (*module.parameters(), *module.buffers())]
    return list({id(t): t for t in found}.values())


def states_of(optimizers: Sequence[torch.optim.Optimizer]) -> list[torch.Tensor]:
    return [x for one in optimizers for x in pytree.tree_leaves(list(one.state.values()))]


def _with_gradients(found: Iterable[Any]) -> list[torch.Tensor]:
    """The tensors among things, and the gradients of those."""
    tensors = [x for x in found if isinstance(x, torch.Tensor)]
    return tensors + [x.grad for x in tensors if x.is_leaf and x.grad is not None]


def bytes_on(found: Iterable[Any], device: torch.device) -> int:
    """Bytes of tensors, and of their gradients, that are on a device."""
    storages = [x.untyped_storage() for x in _with_gradients(found) if x.device == device]
    return sum({one.data_ptr(): one.nbytes() for one in storages}.values())


def _lent(batch: Any, device: torch.device) -> bool:
    """Whether the batch is on the device already: then it is the caller's, who will hold on to it."""
    return any(isinstance(x, torch.Tensor) and x.device == device for x in pytree.tree_leaves(batch))
