"""Steps and resident bytes from the choice for each idle interval: the compiled loop of `memory.planner.timeline`.

Lists that grow are arrays with a count in `counts`; where one is full, FULL is set and nothing is written beyond it.
"""

from __future__ import annotations

from typing import NamedTuple

from stretto.kernels.core.compile import inner, kernel

from .arrays import DROP, GIVEN, PERSISTENT, SWAP, TAIL, Bytes, Ints, interval_at

RUN, RECOMPUTE = range(2)
STEPS, FREES, SWAP_OUTS, SWAP_INS, TOUCHED, RECOMPUTED, NBYTES, START, MISSED, FULL, EXPIRING, STAMP, COUNTS = range(13)
NEVER = 1 << 60


class TimelineSpace(NamedTuple):
    """Working memory."""

    resident: Bytes  # by storage
    on_host_copy: Bytes  # by storage: the host has its present value
    made: Ints  # by storage: the step that made its value
    since: Ints  # by storage: the step since which it is off the device
    in_interval: Ints  # by storage: its present interval
    swapping_out: Ints  # by storage: its copy to the host that may be in flight, or -1
    missed: Ints  # by storage: the position up to which it should have been kept, or -1
    readers: Ints  # by storage: reads that are still to come in this recomputation
    seen: Ints  # by node: the last search that visited it
    order: Ints  # nodes to recompute
    expire_first: Ints  # by position: the first entry of the list of storages that are freed after it
    expire_last: Ints  # by position: the last entry of that list
    expire_next: Ints  # by entry: the next one
    expire: Ints  # by entry: the storage
    stack: Ints
    lost: Ints
    fresh: Ints


class TimelineSteps(NamedTuple):
    """Results. See `memory.planner.timeline.Timeline`."""

    kind: Ints
    node: Ints
    position: Ints
    required: Ints
    free_step: Ints
    free: Ints
    swap_out: Ints
    swap_out_ready: Ints
    swap_out_free: Ints
    swap_out_by: Ints
    swap_in: Ints
    swap_in_since: Ints
    swap_in_need: Ints
    touched: Ints
    touched_at: Ints
    recomputed: Ints
    recomputed_at: Ints
    on_host: Bytes


@inner
def _free(p, w, out, counts, s):
    w.resident[s] = 0
    counts[NBYTES] -= p.size[s]
    w.since[s] = counts[STEPS]
    if counts[FREES] == out.free.shape[0]:
        counts[FULL] = 1
        return
    out.free_step[counts[FREES]] = counts[STEPS]
    out.free[counts[FREES]] = s
    counts[FREES] += 1


@inner
def _swap_out(p, w, out, counts, s, k):
    """Remove storage s from the device after step k, with a copy to the host unless it has one."""
    if w.on_host_copy[s]:
        _free(p, w, out, counts, s)
        return
    w.resident[s] = 0
    counts[NBYTES] -= p.size[s]
    w.on_host_copy[s] = 1
    w.since[s] = k + 1
    at = counts[SWAP_OUTS]
    if at == out.swap_out.shape[0]:
        counts[FULL] = 1
        return
    out.swap_out[at], out.swap_out_ready[at], out.swap_out_free[at], out.swap_out_by[at] = s, w.made[s], k, NEVER
    w.swapping_out[s] = at
    counts[SWAP_OUTS] += 1


@inner
def _swap_in(p, w, out, counts, s, k):
    """Copy storage s from the host before step k."""
    at = counts[SWAP_INS]
    if at == out.swap_in.shape[0]:
        counts[FULL] = 1
    else:
        out.swap_in[at], out.swap_in_since[at], out.swap_in_need[at] = s, w.since[s], k
        counts[SWAP_INS] += 1
    w.swapping_out[s] = -1
    w.resident[s] = 1
    counts[NBYTES] += p.size[s]


@inner
def _step(out, counts, kind, n, place, required):
    at = counts[STEPS]
    if at + 1 >= out.required.shape[0]:
        counts[FULL] = 1
        return
    out.kind[at], out.node[at], out.position[at], out.required[at] = kind, n, place, required
    counts[STEPS] += 1


@inner
def _from_host(w, choice, s):
    g = w.in_interval[s]
    return w.on_host_copy[s] != 0 and g >= 0 and choice[g] == SWAP


@inner
def _maker(p, w, counts, s, position):
    """Return the node to recompute for storage s, or -1.

    A storage that can neither be recomputed nor copied back should have been kept. It is recorded and counts as
    resident from then on; this timeline will not be used.
    """
    n = p.maker[s]
    if n >= 0 and p.recomputable[n] and p.recompute_until[n] >= position:
        return n
    if not w.on_host_copy[s]:
        w.missed[s] = max(position, w.missed[s])
        counts[MISSED] = 1
        w.resident[s] = 1
        counts[NBYTES] += p.size[s]
    return -1


