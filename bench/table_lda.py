"""Data-parallel collapsed Gibbs sampling on served tables, and rotation on the same tables: the runs of `bosen_lda`.

A worker owns documents and the topics of their tokens. Served are a row for each word, [V, K] counts, and one row of
totals [1, K]. For each batch of documents a worker reads the rows of its words, samples token after token on its copy,
seeing its own changes at once, and adds what it has changed. How fresh the copy is, is what the runs differ in.

`rotating` has the same worker go through its documents' tokens word block by word block, a clock for each, such that no
two workers have the same block at the same time (LightLDA on Bösen's tables): reads are exact, under BSP.

The likelihood of pass p is that of the topics every worker had when its own pass p ended, so it does not depend on how
far the fast ones were when the last message arrived; its time is when the shards had everything.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

import stretto as st
from stretto.keyed import uniform

from . import lda_sets
from .table_runs import Run

Array = NDArray[Any]
ALPHA = BETA = 0.1


@numba.njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def sample(ptr: Any, word: Any, topic: Any, counts: Any, rows: Any, total: Any, spread: float, seed: int) -> None:
    """New topics for the tokens of some documents; document d has tokens ptr[d] … ptr[d + 1].

    word [n]: the row of each token. counts [documents, K], rows [m, K] and total [K] are changed with every token.
    spread: V · β. seed: of the uniform numbers (splitmix64).
    """
    K = len(total)
    weights = np.empty(K, np.float64)
    state = np.uint64(seed)
    for d in range(len(ptr) - 1):
        of = counts[d]
        for i in range(ptr[d], ptr[d + 1]):
            row, k = rows[word[i]], topic[i]
            of[k] -= 1
            row[k] -= 1
            total[k] -= 1
            mass = 0.0
            for j in range(K):
                mass += (of[j] + ALPHA) * (row[j] + BETA) / (total[j] + spread)
                weights[j] = mass
            state += np.uint64(0x9E3779B97F4A7C15)
            bits = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
            bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
            bits ^= bits >> np.uint64(31)
            drawn = (bits >> np.uint64(11)) * (1.0 / 9007199254740992.0) * mass
            low, high = 0, K - 1  # the first whose weight is above
            while low < high:
                middle = (low + high) // 2
                if weights[middle] > drawn:
                    high = middle
                else:
                    low = middle + 1
            topic[i] = low
            of[low] += 1
            row[low] += 1
            total[low] += 1


@dataclass(frozen=True, eq=False)
class Batch:
    """Tokens that are sampled between a read and an add: where they are among the worker's, and their words.

    ptr [documents + 1] into the batch; docs [documents]: rows of the worker's counts; keys: words; word [n]: places in
    keys.
    """

    tokens: Array
    ptr: Array
    docs: Array
    keys: Array
    word: Array


@dataclass(frozen=True, eq=False)
class Share:
    """A worker's documents: its tokens' documents (its own numbers) and words, the topics they begin with, batches."""

    doc: Array
    word: Array
    topic: Array
    documents: int
    batches: tuple[Batch, ...]

    def counts(self, topics: int) -> Array:
        """[documents, K] as they begin."""
        flat = np.bincount(self.doc * topics + self.topic, minlength=self.documents * topics)
        return flat.reshape(self.documents, topics).astype(np.int32)


class Corpus:
    """Documents dealt out to workers, in an order drawn once, such that all have about as many tokens.

    batches : chunks of a worker's share; its documents stay whole. blocks : words are cut into n blocks, and a chunk
    has the tokens of one of them instead.
    """

    def __init__(
        self, counts: Any, topics: int, workers: int, batches: int, *, seed: int = 0, blocks: int | None = None
    ) -> None:
        self.topics, self.words, self.workers, self.seed = topics, counts.shape[1], workers, seed
        doc, word = (part.astype(np.int64) for part in lda_sets.tokens(counts))
        draw = np.random.default_rng(seed)
        topic = draw.integers(topics, size=len(doc)).astype(np.int32)  # the same for a token whatever the workers
        rank = np.argsort(draw.permutation(counts.shape[0]))
        order = np.argsort(rank[doc], kind="stable")
        doc, word, topic = rank[doc][order], word[order], topic[order]
        self.tokens = len(doc)
        flat = np.bincount(word * topics + topic, minlength=self.words * topics)
        self.start = flat.reshape(self.words, topics).astype(np.int32)
        self.blocks = blocks
        self.block = block = None if blocks is None else _blocks(np.bincount(word, minlength=self.words), blocks)
        starts = np.concatenate([[0], np.flatnonzero(np.diff(doc)) + 1, [len(doc)]])
        cuts = _near(starts, np.linspace(0, len(doc), workers + 1))
        self.shares = []
        for low, high in pairwise(cuts):
            own, its = np.unique(doc[low:high], return_inverse=True)
            inner = np.concatenate([[0], np.flatnonzero(np.diff(its)) + 1, [high - low]])
            if block is None:
                places = _near(inner, np.linspace(0, high - low, batches + 1))
                pieces = [np.arange(a, b) for a, b in pairwise(places)]
            else:
                pieces = [np.flatnonzero(block[word[low:high]] == one) for one in range(blocks or 1)]
            made = tuple(_batch(piece, its, word[low:high]) for piece in pieces)
            self.shares.append(Share(its, word[low:high], topic[low:high], len(own), made))

    def likelihood(self, topics: list[Array]) -> float:
        """Joint log-likelihood per token of the topics of each worker's tokens (stretto.models.topics.priors)."""
        K, lengths, found = self.topics, [], 0.0
        words = np.zeros(self.words * K, np.int64)
        for share, topic in zip(self.shares, topics, strict=True):
            words += np.bincount(share.word * K + topic, minlength=len(words))
            found += _rises(np.bincount(share.doc * K + topic), ALPHA)
            lengths.append(np.bincount(share.doc))
        total = words.reshape(-1, K).sum(axis=0)
        found += _rises(words, BETA) + _falls(np.concatenate(lengths), K * ALPHA) + _falls(total, self.words * BETA)
        return found / self.tokens


