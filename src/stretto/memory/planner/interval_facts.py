"""What the decider knows of idle intervals at first: when storages changed last, and space for its searches."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from stretto.kernels.memory_planner.recompute import RecomputeSpace

from .idle_intervals import Gaps, Ints


def last_changes(intervals: Gaps) -> tuple[Ints, NDArray[np.bool_]]:
    """When the storage of each interval got the value that it has there, and whether the host has that value.

    Returns
    -------
    changed : array [intervals]
        The position after which the storage had its value; -1: before the step.
    clean : array [intervals] of bool
        Whether nothing of the step has written it yet, so that the host has its value if it is stored there between
        steps.
    """
    graph = intervals.graph
    writes: dict[int, list[int]] = {}
    for n, node in enumerate(graph.nodes):
        for s in node.writes:
            writes.setdefault(s, []).append(n)
    changed = np.array([max(graph.maker[s], -1) for s in intervals.storage], np.int64)
    clean = np.zeros(len(intervals), bool)
    persistent = [s for s, one in enumerate(graph.storages) if one.persistent]
    for g in np.flatnonzero(np.isin(intervals.storage, persistent)):
        before = [n for n in writes.get(int(intervals.storage[g]), ()) if n <= intervals.start[g]]
        changed[g] = before[-1] if before else -1
        clean[g] = not before
    return changed, clean


def recompute_space(intervals: Gaps) -> RecomputeSpace:
    """Arrays that the search for the cost of a recomputation works in, large enough for every interval."""
    nodes, storages, reads = len(intervals.graph.nodes), len(intervals.sizes), len(intervals.arrays.reads)
    return RecomputeSpace(
        held=np.empty(storages + 1, np.int64),
        beside=np.empty(reads + 1, np.int64),
        leaves=np.empty(reads + 1, np.int64),
        seen=np.zeros(nodes, np.int64),
        wanted=np.full(storages, -1, np.int64),
        list=np.empty(storages + 1, np.int64),
        heap=np.empty(nodes + 1, np.int64),
    )