@inner
def _closure(p, w, choice, counts, lost, position):
    """Collect the nodes to recompute in w.order, makers before readers; return how many."""
    counts[STAMP] += 1
    stamp, found = counts[STAMP], 0
    for k in range(lost):
        top = 0
        n = _maker(p, w, counts, w.lost[k], position)
        if n >= 0:
            w.stack[0] = n
            top = 1
        while top:
            top -= 1
            n = w.stack[top]
            if n < 0:
                w.order[found] = -n - 1
                found += 1
            elif w.seen[n] != stamp:
                w.seen[n] = stamp
                w.stack[top] = -n - 1
                top += 1
                for i in range(p.reads_at[n], p.reads_at[n + 1]):
                    r = p.reads[i]
                    if not w.resident[r] and not _from_host(w, choice, r):
                        m = _maker(p, w, counts, r, position)
                        if m >= 0:
                            w.stack[top] = m
                            top += 1
    return found


@inner
def _stays(p, w, choice, kept_until, reuse_window, s, position, made):
    """Whether a storage that was recomputed, or copied back for that, is kept for a later use of its own."""
    g = w.in_interval[s]
    if g == TAIL or (g >= 0 and p.extended[g] and (choice[g] == DROP or p.interval_end[g] < position)):
        return kept_until[s] >= position
    if g < 0 or choice[g] != SWAP:
        return True
    if made or p.interval_end[g] - position > reuse_window:
        return False
    return not (p.wraps[g] and position > p.interval_start[g])


@inner
def _recompute(p, w, out, choice, kept_until, reuse_window, counts, lost, position):
    count = _closure(p, w, choice, counts, lost, position)
    for k in range(lost):
        w.readers[w.lost[k]] = 1  # the node at `position`
    for k in range(count):
        n = w.order[k]
        for i in range(p.reads_at[n], p.reads_at[n + 1]):
            w.readers[p.reads[i]] += 1
    for k in range(count):
        n = w.order[k]
        step = counts[STEPS]
        for i in range(p.reads_at[n], p.reads_at[n + 1]):
            if not w.resident[p.reads[i]]:
                _swap_in(p, w, out, counts, p.reads[i], step)
        doubled, fresh = 0, 0
        for i in range(p.makes_at[n], p.makes_at[n + 1]):
            s = p.makes[i]
            if w.resident[s]:
                doubled += p.size[s]
                continue
            w.fresh[fresh] = s
            fresh += 1
            w.resident[s] = 1
            counts[NBYTES] += p.size[s]
            if w.swapping_out[s] >= 0:  # recomputed while its copy may still be in flight
                out.swap_out_by[w.swapping_out[s]] = step
                w.swapping_out[s] = -1
            if not w.on_host_copy[s]:
                w.made[s] = step
        _step(out, counts, RECOMPUTE, n, position, counts[NBYTES] + p.workspace[n] + doubled)
        for i in range(fresh):
            s = w.fresh[i]
            if _stays(p, w, choice, kept_until, reuse_window, s, position, True):
                g = interval_at(p, s, position)
                if g >= 0:
                    if counts[RECOMPUTED] == out.recomputed.shape[0]:
                        counts[FULL] = 1
                    else:
                        out.recomputed[counts[RECOMPUTED]], out.recomputed_at[counts[RECOMPUTED]] = g, position
                        counts[RECOMPUTED] += 1
            elif not w.readers[s]:
                _free(p, w, out, counts, s)
        for i in range(p.reads_at[n], p.reads_at[n + 1]):
            r = p.reads[i]
            w.readers[r] -= 1
            if _stays(p, w, choice, kept_until, reuse_window, r, position, False):
                g = interval_at(p, r, position)
                if g >= 0 and not p.wraps[g]:
                    if counts[TOUCHED] == out.touched.shape[0]:
                        counts[FULL] = 1
                    else:
                        out.touched[counts[TOUCHED]], out.touched_at[counts[TOUCHED]] = g, position
                        counts[TOUCHED] += 1
            elif not w.readers[r] and w.resident[r]:
                _free(p, w, out, counts, r)
    for k in range(lost):
        w.readers[w.lost[k]] = 0


@inner
def _expire(w, counts, position, s):
    """Free storage s after this position."""
    at = counts[EXPIRING]
    if at == w.expire.shape[0]:
        counts[FULL] = 1
        return
    counts[EXPIRING] += 1
    w.expire[at], w.expire_next[at] = s, -1
    if w.expire_first[position] < 0:
        w.expire_first[position] = at
    else:
        w.expire_next[w.expire_last[position]] = at
    w.expire_last[position] = at


