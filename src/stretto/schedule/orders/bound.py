"""Parallel efficiency of an order on W workers: critical path, and a simulated list schedule.

All visits of a row block follow one another. `longest` is the heaviest chain of such visits in the whole order (the
critical path). `span` is the time of the runtime's list schedule (heaviest ready visit first) if an entry costs one
unit of time.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np

from .order import Ints, Order, part_of


@dataclass(frozen=True)
class Bound:
    """Bounds of the run time of an order, in entries."""

    workers: int  # number of workers
    total: int  # all work
    longest: int  # work on the critical path
    span: int  # time of a list schedule on these workers

    @property
    def efficiency(self) -> float:
        """Share of time that workers are busy in the list schedule, at most 1."""
        return self.total / (self.workers * self.span) if self.span else 1.0

    @property
    def limit(self) -> float:
        """Upper bound of `efficiency` for any schedule of this order."""
        return min(1.0, self.total / (self.workers * self.longest)) if self.longest else 1.0


def longest_chain(order: Order, weight: Ints) -> int:
    """Entries on the heaviest chain of visits that wait for each other."""
    return int(order.tails(weight).max(initial=0))


def play(order: Order, weight: Ints, workers: int) -> list[tuple[int, int, int, int]]:
    """Simulate the list schedule: (visit, worker, start, end). A free worker takes the visit with the heaviest tail."""
    row_next = order.row_first[:-1].tolist()
    row_end = order.row_first[1:].tolist()
    visits = order.row_visits.tolist()
    row_block, col_block = order.row_block.tolist(), order.col_block.tolist()
    col_turn, weights = order.col_turn.tolist(), weight.tolist()
    tails = order.tails(weight).tolist()
    col_done = [0] * order.cols
    waiting: dict[tuple[int, int], int] = {}  # (column block, turn) → visit whose row block is free
    ready: list[tuple[int, int]] = []
    running: list[tuple[int, int, int]] = []
    idle = list(range(workers - 1, -1, -1))
    now, done = 0, []

    def offer(row: int) -> None:
        if row_next[row] < row_end[row]:
            v = visits[row_next[row]]
            key = (col_block[v], col_turn[v])
            if col_done[key[0]] == key[1]:
                heapq.heappush(ready, (-tails[v], v))
            else:
                waiting[key] = v

    for row in range(order.rows):
        offer(row)
    while ready or running:
        while ready and idle:
            _, v = heapq.heappop(ready)
            worker = idle.pop()
            done.append((v, worker, now, now + weights[v]))
            heapq.heappush(running, (now + weights[v], worker, v))
        now, worker, v = heapq.heappop(running)
        idle.append(worker)
        row_next[row_block[v]] += 1
        col = col_block[v]
        col_done[col] += 1
        freed = waiting.pop((col, col_done[col]), None)
        if freed is not None:
            heapq.heappush(ready, (-tails[freed], freed))
        offer(row_block[v])
    return done


def play_waves(order: Order, weight: Ints, workers: int, waves: tuple[Ints, ...]) -> list[tuple[int, int, int, int]]:
    """As `play`, for visits that run in waves, one wave after the other; no waves: all visits are one wave."""
    if not waves:
        return play(order, weight, workers)
    now, done = 0, []
    for wave in waves:
        part = play(part_of(order, wave), weight[wave], workers)
        done += [(int(wave[visit]), worker, now + start, now + end) for visit, worker, start, end in part]
        now = max((end for *_, end in done), default=now)
    return done


def bound(order: Order, weight: Ints, workers: int, waves: tuple[Ints, ...] = ()) -> Bound:
    """The bound of an order for a number of workers. waves: visits that run together, one wave after the other."""
    schedule = play_waves(order, weight, workers, waves)
    parts = [(part_of(order, wave), weight[wave]) for wave in waves] or [(order, weight)]
    return Bound(
        workers,
        int(np.sum(weight)),
        sum(longest_chain(*part) for part in parts),
        max((end for *_, end in schedule), default=0),
    )
