"""Change the number of threads of a crew from epoch to epoch, as a rule says, and report each choice.

    widths = EpochWidths(rule, crew, tell)
    for epoch in range(epochs):
        widths.begin(epoch)
        ...                             # the passes of the epoch, on crew.width threads
        widths.end(seconds)
    widths.close()

Results do not depend on the number of threads, so that a crew may change it between two passes. Threads that are not
used wait on their queues; none is started or ended.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Protocol

from stretto.observe.events import Listener, WidthChosen

from .crew import Crew


class WidthRule(Protocol):
    """Chooses widths from measured times; `schedule.stages.width_search.WidthSearch` is one."""

    @property
    def decisions(self) -> Sequence[Any]:
        """Each with `width`, `reason` and `settled`."""
        ...

    def next(self) -> Any:
        """What to run next: an object with a `width`."""
        ...

    def measured(self, width: int, seconds: Sequence[float]) -> None:
        """Report the seconds of iterations at a width."""
        ...


class EpochWidths:
    """Applies a rule to the epochs of one run."""

    def __init__(self, rule: WidthRule, crew: Crew, tell: Listener) -> None:
        self._rule, self._crew, self._tell = rule, crew, tell
        self._told = 0
        self._warm = False  # whether an epoch has run

    def begin(self, epoch: int) -> None:
        """Set the width of the epoch that starts; `epoch` counts from 0."""
        for decision in self._rule.decisions[self._told :]:
            self._tell(WidthChosen(time.time(), epoch + 1, decision.width, decision.reason, decision.settled))
        self._told = len(self._rule.decisions)
        self._crew.width = self._rule.next().width

    def end(self, seconds: float) -> None:
        """An epoch has run in full. The first one is not measured: its memory is cold, and some models start in it."""
        if self._warm:
            self._rule.measured(self._crew.width, [seconds])
        self._warm = True

    def close(self) -> None:
        """Give the crew its full width back."""
        self._crew.width = self._crew.workers
