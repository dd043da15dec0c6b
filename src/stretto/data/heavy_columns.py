"""Columns (words) with more entries than a column block should have are divided among all column blocks.

The visits of a column block follow one another, so a block with a twelfth of all tokens keeps sixteen workers waiting.
A heavy word gets one more column for each column block, after the V words of the corpus: column V + h B + c is the part
of heavy word h in block c of B. The documents of a row block are divided among these parts in B equal ranges
(`runtime.blocks.split_source`). Counts of heavy words are kept with the totals of topics (`kernels.topics.rows`), which
every visit may read and change.

    heavy = heavy_columns(census.word_tokens, blocks=32)              # [17, 4]: usually none, a few for unfiltered text
    cols = cut_columns(census.word_tokens, 32, seed=0)                # V + 2 x 32 columns
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .partition import BlockPartition, cut_evenly

Ints = NDArray[np.int64]

# A smaller corpus takes milliseconds a pass, and its grid is too coarse for many workers anyway.
FEWEST_TOKENS = 1 << 20


def heavy_columns(word_tokens: Ints, blocks: int) -> Ints:
    """[H] the words with more tokens than an average block, heaviest first.

    >>> heavy_columns(np.array([1, 600_000, 400_000, 100_000]), 4)
    array([1, 2])
    """
    whole = int(word_tokens.sum())
    if whole < FEWEST_TOKENS or blocks == 1:
        return np.zeros(0, np.int64)
    heaviest = np.argsort(-word_tokens, kind="stable")[:blocks]
    found: Ints = heaviest[word_tokens[heaviest] * blocks > whole]
    return found


def cut_columns(word_tokens: Ints, blocks: int, *, seed: int) -> BlockPartition:
    """Blocks of words with equal work: V words, then one column for each heavy word and block."""
    heavy = heavy_columns(word_tokens, blocks)
    light = word_tokens.copy()
    light[heavy] = 0
    cols = cut_evenly(light, blocks, seed=seed, axis=1)
    if not len(heavy):
        return cols
    count = len(heavy) * blocks
    block = np.concatenate([cols.block_of().astype(np.int64), np.tile(np.arange(blocks), len(heavy))])
    # Within a block, heavy parts come after the words of the block.
    before = np.concatenate([cols.place.astype(np.int64), len(cols) + np.arange(count)])
    place = np.empty(len(block), np.int32)
    place[np.lexsort((before, block))] = np.arange(len(block), dtype=np.int32)
    bounds = cols.bounds + len(heavy) * np.arange(blocks + 1)
    return BlockPartition(place, bounds)
