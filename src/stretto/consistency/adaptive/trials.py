"""`KnobTrial`: windows with another setting of one knob, and when they say enough.

A trial ends when it is probable enough that the setting is better, or worse. Otherwise it is repeated, and after the
last repetition the more probable answer counts. A trial that *lowers* a knob because the run is flat asks less: the
lower setting is kept unless it is worse.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from .knob_state import KnobState
from .knobs import SHARE, Window
from .progress import Compared

_SURE = 0.85  # probability at which a trial is not repeated
_HOPE = 0.3  # that it is better, below which it is not repeated either
Decision = Literal["keep", "back", "repeat"]


@dataclass(eq=False)
class KnobTrial:
    """A trial of one knob."""

    knob: KnobState
    before: int  # its rung before
    lower: bool  # kept unless it is worse
    flat: bool  # made because the run is flat
    base: list[Window]  # windows with the settings before
    windows: list[Window] = field(default_factory=list)  # of the trial

    @property
    def step(self) -> int:
        """Rungs from the setting before."""
        return abs(self.knob.rung - self.before)

    def decide(self, found: Compared, *, last: bool) -> Decision:
        """What follows from the windows so far. last: the trial cannot be repeated."""
        if self.lower:
            if found.worse < 0.5:
                return "keep"
            return "back" if last or found.worse >= _SURE else "repeat"
        if found.better >= _SURE or (last and found.better >= 0.5):
            return "keep"
        return "back" if last or found.better < _HOPE else "repeat"

    def why(self) -> str:
        """Why it is made, in words."""
        looser = self.knob.rung > self.before
        if self.flat:
            return "progress has slowed"
        if self.knob.is_staleness:
            return "looser" if looser else "tighter"
        if self.knob.ladder.kind == SHARE:
            return "fewer rows" if looser else "more rows"
        return "larger" if looser else "smaller"
