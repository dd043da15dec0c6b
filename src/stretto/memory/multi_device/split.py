"""One step on several devices: a graph is split by node, each device is planned by itself, one clock follows them all.

    parts = split(graph, device_of_node, 4)          # four graphs with sends and receives
    together = make_all(parts, Settings(12 << 30))   # a plan for each, under a budget of its own
    together.joint.seconds                           # and .costs, by device: peaks, bytes moved, seconds waited

A value that another device wants is *posted*: a `Send` reads its storage and leaves a copy on the way, outside both
devices; a `Receive` makes a storage of it on the other. The send does not wait, the receive waits for its send. A value
is sent as soon as it is there, once to each device that wants it, and received just before its first use, so that it
takes no room there earlier.

**No deadlock.** All sends and receives are in one order, that of the program, in which a send is before its receive.
They are `fixed` nodes, so that whatever order a device is planned in keeps them in this one. The first of them that is
not done yet can always go on: all that its device must do before it waits for nothing else, and if it is a receive, its
send is done.

What lasts and is changed in the step lives where it is changed; other devices get it as it is at that point of the
program. What is only read (inputs, constants, frozen parameters) has a copy on every device that reads it. Nodes that
draw random numbers keep their order on each device, not across devices.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from stretto.errors import PlanError
from stretto.memory.planner.graph import Graph, Node, Storage
from stretto.memory.planner.planner import Infeasible, Planned, Settings, make
from stretto.memory.planner.program import RUN, Costs, Illegal, Ledger, Link, Program, account

WAY = Link(20e9, 20e9, 20e-6)  # between two devices of one machine, through the host


@dataclass(frozen=True, slots=True)
class Send(Node):
    """Posts the one storage that it reads. pair: its number, the same as the receive's. peer: the other device."""

    pair: int = -1
    peer: int = -1


@dataclass(frozen=True, slots=True)
class Receive(Node):
    """Makes a storage from what its send has posted."""

    pair: int = -1
    peer: int = -1


@dataclass(frozen=True, eq=False)
class Part:
    """What one device does. nodes: by node of its graph the number in the whole, -1 for sends and receives. storages:
    likewise; a storage that was received has the number of the one that was sent."""

    graph: Graph
    nodes: tuple[int, ...]
    storages: tuple[int, ...]

    def numbers(self, program: Program) -> list[int]:
        """By node of a program that was planned for this part, in its order: the number in the whole, or -1."""
        known = {id(node): number for node, number in zip(self.graph.nodes, self.nodes, strict=True)}
        return [known[id(node)] for node in program.graph.nodes]


@dataclass(frozen=True)
class Joint:
    """Several programs on one clock. costs: by device, `waited` with what was spent in waiting for other devices.
    idle: by device, the seconds of that alone. posted: the most bytes on the way at once."""

    costs: tuple[Costs, ...]
    seconds: float
    idle: tuple[float, ...]
    posted: int


@dataclass(frozen=True, eq=False)
class Together:
    """A plan for every device and what they cost together."""

    parts: tuple[Part, ...]
    planned: tuple[Planned, ...]
    joint: Joint


# -- splitting ---------------------------------------------------------------------------------------------------------


def split(graph: Graph, device_of_node: Sequence[int], devices: int, way: Link = WAY) -> list[Part]:
    """The graph of each device. device_of_node: by node, 0 to devices - 1. way: how fast values travel between them."""
    graph.check()
    if len(device_of_node) != len(graph.nodes):
        raise PlanError(f"{len(device_of_node)} devices for {len(graph.nodes)} nodes; give one number for each node")
    for n, d in enumerate(device_of_node):
        if not 0 <= d < devices:
            raise PlanError(f"node {n} ({graph.nodes[n].name}) is on device {d}; there are 0 to {devices - 1}")
    return _Split(graph, device_of_node, devices, way).go()


