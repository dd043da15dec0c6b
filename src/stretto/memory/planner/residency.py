"""What is on the device at one instruction of a program, by kind: what a refusal or a picture tells."""

from __future__ import annotations

from .program import AGAIN, FREE, GONE, IN, RUN, Program


def there_at(program: Program, at: int) -> tuple[str, dict[str, int]]:
    """The name of the node that runs at instruction `at` (or next), and the bytes of each kind that are there; -1 is
    before the first instruction. A node's workspace counts as "workspace"."""
    graph = program.graph
    here = {s for s, one in enumerate(graph.storages) if one.kind == "input"}
    here |= {s for s, one in enumerate(graph.storages) if one.lasting and s not in program.on_host}
    for what, which in program.instructions[: at + 1]:
        if what in (RUN, AGAIN):
            here.update(graph.nodes[which].makes)
        elif what == IN:
            here.add(which)
        elif what in (GONE, FREE):
            here.discard(which)
    held: dict[str, int] = {}
    for s in here:
        held[graph.storages[s].kind] = held.get(graph.storages[s].kind, 0) + graph.storages[s].nbytes
    name = "the end of the step"
    for what, which in program.instructions[max(at, 0) :]:
        if what in (RUN, AGAIN):
            name = graph.nodes[which].name
            break
    if at >= 0 and program.instructions[at][0] in (RUN, AGAIN):
        held["workspace"] = graph.nodes[program.instructions[at][1]].workspace
    return name, dict(sorted(held.items(), key=lambda one: -one[1]))
