"""Room on the host while a plan is made: for good to what lasts, to everything else from its making to its last return.

When what lasts does not fit on the host as a whole, some of it *stays* on the device for good. What travels most in a
step stays first; of what travels alike the largest first (it would have to be there for its own update anyway), and of
equal ones every second or third, so that each part of the step has some copies to make and no part has all.
"""

from __future__ import annotations

from itertools import groupby

import numpy as np

from .graph import LASTING
from .idle_intervals import SWAP, Bools, Gaps

_SHORT = 50  # a gap shorter than this part of the step is not worth two copies


class Rooms:
    """limit: bytes on the host, None: no bound. passing: of them, bytes for what could be made again, None: all.
    stays: lasting storages that never leave the device."""

    def __init__(
        self,
        gaps: Gaps,
        limit: int | None,
        passing: int | None = None,
        stays: frozenset[int] = frozenset(),
        *,
        enough: bool = False,
    ) -> None:
        self.gaps, self.limit, self.passing, self.stays, self.enough = gaps, limit, passing, stays, enough
        self.lasting = [one.kind in LASTING for one in gaps.graph.storages]
        self.staying_bytes = sum(gaps.sizes[s] for s in stays)
        self._clear()

    def _clear(self) -> None:
        self.homes: set[int] = set()
        self.home_bytes = 0
        self.used = np.zeros(len(self.gaps.graph.nodes) + 2, np.int64)  # by position, beside homes
        self.until: dict[int, int] = {}  # of storages that pass: the position up to which they have a place

    def recount(self, choice: np.ndarray[tuple[int], np.dtype[np.int8]]) -> None:
        """Forget what was given and give it anew for these choices."""
        if self.limit is not None:
            self._clear()
            for g in np.flatnonzero(choice == SWAP).tolist():
                self.take(g)

    def staying(self) -> Bools:
        """By gap: whether its storage stays on the device."""
        return np.isin(self.gaps.storage, list(self.stays))

    def _span(self, g: int) -> tuple[int, int]:
        s = int(self.gaps.storage[g])
        return max(self.until.get(s, self.gaps.graph.maker[s]), 0), int(self.gaps.end[g]) + 1

    def may(self, g: int, *, droppable: bool) -> bool:
        """Whether there is room for the storage of a gap. droppable: it could be made again instead."""
        s = int(self.gaps.storage[g])
        if s in self.stays:
            return False
        if self.limit is None or s in self.homes:
            return True
        size = self.gaps.sizes[s]
        if self.lasting[s]:
            return self.home_bytes + int(self.used.max()) + size <= self.limit
        first, last = self._span(g)
        if first >= last:
            return True
        most = int(self.used[first:last].max()) + size
        if droppable and self.passing is not None and most > self.passing:
            return False
        return self.home_bytes + most <= self.limit

    def take(self, g: int) -> None:
        """Give room to the storage of a gap."""
        if self.limit is None:
            return
        s = int(self.gaps.storage[g])
        if self.lasting[s]:
            if s not in self.homes:
                self.homes.add(s)
                self.home_bytes += self.gaps.sizes[s]
            return
        first, last = self._span(g)
        if first < last:
            self.used[first:last] += self.gaps.sizes[s]
            self.until[s] = last


def ways(gaps: Gaps, budget: int, limit: int | None) -> list[Rooms]:
    """How the host could be used when the device has so many bytes and the host so many, in the order in which to try.
    A way that is *enough* needs no other if it has a plan."""
    movable = [s for s, one in enumerate(gaps.graph.storages) if one.lasting and gaps.first[s] >= 0]
    lasting = sum(gaps.sizes[s] for s in movable)
    over = 0 if limit is None else max(0, lasting - limit)
    found: list[Rooms] = []
    if lasting > budget // 4:
        passing = 0 if over else None
        for share in (0.0, 0.5, 0.8):
            more = int(share * (min(budget, lasting) - over))
            if over + more:
                found.append(Rooms(gaps, limit, passing, staying(gaps, movable, over + more)))
    if not over:
        found.insert(1, Rooms(gaps, None, enough=not found))
    if limit is not None:
        found += [Rooms(gaps, limit, limit - lasting)] if not over else []
        found += [Rooms(gaps, limit, 0), Rooms(gaps, limit)]
    return found


def staying(gaps: Gaps, movable: list[int], nbytes: int) -> frozenset[int]:
    """Which of these storages stay on the device, so that at least so many bytes of them do."""
    short = len(gaps.graph.nodes) // _SHORT
    written = {s for node in gaps.graph.nodes for s in node.writes}

    def rank(s: int) -> tuple[int, int]:
        journeys = sum(1 for g in gaps.gap_of[s] if g >= 0 and (gaps.wraps[g] or gaps.end[g] - gaps.start[g] > short))
        return -journeys - (s in written), -gaps.sizes[s]

    chosen: list[int] = []
    left = nbytes
    first_use = {s: gaps.touches[s][0] if gaps.touches[s] else -1 for s in movable}
    for (_, negative), group in groupby(sorted(movable, key=lambda s: (rank(s), first_use[s])), key=rank):
        alike, size = list(group), -negative
        if left <= 0 or not size:
            break
        want = min(len(alike), -(-left // size))
        chosen += [alike[k * len(alike) // want] for k in range(want)]
        left -= want * size
    return frozenset(chosen)
