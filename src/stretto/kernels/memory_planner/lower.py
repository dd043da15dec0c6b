"""Turn a timeline into instructions, and choose when each copy begins: the compiled loop of `memory.planner.lower`."""

from __future__ import annotations

from typing import NamedTuple

from stretto.kernels.core.compile import inner, kernel

from .arrays import Bytes, Floats, Ints

OUT, EVICT, FREE, IN, READY = range(2, 7)
INSTRUCTIONS, LEAVING, LEAVING_BYTES, WAITING, BLOCKED, COUNTS = range(6)  # in `counts`
NOW, OUT_FREE, IN_FREE, CLOCKS = range(4)  # in `clocks`


class LowerSteps(NamedTuple):
    """K steps and their copies, in the orders in which the loop visits them. `x_at` has the bounds of `x` by step."""

    kind: Ints  # [K] RUN or RECOMPUTE
    node: Ints  # [K]
    size: Ints  # by storage: bytes
    seconds: Floats  # by node
    free_at: Ints  # [K + 3]
    free: Ints  # storages freed before a step
    begin_at: Ints  # [K + 3]
    begin: Ints  # copies to the host that may begin, as storages
    end_at: Ints  # [K + 3]
    end: Ints  # copies to the host whose storages are not needed any more
    by_at: Ints  # [K + 3]
    by: Ints  # copies to the host that must be done
    swap_in: Ints  # copies from the host: storage
    swap_in_since: Ints  # the step before which the copy cannot begin
    swap_in_need: Ints  # the step before which it must end
    expected: Floats  # [K + 1] when each step will begin, about
    first: Ints  # the step before which each copy from the host begins, where that is fixed


class LowerSpace(NamedTuple):
    """Working memory and results."""

    free_bytes: Ints  # [K + 1] bytes of the budget beside the required ones
    copied_out_at: Floats  # by storage: when its copy to the host ends, -1 if there is none
    host_copy_at: Floats  # by storage: when the host has its value
    copied_in_at: Floats  # by storage: when its copy from the host ends
    leaving_time: Floats  # heap of copies to the host whose storages are not needed any more: when they end
    leaving_storage: Ints  # and their storages
    issued: Bytes  # by copy from the host: whether it has begun
    starts: Floats  # by copy from the host: when it should begin at the latest
    what: Ints  # result: kinds of instructions
    which: Ints  # result: their nodes or storages
    began: Floats  # [K + 1] result: when each step began


@inner
def _emit(w, counts, what, which):
    w.what[counts[INSTRUCTIONS]] = what
    w.which[counts[INSTRUCTIONS]] = which
    counts[INSTRUCTIONS] += 1


@inner
def _push(w, counts, time, s):
    """Add to the heap: the earliest on top; of equal ones the storage with the smaller number."""
    at = counts[LEAVING]
    counts[LEAVING] += 1
    while at:
        above = (at - 1) // 2
        if (w.leaving_time[above], w.leaving_storage[above]) <= (time, s):
            break
        w.leaving_time[at], w.leaving_storage[at] = w.leaving_time[above], w.leaving_storage[above]
        at = above
    w.leaving_time[at], w.leaving_storage[at] = time, s


@inner
def _pop(w, counts):
    """Remove the earliest from the heap and return its storage; its time is in w.copied_out_at."""
    found = w.leaving_storage[0]
    counts[LEAVING] -= 1
    count = counts[LEAVING]
    time, s = w.leaving_time[count], w.leaving_storage[count]
    at = 0
    while True:
        below = 2 * at + 1
        if below >= count:
            break
        other = below + 1
        if other < count and (w.leaving_time[other], w.leaving_storage[other]) < (
            w.leaving_time[below],
            w.leaving_storage[below],
        ):
            below = other
        if (time, s) <= (w.leaving_time[below], w.leaving_storage[below]):
            break
        w.leaving_time[at], w.leaving_storage[at] = w.leaving_time[below], w.leaving_storage[below]
        at = below
    w.leaving_time[at], w.leaving_storage[at] = time, s
    return found


@inner
def _evict(p, w, counts, clocks):
    """Wait for the earliest copy to the host of a storage that is not needed any more."""
    s = _pop(w, counts)
    clocks[NOW] = max(clocks[NOW], w.copied_out_at[s])
    w.copied_out_at[s] = -1.0
    counts[LEAVING_BYTES] -= p.size[s]
    _emit(w, counts, EVICT, s)


