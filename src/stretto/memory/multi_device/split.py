"""Split the graph of a step by device, plan each device, and estimate the costs of all devices on one clock.

    parts = split(graph, device_of_node, 4)          # four graphs with sends and receives
    together = make_all(parts, Settings(12 << 30))   # a plan for each, under a budget of its own
    together.joint.seconds                           # and .costs, by device: peaks, bytes moved, seconds waited

A value that another device needs is *posted*: a `SendNode` reads its storage and leaves a copy in transit, outside both
devices; a `ReceiveNode` makes a storage of it on the other device. The send does not wait; the receive waits for its
send. A value is sent as soon as it is computed, once to each device that needs it. It is received just before its
first use, so that it takes no memory earlier.

**No deadlock.** All sends and receives are in one order, that of the program, in which a send is before its receive.
They are `fixed` nodes, so that every order in which a device is planned keeps them in this order. The first of them
that is not done yet can always run: everything that its device must do before it waits for nothing else, and if it is a
receive, its send is done.

A persistent storage that the step changes is on the device that changes it; other devices receive its value at that
point of the program. Storages that are only read (inputs, constants, frozen parameters) have a copy on every device
that reads them. Nodes that draw random numbers keep their order on each device, not across devices.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from stretto.errors import PlanError
from stretto.memory.planner.graph import Graph, Node, Storage
from stretto.memory.planner.instructions import RUN, DeviceProgram
from stretto.memory.planner.planner import Infeasible, PlannedProgram, PlannerSettings, make
from stretto.memory.planner.program import Costs, HostLink, IllegalProgram, Ledger, account

DEVICE_LINK = HostLink(20e9, 20e9, 20e-6)  # the link between two devices of one machine, through the host


@dataclass(frozen=True, slots=True)
class SendNode(Node):
    """Posts the one storage that it reads."""

    pair: int = -1  # a number that it shares with its receive
    peer: int = -1  # the other device


@dataclass(frozen=True, slots=True)
class ReceiveNode(Node):
    """Makes a storage from the value that its send has posted."""

    pair: int = -1  # a number that it shares with its send
    peer: int = -1  # the other device


@dataclass(frozen=True, eq=False)
class DevicePart:
    """What one device does."""

    graph: Graph
    nodes: tuple[int, ...]  # by node: its number in the whole graph, -1 for sends and receives
    storages: tuple[int, ...]  # by storage: its number in the whole graph; a received one has that of the sent one

    def numbers(self, program: DeviceProgram) -> list[int]:
        """By node of a program that was planned for this part, in its order: the number in the whole graph, or -1."""
        known = {id(node): number for node, number in zip(self.graph.nodes, self.nodes, strict=True)}
        return [known[id(node)] for node in program.graph.nodes]


@dataclass(frozen=True)
class JointCosts:
    """The costs of several programs on one clock."""

    costs: tuple[Costs, ...]  # by device; `waited` includes waiting for other devices
    seconds: float  # of the step
    idle: tuple[float, ...]  # by device: seconds of waiting for other devices
    posted: int  # bytes in transit at once, at most


@dataclass(frozen=True, eq=False)
class JointPlan:
    """A plan for every device, and what they cost together."""

    parts: tuple[DevicePart, ...]
    planned: tuple[PlannedProgram, ...]
    joint: JointCosts


# -- splitting ---------------------------------------------------------------------------------------------------------


def split(graph: Graph, device_of_node: Sequence[int], devices: int, link: HostLink = DEVICE_LINK) -> list[DevicePart]:
    """The graph of each device.

    Parameters
    ----------
    graph : Graph
        The whole step.
    device_of_node : sequence of int
        By node: its device, from 0 to devices - 1.
    devices : int
        How many devices.
    link : HostLink
        How fast values are sent between devices.
    """
    graph.check()
    if len(device_of_node) != len(graph.nodes):
        raise PlanError(
            f"device_of_node has {len(device_of_node)} numbers for {len(graph.nodes)} nodes; give one for each node"
        )
    for n, d in enumerate(device_of_node):
        if not 0 <= d < devices:
            raise PlanError(
                f"node {n} ({graph.nodes[n].name}) is on device {d}, which does not exist; give 0 to {devices - 1}"
            )
    return _Split(graph, device_of_node, devices, link).go()


@dataclass
class _PartBuilder:
    """A part while it is built."""

    storages: list[Storage] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)
    whole_nodes: list[int] = field(default_factory=list)  # by node: its number in the whole graph
    whole_storages: list[int] = field(default_factory=list)  # by storage: its number in the whole graph
    # By (storage of the whole graph, version): the local storage. Read-only storages have version -1.
    local: dict[tuple[int, int], int] = field(default_factory=dict)
    results: list[int] = field(default_factory=list)

    def store(self, number: int, storage: Storage, version: int) -> int:
        self.local[number, version] = len(self.storages)
        self.storages.append(storage)
        self.whole_storages.append(number)
        return len(self.storages) - 1

    def run(self, node: Node, number: int = -1) -> None:
        self.nodes.append(node)
        self.whole_nodes.append(number)

    def part(self) -> DevicePart:
        graph = Graph(tuple(self.storages), tuple(self.nodes), tuple(self.results))
        graph.check()
        return DevicePart(graph, tuple(self.whole_nodes), tuple(self.whole_storages))


class _Split:
    """Splits a graph: visits its nodes in order, and adds sends and receives."""

    def __init__(self, graph: Graph, device_of_node: Sequence[int], devices: int, link: HostLink) -> None:
        self.graph, self.on, self.link = graph, device_of_node, link
        self.parts = [_PartBuilder() for _ in range(devices)]
        self.owner = self._owners()  # by storage: the device that owns it; -1: every device that reads it has a copy
        self.version = [-1 if owner < 0 else 0 for owner in self.owner]
        self.wanted = self._wanted()
        self.sent: dict[tuple[int, int, int], tuple[int, Storage]] = {}  # by storage, version and device: the pair
        self.pairs = 0

    def _owners(self) -> list[int]:
        """By storage: the device that makes or changes it; -1 if no device does."""
        graph, on = self.graph, self.on
        owner = [-1 if n < 0 else on[n] for n in graph.maker]
        for n, node in enumerate(graph.nodes):
            for s in node.writes:
                if owner[s] not in (-1, on[n]):
                    raise PlanError(
                        f"{graph.storages[s].name or f'storage {s}'} is changed on device {owner[s]} and by node {n} "
                        f"({node.name}) on device {on[n]}; put all nodes that change it on one device"
                    )
                owner[s] = on[n]
        return owner

    def _wanted(self) -> dict[tuple[int, int], list[int]]:
        """By storage and version: the other devices that will read it, in the order of the program."""
        found: dict[tuple[int, int], list[int]] = {}
        version = list(self.version)
        for n, node in enumerate(self.graph.nodes):
            for s in node.reads:
                if self.owner[s] not in (-1, self.on[n]):
                    devices = found.setdefault((s, version[s]), [])
                    if self.on[n] not in devices:
                        devices.append(self.on[n])
            for s in node.writes:
                version[s] += 1
        return found

    def go(self) -> list[DevicePart]:
        graph = self.graph
        for n, node in enumerate(graph.nodes):
            d = self.on[n]
            part = self.parts[d]
            reads = tuple(self._local(d, s) for s in node.reads)
            writes = tuple(self._owned(s) for s in node.writes)
            makes = tuple(part.store(s, graph.storages[s], 0) for s in node.makes)
            part.run(replace(node, reads=reads, makes=makes, writes=writes), n)
            for s in node.writes:
                # The owner has one storage for all versions; copies on other devices belong to one version.
                part.local[s, self.version[s] + 1] = part.local[s, self.version[s]]
                self.version[s] += 1
            for s in (*node.makes, *node.writes):
                for peer in self.wanted.get((s, self.version[s]), ()):
                    self._send(s, peer)
        self._rest()
        return [part.part() for part in self.parts]

    def _local(self, d: int, s: int) -> int:
        """The local number of a storage that a node on device d reads. It is received if necessary."""
        key = s, self.version[s]
        part = self.parts[d]
        if key not in part.local:
            if self.owner[s] in (-1, d):
                return part.store(s, self.graph.storages[s], self.version[s])
            if (*key, d) not in self.sent:
                self._send(s, d)  # its value before the step
            pair, storage = self.sent[*key, d]
            local = part.store(s, storage, self.version[s])
            seconds = self.link.in_seconds(storage.nbytes)
            name = f"receive {storage.name}"
            peer = self.owner[s]
            part.run(ReceiveNode(name, (), (local,), (), seconds, 0, False, True, pair=pair, peer=peer))
        return part.local[key]

    def _owned(self, s: int) -> int:
        """The local number of a storage on the device that owns it."""
        part = self.parts[self.owner[s]]
        key = s, self.version[s]
        return part.local[key] if key in part.local else part.store(s, self.graph.storages[s], self.version[s])

    def _send(self, s: int, peer: int) -> None:
        storage = self.graph.storages[s]
        local = self._owned(s)
        seconds = self.link.out_seconds(storage.nbytes)
        node = SendNode(f"send {storage.name}", (local,), (), (), seconds, 0, False, True, pair=self.pairs, peer=peer)
        self.parts[self.owner[s]].run(node)
        copy = replace(storage, kind="activation") if storage.persistent else storage
        self.sent[s, self.version[s], peer] = self.pairs, copy
        self.pairs += 1

    def _rest(self) -> None:
        """Add storages that no node touches to the device of the first node, and add the results to their devices."""
        spare = self.on[0] if self.on else 0
        touched = {s for part in self.parts for s in part.whole_storages}
        for s, storage in enumerate(self.graph.storages):
            if s not in touched:
                self.parts[spare].store(s, storage, self.version[s])
        for s in self.graph.results:
            key = s, self.version[s]
            where = self.owner[s] if self.owner[s] >= 0 else next(d for d, p in enumerate(self.parts) if key in p.local)
            self.parts[where].results.append(self.parts[where].local[key])


# -- planning and the joint clock --------------------------------------------------------------------------------------


def make_all(
    parts: Sequence[DevicePart],
    settings: PlannerSettings | Sequence[PlannerSettings],
    other_bytes: Mapping[str, int] | None = None,
) -> JointPlan:
    """Plan every part by itself.

    Parameters
    ----------
    parts : sequence of DevicePart
        By device.
    settings : PlannerSettings or sequence of PlannerSettings
        For all devices, or one for each.
    other_bytes : mapping, optional
        By kind: bytes that every device holds and that the budgets of the settings exclude. A refusal counts them.
    """
    more = dict(other_bytes or {})
    each = [settings] * len(parts) if isinstance(settings, PlannerSettings) else list(settings)
    if len(each) != len(parts):
        raise PlanError(f"{len(each)} settings for {len(parts)} devices; give one for all or one for each")
    planned = []
    for d, (part, one) in enumerate(zip(parts, each, strict=True)):
        try:
            planned.append(make(part.graph, one) if part.graph.nodes else _idle(part, one))
        except Infeasible as error:
            error = error.with_other_memory(more, one.budget + sum(more.values()))
            raise PlanError(f"device {d}: {error}") from error
    joint = account_all([one.program for one in planned], [one.link for one in each])
    return JointPlan(tuple(parts), tuple(planned), joint)


def _idle(part: DevicePart, settings: PlannerSettings) -> PlannedProgram:
    program = DeviceProgram(part.graph, ())
    return PlannedProgram(program, account(program, settings.link), settings, ["this device runs no operations"])


def account_all(programs: Sequence[DeviceProgram], links: HostLink | Sequence[HostLink] | None = None) -> JointCosts:
    """The costs of programs that run together on one clock.

    Parameters
    ----------
    programs : sequence of DeviceProgram
        By device.
    links : HostLink or sequence of HostLink, optional
        To the host, for all devices or by device.

    Raises
    ------
    IllegalProgram
        If a program is not valid, or if devices wait for one another.
    """
    each = [links or HostLink()] * len(programs) if links is None or isinstance(links, HostLink) else list(links)
    ledgers = [Ledger(program, link) for program, link in zip(programs, each, strict=True)]
    at, idle = [0] * len(programs), [0.0] * len(programs)
    posted: dict[int, float] = {}  # by pair: when its value was sent
    moves: list[tuple[float, int]] = []  # (time, bytes) of each send; negative bytes for a receive

    def go_on(d: int) -> bool:
        """Run one device until it has to wait. Returns whether it ran anything."""
        ledger, instructions, nodes = ledgers[d], programs[d].instructions, programs[d].graph.nodes
        first = at[d]
        while at[d] < len(instructions):
            what, which = instructions[at[d]]
            node = nodes[which] if what == RUN else None
            if isinstance(node, ReceiveNode):
                if node.pair not in posted:
                    break
                idle[d] += max(0.0, posted[node.pair] - ledger.now)
                ledger.wait(posted[node.pair])
            ledger.advance(at[d])
            at[d] += 1
            if isinstance(node, SendNode):
                posted[node.pair] = ledger.now
                moves.append((ledger.now - node.seconds, programs[d].graph.storages[node.reads[0]].nbytes))
            elif isinstance(node, ReceiveNode):
                moves.append((ledger.now, -programs[d].graph.storages[node.makes[0]].nbytes))
        return at[d] > first

    while any(go_on(d) for d in range(len(programs))):
        pass
    stuck = [d for d, program in enumerate(programs) if at[d] < len(program.instructions)]
    if stuck:
        where = ", ".join(f"device {d} at instruction {at[d]}" for d in stuck)
        raise IllegalProgram(f"deadlock: devices wait for sends that never happen: {where}")
    costs = tuple(ledger.finish() for ledger in ledgers)
    return JointCosts(costs, max((one.seconds for one in costs), default=0.0), tuple(idle), _most(moves))


def _most(moves: list[tuple[float, int]]) -> int:
    """Bytes in transit at once, at most."""
    most = now = 0
    for _, nbytes in sorted(moves, key=lambda move: (move[0], -move[1])):
        now += nbytes
        most = max(most, now)
    return most
