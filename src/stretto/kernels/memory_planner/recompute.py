"""Cost of recomputing the storage of an idle interval at its end: the compiled loop of `memory.planner.decide`."""

from __future__ import annotations

from typing import NamedTuple

from stretto.kernels.core.compile import inner, kernel

from .arrays import DROP, NEXT, Ints, interval_at

HELD, BESIDE, LEAVES, TEMPORARY_BYTES, STAMP, COUNTS = range(6)  # in `counts`
NO_WAY = 1e300  # seconds


class RecomputeSpace(NamedTuple):
    """Results, whose lengths are in `counts`, and working memory."""

    held: Ints  # result: storages to keep after their last use
    beside: Ints  # result: intervals of dropped storages that are recomputed together
    leaves: Ints  # result: intervals of storages that must be resident
    seen: Ints  # by node: the last search that visited it
    wanted: Ints  # by storage: its index in `list`, or -1
    list: Ints  # storages, -1 where one was removed
    heap: Ints  # nodes to visit, the latest first


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
def _found(p, choice, kept_until, g, hold, launch, most, w, counts):
    """Return seconds, or -1.0 if it cannot be recomputed or is too expensive; other results are in w and counts."""
    s = p.interval_storage[g]
    b, size = p.interval_end[g], p.size[s]
    counts[STAMP] += 1
    stamp, seconds, temporary, held = counts[STAMP], 0.0, 0, 0
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
                temporary += p.size[r]
        for i in range(p.reads_at[n], p.reads_at[n + 1]):
            r = p.reads[i]
            at = interval_at(p, r, b)
            if at == NEXT or w.wanted[r] >= 0:
                continue
            if at >= 0 and not (choice[at] == DROP and p.extended[at]):
                if choice[at] == DROP:
                    w.beside[beside] = at
                    beside += 1
                else:
                    w.leaves[leaves] = at
                    leaves += 1
                continue
            if kept_until[r] >= b:
                continue
            w.wanted[r] = items
            w.list[items] = r
            items += 1
            left += 1
            held += p.size[r]
            m = p.maker[r]
            if m >= 0 and w.seen[m] != stamp and p.recomputable[m] and p.recompute_until[m] >= b:
                w.seen[m] = stamp
                seen += 1
                _add(w.heap, heaped, m)
                heaped += 1
        if (hold or not heaped) and held < size and seconds / (size - held) < best_price:
            best, best_price = seconds, seconds / (size - held)
            counts[TEMPORARY_BYTES], counts[BESIDE], counts[LEAVES], counts[HELD] = temporary, beside, leaves, left
            k = 0
            for i in range(items):
                if w.list[i] >= 0:
                    w.held[k] = w.list[i]
                    k += 1
    for i in range(items):
        if w.list[i] >= 0:
            w.wanted[w.list[i]] = -1
    return best


@kernel
def recompute_cost(p, choice, kept_until, interval, hold, launch, most, w, counts):
    """Return the seconds to recompute the storage of one interval, or -1.0; see `_found`."""
    return _found(p, choice, kept_until, interval, hold, launch, most, w, counts)


@kernel
def recompute_seconds(p, choice, kept_until, intervals, hold, launch, most, w, counts, seconds):
    """Return seconds [len(intervals)] to recompute the storages of some intervals, NO_WAY if impossible."""
    for k in range(intervals.shape[0]):
        found = _found(p, choice, kept_until, intervals[k], hold, launch, most, w, counts)
        seconds[k] = found if found >= 0.0 else NO_WAY
