"""Seconds and temporary memory of every operation: measured on a GPU, estimated from its rates without one.

An operation is measured once for each distinct call (operation, shapes, strides, dtypes, other arguments), alone, with
inputs of its own. So the costs of a step that does not fit as a whole can be measured. Results are cached on disk.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map

from stretto.memory.addresses.allocations import Order
from stretto.memory.addresses.arena import SMALL, rounded
from stretto.memory.capture.lifted import LiftedStep, OpCall, OptimizerUpdate, Ref, generators
from stretto.memory.planner.graph import TEMPORARY, Graph, Node, Storage
from stretto.memory.planner.program import HostLink
from stretto.memory.run.eviction import evicted

from .meter import CostCache, Meter

CALLED = 9e-6  # seconds that Python takes to call an operation, at least
REPLAYED = 1.5e-6  # seconds between operations of a CUDA graph


@dataclass(frozen=True)
class Rates:
    """Speeds of a device, from which costs are estimated."""

    name: str = "H200"
    narrow: float = 600e12  # floating-point operations a second on numbers of 2 bytes
    wide: float = 45e12  # floating-point operations a second on numbers of 4 bytes
    memory: float = 3.4e12  # bytes of device memory a second
    least: float = 8e-6  # seconds that any operation takes at least
    link: HostLink = field(default_factory=HostLink)  # the link to the host


def costed(
    lifted: LiftedStep,
    device: torch.device,
    rates: Rates | None = None,
    meter: Meter | None = None,
    call: float = CALLED,
    movable: Iterable[torch.Tensor] = (),
    updating: Callable[[OptimizerUpdate, list[int]], int] | None = None,
) -> Graph:
    """The graph of a step with seconds and workspaces.

    Parameters
    ----------
    lifted : LiftedStep
        The step.
    device : torch.device
        The device that computes it.
    rates : Rates, optional
        Speeds for estimates.
    meter : Meter, optional
        Measures calls. Default: a GPU is measured, anything else estimated.
    call : float
        Seconds that any operation takes to be called.
    movable : iterable of torch.Tensor
        Tensors that may be moved to the host for a while, if there is no space beside them to measure an operation.
    updating : callable, optional
        updating(update, sizes) returns the bytes that an update of parameters of these sizes allocates.
    """
    rates = rates or Rates()
    if meter is None and device.type == "cuda":
        meter = Meter(lifted, device, CostCache.of(torch.cuda.get_device_name(device)))
    nodes = []
    if meter is not None:
        with _same_random_numbers(lifted, device):
            _measure(meter, lifted, device, movable)
    for node, run in zip(lifted.graph.nodes, lifted.runs, strict=True):
        seconds, workspace = estimated(lifted, run, rates, updating)
        order: Order = ()
        if meter is not None and isinstance(run, OpCall):
            seconds, workspace, order = meter.measured(run) or (seconds, workspace, order)
            order = _of_storages(lifted, node, run, order)
        nodes.append(replace(node, seconds=seconds, workspace=workspace, allocations=order))
    if meter is not None:
        meter.remembered.save()
        # A device that is faster than its caller waits for the caller.
        slower = max(1.0, len(nodes) * call / max(1e-9, sum(node.seconds for node in nodes)))
        nodes = [replace(node, seconds=node.seconds * slower) for node in nodes]
    return Graph(_as_allocated(lifted.graph.storages, nodes), tuple(nodes), lifted.graph.results)


def _as_allocated(storages: Sequence[Storage], nodes: Sequence[Node]) -> tuple[Storage, ...]:
    """Storages with the bytes that operations really allocate for them: a loss may keep the memory of all its terms."""
    found = list(storages)
    for node in nodes:
        for what, nbytes in node.allocations:
            if what >= 0 and nbytes > found[node.makes[what]].nbytes:
                found[node.makes[what]] = replace(found[node.makes[what]], nbytes=rounded(nbytes))
    return tuple(found)


def _of_storages(lifted: LiftedStep, node: Node, run: OpCall, order: Order) -> Order:
    """An order of allocations in terms of the storages that a node makes.

    Empty if it does not name each large storage exactly once.
    """
    places = {s: k for k, s in enumerate(node.makes)}
    found = []
    for what, nbytes in order:
        if what >= 0:
            value = run.makes[what] if what < len(run.makes) else -1
            s = lifted.values[value].storage if value >= 0 else -1
            what = places.pop(s, TEMPORARY)
        found.append((what, nbytes))
    if any(lifted.graph.storages[s].nbytes > SMALL for s in places):
        return ()
    return tuple(found)


def _measure(meter: Meter, lifted: LiftedStep, device: torch.device, movable: Iterable[torch.Tensor]) -> None:
    """Measure all calls.

    Those that run out of memory beside the parameters are measured again while the parameters are on the host.
    """
    calls = [run for run in lifted.runs if isinstance(run, OpCall)]
    for run in calls:
        meter.measured(run)
    present = [one for one in movable if one.device == device]
    if meter.out_of_memory and present:
        with evicted(present, device):
            meter.out_of_memory.clear()
            for run in calls:
                meter.measured(run)


@contextlib.contextmanager
def _same_random_numbers(lifted: LiftedStep, device: torch.device) -> Iterator[None]:
    """Restore the random state: measuring a dropout must not change the numbers of the training that follows."""
    own = [(one, one.get_state()) for one in generators(lifted)]
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        yield
    for generator, state in own:
        generator.set_state(state)


def estimated(
    lifted: LiftedStep,
    run: OpCall | OptimizerUpdate,
    rates: Rates,
    updating: Callable[[OptimizerUpdate, list[int]], int] | None = None,
) -> tuple[float, int]:
    """Seconds and workspace of a call or update, from its operations and bytes, whichever takes longer."""
    values = lifted.values
    if isinstance(run, OptimizerUpdate):
        sizes = [lifted.nbytes[values[v].storage] for v, _ in run.values]
        kept = sum(lifted.nbytes[s] for number in run.parameters for s in lifted.states[number].values())
        nbytes = sum(sizes)
        at_once = nbytes if len(sizes) > 1 else min(nbytes, run.chunk_bytes or nbytes)
        workspace = 2 * at_once if updating is None else updating(run, sizes)
        streamed = sum(size for _, size in run.streamed)
        workspace += streamed * at_once // max(1, nbytes)
        if run.gradient is not None:  # some rows of the gradient, and workspace to sort the indices
            index = values[run.gradient.args[1].value].nbytes
            workspace += at_once + 6 * index
            nbytes += -(-nbytes // max(1, at_once)) * 20 * index
        workspace += sum(
            lifted.nbytes[values[g].storage] for (_, g), read in zip(run.values, run.read, strict=True) if read
        )
        copied = streamed / rates.link.out + streamed / rates.link.into
        return rates.least * 5 + (4 * nbytes + 3 * (kept + streamed)) / rates.memory + copied, workspace
    moved = sum(values[leaf.value].nbytes for leaf in tree_leaves((run.args, run.kwargs)) if isinstance(leaf, Ref))
    made = [values[v] for v in run.makes if v >= 0]
    moved += sum(value.nbytes for value in made)
    narrow = any(value.dtype in (torch.bfloat16, torch.float16) for value in made)
    rate = rates.narrow if narrow else rates.wide
    return max(rates.least, _operations(lifted, run) / rate, moved / rates.memory), 0


def _operations(lifted: LiftedStep, run: OpCall) -> float:
    """Floating-point operations of a call, by torch's formulas; 0 if there is none."""
    from torch.utils.flop_counter import flop_registry

    packet = getattr(run.target, "_overloadpacket", None)
    if packet not in flop_registry:
        return 0.0

    def meta(x: Any) -> Any:
        if not isinstance(x, Ref):
            return x
        value = lifted.values[x.value]
        return torch.empty_strided(value.size, value.stride, dtype=value.dtype, device="meta")

    args, kwargs = (tree_map(meta, x, is_leaf=lambda x: isinstance(x, Ref)) for x in (run.args, run.kwargs))
    made = [meta(Ref(v)) if v >= 0 else None for v in run.makes]
    try:
        return float(flop_registry[packet](*args, **kwargs, out_val=made[0] if run.single else tuple(made)))
    except Exception:  # a formula that does not support these arguments: the bytes decide
        return 0.0
