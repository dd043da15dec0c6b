"""Jobs of one round that wait for each other: which may start now, and which of those goes first.

Most rounds need none of this: their jobs read the same parameters and may run in any order. The jobs of a rotation hand
blocks on to each other inside a round. An `Order` says who hands to whom; waves put a barrier between groups of jobs;
a place in the queue says which of the jobs that are ready is taken first. Waves and places decide only *when* a job
starts: whatever they are, it finds what the jobs before it in the order have left, so no number changes.

    queue = Queue(turns)
    queue.ready                 # [(place, job), …], a heap
    queue.finish(job)           # jobs that waited for it may become ready
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np

from stretto.cached import cached_property
from stretto.errors import PlanError

from .orders.order import Ints, Order, part_of


@dataclass(frozen=True, eq=False)
class Turns:
    """The order of V jobs, numbered in a valid serial order.

    waves: jobs that run together, each wave after the one before it has ended; none: no barrier. place [V]: of the jobs
    that are ready, the one with the smallest goes first.
    """

    order: Order
    waves: tuple[Ints, ...]
    place: Ints

    def __post_init__(self) -> None:
        if len(self.place) != len(self.order):
            raise PlanError(f"{len(self.order)} jobs need as many places, got {len(self.place)}")
        if self.waves and not np.array_equal(np.sort(np.concatenate(self.waves)), np.arange(len(self.order))):
            raise PlanError("every job belongs to exactly one wave")

    def __len__(self) -> int:
        return len(self.order)

    @cached_property
    def waits(self) -> list[int]:
        """[V] how many jobs each waits for: at most the one before it on either of its blocks."""
        waits: list[int] = ((self.order.row_turn > 0).astype(np.int64) + (self.order.col_turn > 0)).tolist()
        return waits

    @cached_property
    def followers(self) -> list[list[int]]:
        """[V] the jobs that wait for each."""
        order = self.order
        found: list[list[int]] = [[] for _ in range(len(self))]
        for block, turn in ((order.row_block, order.row_turn), (order.col_block, order.col_turn)):
            by_turn = np.lexsort((turn, block))
            for before, after in zip(by_turn[:-1].tolist(), by_turn[1:].tolist(), strict=True):
                if block[before] == block[after]:
                    found[before].append(after)
        return found

    @cached_property
    def passes(self) -> tuple[tuple[Ints, Order], ...]:
        """What compiled workers run one after another: the jobs of each pass, and their order among themselves.

        Workers that claim visits take `-place` as their priority.
        """
        if not self.waves:
            return ((np.arange(len(self), dtype=np.int64), self.order),)
        return tuple((wave, part_of(self.order, wave)) for wave in self.waves)

    @cached_property
    def wave_of(self) -> list[int]:
        """[V] the wave of each job."""
        found = [0] * len(self)
        for number, wave in enumerate(self.waves):
            for job in wave.tolist():
                found[job] = number
        return found


class Queue:
    """How far the jobs of one round have got."""

    def __init__(self, turns: Turns) -> None:
        self.turns = turns
        self.ready: list[tuple[int, int]] = []
        self.left = len(turns)
        self._waits = list(turns.waits)
        self._place = turns.place.tolist()
        self._wave = -1
        self._in_wave = 0
        self._next_wave()

    def finish(self, job: int) -> None:
        """The job is done, and what it left behind is there for others to read."""
        self.left -= 1
        self._in_wave -= 1
        for follower in self.turns.followers[job]:
            self._waits[follower] -= 1
            if not self._waits[follower] and self.turns.wave_of[follower] == self._wave:
                self._offer(follower)
        if not self._in_wave and self.left:
            self._next_wave()

    def _next_wave(self) -> None:
        self._wave += 1
        waves = self.turns.waves
        jobs: list[int] = waves[self._wave].tolist() if waves else list(range(len(self.turns)))
        self._in_wave = len(jobs)
        for job in jobs:
            if not self._waits[job]:
                self._offer(job)

    def _offer(self, job: int) -> None:
        heapq.heappush(self.ready, (self._place[job], job))
