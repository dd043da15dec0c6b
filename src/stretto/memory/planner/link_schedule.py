"""Track the free time of a link over one step: copies in idle time cost nothing.

Time is divided into buckets. A copy to the host takes the earliest free time after its storage is made, a copy from
the host the latest before its storage is needed.
"""

from __future__ import annotations

import numpy as np

BUCKETS = 1024


class LinkTimeline:
    """One direction of a link over `seconds`."""

    def __init__(self, seconds: float) -> None:
        self.width = max(seconds, 1e-12) / BUCKETS
        self.free = np.full(BUCKETS, self.width)

    def _range(self, begin: float, end: float) -> slice:
        first = min(max(int(begin / self.width), 0), BUCKETS)
        return slice(first, min(max(int(end / self.width), first), BUCKETS))

    def idle(self, begin: float, end: float) -> float:
        """Free seconds between two times."""
        return float(self.free[self._range(begin, end)].sum())

    def take(self, begin: float, end: float, seconds: float, *, late: bool) -> float:
        """Take up to `seconds` of the free time between two times, from the end if late; the seconds still missing."""
        where = self._range(begin, end)
        if where.start < where.stop:  # most copies fit into one bucket
            one = where.stop - 1 if late else where.start
            if self.free[one] > seconds:
                self.free[one] -= seconds
                return 0.0
        part = self.free[where]
        if late:
            part = part[::-1]
        total = np.cumsum(part)
        if not len(total) or total[-1] <= seconds:
            part[:] = 0.0
            return max(0.0, seconds - float(total[-1] if len(total) else 0.0))
        last = int(np.searchsorted(total, seconds))
        part[:last] = 0.0
        part[last] = total[last] - seconds
        return 0.0
