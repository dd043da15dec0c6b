"""A training step as arrays, for the compiled loops of the memory planner (`kernels.memory_planner.timeline`,
`kernels.memory_planner.lower`, `kernels.memory_planner.recompute`).

N nodes, S storages, G gaps; a list for each of them is stored as one array with the bounds of its parts (`x_at`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from stretto.kernels.core.compile import inner

KEEP, SWAP, DROP = range(3)  # what is done in a gap
TAIL, NEXT = -1, -2  # no gap follows: the storage is not wanted any more; its next use comes at once
TEMPORARY, GIVEN, PERSISTENT = range(3)  # kinds of storages

Ints = np.ndarray[tuple[int], np.dtype[np.int64]]
Bytes = np.ndarray[tuple[int], np.dtype[np.uint8]]
Floats = np.ndarray[tuple[int], np.dtype[np.float64]]


class PlanArrays(NamedTuple):
    """Nodes, storages and gaps of a step.

    needs_at [N + 1], needs: storages that a node reads or writes, each once; reads, makes, writes likewise.
    after_at [N + 1], after, after_gap: storages that a node touches, with the gap that begins there, TAIL or NEXT.
    touch_at [S + 1], touch, touch_gap: positions at which a storage is touched, with the gap after each.
    first [S]: the gap in which a storage is when the step begins. maker [S], size [S], kind [S].
    again [N]: whether a node may run twice, until [N]: the last position before which it may; workspace, seconds [N].
    gap_storage, gap_start, gap_end, wraps, beyond [G]. wanted: storages that are wanted at the end, in order.
    """

    needs_at: Ints
    needs: Ints
    reads_at: Ints
    reads: Ints
    makes_at: Ints
    makes: Ints
    writes_at: Ints
    writes: Ints
    after_at: Ints
    after: Ints
    after_gap: Ints
    touch_at: Ints
    touch: Ints
    touch_gap: Ints
    first: Ints
    maker: Ints
    size: Ints
    kind: Bytes
    again: Bytes
    until: Ints
    workspace: Ints
    seconds: Floats
    gap_storage: Ints
    gap_start: Ints
    gap_end: Ints
    wraps: Bytes
    beyond: Bytes
    wanted: Ints


@inner
def gap_at(p, s, position):
    """The gap that storage s is in just before a position runs; NEXT if it is used right there, or was right before."""
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
    return p.touch_gap[low - 1] if low > first else p.first[s]
