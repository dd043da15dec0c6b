"""Rotation order: every row block meets every column block once an epoch, and no two visits of a step share a block.

With B = 4 the steps of the two patterns are (row block → column block)

    step      ring                    exchange
    0         0→0 1→1 2→2 3→3         0→0 1→1 2→2 3→3
    1         0→1 1→2 2→3 3→0         0→1 1→0 2→3 3→2
    2         0→2 1→3 2→0 3→1         0→2 1→3 2→0 3→1
    3         0→3 1→0 2→1 3→2         0→3 1→2 2→1 3→0

`ring` passes a column block to the neighbour, as in STRADS's static engine. `exchange` pairs i with i XOR step: in
every run of 2ᵐ steps, aligned groups of 2ᵐ row blocks meet only their own group of column blocks. So the same order,
and so the same bits, can run from disk with only a tile of the grid in memory. `exchange` needs a power of two.

There is no barrier between steps: a visit waits only for the earlier visits of its own two blocks.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from stretto.errors import PlanError

from .order import Ints, Order

PATTERNS = ("exchange", "ring")


def rotation(blocks: int, pattern: str = "exchange") -> Order:
    """The order of one epoch over a blocks × blocks grid: blocks² visits, numbered step by step.

    >>> order = rotation(4)
    >>> len(order), int(order.col_block[5])
    (16, 0)
    """
    if blocks < 1:
        raise PlanError(f"rotation needs at least one block, got {blocks}")
    step, row = np.divmod(np.arange(blocks * blocks, dtype=np.int64), blocks)
    if pattern == "ring":
        col = (row + step) % blocks
    elif pattern == "exchange":
        if blocks & (blocks - 1):
            raise PlanError(f"the exchange pattern needs a power of two, got {blocks} blocks; use pattern='ring'")
        col = row ^ step
    else:
        raise PlanError(f"rotation pattern {pattern!r} is not one of {', '.join(PATTERNS)}")
    return Order(f"rotation/{pattern}", blocks, blocks, row, col)


def several(blocks: int, axes: int) -> tuple[Order, Ints]:
    """A rotation along several axes: every combination of blocks once, and no two visits at a time share a block.

    The order has row blocks (axis 0) and column blocks (axis 1); the blocks of other axes follow from it. In one pass
    of a ring, row block r meets column blocks r, r + 1, … and keeps block r + s of axis 2. It begins the next pass with
    the column block that row block r + 1 ended with. So r + 1 has then finished with block r + s + 1 of axis 2, which
    r needs next.

    Returns
    -------
    Order
        blocks ** axes visits.
    ndarray of int64, shape (visits, axes)
        The block of every visit along each axis.

    >>> order, block = several(2, 3)
    >>> block.tolist()
    [[0, 0, 0], [1, 1, 1], [0, 1, 0], [1, 0, 1], [0, 0, 1], [1, 1, 0], [0, 1, 1], [1, 0, 0]]
    """
    if blocks < 1 or axes < 2:
        raise PlanError(f"a rotation along several axes needs a block and two axes, got {blocks} and {axes}")
    digits = np.unravel_index(np.arange(blocks**axes, dtype=np.int64), (blocks,) * axes)  # slowest first; last: the row
    row, shifts = digits[-1], digits[-2::-1]
    block = np.stack([row, *((row + shift) % blocks for shift in shifts)], axis=1)
    return Order(f"rotation/ring, {axes} axes", blocks, blocks, block[:, 0].copy(), block[:, 1].copy()), block


def panels(blocks: int, count: int) -> Order:
    """`count` rotations one after the other, each over row blocks of its own and the same column blocks.

    A panel is a contiguous range of rows. Its visits of a column block come before those of the next panel, so the rows
    of a panel are read once an epoch, however little of the data fits in memory.

    >>> order = panels(2, 3)
    >>> order.rows, order.cols, order.row_block.tolist()
    (6, 2, [0, 1, 0, 1, 2, 3, 2, 3, 4, 5, 4, 5])
    """
    if count < 1:
        raise PlanError(f"an order needs at least one panel, got {count}")
    one = rotation(blocks)
    panel = np.repeat(np.arange(count, dtype=np.int64), len(one))
    name = one.name if count == 1 else f"{one.name}, {count} panels"
    rows = np.tile(one.row_block, count) + panel * blocks
    return Order(name, blocks * count, blocks, rows, np.tile(one.col_block, count))


@lru_cache(maxsize=64)
@lru_cache(maxsize=256)
def independent(blocks: int) -> Order:
    """An order in which no visit waits for another: visit b touches row block b alone (and column block b of a dummy
    axis).
    """
    every = np.arange(blocks, dtype=np.int64)
    return Order("independent", blocks, blocks, every, every.copy())
