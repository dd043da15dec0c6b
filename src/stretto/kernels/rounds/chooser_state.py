"""The state of a schedule, whatever its kind, as compiled code sees it.

Jobs are shared out over Q schedulers: job j belongs to number j mod Q, and round t = 1, 2, … is chosen by number
(t − 1) mod Q. Inside, scheduler q counts its own jobs 0 … m − 1: its number l is job l·Q + q. Only `prioritised` has
Q > 1. Random numbers belong to a key (seed, purpose, round, draw).
"""

from __future__ import annotations

from typing import Any, NamedTuple

from stretto.kernels.core.compile import merged

# Slots of `Choice.plan`.
KIND, SIZE, WIDTH, CANDIDATES, QUEUES, SEED = range(6)
PLAN = 6
IN_TURN, SHUFFLED, DRAWN, PARTS, PRIORITISED = range(5)  # kinds
# Columns of `Choice.place`: rounds made; the next group of the walk, how many there are, and of how many jobs; the head
# of those never tried; the root of the tree and the leaves in use; jobs under way; whether the last round of the first
# sweep had room; then, between the steps of one round, how many of its candidates are new, how many there are, and its
# sort.
MADE, WALK, GROUPS, WALKED, FRESH, ROOT, LEAVES, FLYING, ROOM, NEW, COUNT, SORT = range(12)
PLACES = 16
FIRST, MOVING, WALKING = range(3)  # sorts of rounds: of jobs never tried, of jobs that move, of a group of the walk
# Columns of `Choice.state`: chosen and not yet learned from (for DRAWN: the last round it was in); its leaf in the
# tree, or −1: its priority is 0.
BUSY, LEAF = range(2)
STATES = 2
KEY_SHUFFLE, KEY_ROUND, KEY_DRAW, KEY_WALK = range(101, 105)


class Choice(NamedTuple):
    """The state of a schedule. m: the most jobs a scheduler has; C: candidates of all sorts."""

    plan: Any  # [6] int64
    share: Any  # [2] rounds for the walk of all rounds, threshold
    place: Any  # [Q, 16] int64
    order: Any  # [size] int64: the order of a shuffled sweep, or the jobs of each part
    bounds: Any  # [parts + 1] int64
    tree: Any  # [Q, 2·cap] priorities of the jobs that moved, leaf by leaf; 0 while a job is under way
    holder: Any  # [Q, cap] int32: the job of a leaf
    state: Any  # [Q, m, 2] int32: of each job, see above
    walk: Any  # [Q, m] int32: the jobs of the first sweep as they were chosen
    ends: Any  # [Q, m] int32: and where each of its rounds ends, a group of the walk
    fresh: Any  # [Q, m] int32: a ring of those never tried, from FRESH on
    drawn: Any  # [Q, cap] uint8: leaves drawn so far
    candidates: Any  # [Q, C] int64
    leaves: Any  # [Q, C] int32: their leaves, in rounds of jobs that move
    urgency: Any  # [Q, C] and priorities
    taken: Any  # [Q, C] uint8
    chosen: Any  # [Q, C + m] int64
    sure: Any  # [Q, M, M / 64] uint64: pairs of leaves that have been compared, see `verdicts`
    close: Any  # [Q, M, M / 64] uint64: and that may not go together
    mask: Any  # [Q, M / 64] uint64


@merged
def round_of(choice, q):
    """The number of the round that scheduler q chooses next."""
    return choice.place[q, MADE] * choice.plan[QUEUES] + q + 1


@merged
def own_jobs(choice, q):
    """How many jobs belong to scheduler q."""
    queues = choice.plan[QUEUES]
    return (choice.plan[SIZE] - q + queues - 1) // queues
