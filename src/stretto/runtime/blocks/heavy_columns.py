"""Columns (words) with more entries than a column block should have are divided among all column blocks.

The visits of a column block follow one another, so a block with a twelfth of all tokens keeps sixteen workers waiting.
A heavy word gets one more column for each column block, after the V words of the corpus: column V + h B + c is the part
of heavy word h in block c of B. The documents of a row block are divided among these parts in B equal ranges. Counts
of heavy words are kept with the totals of topics (`kernels.topics.rows`), which every visit may read and change.

    heavy = heavy_columns(census.word_tokens, blocks=32)              # [17, 4]: usually none, a few for unfiltered text
    cols = cut_columns(census.word_tokens, 32, seed=0)                # V + 2 x 32 columns
    source = split_source(source, logical, words=V, heavy=heavy)    # entries with the columns of that partition
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from stretto.data.partition import BlockPartition, cut_evenly
from stretto.plan.plan import Logical
from stretto.schedule.orders.order import Ints

from .parted import PartedSource, in_parts
from .source import Chunk, EntrySource

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


def split_source(source: EntrySource, logical: Logical, words: int, heavy: Ints) -> EntrySource:
    """The source, or the same entries in the columns of `cut_columns` if there are heavy words."""
    if not len(heavy):
        return source
    rows = logical.rows
    block = rows.block_of()
    within = rows.place - rows.bounds[block]
    share = (within * logical.cols.blocks // np.maximum(rows.sizes, 1)[block]).astype(np.int32)
    parts, blocks = in_parts(source), logical.cols.blocks
    if parts is not None:
        return SplitParts(parts, share, words, heavy, blocks)
    return SplitSource(source, share, words, heavy, blocks)


class SplitSource:
    """Entries whose heavy words are in the columns of their documents' parts.

    Parameters
    ----------
    source : the entries of the corpus
    share : [D] the column block that holds the heavy words of each document
    words : number of words of the corpus
    heavy : [H] the heavy words
    blocks : number of column blocks
    """

    def __init__(self, source: EntrySource, share: NDArray[np.int32], words: int, heavy: Ints, blocks: int) -> None:
        self._source, self._share = source, share
        self._first = np.full(words, -1, np.int64)  # the first column of each heavy word
        self._first[heavy] = words + blocks * np.arange(len(heavy))
        self.shape = source.shape[0], words + len(heavy) * blocks

    def __len__(self) -> int:
        return len(self._source)

    def chunks(self) -> Iterator[Chunk]:
        """The entries of the source, in its order."""
        return map(self._split, self._source.chunks())

    def _split(self, chunk: Chunk) -> Chunk:
        rows, cols, values = chunk
        first = self._first[cols]
        which = np.flatnonzero(first >= 0)
        cols = cols.copy()
        cols[which] = first[which] + self._share[rows[which]]
        return rows, cols, values


class SplitParts(SplitSource):
    """The same for a source that is read in parts."""

    def __init__(self, source: PartedSource, share: NDArray[np.int32], words: int, heavy: Ints, blocks: int) -> None:
        super().__init__(source, share, words, heavy, blocks)
        self._parted = source

    @property
    def parts(self) -> int:
        """As `PartedSource`."""
        return self._parted.parts

    @property
    def readers(self) -> Ints | None:
        """As `PartedSource`."""
        return self._parted.readers

    @property
    def before(self) -> Ints | None:
        """As `PartedSource`."""
        return self._parted.before

    def part(self, number: int) -> Iterator[Chunk]:
        """The entries of one part."""
        return map(self._split, self._parted.part(number))
