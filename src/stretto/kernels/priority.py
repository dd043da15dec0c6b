"""Prioritised rounds, step by step: who might be in the next one, who is, and what is learned from it.

Between `find_candidates` and `settle` somebody decides which of the candidates are taken (`correlation.independent`, or
a function of the user's). Jobs with a priority hold the first leaves of a sum tree, without gaps, so that the tree is
as deep as jobs move, however many there are.
"""

from __future__ import annotations

import numpy as np

from . import vector
from .borrow import merged
from .choice import (
    BUSY,
    CANDIDATES,
    COUNT,
    FRESH,
    KEY_DRAW,
    LEAF,
    LEAVES,
    MADE,
    NEW,
    QUEUES,
    ROOT,
    SEED,
    SPAN,
    STATES,
    WALK,
    WIDTH,
    own_jobs,
    round_of,
)
from .random import uniform
from .sumtree import draw, leaf_weight, put_leaf

_AHEAD = 8  # jobs of the walk whose state is asked for before it is needed
_NEVER = np.inf  # the urgency of what was never tried


@merged
def _put_priority(choice, q, job, priority):
    """Give a job its priority. Jobs with one hold the first leaves of the tree, without gaps."""
    tree, holder, state, place = choice.tree, choice.holder, choice.state, choice.place
    leaves, root, leaf = tree.shape[1] // 2, place[q, ROOT], np.int64(state[q, job, LEAF])
    if priority > 0.0:
        if leaf < 0:
            leaf = place[q, LEAVES]
            place[q, LEAVES] += 1
            state[q, job, LEAF] = leaf
            holder[q, leaf] = job
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
        put_leaf(tree, q, root, last, 0.0)
        if root < leaves and 4 * last * root < leaves:  # few are left: a level less
            root *= 2
    place[q, ROOT] = root


@merged
def _insert(candidates, urgency, q, first, n, job, weight):
    """Put a job among candidates first … n − 1, which are in order: by weight, then by number."""
    at = n
    while at > first and (
        urgency[q, at - 1] < weight or (urgency[q, at - 1] == weight and candidates[q, at - 1] > job)
    ):
        urgency[q, at] = urgency[q, at - 1]
        candidates[q, at] = candidates[q, at - 1]
        at -= 1
    urgency[q, at] = weight
    candidates[q, at] = job


@merged
def _find_moving(choice, q, t, n, wanted):
    """Add `wanted` jobs to n candidates, drawn without replacement by priority, highest first; how many there are."""
    tree, holder, place, state = choice.tree, choice.holder, choice.place, choice.state
    candidates, urgency = choice.candidates, choice.urgency
    first, root = n, place[q, ROOT]
    if place[q, LEAVES] <= wanted:  # all would be drawn in the end
        for leaf in range(place[q, LEAVES]):
            weight = leaf_weight(tree, q, leaf)
            if weight > 0.0:
                _insert(candidates, urgency, q, first, n, np.int64(holder[q, leaf]), weight)
                n += 1
        return n
    for k in range(wanted):
        if tree[q, root] <= 0.0:
            break
        leaf = draw(tree, q, root, uniform(choice.plan[SEED], KEY_DRAW, t, k))
        weight = leaf_weight(tree, q, leaf)
        put_leaf(tree, q, root, leaf, 0.0)
        _insert(candidates, urgency, q, first, n, np.int64(holder[q, leaf]), weight)
        n += 1
    for k in range(first, n):
        put_leaf(tree, q, root, np.int64(state[q, candidates[q, k], LEAF]), urgency[q, k])
    return n


@merged
def _find_next(choice, q, wanted):
    """The next jobs of the walk that are not under way, as candidates; how many there are."""
    candidates, urgency, walk, state = choice.candidates, choice.urgency, choice.walk, choice.state
    own, at, n = own_jobs(choice, q), choice.place[q, WALK], 0
    for _ in range(own):
        if n >= wanted:
            break
        if at + _AHEAD < own:
            vector.ahead(state, (q * state.shape[1] + walk[q, at + _AHEAD]) * STATES)
        if state[q, walk[q, at], BUSY] == 0:
            candidates[q, n], urgency[q, n] = walk[q, at], 0.0
            n += 1
        at = at + 1 if at + 1 < own else 0
    if n == 0:  # all are under way: one is chosen once more, since a round is never empty
        candidates[q, 0], urgency[q, 0] = walk[q, at], 0.0
        n = 1
    return n


@merged
def find_candidates(choice, q):
    """Who might be in the next round of scheduler q, the most urgent first: the first is in it for sure.

    Urgent are jobs never tried, then those drawn by priority. A share of the rounds after the first sweep, and all
    where nothing is urgent, go on with the walk over all jobs instead.
    """
    plan, place = choice.plan, choice.place
    candidates, urgency, fresh = choice.candidates, choice.urgency, choice.fresh
    own, made, span, n = own_jobs(choice, q), place[q, MADE], place[q, FRESH], 0
    most, width, share = plan[CANDIDATES], min(plan[WIDTH], own), choice.share[0]
    ample = min(most, width + width // 4)  # of jobs that are all the same to us: few of them disturb each other
    while n < ample and span < own:
        job = np.int64(fresh[q, span])
        candidates[q, n], urgency[q, n] = job, _NEVER
        n += 1
        span += 1
    new = n
    if new > 0 or np.floor((made + 1) * share) == np.floor(made * share):
        n = _find_moving(choice, q, round_of(choice, q), n, most - new)
    if n == 0:
        n = _find_next(choice, q, ample)
    place[q, SPAN], place[q, NEW], place[q, COUNT] = span, new, n


@merged
def settle(choice, q, out):
    """Make those taken the round, the most urgent first; how many there are."""
    place, candidates, taken, state = choice.place, choice.candidates, choice.taken, choice.state
    tree, fresh, walk = choice.tree, choice.fresh, choice.walk
    queues, own, n = choice.plan[QUEUES], own_jobs(choice, q), 0
    for k in range(place[q, COUNT]):
        if taken[q, k] != 0:
            job = candidates[q, k]
            out[n] = job * queues + q
            n += 1
            state[q, job, BUSY] = 1
            if state[q, job, LEAF] >= 0:
                put_leaf(tree, q, place[q, ROOT], np.int64(state[q, job, LEAF]), 0.0)
    span = place[q, SPAN]
    for k in range(place[q, NEW] - 1, -1, -1):
        if taken[q, k] == 0:  # it goes back to the head of those never tried
            span -= 1
            fresh[q, span] = candidates[q, k]
    place[q, FRESH] = span
    # The walk goes past jobs under way and no others, which is what bounds the time until a job's turn comes.
    at, passed = place[q, WALK], 0
    while passed < own and state[q, walk[q, at], BUSY] != 0:
        at = at + 1 if at + 1 < own else 0
        passed += 1
    if passed == own:  # all are under way, and the walk goes on all the same
        at = at + 1 if at + 1 < own else 0
    place[q, WALK] = at
    place[q, MADE] += 1
    return n


@merged
def learn(choice, job, priority):
    """A job of an earlier round is done, and has this priority from now on."""
    queues = choice.plan[QUEUES]
    _put_priority(choice, job % queues, job // queues, priority)
    choice.state[job % queues, job // queues, BUSY] = 0
