"""Small changes to what was decided, once a walk has shown what it comes to.

relax     keep what there is room for after all
promote   swap what was dropped, where the link turns out to be idle
demote    drop what was swapped, where its copies are waited for
exchange  keep what was swapped and is waited for, and swap or drop something else
repair    cut a run of dropped storages in two, where making it again takes too much room
"""

from __future__ import annotations

import numpy as np

from .decide import Decider
from .idle_intervals import DROP, KEEP, SWAP
from .lower import Floats


def relax(decider: Decider, target: int) -> bool:
    """Keeps what there is room for after all: the dearest first. Whether there was any."""
    gaps, found = decider.gaps, False
    dropped = np.flatnonzero((decider.choice == DROP) & ~gaps.beyond)
    decider.price_again(dropped)
    dear = decider.seconds_again[dropped] / gaps.nbytes[dropped]
    for g in dropped[np.argsort(-dear, kind="stable")].tolist():
        part = decider.bytes[gaps.start[g] + 2 : min(int(decider.again_at[g]), int(gaps.end[g])) + 1]
        if part.max(initial=0) + gaps.nbytes[g] <= target:
            part += gaps.nbytes[g]
            decider.choice[g] = KEEP
            found = True
    return found


def promote(decider: Decider, target: int) -> bool:
    """Swaps what was dropped, dearest first, where the link turns out to be idle: the storage must be away from
    the first position where it would not fit to the last. Whether there was any."""
    gaps, found = decider.gaps, False
    if not decider.swap:
        return False
    dropped = np.flatnonzero((decider.choice == DROP) & ~gaps.beyond & (gaps.nbytes >= decider.least))
    dear = decider.seconds_again[dropped] / gaps.nbytes[dropped]
    for g in dropped[np.argsort(-dear, kind="stable")].tolist():
        start, end = int(gaps.start[g]), int(decider.again_at[g])
        full = np.flatnonzero(decider.bytes[start + 2 : end + 1] + gaps.nbytes[g] > target)
        if not len(full) or not decider.may_swap(g):
            continue
        t, until = start + 1 + int(full[0]), start + 1 + int(full[-1])
        if decider.exposed(g, t, until) <= 0.0:
            decider.take(g, t, until)
            decider.choice[g] = SWAP
            decider.rooms.take(g)
            found = True
    return found


def demote(decider: Decider, target: int, late: Floats, share: float = 1.0) -> bool:
    """Drops what was swapped where the plan waits for its copies and recomputing takes less.

    Parameters
    ----------
    late : array [gaps]
        Seconds that are waited for the copies of each gap (`delays.delays`).
    share : float
        How much of the waiting to remove: what is gained less changes the bytes in use less, too.
    """
    gaps, found = decider.gaps, False
    left = share * float(late.sum())
    which = np.flatnonzero((decider.choice == SWAP) & decider.droppable & (late > 0))
    agains = {g: again for g in which.tolist() if (again := decider.again(g)) is not None}
    for g in sorted(agains, key=lambda g: agains[g].seconds / late[g]):
        if left <= 0:
            break
        again = decider.again(g)  # neighbours may be dropped by now
        if again is not None and again.seconds < late[g] and decider.may_drop(g, again):
            decider.choice[g] = KEEP
            decider.add(int(gaps.start[g]), int(decider.until_touch[g]), False, int(gaps.nbytes[g]))
            decider.set_drop(g, again)
            left -= float(late[g])
            found = True
    return found


def exchange(decider: Decider, target: int, late: Floats, share: float = 1.0) -> bool:
    """Keeps on the device what was swapped and is waited for, and makes up for it elsewhere: with copies that hide, or
    by dropping. late, share: as for `demote`. Whether there was any."""
    gaps = decider.gaps
    left = share * float(late.sum())
    which = np.flatnonzero((decider.choice == SWAP) & (late > 0) & (gaps.nbytes > 0))
    for g in which[np.argsort(-late[which] / gaps.nbytes[which], kind="stable")].tolist():
        if left <= 0:
            break
        decider.choice[g] = KEEP
        decider.fixed[g] = True
        decider.add(int(gaps.start[g]), int(decider.until_touch[g]), bool(gaps.wraps[g]), int(gaps.nbytes[g]))
        left -= float(late[g])
    decider.lay_lanes()
    decider.rooms.recount(decider.choice)
    decider.reach(target)
    decider.fixed[:] = False
    return len(which) > 0


def repair(decider: Decider, target: int) -> bool:
    """Where nothing idle is left and storages made again are too many: each such run is cut in two by keeping one
    in its middle. Whether there was any."""
    gaps = decider.gaps
    dropped = (decider.choice == DROP) & ~gaps.beyond
    found = False
    over = np.flatnonzero(decider.bytes > target)
    for t in over[np.argsort(-decider.bytes[over], kind="stable")][:64].tolist():
        there = np.flatnonzero(dropped & (decider.again_at < t) & (t - 1 <= gaps.end))
        if not len(there):
            cut = (decider.choice == SWAP) & (decider.until_touch < t) & (t <= gaps.end) & ~gaps.wraps
            there = np.flatnonzero(dropped & np.isin(gaps.end, decider.until_touch[cut]))
        if not len(there):
            continue
        there = there[np.argsort(gaps.start[there], kind="stable")]
        half = np.cumsum(gaps.nbytes[there])
        g = int(there[np.searchsorted(half, half[-1] // 2)])
        decider.droppable[g] = dropped[g] = False
        decider.seconds_again[g] = np.inf
        decider.choice[g] = KEEP
        decider.add(int(gaps.start[g]), int(decider.again_at[g]), False, int(gaps.nbytes[g]))
        dropped[there] = False
        found = True
    return found
