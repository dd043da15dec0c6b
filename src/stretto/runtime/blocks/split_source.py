"""Entries of a source in the columns of a partition that divides heavy words (`data.heavy_columns`).

source = split_source(source, logical, words=V, heavy=heavy)
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from stretto.plan.plan import Logical
from stretto.schedule.orders.order import Ints

from .parted import PartedSource, in_parts
from .source import Chunk, EntrySource


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
