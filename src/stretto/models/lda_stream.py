"""A topic model on a corpus larger than memory: the same plan, the same bits, a tile of the grid at a time.

Tokens and rows of counts lie on disk in the plan's order. An epoch is one pass for each tile: its tokens, documents and
words are brought into memory, its visits are made, and what changed goes back while the next tiles are worked on.

A checkpoint holds what it holds in memory, array by array: between epochs a run goes on with any budget.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial, reduce
from operator import add
from pathlib import Path
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from stretto.plan.plan import Physical, Plan
from stretto.runtime.cpus import available_memory
from stretto.runtime.crew import Crew
from stretto.runtime.job import Report
from stretto.runtime.source import Source
from stretto.runtime.step import Step

from .lda_base import Problem, logical_lda, plan_lda
from .lda_cut import CutTokens, cut_tokens, on_disk, pieces, refuse_if_disk_full, weigh
from .lda_job import Priors, Summed, document_rows, epoch_seed, merge_totals, sampling_step
from .lda_layout import pointers, take_census, word_entries
from .lda_priors import CountRows, Histogram, count_documents, count_words
from .lda_rooms import TileRooms
from .lda_shape import Census, Shape
from .lda_tiles import PanelTiles, choose_side, most_runs
from .lda_topics import Topics
from .lda_watch import Watch
from .mf_serve import new_array

__all__ = ["StreamedLdaJob", "build_streamed", "on_disk"]

Entries = tuple[NDArray[Any], NDArray[Any], NDArray[Any]]

_AT_ONCE = 1 << 18  # counts turned into topics together


class TileSteps(Sequence[Step]):
    """The passes of an epoch, one for each tile, made when they are asked for: all at once would not fit.

    out [tiles, m²]: what each visit said.
    """

    def __init__(self, job: StreamedLdaJob, epoch: int) -> None:
        self._job, self._epoch = job, epoch
        self.out = np.zeros((len(job.tiles), len(job.tiles.order)))

    def __len__(self) -> int:
        return len(self.out)

    @overload
    def __getitem__(self, k: int) -> Step: ...
    @overload
    def __getitem__(self, k: slice) -> list[Step]: ...
    def __getitem__(self, k: int | slice) -> Step | list[Step]:
        if isinstance(k, slice):
            return [self[i] for i in range(*k.indices(len(self)))]
        return self._job.tile_step(self._epoch, range(len(self))[k], self.out[k])

    def total(self) -> float:
        """The visits' results folded into one number."""
        return math.fsum(self.out.ravel())


