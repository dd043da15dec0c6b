"""Find when a program allocates and frees each large block of device memory.

Only allocations of more than a megabyte count: torch's allocator takes smaller ones from another pool. Persistent
storages that stay on the device are not allocated in a step; those that are swapped within it (`swapped_persistent`)
are.

    lifetimes = find_lifetimes(program)
    lifetimes.requests[3]     # (0, 1, ~1): instruction 3 allocates 0 and 1, and frees 1 before it is over
    lifetimes.freed[7]        # (0,): instruction 7 frees 0
"""

from __future__ import annotations

from dataclasses import dataclass, field

from stretto.memory.planner.graph import FREED, TEMPORARY, Node
from stretto.memory.planner.instructions import EVICT, FREE, IN, RECOMPUTE, RUN, DeviceProgram

from .arena import SMALL

PARTS = 1 << 12  # time units of an instruction


@dataclass(eq=False)
class Lifetimes:
    """Allocations of a program.

    Instruction n is at time n × PARTS; its allocations and frees follow one by one. Time -1 is before the first
    instruction.
    """

    count: int  # number of instructions
    nbytes: list[int] = field(default_factory=list)  # by allocation: bytes
    since: list[int] = field(default_factory=list)  # by allocation: when it is made
    until: list[int] = field(default_factory=list)  # by allocation: when it is freed
    storage: list[int] = field(default_factory=list)  # by allocation: its storage, -1 for an operation's own workspace
    # by instruction: its allocations, in order; ~k frees allocation k
    requests: dict[int, tuple[int, ...]] = field(default_factory=dict)
    freed: dict[int, tuple[int, ...]] = field(default_factory=dict)  # by instruction: the allocations that it frees
    first: list[int] = field(default_factory=list)  # allocations of swapped persistent storages when the step begins

    def new(self, nbytes: int, since: int, storage: int = -1) -> int:
        """Add an allocation, which lives to the end unless it is freed; its number."""
        self.nbytes.append(nbytes)
        self.since.append(since)
        self.until.append(self.count * PARTS)
        self.storage.append(storage)
        return len(self.nbytes) - 1


def swapped_persistent(program: DeviceProgram) -> set[int]:
    """Persistent storages that are on the device between steps and away for a part of the step."""
    persistent = {s for s, one in enumerate(program.graph.storages) if one.persistent}
    moved = {which for what, which in program.instructions if what in (EVICT, FREE)}
    return (persistent & moved) - program.on_host


def find_lifetimes(program: DeviceProgram) -> Lifetimes:
    """All large allocations of a program."""
    storages, nodes = program.graph.storages, program.graph.nodes
    away = swapped_persistent(program)
    found = Lifetimes(len(program.instructions))
    live: dict[int, int] = {}  # by storage: its allocation

    def counts(s: int) -> bool:
        one = storages[s]
        temporary = not one.persistent or s in program.on_host or s in away
        return temporary and one.nbytes > SMALL and one.kind != "input"

    for s in sorted(away):
        if counts(s):
            live[s] = found.new(storages[s].nbytes, -1, s)
            found.first.append(live[s])
    for at, (what, which) in enumerate(program.instructions):
        if what in (RUN, RECOMPUTE):
            events = _events(found, nodes[which], at, live, {s for s in nodes[which].makes if counts(s)}, program)
            if events:
                found.requests[at] = events
        elif what == IN:
            if which not in live and counts(which):
                live[which] = found.new(storages[which].nbytes, at * PARTS, which)
                found.requests[at] = (live[which],)
        elif what in (FREE, EVICT) and which in live:
            k = live.pop(which)
            found.until[k] = at * PARTS
            found.freed[at] = (k,)
    return found


def _events(
    found: Lifetimes, node: Node, at: int, live: dict[int, int], counted: set[int], program: DeviceProgram
) -> tuple[int, ...]:
    """Allocations and frees of a node. Results that are resident are allocated once more, and freed."""
    order = node.allocations
    if not order:
        order = tuple((k, program.graph.storages[s].nbytes) for k, s in enumerate(node.makes) if s in counted)
        order += ((TEMPORARY, node.workspace), (FREED, len(order))) if node.workspace > SMALL else ()
    events: list[int] = []
    dropped: list[int] = []
    number: dict[int, int] = {}  # by index in the order: its allocation
    for place, (what, nbytes) in enumerate(order):
        if what == FREED:
            if nbytes in number:
                found.until[number[nbytes]] = at * PARTS + len(events)
                events.append(~number[nbytes])
            continue
        k = found.new(nbytes, at * PARTS + len(events))
        events.append(k)
        number[place] = k
        if what >= 0 and node.makes[what] in counted and node.makes[what] not in live:
            live[node.makes[what]] = k
            found.storage[k] = node.makes[what]
        elif what >= 0:
            dropped.append(k)
        elif (FREED, place) not in order:
            dropped.append(k)  # an unused result
    for k in dropped:
        found.until[k] = at * PARTS + len(events)
        events.append(~k)
    return tuple(events)
