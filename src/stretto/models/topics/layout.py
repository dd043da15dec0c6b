"""Convert documents to tokens in memory: count them, group them by block, store them in runs of one word."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.data.partition import BlockPartition
from stretto.errors import DataError
from stretto.kernels.topics.layout import measure_worker, spread_worker
from stretto.kernels.topics.rows import Tokens, TopicCounts
from stretto.plan.plan import Logical
from stretto.runtime.blocks.crew import Crew
from stretto.runtime.blocks.layout import index_type, scatter, tally
from stretto.runtime.blocks.parted import PartedSource, by_shares, in_parts
from stretto.runtime.blocks.source import Chunk, EntrySource
from stretto.runtime.blocks.step import make_step
from stretto.runtime.blocks.survey import survey
from stretto.runtime.files.mapped_arrays import Disk, full_array, new_array
from stretto.schedule.orders.order import Ints, Order
from stretto.schedule.orders.rotation import independent

from .count_layout import Census, CountLayout
from .topics import Topics

_WORDS_AT_ONCE = 1 << 14
_AHEAD = 64  # the kernels prefetch documents a few tokens ahead, also past the last one


def take_census(source: EntrySource, crew: Crew) -> Census:
    """Tokens of every document and word, and the digest of the corpus."""
    seen = survey(source, crew)
    parts = in_parts(source)
    if parts is None:
        docs, words = _tokens_of(source.shape, source.chunks())
    else:
        counted = by_shares(parts, crew, _tokens_of_share)
        docs, words = (np.sum(some, axis=0) for some in zip(*counted, strict=True))
    if not docs.any():
        raise DataError("the corpus has no tokens; check the counts, or the filter that made them")
    return Census(docs.astype(np.int64), words.astype(np.int64), seen.entries, seen.digest)


def _tokens_of(shape: tuple[int, int], chunks: Iterable[Chunk]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Tokens of every document and of every word."""
    docs, words = np.zeros(shape[0]), np.zeros(shape[1])
    for rows, cols, values in chunks:
        docs += np.bincount(rows, weights=values, minlength=len(docs))
        words += np.bincount(cols, weights=values, minlength=len(words))
    return docs, words


def _tokens_of_share(source: PartedSource, parts: Sequence[int], crew: Crew) -> Any:
    return _tokens_of(source.shape, (chunk for number in parts for chunk in source.part(number)))


@dataclass(frozen=True, eq=False)
class GroupedEntries:
    """Entries grouped by visit."""

    ptr: Ints  # [V + 1] first entry of each visit
    doc: NDArray[Any]  # document, relative to the first of its block
    word: NDArray[Any]  # word, relative to the first of its block
    count: NDArray[np.float32]

    def measure(self, words_in: Ints, crew: Crew) -> tuple[Ints, Ints, int]:
        """Tokens and runs of each visit, and the tokens of the longest run."""
        visits = len(self.ptr) - 1
        tokens, runs, longest = (np.zeros(visits, np.int64) for _ in range(3))
        args = (self.ptr, words_in, self.word, self.count, tokens, runs, longest)
        crew.run(make_step("measure", measure_worker, independent(visits), np.diff(self.ptr), *args), "exact")
        return tokens, runs, int(longest.max(initial=0))

    def spread(
        self, docs_in: Ints, words_in: Ints, token_ptr: Ints, run_ptr: Ints, into: tuple[Any, Any, Any], crew: Crew
    ) -> None:
        """Write tokens (their documents), run words and run lengths into three arrays."""
        visits = len(self.ptr) - 1
        args = (self.ptr, docs_in, words_in, self.doc, self.word, self.count, token_ptr, run_ptr, *into)
        crew.run(make_step("spread", spread_worker, independent(visits), np.diff(self.ptr), *args), "exact")


def pointers(counts: Ints) -> Ints:
    """[n + 1] first element of each of n groups."""
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)


def new_tokens(
    tokens: int, runs: int, rows: BlockPartition, cols: BlockPartition, shape: CountLayout
) -> tuple[Any, Any, Any, Any]:
    """Empty arrays for (document, topic, run word, run length)."""
    return (
        np.zeros(tokens + _AHEAD, index_type(rows)),
        np.zeros(tokens, shape.topic_dtype),
        np.zeros(runs, index_type(cols)),
        np.zeros(runs, np.int32),
    )


