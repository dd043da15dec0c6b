"""`KnobTrial`: windows with another setting of one knob, and when they say enough. `TrialOptions`: what they may cost.

A trial ends when it is probable enough that the setting is better, or worse. Otherwise it is repeated, and after the
last repetition the more probable answer counts. A trial that *lowers* a knob because the run is flat asks less: the
lower setting is kept unless it is worse.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from stretto.checks import of

from .knob_state import KnobState
from .knobs import SHARE, Window
from .progress import Compared

_SURE = 0.85  # probability at which a trial is not repeated
_HOPE = 0.3  # that it is better, below which it is not repeated either
Decision = Literal["keep", "back", "repeat"]


@dataclass(frozen=True)
class TrialOptions:
    """What trials may cost, and what counts as a difference."""

    first: int = 2  # windows with known progress before the first trial of a number
    gain: float = 0.02  # relative gain in progress per second that is worth a move
    noise: float = 0.15  # relative noise of the progress of a window, as far as it is not measured
    repeats: int = 2  # times that a trial is repeated, at most, while noise hides the answer
    share: float = 0.15  # of all windows that trials may take
    rest: int = 8  # windows for which a knob rests after its first failure in both directions
    longest: int = 64  # the longest rest
    idle: float = 0.05  # share of waiting below which staleness is not loosened
    changed: float = 0.5  # share of earlier progress below which rests end

    def __post_init__(self) -> None:
        check = of("AdaptiveController")
        check.number("first", self.first, least=1, whole=True)
        check.number("gain", self.gain, least=0)
        check.number("noise", self.noise, least=0)
        check.number("repeats", self.repeats, least=0, whole=True)
        check.number("share", self.share, least=0, most=1)
        check.number("rest", self.rest, least=1, whole=True)
        check.number("longest", self.longest, least=self.rest, whole=True)
        check.number("idle", self.idle, least=0, most=1)
        check.number("changed", self.changed, least=0, most=1)


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
