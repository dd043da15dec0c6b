"""Compare the progress of windows: how much of the distance to the end they cover, and in how many seconds.

Decrease per second falls as a run converges, whatever its settings. Two windows that follow each other are therefore
compared by log((before − limit) / (after − limit)) per second, which is constant under linear convergence. The limit is
the one under which recent windows with the same settings agree best. Where none explains clearly more than chance it is
a little below the bound that the run is to reach; without a bound it is 0 for positive objectives, and for others the
plain decrease is compared.

Seconds of a window and progress in it are judged apart. Seconds vary little, and one window is enough. Progress varies
more, but staleness changes it little: the expectation of a knob says by how much, and what windows show is weighted
against that expectation by their noise.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from .knobs import Window

_FACTORS = tuple(0.05 * 1.6**k for k in range(20))  # distances of the limit that are considered, in last decreases
_BETTER = 0.35  # a limit must leave at most this share of the variance that remains without it
_FREEDOM = 4  # degrees of freedom without which windows say nothing about a limit
_WITHIN = 0.25  # distance of the limit from the bound, as a share of what is left to the bound
_EXPECTED = 2  # degrees of freedom that the expected noise counts for
_TIMING = 0.03  # expected relative noise of the seconds of a window


@dataclass(frozen=True)
class Compared:
    """Two groups of windows, and what follows from them.

    better: probability that the rival makes progress faster by at least the gain that was asked for. worse: that it is
    slower by as much.
    """

    base: float  # progress per second; NaN where it is not known
    rival: float
    faster: float  # seconds of a window of the base over those of the rival
    better: float
    worse: float

    @property
    def ratio(self) -> float:
        """The rival's progress per second over that of the base."""
        return self.rival / self.base if self.base > 0 else math.inf if self.rival > 0 else math.nan

    def words(self) -> str:
        """What was found, in words."""
        if math.isnan(self.base):
            return f"{self.faster:.2f} times the windows per second"
        if math.isfinite(self.ratio):
            text = f"{self.ratio:.2f} times the progress per second"
        else:
            text = "progress where there was none" if self.rival > self.base else "no progress"
        sure = max(self.better, self.worse)
        return text + (f" ({sure:.0%} sure)" if sure < 0.95 else "")


class ProgressScale:
    """The limit that progress is measured against, from recent windows in groups of equal settings.

    Parameters
    ----------
    groups : sequence of sequences of Window
        Windows, the latest last.
    bound : float or None, default None
        The objective at which the run ends.
    fit : bool, default True
        Whether the limit may be fitted; a fitted limit follows a run that gets stuck.
    """

    def __init__(self, groups: Sequence[Sequence[Window]], bound: float | None = None, *, fit: bool = True) -> None:
        usable = [[window for window in group if window.before is not None] for group in groups]
        self._groups = [group for group in usable if group]
        windows = [window for group in self._groups for window in group]
        self.limit = self._expected(windows, bound)
        if fit and windows:
            self.limit = self._fitted(windows, self.limit)

    def progress(self, window: Window) -> float:
        """How far a window got."""
        return _progress(window, self.limit)

    def rate(self, window: Window) -> float:
        """Progress per second."""
        return self.progress(window) / max(window.seconds, 1e-12)

    @staticmethod
    def _expected(windows: Sequence[Window], bound: float | None) -> float | None:
        if not windows:
            return None
        lowest = min(window.after for window in windows)
        if bound is not None and lowest > bound:
            return bound - _WITHIN * (lowest - bound)
        return 0.0 if lowest > 0 else None  # most losses cannot be negative

    def _fitted(self, windows: Sequence[Window], expected: float | None) -> float | None:
        """The limit under which windows with equal settings agree best, if they do so clearly."""
        lowest = min(window.after for window in windows)
        falls = [window.before - window.after for window in windows if window.before is not None]
        fall = max(falls[-2:])

        def variance(limit: float | None) -> float | None:
            return _pooled([[_progress(window, limit) for window in group] for group in self._groups])

        without = variance(expected)
        if without is None or not fall > 0:
            return expected
        found = [(variance(lowest - factor * fall) or 0.0, lowest - factor * fall) for factor in _FACTORS]
        least, best = min(found)
        return best if least < _BETTER * without else expected


