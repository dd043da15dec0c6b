"""What every operation costs: seconds and passing memory. Measured on a GPU, estimated from its rates without one.

An operation is measured once for each distinct call (operation, shapes, strides, dtypes, other arguments), alone, with
inputs of its own; so a step can be costed that does not fit as a whole. What was measured is remembered on disk.
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
from stretto.memory.capture.lifted import Call, Lifted, Ref, Update, generators
from stretto.memory.planner.graph import TEMPORARY, Graph, Node, Storage
from stretto.memory.planner.program import Link
from stretto.memory.run.eviction import aside

from .meter import Meter, Remembered

CALLED = 9e-6  # seconds that Python takes for an operation, at least
PLAYED = 1.5e-6  # seconds between operations of a recording


@dataclass(frozen=True)
class Rates:
    """What a device can do: floating-point operations a second by bytes of a number, bytes of memory a second, seconds
    that any operation takes, and its link to the host."""

    name: str = "H200"
    narrow: float = 600e12  # 2 bytes a number
    wide: float = 45e12  # 4 bytes
    memory: float = 3.4e12
    least: float = 8e-6
    link: Link = field(default_factory=Link)


def costed(
    lifted: Lifted,
    device: torch.device,
    rates: Rates | None = None,
    meter: Meter | None = None,
    call: float = CALLED,
    movable: Iterable[torch.Tensor] = (),
    updating: Callable[[Update, list[int]], int] | None = None,
) -> Graph:
    """The graph with seconds and workspaces. meter: measures; without one, a GPU is measured and all else estimated.
    call: seconds that an operation takes whatever it does. movable: tensors that are away from the device, for a while,
    if there is no space beside them to try an operation. updating: bytes that an update of parameters of some sizes
    allocates."""
    rates = rates or Rates()
    if meter is None and device.type == "cuda":
        meter = Meter(lifted, device, Remembered.of(torch.cuda.get_device_name(device)))
    nodes = []
    if meter is not None:
        with _same_random_numbers(lifted, device):
            _measure(meter, lifted, device, movable)
    for node, run in zip(lifted.graph.nodes, lifted.runs, strict=True):
        seconds, workspace = estimated(lifted, run, rates, updating)
        order: Order = ()
        if meter is not None and isinstance(run, Call):
            seconds, workspace, order = meter.measured(run) or (seconds, workspace, order)
            order = _of_storages(lifted, node, run, order)
        nodes.append(replace(node, seconds=seconds, workspace=workspace, allocations=order))
    if meter is not None:
        meter.remembered.save()
        # A device that is faster than those who call it waits for them.
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


def _of_storages(lifted: Lifted, node: Node, run: Call, order: Order) -> Order:
    """An order of allocations in terms of the storages that a node makes; empty where it does not name all large ones
    of them, each once."""
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


def _measure(meter: Meter, lifted: Lifted, device: torch.device, movable: Iterable[torch.Tensor]) -> None:
    """Try everything; what a plan has no room for beside all parameters may run when most of them are away."""
    calls = [run for run in lifted.runs if isinstance(run, Call)]
    for run in calls:
        meter.measured(run)
    there = [one for one in movable if one.device == device]
    if meter.crowded and there:
        with aside(there, device):
            meter.crowded.clear()
            for run in calls:
                meter.measured(run)


@contextlib.contextmanager
def _same_random_numbers(lifted: Lifted, device: torch.device) -> Iterator[None]:
    """Dropout is tried too: the random numbers of the training that follows are the same as without a plan."""
    own = [(one, one.get_state()) for one in generators(lifted)]
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        yield
    for generator, state in own:
        generator.set_state(state)


def estimated(
    lifted: Lifted, run: Call | Update, rates: Rates, updating: Callable[[Update, list[int]], int] | None = None
) -> tuple[float, int]:
    """Seconds from operations and bytes, whichever takes longer."""
    values = lifted.values
    if isinstance(run, Update):
        sizes = [lifted.nbytes[values[v].storage] for v, _ in run.values]
        kept = sum(lifted.nbytes[s] for number in run.parameters for s in lifted.states[number].values())
        nbytes = sum(sizes)
        at_once = nbytes if len(sizes) > 1 else min(nbytes, run.piece or nbytes)
        workspace = 2 * at_once if updating is None else updating(run, sizes)
        streamed = sum(size for _, size in run.streamed)
        workspace += streamed * at_once // max(1, nbytes)
        if run.gradient is not None:  # rows of it, and what sorts the indices
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


def _operations(lifted: Lifted, run: Call) -> float:
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
    except Exception:  # a formula that does not know these arguments: bytes decide
        return 0.0
