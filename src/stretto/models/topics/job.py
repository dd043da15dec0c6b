"""The training job of a topic model: Gibbs sampling, one pass over the grid for each epoch.

The first epoch draws the initial topic of every token from the counts so far (or at random). During the warm-up the
prior of words in topics is larger than its value. The topic totals are merged at the end of an epoch.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial, reduce
from operator import add
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.data.records.data import Data
from stretto.kernels.topics.dense import gibbs_dense_worker
from stretto.kernels.topics.metropolis_hastings import make_tables, mh_worker, prior_table
from stretto.kernels.topics.packed import gibbs_packed_worker
from stretto.kernels.topics.rows import Tokens, TopicCounts, TopicModel, make_rooms
from stretto.plan.plan import Plan, PlanSettings
from stretto.runtime.blocks.crew import Crew
from stretto.runtime.blocks.job import EpochReport
from stretto.runtime.blocks.parted import in_parts
from stretto.runtime.blocks.source import EntrySource, InMemory
from stretto.runtime.blocks.split_source import split_source
from stretto.runtime.blocks.step import BlockStep, make_step
from stretto.runtime.files.mapped_arrays import Disk
from stretto.schedule.orders.order import Ints, Order

from .corpus_files import lay_out_tokens_on_disk, pieces, refuse_if_disk_full
from .count_layout import Census, CountLayout
from .counted_plan import CountedCorpus, count_lda, kept_bytes, refuse_in_memory
from .layout import (
    TokenLayout,
    gather_topics,
    lay_out_tokens,
    new_counts,
    put_earlier,
    take_census,
    topics_of,
    word_entries,
)
from .monitor import LikelihoodMonitor, SummedCounts
from .node_documents import DocumentReader, unread_tokens
from .priors import CountRows, Histogram, Priors, count_documents, count_words
from .problem import TopicProblem, averaged_bytes, logical_lda, plan_lda, settled
from .topics import Topics

Entries = tuple[NDArray[Any], NDArray[Any], NDArray[Any]]

ALL_WORDS = np.zeros(1, np.uint8)  # no word is drawn before the others
_FLAT = 1e6  # priors so large that counts have no influence: all topics are equally likely


def epoch_seed(seed: int, epoch: int) -> np.uint64:
    """64 random bits for an epoch; with visit and position they determine a token's random numbers."""
    digest = hashlib.blake2b(f"lda:{seed}:{epoch}".encode(), digest_size=8).digest()
    return np.uint64(int.from_bytes(digest, "little"))


def sampling_step(
    problem: TopicProblem,
    shape: CountLayout,
    order: Order,
    tokens: Tokens,
    counts: TopicCounts,
    priors: Priors,
    doc_tokens: NDArray[np.int32],
    most: int,
    *,
    workers: int,
    seed: np.uint64,
    first: bool,
    warmth: float = 1.0,
    early: NDArray[np.uint8] = ALL_WORDS,
    turn: int = 0,
    **around: Any,
) -> BlockStep:
    """One pass of the problem's sampler over the visits of `order`.

    warmth : factor of beta
    early, turn : as in `TopicModel`
    """
    if first and problem.first_topics == "random":
        priors = Priors([_FLAT] * shape.topics, _FLAT)
    beta = np.float32(priors.beta * warmth)
    smooth = np.float32(priors.beta * warmth * shape.words)
    alpha = shape.padded_alpha(priors.alpha)
    model = TopicModel(alpha, early, beta, smooth, shape.shift, shape.topics, seed, first, turn)
    weight = np.diff(tokens.ptr)
    args = (tokens, counts, model, make_rooms(workers, shape.topics, shape.longest, most))
    if problem.sampler == "mh":
        tables = make_tables(workers, shape.topics, shape.longest)
        rest = (tables, problem.steps, doc_tokens, *prior_table(priors.alpha))
        return make_step("mh", mh_worker, order, weight, *args, *rest, **around)
    if shape.plain:
        return make_step("gibbs", gibbs_dense_worker, order, weight, *args, shape.width, **around)
    return make_step("gibbs", gibbs_packed_worker, order, weight, *args, **around)


