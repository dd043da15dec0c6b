"""Reserve host memory while a plan is made: permanently for persistent storages, for others only while they are away.

When the persistent storages do not all fit on the host, some of them stay on the device permanently. Storages that are
copied most in a step stay first; of equal ones the largest first, since it must be on the device for its own update
anyway. Of equal storages every second or third stays, so that each part of the step has some copies and no part has
all.
"""

from __future__ import annotations

from itertools import groupby

import numpy as np

from .graph import PERSISTENT_KINDS
from .idle_intervals import SWAP, Bools, Gaps

_SHORT = 50  # an interval shorter than this part of the step is not worth two copies


class HostBudget:
    """Host memory that a plan may use.

    Parameters
    ----------
    intervals : Gaps
        Idle intervals of the step.
    limit : int or None
        Bytes on the host; None: no bound.
    temporary_limit : int or None
        Of them, bytes for storages that could be recomputed instead; None: all.
    resident : frozenset of int
        Persistent storages that never leave the device.
    sufficient : bool
        If this use of the host has a plan, no other needs to be tried.
    """

    def __init__(
        self,
        intervals: Gaps,
        limit: int | None,
        temporary_limit: int | None = None,
        resident: frozenset[int] = frozenset(),
        *,
        sufficient: bool = False,
    ) -> None:
        self.intervals, self.limit, self.temporary_limit, self.resident, self.sufficient = (
            intervals,
            limit,
            temporary_limit,
            resident,
            sufficient,
        )
        self.persistent = [one.kind in PERSISTENT_KINDS for one in intervals.graph.storages]
        self.resident_bytes = sum(intervals.sizes[s] for s in resident)
        self._clear()

    def _clear(self) -> None:
        self.host_copies: set[int] = set()
        self.host_copy_bytes = 0
        # By position, without host copies of persistent storages.
        self.used = np.zeros(len(self.intervals.graph.nodes) + 2, np.int64)
        self.reserved_until: dict[int, int] = {}  # of temporary storages: the position up to which they have space

    def recount(self, choice: np.ndarray[tuple[int], np.dtype[np.int8]]) -> None:
        """Release all reservations and reserve again for these choices."""
        if self.limit is not None:
            self._clear()
            for g in np.flatnonzero(choice == SWAP).tolist():
                self.reserve(g)

    def resident_intervals(self) -> Bools:
        """For each interval, whether its storage stays on the device."""
        return np.isin(self.intervals.storage, list(self.resident))

    def _span(self, g: int) -> tuple[int, int]:
        s = int(self.intervals.storage[g])
        return max(self.reserved_until.get(s, self.intervals.graph.maker[s]), 0), int(self.intervals.end[g]) + 1

    def fits(self, g: int, *, droppable: bool) -> bool:
        """Whether the host has space for the storage of an interval. droppable: it could be recomputed instead."""
        s = int(self.intervals.storage[g])
        if s in self.resident:
            return False
        if self.limit is None or s in self.host_copies:
            return True
        size = self.intervals.sizes[s]
        if self.persistent[s]:
            return self.host_copy_bytes + int(self.used.max()) + size <= self.limit
        first, last = self._span(g)
        if first >= last:
            return True
        most = int(self.used[first:last].max()) + size
        if droppable and self.temporary_limit is not None and most > self.temporary_limit:
            return False
        return self.host_copy_bytes + most <= self.limit

    def reserve(self, g: int) -> None:
        """Reserve space for the storage of an interval."""
        if self.limit is None:
            return
        s = int(self.intervals.storage[g])
        if self.persistent[s]:
            if s not in self.host_copies:
                self.host_copies.add(s)
                self.host_copy_bytes += self.intervals.sizes[s]
            return
        first, last = self._span(g)
        if first < last:
            self.used[first:last] += self.intervals.sizes[s]
            self.reserved_until[s] = last


def host_options(intervals: Gaps, budget: int, limit: int | None) -> list[HostBudget]:
    """Ways to use the host, in the order in which to try them.

    Parameters
    ----------
    intervals : Gaps
        Idle intervals of the step.
    budget : int
        Bytes on the device.
    limit : int or None
        Bytes on the host; None: no bound.
    """
    movable = [s for s, one in enumerate(intervals.graph.storages) if one.persistent and intervals.initial[s] >= 0]
    persistent = sum(intervals.sizes[s] for s in movable)
    over = 0 if limit is None else max(0, persistent - limit)
    found: list[HostBudget] = []
    if persistent > budget // 4:
        temporary_limit = 0 if over else None
        for share in (0.0, 0.5, 0.8):
            more = int(share * (min(budget, persistent) - over))
            if over + more:
                found.append(
                    HostBudget(intervals, limit, temporary_limit, choose_resident(intervals, movable, over + more))
                )
    if not over:
        found.insert(1, HostBudget(intervals, None, sufficient=not found))
    if limit is not None:
        found += [HostBudget(intervals, limit, limit - persistent)] if not over else []
        found += [HostBudget(intervals, limit, 0), HostBudget(intervals, limit)]
    return found


def choose_resident(intervals: Gaps, movable: list[int], nbytes: int) -> frozenset[int]:
    """Which of these storages stay on the device, so that they have at least `nbytes` bytes together."""
    short = len(intervals.graph.nodes) // _SHORT
    written = {s for node in intervals.graph.nodes for s in node.writes}

    def rank(s: int) -> tuple[int, int]:
        trips = sum(
            1
            for g in intervals.interval_of[s]
            if g >= 0 and (intervals.wraps[g] or intervals.end[g] - intervals.start[g] > short)
        )
        return -trips - (s in written), -intervals.sizes[s]

    chosen: list[int] = []
    missing = nbytes
    first_use = {s: intervals.touches[s][0] if intervals.touches[s] else -1 for s in movable}
    for (_, negative), group in groupby(sorted(movable, key=lambda s: (rank(s), first_use[s])), key=rank):
        alike, size = list(group), -negative
        if missing <= 0 or not size:
            break
        want = min(len(alike), -(-missing // size))
        chosen += [alike[k * len(alike) // want] for k in range(want)]
        missing -= want * size
    return frozenset(chosen)
