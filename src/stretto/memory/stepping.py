"""A training step under a budget: planned when made, checked when it first runs, planned anew when shapes change."""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from stretto.errors import RunError
from stretto.plan.cost import show_bytes

from .capture import Traced, trace
from .chunks import ALL as ALL_OPERATIONS
from .chunks import LOSSES, Chunks
from .chunks import cut as cut_operations
from .costs import CALLED, PLAYED, Rates, costed
from .devices import Device
from .execute import Runner
from .fuse import ALL, BACKWARD, NONE, fused
from .graph import Graph
from .guard import CannotCapture
from .lift import BUCKET, Lifted, lift
from .optimizers import at_a_time, kept_for
from .planner import Infeasible, Planned, Settings, make
from .playing import recorded
from .report import Report
from .standing import Standing, Told, take_over
from .verify import Expected

_LOG = logging.getLogger("stretto.memory")
_MUCH = 0.1  # of a step
_WATCHED = 2  # steps whose real peak is compared with the predicted one: the second has the optimizers' state


@dataclass(frozen=True, eq=False)
class Captured:
    """A step that is written down. notes: what was done to it."""

    traced: Traced
    lifted: Lifted
    notes: list[str] = field(default_factory=list)


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
) -> Captured:
    """A step that is traced, with chains of it joined, as storages. lent: whoever calls holds on to the batch."""
    traced, more = fused(traced, join)
    try:
        lifted = _as_storages(traced, optimizers, budget, lent=lent, record=record)
        lifted.graph.check()
    except CannotCapture:
        raise
    except (AttributeError, KeyError, NotImplementedError, TypeError, ValueError) as error:
        raise CannotCapture(f"an operation of the step is not understood: {type(error).__name__}: {error}") from error
    if lent and record:  # the caller's batch, and the place that it is copied to
        lifted.besides = {kind: 2 * nbytes for kind, nbytes in lifted.besides.items()}
    return Captured(traced, lifted, notes + more)


def _as_storages(
    traced: Traced, optimizers: Sequence[torch.optim.Optimizer], budget: int, *, lent: bool, record: bool
) -> Lifted:
    parameters = traced.watched.parameters
    known: dict[Any, dict[str, int]] = {}

    def kept(optimizer: int, number: int) -> dict[str, int]:
        p = parameters[number]
        key = (optimizer, p.shape, p.dtype) if not optimizers[optimizer].state.get(p) else (optimizer, number)
        if key not in known:
            known[key] = kept_for(optimizers[optimizer], p)
        return known[key]

    # No larger than the largest parameter, whose update takes that much anyway: it must not be the bucket that binds.
    largest = max((p.numel() * p.element_size() for p in parameters), default=0)
    bucket = min(BUCKET, budget // 64, largest)
    pieces = [at_a_time(one, budget) for one in optimizers]
    return lift(traced, kept, bucket, pieces=pieces, lent=lent or record)


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
) -> tuple[Captured, Graph, Planned]:
    """Write a step down and plan it; with chunks="auto" again in pieces if there is no plan otherwise. budget: what
    was asked for, if the plan is made for less. record: as a step that is recorded. others: bytes on the device
    that are not the step's, such as workspaces of libraries."""
    whole, lent = budget or settings.budget, _lent(batch, device)
    refused: Infeasible | None = None
    movable = _with_gradients([*_tensors(modules), *_states(optimizers)])
    plain = trace(step, modules, optimizers, batch, device)
    known: list[list[str]] = []
    for tight in (0, LOSSES, ALL_OPERATIONS) if chunks == "auto" else (0,):
        traced, notes = cut_operations(plain, chunks, whole, tight=tight)
        if notes in known:
            continue
        known.append(notes)
        best: tuple[Captured, Graph, Planned] | None = None
        for chains in (ALL, BACKWARD, NONE) if join else (NONE,):
            captured = _lifted(traced, notes, chains, optimizers, lent, whole, record=record)
            constants = _on_device(captured.lifted.constants.values(), device)
            captured.lifted.besides["others on the device"] = max(0, others - constants)
            graph = costed(captured.lifted, device, rates, call=PLAYED if record else CALLED, movable=movable)
            if record:
                graph = _updates_apart(graph, captured.lifted)
            try:
                made = make(graph, beside(settings, captured.lifted))
            except Infeasible as error:
                error = _told(error.beside(captured.lifted.besides, settings.budget), chunks, captured.notes)
                if refused is None or error.side != "device" or error.smallest < refused.smallest:
                    refused = error
                continue
            made.notes.extend(captured.notes)
            if best is None or made.costs.seconds < best[2].costs.seconds:
                best = captured, graph, made
            # What is joined can only be made again, or wait, as a whole: if that is much, it may be better apart.
            if made.costs.waited + made.costs.repeated < _MUCH * made.costs.seconds:
                break
        if best is not None:
            return best
        if refused is not None and refused.side != "device":
            break
    assert refused is not None
    raise refused


