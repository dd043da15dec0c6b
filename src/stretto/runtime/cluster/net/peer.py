"""Send queues, credit and connections of one other host (flow control). Used on the wire's thread only.

New messages of a pair of nodes wait, in order, for credit; messages with credit wait until the socket takes them. A
retransmission needs no credit, unless the original has not been sent yet. Frames without a message (acknowledgements,
questions) and heartbeats have their own connection: behind 32 MiB of blocks on a slow network they would arrive so late
that links retransmit everything. Not thread-safe.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from stretto.comm.credit import Credit
from stretto.comm.link import Frame
from stretto.runtime.cluster.hosts.calls import Address

from .connection import Connection, Context, length
from .curve_keys import KeyPair
from .envelope import Buffer

BATCH = 128  # frames in one message at most …
BATCH_BYTES = 128 << 10  # … and bytes, after which no further frame is added
QUEUED = 16  # messages that a socket buffers; others wait in this module's queues

Route = tuple[int, int, int, int]  # incarnation, channel, source node, target node


class PairFrames:
    """Frames of one node for another on one channel of one incarnation."""

    __slots__ = ("credit", "held", "queued")

    def __init__(self, limit: int) -> None:
        self.credit = Credit(limit)
        self.held: deque[Frame] = deque()  # waiting for credit
        self.queued = 0  # highest sequence number seen


class Peer:
    """Another host.

    Parameters
    ----------
    limit : int
        Bytes of credit of each pair of nodes.
    now : float
        The time at which the host was added.
    """

    def __init__(self, context: Context, address: Address, keys: KeyPair | None, limit: int, now: float) -> None:
        self.address, self._limit = address, limit
        self.data = Connection(context, address, keys, QUEUED, now)
        self.express = Connection(context, address, keys, QUEUED, now)
        self.heard = self.spoke = now  # last arrival; last message sent on the express connection
        self.silent = False  # whether its silence was reported
        self.resent = 0
        self.posted = self.left = 0  # bytes posted by other threads; bytes sent or discarded
        self._pairs: dict[Route, PairFrames] = {}
        self._bare: dict[Route, Frame] = {}  # frames without a message; a later one replaces an earlier one
        # with credit, waiting for the socket; whether it is a retransmission
        self._ready: deque[tuple[Route, Frame, bool]] = deque()
        self._resending: set[tuple[Route, int]] = set()  # retransmissions in _ready
        self._parts: list[Buffer] = []  # parts of the message that the socket refused
        self._parts_bytes = 0
        self._parts_of = -1  # their incarnation

    @property
    def lines(self) -> tuple[Connection, Connection]:
        return self.data, self.express

    def put(self, route: Route, frames: Sequence[Frame]) -> None:
        """Queue frames: those with credit for the socket, the others until there is credit."""
        pair = self._pairs.get(route)
        if pair is None:
            pair = self._pairs[route] = PairFrames(self._limit)
        credit, ready = pair.credit, self._ready
        for frame in frames:
            sequence = frame.sequence
            if sequence == 0:
                self._put_bare(route, frame)
            elif sequence > pair.queued:
                pair.queued = sequence
                if pair.held or not credit.may_send(frame.nbytes):
                    pair.held.append(frame)
                else:
                    credit.sent(sequence, frame.nbytes)
                    ready.append((route, frame, False))
            elif sequence > credit.released or (route, sequence) in self._resending:
                self.left += frame.nbytes  # it is queued already
            else:
                self._resending.add((route, sequence))
                ready.append((route, frame, True))
                self.resent += 1

    def _put_bare(self, route: Route, frame: Frame) -> None:
        before = self._bare.pop(route, None)
        if before is not None:
            self.left += before.nbytes
            frame = replace(
                frame, acknowledges=max(frame.acknowledges, before.acknowledges), asks=frame.asks or before.asks
            )
        self._bare[route] = frame

    def acknowledged(self, route: Route, sequence: int) -> bool:
        """The other side has received everything up to `sequence`. False: that much was never sent."""
        pair = self._pairs.get(route)
        if pair is None:
            return sequence == 0
        credit, held = pair.credit, pair.held
        if sequence > credit.released:
            return False
        credit.acknowledged(sequence)
        while held and credit.may_send(held[0].nbytes):
            frame = held.popleft()
            credit.sent(frame.sequence, frame.nbytes)
            self._ready.append((route, frame, False))
        return True

    def forget(self, incarnations: Collection[int]) -> None:
        """Discard queues and credit of incarnations that have ended. What the sockets buffer may still arrive."""
        gone = set(incarnations)
        for route in [route for route in self._pairs if route[0] in gone]:
            self.left += sum(frame.nbytes for frame in self._pairs.pop(route).held)
        for route in [route for route in self._bare if route[0] in gone]:
            self.left += self._bare.pop(route).nbytes
        ready, self._ready = self._ready, deque()
        for entry in ready:
            if entry[0][0] in gone:
                self.left += entry[1].nbytes
            else:
                self._ready.append(entry)
        self._resending = {entry for entry in self._resending if entry[0][0] not in gone}
        if self._parts_of in gone:
            self.left += self._parts_bytes
            self._parts, self._parts_bytes = [], 0

    @property
    def waiting(self) -> bool:
        return bool(self._ready or self._parts or self._bare)

    def send(self, now: float, encode: Callable[[Route, list[Frame]], list[Buffer]]) -> tuple[int, int]:
        """Send as much as the sockets take; return (messages, bytes). A connection with messages left is `blocked`."""
        messages = size = 0
        while self._bare:
            route, frame = next(iter(self._bare.items()))
            parts = encode(route, [frame])
            if not self.speak(now, parts):
                break
            del self._bare[route]
            messages, size = messages + 1, size + sum(map(length, parts))
            self.left += frame.nbytes
        while self._ready or self._parts:
            if not self._parts:
                route, frames = self._batch()
                self._parts = encode(route, frames)
                self._parts_bytes, self._parts_of = sum(frame.nbytes for frame in frames), route[0]
            if not self.data.give(self._parts):
                break
            messages, size = messages + 1, size + sum(map(length, self._parts))
            self.left += self._parts_bytes
            self._parts, self._parts_bytes = [], 0
        return messages, size

    def speak(self, now: float, parts: Sequence[Buffer]) -> bool:
        """Send a short message at once on the express connection; False: its buffer is full."""
        if not self.express.give(parts):
            return False
        self.spoke = now
        return True

    def _batch(self) -> tuple[Route, list[Frame]]:
        """The next frames to send, all of one route."""
        ready = self._ready
        route = ready[0][0]
        frames: list[Frame] = []
        size = 0
        while ready and ready[0][0] == route and len(frames) < BATCH and size < BATCH_BYTES:
            _, frame, again = ready.popleft()
            frames.append(frame)
            size += frame.nbytes
            if again:  # the original may be sent while the retransmission waits
                self._resending.discard((route, frame.sequence))
        return route, frames

    def reopen(self) -> None:
        """Close both connections and open new ones; messages that the sockets buffered are lost."""
        for line in self.lines:
            line.reopen()

    def close(self) -> None:
        for line in self.lines:
            line.close()
