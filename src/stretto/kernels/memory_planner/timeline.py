"""Steps and resident bytes from the choice for each idle interval: the compiled loop of `memory.planner.timeline`.

Lists that grow are arrays with a count in `counts`; where one is full, FULL is set and nothing is written beyond it.
"""

from __future__ import annotations

from typing import NamedTuple

from stretto.kernels.core.compile import inner, kernel

from .arrays import DROP, GIVEN, PERSISTENT, SWAP, TAIL, Bytes, Ints, gap_at

RUN, AGAIN = range(2)
STEPS, FREES, LEAVES, COMES, TOUCHED, REMADE, NBYTES, START, MISSED, FULL, EXPIRING, STAMP, COUNTS = range(13)
NEVER = 1 << 60


class WalkSpace(NamedTuple):
    """What a walk works with. By storage: here, copied, made, since, in_gap, leaving, missed, readers; by node: seen,
    order; by position: the lists of what expires (expire_first, expire_last, of expire_next and expire). stack, lost
    and fresh are lists."""

    here: Bytes
    copied: Bytes
    made: Ints
    since: Ints
    in_gap: Ints
    leaving: Ints
    missed: Ints
    readers: Ints
    seen: Ints
    order: Ints
    expire_first: Ints
    expire_last: Ints
    expire_next: Ints
    expire: Ints
    stack: Ints
    lost: Ints
    fresh: Ints


class WalkSteps(NamedTuple):
    """What a walk finds. kind, node, place, must: by step. free_step, free: storages that are freed, and before which
    step. leave, leave_ready, leave_free, leave_by; come, come_since, come_need: copies. touched, touched_at: gaps whose
    storages are read to recompute others, and where; remade, remade_at: gaps at whose ends storages are recomputed, and
    where. on_host: by storage."""

    kind: Ints
    node: Ints
    place: Ints
    must: Ints
    free_step: Ints
    free: Ints
    leave: Ints
    leave_ready: Ints
    leave_free: Ints
    leave_by: Ints
    come: Ints
    come_since: Ints
    come_need: Ints
    touched: Ints
    touched_at: Ints
    remade: Ints
    remade_at: Ints
    on_host: Bytes


@inner
def _free(p, w, out, counts, s):
    w.here[s] = 0
    counts[NBYTES] -= p.size[s]
    w.since[s] = counts[STEPS]
    if counts[FREES] == out.free.shape[0]:
        counts[FULL] = 1
        return
    out.free_step[counts[FREES]] = counts[STEPS]
    out.free[counts[FREES]] = s
    counts[FREES] += 1


@inner
def _away(p, w, out, counts, s, k):
    """Storage s goes to the host after step k, with a copy unless the host has one."""
    if w.copied[s]:
        _free(p, w, out, counts, s)
        return
    w.here[s] = 0
    counts[NBYTES] -= p.size[s]
    w.copied[s] = 1
    w.since[s] = k + 1
    at = counts[LEAVES]
    if at == out.leave.shape[0]:
        counts[FULL] = 1
        return
    out.leave[at], out.leave_ready[at], out.leave_free[at], out.leave_by[at] = s, w.made[s], k, NEVER
    w.leaving[s] = at
    counts[LEAVES] += 1


@inner
def _come(p, w, out, counts, s, k):
    """Storage s comes from the host before step k."""
    at = counts[COMES]
    if at == out.come.shape[0]:
        counts[FULL] = 1
    else:
        out.come[at], out.come_since[at], out.come_need[at] = s, w.since[s], k
        counts[COMES] += 1
    w.leaving[s] = -1
    w.here[s] = 1
    counts[NBYTES] += p.size[s]


@inner
def _step(out, counts, kind, n, place, must):
    at = counts[STEPS]
    if at + 1 >= out.must.shape[0]:
        counts[FULL] = 1
        return
    out.kind[at], out.node[at], out.place[at], out.must[at] = kind, n, place, must
    counts[STEPS] += 1


