"""How replicas on several nodes exchange their changes: the four ways, what each costs, and which one is chosen.

    shards        the rows are cut over the nodes; changes go to the nodes of their rows, merged rows come back
    holder        one elected node has all rows; changes go to it, merged rows come back
    all-to-all    every node has all rows; each sends its changes to every other, and merges for itself
    ring          as all-to-all, but changes go from neighbour to neighbour

Each sends the changes of every part as they are, not summed, and each copy applies them in the order of parts. So under
BSP all four give the same bits. The cost is that of one exchange, in which every part sends a share of the rows: the
busiest node decides, in each step from one node to the next.

    >>> cost = ExchangeCost(ExchangeSize((1, 1), rows=100, row_bytes=16), MachineModel(1e6, 1e-3))
    >>> [round(1e3 * cost.seconds(way), 2) for way in WAYS]
    [5.58, 5.58, 2.77, 2.77]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

WAYS = ("shards", "holder", "all-to-all", "ring")
MIRRORED = ("all-to-all", "ring")  # every node with parts has all rows
AUTO = "auto"
MESSAGE = 80  # bytes of a message without rows, on the network


@dataclass(frozen=True)
class MachineModel:
    """Nodes and links between them, as far as an exchange depends on them.

    The defaults are those of `st.Simulated`: a link of 1 Gbit, 100 µs, and what handling a message costs a processor.
    """

    rate: float = 125e6  # bytes per second that a node sends, and receives
    latency: float = 100e-6  # seconds from node to node
    message_seconds: float = 15e-6  # of a processor, at either end
    byte_seconds: float = 1e-9  # the same, for each byte
    rates: tuple[float, ...] = ()  # of each node where they differ, in the order of the nodes of a stage

    def rate_of(self, place: int) -> float:
        """Bytes per second of the node at this place."""
        return self.rates[place] if self.rates else self.rate


@dataclass(frozen=True)
class ExchangeSize:
    """What is exchanged: a state of `rows`, of which each part changes a share."""

    parts: tuple[int, ...]  # on each node
    rows: int
    row_bytes: int  # with its key
    share: float = 1.0  # of the rows that a part sends
    cuts: tuple[float, ...] = ()  # share of the rows that each node has where they are cut; (): even
    threads: int = 1  # of a node, which share the handling of messages

    @property
    def merged(self) -> float:
        """Share of the rows that some part changes, if parts choose them independently."""
        return 1.0 - (1.0 - self.share) ** sum(self.parts)


@dataclass(frozen=True)
class _Step:
    """Traffic of one step: bytes and messages that each node sends and receives."""

    sent: list[float]
    received: list[float]
    messages: list[float]


@dataclass(frozen=True)
class ExchangeCost:
    """Seconds and bytes of one exchange."""

    size: ExchangeSize
    machine: MachineModel = field(default_factory=MachineModel)

    def seconds(self, way: str) -> float:
        """Seconds of an exchange."""
        steps, hops = self._steps(way)
        machine, threads = self.machine, self.size.threads
        total = hops * machine.latency
        for step in steps:
            total += max(
                max(sent, received) / machine.rate_of(place)
                for place, (sent, received) in enumerate(zip(step.sent, step.received, strict=True))
            )
            total += max(
                (messages * machine.message_seconds + (sent + received) * machine.byte_seconds) / threads
                for sent, received, messages in zip(step.sent, step.received, step.messages, strict=True)
            )
        return total

    def nbytes(self, way: str) -> float:
        """Bytes that the busiest node sends in an exchange."""
        steps, _ = self._steps(way)
        return max(sum(step.sent[place] for step in steps) for place in range(len(self.size.parts)))

    def _steps(self, way: str) -> tuple[list[_Step], int]:
        """The traffic of each step, and how many hops the last change makes."""
        if way in MIRRORED:
            return [self._mirrored(way)], 1 if way == "all-to-all" else max(1, len(self.size.parts) - 1)
        cuts = self.size.cuts or (1.0 / len(self.size.parts),) * len(self.size.parts)
        if way == "holder":
            holder = elected_place(self.size.parts)
            cuts = tuple(float(place == holder) for place in range(len(cuts)))
        return [self._to_holders(cuts), self._back(cuts)], 2

    def _mirrored(self, way: str) -> _Step:
        size, others = self.size, len(self.size.parts) - 1
        change = size.share * size.rows * size.row_bytes + MESSAGE  # of a part
        clock = MESSAGE * others
        total = sum(size.parts)
        sent, received, messages = [], [], []
        for place, parts in enumerate(size.parts):
            if way == "ring":  # all changes but those that the next node made
                passed = total - size.parts[(place + 1) % len(size.parts)]
                sent.append(passed * change + clock)
                messages.append(passed + (total - parts) + 2.0 * others)
            else:
                sent.append(parts * others * change + clock)
                messages.append(parts * others + (total - parts) + 2.0 * others)
            received.append((total - parts) * change + clock)
        return _Step(sent, received, messages)

    def _to_holders(self, cuts: Sequence[float]) -> _Step:
        size, nodes, total = self.size, len(self.size.parts), sum(self.size.parts)
        change = size.share * size.rows * size.row_bytes
        holders = sum(cut > 0 for cut in cuts)
        sent, received, messages = [], [], []
        for parts, cut in zip(size.parts, cuts, strict=True):
            targets = holders - (cut > 0)
            clocks = MESSAGE * (nodes - 1)
            sent.append(parts * (change * (1.0 - cut) + MESSAGE * targets) + clocks)
            here = (total - parts) if cut > 0 else 0
            received.append(here * (change * cut + MESSAGE) + clocks)
            messages.append(parts * targets + here + 2.0 * (nodes - 1))
        return _Step(sent, received, messages)

    def _back(self, cuts: Sequence[float]) -> _Step:
        size, nodes = self.size, len(self.size.parts)
        merged = size.merged * size.rows * size.row_bytes
        holders = sum(cut > 0 for cut in cuts)
        sent, received, messages = [], [], []
        for cut in cuts:
            clocks = MESSAGE * (nodes - 1)
            others = holders - (cut > 0)
            sent.append((nodes - 1) * (merged * cut + MESSAGE * (cut > 0)) + clocks)
            received.append(merged * (1.0 - cut) + MESSAGE * others + clocks)
            messages.append((nodes - 1) * (cut > 0) + others + 2.0 * (nodes - 1))
        return _Step(sent, received, messages)


def elected_place(parts: Sequence[int]) -> int:
    """The place of the node that is elected as holder: that with most parts, the first of several."""
    return max(range(len(parts)), key=lambda place: (parts[place], -place))


def elected(homes: Sequence[int], holders: Sequence[int] = ()) -> int:
    """The node that holds all rows of a state: that with most parts; of several the one that has most of it, then the
    lowest. All nodes come to the same result, and to another one when it has left.

    Parameters
    ----------
    homes : sequence of int
        The node of each part.
    holders : sequence of int
        The node of each chunk of the state now; others than those in `homes` do not count.

    Examples
    --------
    >>> elected([0, 1, 1, 2]), elected([0, 1, 2], [2, 2, 1]), elected([0, 2])
    (1, 2, 0)
    """
    nodes = sorted(set(homes))
    return max(nodes, key=lambda node: (homes.count(node), holders.count(node), -node))


@dataclass(frozen=True)
class ExchangeChoice:
    """How a state is exchanged, and why."""

    way: str
    reason: str


def choose(size: ExchangeSize, machine: MachineModel | None = None, asked: str = AUTO) -> ExchangeChoice:
    """The way with the least seconds, or the one that was asked for. Of equal ones the first of `WAYS`."""
    nodes = len(size.parts)
    if nodes < 2:
        return ExchangeChoice("shards", "nothing is sent: all parts are on one node")
    cost = ExchangeCost(size, MachineModel() if machine is None else machine)
    costs = {way: cost.seconds(way) for way in WAYS}
    way = min(costs, key=lambda one: costs[one]) if asked == AUTO else asked
    others = ", ".join(f"{other} {_time(costs[other])}" for other in WAYS if other != way)
    model = cost.machine
    why = "asked for" if asked != AUTO else "least of the four"
    return ExchangeChoice(
        way,
        f"{way}, {why}: {_time(costs[way])} an exchange and {_size(cost.nbytes(way))} from the busiest node "
        f"({others}), for {size.rows:,} rows of {size.row_bytes} bytes, {size.share:.0%} of them from each of "
        f"{sum(size.parts)} parts on {nodes} nodes, at {8 * model.rate / 1e6:g} Mbit and {1e6 * model.latency:g} µs",
    )


def _time(seconds: float) -> str:
    return f"{1e3 * seconds:.3g} ms"


def _size(nbytes: float) -> str:
    return f"{nbytes / 1e3:.3g} kB" if nbytes < 1e6 else f"{nbytes / 1e6:.3g} MB"
