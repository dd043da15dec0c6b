"""The policy of the dissertation (chapter 6): partitions of a fixed number of operations, and no choice by cost.

Nodes run depth first and are cut into partitions of `size`. A storage that the next `distance` partitions do not want
is swapped out, and comes back in the partition before the one that wants it. Parameters, constants and the optimizer's
state live on the host; every operation that uses one has a load of its own, shortly before it, and the copy on the
device is given up after it. Nothing is made again.
"""

from __future__ import annotations

import numpy as np

from .idle_intervals import KEEP, SWAP, Gaps
from .timeline import Steps


def choose(gaps: Gaps, size: int, distance: int, *, swap: bool = True) -> list[int]:
    """SWAP or KEEP by gap."""
    lasting = np.array([one.lasting for one in gaps.graph.storages], bool)[gaps.storage]
    apart = gaps.end // size > gaps.start // size + distance
    apart &= gaps.end < len(gaps.graph.nodes)  # a result stays
    chosen: list[int] = np.where(lasting | (apart & swap & (gaps.start >= 0)), SWAP, KEEP).tolist()
    return chosen


def load_steps(steps: Steps, size: int) -> list[int]:
    """By copy from the host: the step before which it begins, the first of the partition before the one that wants
    it. Steps are positions here, because nothing runs twice."""
    return [max(0, (need // size - 1) * size) for need in steps.come_need.tolist()]