class StreamedLdaJob:
    """Gibbs sampling over tokens and counts on disk. `close` takes its files away."""

    def __init__(
        self,
        problem: Problem,
        plan: Plan,
        shape: Shape,
        laid: CutTokens,
        crew: Crew,
        seed: int,
        folder: Path,
        watch: Watch,
    ) -> None:
        self.problem, self.plan, self.shape, self.laid, self.crew, self.seed = problem, plan, shape, laid, crew, seed
        self.folder, self.watch = folder, watch
        self.tiles = PanelTiles(plan.order, plan.physical.tile or plan.order.cols)
        self.rooms = TileRooms(plan.logical, shape, laid, self.tiles, folder)
        self.priors = Priors(problem.alpha, problem.beta)
        self.items = int(plan.weight.sum())
        self.before: Histogram | None = None  # partial_fit works in memory
        self.summed = Summed(shape, wanted=bool(problem.average_every))

    def steps(self, epoch: int) -> TileSteps:
        """One pass for each tile."""
        return TileSteps(self, epoch)

    def tile_step(self, epoch: int, tile: int, out: NDArray[np.float64]) -> Step:
        """The pass over one tile; out [m²] takes what its visits say."""
        first, last = self.rooms.span(tile)
        counts = self.rooms.counts(epoch, tile)
        step = sampling_step(
            self.problem,
            self.shape,
            self.tiles.order,
            self.rooms.tokens(epoch, tile),
            counts,
            self.priors,
            self.shape.doc_tokens[first:last].astype(np.int32),
            self.laid.most,
            workers=self.crew.workers,
            seed=epoch_seed(self.seed, epoch),
            first=epoch == 0,
            warmth=self.problem.warmth(epoch),
            before=lambda fresh: self.rooms.enter(epoch, tile),
            after=(lambda: merge_totals(counts)) if tile == len(self.tiles) - 1 else None,
        )
        return replace(step, out=out, visits=self.tiles.visits(tile))

    def report(self, epoch: int, steps: Sequence[Step]) -> Report:
        """How likely the topics are, and how many tokens changed theirs."""
        moved = steps.total() if isinstance(steps, TileSteps) else math.fsum(step.total() for step in steps)
        return self.watch.look(self, epoch, moved / max(1, self.items))

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Topics, counts, totals and priors, as in memory; what is large is mapped from disk."""
        return self.rooms.arrays() | {"priors": self.priors.array} | self.summed.arrays()

    def close(self) -> None:
        """Stop reading ahead and take the files away."""
        self.rooms.remove()

    # --- what was learned -------------------------------------------------------------------------------------------

    def documents(self) -> Iterator[tuple[int, int, CountRows]]:
        """(first position, last + 1, counts of topics) of one group of documents after the other.

        Documents stand in the plan's order. A piece is good until the next one is asked for.
        """
        shape, rooms = self.shape, self.rooms
        for first, last, rows in rooms.groups(rooms.docs, rooms.doc_groups):
            at = shape.doc_at[first : last + 1] - shape.doc_at[first]
            yield first, last, document_rows(shape, at[:-1], rooms.doc_length[first:last], rows[: at[-1]])

    def words(self) -> Iterator[tuple[int, int, CountRows]]:
        """The same for words."""
        shape, rooms = self.shape, self.rooms
        for first, last, rows in rooms.groups(rooms.words, rooms.word_groups):
            at = shape.word_at[first:last] - shape.word_at[first]
            yield first, last, CountRows(at, rooms.word_length[first:last], rows, shape.shift, shape.topics)

    def histograms(self, by_topic: bool) -> tuple[Histogram, Histogram]:
        """What the counts say of the priors of documents and of words, gathered group by group."""
        tokens, V, total = self.shape.doc_tokens, len(self.shape.word_tokens), self.rooms.total
        documents = (
            count_documents(rows, tokens[first:last], self.crew, by_topic=by_topic)
            for first, last, rows in self.documents()
        )
        words = (
            count_words(rows, total if k == 0 else total[:0], self.crew, n_words=V)
            for k, (_, _, rows) in enumerate(self.words())
        )
        return reduce(add, documents), reduce(add, words)

    def _entries(self) -> Iterator[Entries]:
        """(word, topic, count) of a few words after the other, each word's together."""
        at, cols = self.shape.word_at, self.plan.logical.cols
        for start, end, rows in self.words():
            for first, last in pieces(np.diff(at[start : end + 1]), _AT_ONCE):
                yield word_entries(
                    self.shape, cols, rows.length[first:last], rows.rows[rows.at[first] :], start + first
                )

    def add_up(self) -> None:
        """Add the present word counts to those that are averaged."""
        for words, topics, counts in self._entries():
            self.summed.counts[words, topics] += counts
        self.summed.states += 1

    def topics(self) -> Topics:
        """What has been learned: the average of the states added up, or the present one.

        Its arrays are mapped from disk where the words do not fit in memory.
        """
        V, K = len(self.shape.word_tokens), self.shape.topics
        parts: Callable[[], Iterator[Entries]] = self._entries
        if self.summed.states[0]:
            parts = partial(_means, self.summed, max(1, _AT_ONCE // K))
        return gather_topics(parts, V, self.priors, self.folder if self.tiles.groups > 1 else None)


def _means(summed: Summed, words_at_once: int) -> Iterator[Entries]:
    """(word, topic, mean count) of a few words after the other."""
    for first in range(0, len(summed.counts), words_at_once):
        some = summed.counts[first : first + words_at_once]
        words, topics = np.nonzero(some)
        yield words + first, topics, (some[words, topics] / summed.states[0]).astype(np.float32)


def gather_topics(parts: Callable[[], Iterator[Entries]], V: int, priors: Priors, folder: Path | None) -> Topics:
    """Topics from entries (word, topic, count) in parts, which are asked for twice; a word is in one part alone.

    folder: where its arrays are kept; None keeps them in memory.
    """
    in_word, totals, dtype = np.zeros(V, np.int64), np.zeros(len(priors.alpha)), "i4"
    for words, topics, counts in parts():
        in_word += np.bincount(words, minlength=V)
        np.add.at(totals, topics, counts)
        dtype = "f4" if counts.dtype.kind == "f" else "i4"
    indptr = pointers(in_word)
    topic = _new_array(folder, "topic", int(indptr[-1]), "i4")
    count = _new_array(folder, "count", int(indptr[-1]), dtype)
    for words, topics, counts in parts():
        order = np.lexsort((topics, words))
        words = words[order]
        firsts = np.flatnonzero(np.diff(words, prepend=-1))
        into = indptr[words] + np.arange(len(words)) - np.repeat(firsts, np.diff(firsts, append=len(words)))
        topic[into], count[into] = topics[order], counts[order]
    return Topics(indptr, topic, count, totals, priors.alpha.copy(), priors.beta)


def _new_array(folder: Path | None, name: str, length: int, dtype: str) -> NDArray[Any]:
    """An empty array; in a folder it has a file without a name, which goes when the array does."""
    array = new_array(folder, name, (length,), dtype)
    if folder is not None:
        (folder / f"{name}.array").unlink(missing_ok=True)
    return array


def build_streamed(
    problem: Problem,
    source: Source,
    crew: Crew,
    *,
    seed: int,
    profile: str,
    width: int,
    physical: Physical,
    folder: Path,
    watch: Watch | None = None,
    census: Census | None = None,
    always: bool = True,
) -> StreamedLdaJob | None:
    """Count, plan, cut into files of the folder. None where everything fits in the budget, unless `always`."""
    census = census or take_census(source, crew)
    logical = logical_lda(problem, census, seed=seed, profile=profile, width=width)
    shape = Shape.of(problem, census, logical.rows, logical.cols)
    entries, tokens = weigh(source, logical.rows, logical.cols, logical.order)
    budget: int = physical.memory or available_memory() or 1 << 62
    at_most = most_runs(entries, tokens, logical)
    averaged = Summed.nbytes(shape, problem)
    if not always and plan_lda(problem, logical, shape, tokens, at_most, physical).cost.memory + averaged <= budget:
        return None
    physical = replace(physical, memory=budget)
    side = choose_side(logical, shape, entries, tokens, physical, averaged)
    refuse_if_disk_full(logical, shape, entries, tokens, side, folder)
    laid = cut_tokens(source, logical, shape, entries, tokens, folder, crew, budget)
    plan = plan_lda(problem, logical, shape, tokens, np.diff(laid.run_ptr), replace(physical, tile=side))
    return StreamedLdaJob(problem, plan, shape, laid, crew, seed, folder, watch or Watch())
