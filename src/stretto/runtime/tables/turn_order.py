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

    def take(self, sitter: WaitingWorker) -> None:
        """Wait for a turn."""
        heappush(self._ready, (sitter.clock, next(self._came), sitter))
        self._give()
        while not (sitter.turn or self.ending):
            sitter.condition.wait()

    def drop(self, sitter: WaitingWorker) -> None:
        """Release the turn, if it has one."""
        if sitter.turn:
            sitter.turn = False
            self._left += 1
            self._give()

    def yield_(self, sitter: WaitingWorker) -> None:
        """Let workers that are further behind go first."""
        if self._ready and self._ready[0][0] < sitter.clock:
            self.drop(sitter)
            self.take(sitter)

    def park(self, sitter: WaitingWorker) -> None:
        """Wait, without a turn, until woken; the caller then checks its condition again."""
        sitter.parked = True
        self.drop(sitter)
        while sitter.parked and not self.ending:
            sitter.condition.wait()
        self.take(sitter)
        if self.ending:
            raise WorkerExit

    def rouse(self, sitter: WaitingWorker) -> None:
        """Wake a worker whose condition may hold now."""
        sitter.parked = False
        sitter.condition.notify()

    def end(self, sitters: Sequence[WaitingWorker]) -> None:
        """Wake all workers permanently: the run ends."""
        self.ending = True
        for sitter in sitters:
            sitter.condition.notify_all()

    def _give(self) -> None:
        while self._left and self._ready:
            sitter = heappop(self._ready)[2]
            sitter.turn = True
            self._left -= 1
            sitter.condition.notify()
