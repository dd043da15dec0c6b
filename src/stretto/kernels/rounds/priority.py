"""Prioritised rounds, step by step: find candidates, settle the round, learn the new priorities.

Between `find_candidates` and `settle` a filter decides which candidates are taken (`correlation.independent`, or a
function of the user's). Jobs with a priority hold the first leaves of a sum tree, without gaps, so the depth of the
tree depends on the number of moving jobs only.
"""

from __future__ import annotations

import numpy as np

from stretto.kernels.core.compile import merged
from stretto.kernels.numeric import vector
from stretto.kernels.numeric.random import uniform
from stretto.kernels.numeric.sumtree import draw, leaf_weight, put_leaf

from .chooser_state import (
    BUSY,
    CANDIDATES,
    COUNT,
    FIRST,
    FLYING,
    FRESH,
    GROUPS,
    KEY_DRAW,
    LEAF,
    LEAVES,
    MADE,
    MOVING,
    NEW,
    QUEUES,
    ROOM,
    ROOT,
    SEED,
    SORT,
    STATES,
    WALK,
    WALKED,
    WALKING,
    WIDTH,
    own_jobs,
    round_of,
)
from .pair_verdicts import forget_leaf, move_leaf

_TIMES = 16  # up to this many times more leaves than wanted, a pass over them is faster than drawing


@merged
def _put_priority(choice, q, job, priority):
    """Set the priority of a job. Jobs with one hold the first leaves of the tree, without gaps."""
    tree, holder, state, place = choice.tree, choice.holder, choice.state, choice.place
    leaves, root, leaf = tree.shape[1] // 2, place[q, ROOT], np.int64(state[q, job, LEAF])
    if priority > 0.0:
        if leaf < 0:
            leaf = place[q, LEAVES]
            place[q, LEAVES] += 1
            state[q, job, LEAF] = leaf
            holder[q, leaf] = job
            forget_leaf(choice, q, leaf)
            while leaf * root >= leaves:  # one more level
                root //= 2
                tree[q, root] = tree[q, 2 * root] + tree[q, 2 * root + 1]
        put_leaf(tree, q, root, leaf, priority)
    elif leaf >= 0:
        last = place[q, LEAVES] - 1
        place[q, LEAVES] = last
        state[q, job, LEAF] = -1
        if leaf != last:
            mover = holder[q, last]
            put_leaf(tree, q, root, leaf, leaf_weight(tree, q, last))
            holder[q, leaf] = mover
            state[q, mover, LEAF] = leaf
            move_leaf(choice, q, last, leaf)
        put_leaf(tree, q, root, last, 0.0)
        if root < leaves and 4 * last * root < leaves:  # few are left: remove a level
            root *= 2
    place[q, ROOT] = root


@merged
def _sort(leaves, urgency, q, count):
    """Sort leaves 0 … count − 1 by priority, highest first, then by number (Shell sort: they are few)."""
    for gap in (57, 23, 10, 4, 1):
        for i in range(gap, count):
            leaf, weight, at = leaves[q, i], urgency[q, i], i
            while at >= gap and (
                urgency[q, at - gap] < weight or (urgency[q, at - gap] == weight and leaves[q, at - gap] > leaf)
            ):
                leaves[q, at], urgency[q, at] = leaves[q, at - gap], urgency[q, at - gap]
                at -= gap
            leaves[q, at], urgency[q, at] = leaf, weight


@merged
def _sample(tree, q, size, wanted, u, leaves, urgency):
    """Draw `wanted` of `size` leaves with probability proportional to weight, by systematic sampling.

    Leaves heavier than a sampling step are always taken, and the step becomes shorter. One pass over the weights costs
    less than drawing, as long as there are not many times more leaves than wanted.
    """
    base, total = tree.shape[1] // 2, 0.0
    for leaf in range(size):
        total += tree[q, base + leaf]
    step, sure = total / wanted, -1
    while True:
        heavy, count = 0.0, 0
        for leaf in range(size):
            if tree[q, base + leaf] >= step:
                heavy += tree[q, base + leaf]
                count += 1
        # Fewer than before is rounding error: the rest of the total is inaccurate.
        if count <= sure or count >= wanted:
            break
        sure = count
        step = (total - heavy) / (wanted - count)
    n, at, mark = 0, 0.0, u * step
    for leaf in range(size):
        weight = tree[q, base + leaf]
        take = weight >= step
        if not take:
            at += weight
            take = at > mark
            mark += step if take else 0.0
        if take and weight > 0.0 and n < wanted:
            leaves[q, n], urgency[q, n] = leaf, weight
            n += 1
    return n


@merged
def _draw(choice, q, t, wanted):
    """Draw `wanted` leaves one after the other, without replacement."""
    tree, leaves, urgency, drawn, root = choice.tree, choice.leaves, choice.urgency, choice.drawn, choice.place[q, ROOT]
    n, draws = 0, 0
    while n < wanted and tree[q, root] > 0.0:
        leaf = draw(tree, q, root, uniform(choice.plan[SEED], KEY_DRAW, t, draws))
        draws += 1
        if drawn[q, leaf] != 0:  # drawn twice: remove it from the tree, or it would be drawn often
            put_leaf(tree, q, root, leaf, 0.0)
            continue
        drawn[q, leaf] = 1
        leaves[q, n], urgency[q, n] = leaf, leaf_weight(tree, q, leaf)
        n += 1
    for k in range(n):
        drawn[q, leaves[q, k]] = 0
        put_leaf(tree, q, root, np.int64(leaves[q, k]), urgency[q, k])
    return n


