"""Topic models for tests: whole jobs over small corpora, and single tokens drawn thousands of times from one state."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import chi2

from stretto.data.partition import cut
from stretto.data.records.data import Data
from stretto.kernels.topics.dense import MOST_TOPICS
from stretto.kernels.topics.rows import Tokens, TopicCounts
from stretto.models.topics.count_layout import Census, CountLayout
from stretto.models.topics.job import LdaJob, build_lda, epoch_seed, sampling_step
from stretto.models.topics.priors import Priors
from stretto.models.topics.problem import TopicProblem
from stretto.plan.plan import Physical
from stretto.runtime.blocks.crew import Crew
from stretto.runtime.blocks.pass_control import start
from stretto.runtime.blocks.source import InMemory
from stretto.runtime.blocks.step import BlockStep
from stretto.runtime.runtimes import Runtime
from stretto.schedule.orders.rotation import independent

Array = NDArray[Any]

# --- whole jobs -----------------------------------------------------------------------------------------------------


def corpus(dense: Any) -> Data:
    """A matrix of counts, documents x words, as data."""
    X = np.asarray(dense)
    docs, words = np.nonzero(X)
    return Data.from_arrays(docs, words, X[docs, words].astype(np.float32), X.shape)


def some_documents(documents: int = 120, words: int = 90, tokens: int = 6000, seed: int = 0) -> Data:
    """Documents of uneven length and words by Zipf."""
    random = np.random.default_rng(seed)
    long, often = random.pareto(1.5, documents) + 0.1, 1 / np.arange(1.0, words + 1)
    X = np.zeros((documents, words), np.int64)
    docs = random.choice(documents, tokens, p=long / long.sum())
    np.add.at(X, (docs, random.choice(words, tokens, p=often / often.sum())), 1)
    return corpus(X)


def problem(
    topics: int, sampler: str = "sparse", *, alpha: Any = 0.1, beta: float = 0.05, steps: int = 1
) -> TopicProblem:
    """A problem with one alpha for all topics, or one for each."""
    each = np.broadcast_to(np.asarray(alpha, np.float64), topics)
    return TopicProblem(topics, tuple(each.tolist()), beta, sampler, steps)


@contextmanager
def lda_on(
    runtime: Runtime, which: TopicProblem, data: Data, *, seed: int = 3, width: int = 4
) -> Iterator[tuple[LdaJob, Crew]]:
    """A job and the open crew it was built with."""
    with runtime.open() as crew:
        physical = Physical("threads", crew.workers)
        settings: dict[str, Any] = {"seed": seed, "profile": "exact", "width": width, "physical": physical}
        yield build_lda(which, InMemory(data), crew, **settings), crew


def run_passes(job: LdaJob, crew: Crew, epochs: int, first: int = 0) -> None:
    """Passes over all tokens, without a trainer in between."""
    for epoch in range(first, first + epochs):
        for step in job.steps(epoch):
            done = crew.run(step, "exact")
            assert done.failed is None
            assert done.finished is None


def shape_of(which: TopicProblem, doc_tokens: Sequence[int], word_tokens: Sequence[int]) -> CountLayout:
    """How counts of such documents and words would be laid out, all in one block."""
    docs, words = np.array(doc_tokens, np.int64), np.array(word_tokens, np.int64)
    cuts = cut(docs, 1, seed=0, axis=0), cut(words, 1, seed=0, axis=1)
    return CountLayout.of(which.topics, which.sampler, Census(docs, words, len(docs), "made"), *cuts)


def token_table(job: LdaJob) -> tuple[Array, Array, Array]:
    """(document, word, topic) of every token, by position in the plan's order."""
    tokens = job.laid.tokens
    visits = len(tokens.ptr) - 1
    n = int(tokens.ptr[-1])
    doc = tokens.doc[:n].astype(np.int64) + np.repeat(tokens.doc_base, np.diff(tokens.ptr))
    base = np.repeat(tokens.word_base, np.diff(tokens.run_ptr))
    word = np.repeat(tokens.run_word.astype(np.int64) + base, tokens.run_length)
    assert visits == len(job.plan.order)
    return doc, word, tokens.topic.astype(np.int64)


