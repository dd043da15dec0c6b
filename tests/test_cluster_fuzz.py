"""Malformed frames by the thousand at a wire that works: nothing changes, nothing grows, nothing ends.

Who throws them holds the key of a host of the job, the most that a stranger could steal, and connects beside it.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import zmq

from stretto.comm.link import Frame
from stretto.comm.messages import Update
from stretto.runtime.cluster.blocks.ring import Block
from stretto.runtime.cluster.hosts.calls import RING, TABLES
from stretto.runtime.cluster.net.envelope import PROTOCOL, Envelopes
from wire_ends import COLS, JOB, ROWS, End, ends, raw, until, update

Parts = list[bytes]
OLD = 40  # messages that have arrived before; what is forged has their numbers, or far later ones
FAR = 10**9
PREFIX = struct.Struct("<2sHIIIII")
SIZES = [-(2**62), -1, 0, 1, 2, 3, 7, 8, 100, 2**16, 2**31, 2**32, 2**40, 2**59, 2**61, 2**62, 2**63 - 1]
MEMORY = 96 << 20  # bytes the process may grow by: what is kept of a next incarnation, queues, and Python's own ways


class Fuzzer:
    """Makes malformed messages of every kind, from a seed."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.post = Envelopes(JOB, 0)
        self.job = zlib.crc32(JOB.encode())
        self.valid = [self.honest(number) for number in range(1, OLD + 1)]
        self.kinds: list[Callable[[], Parts]] = [
            self.noise,
            self.flipped,
            self.cut,
            self.joined,
            self.forged,
            self.wrong_rows,
            self.replayed,
            self.other_incarnation,
            self.ring,
        ]

    def throw(self) -> Parts:
        return self.kinds[self.pick(len(self.kinds))]()

    def pick(self, n: int) -> int:
        return int(self.random.integers(n))

    def one_of(self, of: list[Any]) -> Any:
        return of[self.pick(len(of))]

    def honest(self, number: int, incarnation: int = 0) -> Parts:
        message = update(number, 0, rows=3000 if number % 10 == 0 else 8)
        return self.encode(Frame(incarnation, 0, number, 0, message, False, message.nbytes))

    def encode(self, frame: Frame, channel: int = TABLES) -> Parts:
        return raw(self.post.encode(channel, 0, 1, [frame]))

    def noise(self) -> Parts:
        return [self.random.bytes(self.pick(300)) for _ in range(1 + self.pick(3))]

    def flipped(self) -> Parts:
        parts = [bytearray(part) for part in self.one_of(self.valid)]
        for _ in range(1 + self.pick(4)):
            part = parts[self.pick(len(parts))]
            part[self.pick(len(part))] ^= 1 << self.pick(8)
        return [bytes(part) for part in parts]

    def cut(self) -> Parts:
        parts = list(self.one_of(self.valid))
        if len(parts) > 1 and self.pick(2):
            return parts[:-1]
        at = self.pick(len(parts))
        parts[at] = parts[at][: self.pick(len(parts[at]))]
        return parts

    def joined(self) -> Parts:
        return [*self.one_of(self.valid), *self.one_of(self.valid)]

    def sealed(self, head: Any, rest: bytes = b"", parts: Parts | None = None) -> Parts:
        """With the right checksum: as a program of ours with an error would send it."""
        header = msgspec.msgpack.encode(head)
        body = header + b"\0" * (-len(header) % 8) + rest
        large = parts or []
        prefix = PREFIX.pack(b"st", PROTOCOL, self.job, 0, len(header), zlib.crc32(body, self.job), len(large))
        return [prefix + body, *large]

    def forged(self) -> Parts:
        """Numbers of every size, where counts and sizes are expected."""
        sequence = self.one_of([self.pick(OLD) + 1, FAR + self.pick(1000)])
        numbers = [self.one_of(SIZES) for _ in range(self.pick(16))]
        kind = self.one_of([*range(11), 2**40])
        frame = self.one_of(
            [
                [sequence, 0, 0, kind, *numbers],
                [sequence, FAR, 0, kind, *numbers],
                [0, FAR, self.pick(3)],
                [0, 0, 0, kind],
                [sequence, 0],
                [],
                ["a", None],
            ]
        )
        head = self.one_of(
            [
                [TABLES, 0, 0, 1, [frame]],
                [TABLES, 0, self.one_of(SIZES), self.one_of(SIZES), [frame]],
                [self.one_of(SIZES), 0, 0, 1, [frame]],
                [TABLES, 0, 0, 1, [frame] * 600],
                [TABLES, 0, 0, 1],
                {"channel": 0},
                [TABLES, 0, 0, 1, "frames"],
            ]
        )
        return self.sealed(head, self.random.bytes(8 * self.pick(40)))

    def wrong_rows(self) -> Parts:
        """An update that is right in itself, of rows that do not exist or look otherwise."""
        n = 1 + self.pick(6)
        keys = self.one_of([np.arange(n) + ROWS, np.arange(n) - 3, np.arange(n), np.full(n, 2**62)]).astype(np.int64)
        cols = self.one_of([COLS, COLS + 1, 1])
        dtype = self.one_of(["f4", "f8", "i4", "i8"])
        table = self.one_of([0, 1, 7])
        deltas = self.random.normal(size=(n, cols)).astype(dtype)
        message = Update(table, 0, 1, 1, 0, keys, deltas, 100)
        return self.encode(Frame(0, 0, self.pick(OLD) + 1, 0, message, False, 100))

    def replayed(self) -> Parts:
        return list(self.one_of(self.valid))

    def other_incarnation(self) -> Parts:
        return self.honest(self.pick(OLD) + 1, self.one_of([1, 2, 2**40]))

    def ring(self) -> Parts:
        block: Any = Block(0, 0, 0, 0, (np.zeros(self.pick(20_000), np.uint8),))
        return self.encode(Frame(0, 0, FAR, 0, block, False, 100), self.one_of([TABLES, RING]))


