"""Another host, as the wire's thread sees it: what waits to be sent there, the credit of every pair, two connections.

New messages of a pair of nodes wait, in order, until there is credit; what has credit waits until the socket takes it.
What a link sends again passes without credit, unless the first of it has not left yet. Frames without a message,
acknowledgements and questions, have a connection of their own, and so have heartbeats: behind 32 MiB of blocks on a
slow network they would come so late that links send everything again. Not safe for several threads.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace

from stretto.comm.credit import Credit
from stretto.comm.link import Frame
from stretto.runtime.cluster.hosts.calls import Address

from .connection import Context, Line, length
from .curve_keys import KeyPair
from .envelope import Buffer

BATCH = 128  # frames in one message at most …
BATCH_BYTES = 128 << 10  # … and bytes, after which no further frame is added
QUEUED = 16  # messages a socket holds; what does not fit waits here

Route = tuple[int, int, int]  # channel, source node, target node


class Pair:
    """Frames of one node for another on one channel."""

    __slots__ = ("credit", "held", "queued")

    def __init__(self, limit: int) -> None:
        self.credit = Credit(limit)
        self.held: deque[Frame] = deque()  # without credit yet
        self.queued = 0  # the highest sequence seen


class Peer:
    """now: when it was met. limit: bytes of credit of each pair."""

    def __init__(self, context: Context, address: Address, keys: KeyPair | None, limit: int, now: float) -> None:
        self.address, self._limit = address, limit
        self.data = Line(context, address, keys, QUEUED, now)
        self.express = Line(context, address, keys, QUEUED, now)
        self.heard = self.spoke = now  # when something came, when something went on the express line
        self.silent = False  # and it was said so
        self.resent = 0
        self.posted = self.left = 0  # bytes that came to be sent (by whoever posts), and that went or were forgotten
        self._pairs: dict[Route, Pair] = {}
        self._bare: dict[Route, Frame] = {}  # without a message; the last says all that those before it did
        self._ready: deque[tuple[Route, Frame, bool]] = deque()  # with credit, for the socket; whether it is sent again
        self._again: set[tuple[Route, int]] = set()  # sent before, and among _ready again
        self._parts: list[Buffer] = []  # of the message that the socket did not take
        self._parts_bytes = 0

    @property
    def lines(self) -> tuple[Line, Line]:
        return self.data, self.express

    def put(self, route: Route, frames: Sequence[Frame]) -> None:
        """Frames to be sent: with credit at once, otherwise when there is some."""
        pair = self._pairs.get(route)
        if pair is None:
            pair = self._pairs[route] = Pair(self._limit)
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
            elif sequence > credit.released or (route, sequence) in self._again:
                self.left += frame.nbytes  # it waits here already
            else:
                self._again.add((route, sequence))
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
        """The other side of a route has everything up to here. False: it cannot have, so much was never sent."""
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

    def forget(self) -> None:
        """All that waits and all credit: a new incarnation begins. What the sockets have may still arrive."""
        self._pairs.clear()
        self._bare.clear()
        self._ready.clear()
        self._again.clear()
        self._parts, self._parts_bytes = [], 0
        self.left = self.posted

    @property
    def waiting(self) -> bool:
        return bool(self._ready or self._parts or self._bare)

    def send(self, now: float, encode: Callable[[Route, list[Frame]], list[Buffer]]) -> tuple[int, int]:
        """Give the sockets what they take; (messages, bytes). Where something is left, the line is `blocked`."""
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
                self._parts_bytes = sum(frame.nbytes for frame in frames)
            if not self.data.give(self._parts):
                break
            messages, size = messages + 1, size + sum(map(length, self._parts))
            self.left += self._parts_bytes
            self._parts, self._parts_bytes = [], 0
        return messages, size

    def speak(self, now: float, parts: Sequence[Buffer]) -> bool:
        """Say something short at once; False: it cannot be said now."""
        if not self.express.give(parts):
            return False
        self.spoke = now
        return True

    def _batch(self) -> tuple[Route, list[Frame]]:
        """The next frames, of one route."""
        ready = self._ready
        route = ready[0][0]
        frames: list[Frame] = []
        size = 0
        while ready and ready[0][0] == route and len(frames) < BATCH and size < BATCH_BYTES:
            _, frame, again = ready.popleft()
            frames.append(frame)
            size += frame.nbytes
            if again:  # the first one may leave while the second waits
                self._again.discard((route, frame.sequence))
        return route, frames

    def reopen(self) -> None:
        """Cut both connections and make new ones; what the sockets held is lost."""
        for line in self.lines:
            line.reopen()

    def close(self) -> None:
        for line in self.lines:
            line.close()
