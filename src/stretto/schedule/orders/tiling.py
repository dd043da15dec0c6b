"""The grid in tiles: visits that are made one tile after the other, so that only a tile has to be in memory.

A tile of side m holds the visits of m neighbouring row blocks and m neighbouring column blocks. Tiles are made in the
order of their first visits. That is allowed where every visit still comes after the earlier visits of its two blocks:
in the exchange pattern for any aligned side, for visits that wait for none, for a grid that is walked in order. Where
it is not, smaller sides are tried; a tile of one visit is always allowed.

    tiling = choose_tiling(order, held, budget)      # the largest side whose tiles fit; held(visits) -> bytes
    for visits in tiling.tiles: ...

The side follows from the memory and changes no number.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from .order import Ints, Order


@dataclass(frozen=True, eq=False)
class Tiling:
    """side: blocks along one side of a tile. tiles: the visits of each, in the order in which they are made.

    ahead: whether the next tile is read while one is worked on. need: bytes that are held at most.
    """

    side: int
    tiles: tuple[Ints, ...]
    need: int
    ahead: bool


def tiles_of(order: Order, side: int) -> tuple[Ints, ...] | None:
    """The visits of an order in tiles of a side, None where that would break the order.

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
        # Visits are numbered in a valid order, so those of one block should keep their order.
        by_block = np.argsort(block, kind="stable")
        same = block[by_block[1:]] == block[by_block[:-1]]
        if np.any(np.diff(at[by_block])[same] < 0):
            return False
    return True


def choose_tiling(order: Order, held: Callable[[Ints], int], budget: int | None) -> Tiling:
    """The largest tiles of which two neighbours fit the budget; else the largest that fit one at a time, or the
    smallest.

    held(visits): bytes that are needed for visits to be made.
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
