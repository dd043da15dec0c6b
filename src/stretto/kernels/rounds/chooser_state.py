"""The state of a schedule of any kind, as arrays for compiled code.

Jobs are distributed over Q schedulers: job j belongs to scheduler j mod Q, and scheduler (t − 1) mod Q chooses round
t = 1, 2, … Scheduler q numbers its own jobs 0 … m − 1: its job l is job l·Q + q. Only `prioritised` has Q > 1. Random
numbers have a key (seed, purpose, round, draw).
"""

from __future__ import annotations

from typing import Any, NamedTuple

from stretto.kernels.core.compile import merged

# Slots of `Choice.plan`.
KIND, SIZE, WIDTH, CANDIDATES, QUEUES, SEED = range(6)
PLAN = 6
IN_TURN, SHUFFLED, DRAWN, PARTS, PRIORITISED = range(5)  # kinds
# Columns of `Choice.place`: rounds made; the next group of the walk, the number of groups, and of jobs in them; the
# head of the jobs never tried; the root of the tree and the leaves in use; jobs in progress; whether the last round of
# the first sweep was not full. Between the steps of one round: how many of its candidates are new, the number of
# candidates, and its type.
MADE, WALK, GROUPS, WALKED, FRESH, ROOT, LEAVES, FLYING, ROOM, NEW, COUNT, SORT = range(12)
PLACES = 16
FIRST, MOVING, WALKING = range(3)  # types of rounds: jobs never tried, jobs that move, a group of the walk
# Columns of `Choice.state`: whether it is chosen and its result is not known yet (for DRAWN: the last round it was in);
# its leaf in the tree, −1 if its priority is 0.
BUSY, LEAF = range(2)
STATES = 2
KEY_SHUFFLE, KEY_ROUND, KEY_DRAW, KEY_WALK = range(101, 105)


class Choice(NamedTuple):
    """The state of a schedule. m: the most jobs of a scheduler; C: candidates of all types."""

    plan: Any  # [6] int64: see the slots above
    share: Any  # [2] fraction of the rounds that the walk gets, threshold
    place: Any  # [Q, 16] int64: see the columns above
    order: Any  # [size] int64: the order of a shuffled sweep, or the jobs of each part
    bounds: Any  # [parts + 1] int64: where each part begins in `order`
    tree: Any  # [Q, 2·cap] priorities of the jobs that moved, by leaf; 0 while a job is in progress
    holder: Any  # [Q, cap] int32: the job of a leaf
    state: Any  # [Q, m, 2] int32: see the columns above
    walk: Any  # [Q, m] int32: the jobs of the first sweep, in the order of choice
    ends: Any  # [Q, m] int32: where each round of the first sweep, a group of the walk, ends
    fresh: Any  # [Q, m] int32: ring buffer of the jobs never tried, from FRESH on
    drawn: Any  # [Q, cap] uint8: 1 for leaves drawn so far
    candidates: Any  # [Q, C] int64: candidates of the next round
    leaves: Any  # [Q, C] int32: leaves of the candidates, in rounds of jobs that move
    urgency: Any  # [Q, C] priorities of the candidates
    taken: Any  # [Q, C] uint8: 1 for candidates that are taken
    chosen: Any  # [Q, C + m] int64: jobs that are taken
    sure: Any  # [Q, M, M / 64] uint64: bits of pairs of leaves that were compared, see `pair_verdicts`
    close: Any  # [Q, M, M / 64] uint64: bits of pairs of leaves that conflict
    mask: Any  # [Q, M / 64] uint64: bits of the leaves taken


@merged
def round_of(choice, q):
    """Return the number of the round that scheduler q chooses next."""
    return choice.place[q, MADE] * choice.plan[QUEUES] + q + 1


@merged
def own_jobs(choice, q):
    """Return how many jobs belong to scheduler q."""
    queues = choice.plan[QUEUES]
    return (choice.plan[SIZE] - q + queues - 1) // queues