def merge_totals(counts: TopicCounts, moved: NDArray[np.int32] | None = None) -> None:
    """Add the changes of an epoch to the totals; they are integers, so the order does not matter.

    moved : the changes, by rows or by columns, which agree; the columns' unless given
    """
    counts.total[:] += (counts.col_moved if moved is None else moved).sum(axis=0, dtype=np.int64)
    counts.row_moved[:] = 0
    counts.col_moved[:] = 0


class LdaJob:
    """Gibbs sampling. disk: where tokens and counts are stored, if not in memory."""

    def __init__(
        self,
        problem: TopicProblem,
        plan: Plan,
        shape: CountLayout,
        laid: TokenLayout,
        crew: Crew,
        seed: int,
        watch: LikelihoodMonitor,
        earlier: Topics | None = None,
        disk: Disk | None = None,
    ) -> None:
        self.problem, self.plan, self.shape, self.laid, self.crew, self.seed = problem, plan, shape, laid, crew, seed
        self.watch, self.disk = watch, disk
        self.counts = new_counts(shape, plan.order, disk)
        if earlier is not None:
            put_earlier(self.counts, shape, plan.logical.cols, earlier)
        self.before = None if earlier is None else self._word_histogram()
        self.given = None if earlier is None else earlier.given
        self.early = self._seed_words(earlier) if problem.seeds else ALL_WORDS
        self.priors = Priors(problem.alpha, problem.beta)
        self.doc_tokens = shape.doc_tokens.astype(np.int32)
        self.items = int(plan.weight.sum())
        self.summed = SummedCounts(shape, wanted=bool(problem.average_every), disk=disk)

    def steps(self, epoch: int) -> Sequence[BlockStep]:
        """One pass over the grid; in the first epoch with seed words two: first their tokens, then all others.

        So every document with seed words prefers their topics when its other tokens are drawn.
        """
        return [self._step(epoch, turn) for turn in ((1, 2) if epoch == 0 and self.problem.seeds else (0,))]

    def _step(self, epoch: int, turn: int) -> BlockStep:
        return sampling_step(
            self.problem,
            self.shape,
            self.plan.order,
            self.laid.tokens,
            self.counts,
            self.priors,
            self.doc_tokens,
            self.laid.most,
            workers=self.crew.workers,
            seed=epoch_seed(self.seed, epoch),
            first=epoch == 0,
            warmth=self.problem.warmth(epoch),
            early=self.early,
            turn=turn,
            # With several nodes, each reports the changes of its own rows.
            after=lambda: merge_totals(self.counts, self.counts.row_moved),
            spec=self.plan.steps[0],
        )

    def report(self, epoch: int, steps: Sequence[BlockStep]) -> EpochReport:
        """The likelihood of the topics, and the share of tokens that changed theirs."""
        return self.watch.look(self, epoch, sum(step.total() for step in steps) / max(1, self.items))

    def histograms(self, by_topic: bool) -> tuple[Histogram, Histogram]:
        """Histograms of the counts, for the priors of documents and of words."""
        self.crew.gather()
        tokens = self.shape.doc_tokens
        documents = (
            count_documents(rows, tokens[first:last], self.crew, by_topic=by_topic)
            for first, last, rows in self._documents()
        )
        return reduce(add, documents), self._word_histogram()

    def _seed_words(self, earlier: Topics | None) -> NDArray[np.uint8]:
        """[words of the plan] 1 for those with prior tokens; for all parts of a heavy word."""
        shape, place = self.shape, self.plan.logical.cols.place
        seeds = np.zeros(shape.words, np.uint8)
        if earlier is not None:
            seeds[np.diff(earlier.indptr) > 0] = 1
        found = np.zeros(len(place), np.uint8)
        found[place[: shape.words]] = seeds
        if len(shape.heavy):
            found[place[shape.words :]] = np.repeat(seeds[shape.heavy], len(place[shape.words :]) // len(shape.heavy))
        return found

    def _word_histogram(self) -> Histogram:
        V, total = self.shape.words, self.counts.total[: self.shape.topics]
        words = (
            count_words(rows, total if first == 0 else total[:0], self.crew, n_words=V)
            for first, _, rows in self._words()
        )
        found = reduce(add, words)
        heavy, K = len(self.shape.heavy), self.shape.topics
        if not heavy:
            return found
        of_heavy = CountRows.dense(self.counts.total[K:].astype(np.uint32), K, K)
        return found + count_words(of_heavy, total[:0], self.crew, n_words=V)

    def _documents(self) -> Iterator[tuple[int, int, CountRows]]:
        """(first position, last + 1, topic counts) of ranges of documents in the plan's order.

        In memory there is one range.
        """
        counts, shape = self.counts, self.shape
        for first, last in self._pieces(shape.doc_at, counts.doc_rows):
            at = shape.doc_at[first : last + 1]
            rows, places = counts.doc_rows[at[0] : at[-1]], at[:-1] - at[0]
            yield first, last, document_rows(shape, places, counts.doc_length[first:last], rows)

    def _words(self) -> Iterator[tuple[int, int, CountRows]]:
        """The same for words that are not heavy; parts of heavy words have empty rows."""
        counts, shape = self.counts, self.shape
        for first, last in self._pieces(shape.word_at, counts.word_rows):
            at = shape.word_at[first : last + 1]
            length, rows = counts.word_length[first:last], counts.word_rows[at[0] : at[-1]]
            length = np.where(length < -1, 0, length).astype(np.int32) if len(shape.heavy) else length
            yield first, last, CountRows(at[:-1] - at[0], length, rows, shape.shift, shape.topics)

    def _pieces(self, at: Ints, rows: NDArray[Any]) -> Iterator[tuple[int, int]]:
        """Ranges (first, last + 1) of rows that begin at[r]; from disk, a few rows at a time."""
        if self.disk is None:
            yield 0, len(at) - 1
            return
        at_once = max(1, self.disk.budget // (4 * rows.dtype.itemsize))
        for first, last in pieces(np.diff(at), at_once):
            yield first, last
            self.disk.release(rows, int(at[first]), int(at[last]))

    def _entries(self) -> Iterator[Entries]:
        """(word, topic, count) of ranges of words; the entries of a word are together."""
        self.crew.gather()
        for first, _, rows in self._words():
            yield word_entries(self.shape, self.plan.logical.cols, rows.length, rows.rows, first)
        if len(self.shape.heavy):
            counts = self.counts.total[self.shape.topics :].reshape(-1, self.shape.topics)
            heavy, topics = np.nonzero(counts)
            yield self.shape.heavy[heavy], topics, counts[heavy, topics].astype(np.uint32)

    def add_up(self) -> None:
        """Add the present word counts to the sums for averaging."""
        self.crew.gather()
        for first, _, rows in self._words():
            self.summed.add(first, rows, self.crew)
        self.summed.add_heavy(self.counts.total[self.shape.topics :])
        self.summed.states += 1

    def topics(self) -> Topics:
        """The learned topics: the average of the summed states, or the present state.

        Its arrays are in files if the counts are.
        """
        V = self.shape.words
        entries = partial(self.summed.means, self.plan.logical.cols) if self.summed.states[0] else self._entries
        if self.disk is None:
            found: Any = tuple(np.concatenate(part) for part in zip(*entries(), strict=True))
            return topics_of(found, V, self.priors.alpha, self.priors.beta, self.given)
        return gather_topics(entries, V, self.priors.alpha, self.priors.beta, self.disk, self.given)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Topics, counts, totals and priors: the live arrays, not copies."""
        counts = self.counts
        return {
            "topic": self.laid.tokens.topic,
            "doc_length": counts.doc_length,
            "doc_rows": counts.doc_rows,
            "word_length": counts.word_length,
            "word_rows": counts.word_rows,
            "total": counts.total,
            "row_moved": counts.row_moved,
            "col_moved": counts.col_moved,
            "priors": self.priors.array,
        } | self.summed.arrays()


def document_rows(shape: CountLayout, at: Any, length: Any, rows: Any) -> CountRows:
    """Topic counts of documents, for read-only use."""
    if shape.plain:
        return CountRows.dense(rows, shape.topics, shape.width)
    return CountRows(at, length, rows, shape.shift, shape.topics)


def lay_out_lda(
    counted: CountedCorpus,
    source: EntrySource,
    crew: Crew,
    *,
    watch: LikelihoodMonitor | None = None,
    earlier: Topics | None = None,
    scratch: Path | None = None,
) -> LdaJob:
    """The job that runs a plan: the tokens are laid out in memory, in files of a scratch folder, or by the nodes."""
    problem, plan, shape, watch = counted.problem, counted.plan, counted.shape, watch or LikelihoodMonitor()
    logical, physical = plan.logical, plan.physical
    source = split_source(source, logical, shape.words, shape.heavy)
    seed, budget, disk = logical.seed, physical.memory or 0, None
    if counted.by_nodes or physical.tile is not None:
        assert scratch is not None
        refuse_if_disk_full(plan, counted.entries, averaged_bytes(shape.words, problem), scratch)
        disk = Disk(scratch, max(1, budget - kept_bytes(plan, shape)))
        crew.stream(disk)
    if counted.by_nodes:
        parts, runs = in_parts(source), counted.runs
        assert parts is not None
        assert counted.parts is not None
        assert runs is not None
        reader = DocumentReader(parts, logical, counted.parts, plan.weight, runs)
        plan = replace(plan, steps=(replace(plan.steps[0], reader=reader),))
        laid = unread_tokens(logical, shape, plan.weight, runs, disk)
        return LdaJob(problem, plan, shape, laid, crew, seed, watch, earlier, disk)
    if disk is not None:
        laid = lay_out_tokens_on_disk(source, logical, shape, counted.entries, plan.weight, crew, disk, budget)
    else:
        laid = lay_out_tokens(source, logical, shape, crew)
    # For a large vocabulary the plan had only an upper bound of the runs.
    plan = plan_lda(problem, logical, shape, plan.weight, laid.runs, physical)
    return LdaJob(problem, plan, shape, laid, crew, seed, watch, earlier, disk)


def lay_out_in_memory(
    problem: TopicProblem,
    source: EntrySource,
    census: Census,
    crew: Crew,
    settings: PlanSettings,
    *,
    watch: LikelihoodMonitor | None = None,
    earlier: Topics | None = None,
) -> LdaJob:
    """Lay the tokens out, then plan from the layout: the plan of `count_lda`, without a counting pass."""
    problem = settled(problem, census)
    logical = logical_lda(problem, census, settings)
    shape = CountLayout.of(problem.topics, problem.sampler, census, logical.rows, logical.cols, earlier)
    laid = lay_out_tokens(split_source(source, logical, shape.words, shape.heavy), logical, shape, crew)
    plan = plan_lda(problem, logical, shape, np.diff(laid.tokens.ptr), laid.runs, settings.physical)
    refuse_in_memory(problem, plan, shape, going_on=earlier is not None)
    return LdaJob(problem, plan, shape, laid, crew, settings.seed, watch or LikelihoodMonitor(), earlier)


def build_lda(
    problem: TopicProblem,
    source: EntrySource,
    crew: Crew,
    *,
    watch: LikelihoodMonitor | None = None,
    earlier: Topics | None = None,
    census: Census | None = None,
    scratch: Path | None = None,
    data: Data | None = None,
    **settings: Any,
) -> LdaJob:
    """Count, plan and lay out. data: the corpus, if it is in memory. settings: the fields of `PlanSettings`."""
    chosen = PlanSettings(**settings)
    census = census or take_census(source, crew)
    if scratch is None:
        whole = source if data is None else InMemory(data)
        return lay_out_in_memory(problem, whole, census, crew, chosen, watch=watch, earlier=earlier)
    counted = count_lda(problem, source, census, crew, chosen, earlier=earlier, stream=True, in_memory=data is not None)
    whole = source if counted.plan.physical.tile is not None or data is None else InMemory(data)
    return lay_out_lda(counted, whole, crew, watch=watch, earlier=earlier, scratch=scratch)
