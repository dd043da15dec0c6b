"""When a program allocates and frees memory on the device, one allocation after another.

Only allocations of more than a megabyte count: torch's allocator takes smaller ones from elsewhere. Persistent storages
that stay on the device are not allocated in a step; those that are away in a part of it (`travelling`) are.

    lifetimes = find_lifetimes(program)
    lifetimes.requests[3]     # (0, 1, ~1): instruction 3 allocates 0 and 1, and frees 1 before it is over
    lifetimes.freed[7]        # (0,): instruction 7 frees 0
"""

from __future__ import annotations

from dataclasses import dataclass, field

from stretto.memory.planner.graph import RETURNED, TEMPORARY, Node
from stretto.memory.planner.program import AGAIN, FREE, GONE, IN, RUN, Program

from .arena import SMALL

PARTS = 1 << 12  # moments in an instruction


@dataclass(eq=False)
class Lifetimes:
    """Allocations of a program.

    Attributes
    ----------
    nbytes, since, until, storage : list of int
        By allocation: its size, when it is made and freed, and its storage (-1: an operation's own workspace).
        Instruction n is at n × PARTS; what it allocates and frees follows one by one. -1: before the first.
    requests : dict
        By instruction: what it allocates, in order; ~k frees allocation k again.
    freed : dict
        By instruction: the allocations that it frees.
    first : list of int
        Allocations of travelling storages, when the step begins.
    """

    count: int  # instructions
    nbytes: list[int] = field(default_factory=list)
    since: list[int] = field(default_factory=list)
    until: list[int] = field(default_factory=list)
    storage: list[int] = field(default_factory=list)
    requests: dict[int, tuple[int, ...]] = field(default_factory=dict)
    freed: dict[int, tuple[int, ...]] = field(default_factory=dict)
    first: list[int] = field(default_factory=list)

    def new(self, nbytes: int, since: int, storage: int = -1) -> int:
        """A new allocation, which lives to the end unless it is freed; its number."""
        self.nbytes.append(nbytes)
        self.since.append(since)
        self.until.append(self.count * PARTS)
        self.storage.append(storage)
        return len(self.nbytes) - 1


def travelling(program: Program) -> set[int]:
    """Persistent storages whose host copy is not their home, and that are away in a part of the step."""
    lasting = {s for s, one in enumerate(program.graph.storages) if one.lasting}
    moved = {which for what, which in program.instructions if what in (GONE, FREE)}
    return (lasting & moved) - program.on_host


def find_lifetimes(program: Program) -> Lifetimes:
    """All large allocations of a program."""
    storages, nodes = program.graph.storages, program.graph.nodes
    away = travelling(program)
    found = Lifetimes(len(program.instructions))
    live: dict[int, int] = {}  # by storage: its allocation

    def counts(s: int) -> bool:
        one = storages[s]
        temporary = not one.lasting or s in program.on_host or s in away
        return temporary and one.nbytes > SMALL and one.kind != "input"

    for s in sorted(away):
        if counts(s):
            live[s] = found.new(storages[s].nbytes, -1, s)
            found.first.append(live[s])
    for at, (what, which) in enumerate(program.instructions):
        if what in (RUN, AGAIN):
            events = _events(found, nodes[which], at, live, {s for s in nodes[which].makes if counts(s)}, program)
            if events:
                found.requests[at] = events
        elif what == IN:
            if which not in live and counts(which):
                live[which] = found.new(storages[which].nbytes, at * PARTS, which)
                found.requests[at] = (live[which],)
        elif what in (FREE, GONE) and which in live:
            k = live.pop(which)
            found.until[k] = at * PARTS
            found.freed[at] = (k,)
    return found


def _events(
    found: Lifetimes, node: Node, at: int, live: dict[int, int], counted: set[int], program: Program
) -> tuple[int, ...]:
    """What a node allocates and frees. Results that are on the device already are allocated once more, and dropped."""
    order = node.allocations
    if not order:
        order = tuple((k, program.graph.storages[s].nbytes) for k, s in enumerate(node.makes) if s in counted)
        order += ((TEMPORARY, node.workspace), (RETURNED, len(order))) if node.workspace > SMALL else ()
    events: list[int] = []
    dropped: list[int] = []
    number: dict[int, int] = {}  # by place in the order: its allocation
    for place, (what, nbytes) in enumerate(order):
        if what == RETURNED:
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
        elif (RETURNED, place) not in order:
            dropped.append(k)  # a result that is unused
    for k in dropped:
        found.until[k] = at * PARTS + len(events)
        events.append(~k)
    return tuple(events)