def compare(
    scale: ProgressScale,
    base: Sequence[Window],
    rival: Sequence[Window],
    *,
    gain: float,
    noise: float,
    expected: float = math.inf,
) -> Compared:
    """Whether the windows of a trial made progress faster than those before it.

    gain: relative difference that counts. noise: relative one of the progress of a window, as far as too few windows
    are known to say. expected: standard deviation, relative, by which the settings change the progress of a window;
    infinity where nothing is expected.
    """
    slow, fast = (statistics.fmean(window.seconds for window in group) for group in (base, rival))
    faster = slow / max(fast, 1e-12)
    timing = _noise([[math.log(max(window.seconds, 1e-12)) for window in group] for group in (base, rival)], _TIMING)
    mine = [scale.progress(window) for window in base if window.before is not None]
    other = [scale.progress(window) for window in rival if window.before is not None]
    timing *= math.sqrt(1 / len(base) + 1 / len(rival))
    if not mine and other and statistics.fmean(other) <= 0:
        return Compared(math.nan, math.nan, faster, 0.0, 1.0)
    if not mine or not other:  # seconds alone
        spread = math.hypot(timing, expected)
        gained = math.log(max(faster, 1e-12))
        need = math.log1p(gain)
        return Compared(math.nan, math.nan, faster, _above(gained - need, spread), _above(-need - gained, spread))
    first, then = statistics.fmean(mine), statistics.fmean(other)
    error = _noise([mine, other], noise * max(abs(first), abs(then)))
    # Progress that rises or falls from window to window by itself may go on to do so.
    drift = (mine[-1] - mine[0]) / (len(mine) - 1) if len(mine) > 1 else 0.0
    of_base = error / math.sqrt(len(mine))
    of_both = math.hypot(error * math.sqrt(1 / len(mine) + 1 / len(other)), drift)
    weight = 1.0
    if math.isfinite(expected):
        weight = (expected * first) ** 2 / max((expected * first) ** 2 + of_both**2, 1e-300)
    believed = first + weight * (then - first)
    # In units of a window of the base: what the rival covers in its seconds, against what the base does.
    gained = believed * faster - first
    spread = math.hypot(
        math.sqrt(weight) * of_both * faster, abs(faster - 1) * of_base, believed * faster * timing, 1e-12
    )
    need = gain * abs(first)
    return Compared(
        first / slow, believed / max(fast, 1e-12), faster, _above(gained - need, spread), _above(-need - gained, spread)
    )


def _progress(window: Window, limit: float | None) -> float:
    assert window.before is not None
    fall = window.before - window.after
    if limit is None:
        return fall
    high, low = window.before - limit, window.after - limit
    if low <= 0 or high <= 0:
        return fall / max(abs(high), abs(low))
    return math.log(high / low)


def _above(value: float, spread: float) -> float:
    """The probability that a normal variable with this mean and spread is positive."""
    return 0.5 * math.erfc(-value / (max(spread, 1e-300) * math.sqrt(2)))


def _noise(groups: Sequence[Sequence[float]], expected: float) -> float:
    """The standard deviation within groups; the expected one counts for a few degrees of freedom."""
    total, freedom = _EXPECTED * expected**2, float(_EXPECTED)
    for group in groups:
        if len(group) > 1:
            mean = statistics.fmean(group)
            total += sum((value - mean) ** 2 for value in group)
            freedom += len(group) - 1
    return math.sqrt(total / freedom)


def _pooled(groups: Sequence[Sequence[float]]) -> float | None:
    """The relative variance within groups; None where too few values are known."""
    total, freedom = 0.0, 0
    for group in groups:
        if len(group) > 1:
            mean = statistics.fmean(group)
            total += sum((value - mean) ** 2 for value in group) / max(mean * mean, 1e-300)
            freedom += len(group) - 1
    return total / freedom if freedom >= _FREEDOM else None