@dataclass
class _Growing:
    """A part while it is made. here: by (storage, version) its local number; read-only ones have version -1."""

    storages: list[Storage] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)
    whole_nodes: list[int] = field(default_factory=list)
    whole_storages: list[int] = field(default_factory=list)
    here: dict[tuple[int, int], int] = field(default_factory=dict)
    results: list[int] = field(default_factory=list)

    def store(self, number: int, storage: Storage, version: int) -> int:
        self.here[number, version] = len(self.storages)
        self.storages.append(storage)
        self.whole_storages.append(number)
        return len(self.storages) - 1

    def run(self, node: Node, number: int = -1) -> None:
        self.nodes.append(node)
        self.whole_nodes.append(number)

    def part(self) -> Part:
        graph = Graph(tuple(self.storages), tuple(self.nodes), tuple(self.results))
        graph.check()
        return Part(graph, tuple(self.whole_nodes), tuple(self.whole_storages))


class _Split:
    def __init__(self, graph: Graph, device_of_node: Sequence[int], devices: int, way: Link) -> None:
        self.graph, self.on, self.way = graph, device_of_node, way
        self.parts = [_Growing() for _ in range(devices)]
        self.home = self._homes()  # by storage: its one device, -1 for what has a copy wherever it is read
        self.version = [-1 if home < 0 else 0 for home in self.home]
        self.wanted = self._wanted()
        self.sent: dict[tuple[int, int, int], tuple[int, Storage]] = {}  # by storage, version and device: the pair
        self.pairs = 0

    def _homes(self) -> list[int]:
        graph, on = self.graph, self.on
        home = [-1 if n < 0 else on[n] for n in graph.maker]
        for n, node in enumerate(graph.nodes):
            for s in node.writes:
                if home[s] not in (-1, on[n]):
                    raise PlanError(
                        f"{graph.storages[s].name or f'storage {s}'} is changed on device {home[s]} and by node {n} "
                        f"({node.name}) on device {on[n]}; put all nodes that change it on one device"
                    )
                home[s] = on[n]
        return home

    def _wanted(self) -> dict[tuple[int, int], list[int]]:
        """By storage and version: the other devices that will read it, in the order of the program."""
        found: dict[tuple[int, int], list[int]] = {}
        version = list(self.version)
        for n, node in enumerate(self.graph.nodes):
            for s in node.reads:
                if self.home[s] not in (-1, self.on[n]):
                    devices = found.setdefault((s, version[s]), [])
                    if self.on[n] not in devices:
                        devices.append(self.on[n])
            for s in node.writes:
                version[s] += 1
        return found

    def go(self) -> list[Part]:
        graph = self.graph
        for n, node in enumerate(graph.nodes):
            d = self.on[n]
            part = self.parts[d]
            reads = tuple(self._here(d, s) for s in node.reads)
            writes = tuple(self._at_home(s) for s in node.writes)
            makes = tuple(part.store(s, graph.storages[s], 0) for s in node.makes)
            part.run(replace(node, reads=reads, makes=makes, writes=writes), n)
            for s in node.writes:
                # One storage at home, whatever its version; copies elsewhere belong to a version.
                part.here[s, self.version[s] + 1] = part.here[s, self.version[s]]
                self.version[s] += 1
            for s in (*node.makes, *node.writes):
                for peer in self.wanted.get((s, self.version[s]), ()):
                    self._send(s, peer)
        self._rest()
        return [part.part() for part in self.parts]

    def _here(self, d: int, s: int) -> int:
        """The local number of what a node on device d reads; it is received if it must be."""
        key = s, self.version[s]
        part = self.parts[d]
        if key not in part.here:
            if self.home[s] in (-1, d):
                return part.store(s, self.graph.storages[s], self.version[s])
            if (*key, d) not in self.sent:
                self._send(s, d)  # as it was before the step
            pair, storage = self.sent[*key, d]
            local = part.store(s, storage, self.version[s])
            seconds = self.way.in_seconds(storage.nbytes)
            name = f"receive {storage.name}"
            peer = self.home[s]
            part.run(Receive(name, (), (local,), (), seconds, 0, False, True, pair=pair, peer=peer))
        return part.here[key]

    def _at_home(self, s: int) -> int:
        part = self.parts[self.home[s]]
        key = s, self.version[s]
        return part.here[key] if key in part.here else part.store(s, self.graph.storages[s], self.version[s])

    def _send(self, s: int, peer: int) -> None:
        storage = self.graph.storages[s]
        local = self._at_home(s)
        seconds = self.way.out_seconds(storage.nbytes)
        node = Send(f"send {storage.name}", (local,), (), (), seconds, 0, False, True, pair=self.pairs, peer=peer)
        self.parts[self.home[s]].run(node)
        copy = replace(storage, kind="activation") if storage.lasting else storage
        self.sent[s, self.version[s], peer] = self.pairs, copy
        self.pairs += 1

    def _rest(self) -> None:
        """What no node touches lives on the device of the first; results are wanted where they are."""
        spare = self.on[0] if self.on else 0
        touched = {s for part in self.parts for s in part.whole_storages}
        for s, storage in enumerate(self.graph.storages):
            if s not in touched:
                self.parts[spare].store(s, storage, self.version[s])
        for s in self.graph.results:
            key = s, self.version[s]
            where = self.home[s] if self.home[s] >= 0 else next(d for d, p in enumerate(self.parts) if key in p.here)
            self.parts[where].results.append(self.parts[where].here[key])


