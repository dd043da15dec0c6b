"""Entries that are read in parts by several nodes: everything arrives once, in the order of its part, at its owner."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from numpy.typing import NDArray

from stretto.errors import DataError, RunError
from stretto.runtime.blocks.parted import Exchange, whole_grains
from stretto.runtime.blocks.source import GRAIN, Chunk


class Numbers:
    """Entry k has value k; its row is drawn from a seed. lengths: entries of each part."""

    shape = (1000, 7)
    readers: NDArray[np.int64] | None = None

    def __init__(self, lengths: list[int], chunk: int = 64, fails_at: int = -1) -> None:
        self.lengths, self._chunk, self._fails_at = lengths, chunk, fails_at
        self.before = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        self.rows = np.random.default_rng(0).integers(0, self.shape[0], int(self.before[-1])).astype(np.int32)
        self.read: list[int] = []

    def __len__(self) -> int:
        return int(self.before[-1])

    @property
    def parts(self) -> int:
        return len(self.lengths)

    def part(self, number: int) -> Iterator[Chunk]:
        self.read.append(number)
        if number == self._fails_at:
            raise DataError("part.csv: the file changed")
        for at in range(int(self.before[number]), int(self.before[number + 1]), self._chunk):
            k = np.arange(at, min(at + self._chunk, int(self.before[number + 1])))
            yield self.rows[k], (k % 7).astype(np.int32), k.astype(np.float32)

    def chunks(self) -> Iterator[Chunk]:
        for number in range(self.parts):
            yield from self.part(number)


def connect(nodes: int, seed: int) -> list[Exchange]:
    """Exchanges whose messages take a while; those from one to another stay in order."""
    made: list[Exchange] = []
    locks = {(a, b): threading.Lock() for a in range(nodes) for b in range(nodes)}
    drawn = random.Random(seed)

    def wired(node: int) -> Exchange:
        def send(to: int, part: int, chunk: Any) -> None:
            with locks[node, to]:
                time.sleep(drawn.random() * 1e-4)
                made[to].arrives(node, part, chunk)

        return Exchange(node, nodes, send, lambda source: made[source].was_taken(node))

    made += [wired(node) for node in range(nodes)]
    return made


def exchange(source: Numbers, nodes: int, seed: int = 0) -> tuple[list[Any], list[BaseException], NDArray[np.int64]]:
    """What every node got, what was raised, and the node of each row."""
    to = np.random.default_rng(seed).integers(0, nodes, source.shape[0])
    made, raised = connect(nodes, seed), list[BaseException]()
    got: list[Any] = [[] for _ in range(nodes)]

    def run(node: int) -> None:
        try:
            got[node].extend(made[node].walk(source, to))
        except (DataError, RunError) as error:
            raised.append(error)
            for one in made:
                one.halt()

    threads = [threading.Thread(target=run, args=(node,)) for node in range(nodes)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert not any(thread.is_alive() for thread in threads)
    return got, raised, to


@settings(max_examples=30, deadline=None)
@given(some.lists(some.integers(0, 700), min_size=1, max_size=9), some.integers(1, 4), some.integers(0, 99))
def test_everything_arrives_once_and_in_order(lengths: list[int], nodes: int, seed: int) -> None:
    source = Numbers(lengths)
    got, raised, to = exchange(source, nodes, seed)
    assert not raised
    assert sorted(source.read) == list(range(len(lengths))), "every part is read once"
    for node in range(nodes):
        for part in range(len(lengths)):
            values = [v for number, chunk in got[node] if number == part for v in chunk[2].tolist()]
            own = np.arange(source.before[part], source.before[part + 1])
            assert values == own[to[source.rows[own]] == node].tolist()


def test_what_cannot_be_read_is_raised_and_nobody_waits_for_ever() -> None:
    _, raised, _ = exchange(Numbers([500] * 6, fails_at=4), 3)
    assert any(isinstance(error, DataError) for error in raised)


def test_rows_that_do_not_exist_are_refused() -> None:
    one = Exchange(0, 2, lambda *_: None, lambda _: None)
    outside = np.array([1000], np.int32)
    one.arrives(1, 0, (outside, outside, np.ones(1, np.float32)))
    source = Numbers([0, 0])
    with pytest.raises(RunError, match="rows outside the shape of the data"):
        list(one.walk(source, np.zeros(1000, np.int64)))


@settings(max_examples=15, deadline=None)
@given(some.lists(some.integers(0, 2 * GRAIN + 5), min_size=1, max_size=6), some.integers(1, 3))
def test_grains_are_those_of_the_whole(lengths: list[int], hosts: int) -> None:
    source = Numbers(lengths, chunk=5000)
    found: dict[int, int] = {}
    for host in range(hosts):
        for _, _, values in whole_grains(source, range(host, len(lengths), hosts)):
            for at in range(0, len(values), GRAIN):
                piece = values[at : at + GRAIN]
                assert piece[0] % GRAIN == 0
                np.testing.assert_array_equal(piece, piece[0] + np.arange(len(piece), dtype=np.float32))
                found[int(piece[0])] = len(piece)
    whole = len(source)
    assert found == {at: min(GRAIN, whole - at) for at in range(0, whole, GRAIN)}