def doc_counts(job: LdaJob) -> Array:
    """[D, K] n_dk as the rows hold them; checks that padding is padding and that a topic is listed once."""
    counts, shape = job.counts, job.shape
    D, K = len(shape.doc_tokens), shape.topics
    if shape.plain:
        rows = counts.doc_rows.reshape(D, shape.width)
        assert not rows[:, K:].any(), "a count beyond the last topic"
        return np.asarray(rows[:, :K], np.int64)
    found = np.zeros((D, K), np.int64)
    for d in range(D):
        row = counts.doc_rows[shape.doc_at[d] : shape.doc_at[d + 1]]
        used = row[: counts.doc_length[d]]
        assert np.all(row[len(used) :] == shape.padding), f"padding of document {d}"
        topics, n = used >> np.uint32(shape.shift), used & np.uint32((1 << shape.shift) - 1)
        assert np.all(n > 0), f"document {d} lists a topic without tokens"
        assert len(set(topics.tolist())) == len(topics), f"document {d} lists a topic twice"
        found[d, topics] = n
    return found


def word_counts(job: LdaJob) -> Array:
    """[V, K] n_wk as the rows hold them; checks that no topic is listed twice or without tokens."""
    counts, shape = job.counts, job.shape
    V, K = len(shape.word_tokens), shape.topics
    found = np.zeros((V, K), np.int64)
    for w in range(V):
        at, length = shape.word_at[w], int(counts.word_length[w])
        assert (length < 0) == shape.word_plain[w]
        if length < 0:
            found[w] = counts.word_rows[at : at + K]
            continue
        assert length <= shape.word_at[w + 1] - at, f"word {w} has more entries than room"
        used = counts.word_rows[at : at + length]
        topics, n = used >> np.uint32(shape.shift), used & np.uint32((1 << shape.shift) - 1)
        assert np.all(n > 0), f"word {w} lists a topic without tokens"
        assert len(set(topics.tolist())) == len(topics), f"word {w} lists a topic twice"
        found[w, topics] = n
    return found


def check_counts(job: LdaJob, visits: Any = None) -> None:
    """Rows, totals and topics of the tokens tell the same; `visits`: those made so far in a first epoch, else all."""
    doc, word, topic = token_table(job)
    made = np.ones(len(doc), bool)
    if visits is not None:
        made = np.repeat(np.isin(np.arange(len(job.plan.order)), visits), np.diff(job.laid.tokens.ptr))
    D, V, K = len(job.shape.doc_tokens), len(job.shape.word_tokens), job.shape.topics
    assert np.all((topic >= 0) & (topic < K))
    by_doc, by_word = np.zeros((D, K), np.int64), np.zeros((V, K), np.int64)
    np.add.at(by_doc, (doc[made], topic[made]), 1)
    np.add.at(by_word, (word[made], topic[made]), 1)
    assert np.array_equal(doc_counts(job), by_doc)
    assert np.array_equal(word_counts(job), by_word)
    totals = job.counts.total + job.counts.col_moved.sum(axis=0)
    assert np.array_equal(totals, by_doc.sum(axis=0))
    assert np.array_equal(job.counts.col_moved.sum(axis=0), job.counts.row_moved.sum(axis=0))


# --- one token, many times ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class State:
    """One token of one word in one document, its own topic `old` counted (None: it has no topic yet).

    n_dk, n_wk, n_k [K]; alpha [K]; beta; vocabulary. packed: documents have packed rows though topics are few.
    """

    n_dk: Array
    n_wk: Array
    n_k: Array
    alpha: Array
    beta: float
    vocabulary: int
    old: int | None
    sampler: str = "sparse"
    steps: int = 1
    run: int = 1  # tokens of the word in this visit, all with topic `old`, each in a document of its own
    packed: bool = False

    @property
    def topics(self) -> int:
        return len(self.n_k)

    def without(self) -> tuple[Array, Array, Array]:
        """(n_dk, n_wk, n_k) with the token itself left out."""
        own = np.zeros(self.topics)
        if self.old is not None:
            own[self.old] = 1
        return self.n_dk - own, self.n_wk - own, self.n_k - own

    def weights(self) -> Array:
        """[K] (n_wk + beta) / (n_k + V beta), the token left out."""
        _, n_wk, n_k = self.without()
        return (n_wk + self.beta) / (n_k + self.vocabulary * self.beta)

    def conditional(self) -> Array:
        """[K] the exact chance of each topic."""
        share = (self.without()[0] + self.alpha) * self.weights()
        return np.asarray(share / share.sum())


