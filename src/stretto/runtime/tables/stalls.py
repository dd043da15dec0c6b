"""Detect workers that do not tick for a long time (stall warnings). Pure decisions, without a clock.

    stalls = Stalls(after=60.0)
    for found in stalls.see(now, {0: Seen(7, "read"), 1: Seen(6, "")}): …      # worker 1 has been in clock 6 for 60 s

A worker is reported when it has been in the same clock for `after` seconds without waiting for others, and again each
time that duration has doubled. It may compute or be in an endless loop: that cannot be distinguished, so the run goes
on.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import NamedTuple

AFTER = 60.0  # seconds


class WorkerPosition(NamedTuple):
    """The status of a worker."""

    clock: int
    waits: str  # what it waits for; "" if nothing


class Stalled(NamedTuple):
    """A worker to report."""

    worker: int
    clock: int
    seconds: float
    waiting: int  # how many others wait meanwhile

    def __str__(self) -> str:
        others = f", and {self.waiting} others wait" if self.waiting > 1 else ", and another waits" * self.waiting
        return (
            f"worker {self.worker} has been in clock {self.clock} for {self.seconds:.0f} s without a tick{others}; if "
            "its clocks do not take so long, it is in an endless loop, or waits for something of its own. Ctrl-C twice "
            "ends the run"
        )


class Stalls:
    """Progress of the workers so far.

    Parameters
    ----------
    after : float or None
        Seconds; None for AFTER.
    """

    def __init__(self, after: float | None = None) -> None:
        self.after = AFTER if after is None else after
        self._since: dict[int, tuple[int, float, float]] = {}  # worker → (clock, since when, when to report it)

    def see(self, now: float, seen: Mapping[int, WorkerPosition]) -> list[Stalled]:
        """Workers to report now. `seen`: workers that have not ended."""
        found = []
        waiting = sum(bool(one.waits) for one in seen.values())
        for worker, (clock, waits) in seen.items():
            before, since, due = self._since.get(worker, (-1, now, now + self.after))
            if before != clock:
                since, due = now, now + self.after
            if waits:
                due = max(due, now + self.after)  # counted from the end of its wait
            elif now >= due:
                found.append(Stalled(worker, clock, now - since, waiting))
                due = now + (now - since)
            self._since[worker] = clock, since, due
        return found


def warn(found: list[Stalled]) -> None:
    """Warn the user about up to three workers."""
    for stalled in found[:3]:
        warnings.warn(str(stalled), RuntimeWarning, stacklevel=2)
    if len(found) > 3:
        warnings.warn(f"{len(found) - 3} more workers have not ticked for as long", RuntimeWarning, stacklevel=2)
