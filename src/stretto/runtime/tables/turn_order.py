"""Limit how many worker threads run at a time; the one at the lowest clock goes first.

A worker releases its turn while it waits, when it ends, and at a tick while another one is further behind. So workers
stay close together even where no rule requires it.

Everything is called with the lock held, except `ending`, which may be read at any time.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from heapq import heappop, heappush
from itertools import count

from .job import WorkerExit


class WaitingWorker:
    """The waiting state of one worker's thread."""

    def __init__(self, worker: int, clock: int, ended: bool, turns: TurnOrder) -> None:
        self.worker, self.clock, self.ended, self.unticked = worker, clock, ended, False
        self.parked = False  # waits, and was not woken
        self.turn = False  # one of the `n` that run
        self.condition = threading.Condition(turns.lock)


class TurnOrder:
    """Hands out `n` turns. `ending`: all workers end at their next call, and none waits any more."""

    def __init__(self, n: int) -> None:
        self.lock = threading.Lock()
        self.ending = False
        self._left = n
        self._ready: list[tuple[int, int, WaitingWorker]] = []  # (clock, arrival, worker) that want a turn
        self._came = count()

    def take(self, waiter: WaitingWorker) -> None:
        """Wait for a turn."""
        heappush(self._ready, (waiter.clock, next(self._came), waiter))
        self._give()
        while not (waiter.turn or self.ending):
            waiter.condition.wait()

    def drop(self, waiter: WaitingWorker) -> None:
        """Release the turn, if it has one."""
        if waiter.turn:
            waiter.turn = False
            self._left += 1
            self._give()

    def yield_(self, waiter: WaitingWorker) -> None:
        """Let workers that are further behind go first."""
        if self._ready and self._ready[0][0] < waiter.clock:
            self.drop(waiter)
            self.take(waiter)

    def park(self, waiter: WaitingWorker) -> None:
        """Wait, without a turn, until woken; the caller then checks its condition again."""
        waiter.parked = True
        self.drop(waiter)
        while waiter.parked and not self.ending:
            waiter.condition.wait()
        self.take(waiter)
        if self.ending:
            raise WorkerExit

    def rouse(self, waiter: WaitingWorker) -> None:
        """Wake a worker whose condition may hold now."""
        waiter.parked = False
        waiter.condition.notify()

    def end(self, waiters: Sequence[WaitingWorker]) -> None:
        """Wake all workers permanently: the run ends."""
        self.ending = True
        for waiter in waiters:
            waiter.condition.notify_all()

    def _give(self) -> None:
        while self._left and self._ready:
            waiter = heappop(self._ready)[2]
            waiter.turn = True
            self._left -= 1
            waiter.condition.notify()
