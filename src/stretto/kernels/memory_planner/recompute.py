"""What it takes to recompute the storage of a gap at its end: the compiled loop of `memory.planner.decide`."""

from __future__ import annotations

from typing import NamedTuple

from stretto.kernels.core.compile import inner, kernel

from .arrays import DROP, NEXT, Ints, gap_at

LONGER, BESIDE, LEAVES, PASSING, STAMP, COUNTS = range(6)  # in `counts`
NO_WAY = 1e300  # seconds


class AgainSpace(NamedTuple):
    """What is found: longer (storages to keep beyond their last use), beside and leaves (gaps), with counts; and what
    it is found with. seen: by node; wanted: by storage, its place in `list`, or -1; list: storages, -1 where one was
    taken out."""

    longer: Ints
    beside: Ints
    leaves: Ints
    seen: Ints
    wanted: Ints
    list: Ints
    heap: Ints


@inner
def _add(heap, count, n):
    """Add a node to a heap with the largest on top."""
    at = count
    while at:
        above = (at - 1) // 2
        if heap[above] >= n:
            break
        heap[at] = heap[above]
        at = above
    heap[at] = n


@inner
def _take(heap, count):
    """Take the largest of `count` nodes from a heap."""
    found, n = heap[0], heap[count - 1]
    count -= 1
    at = 0
    while True:
        below = 2 * at + 1
        if below >= count:
            break
        if below + 1 < count and heap[below + 1] > heap[below]:
            below += 1
        if n >= heap[below]:
            break
        heap[at] = heap[below]
        at = below
    heap[at] = n
    return found


@inner
def _found(p, choice, longer, g, hold, launch, most, w, counts):
    """Seconds, or -1.0 if it cannot be recomputed or takes too much; the rest is in w and counts."""
    s = p.gap_storage[g]
    b, size = p.gap_end[g], p.size[s]
    counts[STAMP] += 1
    stamp, seconds, passing, held = counts[STAMP], 0.0, 0, 0
    seen, items, left, beside, leaves, heaped = 1, 0, 0, 0, 0, 1
    best, best_price = -1.0, NO_WAY
    w.heap[0] = p.maker[s]
    w.seen[p.maker[s]] = stamp
    while heaped:
        n = _take(w.heap, heaped)
        heaped -= 1
        seconds += max(p.seconds[n], launch)
        if seen > most or seconds >= best_price * size:
            break
        for i in range(p.makes_at[n], p.makes_at[n + 1]):
            r = p.makes[i]
            if w.wanted[r] >= 0:
                w.list[w.wanted[r]] = -1
                w.wanted[r] = -1
                left -= 1
                held -= p.size[r]
                passing += p.size[r]
        for i in range(p.reads_at[n], p.reads_at[n + 1]):
            r = p.reads[i]
            at = gap_at(p, r, b)
            if at == NEXT or w.wanted[r] >= 0:
                continue
            if at >= 0 and not (choice[at] == DROP and p.beyond[at]):
                if choice[at] == DROP:
                    w.beside[beside] = at
                    beside += 1
                else:
                    w.leaves[leaves] = at
                    leaves += 1
                continue
            if longer[r] >= b:
                continue
            w.wanted[r] = items
            w.list[items] = r
            items += 1
            left += 1
            held += p.size[r]
            m = p.maker[r]
            if m >= 0 and w.seen[m] != stamp and p.again[m] and p.until[m] >= b:
                w.seen[m] = stamp
                seen += 1
                _add(w.heap, heaped, m)
                heaped += 1
        if (hold or not heaped) and held < size and seconds / (size - held) < best_price:
            best, best_price = seconds, seconds / (size - held)
            counts[PASSING], counts[BESIDE], counts[LEAVES], counts[LONGER] = passing, beside, leaves, left
            k = 0
            for i in range(items):
                if w.list[i] >= 0:
                    w.longer[k] = w.list[i]
                    k += 1
    for i in range(items):
        if w.list[i] >= 0:
            w.wanted[w.list[i]] = -1
    return best


@kernel
def again(p, choice, longer, gap, hold, launch, most, w, counts):
    """Seconds to recompute the storage of one gap, or -1.0; see `_found`."""
    return _found(p, choice, longer, gap, hold, launch, most, w, counts)


@kernel
def again_seconds(p, choice, longer, gaps, hold, launch, most, w, counts, seconds):
    """Seconds [len(gaps)] to recompute the storages of some gaps, infinite where it cannot be."""
    for k in range(gaps.shape[0]):
        found = _found(p, choice, longer, gaps[k], hold, launch, most, w, counts)
        seconds[k] = found if found >= 0.0 else NO_WAY
