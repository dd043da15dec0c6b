"""`KnobState`: one knob of the adaptive controller, and where its next trial goes.

A knob goes on in a direction with longer steps while trials succeed, and halves a step that failed until it is one
rung. After that the other direction is next; a knob that failed in both rests.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from .knobs import STALENESS, KnobLadder

STALE = 0.2  # relative change of the progress of a window that another staleness is expected to make, at most


@dataclass(eq=False)
class KnobState:
    """One knob: where it is, and how its trials went."""

    ladder: KnobLadder
    rung: int
    low: int = 0  # rungs that may be tried
    high: int = 0
    direction: int = 1
    reach: int = 1  # rungs of the next step
    failures: int = 0
    ready: int = 0  # the window from which it may be tried
    careful: bool = False  # the run is flat: the next trial lowers it
    tried: int = 0  # the window of its last trial
    left: int | None = None  # the rung that it was moved from last, which is known to be worse

    @property
    def is_staleness(self) -> bool:
        """Whether it says how stale reads may be."""
        return self.ladder.kind == STALENESS

    @property
    def expected(self) -> float:
        """By how much its settings change the progress of a window, relative; infinity where nothing is expected."""
        return STALE if self.is_staleness else math.inf

    def target(self, waited: float | None = None) -> int:
        """The rung of the next trial; the current one if there is none to try.

        waited: share of time in which workers waited. It bounds what staleness can gain, so it says how far to go.
        """
        for direction in dict.fromkeys((-1 if self.careful else self.direction, self.direction, -self.direction)):
            reach = self.reach if direction == self.direction and not self.careful else 1
            if self.is_staleness and direction > 0 and self.failures == 0 and waited is not None:
                reach = max(reach, math.ceil(waited * (self.high - self.rung)))
            rung = min(self.high, max(self.low, self.rung + direction * reach))
            if rung != self.rung and (rung != self.left or self.careful):
                return rung
        return self.rung

    def kept(self, before: int, window: int, rest: int) -> None:
        """A trial succeeded: go on, with longer steps. At the end of its ladder it rests."""
        direction = 1 if self.rung > before else -1
        self.reach = 2 * abs(self.rung - before) if direction == self.direction else 1
        self.direction, self.failures, self.left = direction, 0, before
        if self.rung == (self.high if direction > 0 else self.low):
            self.left, self.ready, self.reach = None, window + rest, 1

    def failed(self, step: int, window: int, rest: int, longest: int) -> None:
        """A trial of a step of this many rungs failed. Halve the step; after one of a rung turn round, and rest."""
        if step > 1:
            self.reach, self.failures = step // 2, self.failures + 1
            return
        self.failures += 1
        self.direction, self.reach = -self.direction, 1
        opposite = self.rung + self.direction
        other = self.low <= opposite <= self.high and opposite != self.left
        self.left = None
        turn = self.failures - (2 if other else 1)
        self.ready = window + (1 if turn < 0 else min(longest, rest * 2 ** min(turn, 20)))

    def forget(self) -> None:
        """What was found no longer holds: it may be tried again."""
        self.ready, self.failures, self.left, self.reach = 0, 0, None, 1

    def to_list(self, rung: int) -> list[Any]:
        """Its name, this rung and what is known, as plain values."""
        return [self.ladder.name, rung, self.low, self.high, self.direction, self.failures, self.ready]

    def restore(self, values: list[Any]) -> None:
        """Go on from the values of `to_list` after the name."""
        self.rung, self.low, self.high, self.direction, self.failures, self.ready = values
