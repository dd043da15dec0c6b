"""`TrialOptions`: how often and how long the adaptive controller tries other settings."""

from __future__ import annotations

from dataclasses import dataclass

from stretto.checks import of


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
