"""`Order`: a partial order over block visits, the common form of all static schedules.

Each visit accesses one row block and one column block. Visits that share a block run in a fixed order (the block's
*turns*); visits that share none may overlap. Any execution that respects the turns gives the same bits, because each
visit then reads exactly the values of the serial order.

    order = rotation(4)                     # 16 visits over a 4 × 4 grid
    order.row_block[v], order.col_block[v]  # what visit v touches
    order.row_turn[v], order.col_turn[v]    # how many visits of that block come before v

Visits are numbered in a serial order that respects the turns: running 0, 1, 2, … is the serial runtime.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from stretto.cached import cached_property
from stretto.errors import PlanError

Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Order:
    """V visits over `rows` row blocks and `cols` column blocks, numbered in a valid serial order."""

    name: str  # of the schedule, for explain()
    rows: int  # number of row blocks
    cols: int  # number of column blocks
    row_block: Ints  # [V] row block of each visit
    col_block: Ints  # [V] column block of each visit
    row_turn: Ints = field(init=False)  # [V] earlier visits of the same row block
    col_turn: Ints = field(init=False)  # [V] earlier visits of the same column block
    _kept: dict[str, tuple[Ints, Ints]] = field(init=False, repr=False, default_factory=dict)

    def __post_init__(self) -> None:
        if self.row_block.shape != self.col_block.shape or self.row_block.ndim != 1:
            raise PlanError("an order needs one row block and one column block for each visit")
        object.__setattr__(self, "row_turn", _turns(self.row_block, self.rows))
        object.__setattr__(self, "col_turn", _turns(self.col_block, self.cols))

    def __len__(self) -> int:
        return len(self.row_block)

    @cached_property
    def row_visits(self) -> Ints:
        """[V] visits grouped by row block, in turn order."""
        return np.argsort(self.row_block, kind="stable").astype(np.int64)

    @cached_property
    def row_first(self) -> Ints:
        """[rows + 1] where each row block's visits begin in `row_visits`."""
        counts = np.bincount(self.row_block, minlength=self.rows)
        return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)

    def tails(self, weight: Ints) -> Ints:
        """[V] the weight of the heaviest chain of visits that begins with each visit.

        The last result is cached, because passes need it every epoch.
        """
        kept = self._kept.get("tails")
        if kept is not None and np.array_equal(kept[0], weight):
            return kept[1]
        rows, cols = [0] * self.rows, [0] * self.cols
        tails = [0] * len(self)
        visits = zip(self.row_block.tolist(), self.col_block.tolist(), weight.tolist(), strict=True)
        for v, (r, c, w) in reversed(list(enumerate(visits))):
            tails[v] = rows[r] = cols[c] = max(rows[r], cols[c]) + w
        found = np.array(tails, dtype=np.int64)
        self._kept["tails"] = weight.copy(), found
        return found

    def predecessors(self, visit: int) -> list[int]:
        """The visits that must be finished just before this one: at most one for each block."""
        found = []
        for block, turn in ((self.row_block, self.row_turn), (self.col_block, self.col_turn)):
            if turn[visit]:
                same = np.flatnonzero((block == block[visit]) & (turn == turn[visit] - 1))
                found.append(int(same[0]))
        return found

    def finished_closed(self, finished: Ints) -> bool:
        """Whether a set of finished visits is closed: no visit finished before one it had to wait for."""
        done = np.zeros(len(self), dtype=bool)
        done[finished] = True
        for block, turn, n in ((self.row_block, self.row_turn, self.rows), (self.col_block, self.col_turn, self.cols)):
            count = np.bincount(block[done], minlength=n)
            last = np.full(n, -1)
            np.maximum.at(last, block[done], turn[done])
            if np.any(last + 1 != count):
                return False
        return True


def part_of(order: Order, which: Ints) -> Order:
    """The order restricted to some visits, with their blocks renumbered."""
    rows, row = np.unique(order.row_block[which], return_inverse=True)
    cols, col = np.unique(order.col_block[which], return_inverse=True)
    return Order(order.name, len(rows), len(cols), row.astype(np.int64), col.astype(np.int64))


def _turns(block: Ints, blocks: int) -> Ints:
    if len(block) and (block.min() < 0 or block.max() >= blocks):
        raise PlanError(f"a visit names block {int(block.max())} of {blocks}")
    by_block = np.argsort(block, kind="stable")
    first = np.concatenate([[0], np.cumsum(np.bincount(block, minlength=blocks))])
    turn = np.empty(len(block), dtype=np.int64)
    turn[by_block] = np.arange(len(block)) - first[block[by_block]]
    return turn
