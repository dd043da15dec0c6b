"""Batch operations on a shard's rows: their holders, the notification of changes, versions and snapshots.

    holders  [cap, nodes] uint8    0: not held; 1: held and up to date; 2: held and changed since it was sent
    standing [cap] int64           how many holders are at 1; if 0, a change marks no new holder
    fresh    [cap] uint8           1 if the row changed since it last got a version
    dirty    [cap] int64           slots that may have a holder at 2, in order of their first change; `listed` [cap]
                                   uint8: whether a slot is in it. Functions take and return its length

A snapshot is the value of a state when a row was sent as some version. It is stored at a place: data [places, cols],
and refs [places, bytes] uint8 with one bit for each node that may still refer to it. Without references it is freed.
"""

from __future__ import annotations

import numpy as np

from stretto.kernels.core.compile import inner, kernel
from stretto.kernels.core.scratch import empty, zeros

HELD, CHANGED = 1, 2


@kernel
def mark_changed(slots, holders, standing, fresh, listed, dirty, count):
    """Mark these rows as changed for all their holders. Return the new count of dirty rows."""
    for i in range(slots.shape[0]):
        s = slots[i]
        fresh[s] = 1
        if standing[s] > 0:
            for node in range(holders.shape[1]):
                if holders[s, node] == HELD:
                    holders[s, node] = CHANGED
            standing[s] = 0
            if listed[s] == 0:
                listed[s] = 1
                dirty[count] = s
                count += 1
    return count


@kernel
def hold(slots, node, holders, standing):
    """Mark these rows as up to date at a node to which they are sent."""
    for i in range(slots.shape[0]):
        s = slots[i]
        if holders[s, node] != HELD:
            holders[s, node] = HELD
            standing[s] += 1


@kernel
def let_go(slots, node, holders, standing):
    """Remove a node from the holders of these rows."""
    for i in range(slots.shape[0]):
        s = slots[i]
        if holders[s, node] == HELD:
            standing[s] -= 1
        holders[s, node] = 0


@kernel
def waiting_holders(dirty, count, holders, open_, slots, pairs):
    """List the dirty rows that have an open holder to notify; open [nodes] bool.

    slots [m], pairs [m] (how many such holders). Returns m.
    """
    m = 0
    for i in range(count):
        s = dirty[i]
        found = 0
        for node in range(holders.shape[1]):
            if holders[s, node] == CHANGED and open_[node]:
                found += 1
        if found > 0:
            slots[m] = s
            pairs[m] = found
            m += 1
    return m


@kernel(allocates=True)
def tell_holders(chosen, holders, standing, listed, moved, open_):
    """List the rows to send to every open holder, and mark them as up to date there.

    Returns ends [nodes + 1] and slots: those for node k are slots[ends[k] : ends[k + 1]], in the order of `chosen`.
    Rows without further holders to notify leave the list (see `relist`).
    """
    nodes = holders.shape[1]
    ends = zeros(nodes + 1, np.int64)
    for i in range(chosen.shape[0]):
        for node in range(nodes):
            if holders[chosen[i], node] == CHANGED and open_[node]:
                ends[node + 1] += 1
    for node in range(nodes):
        ends[node + 1] += ends[node]
    at = empty(nodes, np.int64)
    for node in range(nodes):
        at[node] = ends[node]
    slots = empty(ends[nodes], np.int64)
    for i in range(chosen.shape[0]):
        s = chosen[i]
        left = 0
        for node in range(nodes):
            if holders[s, node] == CHANGED:
                if open_[node]:
                    holders[s, node] = HELD
                    standing[s] += 1
                    slots[at[node]] = s
                    at[node] += 1
                else:
                    left += 1
        if left == 0:
            listed[s] = 0
            if moved.shape[0] > 0:
                moved[s] = 0.0
    return ends, slots


@kernel
def relist(dirty, count, listed):
    """Compact the list of dirty rows; return the new count."""
    kept = 0
    for i in range(count):
        s = dirty[i]
        if listed[s] != 0:
            dirty[kept] = s
            kept += 1
    return kept


@kernel
def add_counts(slots, counts, witness):
    """witness[slots[i]] += counts[i]."""
    for i in range(slots.shape[0]):
        s = slots[i]
        for w in range(witness.shape[1]):
            witness[s, w] += counts[i, w]


@kernel
def last_of_each(slots, ends, mark, base, keep):
    """keep[i] = whether entry i is the last one of its slot in its group; return how many are kept.

    Group g has the entries ends[g] … ends[g + 1] − 1. mark [cap] int64 holds nothing above base.
    """
    kept = 0
    for g in range(ends.shape[0] - 1):
        for i in range(ends[g + 1] - 1, ends[g] - 1, -1):
            s = slots[i]
            keep[i] = mark[s] != base + 1 + g
            if keep[i]:
                mark[s] = base + 1 + g
                kept += 1
    return kept


@kernel
def open_rows(slots, clock, opened, source, before, old):
    """Save source [cap, cols] in `before` for rows whose first change of this clock is among these.

    opened [cap] int64: the clock of before[slot]. old[i] = before[slots[i]].
    """
    for i in range(slots.shape[0]):
        s = slots[i]
        if opened[s] != clock:
            opened[s] = clock
            for k in range(before.shape[1]):
                before[s, k] = source[s, k]
        for k in range(before.shape[1]):
            old[i, k] = before[s, k]


# --- versions and snapshots -------------------------------------------------------------------------------------------


@kernel
def give_versions(slots, fresh, version):
    """Give the next version to the rows that changed since their last one; they are about to be sent."""
    for i in range(slots.shape[0]):
        s = slots[i]
        if fresh[s] != 0:
            fresh[s] = 0
            version[s] += 1


@inner
def _anybody(refs, at):
    found = False
    for b in range(refs.shape[1]):
        found = found or refs[at, b] != 0
    return found


@kernel
def refer(ends, nodes, places, slots, source, data, refs):
    """Record that nodes[k] refers to the snapshots of the rows slots[ends[k] : ends[k + 1]], which it is sent.

    Snapshots are stored at `places`; missing ones are copied from source [cap, cols]. Returns how many were created.
    """
    made = 0
    for k in range(nodes.shape[0]):
        byte, bit = nodes[k] >> 3, np.uint8(1 << (nodes[k] & 7))
        for i in range(ends[k], ends[k + 1]):
            at = places[i]
            if not _anybody(refs, at):
                made += 1
                for c in range(data.shape[1]):
                    data[at, c] = source[slots[i], c]
            refs[at, byte] |= bit
    return made


@kernel
def give_back(places, node, refs):
    """Remove a node's references to the snapshots at these places (−1: none). Return how many snapshots were freed."""
    byte, bit = node >> 3, np.uint8(1 << (node & 7))
    gone = 0
    for i in range(places.shape[0]):
        at = places[i]
        if at >= 0 and refs[at, byte] & bit:
            refs[at, byte] ^= bit
            if not _anybody(refs, at):
                gone += 1
    return gone


@kernel
def recall(places, slots, versions, source, data, refs, old):
    """old[i] = the snapshot at places[i]; if versions[i] is negative, the present source[slots[i]].

    Returns the first entry whose snapshot is missing, or −1.
    """
    for i in range(places.shape[0]):
        at = places[i]
        if versions[i] < 0:
            for k in range(old.shape[1]):
                old[i, k] = source[slots[i], k]
        elif at < 0 or not _anybody(refs, at):
            return i
        else:
            for k in range(old.shape[1]):
                old[i, k] = data[at, k]
    return -1
