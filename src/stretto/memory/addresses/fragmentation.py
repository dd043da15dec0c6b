"""How many bytes a program takes on a device, with the gaps that its tensors leave between one another.

footprint(program)      # what stays on the device, the arena, and small tensors beside it
"""

from __future__ import annotations

from dataclasses import replace

from stretto.memory.planner.program import Program, account

from .arena import SMALL
from .lifetimes import travelling
from .steering import natural


def arena_bytes(program: Program) -> int:
    """Bytes of the block from which all large temporary storages of a program are cut."""
    return natural(program) if program.arena is None else program.arena


def small_bytes(program: Program) -> int:
    """The peak of small temporary storages."""
    graph = program.graph
    storages = tuple(
        one if one.nbytes <= SMALL and not one.lasting else replace(one, nbytes=0) for one in graph.storages
    )
    nodes = tuple(replace(node, workspace=min(node.workspace, SMALL)) for node in graph.nodes)
    return account(replace(program, graph=replace(graph, storages=storages, nodes=nodes))).peak


def beside_arena(program: Program) -> int:
    """Bytes that a program takes beside the arena: what stays on the device, the batch, and small tensors."""
    elsewhere = program.on_host | travelling(program)
    storages = program.graph.storages
    always = sum(one.nbytes for s, one in enumerate(storages) if one.lasting and s not in elsewhere)
    inputs = sum(one.nbytes for one in storages if one.kind == "input" and one.nbytes > SMALL)
    return always + inputs + small_bytes(program)


def footprint(program: Program) -> int:
    """Bytes that a program takes on the device."""
    return beside_arena(program) + arena_bytes(program)