def group(source: EntrySource, rows: BlockPartition, cols: BlockPartition, order: Order, crew: Crew) -> GroupedEntries:
    """Group all entries of a source that fits in memory by visit."""
    (chunk,) = source.chunks()
    return GroupedEntries(*scatter(chunk, rows, cols, order, tally(chunk, rows, cols, order, crew), crew, 0.0, 1.0))


@dataclass(frozen=True, eq=False)
class TokenLayout:
    """Tokens by visit, and their statistics for the plan."""

    tokens: Tokens
    most: int  # tokens of the longest run

    @property
    def runs(self) -> Ints:
        """[V] runs of each visit."""
        counts: Ints = np.diff(self.tokens.run_ptr)
        return counts


def lay_out_tokens(source: EntrySource, logical: Logical, shape: CountLayout, crew: Crew) -> TokenLayout:
    """Every token of the corpus, by visit."""
    rows, cols, order = logical.rows, logical.cols, logical.order
    grouped = group(source, rows, cols, order, crew)
    docs_in, words_in = rows.sizes[order.row_block], cols.sizes[order.col_block]
    tokens, runs, most = grouped.measure(words_in, crew)
    ptr, run_ptr = pointers(tokens), pointers(runs)
    doc, topic, run_word, run_length = new_tokens(int(ptr[-1]), int(run_ptr[-1]), rows, cols, shape)
    grouped.spread(docs_in, words_in, ptr, run_ptr, (doc, run_word, run_length), crew)
    return TokenLayout(by_visit(logical, ptr, run_ptr, (doc, topic, run_word, run_length)), most)


def by_visit(logical: Logical, ptr: Ints, run_ptr: Ints, arrays: tuple[Any, Any, Any, Any]) -> Tokens:
    """Tokens from (document, topic, run word, run length), each grouped by visit."""
    order, (doc, topic, run_word, run_length) = logical.order, arrays
    visits = np.arange(len(order), dtype=np.int64)
    blocks = order.row_block, order.col_block
    bases = logical.rows.bounds[order.row_block], logical.cols.bounds[order.col_block]
    return Tokens(ptr, doc, topic, run_ptr, run_word, run_length, visits, *blocks, *bases)


def new_counts(shape: CountLayout, order: Order, disk: Disk | None = None) -> TopicCounts:
    """Counts of a corpus in which no token has a topic yet; the rows are in files if a disk is given."""
    padding = 0 if shape.plain else shape.padding
    doc_rows = full_array(disk, "doc_rows", (int(shape.doc_at[-1]),), shape.doc_dtype, padding)
    return TopicCounts(
        np.ascontiguousarray(shape.doc_at[:-1]),
        np.zeros(len(shape.doc_tokens), np.int32),
        doc_rows,
        np.ascontiguousarray(shape.word_at[:-1]),
        _first_lengths(shape),
        new_array(disk, "word_rows", (int(shape.word_at[-1]),), np.uint32),
        np.zeros(shape.totals, np.int64),
        np.zeros((order.rows, shape.totals), np.int32),
        np.zeros((order.cols, shape.totals), np.int32),
    )


def _first_lengths(shape: CountLayout) -> NDArray[np.int32]:
    """[V + H B] of each word by position: 0, -1 for K counts, or -2 - h for a part of heavy word h."""
    length = np.where(shape.word_plain, -1, 0).astype(np.int32)
    return length if shape.heavy_part is None else np.where(shape.heavy_part >= 0, -2 - shape.heavy_part, length)


