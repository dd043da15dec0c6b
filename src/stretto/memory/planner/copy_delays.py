"""Estimate which copies a plan waits for: for each idle interval, the seconds saved without its copies.

Copies in one direction follow one another on the link. When the device waits for one of them, it waits for all that
began before it without a pause. So leaving out a copy saves its own seconds, but no more than the waiting from that
copy to the end of the series.
"""

from __future__ import annotations

import numpy as np

from .idle_intervals import Gaps
from .instructions import EVICT, IN, OUT, READY
from .lower import Floats, LoweredProgram
from .program import HostLink
from .timeline import Timeline


class _Series:
    """Copies in one direction, in the order in which they begin."""

    def __init__(self) -> None:
        self.free = 0.0
        self.seconds: list[float] = []
        self.waited: list[float] = []
        self.first: list[bool] = []  # the link was idle before the copy

    def begin(self, at: float, seconds: float) -> float:
        self.first.append(at > self.free)
        self.free = max(self.free, at) + seconds
        self.seconds.append(seconds)
        self.waited.append(0.0)
        return self.free

    def saved(self) -> list[float]:
        """For each copy, the seconds saved without it."""
        found, total = [0.0] * len(self.seconds), 0.0
        for k in range(len(self.seconds) - 1, -1, -1):
            total += self.waited[k]
            found[k] = min(self.seconds[k], total)
            if self.first[k]:
                total = 0.0
        return found


def delays(intervals: Gaps, steps: Timeline, lowered: LoweredProgram, link: HostLink) -> Floats:
    """For each interval, the seconds that a plan would wait less without the copies of this interval."""
    into, out = _Series(), _Series()
    sizes, nodes = intervals.sizes, lowered.graph.nodes
    now = 0.0
    landed: dict[int, float] = {}
    coming: dict[int, tuple[int, float]] = {}
    leaving: dict[int, tuple[int, float]] = {}
    left: dict[int, list[int]] = {}  # by storage: its copies to the host
    for what, which in zip(lowered.what.tolist(), lowered.which.tolist(), strict=True):
        if what == IN:
            end = into.begin(max(now, landed.get(which, 0.0)), link.in_seconds(sizes[which]))
            coming[which] = len(into.seconds) - 1, end
        elif what == OUT:
            end = out.begin(now, link.out_seconds(sizes[which]))
            left.setdefault(which, []).append(len(out.seconds) - 1)
            leaving[which] = len(out.seconds) - 1, end
            landed[which] = end
        elif what in (READY, EVICT):
            series, under_way = (into, coming) if what == READY else (out, leaving)
            copy, end = under_way.pop(which)
            series.waited[copy] += max(0.0, end - now)
            now = max(now, end)
        elif what <= 1:  # RUN or RECOMPUTE
            now += nodes[which].seconds
    if out.waited:
        out.waited[-1] += max(0.0, out.free - now)
    found = np.zeros(len(intervals))
    count = len(nodes)
    place = [*steps.position.tolist(), count]
    for s, need, seconds in zip(steps.swap_in.tolist(), steps.swap_in_need.tolist(), into.saved(), strict=True):
        if seconds:
            g = intervals.interval_before(s, place[need])
            if g >= 0:
                found[g] += seconds
    saved = out.saved()
    for s, free in zip(steps.swap_out.tolist(), steps.swap_out_free.tolist(), strict=True):
        seconds = saved[left[s].pop(0)]
        if seconds:
            g = intervals.interval_before(s, place[free] + 1 if free >= 0 else 0)
            if g >= 0:
                found[g] += seconds
    return found
