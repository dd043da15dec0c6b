"""The simulated network: links with queues, racks with uplinks, latency; here faults of links take effect.

A message passes ports one after another: its sender's link, the uplink of its rack and the downlink of the other (if it
leaves its rack and they are limited), its receiver's link. At each port it waits in a FIFO queue and takes bytes /
rate. It enters the next port while it is still leaving the one before, as packets do, so an idle path takes bytes /
(slowest rate) + latency in all.

Frames that a node sends to another at the same time travel together: one event instead of many.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable

from stretto.comm.link import Frame

from .faults import Delay, Fault, Reset, SlowLink
from .settings import SimulatedSettings, drawn
from .virtual_time import Hub

Pair = tuple[int, int]


class Port:
    """One direction of a link: when it is free, and its queue."""

    __slots__ = ("free", "per_byte", "queue")

    def __init__(self, rate: float) -> None:
        self.free = 0.0
        self.per_byte = 1.0 / rate
        self.queue: deque[FrameBatch] = deque()  # not empty: _next is scheduled for when the port is free


class FrameBatch:
    """Frames that travel together."""

    __slots__ = ("at", "done", "frames", "lost", "nbytes", "source", "target", "way")

    def __init__(self, source: int, target: int, frames: list[Frame], nbytes: int, way: tuple[Port, ...]) -> None:
        self.source = source
        self.target = target
        self.frames = frames
        self.nbytes = nbytes
        self.way = way
        self.at = 0  # the port to enter next
        self.done = 0.0  # when its last byte leaves the ports it has entered
        self.lost = False


class Network:
    """The network of a simulated cluster.

    Parameters
    ----------
    deliver : function(train)
        Called when a train arrives.
    notify : function((a, b))
        Called when node a notices that its connection to b broke.
    driver : bool
            Whether there is one more endpoint, numbered after the nodes: the driver's machine. Its link is as fast as
        the fastest node's, and it is outside all racks.
    """

    def __init__(
        self,
        spec: SimulatedSettings,
        hub: Hub,
        deliver: Callable[[FrameBatch], None],
        notify: Callable[[Pair], None],
        *,
        driver: bool = False,
    ) -> None:
        self._hub, self._deliver, self._notify = hub, deliver, notify
        self._latency, self._jitter, self._seed = float(spec.latency), float(spec.jitter), spec.seed
        self._out = [Port(rate) for rate in spec.links]
        self._in = [Port(rate) for rate in spec.links]
        self._rack = spec.rack_of if spec.uplink is not None else None
        if self._rack is not None and spec.uplink is not None:
            self._up = {rack: Port(float(spec.uplink)) for rack in self._rack}
            self._down = {rack: Port(float(spec.uplink)) for rack in self._rack}
        if driver:
            self._out.append(Port(max(spec.links)))
            self._in.append(Port(max(spec.links)))
            if self._rack is not None:
                self._rack = (*self._rack, -1)
                self._up[-1], self._down[-1] = Port(math.inf), Port(math.inf)
        # Pairs of nodes with faults or jitter; all others take a fast path.
        self._slow: dict[Pair, list[SlowLink]] = {}
        self._late: dict[Pair, list[Delay]] = {}
        self._under_way: dict[Pair, deque[FrameBatch]] = {}
        self._broken: set[Pair] = set()
        self._last: dict[Pair, float] = {}
        self._pair_free: dict[Pair, float] = {}
        self._count = 0
        for fault in spec.faults:
            self._prepare(fault)
        self._plain = not (self._jitter or self._slow or self._late or self._under_way)

    def _prepare(self, fault: Fault) -> None:
        if isinstance(fault, SlowLink):
            for pair in ((fault.a, fault.b), (fault.b, fault.a)):
                self._slow.setdefault(pair, []).append(fault)
        elif isinstance(fault, Delay):
            self._late.setdefault((fault.a, fault.b), []).append(fault)
        elif isinstance(fault, Reset):
            for pair in ((fault.a, fault.b), (fault.b, fault.a)):
                self._under_way.setdefault(pair, deque())
            self._hub.at(float(fault.at), self._reset, fault)

    def send(self, source: int, target: int, frames: list[Frame], nbytes: int) -> None:
        """Send frames, nbytes in all, as one train."""
        rack = self._rack
        if rack is not None and rack[source] != rack[target]:
            up, down = self._up[rack[source]], self._down[rack[target]]
            train = FrameBatch(source, target, frames, nbytes, (self._out[source], up, down, self._in[target]))
        else:
            train = FrameBatch(source, target, frames, nbytes, (self._out[source], self._in[target]))
        if not self._plain:
            pair = (source, target)
            if pair in self._broken:  # written to a broken connection
                return
            if pair in self._under_way:
                self._under_way[pair].append(train)
        self._advance(train)

    def _advance(self, train: FrameBatch) -> None:
        hub = self._hub
        now, nbytes, done = hub.now, train.nbytes, train.done
        for port in train.way[train.at :] if train.at else train.way:
            if port.free > now or port.queue:
                if not port.queue:
                    hub.at(port.free, self._next, port)
                train.done = done
                port.queue.append(train)
                return
            port.free = end = now + nbytes * port.per_byte
            done = max(done, end)
            train.at += 1
        train.done = done
        if self._plain:
            hub.at(done + self._latency, self._deliver, train)
        else:
            hub.at(self._arrival(train), self._arrived, train)

    def _next(self, port: Port) -> None:
        """The port is free for the first train in its queue."""
        train = port.queue[0]
        port.free = end = self._hub.now + train.nbytes * port.per_byte
        train.done = max(train.done, end)
        train.at += 1
        port.queue.popleft()
        if port.queue:
            self._hub.at(end, self._next, port)
        self._advance(train)

    def _arrival(self, train: FrameBatch) -> float:
        """When a train that has passed all ports arrives, for a pair of nodes with faults or jitter."""
        now, pair = self._hub.now, (train.source, train.target)
        done, latency = train.done, self._latency
        for slow in self._slow.get(pair, ()):
            if float(slow.at) <= now < float(slow.at) + float(slow.seconds):
                # The connection carries 1/factor of the bytes, one train after another.
                begun = max(now, self._pair_free.get(pair, 0.0))
                done = max(done, begun + train.nbytes * slow.factor * train.way[0].per_byte)
                self._pair_free[pair] = done
                latency *= slow.factor
        when = done + latency
        if self._jitter:
            self._count += 1
            when += self._jitter * drawn(self._seed, self._count, train.source, train.target)
        for late in self._late.get(pair, ()):
            if float(late.at) <= now < float(late.at) + float(late.seconds):
                when += float(late.extra)
        when = max(when, self._last.get(pair, 0.0))  # messages between two nodes keep their order
        self._last[pair] = when
        return when

    def _arrived(self, train: FrameBatch) -> None:
        if self._under_way:
            queue = self._under_way.get((train.source, train.target))
            if queue and queue[0] is train:
                queue.popleft()
            elif queue and train in queue:
                queue.remove(train)
        if not train.lost:
            self._deliver(train)

    def _reset(self, fault: Reset) -> None:
        """The connection breaks: the last frames in flight are lost, or arrive and are nevertheless retransmitted."""
        noticed_at = self._hub.now + self._latency
        for pair in ((fault.a, fault.b), (fault.b, fault.a)):
            self._broken.add(pair)
            lost, doubled = fault.lost, fault.doubled
            for train in reversed(self._under_way[pair]):
                kept = max(0, len(train.frames) - lost)
                lost -= len(train.frames) - kept
                if kept < len(train.frames):
                    train.frames = train.frames[:kept]
                    train.lost = not kept
                if kept and doubled:
                    again = train.frames[-min(doubled, kept) :]
                    doubled -= len(again)
                    train.frames = [*train.frames, *again]
        self._hub.at(noticed_at, self._mend, fault)

    def _mend(self, fault: Reset) -> None:
        self._broken.discard((fault.a, fault.b))
        self._broken.discard((fault.b, fault.a))
        self._notify((fault.a, fault.b))
        self._notify((fault.b, fault.a))
