"""Times of a run at which evaluations are due: a period in seconds, or given seconds."""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass
from typing import Protocol


class Times(Protocol):
    """Seconds of a run at which evaluations are due."""

    def after(self, now: float) -> float:
        """The first one later than `now`; infinity if there is none."""


@dataclass(frozen=True)
class Period:
    """A fixed period in seconds.

    >>> Period(0.5).after(1.2)
    1.5
    """

    seconds: float

    def after(self, now: float) -> float:
        turn = math.floor(now / self.seconds) + 1
        while turn * self.seconds <= now:  # rounding
            turn += 1
        return turn * self.seconds


@dataclass(frozen=True)
class TimePoints:
    """At these seconds, ascending.

    >>> TimePoints((1.0, 5.0)).after(1.0)
    5.0
    """

    seconds: tuple[float, ...]

    def after(self, now: float) -> float:
        place = bisect_right(self.seconds, now)
        return self.seconds[place] if place < len(self.seconds) else math.inf
