"""Compare the progress of windows: objective decrease per second, at equal distance from where the objective goes.

Decrease per second falls as a run converges, whatever its settings. Two windows that follow each other are therefore
compared by log((before − limit) / (after − limit)) per second, which is constant under linear convergence. The limit is
the one under which recent windows with the same settings agree best. Where none explains more than chance it is 0 for
positive objectives; for others the plain decrease per second is compared.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from .knobs import Window

Verdict = Literal["better", "worse", "unclear"]
_FACTORS = tuple(0.05 * 1.6**k for k in range(20))  # distances of the limit that are considered, in last decreases
_BETTER = 0.5  # a limit must leave at most this share of the variance that remains without it
_FREEDOM = 3  # degrees of freedom without which the windows say nothing about noise and limit


@dataclass(frozen=True)
class Compared:
    """Two groups of windows: their progress per second, what counts as a difference, and the answer."""

    base: float
    rival: float
    margin: float  # relative to the larger of the two
    verdict: Verdict

    @property
    def ratio(self) -> float:
        """The rival's progress over that of the base."""
        return self.rival / self.base if self.base > 0 else math.inf if self.rival > 0 else math.nan


class ProgressScale:
    """What decrease per second is divided by, from recent windows in groups of equal settings."""

    def __init__(self, groups: Sequence[Sequence[Window]]) -> None:
        usable = [[window for window in group if window.before is not None] for group in groups]
        self._groups = [group for group in usable if group]
        self.limit = self._find()

    def rate(self, window: Window) -> float:
        """Progress per second of a window."""
        return _rate(window, self.limit)

    def noise(self, least: float) -> float:
        """Relative noise of a window, from windows with equal settings; `least` where too few are known."""
        found = _pooled([[self.rate(window) for window in group] for group in self._groups])
        return least if found is None else max(least / 3, math.sqrt(found))

    def _find(self) -> float | None:
        """The limit under which windows with equal settings agree best."""
        windows = [window for group in self._groups for window in group]
        if not windows:
            return None
        lowest = min(window.after for window in windows)
        prior = 0.0 if lowest > 0 else None  # most losses cannot be negative
        falls = [window.before - window.after for window in windows if window.before is not None]
        fall = max(falls[-2:])

        def variance(limit: float | None) -> float | None:
            return _pooled([[_rate(window, limit) for window in group] for group in self._groups])

        without = variance(prior)
        if without is None or not fall > 0:
            return prior
        found = [(variance(lowest - factor * fall) or 0.0, lowest - factor * fall) for factor in _FACTORS]
        least, best = min(found)
        return best if least < _BETTER * without else prior


def compare(
    scale: ProgressScale,
    base: Sequence[Window],
    rival: Sequence[Window],
    *,
    gain: float,
    noise: float,
    clear: float = 2.0,
) -> Compared:
    """Whether the windows of a trial made more progress per second than those before it.

    gain: relative difference that is worth a move. noise: of a window, where too few are known to say. clear: standard
    errors between two groups that are called different.
    """
    mine = statistics.fmean(map(scale.rate, base))
    other = statistics.fmean(map(scale.rate, rival))
    error = scale.noise(noise) * math.sqrt(1 / len(base) + 1 / len(rival))
    margin = max(gain, clear * error)
    difference = other - mine
    bound = margin * max(abs(mine), abs(other))
    verdict: Verdict = "better" if difference > bound else "worse" if difference < -bound else "unclear"
    return Compared(mine, other, margin, verdict)


def _rate(window: Window, limit: float | None) -> float:
    assert window.before is not None
    fall = (window.before - window.after) / max(window.seconds, 1e-12)
    if limit is None:
        return fall
    high, low = window.before - limit, window.after - limit
    if low <= 0 or high <= 0:
        return fall / max(abs(high), abs(low))
    return math.log(high / low) / max(window.seconds, 1e-12)


def _pooled(groups: Sequence[Sequence[float]]) -> float | None:
    """The relative variance within groups; None where too few values are known."""
    total, freedom = 0.0, 0
    for group in groups:
        if len(group) > 1:
            mean = statistics.fmean(group)
            total += sum((rate - mean) ** 2 for rate in group) / max(mean * mean, 1e-300)
            freedom += len(group) - 1
    return total / freedom if freedom >= _FREEDOM else None
