"""Dependencies between the jobs of one round: which jobs may start now, and which of them starts first.

The jobs of most rounds read the same parameters and may run in any order. The jobs of a rotation pass blocks to each
other inside a round. An `Order` defines which job follows which; waves put a barrier between groups of jobs; a place in
the queue decides which ready job starts first. Waves and places decide only *when* a job starts. A job always reads
what earlier jobs in the order wrote, so no result changes.

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
class JobOrder:
    """The dependencies of V jobs, numbered in a valid serial order."""

    order: Order  # which job follows which
    waves: tuple[Ints, ...]  # jobs that run together, one wave after the other; (): no barriers
    place: Ints  # [V] the ready job with the smallest place starts first

    def __post_init__(self) -> None:
        if len(self.place) != len(self.order):
            raise PlanError(f"{len(self.order)} jobs need as many places, got {len(self.place)}")
        if self.waves and not np.array_equal(np.sort(np.concatenate(self.waves)), np.arange(len(self.order))):
            raise PlanError("every job belongs to exactly one wave")

    def __len__(self) -> int:
        return len(self.order)

    @cached_property
    def waits(self) -> list[int]:
        """[V] number of jobs that each waits for: at most one for each of its two blocks."""
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
        """Passes of compiled workers, one after another: the jobs of each pass, and their order.

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
    """The jobs of one round that are ready, and those that wait."""

    def __init__(self, turns: JobOrder) -> None:
        self.turns = turns
        self.ready: list[tuple[int, int]] = []
        self.left = len(turns)
        self._waits = list(turns.waits)
        self._place = turns.place.tolist()
        self._wave = -1
        self._in_wave = 0
        self._next_wave()

    def finish(self, job: int) -> None:
        """Note that a job is done and its writes are visible to others."""
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