@inner
def _from_host(w, choice, s):
    g = w.in_gap[s]
    return w.copied[s] != 0 and g >= 0 and choice[g] == SWAP


@inner
def _maker(p, w, counts, s, position):
    """The node to run again for storage s, or -1. What can neither be recomputed nor comes from the host should have
    been kept: it is noted, and there from here on; this walk will not be used."""
    n = p.maker[s]
    if n >= 0 and p.again[n] and p.until[n] >= position:
        return n
    if not w.copied[s]:
        w.missed[s] = max(position, w.missed[s])
        counts[MISSED] = 1
        w.here[s] = 1
        counts[NBYTES] += p.size[s]
    return -1


@inner
def _closure(p, w, choice, counts, lost, position):
    """The nodes to run again, makers before readers, in w.order; how many."""
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
                    if not w.here[r] and not _from_host(w, choice, r):
                        m = _maker(p, w, counts, r, position)
                        if m >= 0:
                            w.stack[top] = m
                            top += 1
    return found


@inner
def _stays(p, w, choice, longer, patience, s, position, made):
    """Whether something recomputed, or copied back for that, is kept: it has a use of its own to come."""
    g = w.in_gap[s]
    if g == TAIL or (g >= 0 and p.beyond[g] and (choice[g] == DROP or p.gap_end[g] < position)):
        return longer[s] >= position
    if g < 0 or choice[g] != SWAP:
        return True
    if made or p.gap_end[g] - position > patience:
        return False
    return not (p.wraps[g] and position > p.gap_start[g])


@inner
def _recompute(p, w, out, choice, longer, patience, counts, lost, position):
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
            if not w.here[p.reads[i]]:
                _come(p, w, out, counts, p.reads[i], step)
        doubled, fresh = 0, 0
        for i in range(p.makes_at[n], p.makes_at[n + 1]):
            s = p.makes[i]
            if w.here[s]:
                doubled += p.size[s]
                continue
            w.fresh[fresh] = s
            fresh += 1
            w.here[s] = 1
            counts[NBYTES] += p.size[s]
            if w.leaving[s] >= 0:  # made here while its copy might still be under way
                out.leave_by[w.leaving[s]] = step
                w.leaving[s] = -1
            if not w.copied[s]:
                w.made[s] = step
        _step(out, counts, AGAIN, n, position, counts[NBYTES] + p.workspace[n] + doubled)
        for i in range(fresh):
            s = w.fresh[i]
            if _stays(p, w, choice, longer, patience, s, position, True):
                g = gap_at(p, s, position)
                if g >= 0:
                    if counts[REMADE] == out.remade.shape[0]:
                        counts[FULL] = 1
                    else:
                        out.remade[counts[REMADE]], out.remade_at[counts[REMADE]] = g, position
                        counts[REMADE] += 1
            elif not w.readers[s]:
                _free(p, w, out, counts, s)
        for i in range(p.reads_at[n], p.reads_at[n + 1]):
            r = p.reads[i]
            w.readers[r] -= 1
            if _stays(p, w, choice, longer, patience, r, position, False):
                g = gap_at(p, r, position)
                if g >= 0 and not p.wraps[g]:
                    if counts[TOUCHED] == out.touched.shape[0]:
                        counts[FULL] = 1
                    else:
                        out.touched[counts[TOUCHED]], out.touched_at[counts[TOUCHED]] = g, position
                        counts[TOUCHED] += 1
            elif not w.readers[r] and w.here[r]:
                _free(p, w, out, counts, r)
    for k in range(lost):
        w.readers[w.lost[k]] = 0


