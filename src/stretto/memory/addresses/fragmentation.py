"""Compute the bytes that a program takes on a device, with the gaps between its tensors (fragmentation).

footprint(program)      # persistent storages, the arena, and small tensors outside it
"""

from __future__ import annotations

from dataclasses import replace

from stretto.memory.planner.instructions import DeviceProgram
from stretto.memory.planner.program import account

from .arena import SMALL
from .lifetimes import swapped_persistent
from .steering import unsteered_bytes


def arena_bytes(program: DeviceProgram) -> int:
    """Bytes of the block for all large temporary storages of a program."""
    return unsteered_bytes(program) if program.arena is None else program.arena


def small_bytes(program: DeviceProgram) -> int:
    """The peak of small temporary storages."""
    graph = program.graph
    storages = tuple(
        one if one.nbytes <= SMALL and not one.persistent else replace(one, nbytes=0) for one in graph.storages
    )
    nodes = tuple(replace(node, workspace=min(node.workspace, SMALL)) for node in graph.nodes)
    return account(replace(program, graph=replace(graph, storages=storages, nodes=nodes))).peak


def bytes_outside_arena(program: DeviceProgram) -> int:
    """Bytes that a program takes outside the arena: persistent storages on the device, the batch, and small tensors."""
    elsewhere = program.on_host | swapped_persistent(program)
    storages = program.graph.storages
    always = sum(one.nbytes for s, one in enumerate(storages) if one.persistent and s not in elsewhere)
    inputs = sum(one.nbytes for one in storages if one.kind == "input" and one.nbytes > SMALL)
    return always + inputs + small_bytes(program)


def footprint(program: DeviceProgram) -> int:
    """Bytes that a program takes on the device."""
    return bytes_outside_arena(program) + arena_bytes(program)
