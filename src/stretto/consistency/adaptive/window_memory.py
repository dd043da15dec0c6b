"""`WindowMemory`: the windows that the adaptive controller compares, and whether they still hold."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from .knobs import Window
from .progress import ProgressScale

Rungs = tuple[int, ...]  # of all knobs
_RECENT = 4  # windows that the current settings are judged by
_REMEMBERED = 16  # windows, of any settings, that the limit is estimated from


class WindowMemory:
    """Recent windows.

    Parameters
    ----------
    bound : float or None
        The objective at which the run ends, where it is known.
    changed : float
        Share of earlier progress below which, or factor over it above which, earlier windows are forgotten.

    Attributes
    ----------
    base : list of Window
        Windows with the kept settings.
    """

    def __init__(self, bound: float | None, changed: float) -> None:
        self._bound, self._changed = bound, changed
        self.base: list[Window] = []
        self._recent: deque[tuple[Rungs, Window]] = deque(maxlen=_REMEMBERED)
        self._took: dict[Rungs, float] = {}  # seconds of the last window

    def add(self, rungs: Rungs, window: Window) -> None:
        """A window of any settings has ended."""
        self._took[rungs] = window.seconds
        if window.before is not None:
            self._recent.append((rungs, window))

    def settle(self, rungs: Rungs, window: Window) -> bool:
        """It had the kept settings; returns whether their progress has fallen, so that earlier findings do not hold."""
        slower = window.before is not None and self._slower(rungs, window)
        self.base = [*self.base, window][-_RECENT:]
        return slower

    @property
    def known(self) -> int:
        """Windows of the kept settings whose progress is known."""
        return sum(window.before is not None for window in self.base)

    @property
    def waited(self) -> float | None:
        """Share of their time in which workers did not compute; None if it is not known."""
        waits = [window.waited for window in self.base if window.waited is not None]
        return sum(waits) / len(waits) if waits else None

    def latest(self) -> list[Window]:
        """The last window with the kept settings, and the one before if its progress is about the same."""
        *_, last = self.base
        rate = self.scale().rate
        found = [
            one
            for one in self.base[-2:-1]
            if one.before is not None
            and last.before is not None
            and abs(rate(one) - rate(last)) <= self._changed * abs(rate(one))
        ]
        return [*found, last]

    def scale(self) -> ProgressScale:
        """What progress is measured against."""
        groups: dict[Rungs, list[Window]] = {}
        for rungs, window in self._recent:
            groups.setdefault(rungs, []).append(window)
        return ProgressScale(list(groups.values()), self._bound)

    def towards_bound(self, window: Window) -> float:
        """The progress of a window towards the bound of the run."""
        return ProgressScale([[window]], self._bound, fit=False).progress(window)

    def slowest(self, now: Rungs, others: Sequence[Rungs]) -> float:
        """The longest seconds of a window that are known of other settings, over those of the settings now."""
        if now not in self._took:
            return 1.0
        return max(self._took.get(rungs, self._took[now]) for rungs in others) / max(self._took[now], 1e-12)

    def _slower(self, rungs: Rungs, window: Window) -> bool:
        """Forget earlier windows if two in a row say that they hold no longer; single ones say little."""
        rate = self.scale().rate
        known = [one for one in self.base if one.before is not None]
        if len(known) < 2:
            return False
        now, earlier = [rate(known[-1]), rate(window)], [rate(one) for one in known[:-1]]
        if min(*now, *earlier) <= 0:  # near a plateau rates vary around 0
            return False
        slower, faster = max(now) < self._changed * min(earlier), max(earlier) < self._changed * min(now)
        if slower or faster:
            self.base = known[-1:]
            self._took.clear()
            self._recent.clear()
            self._recent.extend((rungs, one) for one in (known[-1], window))
        return slower
