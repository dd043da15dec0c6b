"""Incarnations side by side on one wire: each has its nodes and checks, one that has ended is ignored, none is lost."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from math import inf
from typing import Any

import numpy as np
import pytest

from stretto.comm.link import Frame
from stretto.runtime.cluster.blocks.ring import Block
from stretto.runtime.cluster.hosts.calls import STATES, Address
from stretto.runtime.cluster.net.curve_keys import new_pair
from stretto.runtime.cluster.net.wire import Wire
from wire_ends import JOB, until


class Side:
    """A wire that keeps what arrives, by incarnation."""

    def __init__(self, host: int, patience: float = 5.0) -> None:
        self.host, self.keys = host, new_pair()
        self.got: dict[int, list[int]] = {}
        self.silent: list[int] = []
        self.lock = threading.Lock()
        self.wire = Wire(
            host,
            JOB,
            keys=self.keys,
            deliver=self.deliver,
            tend=lambda now: inf,
            silent=lambda host, seconds: self.silent.append(host),
            patience=patience,
        )

    def deliver(self, now: float, host: int, channel: int, source: int, target: int, frames: list[Frame]) -> None:
        with self.lock:
            for frame in frames:
                self.got.setdefault(frame.incarnation, []).append(frame.message.block)  # type: ignore[union-attr]

    def address(self) -> Address:
        return Address(self.host, self.wire.endpoint, self.keys.public, "here", 0, "")

    def send(self, incarnation: int, number: int) -> None:
        block: Any = Block(0, 0, number, 0, (np.zeros(8, np.uint8),))
        frame = Frame(incarnation, self.host, number, 0, block, False, block.nbytes)
        self.wire.post(1 - self.host, STATES, self.host, 1 - self.host, [frame])


@pytest.fixture
def sides() -> Iterator[tuple[Side, Side]]:
    made = Side(0), Side(1)
    yield made
    for side in made:
        side.wire.close()


def meet(side: Side, sides: tuple[Side, Side], incarnation: int, oldest: int | None = None) -> None:
    side.wire.meet({other.host: other.address() for other in sides}, incarnation, where=(0, 1), oldest=oldest)


def test_two_run_side_by_side(sides: tuple[Side, Side]) -> None:
    here, there = sides
    for side in sides:
        meet(side, sides, 1)
        meet(side, sides, 2, oldest=1)
    for number in range(1, 50):
        here.send(1 + number % 2, (number + 1) // 2)
    until(lambda: sum(map(len, there.got.values())) == 49)
    assert there.got == {1: list(range(1, 25)), 2: list(range(1, 26))}


def test_what_comes_before_its_incarnation_waits_for_it_in_any_order(sides: tuple[Side, Side]) -> None:
    here, there = sides
    meet(here, sides, 1)
    meet(here, sides, 2, oldest=1)
    meet(there, sides, 2, oldest=1)  # the later one first
    here.send(1, 1)
    here.send(2, 1)
    until(lambda: 2 in there.got)
    assert 1 not in there.got
    meet(there, sides, 1, oldest=1)
    until(lambda: there.got.get(1) == [1])


def test_one_that_has_ended_is_ignored_and_the_other_goes_on(sides: tuple[Side, Side]) -> None:
    here, there = sides
    for side in sides:
        meet(side, sides, 1)
        meet(side, sides, 2, oldest=1)
    there.wire.end([1])
    here.send(1, 1)
    here.send(2, 1)
    until(lambda: there.got.get(2) == [1])
    until(lambda: there.wire.counters.dropped == 1)
    assert 1 not in there.got
    here.wire.end([1])
    here.send(1, 2)  # of an incarnation that has ended here: not sent at all
    until(lambda: here.wire.counters.dropped == 1)
    until(lambda: here.wire.backlog(1) == 0)
    meet(there, sides, 3, oldest=3)  # ends all earlier ones
    here.send(2, 2)
    until(lambda: there.wire.counters.dropped == 2)
    assert there.got == {2: [1]}


def test_only_hosts_that_take_part_can_be_silent(sides: tuple[Side, Side]) -> None:
    """A host that has had nothing to do has not met the others, and sends no heartbeats."""
    asks, idle = Side(2, patience=0.2), sides
    roster = {side.host: side.address() for side in (*idle, asks)}
    try:
        asks.wire.meet(roster, 1, where=(2, 1))
        until(lambda: 1 in asks.silent)
        assert asks.silent == [1]
        asks.wire.meet(roster, 2, where=(0, 2), oldest=2)
        until(lambda: 0 in asks.silent)
        assert asks.silent == [1, 0]
    finally:
        asks.wire.close()
