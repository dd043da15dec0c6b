"""One topic model, four ways to spread it over workers: the runs of `lda_parallel`.

All begin with the same random topics and call the compiled sampler of `st.LatentDirichletAllocation`; what differs is
which counts a token sees. Workers are logical: each one's part is made as if the others worked beside it.

- serial: one worker; nothing is stale.
- rotation: documents owned, words going round in a B × B grid; word counts never stale, totals relaxed.
- data-parallel: documents owned, each worker with a copy of all counts. Its own changes are seen at once, those of the
  others when a clock ends (an epoch, or a part of it).
- managed: the same, and within a clock the rows that changed most, relative to their size, are exchanged early, as far
  as a budget of bytes goes (Bösen's managed communication, ranked by relative magnitude).

**Bytes** are those of all links. A row takes 8 bytes (word, number of entries) and 4 for each entry, totals 8 for each
topic. Rotation: each block of words is handed on B times an epoch (the last time for the epoch after), with 4 bytes for
each topic's change, and every worker sends and gets totals when an epoch ends. The size of a block is the mean of what
it is before and after the epoch. Data-parallel: changed entries go up, fresh rows of the words a worker has come down.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from stretto.data.partition import cut, cut_evenly, hashed
from stretto.data.records.data import Data
from stretto.kernels.topics.rows import Tokens, TopicCounts
from stretto.models.topics.corpus_files import weigh
from stretto.models.topics.count_layout import Census, CountLayout
from stretto.models.topics.job import document_rows, epoch_seed, merge_totals, sampling_step
from stretto.models.topics.layout import lay_out_tokens, new_counts, pointers, take_census
from stretto.models.topics.priors import CountRows, Priors, joint_likelihood
from stretto.models.topics.problem import TopicProblem
from stretto.plan.plan import Logical
from stretto.runtime.blocks.crew import Crew
from stretto.runtime.blocks.source import InMemory
from stretto.schedule.orders.bound import bound
from stretto.schedule.orders.order import Order
from stretto.schedule.orders.rotation import rotation

Array = NDArray[Any]
ALPHA = BETA = 0.1
ROW_BYTES, ENTRY_BYTES, TOTAL_BYTES = 8, 4, 8
CHUNKS = 16  # chunks of a worker's documents, sampled one after the other


@numba.njit(nogil=True, cache=False)  # type: ignore[untyped-decorator]
def count_rows(ptr: Any, which: Any, topic: Any, tally: Any, at: Any, length: Any, rows: Any, shift: int) -> None:
    """Rows of counts from tokens: row r has tokens which[ptr[r]] … which[ptr[r + 1]]. tally [K] zeros, and zeros again.

    A row with length −1 has K plain counts, else packed entries, topic << shift | count.
    """
    for r in range(len(length)):
        first, n = at[r], 0
        plain = length[r] < 0
        if plain:
            rows[first : first + len(tally)] = 0
        for i in range(ptr[r], ptr[r + 1]):
            k = np.int64(topic[which[i]])
            if plain:
                rows[first + k] += np.uint32(1)
                continue
            if tally[k] == 0:
                rows[first + n] = np.uint32(k)
                n += 1
            tally[k] += 1
        for j in range(first, first + n):
            k = np.int64(rows[j])
            rows[j] = np.uint32((k << shift) | tally[k])
            tally[k] = 0
        if not plain:
            length[r] = n


@dataclass(frozen=True, eq=False)
class Corpus:
    """Tokens to learn from."""

    name: str
    data: Data
    census: Census
    topics: int
    seed: int = 0

    @classmethod
    def of(cls, name: str, counts: Any, topics: int, crew: Crew, seed: int = 0) -> Corpus:
        """From a sparse matrix of counts, documents x words."""
        found = counts.tocoo()
        data = Data.from_arrays(found.row, found.col, found.data.astype(np.float32), found.shape)
        return cls(name, data, take_census(InMemory(data), crew), topics, seed)

    @property
    def problem(self) -> TopicProblem:
        return TopicProblem(self.topics, (ALPHA,) * self.topics, BETA, "sparse", 1, warm_up=0)


@dataclass(frozen=True)
class Epoch:
    """After an epoch: log-likelihood per token, entries of all word rows; bytes sent during it."""

    likelihood: float
    entries: int
    up: int = 0
    down: int = 0

    @property
    def bytes(self) -> int:
        return self.up + self.down


@dataclass(frozen=True)
class Curve:
    """A run: what was so at the start and after each epoch."""

    name: str
    workers: int
    epochs: tuple[Epoch, ...] = field(repr=False)

    @property
    def end(self) -> float:
        """The likelihood after the last epoch."""
        return self.epochs[-1].likelihood

    def needed(self, target: float) -> float:
        """Epochs until the likelihood is `target`, between two of them by interpolation; infinite if it never is."""
        for at, (before, after) in enumerate(pairwise(self.epochs)):
            if after.likelihood >= target:
                way = after.likelihood - before.likelihood
                return at + ((target - before.likelihood) / way if way > 0 else 1.0)
        return math.inf

    def sent(self, epochs: float) -> float:
        """Bytes until then."""
        if not math.isfinite(epochs):
            return math.inf
        whole, rest = int(epochs), epochs % 1
        last = self.epochs[whole + 1].bytes if rest else 0
        return sum(one.bytes for one in self.epochs[: whole + 1]) + rest * last


class Counted:
    """A corpus laid out for an order, every token with a topic, and counted."""

    def __init__(self, corpus: Corpus, order: Order, crew: Crew, *, empty: bool = False) -> None:
        """empty: no token has a topic yet; the first epoch gives it one."""
        self.corpus, self.order, self.crew, census = corpus, order, crew, corpus.census
        self.rows = cut(census.doc_tokens, order.rows, seed=corpus.seed, axis=0)
        self.cols = cut_evenly(census.word_tokens, order.cols, seed=corpus.seed, axis=1)
        self.shape = CountLayout.of(corpus.problem.topics, corpus.problem.sampler, census, self.rows, self.cols)
        assert not self.shape.plain, "more topics: these runs count in packed rows"
        logical = Logical("lda", (), "", corpus.seed, "exact", 1, order, self.rows, self.cols)
        self.laid = lay_out_tokens(InMemory(corpus.data), logical, self.shape, crew)
        self.tokens, self.topic = self.laid.tokens, self.laid.tokens.topic
        self.counts = new_counts(self.shape, order)
        self.priors = Priors(corpus.problem.alpha, BETA)
        self.doc_tokens = self.shape.doc_tokens.astype(np.int32)
        self.tally = np.zeros(corpus.topics, np.int64)
        self.empty = empty
        tokens = self.tokens
        self.doc = tokens.doc[: len(self.topic)].astype(np.int64) + np.repeat(tokens.doc_base, np.diff(tokens.ptr))
        word = tokens.run_word.astype(np.int64) + np.repeat(tokens.word_base, np.diff(tokens.run_ptr))
        self.word = np.repeat(word, tokens.run_length)
        if not empty:
            self._begin()

    def _begin(self) -> None:
        """The same random topic for a token whatever the layout: tokens are numbered by document and word."""
        docs, words = (np.argsort(one.place, kind="stable") for one in (self.rows, self.cols))
        numbered = np.argsort(docs[self.doc] * len(words) + words[self.word], kind="stable")
        drawn = hashed(self.corpus.seed, 2, len(self.topic)) % np.uint64(self.corpus.topics)
        self.topic[numbered] = drawn.astype(self.topic.dtype)
        counts, shape = self.counts, self.shape
        for place, of, at, length, rows in (
            (self.doc, shape.doc_tokens, counts.doc_at, counts.doc_length, counts.doc_rows),
            (self.word, shape.word_tokens, counts.word_at, counts.word_length, counts.word_rows),
        ):
            which = np.argsort(place, kind="stable")
            count_rows(pointers(of), which, self.topic, self.tally, at, length, rows, shape.shift)
        counts.total[:] = np.bincount(self.topic, minlength=shape.topics)

    def sample(self, order: Order, tokens: Tokens, counts: TopicCounts, epoch: int) -> None:
        """A pass of the sampler over the visits of `order`."""
        step = sampling_step(
            self.corpus.problem, self.shape, order, tokens, counts, self.priors, self.doc_tokens, self.laid.most,
            workers=self.crew.workers, seed=epoch_seed(self.corpus.seed, epoch), first=self.empty and epoch == 0,
        )  # fmt: skip
        done = self.crew.run(step, "exact")
        assert done.failed is None
        assert done.finished is None
        merge_totals(counts)

    def look(self, up: int = 0, down: int = 0) -> Epoch:
        """How likely the topics are, and how large the model is."""
        counts, shape = self.counts, self.shape
        documents = document_rows(shape, counts.doc_at, counts.doc_length, counts.doc_rows)
        words = CountRows(counts.word_at, counts.word_length, counts.word_rows, shape.shift, shape.topics)
        args = (documents, shape.doc_tokens, words, counts.total, ALPHA, BETA, self.crew)
        if not counts.total.any():  # no token has a topic yet
            return Epoch(math.nan, 0)
        assert int(counts.total.sum()) == len(self.topic)
        return Epoch(joint_likelihood(*args) / len(self.topic), int(self.entries().sum()), up, down)

    def entries(self) -> Array:
        """[V] topics that each word has."""
        length: Array = self.counts.word_length.astype(np.int64)
        plain = np.flatnonzero(length < 0)
        rows = self.counts.word_rows[self.counts.word_at[plain][:, None] + np.arange(self.shape.topics)]
        length[plain] = np.count_nonzero(rows, axis=1)
        return length


def in_place(corpus: Corpus, order: Order, epochs: int, crew: Crew, *, empty: bool = False) -> Iterator[Epoch]:
    """A run in which every visit changes the counts themselves: serial and rotation."""
    state = Counted(corpus, order, crew, empty=empty)
    K, B = corpus.topics, order.cols
    words = len(state.shape.word_tokens)
    yield state.look()
    size = int(state.entries().sum())
    for epoch in range(epochs):
        state.sample(order, state.tokens, state.counts, epoch)
        now = int(state.entries().sum())
        handed = B * (ROW_BYTES * words + ENTRY_BYTES * (size + now) // 2) + B * B * ENTRY_BYTES * K
        totals = B * TOTAL_BYTES * K
        yield state.look(*((totals + handed // 2, totals + handed - handed // 2) if B > 1 else (0, 0)))
        size = now


def in_sequence(visits: int) -> Order:
    """Visits one after the other, each with documents of its own and all words."""
    return Order("in sequence", visits, 1, np.arange(visits), np.zeros(visits, np.int64))


def some_visits(tokens: Tokens, low: int, high: int) -> Tokens:
    """The tokens of visits low … high, which share a column block."""
    return tokens._replace(
        ptr=tokens.ptr[low : high + 1],
        run_ptr=tokens.run_ptr[low : high + 1],
        row_block=np.arange(high - low),
        **{name: getattr(tokens, name)[low:high] for name in ("key", "col_block", "doc_base", "word_base")},
    )


def serial(corpus: Corpus, epochs: int, crew: Crew) -> Curve:
    """Collapsed Gibbs sampling, word by word."""
    return Curve("serial", 1, tuple(in_place(corpus, in_sequence(1), epochs, crew)))


def serial_by_documents(corpus: Corpus, epochs: int, crew: Crew) -> Curve:
    """The same, a sixteenth of the documents after the other, as data-parallel workers go through theirs."""
    return Curve(
        "serial, a 16th of the documents at a time", 1, tuple(in_place(corpus, in_sequence(CHUNKS), epochs, crew))
    )


def serial_as_rotated(corpus: Corpus, blocks: int, epochs: int, crew: Crew) -> Curve:
    """The visits of a rotation, one after the other, each with exact totals: what rotation relaxes."""
    state = Counted(corpus, rotation(blocks), crew)
    found = [state.look()]
    for epoch in range(epochs):
        for v in range(blocks * blocks):
            state.sample(in_sequence(1), some_visits(state.tokens, v, v + 1), state.counts, epoch)
        found.append(state.look())
    return Curve(f"serial, in the order of {blocks} blocks", 1, tuple(found))


def rotated(corpus: Corpus, workers: int, epochs: int, crew: Crew, *, empty: bool = False) -> Curve:
    """Words going round between `workers` blocks of documents."""
    run = in_place(corpus, ring(workers), epochs, crew, empty=empty)
    return Curve("rotation" + (", progressive start" if empty else ""), workers, tuple(run))


def ring(workers: int) -> Order:
    """A rotation between n workers; if n is not a power of two, it needs the ring."""
    return rotation(workers, "ring" if workers & (workers - 1) else "exchange")


def span(corpus: Corpus, workers: int, crew: Crew) -> int:
    """Tokens that go by, on a clock that only knows tokens, while `workers` make an epoch of a rotation."""
    order, census = ring(workers), corpus.census
    rows = cut(census.doc_tokens, workers, seed=corpus.seed, axis=0)
    cols = cut_evenly(census.word_tokens, workers, seed=corpus.seed, axis=1)
    _, tokens = weigh(InMemory(corpus.data), rows, cols, order)
    return bound(order, tokens, workers).span