def _told(refused: Infeasible, chunks: Chunks, notes: list[str]) -> Infeasible:
    """With what else is known about it."""
    if chunks is None and ("log_softmax" in refused.node or "nll_loss" in refused.node):
        refused.add_note('the loss binds: chunks="auto" makes it in pieces')
    elif chunks is None and refused.side == "device":
        refused.add_note('chunks="auto" makes operations that are too large in pieces')
    for note in notes:
        refused.add_note(note)
    return refused


def _updates_apart(graph: Graph, lifted: Lifted) -> Graph:
    """Updates are not recorded: what they need for a while cannot be the recording's, and is set aside for good."""
    most = max((node.workspace for node in graph.nodes if node.phase == "update"), default=0)
    lifted.besides["room for updates"] = most
    nodes = tuple(replace(node, workspace=0) if node.phase == "update" else node for node in graph.nodes)
    return replace(graph, nodes=nodes)


def beside(settings: Settings, lifted: Lifted) -> Settings:
    """What is left of the budget beside a batch that is the caller's."""
    return replace(settings, budget=max(1, settings.budget - lifted.borrowed))


class Step:
    """A training step under a budget: call it with a batch like the one it was made with.

    `report` says what was planned. Parameters, buffers and optimizer state are at their planned homes; `state_dict()`
    of modules and optimizers works as ever (it waits for copies that are under way). `close()` brings everything back
    to the devices where it was."""

    def __init__(
        self,
        function: Callable[[Any], Any],
        modules: Sequence[nn.Module],
        optimizers: Sequence[torch.optim.Optimizer],
        batch: Any,
        settings: Settings,
        device: Device,
        *,
        rates: Rates | None = None,
        verify: bool = False,
        chunks: Chunks = None,
        record: bool = True,
        join: bool = False,
    ) -> None:
        self._function, self._modules, self._optimizers = function, list(modules), list(optimizers)
        self._settings, self._device, self._rates, self._chunks = settings, device, rates, chunks
        self._record, self._join = record and device.records, join
        self._expected = Expected.of(function, self._modules, self._optimizers, batch) if verify else None
        self._came_from = {id(p): p.device for p in _tensors(self._modules)}
        self._budget = settings.budget  # what plans are made for: smaller than asked once reality exceeded a plan
        self._replanned = False
        ours = [*_tensors(self._modules), *_states(self._optimizers), *pytree.tree_leaves(batch)]
        self._others = max(0, device.in_use(record=self._record) - _on_device(ours, device.torch))
        self._runner: Runner | None = None
        self._lost = ""  # why it cannot be called any more
        self._prepare(batch)
        everybody = (*modules, *optimizers)
        self._hooks = [owner.register_state_dict_pre_hook(Told(self, "settle")) for owner in everybody]
        self._hooks += [owner.register_load_state_dict_post_hook(Told(self, "loaded")) for owner in everybody]

    def _prepare(self, batch: Any) -> None:
        settings = replace(self._settings, budget=self._budget)
        captured, graph, self.planned = planned(
            self._function,
            self._modules,
            self._optimizers,
            batch,
            self._device.torch,
            settings,
            rates=self._rates,
            chunks=self._chunks,
            budget=self._settings.budget,
            record=self._record,
            join=self._join,
            others=self._others,
        )
        segments = None
        if self._record:
            self.planned, segments = recorded(self.planned, len(captured.traced.watched.parameters))
        self.report = Report(self.planned, captured.lifted)
        numbers = {id(node): n for n, node in enumerate(graph.nodes)}
        order = [numbers[id(node)] for node in self.planned.program.graph.nodes]
        self._captured = captured
        self._standing = Standing(self._modules, self._optimizers, self._device.torch.type)
        take_over(self._modules, self)
        if self._runner is not None:
            self._runner.leave()
            self._runner = None  # and all that it holds, before there is another
            gc.collect()
        self._runner = Runner(
            captured.lifted,
            self.planned.program,
            order,
            captured.traced.watched,
            self._optimizers,
            self._device,
            record=segments,
        )
        self._shapes = _shapes(batch)
        self._unwatched = _WATCHED

    def __call__(self, batch: Any) -> Any:
        """Train on one batch; what the step function returns."""
        if self._lost:
            raise RunError(self._lost)
        self._standing.check()
        if _shapes(batch) != self._shapes:
            _LOG.info("another shape of batch: planning anew")
            self._prepare(batch)
        tensors = [x for x in pytree.tree_leaves(batch) if isinstance(x, torch.Tensor)]
        assert self._runner is not None
        if self._unwatched:
            self._device.watch_peak()
        shown = self._runner(tensors)
        result = pytree.tree_unflatten(shown, self._captured.traced.result_spec)
        if self._expected is not None:
            self.settle()
            self._expected.compare(result, self._modules)
            self._expected = None
        if self._unwatched:
            self._unwatched -= 1
            self._look_at_peak(batch)
        return result

    def _look_at_peak(self, batch: Any) -> None:
        """Reality may take more than was predicted: plan once more with what is over as a margin."""
        real = self._device.peak()
        if real is None or real <= self._settings.budget:
            return
        over = real - self.report.peak
        if self._replanned:
            raise RunError(
                f"steps take {show_bytes(real)} on the device, {show_bytes(over)} more than the plan says, and did so "
                f"after planning with a margin; give budget= {show_bytes(over)} less than there is, or see what else "
                "is on the device"
            )
        smaller = self._settings.budget - 2 * over  # the next plan will not be over by just as much
        if smaller <= 0:
            raise RunError(
                f"steps take {show_bytes(real)} on the device, {show_bytes(over)} more than the plan says, and "
                f"budget={show_bytes(self._settings.budget)} has no space for such a margin; let go of what else is on "
                "the device (another model, a batch that was refused), or give a larger budget"
            )
        self._replanned, self._budget = True, smaller
        _LOG.warning("steps take %s more than predicted: planning once more with that margin", show_bytes(over))
        self._prepare(batch)

    def settle(self) -> None:
        """Wait until all copies are made: parameters can be read after it."""
        if self._runner is not None:
            self._runner.settle()

    def loaded(self) -> None:
        """State was loaded into the modules or optimizers: it goes to its homes."""
        if self._runner is not None:
            self._runner.adopt()

    def lose(self) -> None:
        """Another step has the parameters now: what this one holds is given back."""
        if self._runner is not None:
            self._runner.leave()
            self._runner = None
        for hook in self._hooks:
            hook.remove()
        self._lost = (
            "another step was made with these parameters since, which moved them; write both into one step function, "
            "or make a new one when it is its turn"
        )

    def close(self) -> None:
        """Bring parameters, buffers and state back to the devices where they were before."""
        self.settle()
        if self._lost:
            return
        self._lost = "the step was closed; make a new one"
        for hook in self._hooks:
            hook.remove()
        with torch.no_grad():
            for tensor in _tensors(self._modules):
                tensor.data = tensor.data.to(self._came_from[id(tensor)], copy=True)
            for optimizer in self._optimizers:
                for p, state in optimizer.state.items():
                    for name, kept in state.items():
                        if isinstance(kept, torch.Tensor) and kept.shape == p.shape and kept.dim():
                            state[name] = kept.to(p.device, copy=True)
        self._runner = None


