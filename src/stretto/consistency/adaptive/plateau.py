"""`PlateauTest`: has a run at its present settings stopped to make the progress that it made with them before?

A step that is too large, or reads that are too stale, take a run quickly to a neighbourhood of the optimum and no
further. Progress is measured towards the bound of the run (`ProgressScale` without a fitted limit), so a run that
converges linearly makes the same progress in every window, and one that gets stuck above the bound makes less and less.
"""

from __future__ import annotations

from statistics import fmean

_SHARE = 0.3  # of the earlier progress, below which a run is flat


class PlateauTest:
    """Windows since the settings changed last. share: of the best progress, below which a run is flat."""

    def __init__(self, share: float = _SHARE) -> None:
        self._share = share
        self._seen: list[float] = []
        self._best = 0.0

    def reset(self) -> None:
        """The settings have changed."""
        self._seen, self._best = [], 0.0

    def accept(self) -> None:
        """Lower settings do not help: what the run makes now is what it can make."""
        recent = fmean(self._seen[-2:]) if self._seen else 0.0
        self._seen, self._best = self._seen[-1:], max(0.0, recent)

    def add(self, progress: float) -> bool:
        """Report the progress of a window; returns whether the run is flat."""
        self._seen.append(progress)
        recent = fmean(self._seen[-2:])
        self._best = max(self._best, recent)
        rose = progress <= 0 and (len(self._seen) < 2 or recent <= self._share * self._best)
        return rose or (len(self._seen) > 1 and recent < self._share * self._best)
