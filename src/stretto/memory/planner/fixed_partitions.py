"""The planning policy of the dissertation (chapter 6): partitions of a fixed number of operations, no choice by cost.

Nodes run depth first and are divided into partitions of `size`. A storage that the next `distance` partitions do not
need is swapped out. It comes back in the partition before the one that needs it. Parameters, constants and optimizer
state are stored on the host. Every operation that uses one has a load of its own, shortly before it, and the copy on
the device is freed after it. Nothing is recomputed.
"""

from __future__ import annotations

import numpy as np

from .idle_intervals import KEEP, SWAP, Gaps
from .timeline import Timeline


def choose(intervals: Gaps, size: int, distance: int, *, swap: bool = True) -> list[int]:
    """SWAP or KEEP for each interval."""
    persistent = np.array([one.persistent for one in intervals.graph.storages], bool)[intervals.storage]
    apart = intervals.end // size > intervals.start // size + distance
    apart &= intervals.end < len(intervals.graph.nodes)  # a result stays
    chosen: list[int] = np.where(persistent | (apart & swap & (intervals.start >= 0)), SWAP, KEEP).tolist()
    return chosen


def load_steps(steps: Timeline, size: int) -> list[int]:
    """For each copy from the host, the step before which it begins.

    That is the first step of the partition before the one that needs the copy. Steps equal positions here, because
    nothing runs twice.
    """
    return [max(0, (need // size - 1) * size) for need in steps.swap_in_need.tolist()]