class Copies:
    """M independent copies of a small corpus, each in a visit of its own, for the compiled worker to sample at once.

    tokens, counts: of one copy, all in one visit. The totals of copy m stay in row_moved[m].
    """

    def __init__(
        self, which: TopicProblem, shape: CountLayout, tokens: Tokens, counts: TopicCounts, copies: int
    ) -> None:
        self.which, self.shape, self.copies = which, shape, copies
        every, M = np.arange(copies + 1, dtype=np.int64), copies
        n, runs, D, V = int(tokens.ptr[-1]), len(tokens.run_word), len(counts.doc_at), len(counts.word_at)
        self.n, blocks = n, every[:-1].copy()
        doc = np.zeros(M * n + 64, tokens.doc.dtype)
        doc[: M * n] = np.tile(tokens.doc[:n], M)
        self.tokens = Tokens(
            every * n,
            doc,
            np.tile(tokens.topic, M),
            every * runs,
            np.tile(tokens.run_word, M),
            np.tile(tokens.run_length, M),
            blocks,
            blocks,
            blocks,
            blocks * D,
            blocks * V,
        )
        self.counts = TopicCounts(
            (blocks[:, None] * len(counts.doc_rows) + counts.doc_at).ravel(),
            np.tile(counts.doc_length, M),
            np.tile(counts.doc_rows, M),
            (blocks[:, None] * len(counts.word_rows) + counts.word_at).ravel(),
            np.tile(counts.word_length, M),
            np.tile(counts.word_rows, M),
            counts.total.copy(),
            np.tile(counts.row_moved, (M, 1)),
            np.tile(counts.col_moved, (M, 1)),
        )
        self._shared = counts.col_moved

    def step(self, seed: int, *, first: bool) -> BlockStep:
        """One pass over all copies."""
        order, most = independent(self.copies), int(self.tokens.run_length.max())
        priors = Priors(self.which.alpha, self.which.beta)
        doc_tokens = np.tile(self.shape.doc_tokens.astype(np.int32), self.copies)
        facts = (self.which, self.shape, order, self.tokens, self.counts, priors, doc_tokens, most)
        return sampling_step(*facts, workers=1, seed=epoch_seed(seed, 1), first=first)

    def sample(self, seed: int, *, first: bool) -> Array:
        """[M, n] the topics of all tokens after one pass of the worker."""
        step = self.step(seed, first=first)
        step.out[:] = np.nan
        step.kernel.exact(start(step.order, step.weight, script=np.arange(self.copies)).words, 0, step.out, *step.args)
        assert np.all(np.isfinite(step.out))
        # What a copy changed stays with its row block; a later pass must not see it twice.
        self.counts.col_moved[:] = self._shared
        return np.array(self.tokens.topic, np.int64).reshape(self.copies, self.n)


def packed_row(values: Array, size: int, shift: int, fill: int) -> Array:
    """A packed row of `size` entries; what is left holds `fill`."""
    topics = np.flatnonzero(values)
    row = np.full(size, fill, np.uint32)
    row[: len(topics)] = (topics.astype(np.uint32) << np.uint32(shift)) | values[topics].astype(np.uint32)
    return row


