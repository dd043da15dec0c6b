"""From steps to instructions, and when each copy begins: the compiled loop of `memory.planner.lower`."""

from __future__ import annotations

from typing import NamedTuple

from stretto.kernels.core.compile import inner, kernel

from .arrays import Bytes, Floats, Ints

OUT, GONE, FREE, IN, READY = range(2, 7)
INSTRUCTIONS, LEFT, LEFT_BYTES, WAITING, BLOCKED, COUNTS = range(6)  # in `counts`
NOW, OUT_FREE, IN_FREE, CLOCKS = range(4)  # in `clocks`


class LowerSteps(NamedTuple):
    """Steps, and their copies in the orders in which they are looked through.

    kind, node [K]: of a step. size, seconds: by storage, by node. free_at [K + 2], free: storages freed before a step.
    begin_at, end_at, by_at [K + 3]: bounds, by step, of begin (copies that may begin), end (those whose storages are
    not wanted any more) and by (those that must be gone), as storages. come, come_since, come_need: copies from the
    host. expected [K + 1]: when each step will begin, about. first: before which step each copy from the host begins,
    if that is fixed.
    """

    kind: Ints
    node: Ints
    size: Ints
    seconds: Floats
    free_at: Ints
    free: Ints
    begin_at: Ints
    begin: Ints
    end_at: Ints
    end: Ints
    by_at: Ints
    by: Ints
    come: Ints
    come_since: Ints
    come_need: Ints
    expected: Floats
    first: Ints


class LowerSpace(NamedTuple):
    """room [K + 1]: bytes that are left beside what must be there, by step. leaving, landed, coming: by storage, when a
    copy ends (leaving: -1 if there is none). left_time, left: a heap of copies whose storages are not wanted any more.
    issued, starts: by copy from the host, whether it has begun, and when it should at the latest. what, which: the
    instructions. began [K + 1]: of a step."""

    room: Ints
    leaving: Floats
    landed: Floats
    coming: Floats
    left_time: Floats
    left: Ints
    issued: Bytes
    starts: Floats
    what: Ints
    which: Ints
    began: Floats


@inner
def _emit(w, counts, what, which):
    w.what[counts[INSTRUCTIONS]] = what
    w.which[counts[INSTRUCTIONS]] = which
    counts[INSTRUCTIONS] += 1


@inner
def _push(w, counts, time, s):
    """Add to the heap; the earliest first, of equal ones the storage with the smaller number."""
    at = counts[LEFT]
    counts[LEFT] += 1
    while at:
        above = (at - 1) // 2
        if (w.left_time[above], w.left[above]) <= (time, s):
            break
        w.left_time[at], w.left[at] = w.left_time[above], w.left[above]
        at = above
    w.left_time[at], w.left[at] = time, s


@inner
def _pop(w, counts):
    """Take the earliest from the heap: its storage; its time is that of w.leaving."""
    found = w.left[0]
    counts[LEFT] -= 1
    count = counts[LEFT]
    time, s = w.left_time[count], w.left[count]
    at = 0
    while True:
        below = 2 * at + 1
        if below >= count:
            break
        other = below + 1
        if other < count and (w.left_time[other], w.left[other]) < (w.left_time[below], w.left[below]):
            below = other
        if (time, s) <= (w.left_time[below], w.left[below]):
            break
        w.left_time[at], w.left[at] = w.left_time[below], w.left[below]
        at = below
    w.left_time[at], w.left[at] = time, s
    return found


@inner
def _gone(p, w, counts, clocks):
    """Wait for the earliest copy to the host of what is not wanted any more."""
    s = _pop(w, counts)
    clocks[NOW] = max(clocks[NOW], w.leaving[s])
    w.leaving[s] = -1.0
    counts[LEFT_BYTES] -= p.size[s]
    _emit(w, counts, GONE, s)


@inner
def _begin_in(p, w, counts, clocks, s, into, latency):
    begin = max(clocks[IN_FREE], clocks[NOW], w.landed[s])
    clocks[IN_FREE] = begin + (latency + p.size[s] / into)
    w.coming[s] = clocks[IN_FREE]
    _emit(w, counts, IN, s)


