"""Storage layout of topic counts: documents and words in the plan's order, each with space for its topics."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.cached import cached_property
from stretto.data.heavy_columns import heavy_columns
from stretto.data.partition import BlockPartition
from stretto.errors import PlanError
from stretto.kernels.topics.dense import MOST_TOPICS
from stretto.kernels.topics.rows import GROUP
from stretto.schedule.orders.order import Ints

from .topics import Topics

_COUNT_BYTES = 4
_MOST_PLAIN = (1 << 16) - 1  # largest plain count of a document


@dataclass(frozen=True, eq=False)
class Census:
    """Token counts of a corpus."""

    doc_tokens: Ints  # [D] tokens of each document
    word_tokens: Ints  # [V] tokens of each word
    entries: int  # number of stored counts
    digest: str  # digest of the corpus

    @property
    def tokens(self) -> int:
        return int(self.doc_tokens.sum())


@dataclass(frozen=True, eq=False)
class CountLayout:
    """Storage layout of counts: documents and words in the plan's order, each with space for its largest row."""

    topics: int
    plain: bool  # every document has K counts of two bytes; else packed rows
    doc_tokens: Ints  # [D] by position
    word_tokens: Ints  # [V + H B] by position, heavy words 0; includes those of an earlier fit
    # [H] words that are divided among the B column blocks, each with one column of its own in every block.
    heavy: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    heavy_part: NDArray[np.int32] | None = None  # [V + H B] by position: h for a part of heavy word h, else -1

    @classmethod
    def of(
        cls,
        topics: int,
        sampler: str,
        census: Census,
        rows: BlockPartition,
        cols: BlockPartition,
        earlier: Topics | None = None,
    ) -> CountLayout:
        """The layout for the corpus of the census, with the counts of earlier topics that a fit continues from."""
        V, docs = len(census.word_tokens), np.empty(len(rows), np.int64)
        docs[rows.place], tokens = census.doc_tokens, census.word_tokens
        heavy = heavy_columns(tokens, cols.blocks) if len(cols) > V else np.zeros(0, np.int64)
        if earlier is not None:
            before = np.repeat(np.arange(earlier.n_words), np.diff(earlier.indptr))
            tokens = tokens + np.bincount(before, earlier.whole(), earlier.n_words).astype(np.int64)
        words, part = np.zeros(len(cols), np.int64), np.full(len(cols), -1, np.int32)
        light = np.ones(V, bool)
        light[heavy] = False
        words[cols.place[:V]] = np.where(light, tokens, 0)
        part[cols.place[V:]] = np.repeat(np.arange(len(heavy)), cols.blocks)
        longest = int(docs.max(initial=0))
        plain = sampler != "mh" and topics <= MOST_TOPICS and longest <= _MOST_PLAIN
        shape = cls(topics, plain, docs, words, heavy, part)
        if not plain and longest >= 1 << shape.shift:
            where = int(census.doc_tokens.argmax())
            raise PlanError(
                f"document {where} has {longest:,} tokens; with {topics:,} topics at most "
                f"{(1 << shape.shift) - 1:,} can be counted: split it into several documents"
            )
        return shape

    @property
    def words(self) -> int:
        """Words of the corpus, V."""
        return len(self.word_tokens) - (0 if self.heavy_part is None else int((self.heavy_part >= 0).sum()))

    @property
    def totals(self) -> int:
        """Length of the totals: K of the topics, and K counts of each heavy word."""
        return self.topics * (1 + len(self.heavy))

    @property
    def shift(self) -> int:
        """Bits of a packed entry below the topic."""
        return 32 - self.topics.bit_length()

    @property
    def width(self) -> int:
        """Numbers in a plain document row, rounded up to a multiple of sixteen."""
        return -(-self.topics // 16) * 16

    @property
    def padding(self) -> int:
        """Value of unused entries in packed rows."""
        return self.topics << self.shift

    @cached_property
    def doc_at(self) -> Ints:
        """[D + 1] first element of each document's row."""
        room = np.full(len(self.doc_tokens), self.width)
        if not self.plain:
            # One entry more than tokens: the sampler writes the new topic before it removes the old one.
            room = -(-np.minimum(self.doc_tokens + 1, self.topics) // 16) * 16
        return np.concatenate([[0], np.cumsum(room)]).astype(np.int64)

    @cached_property
    def word_plain(self) -> NDArray[np.bool_]:
        """[V] words with K plain counts: at least 4 K tokens, or too many tokens for a packed count."""
        return self.word_tokens >= min(4 * self.topics, 1 << self.shift)

    @cached_property
    def word_at(self) -> Ints:
        """[V + 1] first element of each word's row."""
        room = np.where(self.word_plain, self.topics, np.minimum(self.word_tokens, self.topics))
        return np.concatenate([[0], np.cumsum(room)]).astype(np.int64)

    @property
    def doc_dtype(self) -> Any:
        return np.uint16 if self.plain else np.uint32

    @property
    def topic_dtype(self) -> Any:
        return np.uint16 if self.topics <= 1 << 16 else np.int32

    @property
    def longest(self) -> int:
        """Length of the longest document row."""
        return self.width if self.plain else int(np.diff(self.doc_at).max(initial=16))

    @property
    def doc_bytes(self) -> int:
        return int(self.doc_at[-1]) * int(np.dtype(self.doc_dtype).itemsize) + 12 * len(self.doc_tokens)

    @property
    def word_bytes(self) -> int:
        return int(self.word_at[-1]) * _COUNT_BYTES + 12 * len(self.word_tokens)

    def padded_alpha(self, alpha: NDArray[np.float64]) -> NDArray[np.float32]:
        """alpha for the kernels, padded with zeros to whole groups."""
        found = np.zeros((self.topics + GROUP) // GROUP * GROUP, np.float32)
        found[: self.topics] = alpha
        return found
