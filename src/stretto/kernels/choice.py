"""The state of a schedule, whatever its kind, as compiled code sees it.

Jobs are shared out over Q schedulers: job j belongs to number j mod Q, and round t = 1, 2, … is chosen by number
(t − 1) mod Q. Inside, scheduler q counts its own jobs 0 … m − 1: its number l is job l·Q + q. Only `prioritised` has
Q > 1. Random numbers belong to a key (seed, purpose, round, draw).
"""

from __future__ import annotations

from typing import Any, NamedTuple

from .borrow import merged

# Slots of `Choice.plan`.
KIND, SIZE, WIDTH, CANDIDATES, QUEUES, SEED = range(6)
PLAN = 6
IN_TURN, SHUFFLED, DRAWN, PARTS, PRIORITISED = range(5)  # kinds
# Columns of `Choice.place`: rounds made; where the walk over all jobs stands; the first job never tried; the root of
# the tree and the leaves in use; then, between the steps of one round, where in `fresh` its candidates end, how many of
# them are new, and how many there are.
MADE, WALK, FRESH, ROOT, LEAVES, SPAN, NEW, COUNT = range(8)
PLACES = 8
# Columns of `Choice.state`: chosen and not yet learned from (for DRAWN: the last round it was in); its leaf in the
# tree, or −1: its priority is 0.
BUSY, LEAF = range(2)
STATES = 2
KEY_SHUFFLE, KEY_ROUND, KEY_DRAW, KEY_WALK = range(101, 105)


class Choice(NamedTuple):
    """The state of a schedule. m: the most jobs a scheduler has; C: candidates of all sorts."""

    plan: Any  # [6] int64
    share: Any  # [2] rounds for the walk of all rounds, threshold
    place: Any  # [Q, 8] int64
    order: Any  # [size] int64: the order of a shuffled sweep, or the jobs of each part
    bounds: Any  # [parts + 1] int64
    tree: Any  # [Q, 2·cap] priorities of the jobs that moved, leaf by leaf; 0 while a job is under way
    holder: Any  # [Q, cap] int32: the job of a leaf
    state: Any  # [Q, m, 2] int32: of each job, see above
    walk: Any  # [Q, m] int32: all jobs in the order of the walk
    fresh: Any  # [Q, m] int32: those never tried stand from FRESH on
    candidates: Any  # [Q, C] int64
    urgency: Any  # [Q, C]
    taken: Any  # [Q, C] uint8
    chosen: Any  # [Q, C] int64


@merged
def round_of(choice, q):
    """The number of the round that scheduler q chooses next."""
    return choice.place[q, MADE] * choice.plan[QUEUES] + q + 1


@merged
def own_jobs(choice, q):
    """How many jobs belong to scheduler q."""
    queues = choice.plan[QUEUES]
    return (choice.plan[SIZE] - q + queues - 1) // queues