# -- planning and the joint clock --------------------------------------------------------------------------------------


def make_all(
    parts: Sequence[Part], settings: Settings | Sequence[Settings], besides: Mapping[str, int] | None = None
) -> Together:
    """A plan for every part, each by itself; settings: for all, or one for each device. besides: by kind, bytes that
    every device holds besides and that the budgets of the settings lack; a refusal counts them."""
    more = dict(besides or {})
    each = [settings] * len(parts) if isinstance(settings, Settings) else list(settings)
    if len(each) != len(parts):
        raise PlanError(f"{len(each)} settings for {len(parts)} devices; give one for all or one for each")
    planned = []
    for d, (part, one) in enumerate(zip(parts, each, strict=True)):
        try:
            planned.append(make(part.graph, one) if part.graph.nodes else _idle(part, one))
        except Infeasible as error:
            error = error.beside(more, one.budget + sum(more.values()))
            raise PlanError(f"device {d}: {error}") from error
    joint = account_all([one.program for one in planned], [one.link for one in each])
    return Together(tuple(parts), tuple(planned), joint)


def _idle(part: Part, settings: Settings) -> Planned:
    program = Program(part.graph, ())
    return Planned(program, account(program, settings.link), settings, ["this device has nothing to do"])


def account_all(programs: Sequence[Program], links: Link | Sequence[Link] | None = None) -> Joint:
    """Follow all programs on one clock; raises `Illegal` where one cannot be followed or where they wait for one
    another. links: to the host, for all or by device."""
    each = [links or Link()] * len(programs) if links is None or isinstance(links, Link) else list(links)
    ledgers = [Ledger(program, link) for program, link in zip(programs, each, strict=True)]
    at, idle = [0] * len(programs), [0.0] * len(programs)
    posted: dict[int, float] = {}  # by pair: when its value is on the way
    moves: list[tuple[float, int]] = []  # bytes put on the way and taken from it, and when

    def go_on(d: int) -> bool:
        """Follow one device as far as it can go; whether it did anything."""
        ledger, instructions, nodes = ledgers[d], programs[d].instructions, programs[d].graph.nodes
        first = at[d]
        while at[d] < len(instructions):
            what, which = instructions[at[d]]
            node = nodes[which] if what == RUN else None
            if isinstance(node, Receive):
                if node.pair not in posted:
                    break
                idle[d] += max(0.0, posted[node.pair] - ledger.now)
                ledger.wait(posted[node.pair])
            ledger.advance(at[d])
            at[d] += 1
            if isinstance(node, Send):
                posted[node.pair] = ledger.now
                moves.append((ledger.now - node.seconds, programs[d].graph.storages[node.reads[0]].nbytes))
            elif isinstance(node, Receive):
                moves.append((ledger.now, -programs[d].graph.storages[node.makes[0]].nbytes))
        return at[d] > first

    while any(go_on(d) for d in range(len(programs))):
        pass
    stuck = [d for d, program in enumerate(programs) if at[d] < len(program.instructions)]
    if stuck:
        where = ", ".join(f"device {d} at instruction {at[d]}" for d in stuck)
        raise Illegal(f"devices wait for sends that never come: {where}")
    costs = tuple(ledger.finish() for ledger in ledgers)
    return Joint(costs, max((one.seconds for one in costs), default=0.0), tuple(idle), _most(moves))


def _most(moves: list[tuple[float, int]]) -> int:
    most = now = 0
    for _, nbytes in sorted(moves, key=lambda move: (move[0], -move[1])):
        now += nbytes
        most = max(most, now)
    return most