def resident() -> int:
    """Bytes of memory this process holds."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def applied(end: End) -> Any:
    """[ROWS, COLS] what the messages that arrived add up to."""
    table = np.zeros((ROWS, COLS), np.float64)
    for message in end.got:
        assert isinstance(message, Update)
        np.add.at(table, message.keys, message.deltas.astype(np.float64))
    return table


def attack(frames: int, seed: int) -> None:
    fuzzer = Fuzzer(seed)
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    thief = context.socket(zmq.PUSH)
    thief.linger, thief.sndtimeo = 0, 30_000
    try:
        with ends() as (here, there):
            assert here.keys is not None
            assert there.keys is not None
            thief.curve_serverkey = there.keys.public.encode()
            thief.curve_publickey, thief.curve_secretkey = here.keys.public.encode(), here.keys.secret.encode()
            thief.connect(there.wire.endpoint)
            sent = OLD
            here.send(*[update(number, 0) for number in range(1, OLD + 1)])
            there.send(*[update(number, 1) for number in range(1, OLD + 1)])
            until(lambda: len(here.got) == len(there.got) == OLD)
            until(lambda: not here.link.unacknowledged and not there.link.unacknowledged)
            memory = 0
            for thrown in range(frames):
                thief.send_multipart(fuzzer.throw())
                if thrown % max(100, frames // 500) == 0:
                    sent += 1
                    here.send(update(sent, 0, rows=1000 if sent % 7 == 0 else 8))
                    there.send(update(sent, 1))
                if thrown == frames // 4:
                    memory = resident()
            until(lambda: len(here.got) == len(there.got) == sent, 60)
            until(lambda: there.wire.counters.received >= frames, 60)
            assert here.numbers() == there.numbers() == list(range(1, sent + 1))
            expected = np.zeros((ROWS, COLS))
            for number in range(1, sent + 1):
                rows = 1000 if number > OLD and number % 7 == 0 else 8
                np.add.at(expected, ROWS // 2 + np.arange(rows) % (ROWS // 2), float(number))
            assert np.array_equal(applied(there), expected)
            counters = there.wire.counters
            assert counters.failures == 0
            assert counters.strangers == 0
            assert counters.malformed + counters.dropped + there.link.duplicates > 0.8 * frames
            assert len(counters.reasons) > 12, counters.reasons
            assert resident() - memory < MEMORY
    finally:
        thief.close(0)
        context.term()


@pytest.mark.parametrize("seed", [1, 2])
def test_malformed_frames_change_nothing(seed: int) -> None:
    attack(10_000, seed)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_million_malformed_frames_change_nothing() -> None:
    attack(1_000_000, 3)