def put_earlier(counts: TopicCounts, shape: CountLayout, cols: BlockPartition, earlier: Topics) -> None:
    """Initialise with the word counts of an earlier fit; averages are rounded."""
    words = np.repeat(np.arange(earlier.n_words), np.diff(earlier.indptr))
    number = earlier.whole().astype(np.uint32)
    known, of_heavy = number > 0, np.full(earlier.n_words, -1)
    counts.total[: shape.topics] = np.bincount(earlier.topic[known], number[known], shape.topics).astype(np.int64)
    of_heavy[shape.heavy] = np.arange(len(shape.heavy))
    split = known & (of_heavy[words] >= 0)
    counts.total[(1 + of_heavy[words[split]]) * shape.topics + earlier.topic[split]] = number[split]
    known &= ~split
    place, topic = cols.place[words[known]].astype(np.int64), earlier.topic[known].astype(np.int64)
    number = number[known]
    plain = shape.word_plain[place]
    counts.word_rows[shape.word_at[place[plain]] + topic[plain]] = number[plain]
    place, topic, packed = place[~plain], topic[~plain], number[~plain]
    # Entries of a word are contiguous, so their numbers within it count up from the first.
    first = np.flatnonzero(np.diff(place, prepend=-1))
    within = np.arange(len(place)) - np.repeat(first, np.diff(first, append=len(place)))
    counts.word_rows[shape.word_at[place] + within] = (topic << shape.shift).astype(np.uint32) | packed
    counts.word_length[:] += np.bincount(place, minlength=len(shape.word_tokens)).astype(np.int32)


def word_entries(
    shape: CountLayout, cols: BlockPartition, length: NDArray[np.int32], rows: NDArray[np.uint32], first: int = 0
) -> tuple[Ints, Ints, NDArray[np.uint32]]:
    """(word, topic, count) of the words from position `first` on; length, rows: of these words only."""
    standing = np.empty(len(cols), np.int64)
    standing[cols.place] = np.arange(len(cols))
    found: list[tuple[Ints, Ints, NDArray[np.uint32]]] = []
    at = shape.word_at[first : first + len(length) + 1] - shape.word_at[first]
    for low in range(0, len(length), _WORDS_AT_ONCE):
        high = min(low + _WORDS_AT_ONCE, len(length))
        piece = rows[at[low] : at[high]]
        word = np.repeat(np.arange(low, high), np.diff(at[low : high + 1]))
        within = np.arange(len(piece)) - (at[word] - at[low])
        plain = length[word] < 0
        topic = np.where(plain, within, piece >> np.uint32(shape.shift))
        count = np.where(plain, piece, piece & np.uint32((1 << shape.shift) - 1))
        there = (count > 0) & (plain | (within < length[word]))
        found.append((standing[first + word[there]], topic[there], count[there]))
    words, topics, counts = (np.concatenate(part) for part in zip(*found, strict=True))
    return words, topics, counts


def gather_topics(
    parts: Callable[[], Iterator[tuple[Any, Any, Any]]], V: int, alpha: Any, beta: float, disk: Disk, given: Any = None
) -> Topics:
    """Topics in files, from entries (word, topic, count) in parts.

    parts : called twice; all entries of a word are in one part
    """
    in_word, totals, dtype = np.zeros(V, np.int64), np.zeros(len(alpha)), "i4"
    for words, topics, counts in parts():
        in_word += np.bincount(words, minlength=V)
        np.add.at(totals, topics, counts)
        dtype = "f4" if counts.dtype.kind == "f" else "i4"
    indptr = pointers(in_word)
    topic, count = (disk.array(name, (int(indptr[-1]),), kind) for name, kind in (("topics", "i4"), ("counts", dtype)))
    for words, topics, counts in parts():
        order = np.lexsort((topics, words))
        words = words[order]
        firsts = np.flatnonzero(np.diff(words, prepend=-1))
        into = indptr[words] + np.arange(len(words)) - np.repeat(firsts, np.diff(firsts, append=len(words)))
        topic[into], count[into] = topics[order], counts[order]
    for array in (topic, count):
        disk.release(array)
        disk.drop(array)  # Topics are rebuilt after every evaluation, and kept as long as they are referenced.
    return Topics(indptr, topic, count, totals, np.array(alpha, np.float64), float(beta), given)


def topics_of(entries: tuple[Any, Any, Any], V: int, alpha: Any, beta: float, given: Any = None) -> Topics:
    """Topics from entries (word, topic, count) in any order; counts int or float. given: as in `Topics`."""
    words, topics, counts = entries
    order = np.lexsort((topics, words))
    dtype = np.float32 if counts.dtype.kind == "f" else np.int32
    return Topics(
        pointers(np.bincount(words, minlength=V)),
        topics[order].astype(np.int32),
        counts[order].astype(dtype),
        np.bincount(topics, counts, len(alpha)).astype(np.float64),
        np.array(alpha, np.float64),
        float(beta),
        given,
    )
