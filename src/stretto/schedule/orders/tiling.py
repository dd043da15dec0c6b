"""Tiles of the block grid, for out-of-core runs: visits run tile by tile, so that only one tile has to be in memory.

A tile of side m has the visits of m neighbouring row blocks and m neighbouring column blocks. Tiles run in the order of
their first visits. This is valid if every visit still comes after the earlier visits of its two blocks: in the exchange
pattern for any aligned side, for independent visits, and for a grid in row-major order. Otherwise smaller sides are
tried; a tile of one visit is always valid.

    tiling = choose_tiling(order, held, budget)      # the largest side whose tiles fit; held(visits) -> bytes
    for visits in tiling.tiles: ...

The side follows from the memory budget and changes no result.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from .order import Ints, Order


@dataclass(frozen=True, eq=False)
class Tiling:
    """The visits of an order, tile by tile."""

    side: int  # blocks along one side of a tile
    tiles: tuple[Ints, ...]  # visits of each tile, in the order in which they run
    need: int  # peak memory in bytes
    ahead: bool  # whether the next tile is read while the current one is processed


def tiles_of(order: Order, side: int) -> tuple[Ints, ...] | None:
    """The visits of an order in tiles of a side; None if that would violate the order.

    >>> from .rotation import rotation
    >>> [tile.tolist() for tile in tiles_of(rotation(4), 2)]
    [[0, 1, 4, 5], [2, 3, 6, 7], [8, 9, 12, 13], [10, 11, 14, 15]]
    """
    if side == 1:  # a pair of blocks may be visited more than once
        return tuple(np.arange(len(order), dtype=np.int64)[:, None])
    across = -(-order.cols // side)
    tile = (order.row_block // side) * across + order.col_block // side
    _, first, which = np.unique(tile, return_index=True, return_inverse=True)
    rank = np.empty(len(first), np.int64)
    rank[np.argsort(first, kind="stable")] = np.arange(len(first))
    sequence = np.argsort(rank[which], kind="stable")
    if not _allowed(order, sequence):
        return None
    return tuple(np.split(sequence.astype(np.int64), np.cumsum(np.bincount(rank[which]))[:-1]))


def _allowed(order: Order, sequence: Ints) -> bool:
    """Whether every visit comes after the earlier visits of its two blocks."""
    at = np.empty(len(order), np.int64)
    at[sequence] = np.arange(len(order))
    for block in (order.row_block, order.col_block):
        # Visits are numbered in a valid order, so those of one block must keep their order.
        by_block = np.argsort(block, kind="stable")
        same = block[by_block[1:]] == block[by_block[:-1]]
        if np.any(np.diff(at[by_block])[same] < 0):
            return False
    return True


def choose_tiling(order: Order, held: Callable[[Ints], int], budget: int | None) -> Tiling:
    """Choose the largest tiles of which two fit the budget, else the largest of which one fits, else the smallest.

    held(visits): bytes that these visits need.
    """
    side = 1 << (max(order.rows, order.cols, 1) - 1).bit_length()
    alone: Tiling | None = None
    while side >= 1:
        tiles = tiles_of(order, side)
        if tiles is not None:
            both = [held(np.concatenate(pair)) for pair in pairwise(tiles)] or [held(tiles[0])] if tiles else [0]
            if budget is None or max(both) <= budget:
                return Tiling(side, tiles, max(both), ahead=True)
            need = max(held(tile) for tile in tiles)
            if alone is None or alone.need > budget:
                alone = Tiling(side, tiles, need, ahead=False)
        side //= 2
    assert alone is not None  # a side of 1 keeps the order of the visits
    return alone