@inner
def _expire(w, counts, position, s):
    """Storage s is freed after this position."""
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
def _begin(p, w, out, choice, longer, counts):
    for s in range(p.size.shape[0]):
        g = p.first[s]
        w.here[s] = w.copied[s] = out.on_host[s] = 0
        w.made[s] = w.leaving[s] = w.missed[s] = -1
        w.since[s] = w.readers[s] = 0
        w.in_gap[s] = g
        if p.kind[s] == PERSISTENT and g >= 0 and choice[g] == SWAP:
            out.on_host[s] = w.copied[s] = 1
        elif p.kind[s] != 0:
            w.here[s] = 1
            counts[NBYTES] += p.size[s]
    counts[START] = counts[NBYTES]
    for s in range(p.size.shape[0]):
        g = p.first[s]
        if p.kind[s] == GIVEN and w.here[s]:
            if g == TAIL and longer[s] < 0:
                _free(p, w, out, counts, s)
            elif g >= 0 and choice[g] == SWAP:
                _away(p, w, out, counts, s, -1)


@inner
def _ensure(p, w, out, choice, longer, patience, counts, needs, begin, end, position):
    """Recompute what must be there and cannot come; then let the rest come before the next step."""
    lost = 0
    for i in range(begin, end):
        s = needs[i]
        if not w.here[s] and not _from_host(w, choice, s):
            w.lost[lost] = s
            lost += 1
    # What comes is decided before anything is recomputed, which may bring it already.
    if lost:
        for i in range(begin, end):
            s = needs[i]
            w.stack[w.stack.shape[0] - 1 - (i - begin)] = 1 if not w.here[s] and _from_host(w, choice, s) else 0
        _recompute(p, w, out, choice, longer, patience, counts, lost, position)
        for i in range(begin, end):
            if w.stack[w.stack.shape[0] - 1 - (i - begin)] and not w.here[needs[i]]:
                _come(p, w, out, counts, needs[i], counts[STEPS])
    else:
        for i in range(begin, end):
            if not w.here[needs[i]]:
                _come(p, w, out, counts, needs[i], counts[STEPS])


@kernel
def walked(p, choice, longer, patience, w, out, counts):
    """One walk. choice [G], longer [S]: the position up to which a storage is kept after its last use, -1: not so.
    counts [COUNTS] int64: see above; all else is as in `memory.planner.timeline`."""
    for k in range(counts.shape[0]):
        counts[k] = 0
    count = p.again.shape[0]
    for n in range(count):
        w.seen[n] = 0
    for k in range(w.expire_first.shape[0]):
        w.expire_first[k] = -1
    for s in range(longer.shape[0]):
        if longer[s] >= 0:
            _expire(w, counts, longer[s], s)
    _begin(p, w, out, choice, longer, counts)
    for n in range(count):
        _ensure(p, w, out, choice, longer, patience, counts, p.needs, p.needs_at[n], p.needs_at[n + 1], n)
        k = counts[STEPS]
        for i in range(p.makes_at[n], p.makes_at[n + 1]):
            s = p.makes[i]
            w.here[s] = 1
            w.made[s] = k
            counts[NBYTES] += p.size[s]
        _step(out, counts, RUN, n, n, counts[NBYTES] + p.workspace[n])
        for i in range(p.writes_at[n], p.writes_at[n + 1]):
            w.copied[p.writes[i]] = 0
            w.made[p.writes[i]] = k
        for i in range(p.after_at[n], p.after_at[n + 1]):
            s, g = p.after[i], p.after_gap[i]
            w.in_gap[s] = g
            if g < 0:
                if g == TAIL and longer[s] <= n:
                    _free(p, w, out, counts, s)
                continue
            if p.beyond[g]:
                if choice[g] != DROP:
                    _expire(w, counts, p.gap_end[g], s)
                elif longer[s] > n:
                    continue
            if choice[g] == SWAP:
                _away(p, w, out, counts, s, k)
            elif choice[g] == DROP:
                _free(p, w, out, counts, s)
        at = w.expire_first[n]
        while at >= 0:
            s = w.expire[at]
            g = w.in_gap[s]
            if w.here[s] and (g == TAIL or (g >= 0 and p.beyond[g])):
                _free(p, w, out, counts, s)
            at = w.expire_next[at]
        if counts[FULL]:
            return
    _ensure(p, w, out, choice, longer, patience, counts, p.wanted, 0, p.wanted.shape[0], count)
    out.must[counts[STEPS]] = counts[NBYTES]
