"""A training step as arrays, for the compiled loops of the memory planner.

N nodes, S storages, G idle intervals. A list for each of them is stored as one array with the bounds of its parts
(`x_at`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from stretto.kernels.core.compile import inner

KEEP, SWAP, DROP = range(3)  # choices for an idle interval
TAIL, NEXT = -1, -2  # no interval follows: after the last use; the next node uses the storage
TEMPORARY, GIVEN, PERSISTENT = range(3)  # kinds of storages

Ints = np.ndarray[tuple[int], np.dtype[np.int64]]
Bytes = np.ndarray[tuple[int], np.dtype[np.uint8]]
Floats = np.ndarray[tuple[int], np.dtype[np.float64]]


class PlanArrays(NamedTuple):
    """Nodes, storages and idle intervals of a step. `x_at` has the bounds of `x`, by node or by storage."""

    needs_at: Ints  # [N + 1]
    needs: Ints  # storages that a node reads or writes, each once
    reads_at: Ints
    reads: Ints  # storages that a node reads
    makes_at: Ints
    makes: Ints  # storages that a node makes
    writes_at: Ints
    writes: Ints  # storages that a node writes
    after_at: Ints  # [N + 1]
    after: Ints  # storages that a node touches
    after_interval: Ints  # the interval that begins there, TAIL or NEXT
    touch_at: Ints  # [S + 1]
    touch: Ints  # positions at which a storage is touched
    touch_interval: Ints  # the interval after each touch
    initial: Ints  # [S] the interval in which a storage is when the step begins
    maker: Ints  # [S] node that makes a storage, or -1
    size: Ints  # [S] bytes
    kind: Bytes  # [S] TEMPORARY, GIVEN or PERSISTENT
    recomputable: Bytes  # [N] whether a node may run twice
    recompute_until: Ints  # [N] the last position before which it may
    workspace: Ints  # [N] bytes
    seconds: Floats  # [N]
    interval_storage: Ints  # [G]
    interval_start: Ints  # [G] position
    interval_end: Ints  # [G] position
    wraps: Bytes  # [G] it wraps around the end of the step
    extended: Bytes  # [G] it comes after the last use of its storage
    wanted: Ints  # storages that are needed at the end, in order


@inner
def interval_at(p, s, position):
    """Return the interval of storage s just before a position runs; NEXT if this position or the one before uses it."""
    low, high = p.touch_at[s], p.touch_at[s + 1]
    first = low
    while low < high:
        middle = (low + high) // 2
        if p.touch[middle] < position:
            low = middle + 1
        else:
            high = middle
    if low < p.touch_at[s + 1] and p.touch[low] == position:
        return NEXT
    return p.touch_interval[low - 1] if low > first else p.initial[s]
