"""Who visits which block next, decided inside compiled code.

A *pass* is a set of visits, each to one row block and one column block. Blocks are visited in the order the plan fixed:
visit v is the `row_turn[v]`-th of its row block and the `col_turn[v]`-th of its column block, and is **ready** when
exactly that many earlier visits of either block are finished. Two ready visits never share a block, so any number of
threads may claim ready visits with one compare-and-swap each, and the result is the same as visiting them one by one.

A worker is one compiled call that loops:

    v = claims.next_visit(pass_, worker)      # a ready visit, or −1 when the pass is over or was stopped
    while v >= 0:
        ... visit block v ...
        v = claims.next_visit(pass_, worker, finished=v)

`Pass` holds plain arrays (int64): V visits, R row blocks, C column blocks.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from . import atomics
from .compile import inner

# Slots of `Pass.control`. NAP: microseconds that a worker sleeps between two looks when nothing is ready for long, 0
# where it only lets others run; WAITED: cycles that workers waited, counted where they nap.
STOP, LEFT, CURSOR, MODE, FAILED, LOGGED, NAP, WAITED = range(8)
CONTROL_SLOTS = 8
CLAIMED, SCRIPTED = 0, 1
_FAR = 1 << 30
_LOOKS = 32  # looks before the first nap
# Columns of `Pass.log`: visit, worker, start, end (time stamp counter).
LOG_COLUMNS = 4


class Pass(NamedTuple):
    """One pass over the blocks, as the compiled workers see it."""

    row_block: Any  # [V] block of each visit
    col_block: Any  # [V]
    row_turn: Any  # [V] how many visits of the row block come before
    col_turn: Any  # [V]
    priority: Any  # [V] the work that hangs on each visit: of those that are ready, the one with most goes first
    row_first: Any  # [R + 1] where each row block's visits begin in row_visits
    row_visits: Any  # [V] visits grouped by row block, in turn order
    row_last: Any  # [R] the worker that made the row block's last visit, or −1
    row_done: Any  # [R] finished visits of each row block
    col_done: Any  # [C]
    taken: Any  # [V] 1 once claimed
    script: Any  # [S] visits in the order to run them (SCRIPTED only)
    control: Any  # [8] stop flag, visits left, cursor, mode, failed visit + 1, log length, nap, cycles waited
    log: Any  # [V, 4] what ran where and when


@inner
def _begin(pass_, visit, worker):
    slot = atomics.add(pass_.control, LOGGED, 1)
    pass_.log[slot, 0] = visit
    pass_.log[slot, 1] = worker
    pass_.log[slot, 2] = atomics.cycles()
    pass_.taken[visit] = 1 + slot
    return visit


@inner
def _finish(pass_, visit):
    pass_.log[pass_.taken[visit] - 1, 3] = atomics.cycles()
    pass_.row_last[pass_.row_block[visit]] = pass_.log[pass_.taken[visit] - 1, 1]
    atomics.store(pass_.row_done, pass_.row_block[visit], pass_.row_turn[visit] + 1)
    atomics.store(pass_.col_done, pass_.col_block[visit], pass_.col_turn[visit] + 1)
    atomics.add(pass_.control, LEFT, -1)


@inner
def _waited(pass_, since):
    if since != 0:
        atomics.add(pass_.control, WAITED, atomics.cycles() - since)


@inner
def next_visit(pass_, worker, finished=-1):
    """Report `finished` (or −1), then claim and return a ready visit; −1 when nothing is left to do.

    Of the ready visits a worker takes, among those whose row block it was the last to visit, the one nearest to the
    visit just finished: the distance of two blocks is the exclusive or of their numbers, so that aligned groups of
    blocks, which the exchange order visits together, are worked through while they are in cache, small groups first.
    Among equals, and where no block is its own, it takes the one on which most work hangs. Who makes a visit changes no
    number.
    """
    if finished >= 0:
        _finish(pass_, finished)
    if pass_.control[MODE] == SCRIPTED:
        at = pass_.control[CURSOR]
        if at >= pass_.script.shape[0] or atomics.load(pass_.control, STOP) != 0:
            return -1
        pass_.control[CURSOR] = at + 1
        return _begin(pass_, pass_.script[at], worker)
    rows = pass_.row_done.shape[0]
    looks = 0
    since = 0  # when waiting began
    while True:
        if atomics.load(pass_.control, STOP) != 0 or atomics.load(pass_.control, LEFT) == 0:
            _waited(pass_, since)
            return -1
        best = -1
        most = -1
        nearest = _FAR + 1
        for r in range(rows):
            at = pass_.row_first[r] + atomics.load(pass_.row_done, r)
            if at >= pass_.row_first[r + 1]:
                continue
            v = pass_.row_visits[at]
            if atomics.load(pass_.taken, v) != 0:
                continue
            # A block whose rows are still in this worker's cache is worth more than one that has to be fetched.
            if pass_.row_last[r] != worker:
                distance = _FAR
            elif finished >= 0:
                distance = (r ^ pass_.row_block[finished]) | (pass_.col_block[v] ^ pass_.col_block[finished])
            else:
                distance = 0
            better = pass_.priority[v] > most if distance == nearest else distance < nearest
            if better and atomics.load(pass_.col_done, pass_.col_block[v]) == pass_.col_turn[v]:
                best = v
                most = pass_.priority[v]
                nearest = distance
        if best >= 0:
            if atomics.claim(pass_.taken, best):
                _waited(pass_, since)
                return _begin(pass_, best, worker)
        elif pass_.control[NAP] == 0:
            atomics.rest()
        else:
            if since == 0:
                since = atomics.cycles()
            looks += 1
            if looks < _LOOKS:
                atomics.rest()
            else:
                atomics.nap(pass_.control[NAP])


@inner
def fail(pass_, visit):
    """Stop the pass because `visit` went wrong; the first failure wins."""
    if pass_.control[FAILED] == 0:
        atomics.store(pass_.control, FAILED, visit + 1)
    atomics.store(pass_.control, STOP, 1)
