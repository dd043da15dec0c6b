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
    [4.04, 5.61, 2.82, 2.82]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

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
    racks: tuple[int, ...] = ()  # of each node
    uplink: float | None = None  # bytes per second into and out of a rack; None: no racks


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


@dataclass(frozen=True, eq=False)
class _Step:
    """Traffic of one step: bytes and messages [nodes, nodes] from each node to each other."""

    nbytes: NDArray[np.float64]
    messages: NDArray[np.float64]


@dataclass(frozen=True)
class ExchangeCost:
    """Seconds and bytes of one exchange."""

    size: ExchangeSize
    machine: MachineModel = field(default_factory=MachineModel)

    def seconds(self, way: str) -> float:
        """Seconds from one exchange to the next, where one follows another."""
        steps, hops = self._steps(way)
        machine, nodes = self.machine, len(self.size.parts)
        rates = np.array(machine.rates or (machine.rate,) * nodes)
        handling = sum(self._handling(step) for step in steps) / self.size.threads
        if len(steps) == 1:
            links = max(float((_busiest(steps[0].nbytes) / rates).max()), max(self._crossing(steps[0]), default=0.0))
            return hops * machine.latency + links + handling
        there, back = (step.nbytes for step in steps)
        # A node sends when it has its rows. Holders send rows to one node after another, so the first changes of the
        # next exchange arrive while the last rows leave.
        waits = (back.sum(axis=0) + there.sum(axis=1)) / rates
        leaving = (back.sum(axis=1) + there.max(axis=0)) / rates
        arriving = (there.sum(axis=0) + back.max(axis=1)) / rates
        links = float(max(waits.max(), leaving.max(), arriving.max()))
        apart = [sorted(pair) for pair in zip(*(self._crossing(step) for step in steps), strict=True)]
        holders = float((back.sum(axis=1) > there.shape[0] * MESSAGE).mean())
        links = max([links, *(more + holders * less for less, more in apart)])
        return float(hops * machine.latency + links + handling)

    def nbytes(self, way: str) -> float:
        """Bytes that the busiest node sends in an exchange."""
        steps, _ = self._steps(way)
        return float(np.sum([step.nbytes.sum(axis=1) for step in steps], axis=0).max())

    def _handling(self, step: _Step) -> float:
        """Seconds of a processor for the messages of the busiest node."""
        messages = step.messages.sum(axis=1) + step.messages.sum(axis=0)
        nbytes = step.nbytes.sum(axis=1) + step.nbytes.sum(axis=0)
        return float((messages * self.machine.message_seconds + nbytes * self.machine.byte_seconds).max())

    def _crossing(self, step: _Step) -> list[float]:
        """Seconds of each uplink; none without racks."""
        if self.machine.uplink is None:
            return []
        racks = np.array(self.machine.racks)
        apart = np.where(racks[:, None] != racks[None, :], step.nbytes, 0.0)
        return [
            float(max(apart[racks == rack].sum(), apart[:, racks == rack].sum())) / self.machine.uplink
            for rack in np.unique(racks)
        ]

    def _steps(self, way: str) -> tuple[list[_Step], int]:
        """The traffic of each step, and how many hops the last change makes."""
        size, nodes = self.size, len(self.size.parts)
        parts = np.array(size.parts, np.float64)
        change = size.share * size.rows * size.row_bytes  # of a part
        if way == "all-to-all":
            every = np.broadcast_to(parts[:, None], (nodes, nodes))
            return [_traffic(every * (change + MESSAGE), every)], 1
        if way == "ring":  # each node passes on all changes but those that the next one made
            passed = np.zeros((nodes, nodes))
            for place in range(nodes):
                following = (place + 1) % nodes
                passed[place, following] = parts.sum() - parts[following]
            return [_traffic(passed * (change + MESSAGE), passed)], max(1, nodes - 1)
        cuts = np.array(size.cuts or (1.0 / nodes,) * nodes)
        if way == "holder":
            cuts = (np.arange(nodes) == elected_place(size.parts)).astype(np.float64)
        holds = (cuts > 0).astype(np.float64)
        there = parts[:, None] * (change * cuts + MESSAGE * holds)[None, :]
        merged = size.merged * size.rows * size.row_bytes
        back = np.broadcast_to((merged * cuts + MESSAGE * holds)[:, None], (nodes, nodes))
        answers = np.broadcast_to(holds[:, None], (nodes, nodes))
        return [_traffic(there, parts[:, None] * holds[None, :]), _traffic(back, answers)], 2


def _traffic(nbytes: NDArray[np.float64], messages: NDArray[np.float64]) -> _Step:
    """A step: these bytes and messages, and a clock from each node to each other. A node sends itself nothing."""
    others = 1.0 - np.eye(len(nbytes))
    return _Step((nbytes + MESSAGE) * others, (messages + 1.0) * others)


def _busiest(nbytes: NDArray[np.float64]) -> NDArray[np.float64]:
    """[nodes] what each node sends or receives, whichever is more: links carry both at the same time."""
    found: NDArray[np.float64] = np.maximum(nbytes.sum(axis=1), nbytes.sum(axis=0))
    return found


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
