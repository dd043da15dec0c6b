"""Local changes to a plan, once its timeline is known: keep, swap or drop single storages.

relax     keep what fits after all
promote   swap dropped storages, where the link is idle
demote    drop swapped storages, where the plan waits for their copies
exchange  keep swapped storages that the plan waits for, and swap or drop others
repair    split a run of dropped storages in two, where recomputing it takes too many bytes
"""

from __future__ import annotations

import numpy as np

from .decide import Decider
from .idle_intervals import DROP, KEEP, SWAP
from .lower import Floats


def relax(decider: Decider, target: int) -> bool:
    """Keep dropped storages that fit after all, most expensive first; True if there were any."""
    intervals, found = decider.intervals, False
    dropped = np.flatnonzero((decider.choice == DROP) & ~intervals.extended)
    decider.price_recompute(dropped)
    seconds_per_byte = decider.recompute_seconds_of[dropped] / intervals.nbytes[dropped]
    for g in dropped[np.argsort(-seconds_per_byte, kind="stable")].tolist():
        part = decider.bytes[intervals.start[g] + 2 : min(int(decider.recompute_at[g]), int(intervals.end[g])) + 1]
        if part.max(initial=0) + intervals.nbytes[g] <= target:
            part += intervals.nbytes[g]
            decider.choice[g] = KEEP
            found = True
    return found


def promote(decider: Decider, target: int) -> bool:
    """Swap dropped storages where the link is idle, most expensive first; True if there were any.

    The storage must be away from the first position where it would not fit to the last.
    """
    intervals, found = decider.intervals, False
    if not decider.swap:
        return False
    dropped = np.flatnonzero(
        (decider.choice == DROP) & ~intervals.extended & (intervals.nbytes >= decider.min_swap_bytes)
    )
    seconds_per_byte = decider.recompute_seconds_of[dropped] / intervals.nbytes[dropped]
    for g in dropped[np.argsort(-seconds_per_byte, kind="stable")].tolist():
        start, end = int(intervals.start[g]), int(decider.recompute_at[g])
        full = np.flatnonzero(decider.bytes[start + 2 : end + 1] + intervals.nbytes[g] > target)
        if not len(full) or not decider.may_swap(g):
            continue
        t, until = start + 1 + int(full[0]), start + 1 + int(full[-1])
        if decider.exposed(g, t, until) <= 0.0:
            decider.take_link_time(g, t, until)
            decider.choice[g] = SWAP
            decider.host_use.reserve(g)
            found = True
    return found


def demote(decider: Decider, target: int, late: Floats, share: float = 1.0) -> bool:
    """Drop swapped storages where the plan waits for their copies and recomputing takes less; True if there were any.

    Parameters
    ----------
    decider : Decider
        Its choices change.
    target : int
        Bytes that the plan may use.
    late : array [intervals]
        Seconds that the plan waits for the copies of each interval (`copy_delays.delays`).
    share : float
        Share of the waiting to remove. Removing less also changes the bytes in use less.
    """
    intervals, found = decider.intervals, False
    left = share * float(late.sum())
    which = np.flatnonzero((decider.choice == SWAP) & decider.droppable & (late > 0))
    costs = {g: cost for g in which.tolist() if (cost := decider.recompute_cost(g)) is not None}
    for g in sorted(costs, key=lambda g: costs[g].seconds / late[g]):
        if left <= 0:
            break
        cost = decider.recompute_cost(g)  # neighbours may be dropped by now
        if cost is not None and cost.seconds < late[g] and decider.may_drop(g, cost):
            decider.choice[g] = KEEP
            decider.add(int(intervals.start[g]), int(decider.until_touch[g]), False, int(intervals.nbytes[g]))
            decider.set_drop(g, cost)
            left -= float(late[g])
            found = True
    return found


def exchange(decider: Decider, target: int, late: Floats, share: float = 1.0) -> bool:
    """Keep swapped storages that the plan waits for, and swap or drop others instead; True if there were any.

    Parameters as for `demote`.
    """
    intervals = decider.intervals
    left = share * float(late.sum())
    which = np.flatnonzero((decider.choice == SWAP) & (late > 0) & (intervals.nbytes > 0))
    for g in which[np.argsort(-late[which] / intervals.nbytes[which], kind="stable")].tolist():
        if left <= 0:
            break
        decider.choice[g] = KEEP
        decider.fixed[g] = True
        decider.add(
            int(intervals.start[g]), int(decider.until_touch[g]), bool(intervals.wraps[g]), int(intervals.nbytes[g])
        )
        left -= float(late[g])
    decider.schedule_copies()
    decider.host_use.recount(decider.choice)
    decider.reach(target)
    decider.fixed[:] = False
    return len(which) > 0


def repair(decider: Decider, target: int) -> bool:
    """Split runs of recomputed storages that take too many bytes, by keeping one in the middle; True if any were."""
    intervals = decider.intervals
    dropped = (decider.choice == DROP) & ~intervals.extended
    found = False
    over = np.flatnonzero(decider.bytes > target)
    for t in over[np.argsort(-decider.bytes[over], kind="stable")][:64].tolist():
        there = np.flatnonzero(dropped & (decider.recompute_at < t) & (t - 1 <= intervals.end))
        if not len(there):
            cut = (decider.choice == SWAP) & (decider.until_touch < t) & (t <= intervals.end) & ~intervals.wraps
            there = np.flatnonzero(dropped & np.isin(intervals.end, decider.until_touch[cut]))
        if not len(there):
            continue
        there = there[np.argsort(intervals.start[there], kind="stable")]
        half = np.cumsum(intervals.nbytes[there])
        g = int(there[np.searchsorted(half, half[-1] // 2)])
        decider.droppable[g] = dropped[g] = False
        decider.recompute_seconds_of[g] = np.inf
        decider.choice[g] = KEEP
        decider.add(int(intervals.start[g]), int(decider.recompute_at[g]), False, int(intervals.nbytes[g]))
        dropped[there] = False
        found = True
    return found
