"""How the replicated states of a unit are exchanged: for its plan, and for each stage on the nodes that it gets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from stretto.comm.messages import KEY
from stretto.consistency.exchange import ExchangeChoice, ExchangeSize, MachineModel, choose
from stretto.runtime.chosen import name_of
from stretto.state.state import ReplicatedState
from stretto.store.local.grid import ChunkGrid

from .stage_runs import StagePlace, StageRun


def with_exchanges(stage: StageRun, place: StagePlace, runtime: Any) -> StageRun:
    """The stage with the exchange of each replicated state chosen for the nodes that it runs on."""
    homes = stage.homes(place)
    states = tuple(
        replace(used, exchange=_choice(used.state, homes, place, runtime).way)
        if isinstance(used.state, ReplicatedState)
        else used
        for used in stage.states
    )
    return replace(stage, states=states)


def exchange_words(states: Mapping[str, ReplicatedState], parts: int, place: StagePlace, runtime: Any) -> list[str]:
    """For each replicated state of a unit with this many parts: how it is exchanged, and why."""
    homes = place.homes(parts)
    return [f"exchanges {name} by {_choice(state, homes, place, runtime).reason}" for name, state in states.items()]


def _choice(state: ReplicatedState, homes: tuple[int, ...], place: StagePlace, runtime: Any) -> ExchangeChoice:
    nodes = sorted(set(homes))
    array, rules = state.array, state.replication
    width = array.size // max(1, len(array)) * array.itemsize
    size = ExchangeSize(
        tuple(homes.count(node) for node in nodes),
        len(array),
        KEY + width,
        rules.share,
        _cuts(ChunkGrid.of(len(array), width).chunks, len(nodes)),
        max(many for _, many in place.workers_by_node),
    )
    return choose(size, _machine(runtime, nodes), rules.exchange)


def _cuts(chunks: int, nodes: int) -> tuple[float, ...]:
    """Share of the rows that each node holds: even numbers of chunks, the first nodes one more."""
    share, more = divmod(chunks, nodes)
    return tuple((share + (place < more)) / max(1, chunks) for place in range(nodes))


def _machine(runtime: Any, nodes: list[int]) -> MachineModel:
    """The links of these nodes: those of a simulated cluster are known, others are taken as a usual network."""
    if runtime is None or name_of(runtime) != "simulated":
        return MachineModel()
    rates = tuple(runtime.links[node] for node in nodes)
    message, byte = runtime.message_cost
    racks = () if runtime.uplink is None else tuple(runtime.rack_of[node] for node in nodes)
    uplink = None if runtime.uplink is None else float(runtime.uplink)
    return MachineModel(min(rates), float(runtime.latency), message, byte, rates, racks, uplink)