@inner
def _begin(p, w, out, choice, kept_until, counts):
    for s in range(p.size.shape[0]):
        g = p.initial[s]
        w.resident[s] = w.on_host_copy[s] = out.on_host[s] = 0
        w.made[s] = w.swapping_out[s] = w.missed[s] = -1
        w.since[s] = w.readers[s] = 0
        w.in_interval[s] = g
        if p.kind[s] == PERSISTENT and g >= 0 and choice[g] == SWAP:
            out.on_host[s] = w.on_host_copy[s] = 1
        elif p.kind[s] != 0:
            w.resident[s] = 1
            counts[NBYTES] += p.size[s]
    counts[START] = counts[NBYTES]
    for s in range(p.size.shape[0]):
        g = p.initial[s]
        if p.kind[s] == GIVEN and w.resident[s]:
            if g == TAIL and kept_until[s] < 0:
                _free(p, w, out, counts, s)
            elif g >= 0 and choice[g] == SWAP:
                _swap_out(p, w, out, counts, s, -1)


@inner
def _ensure(p, w, out, choice, kept_until, reuse_window, counts, needs, begin, end, position):
    """Make storages resident: recompute what cannot be copied, then copy the rest before the next step."""
    lost = 0
    for i in range(begin, end):
        s = needs[i]
        if not w.resident[s] and not _from_host(w, choice, s):
            w.lost[lost] = s
            lost += 1
    # What to copy is decided before anything is recomputed, since recomputing may copy it already.
    if lost:
        for i in range(begin, end):
            s = needs[i]
            w.stack[w.stack.shape[0] - 1 - (i - begin)] = 1 if not w.resident[s] and _from_host(w, choice, s) else 0
        _recompute(p, w, out, choice, kept_until, reuse_window, counts, lost, position)
        for i in range(begin, end):
            if w.stack[w.stack.shape[0] - 1 - (i - begin)] and not w.resident[needs[i]]:
                _swap_in(p, w, out, counts, needs[i], counts[STEPS])
    else:
        for i in range(begin, end):
            if not w.resident[needs[i]]:
                _swap_in(p, w, out, counts, needs[i], counts[STEPS])


@kernel
def timeline(p, choice, kept_until, reuse_window, w, out, counts):
    """Build one timeline.

    Parameters
    ----------
    choice : array [G]
        KEEP, SWAP or DROP.
    kept_until : array [S]
        The position up to which a storage is kept after its last use; -1: it is not.
    counts : array [COUNTS] of int64
        Result: lengths of the lists, and flags. The other parameters are as in `memory.planner.timeline`.
    """
    for k in range(counts.shape[0]):
        counts[k] = 0
    count = p.recomputable.shape[0]
    for n in range(count):
        w.seen[n] = 0
    for k in range(w.expire_first.shape[0]):
        w.expire_first[k] = -1
    for s in range(kept_until.shape[0]):
        if kept_until[s] >= 0:
            _expire(w, counts, kept_until[s], s)
    _begin(p, w, out, choice, kept_until, counts)
    for n in range(count):
        _ensure(p, w, out, choice, kept_until, reuse_window, counts, p.needs, p.needs_at[n], p.needs_at[n + 1], n)
        k = counts[STEPS]
        for i in range(p.makes_at[n], p.makes_at[n + 1]):
            s = p.makes[i]
            w.resident[s] = 1
            w.made[s] = k
            counts[NBYTES] += p.size[s]
        _step(out, counts, RUN, n, n, counts[NBYTES] + p.workspace[n])
        for i in range(p.writes_at[n], p.writes_at[n + 1]):
            w.on_host_copy[p.writes[i]] = 0
            w.made[p.writes[i]] = k
        for i in range(p.after_at[n], p.after_at[n + 1]):
            s, g = p.after[i], p.after_interval[i]
            w.in_interval[s] = g
            if g < 0:
                if g == TAIL and kept_until[s] <= n:
                    _free(p, w, out, counts, s)
                continue
            if p.extended[g]:
                if choice[g] != DROP:
                    _expire(w, counts, p.interval_end[g], s)
                elif kept_until[s] > n:
                    continue
            if choice[g] == SWAP:
                _swap_out(p, w, out, counts, s, k)
            elif choice[g] == DROP:
                _free(p, w, out, counts, s)
        at = w.expire_first[n]
        while at >= 0:
            s = w.expire[at]
            g = w.in_interval[s]
            if w.resident[s] and (g == TAIL or (g >= 0 and p.extended[g])):
                _free(p, w, out, counts, s)
            at = w.expire_next[at]
        if counts[FULL]:
            return
    _ensure(p, w, out, choice, kept_until, reuse_window, counts, p.wanted, 0, p.wanted.shape[0], count)
    out.required[counts[STEPS]] = counts[NBYTES]