def _near(starts: Array, wanted: Array) -> Array:
    """[n] the starts that are nearest to what is wanted."""
    after = np.searchsorted(starts, wanted).clip(1, len(starts) - 1)
    near: Array = np.where(wanted - starts[after - 1] < starts[after] - wanted, starts[after - 1], starts[after])
    return near


def _blocks(held: Array, blocks: int) -> Array:
    """[V] the block of each word: the most frequent one first, each to the block with the fewest tokens."""
    import heapq

    block, heap = np.zeros(len(held), np.int64), [(0, one) for one in range(blocks)]
    for word in np.argsort(-held, kind="stable"):
        size, one = heapq.heappop(heap)
        block[word] = one
        heapq.heappush(heap, (size + int(held[word]), one))
    return block


def _batch(tokens: Array, doc: Array, word: Array) -> Batch:
    keys, place = np.unique(word[tokens], return_inverse=True)
    docs, first = np.unique(doc[tokens], return_index=True)
    return Batch(tokens, np.append(first, len(tokens)), docs, keys, place)


def _rises(counts: Array, prior: float) -> float:
    """Σ lnΓ(n + prior) − lnΓ(prior)."""
    from scipy.special import gammaln

    number = np.bincount(counts)
    return float((number * (gammaln(np.arange(len(number)) + prior) - gammaln(prior))).sum())


def _falls(sizes: Array, mass: float) -> float:
    """Σ lnΓ(mass) − lnΓ(mass + n)."""
    from scipy.special import gammaln

    return float((gammaln(mass) - gammaln(mass + sizes)).sum())


@dataclass(frozen=True)
class Way:
    """How to run: clocks of a pass, rule, policy, and what of it is written down."""

    name: str
    clocks: int
    sync: Any
    comm: Any
    record: str | None = None


class Passes:
    """The topics that workers had when they ended a pass, until everybody has."""

    def __init__(self, corpus: Corpus, clocks: int) -> None:
        self.corpus, self.clocks = corpus, clocks
        self._kept: dict[int, list[Array | None]] = {0: [share.topic for share in corpus.shares]}

    def ended(self, passes: int, worker: int, topic: Array) -> None:
        """A worker ends a pass."""
        self._kept.setdefault(passes, [None] * self.corpus.workers)[worker] = topic.copy()

    def watch(self, view: Any) -> float:
        """The likelihood of the pass that this clock ends; what was before it is forgotten."""
        passes = view.clock // self.clocks
        for old in [p for p in self._kept if p < passes]:
            del self._kept[old]
        topics = [topic for topic in self._kept[passes] if topic is not None]
        return self.corpus.likelihood(topics)


def worker_of(corpus: Corpus, way: Way, passes: int, ends: Passes) -> Callable[[Any], None]:
    """The function every worker runs."""
    spread = corpus.words * BETA

    def work(w: Any) -> None:
        share = corpus.shares[w.number]
        topic = w.local.setdefault("topic", share.topic.copy())
        counts = w.local.setdefault("counts", share.counts(corpus.topics))
        words, totals = w.table("words"), w.table("totals")
        every = len(share.batches) // way.clocks
        for done in range(passes):
            for turn in range(len(share.batches)):
                at = turn if corpus.blocks is None else (turn + w.number) % corpus.blocks
                batch = share.batches[at]
                if len(batch.tokens):
                    rows, total = words.read(batch.keys), totals.read([0])
                    row_was, total_was = rows.copy(), total.copy()
                    some, of = topic[batch.tokens], counts[batch.docs]
                    draw = int(uniform(0, corpus.seed, w.number, done, at) * 2.0**63)
                    sample(batch.ptr, batch.word, some, of, rows, total[0], spread, draw)
                    topic[batch.tokens], counts[batch.docs] = some, of
                    w.work(len(batch.tokens))
                    words.add(batch.keys, rows - row_was)
                    totals.add([0], total - total_was)
                if (turn + 1) % every == 0:
                    if turn + 1 == len(share.batches):
                        ends.ended(done + 1, w.number, topic)
                    w.tick()

    return work


def tables_of(corpus: Corpus) -> dict[str, st.tables.Table]:
    """The two tables, as random topics fill them."""
    total = corpus.start.sum(axis=0, dtype=np.int32)[None]
    block = corpus.block
    # A block of words has its home on one node.
    partition: Any = "hash" if block is None else lambda keys, shards: block[keys] % shards
    return {
        "words": st.tables.Table(
            rows=corpus.words, cols=corpus.topics, dtype="i4", start=corpus.start, partition=partition
        ),
        "totals": st.tables.Table(rows=1, cols=corpus.topics, dtype="i4", start=total),
    }


def run(corpus: Corpus, way: Way, passes: int, runtime: Any, until: Any = None) -> tuple[Run, Any]:
    """A run and its result."""
    began = time.process_time()
    ends = Passes(corpus, way.clocks)
    result = st.run(
        worker_of(corpus, way, passes, ends),
        tables=tables_of(corpus),
        workers=corpus.workers,
        sync=way.sync,
        comm=way.comm,
        runtime=runtime,
        watch=ends.watch,
        every=way.clocks,
        until=until,
        record=way.record,
        seed=corpus.seed,
    )
    nodes = getattr(runtime, "nodes", 1)
    spent = time.process_time() - began
    late = way.comm.lazy and not way.sync.exact
    return Run.of(way.name, result, nodes, way.clocks, spent, sends=way.record is not None, late=late), result
