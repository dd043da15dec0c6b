"""A shard's rows, in batches: who holds them, who has to be told of a change, what was kept for which version.

    holders  [cap, nodes] uint8    0: not held; 1: held, and as it was sent; 2: held, and changed since it was sent
    standing [cap] int64           how many holders are at 1; a change of a row without any has nobody new to mark
    fresh    [cap] uint8           changed since the row was last given a version
    dirty    [cap] int64           the slots that may have a holder at 2, in order of their first change; `listed` [cap]
                                   uint8 says which slots are in it. How many there are is handed in and returned

A snapshot is what a state held when a row was sent as some version. It lies at a place: data [places, cols], and refs
[places, bytes] uint8 with one bit for each node that may still refer to it. Without any it is gone.
"""

from __future__ import annotations

import numpy as np

from stretto.kernels.core.compile import inner, kernel
from stretto.kernels.core.scratch import empty, zeros

HELD, CHANGED = 1, 2


@kernel
def mark_changed(slots, holders, standing, fresh, listed, dirty, count):
    """These rows changed: all their holders have to be told. Returns the new count of dirty rows."""
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
    """The node is sent these rows as they are now."""
    for i in range(slots.shape[0]):
        s = slots[i]
        if holders[s, node] != HELD:
            holders[s, node] = HELD
            standing[s] += 1


@kernel
def let_go(slots, node, holders, standing):
    """The node holds these rows no more."""
    for i in range(slots.shape[0]):
        s = slots[i]
        if holders[s, node] == HELD:
            standing[s] -= 1
        holders[s, node] = 0


@kernel
def waiting_holders(dirty, count, holders, open_, slots, pairs):
    """Of the dirty rows those some open [nodes] bool holder of which has to be told: slots [m], pairs [m] (how many
    such holders); returns m."""
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
    """Every open holder of these rows is told of their changes. Returns ends [nodes + 1] and slots: those for node k
    are slots[ends[k] : ends[k + 1]], in the order of `chosen`. Rows that are settled leave the list (see `relist`)."""
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
    """Close the gaps that settled rows left; returns the new count."""
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
    """keep[i] = whether entry i is the last one of its slot in its group, entries ends[g] … ends[g + 1] − 1 being group
    g. mark [cap] int64 holds nothing above base. Returns how many are kept."""
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
    """Rows whose first change of this clock is among these: keep source [cap, cols] as it was, in `before`. opened
    [cap] int64: the clock before[slot] belongs to. old[i] = before[slots[i]]."""
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
    """Rows that changed since they were given a version get the next one; they are about to be sent."""
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
    """nodes[k] is sent rows slots[ends[k] : ends[k + 1]]: from now on it refers to their snapshots, which lie at places
    and are made of source [cap, cols] where there are none. Returns how many were made."""
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
    """The node does not refer to the snapshots at these places (−1: none) any more. Returns how many went with that."""
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
    """old[i] = the snapshot at places[i]; where versions[i] is negative, source[slots[i]] as it is now. Returns the
    first entry whose snapshot is not there, or −1."""
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
