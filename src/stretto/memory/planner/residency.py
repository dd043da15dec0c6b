"""List what is on the device at one instruction of a program, by kind: for refusals and plots."""

from __future__ import annotations

from .instructions import EVICT, FREE, IN, RECOMPUTE, RUN, DeviceProgram


def resident_at(program: DeviceProgram, at: int) -> tuple[str, dict[str, int]]:
    """The node that runs at instruction `at` (or next), and the resident bytes of each kind.

    -1 is before the first instruction. A node's workspace counts as "workspace".
    """
    graph = program.graph
    resident = {s for s, one in enumerate(graph.storages) if one.kind == "input"}
    resident |= {s for s, one in enumerate(graph.storages) if one.persistent and s not in program.on_host}
    for what, which in program.instructions[: at + 1]:
        if what in (RUN, RECOMPUTE):
            resident.update(graph.nodes[which].makes)
        elif what == IN:
            resident.add(which)
        elif what in (EVICT, FREE):
            resident.discard(which)
    held: dict[str, int] = {}
    for s in resident:
        held[graph.storages[s].kind] = held.get(graph.storages[s].kind, 0) + graph.storages[s].nbytes
    name = "the end of the step"
    for what, which in program.instructions[max(at, 0) :]:
        if what in (RUN, RECOMPUTE):
            name = graph.nodes[which].name
            break
    if at >= 0 and program.instructions[at][0] in (RUN, RECOMPUTE):
        held["workspace"] = graph.nodes[program.instructions[at][1]].workspace
    return name, dict(sorted(held.items(), key=lambda one: -one[1]))