def copies_of(state: State, copies: int) -> Copies:
    """Copies of one token's state."""
    K, run, without = state.topics, state.run, int(state.old is None)
    which = problem(K, state.sampler, alpha=state.alpha, beta=state.beta, steps=state.steps)
    docs = np.full(run, state.n_dk.sum() + without, np.int64)
    words = np.zeros(state.vocabulary, np.int64)
    words[0] = state.n_wk.sum() + without
    shape = CountLayout(K, state.sampler != "mh" and K <= MOST_TOPICS and not state.packed, docs, words)
    if shape.plain:
        row = np.concatenate([state.n_dk, np.zeros(shape.width - K)]).astype(np.uint16)
    else:
        row = packed_row(state.n_dk, int(shape.doc_at[1]), shape.shift, shape.padding)
    plain_word = bool(shape.word_plain[0])
    word = state.n_wk.astype(np.uint32) if plain_word else packed_row(state.n_wk, int(shape.word_at[1]), shape.shift, 0)
    part, zero, one = state.n_k // 3, np.zeros(1, np.int64), np.array([0, 1], np.int64)
    tokens = Tokens(
        one * run,
        np.arange(run).astype(np.uint16),
        np.full(run, state.old or 0, shape.topic_dtype),
        one,
        np.zeros(1, np.uint16),
        np.array([run], np.int32),
        *[zero] * 5,
    )
    counts = TopicCounts(
        np.ascontiguousarray(shape.doc_at[:-1]),
        np.full(run, 0 if shape.plain else np.count_nonzero(state.n_dk), np.int32),
        np.tile(row, run),
        zero,
        np.array([-1 if plain_word else np.count_nonzero(state.n_wk)], np.int32),
        word,
        (state.n_k - 2 * part).astype(np.int64),
        part[None].astype(np.int32),
        part[None].astype(np.int32),
    )
    return Copies(which, shape, tokens, counts, copies)


def frequencies(state: State, draws: int, seed: int = 1) -> Array:
    """[K] how often each topic was drawn from the state, each time from the state itself."""
    at_once = max(1, min(draws, 20_000_000 // max(1, state.topics * state.run) + 1))
    found = np.zeros(state.topics, np.int64)
    while draws > 0:
        topics = copies_of(state, min(at_once, draws)).sample(seed * 1_000_003 + draws, first=state.old is None)[:, 0]
        found += np.bincount(topics, minlength=state.topics)
        draws -= at_once
    return found


def misfit(found: Array, expected: Array) -> float:
    """The p-value of a chi-square test of counts against chances; chances too small to test are thrown together."""
    draws = found.sum()
    assert not found[expected == 0].any(), "a topic without any chance was drawn"
    ranked = np.argsort(-expected, kind="stable")
    goal, seen = expected[ranked] * draws, found[ranked].astype(float)
    fine = int(np.count_nonzero(goal >= 10))
    goals = [*goal[:fine], goal[fine:].sum()]
    sights = [*seen[:fine], seen[fine:].sum()]
    if goals[-1] < 1:  # too little to test on its own
        goals[-2:], sights[-2:] = [goals[-2] + goals[-1]], [sights[-2] + sights[-1]]
    if len(goals) == 1:
        return 1.0
    statistic = float(np.sum((np.array(sights) - goals) ** 2 / np.array(goals)))
    return float(chi2.sf(statistic, len(goals) - 1))


def made_state(
    topics: int,
    *,
    doc_topics: int,
    word_topics: int,
    seed: int = 0,
    doc_tokens: int = 3,
    word_tokens: int = 3,
    first: bool = False,
    **settings: Any,
) -> State:
    """A random state: so many topics in the document and the word, up to so many tokens each; uneven alpha, totals."""
    random = np.random.default_rng(seed)
    n_dk, n_wk = np.zeros(topics, np.int64), np.zeros(topics, np.int64)
    mine = random.choice(topics, doc_topics, replace=False)
    n_dk[mine] = random.integers(1, doc_tokens + 1, doc_topics)
    theirs = random.choice(topics, word_topics, replace=False)
    n_wk[theirs] = random.integers(1, word_tokens + 1, word_topics)
    old = None
    if not first:
        old = int(mine[0])
        n_wk[old] = max(n_wk[old], settings.get("run", 1))
    n_k = n_wk + n_dk + random.integers(5, 60, topics)
    alpha = random.uniform(0.02, 1.0, topics)
    return replace(State(n_dk, n_wk, n_k, alpha, 0.1, 30, old), **settings)
