"""Lock-free work queue of a pass: compiled workers claim the next ready visit of a block.

A *pass* is a set of visits, each to one row block and one column block. Blocks are visited in the order the plan fixed:
visit v is the `row_turn[v]`-th of its row block and the `col_turn[v]`-th of its column block, and is **ready** when
exactly that many earlier visits of either block are finished. Two ready visits never share a block, so any number of
threads may claim ready visits with one compare-and-swap each, and the result is the same as visiting them one by one.

A worker is one compiled call that loops:

    v = claims.next_visit(pass_, worker)      # a ready visit, or −1 when the pass is over or was stopped
    while v >= 0:
        ... visit block v ...
        v = claims.next_visit(pass_, worker, finished=v)

Kernels receive a pass as one int64 array, `Pass.words`. `Pass` gives Python named views of its parts. (A tuple of
fourteen arrays took the compiler longer to pass to a helper than the helper took to compile.)

V visits, R row blocks, C column blocks.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from . import atomics
from .compile import inner

# Slots of `Pass.control`, the first words of a pass. NAP: microseconds that a worker sleeps between two checks when
# nothing is ready for long; 0: it only yields. WAITED: cycles that workers waited, counted where they nap.
STOP, LEFT, CURSOR, MODE, FAILED, LOGGED, NAP, WAITED = range(8)
CONTROL_SLOTS = 8
CLAIMED, SCRIPTED = 0, 1
_FAR = 1 << 30
_LOOKS = 32  # checks before the first nap
# Columns of `Pass.log`: visit, worker, start, end (time stamp counter).
LOG_COLUMNS = 4
# Words that hold the offset of each part of a pass, in the order of `Pass.PARTS`, and the lengths of two of them.
(_ROW_BLOCK, _COL_BLOCK, _ROW_TURN, _COL_TURN, _PRIORITY, _ROW_FIRST, _ROW_VISITS, _ROW_LAST, _ROW_DONE, _COL_DONE,
 _TAKEN, _SCRIPT, _LOG) = range(CONTROL_SLOTS, CONTROL_SLOTS + 13)  # fmt: skip
_ROWS, _SCRIPTED = CONTROL_SLOTS + 13, CONTROL_SLOTS + 14
_HEAD = CONTROL_SLOTS + 16
_LINE = 8  # words of a cache line; no two parts share a line

Ints = NDArray[np.int64]


class Pass:
    """One pass over the blocks: `words` for compiled workers, and named views of its parts in the same memory.

    Parameters
    ----------
    parts : dict of str to array
        One array for every name of `PARTS`.

    Attributes
    ----------
    words : array of int64
        The whole pass.
    control : [8]
        Stop flag, visits left, cursor, mode, failed visit + 1, log length, nap, cycles waited.
    """

    PARTS = (
        "row_block",  # [V] block of each visit
        "col_block",  # [V]
        "row_turn",  # [V] how many visits of the row block come before
        "col_turn",  # [V]
        "priority",  # [V] the work that depends on each visit; the ready visit with the highest value goes first
        "row_first",  # [R + 1] where each row block's visits begin in row_visits
        "row_visits",  # [V] visits grouped by row block, in turn order
        "row_last",  # [R] the worker that made the row block's last visit, or −1
        "row_done",  # [R] finished visits of each row block
        "col_done",  # [C]
        "taken",  # [V] 1 once claimed
        "script",  # [S] visits in the order to run them (SCRIPTED only)
        "log",  # [V, 4] visit, worker, start and end
    )
    row_block: Ints
    col_block: Ints
    row_turn: Ints
    col_turn: Ints
    priority: Ints
    row_first: Ints
    row_visits: Ints
    row_last: Ints
    row_done: Ints
    col_done: Ints
    taken: Ints
    script: Ints
    log: Ints

    def __init__(self, **parts: Ints) -> None:
        sizes = [parts[name].size for name in self.PARTS]
        ends = _HEAD + np.cumsum([(size + _LINE - 1) // _LINE * _LINE for size in sizes])
        begins = [_HEAD, *ends[:-1].tolist()]
        self.words: Ints = np.zeros(int(ends[-1]), np.int64)
        self.control: Ints = self.words[:CONTROL_SLOTS]
        self.words[_ROW_BLOCK : _ROW_BLOCK + len(sizes)] = begins
        self.words[_ROWS], self.words[_SCRIPTED] = parts["row_done"].size, parts["script"].size
        self._places = {
            name: (begin, size, parts[name].shape) for name, begin, size in zip(self.PARTS, begins, sizes, strict=True)
        }
        for name in self.PARTS:
            getattr(self, name)[...] = parts[name]

    def __getattr__(self, name: str) -> Ints:
        """Return the view of a part; made when it is first used, because most passes use few of them."""
        if name not in self.PARTS:
            raise AttributeError(name)
        begin, size, shape = self._places[name]
        view = self.words[begin : begin + size].reshape(shape)
        setattr(self, name, view)
        return view

    def copy(self) -> Pass:
        """Return a pass in the same state, with memory of its own."""
        made = object.__new__(Pass)
        made.words = self.words.copy()
        made.control = made.words[:CONTROL_SLOTS]
        made._places = self._places
        return made


def stopped() -> Ints:
    """Return the words of a pass that is already stopped: a worker that receives them returns at once."""
    words = np.zeros(_HEAD, np.int64)
    words[STOP] = 1
    return words


@inner
def is_stopped(words):
    """Whether the stop flag of the pass is set."""
    return words[STOP] != 0


@inner
def _begin(words, visit, worker):
    slot = atomics.add(words, LOGGED, 1)
    log = words[_LOG] + slot * LOG_COLUMNS
    words[log] = visit
    words[log + 1] = worker
    words[log + 2] = atomics.cycles()
    words[words[_TAKEN] + visit] = 1 + slot
    return visit


@inner
def _finish(words, visit):
    log = words[_LOG] + (words[words[_TAKEN] + visit] - 1) * LOG_COLUMNS
    words[log + 3] = atomics.cycles()
    row, col = words[words[_ROW_BLOCK] + visit], words[words[_COL_BLOCK] + visit]
    words[words[_ROW_LAST] + row] = words[log + 1]
    atomics.store(words, words[_ROW_DONE] + row, words[words[_ROW_TURN] + visit] + 1)
    atomics.store(words, words[_COL_DONE] + col, words[words[_COL_TURN] + visit] + 1)
    atomics.add(words, LEFT, -1)


@inner
def _waited(words, since):
    if since != 0:
        atomics.add(words, WAITED, atomics.cycles() - since)


@inner
def next_visit(words, worker, finished=-1):
    """Report `finished` (or −1), then claim and return a ready visit; −1 when no work is left.

    A worker prefers row blocks that it was the last to visit. Among their ready visits it takes the one nearest to the
    visit just finished. The distance of two blocks is the exclusive or of their numbers, so aligned groups of blocks,
    which the exchange order visits together, are processed while they are in cache, small groups first. Ties, and
    visits of other row blocks, go by priority. Which worker makes a visit does not change the result.
    """
    if finished >= 0:
        _finish(words, finished)
    if words[MODE] == SCRIPTED:
        at = words[CURSOR]
        if at >= words[_SCRIPTED] or atomics.load(words, STOP) != 0:
            return -1
        words[CURSOR] = at + 1
        return _begin(words, words[words[_SCRIPT] + at], worker)
    row_first, row_done, row_visits, row_last = (
        words[_ROW_FIRST],
        words[_ROW_DONE],
        words[_ROW_VISITS],
        words[_ROW_LAST],
    )
    row_block, col_block, taken, priority = words[_ROW_BLOCK], words[_COL_BLOCK], words[_TAKEN], words[_PRIORITY]
    col_done, col_turn = words[_COL_DONE], words[_COL_TURN]
    looks = 0
    since = 0  # time at which waiting began
    while True:
        if atomics.load(words, STOP) != 0 or atomics.load(words, LEFT) == 0:
            _waited(words, since)
            return -1
        best = -1
        most = -1
        nearest = _FAR + 1
        for r in range(words[_ROWS]):
            at = words[row_first + r] + atomics.load(words, row_done + r)
            if at >= words[row_first + r + 1]:
                continue
            v = words[row_visits + at]
            if atomics.load(words, taken + v) != 0:
                continue
            # Prefer a block whose rows are still in this worker's cache.
            if words[row_last + r] != worker:
                distance = _FAR
            elif finished >= 0:
                distance = (r ^ words[row_block + finished]) | (words[col_block + v] ^ words[col_block + finished])
            else:
                distance = 0
            better = words[priority + v] > most if distance == nearest else distance < nearest
            if better and atomics.load(words, col_done + words[col_block + v]) == words[col_turn + v]:
                best = v
                most = words[priority + v]
                nearest = distance
        if best >= 0:
            if atomics.claim(words, taken + best):
                _waited(words, since)
                return _begin(words, best, worker)
        elif words[NAP] == 0:
            atomics.rest()
        else:
            if since == 0:
                since = atomics.cycles()
            looks += 1
            if looks < _LOOKS:
                atomics.rest()
            else:
                atomics.nap(words[NAP])


@inner
def fail(words, visit):
    """Stop the pass because `visit` failed; the first failure is recorded."""
    if words[FAILED] == 0:
        atomics.store(words, FAILED, visit + 1)
    atomics.store(words, STOP, 1)