@inner
def _begin_in(p, w, counts, clocks, s, into, latency):
    begin = max(clocks[IN_FREE], clocks[NOW], w.host_copy_at[s])
    clocks[IN_FREE] = begin + (latency + p.size[s] / into)
    w.copied_in_at[s] = clocks[IN_FREE]
    _emit(w, counts, IN, s)


@inner
def _early(p, w, counts, clocks, k, i, horizon, into, latency):
    """Begin copies that would be late if they began after step k, as far as bytes are free until they are needed."""
    while i < p.swap_in.shape[0] and k >= counts[BLOCKED]:
        if p.first.shape[0]:
            if k < p.first[i]:
                break
        elif w.starts[i] >= horizon:
            break
        s = p.swap_in[i]
        size, need = p.size[s], p.swap_in_need[i]
        if p.swap_in_since[i] > k or w.copied_out_at[s] >= 0.0:
            counts[BLOCKED] = max(k + 1, min(p.swap_in_since[i], need))  # still on the device: retry later
            break
        short = need - 1
        while short >= k and w.free_bytes[short] >= size:
            short -= 1
        if short >= k:
            counts[BLOCKED] = short + 1
            break
        if size > w.free_bytes[k] - counts[LEAVING_BYTES]:
            break
        for j in range(k, need):
            w.free_bytes[j] -= size
        _begin_in(p, w, counts, clocks, s, into, latency)
        w.issued[i] = 1
        i += 1
    counts[WAITING] = i


@kernel
def lowered(p, w, counts, clocks, link):
    """Emit the instructions of all steps. link [3]: bytes per second to the host and from it, seconds of latency."""
    out, into, latency = link[0], link[1], link[2]
    for k in range(counts.shape[0]):
        counts[k] = 0
    counts[BLOCKED] = -1
    clocks[NOW] = clocks[OUT_FREE] = clocks[IN_FREE] = 0.0
    for s in range(p.size.shape[0]):
        w.copied_out_at[s] = -1.0
        w.host_copy_at[s] = 0.0
    count, comes = p.node.shape[0], p.swap_in.shape[0]
    latest = 1e300  # latest start times at which all copies are in time, one after another on the link
    for i in range(comes - 1, -1, -1):
        w.issued[i] = 0
        latest = min(latest, p.expected[p.swap_in_need[i]]) - (latency + p.size[p.swap_in[i]] / into)
        w.starts[i] = latest
    first = 0  # the first copy that the device has not waited for
    for k in range(count + 1):
        for i in range(p.free_at[k], p.free_at[k + 1]):
            _emit(w, counts, FREE, p.free[i])
        for i in range(p.begin_at[k], p.begin_at[k + 1]):
            s = p.begin[i]
            clocks[OUT_FREE] = max(clocks[OUT_FREE], clocks[NOW]) + (latency + p.size[s] / out)
            w.copied_out_at[s] = w.host_copy_at[s] = clocks[OUT_FREE]
            _emit(w, counts, OUT, s)
        for i in range(p.end_at[k], p.end_at[k + 1]):
            s = p.end[i]
            _push(w, counts, w.copied_out_at[s], s)
            counts[LEAVING_BYTES] += p.size[s]
        while counts[LEAVING] and w.leaving_time[0] <= clocks[NOW]:
            _evict(p, w, counts, clocks)
        for i in range(p.by_at[k], p.by_at[k + 1]):
            while w.copied_out_at[p.by[i]] >= 0.0:
                _evict(p, w, counts, clocks)
        while counts[LEAVING_BYTES] > w.free_bytes[k]:
            _evict(p, w, counts, clocks)
        wanted = first
        while wanted < comes and p.swap_in_need[wanted] == k:
            if not w.issued[wanted]:
                while w.copied_out_at[p.swap_in[wanted]] >= 0.0:
                    _evict(p, w, counts, clocks)
                _begin_in(p, w, counts, clocks, p.swap_in[wanted], into, latency)
                w.issued[wanted] = 1
            wanted += 1
        for i in range(first, wanted):
            clocks[NOW] = max(clocks[NOW], w.copied_in_at[p.swap_in[i]])
            _emit(w, counts, READY, p.swap_in[i])
        first = wanted
        w.began[k] = clocks[NOW]
        if k == count:
            break
        seconds = p.seconds[p.node[k]]
        _early(p, w, counts, clocks, k, max(wanted, counts[WAITING]), clocks[NOW] + seconds, into, latency)
        _emit(w, counts, p.kind[k], p.node[k])
        clocks[NOW] += seconds
    while counts[LEAVING]:
        _evict(p, w, counts, clocks)
    w.began[count] = clocks[NOW]
