"""Conflicts between loop iterations: levels, connected components and visits, in linear time.

Accesses are given as in a sparse matrix: iteration s accesses keys[ptr[s]] to keys[ptr[s + 1]], and a key is twice the
number of an element, plus one if it is written. Two iterations *conflict* when they access an element that at least one
of them writes. The conflicts of one element grow with the square of its iterations, so pairs are never stored;
everything here is linear in the number of keys.
"""

from __future__ import annotations

import numpy as np

from stretto.kernels.core.claims import next_visit
from stretto.kernels.core.compile import inner, kernel
from stretto.kernels.core.scratch import empty, zeros

_BIG = 8  # a component of more than 1/8 of a visit's share is placed by size, the others in order


@kernel
def settle(ptr, keys, last):
    """Keep each element once per iteration, as written if any access writes it. In place; return how many keys remain.

    ptr [N + 1] int64, keys [K] int64; last [E] int64, all −1: the last position of the element.
    """
    kept = 0
    start = ptr[0]
    for s in range(ptr.shape[0] - 1):
        stop = ptr[s + 1]
        ptr[s] = kept
        for p in range(start, stop):
            element = keys[p] >> 1
            at = last[element]
            if at >= ptr[s]:
                keys[at] |= keys[p] & 1
            else:
                last[element] = kept
                keys[kept] = keys[p]
                kept += 1
        start = stop
    ptr[ptr.shape[0] - 1] = kept
    return kept


@kernel
def sharers(ptr, keys, count, written):
    """count [E]: how many iterations access each element; written [E]: whether any writes it. Needs unique keys."""
    for p in range(ptr[ptr.shape[0] - 1]):
        count[keys[p] >> 1] += 1
        written[keys[p] >> 1] |= keys[p] & 1


@kernel
def levels(ptr, keys, wrote, read, level):
    """level [N] int32: one more than the highest level of earlier conflicting iterations; return the number of levels.

    wrote, read [E] int32 zeros: the level, counted from one, of the last iterations that wrote and read an element.
    """
    highest = 0
    for s in range(ptr.shape[0] - 1):
        own = 0
        for p in range(ptr[s], ptr[s + 1]):
            element = keys[p] >> 1
            own = max(own, wrote[element])
            if keys[p] & 1:
                own = max(own, read[element])
        own += 1
        for p in range(ptr[s], ptr[s + 1]):
            element = keys[p] >> 1
            if keys[p] & 1:
                wrote[element] = own
            else:
                read[element] = max(read[element], own)
        level[s] = own - 1
        highest = max(highest, own)
    return highest


@inner
def _root(parent, q):
    while parent[q] != q:
        parent[q] = parent[parent[q]]
        q = parent[q]
    return q


@kernel(allocates=True)
def pack(order, bounds, ptr, keys, work, width, owner, parent, size, place, path):
    """Find the connected components of every batch, and pack them into visits of nearly equal work.

    order [N]: the iterations; batch b holds positions bounds[b] to bounds[b + 1] of it. work [N] of each iteration.
    owner [E] int32, all −1, parent [N] int32, size [N] int64: scratch. place [N]: the visit of its batch to which a
    position is assigned. path [B]: the work of the heaviest visit of each batch.

    A component is identified by its first position. Large components go, heaviest first, to the visit with least work.
    The others follow in order and fill one visit after the other, so that neighbours stay together.
    """
    load = zeros(width, np.int64)
    large = empty(_BIG * width + 1, np.int64)
    for b in range(bounds.shape[0] - 1):
        lo, hi = bounds[b], bounds[b + 1]
        load[:] = 0
        for q in range(lo, hi):
            s = order[q]
            parent[q] = q
            size[q] = 0
            place[q] = -1
            for p in range(ptr[s], ptr[s + 1]):
                if keys[p] & 1:
                    owner[keys[p] >> 1] = -2 - b  # an iteration of this batch writes it
        for q in range(lo, hi):
            s = order[q]
            mine = q
            for p in range(ptr[s], ptr[s + 1]):
                element = keys[p] >> 1
                if owner[element] == -2 - b:
                    owner[element] = mine
                    continue
                if owner[element] < lo:
                    continue
                other = _root(parent, owner[element])
                mine = _root(parent, mine)
                if other < mine:
                    parent[mine] = other
                    mine = other
                else:
                    parent[other] = mine
        total = 0
        biggest = 0
        for q in range(lo, hi):
            root = _root(parent, q)
            size[root] += work[order[q]]
            total += work[order[q]]
            biggest = max(biggest, size[root])
        goal = max((total + width - 1) // width, biggest)
        found = 0
        for q in range(lo, hi):
            if parent[q] == q and size[q] * _BIG > goal:
                at = found
                while at > 0 and size[large[at - 1]] < size[q]:
                    large[at] = large[at - 1]
                    at -= 1
                large[at] = q
                found += 1
        for k in range(found):
            least = 0
            for v in range(1, width):
                if load[v] < load[least]:
                    least = v
            place[large[k]] = least
            load[least] += size[large[k]]
        v = 0
        for q in range(lo, hi):
            root = _root(parent, q)
            if root == q and place[q] < 0:
                while v < width - 1 and load[v] >= goal:
                    v += 1
                place[q] = v
                load[v] += size[q]
            place[q] = place[root]
        path[b] = load.max()


@kernel(allocates=True)  # Numba's sort allocates
def distinct_worker(pass_, worker, out, bounds, keys, marks, kept, count):
    """List the elements of each visit, unique and sorted: kept[bounds[v]] to kept[bounds[v] + count[v]].

    keys of visit v: bounds[v] to bounds[v + 1]. marks [workers, E] uint8 zeros, before and after.
    """
    mark = marks[worker]
    v = next_visit(pass_, worker)
    while v >= 0:
        first = bounds[v]
        n = first
        for p in range(first, bounds[v + 1]):
            element = keys[p] >> 1
            if mark[element] == 0:
                mark[element] = 1
                kept[n] = element
                n += 1
        if (n - first) * 16 < mark.shape[0]:
            for p in range(first, n):
                mark[kept[p]] = 0
            kept[first:n].sort()
        else:
            n = first
            for element in range(mark.shape[0]):
                if mark[element] != 0:
                    mark[element] = 0
                    kept[n] = element
                    n += 1
        count[v] = n - first
        v = next_visit(pass_, worker, v)
