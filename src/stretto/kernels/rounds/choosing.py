"""Selection of the jobs of the next round, for every kind of schedule.

`choose` writes a round, and `learn` records how far its jobs moved. Python calls both round by round (for a user's
program); the compiled engine (`engine`) calls both many times in one call. Both get the same rounds.
"""

from __future__ import annotations

import numpy as np

from stretto.kernels.core.compile import kernel, merged
from stretto.kernels.numeric.random import uniform

from . import priority
from .chooser_state import (
    BUSY,
    COUNT,
    DRAWN,
    FIRST,
    KEY_ROUND,
    KEY_SHUFFLE,
    KIND,
    MADE,
    MOVING,
    PARTS,
    PRIORITISED,
    QUEUES,
    SEED,
    SHUFFLED,
    SIZE,
    SORT,
    WALK,
    WIDTH,
    own_jobs,
    round_of,
)
from .correlation import independent, independent_by
from .pair_verdicts import find_under_way, independent_moving


@merged
def _below(n, a, b, c, d):
    return np.int64(uniform(a, b, c, d) * np.float64(n))


@merged
def shuffle(order, seed, purpose, number):
    """order = the permutation of 0 … len − 1 that belongs to the key."""
    for i in range(order.shape[0]):
        order[i] = i
    for i in range(order.shape[0] - 1, 0, -1):
        k = _below(i + 1, seed, purpose, number, i)
        order[i], order[k] = order[k], order[i]


@merged
def _choose_in_turn(choice, out):
    """Take the next `width` jobs of a sweep; a round ends where the sweep ends."""
    size, place = choice.plan[SIZE], choice.place
    at = place[0, WALK]
    if choice.plan[KIND] == SHUFFLED and at == 0:
        shuffle(choice.order, choice.plan[SEED], KEY_SHUFFLE, place[0, MADE])
    count = min(choice.plan[WIDTH], size - at)
    for k in range(count):
        out[k] = choice.order[at + k] if choice.plan[KIND] == SHUFFLED else at + k
    place[0, WALK] = (at + count) % size
    return count


@merged
def _choose_drawn(choice, out):
    """Draw `width` different jobs, every set of that size with the same probability (Floyd's algorithm)."""
    size = choice.plan[SIZE]
    width, t = min(choice.plan[WIDTH], size), round_of(choice, 0)
    for k in range(width):
        top = size - width + k
        job = _below(top + 1, choice.plan[SEED], KEY_ROUND, t, k)
        if choice.state[0, job, BUSY] == t:
            job = top
        choice.state[0, job, BUSY] = t
        out[k] = job
    return width


@merged
def _choose_parts(choice, out):
    """Take one job of each part; every part cycles through its jobs independently."""
    made, count = choice.place[0, MADE], 0
    for part in range(choice.bounds.shape[0] - 1):
        first, size = choice.bounds[part], choice.bounds[part + 1] - choice.bounds[part]
        if size > 0:
            out[count] = choice.order[first + made % size]
            count += 1
    return count


@merged
def choose(choice, table, q, out):
    """Write the next round of scheduler q into out [≥ width]; return how many jobs it has."""
    kind = choice.plan[KIND]
    if kind == PRIORITISED:
        priority.find_candidates(choice, q)
        if choice.place[q, SORT] == MOVING and independent_moving(choice, table, q) == 0:
            priority.go_on_with_walk(choice, q)
        if choice.place[q, SORT] == FIRST:
            independent(
                table, q, choice.plan[QUEUES], choice.share[1], min(choice.plan[WIDTH], own_jobs(choice, q)),
                choice.place[q, COUNT], choice.candidates, choice.chosen, choice.taken,
            )  # fmt: skip
        return priority.settle(choice, q, out)
    if kind == DRAWN:
        count = _choose_drawn(choice, out)
    elif kind == PARTS:
        count = _choose_parts(choice, out)
    else:
        count = _choose_in_turn(choice, out)
    choice.place[0, MADE] += 1
    return count


@merged
def learn(choice, job, change):
    """Record how far a job of an earlier round moved."""
    if choice.plan[KIND] == PRIORITISED:
        priority.learn(choice, job, change * change)


# --- the same, called from Python -----------------------------------------------------------------------------------


@kernel
def choose_round(choice, table, q, out):
    """See `choose`."""
    return choose(choice, table, q, out)


@kernel
def learn_round(choice, jobs, priorities):
    """`priority.learn` for all jobs of a round."""
    for k in range(jobs.shape[0]):
        priority.learn(choice, jobs[k], priorities[k])


@kernel
def find_round(choice, q):
    """See `priority.find_candidates`."""
    priority.find_candidates(choice, q)


@kernel
def under_way(choice, q, out):
    """Write jobs in progress that moving candidates must be independent of to out [≥ m]; return how many."""
    if choice.place[q, SORT] != MOVING:
        return 0
    count = find_under_way(choice, q)
    for k in range(count):
        out[k] = choice.chosen[q, k]
    return count


@kernel
def keep_round(choice, q, conflicts, before):
    """Keep an independent set of the candidates, by a matrix of conflicts [before + count, before + count].

    The first `before` are in progress. If no candidate is independent, the walk provides the round.
    """
    width = min(choice.plan[WIDTH], own_jobs(choice, q))
    if independent_by(conflicts, choice.share[1], width, before, choice.place[q, COUNT], choice.taken, q) == 0:
        priority.go_on_with_walk(choice, q)


@kernel
def settle_round(choice, q, out):
    """See `priority.settle`."""
    return priority.settle(choice, q, out)


@kernel
def shuffled(order, seed, purpose, number):
    """See `shuffle`."""
    shuffle(order, seed, purpose, number)
