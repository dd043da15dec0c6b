"""Wavefront order: blocks of a grid in row-major order, each waiting for its neighbours above and to the left.

    0 1 2 3         a block may start when the one before it in its row and the one above it in its column are done,
    1 2 3 4         so the blocks with one number run together: M + N − 1 steps for N workers and M blocks each, where
    2 3 4 5         a rotation needs M

Serial order is the numbering itself, which is the order of an ordinary nested loop over blocks.
"""

from __future__ import annotations

import numpy as np

from stretto.errors import PlanError

from .order import Order


def wavefront(rows: int, cols: int) -> Order:
    """rows × cols visits, numbered row by row.

    >>> order = wavefront(2, 3)
    >>> order.predecessors(4)
    [3, 1]
    """
    if rows < 1 or cols < 1:
        raise PlanError(f"a wavefront needs at least one block along each axis, got {rows} × {cols}")
    row, col = np.divmod(np.arange(rows * cols, dtype=np.int64), cols)
    return Order("wavefront", rows, cols, row, col)


def chain(visits: int) -> Order:
    """Visits that run one after another: all of them need the same row block."""
    every = np.arange(visits, dtype=np.int64)
    return Order("chain", 1, max(1, visits), np.zeros(visits, dtype=np.int64), every)
