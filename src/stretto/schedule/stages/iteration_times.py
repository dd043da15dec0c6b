"""Seconds of iterations by width, their medians, and the noise in them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median
from typing import Literal

from stretto.checks import shown, wrong

_PRIOR = 2.0  # measurements that the assumed noise counts for
_OF_MEDIAN = 1.2533  # standard error of a median over that of a mean, for normal noise

Verdict = Literal["faster", "slower", "unclear"]


class IterationTimes:
    """What was measured of one stage.

    Parameters
    ----------
    assumed : float
        Relative noise of an iteration before any was measured.
    """

    def __init__(self, assumed: float) -> None:
        self._assumed = assumed
        self._samples: dict[int, list[tuple[float, int]]] = {}  # by width: seconds of an iteration, iterations
        self.worker_seconds = 0.0
        self.seconds = 0.0

    def add(self, width: int, seconds: Sequence[float] | float, count: int | None = None) -> int:
        """Add the times of iterations, or the time of `count` together. Returns how many they are."""
        if isinstance(seconds, int | float):
            if count is None or count < 1:
                raise wrong("measured", "count", "the number of iterations that took these seconds", count)
            samples = [(float(seconds) / count, count)]
        else:
            samples = [(float(each), 1) for each in seconds]
        if not all(math.isfinite(each) and each >= 0 for each, _ in samples):
            raise wrong("measured", "seconds", "finite and not negative", shown(seconds))
        self._samples.setdefault(width, []).extend(samples)
        spent = sum(each * many for each, many in samples)
        self.seconds += spent
        self.worker_seconds += width * spent
        return sum(many for _, many in samples)

    @property
    def widths(self) -> list[int]:
        """The widths measured, narrowest first."""
        return sorted(width for width, samples in self._samples.items() if samples)

    def count(self, width: int) -> int:
        """Iterations measured at a width."""
        return sum(many for _, many in self._samples.get(width, ()))

    def median(self, width: int) -> float:
        """Median seconds of an iteration at a width, of two times the lower one: a stall must not decide. A time of
        several iterations together counts once.
        """
        samples = [each for each, _ in self._samples[width]]
        return median(samples) if len(samples) > 2 else min(samples)

    @property
    def noise(self) -> float:
        """Relative standard deviation of the seconds of an iteration, estimated from all widths."""
        return self._noise()[0]

    def _noise(self) -> tuple[float, float]:
        """The noise, and the degrees of freedom of its estimate."""
        square, freedom = _PRIOR * self._assumed**2, _PRIOR
        for samples in self._samples.values():
            middle = median(each for each, _ in samples) if samples else 0.0
            if middle > 0:
                square += sum(many * (each / middle - 1.0) ** 2 for each, many in samples)
                freedom += len(samples) - 1
        return math.sqrt(square / freedom), freedom

    def error(self, width: int, other: int) -> float:
        """Standard error of the difference of two medians, relative to them; larger while the noise itself is
        uncertain, as the quantiles of Student's t are.
        """
        noise, freedom = self._noise()
        return _OF_MEDIAN * noise * (1 + 2 / freedom) * math.sqrt(1 / self.count(width) + 1 / self.count(other))

    def compare(self, width: int, other: int, errors: float) -> Verdict:
        """Whether iterations at a width are faster or slower than at another, by more than so many standard errors."""
        ours, theirs = self.median(width), self.median(other)
        margin = errors * self.error(width, other)
        if ours * (1 + margin) < theirs:
            return "faster"
        return "slower" if ours > theirs * (1 + margin) else "unclear"