def _tensors(modules: Sequence[nn.Module]) -> list[torch.Tensor]:
    found = [t for module in modules for t in (*module.parameters(), *module.buffers())]
    return list({id(t): t for t in found}.values())


def _states(optimizers: Sequence[torch.optim.Optimizer]) -> list[torch.Tensor]:
    return [x for one in optimizers for x in pytree.tree_leaves(list(one.state.values()))]


def _with_gradients(found: Iterable[Any]) -> list[torch.Tensor]:
    """The tensors among things, and the gradients of those."""
    tensors = [x for x in found if isinstance(x, torch.Tensor)]
    return tensors + [x.grad for x in tensors if x.is_leaf and x.grad is not None]


def _on_device(found: Iterable[Any], device: torch.device) -> int:
    """Bytes of tensors, and of their gradients, that are on a device."""
    storages = [x.untyped_storage() for x in _with_gradients(found) if x.device == device]
    return sum({one.data_ptr(): one.nbytes() for one in storages}.values())


def _lent(batch: Any, device: torch.device) -> bool:
    """Whether the batch is on the device already: then it is the caller's, who will hold on to it."""
    return any(isinstance(x, torch.Tensor) and x.device == device for x in pytree.tree_leaves(batch))


def _shapes(batch: Any) -> Any:
    leaves, spec = pytree.tree_flatten(batch)
    return spec, tuple((tuple(x.shape), x.dtype) if isinstance(x, torch.Tensor) else (type(x), x) for x in leaves)
