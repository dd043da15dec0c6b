"""Back-pressure of a job over tables: workers wait while too many bytes are queued for other hosts."""

from __future__ import annotations

from collections.abc import Callable
from math import inf

from stretto.runtime.tables.turn_order import WaitingWorker

BACKLOG = 64 << 20  # bytes queued for another host, beyond which workers wait
EASED = 0.02  # seconds between two checks of the queued bytes


class Pressure:
    """Back-pressure: whether too many bytes are queued for other hosts.

    Any thread may read `high`; the rest needs the lock. `waiting` are the workers to wake when it is over.
    """

    def __init__(self, backlog: Callable[[], int]) -> None:
        self.high = False
        self.waiting: list[WaitingWorker] = []
        self._backlog = backlog
        self._next = -inf

    def look(self, now: float) -> bool:
        """Check the queued bytes, unless that was done a moment ago."""
        if now >= self._next:
            self._next = now + EASED
            self.high = self._backlog() > BACKLOG
        return self.high