@inner
def _early(p, w, counts, clocks, k, i, horizon, into, latency):
    """Begin copies that would be late if they began after step k, as far as there are bytes until they are wanted."""
    while i < p.come.shape[0] and k >= counts[BLOCKED]:
        if p.first.shape[0]:
            if k < p.first[i]:
                break
        elif w.starts[i] >= horizon:
            break
        s = p.come[i]
        size, need = p.size[s], p.come_need[i]
        if p.come_since[i] > k or w.leaving[s] >= 0.0:
            counts[BLOCKED] = max(k + 1, min(p.come_since[i], need))  # it has not left yet: look again later
            break
        short = need - 1
        while short >= k and w.room[short] >= size:
            short -= 1
        if short >= k:
            counts[BLOCKED] = short + 1
            break
        if size > w.room[k] - counts[LEFT_BYTES]:
            break
        for j in range(k, need):
            w.room[j] -= size
        _begin_in(p, w, counts, clocks, s, into, latency)
        w.issued[i] = 1
        i += 1
    counts[WAITING] = i


@kernel
def lowered(p, w, counts, clocks, link):
    """Follow the steps. link [3]: bytes a second to the host and from it, seconds before the first byte."""
    out, into, latency = link[0], link[1], link[2]
    for k in range(counts.shape[0]):
        counts[k] = 0
    counts[BLOCKED] = -1
    clocks[NOW] = clocks[OUT_FREE] = clocks[IN_FREE] = 0.0
    for s in range(p.size.shape[0]):
        w.leaving[s] = -1.0
        w.landed[s] = 0.0
    count, comes = p.node.shape[0], p.come.shape[0]
    latest = 1e300  # so that all are in time, one after the other on the link
    for i in range(comes - 1, -1, -1):
        w.issued[i] = 0
        latest = min(latest, p.expected[p.come_need[i]]) - (latency + p.size[p.come[i]] / into)
        w.starts[i] = latest
    first = 0  # the first copy that has not been waited for
    for k in range(count + 1):
        for i in range(p.free_at[k], p.free_at[k + 1]):
            _emit(w, counts, FREE, p.free[i])
        for i in range(p.begin_at[k], p.begin_at[k + 1]):
            s = p.begin[i]
            clocks[OUT_FREE] = max(clocks[OUT_FREE], clocks[NOW]) + (latency + p.size[s] / out)
            w.leaving[s] = w.landed[s] = clocks[OUT_FREE]
            _emit(w, counts, OUT, s)
        for i in range(p.end_at[k], p.end_at[k + 1]):
            s = p.end[i]
            _push(w, counts, w.leaving[s], s)
            counts[LEFT_BYTES] += p.size[s]
        while counts[LEFT] and w.left_time[0] <= clocks[NOW]:
            _gone(p, w, counts, clocks)
        for i in range(p.by_at[k], p.by_at[k + 1]):
            while w.leaving[p.by[i]] >= 0.0:
                _gone(p, w, counts, clocks)
        while counts[LEFT_BYTES] > w.room[k]:
            _gone(p, w, counts, clocks)
        wanted = first
        while wanted < comes and p.come_need[wanted] == k:
            if not w.issued[wanted]:
                while w.leaving[p.come[wanted]] >= 0.0:
                    _gone(p, w, counts, clocks)
                _begin_in(p, w, counts, clocks, p.come[wanted], into, latency)
                w.issued[wanted] = 1
            wanted += 1
        for i in range(first, wanted):
            clocks[NOW] = max(clocks[NOW], w.coming[p.come[i]])
            _emit(w, counts, READY, p.come[i])
        first = wanted
        w.began[k] = clocks[NOW]
        if k == count:
            break
        seconds = p.seconds[p.node[k]]
        _early(p, w, counts, clocks, k, max(wanted, counts[WAITING]), clocks[NOW] + seconds, into, latency)
        _emit(w, counts, p.kind[k], p.node[k])
        clocks[NOW] += seconds
    while counts[LEFT]:
        _gone(p, w, counts, clocks)
    w.began[count] = clocks[NOW]
