"""Two ends of a wire for tests: a node on each host, with a link to the other, real sockets between them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from stretto.comm.link import Frame, Link
from stretto.comm.messages import HEADER, KEY, Message, Update
from stretto.runtime.cluster.hosts.calls import TABLES, Address
from stretto.runtime.cluster.net.curve_keys import KeyPair, new_pair
from stretto.runtime.cluster.net.frame_checks import Checker, TableCheck
from stretto.runtime.cluster.net.wire import Wire
from stretto.store.layout import Layout, TableSpec
from stretto.store.shard.functions import add

JOB = "0123456789abcdef0123456789abcdef"
ROWS, COLS = 1000, 4
AGAIN = 0.2  # seconds after which a link sends again what was not acknowledged


def layout() -> Layout:
    return Layout((TableSpec("rows", add, rows=ROWS, cols=COLS, partition="range"),), nodes=2, workers=2)


def update(number: int, source: int = 0, rows: int = 8) -> Update:
    """A change whose values tell its number; its rows are those of the other node's shard."""
    first = 0 if source == 1 else ROWS // 2
    keys = first + np.arange(rows, dtype=np.int64) % (ROWS // 2)
    deltas = np.full((rows, COLS), number, np.float32)
    return Update(0, source, number, number, -1, keys, deltas, HEADER + KEY * rows + deltas.nbytes)


def raw(parts: Sequence[Any]) -> list[bytes]:
    """The parts of a message as the other side gets them."""
    return [memoryview(part).cast("B").tobytes() for part in parts]


def until(true: Callable[[], object], seconds: float = 20.0) -> None:
    """Wait for something that another thread brings about."""
    deadline = time.monotonic() + seconds
    tick = threading.Event()
    while not true():
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds} s")
        tick.wait(0.002)


class End:
    """Host `host`, which holds node `host`."""

    def __init__(
        self, host: int, *, job: str = JOB, keys: KeyPair | None = None, every: int = 8, **options: Any
    ) -> None:
        self.host, self.other = host, 1 - host
        self.keys: KeyPair | None = keys or new_pair()
        if options.pop("plain", False):
            self.keys = None
        self.lock = threading.RLock()
        self.link = Link(host, self.other, 0, every)
        self.got: list[Any] = []  # messages
        self.seen: list[tuple[int, int, int, int]] = []  # host, channel, source, target of every delivery
        self.silences: list[tuple[int, float]] = []
        self.resets: list[int] = []
        self.acknowledges = True
        self._quiet_since = time.monotonic()
        self.wire = Wire(
            host,
            job,
            keys=self.keys,
            deliver=self.deliver,
            tend=self.tend,
            silent=self._silent,
            reset=self._reset,
            **options,
        )

    def address(self, endpoint: str = "") -> Address:
        public = "" if self.keys is None else self.keys.public
        return Address(self.host, endpoint or self.wire.endpoint, public, "here", 0, "")

    def deliver(self, now: float, host: int, channel: int, source: int, target: int, frames: list[Frame]) -> None:
        with self.lock:
            self.seen.append((host, channel, source, target))
            if source != self.other:
                return
            before = self.link.unacknowledged
            for frame in frames:
                if frame.incarnation == self.link.incarnation:
                    self.got += self.link.receive(frame)
            if self.link.unacknowledged < before:
                self._quiet_since = now
            replies, self.link.replies = self.link.replies, []
            if replies and self.acknowledges:
                self.wire.post(host, channel, self.host, source, replies)

    def tend(self, now: float) -> float:
        with self.lock:
            owed = self.link.acknowledgement()
            if owed is not None and self.acknowledges:
                self.wire.post(self.other, TABLES, self.host, self.other, [owed])
            if self.link.unacknowledged and now - self._quiet_since > AGAIN:
                self._quiet_since = now
                self.wire.post(self.other, TABLES, self.host, self.other, self.link.reset())
        return now + AGAIN / 4

    def send(self, *messages: Message) -> None:
        with self.lock:
            if not self.link.unacknowledged:
                self._quiet_since = time.monotonic()
            frames = [self.link.send(message) for message in messages]
            self.wire.post(self.other, TABLES, self.host, self.other, frames)

    def numbers(self) -> list[int]:
        return [message.number for message in self.got if isinstance(message, Update)]

    def _silent(self, host: int, seconds: float) -> None:
        self.silences.append((host, seconds))

    def _reset(self, now: float, host: int) -> None:
        self.resets.append(host)
        with self.lock:
            self.wire.post(self.other, TABLES, self.host, self.other, self.link.reset())


@contextmanager
def ends(check: Checker | None = None, meet: bool = True, **options: Any) -> Iterator[tuple[End, End]]:
    """Two that have met, in incarnation 0."""
    here, there = End(0, **options), End(1, **options)
    try:
        if meet:
            roster = {0: here.address(), 1: there.address()}
            for end in (here, there):
                end.wire.meet(roster, 0, where=(0, 1), check=check or TableCheck(layout()))
        yield here, there
    finally:
        here.wire.close()
        there.wire.close()
