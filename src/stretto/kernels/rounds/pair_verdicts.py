"""Cache of pairwise conflict checks between moving jobs: two bits per pair, 64 pairs to a word.

Jobs that move hold the first leaves of the tree of priorities (`priority`), so pairs are stored by leaf. Bit b of row a
of `sure`: leaves a and b were compared; the same bit of `close`: they conflict. A candidate is compared with all jobs
taken so far by a few words of one row. When a job moves to another leaf, its bits move too. Leaves from M on have no
bits and are compared each time.

sure, close [Q, M, M / 64] uint64; mask [Q, M / 64] uint64: the leaves taken.
"""

from __future__ import annotations

import numpy as np

from stretto.kernels.core.compile import merged
from stretto.kernels.numeric import vector
from stretto.kernels.numeric.sumtree import leaf_weight

from .chooser_state import COUNT, LEAF, LEAVES, QUEUES, WIDTH, own_jobs
from .correlation import too_close

_ONE = np.uint64(1)
_AHEAD = 4  # prefetch distance, in candidates


@merged
def _bit(leaf):
    return _ONE << np.uint64(leaf & 63)


@merged
def _copy_bit(bits, q, row, source, target):
    one = (bits[q, row, source >> 6] >> np.uint64(source & 63)) & _ONE
    bits[q, row, target >> 6] = (bits[q, row, target >> 6] & ~_bit(target)) | (one << np.uint64(target & 63))


@merged
def forget_leaf(choice, q, leaf):
    """Clear the bits of a leaf that has a new job."""
    sure = choice.sure
    rows = sure.shape[1]
    if leaf < rows:
        word, others = leaf >> 6, ~_bit(leaf)
        for row in range(min(choice.place[q, LEAVES], rows)):
            sure[q, row, word] &= others
        for at in range(sure.shape[2]):
            sure[q, leaf, at] = 0


@merged
def move_leaf(choice, q, source, target):
    """Move the bits of the job of leaf `source` to leaf `target`."""
    sure, close = choice.sure, choice.close
    rows = sure.shape[1]
    if source >= rows:
        forget_leaf(choice, q, target)
        return
    for row in range(min(choice.place[q, LEAVES] + 1, rows)):
        _copy_bit(sure, q, row, source, target)
        _copy_bit(close, q, row, source, target)
    for at in range(sure.shape[2]):
        sure[q, target, at] = sure[q, source, at]
        close[q, target, at] = close[q, source, at]


@merged
def _compare(choice, table, q, a, b, leaf, other):
    """Whether jobs a and b, at these leaves, conflict; the result is stored if both leaves have bits."""
    queues = choice.plan[QUEUES]
    found = too_close(table, a * queues + q, b * queues + q, choice.share[1])
    sure, close = choice.sure, choice.close
    if max(leaf, other) < sure.shape[1]:
        for row, column in ((leaf, other), (other, leaf)):
            word, bit = column >> 6, _bit(column)
            sure[q, row, word] |= bit
            close[q, row, word] = close[q, row, word] | bit if found else close[q, row, word] & ~bit
    return found


@merged
def find_under_way(choice, q):
    """Write the moving jobs in progress, whose leaves have no weight, to chosen; return how many there are."""
    tree, n = choice.tree, 0
    for leaf in range(choice.place[q, LEAVES]):
        if leaf_weight(tree, q, leaf) == 0.0:
            choice.chosen[q, n] = choice.holder[q, leaf]
            n += 1
    return n


@merged
def independent_moving(choice, table, q):
    """`correlation.independent` for candidates that all have a leaf; return how many are taken.

    They are independent of the jobs in progress too, which do not see their changes.
    """
    candidates, taken, chosen, state = choice.candidates, choice.taken, choice.chosen, choice.state
    sure, close, mask, leaves = choice.sure, choice.close, choice.mask, choice.leaves
    rows = sure.shape[1]
    words = (min(choice.place[q, LEAVES], rows) + 63) >> 6
    width, kept, beyond = min(choice.plan[WIDTH], own_jobs(choice, q)), 0, 0
    before = find_under_way(choice, q)
    for at in range(words):
        mask[q, at] = 0
    for k in range(before):
        leaf = np.int64(state[q, chosen[q, k], LEAF])
        if leaf < rows:
            mask[q, leaf >> 6] |= _bit(leaf)
        else:
            beyond += 1
    for i in range(choice.place[q, COUNT]):
        taken[q, i] = 0
        if kept >= width:
            continue
        if i + _AHEAD < choice.place[q, COUNT]:
            at = (q * rows + leaves[q, i + _AHEAD]) * sure.shape[2]
            vector.ahead(sure, at)
            vector.ahead(close, at)
        job, leaf = candidates[q, i], np.int64(leaves[q, i])
        fits, unsure = True, beyond > 0 or leaf >= rows
        if leaf < rows:
            for at in range(words):
                both = mask[q, at] & sure[q, leaf, at]
                if both & close[q, leaf, at]:
                    fits = False
                    break
                unsure |= both != mask[q, at]
        if fits and unsure:
            for k in range(before + kept):
                other = np.int64(state[q, chosen[q, k], LEAF])
                if max(leaf, other) < rows and sure[q, leaf, other >> 6] & _bit(other):
                    continue
                if _compare(choice, table, q, job, chosen[q, k], leaf, other):
                    fits = False
                    break
        if fits:
            taken[q, i] = 1
            chosen[q, before + kept] = job
            kept += 1
            if leaf < rows:
                mask[q, leaf >> 6] |= _bit(leaf)
            else:
                beyond += 1
    return kept