@merged
def _find_moving(choice, q, t, before):
    """Append candidates drawn by priority without replacement, the highest first; return the number of candidates."""
    tree, leaves, urgency, size = choice.tree, choice.leaves, choice.urgency, choice.place[q, LEAVES]
    wanted, n = choice.plan[CANDIDATES], 0
    if size <= wanted:
        for leaf in range(size):
            if leaf_weight(tree, q, leaf) > 0.0:
                leaves[q, n], urgency[q, n] = leaf, leaf_weight(tree, q, leaf)
                n += 1
    elif size <= _TIMES * wanted:
        n = _sample(tree, q, size, wanted, uniform(choice.plan[SEED], KEY_DRAW, t, 0), leaves, urgency)
    else:
        n = _draw(choice, q, t, wanted)
    _sort(leaves, urgency, q, n)
    for k in range(n):
        choice.candidates[q, before + k] = choice.holder[q, leaves[q, k]]
    return before + n


@merged
def go_on_with_walk(choice, q):
    """Take the next group of the walk without jobs in progress; a subset of an independent set is independent."""
    place, candidates, taken, walk, state = choice.place, choice.candidates, choice.taken, choice.walk, choice.state
    n = 0
    for _ in range(place[q, GROUPS]):
        group = place[q, WALK]
        place[q, WALK] = group + 1 if group + 1 < place[q, GROUPS] else 0
        first = choice.ends[q, group - 1] if group > 0 else 0
        for at in range(first, choice.ends[q, group]):
            vector.ahead(state, (q * state.shape[1] + walk[q, at]) * STATES)
        for at in range(first, choice.ends[q, group]):
            if state[q, walk[q, at], BUSY] == 0:
                candidates[q, n], taken[q, n] = walk[q, at], 1
                n += 1
        if n > 0:
            break
    if n == 0:  # all are in progress: choose one once more, since a round is never empty
        candidates[q, 0], taken[q, 0] = walk[q, choice.ends[q, place[q, WALK]] - 1], 1
        place[q, WALK] = (place[q, WALK] + 1) % place[q, GROUPS]
        n = 1
    place[q, COUNT], place[q, NEW], place[q, SORT] = n, 0, WALKING


@merged
def find_candidates(choice, q):
    """Find the candidates of the next round of scheduler q, the highest priority first.

    Jobs never tried come first, then those drawn by priority. A fraction of the rounds after the first sweep, and all
    rounds when nothing moves, continue the walk over all jobs instead, which repeats the rounds of the first sweep.
    """
    place, candidates, fresh = choice.place, choice.candidates, choice.fresh
    own, made, share = own_jobs(choice, q), place[q, MADE], choice.share[0]
    at, new = place[q, FRESH], min(choice.plan[CANDIDATES], own - place[q, WALKED])
    for k in range(new):
        candidates[q, k] = fresh[q, at]
        at = at + 1 if at + 1 < own else 0
    n = new
    # In the first sweep, moving jobs are added if the last round was not full and no job is in progress.
    if (
        (place[q, ROOM] and place[q, FLYING] == 0)
        if new > 0
        else np.floor((made + 1) * share) == np.floor(made * share)
    ):
        n = _find_moving(choice, q, round_of(choice, q), new)
        n = min(n, new + choice.plan[WIDTH]) if new > 0 else n
    place[q, NEW], place[q, COUNT], place[q, SORT] = new, n, FIRST if new > 0 else MOVING
    if n == 0:
        go_on_with_walk(choice, q)


@merged
def settle(choice, q, out):
    """Turn the candidates taken into the round, the highest priority first; return how many there are."""
    place, candidates, taken, state = choice.place, choice.candidates, choice.taken, choice.state
    queues, new, walked, n = choice.plan[QUEUES], place[q, NEW], place[q, WALKED], 0
    for k in range(place[q, COUNT]):
        if taken[q, k] != 0:
            job = candidates[q, k]
            out[n] = job * queues + q
            n += 1
            place[q, FLYING] += 1 - state[q, job, BUSY]
            state[q, job, BUSY] = 1
            if state[q, job, LEAF] >= 0:
                put_leaf(choice.tree, q, place[q, ROOT], np.int64(state[q, job, LEAF]), 0.0)
            if k < new:
                choice.walk[q, place[q, WALKED]] = job
                place[q, WALKED] += 1
    if new > 0:
        choice.ends[q, place[q, GROUPS]] = place[q, WALKED]
        place[q, GROUPS] += 1
        place[q, ROOM] = n < choice.plan[WIDTH]
        # Ring buffer: jobs that were not taken go to its end, to be combined with others.
        own = own_jobs(choice, q)
        head = (place[q, FRESH] + new) % own
        at = (head + own - walked - new) % own
        for k in range(new):
            if taken[q, k] == 0:
                choice.fresh[q, at] = candidates[q, k]
                at = at + 1 if at + 1 < own else 0
        place[q, FRESH] = head
    place[q, MADE] += 1
    return n


@merged
def learn(choice, job, priority):
    """Set the new priority of a job of an earlier round, which is no longer in progress."""
    queues = choice.plan[QUEUES]
    _put_priority(choice, job % queues, job // queues, priority)
    choice.place[job % queues, FLYING] -= choice.state[job % queues, job // queues, BUSY]
    choice.state[job % queues, job // queues, BUSY] = 0
