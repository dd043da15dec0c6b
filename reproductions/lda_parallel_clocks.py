"""Data-parallel topic models for `lda_parallel`: copies of all counts that meet when a clock ends, or earlier.

A *group* is the tokens of one word that one worker has. The server's counts follow from `known`, the topic of each
token as the server knows it; a worker's copy is what it last got plus what it changed since. Nothing is approximated:
whatever was sent when, the counts at the end of a clock are those of the tokens.

One exchange, three workers, one row each: every worker sends the changes of the row that changed most relative
to its size; then the server sends every worker the row that others changed most since that worker got it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numba
import numpy as np

from stretto.kernels.topics.rows import TopicCounts
from stretto.runtime.blocks.crew import Crew

from .lda_parallel_runs import (
    CHUNKS,
    ENTRY_BYTES,
    ROW_BYTES,
    TOTAL_BYTES,
    Array,
    Corpus,
    Counted,
    Curve,
    Epoch,
    count_rows,
    in_sequence,
    some_visits,
)

RANKS = ("relative", "absolute")


@numba.njit(nogil=True, cache=False)  # type: ignore[untyped-decorator]
def measure_changes(ptr: Any, which: Any, old: Any, new: Any, change: Any, entries: Any, size: Any) -> None:
    """How many counts of each group of tokens changed, and by how much. change [K] zeros, and zeros again."""
    for g in range(len(entries)):
        entries[g] = size[g] = 0
        for i in range(ptr[g], ptr[g + 1]):
            t = which[i]
            if old[t] != new[t]:
                change[old[t]] -= 1
                change[new[t]] += 1
        for i in range(ptr[g], ptr[g + 1]):
            t = which[i]
            for k in (old[t], new[t]):
                entries[g] += change[k] != 0
                size[g] += abs(change[k])
                change[k] = 0


@numba.njit(nogil=True, cache=False)  # type: ignore[untyped-decorator]
def refresh_rows(
    chosen: Any, word: Any, ptr: Any, which: Any, known: Any, topic: Any, tally: Any, at: Any,
    length: Any, rows: Any, own_length: Any, own_rows: Any, shift: int,
) -> None:  # fmt: skip
    """Fresh rows into a worker's copy: the server's, with what the worker changed and has not sent yet."""
    low = np.uint32((1 << shift) - 1)
    for g in chosen:
        w = word[g]
        first = at[w]
        if length[w] < 0:
            own_rows[first : first + len(tally)] = rows[first : first + len(tally)]
            for i in range(ptr[g], ptr[g + 1]):
                t = which[i]
                own_rows[first + known[t]] -= np.uint32(1)
                own_rows[first + topic[t]] += np.uint32(1)
            continue
        n = 0
        for i in range(ptr[g], ptr[g + 1]):
            t = which[i]
            tally[known[t]] -= 1
            tally[topic[t]] += 1
        for j in range(first, first + length[w]):
            k = np.int64(rows[j] >> np.uint32(shift))
            tokens = np.int64(rows[j] & low) + tally[k]
            tally[k] = 0
            if tokens > 0:
                own_rows[first + n] = np.uint32((k << shift) | tokens)
                n += 1
        for i in range(ptr[g], ptr[g + 1]):  # topics that only the worker knows of
            k = np.int64(topic[which[i]])
            if tally[k] > 0:
                own_rows[first + n] = np.uint32((k << shift) | tally[k])
                n += 1
            tally[k] = 0
        own_length[w] = n


@dataclass(frozen=True)
class Early:
    """Exchanges within a clock, and the bytes that a worker may send and get in each.

    rank: what goes first, by how much a row changed (absolute), or that over the tokens of its word (relative).
    """

    exchanges: int
    up: float
    down: float
    rank: str = "relative"

    @classmethod
    def share(cls, share: float, clock: Epoch, workers: int, exchanges: int, rank: str = "relative") -> Early:
        """So much of what a plain clock sent, spread over the workers and exchanges. exchanges + 1 divides CHUNKS."""
        part = share / (workers * exchanges)
        return cls(exchanges, part * clock.up, part * clock.down, rank)


class Workers:
    """P workers, each with documents of its own and a copy of all word rows and totals."""

    def __init__(self, corpus: Corpus, workers: int, crew: Crew, early: Early | None = None) -> None:
        self.workers, self.early = workers, early
        self.state = state = Counted(corpus, in_sequence(workers * CHUNKS), crew)
        self.known = state.topic.copy()
        visit = np.repeat(np.arange(workers * CHUNKS), np.diff(state.tokens.ptr))
        key = state.word * workers + visit // CHUNKS
        self.which = np.argsort(key, kind="stable")
        groups, first = np.unique(key[self.which], return_index=True)
        self.ptr = np.append(first, len(key)).astype(np.int64)
        self.word, self.owner = groups // workers, groups % workers
        self.word_ptr = np.concatenate([[0], np.cumsum(state.shape.word_tokens)]).astype(np.int64)
        self.behind = np.zeros(len(groups), np.int64)  # what others changed in a row since its owner got it
        # Without early exchanges a copy is needed only while its worker is at work, so one does for all.
        copies = workers if early else 1
        server, K = state.counts, corpus.topics
        self.length = np.tile(server.word_length, (copies, 1))
        self.rows = np.tile(server.word_rows, (copies, 1))
        self.total = np.tile(server.total, (copies, 1))
        self.moved = np.zeros((CHUNKS, K), np.int32), np.zeros((1, K), np.int32)

    def copy(self, worker: int) -> TopicCounts:
        """The counts as a worker sees them."""
        at = worker if self.early else 0
        return self.state.counts._replace(
            word_length=self.length[at], word_rows=self.rows[at], total=self.total[at],
            row_moved=self.moved[0], col_moved=self.moved[1],
        )  # fmt: skip

    def work(self, worker: int, first: int, last: int, epoch: int) -> None:
        """A worker goes through its chunks `first` to `last`."""
        own = some_visits(self.state.tokens, worker * CHUNKS + first, worker * CHUNKS + last)
        self.state.sample(in_sequence(last - first), own, self.copy(worker), epoch)

    def take_all(self) -> None:
        """Every copy becomes the server's."""
        server = self.state.counts
        self.length[:], self.rows[:], self.total[:] = server.word_length, server.word_rows, server.total

    def pending(self) -> tuple[Array, Array]:
        """[groups] entries that changed and were not sent yet, and by how much altogether."""
        entries, size = np.zeros((2, len(self.owner)), np.int64)
        measure_changes(self.ptr, self.which, self.known, self.state.topic, self.state.tally, entries, size)
        return entries, size

    def send(self, chosen: Array, size: Array) -> None:
        """The changes of these groups reach the server."""
        part = np.repeat(chosen, np.diff(self.ptr))
        sent = self.which[part]
        self.known[sent] = self.state.topic[sent]
        moved = np.where(chosen, size, 0)
        self.behind += np.bincount(self.word, moved, len(self.word_ptr) - 1).astype(np.int64)[self.word] - moved
        state, server = self.state, self.state.counts
        count_rows(
            self.word_ptr, self.which, self.known, state.tally, server.word_at, server.word_length, server.word_rows,
            state.shape.shift,
        )  # fmt: skip
        server.total[:] = np.bincount(self.known, minlength=state.shape.topics)

    def most(self, change: Array, cost: Array, budget: float, early: Early) -> Array:
        """[groups] which go: those that changed most, up to the first that does not fit into its worker's budget."""
        rank = change / self.state.shape.word_tokens[self.word] if early.rank == "relative" else change
        candidates = np.flatnonzero(change > 0)
        order = candidates[np.lexsort((-rank[candidates], self.owner[candidates]))]
        spent = np.cumsum(cost[order])
        first = np.searchsorted(self.owner[order], np.arange(self.workers))
        before = np.concatenate([[0], spent])[first]
        chosen = np.zeros(len(change), bool)
        chosen[order[spent - before[self.owner[order]] <= budget]] = True
        return chosen

    def exchange(self, early: Early) -> tuple[int, int]:
        """An early exchange; the bytes up and down. Totals always go, and are not part of the budget."""
        state, server, shape = self.state, self.state.counts, self.state.shape
        entries, size = self.pending()
        cost = ROW_BYTES + ENTRY_BYTES * entries
        sent = self.most(size, cost, early.up, early)
        self.send(sent, size)
        fresh = ROW_BYTES + ENTRY_BYTES * state.entries()[self.word]
        got = self.most(self.behind, fresh, early.down, early)
        for p in range(self.workers):
            chosen, own = np.flatnonzero(got & (self.owner == p)), self.copy(p)
            refresh_rows(
                chosen, self.word, self.ptr, self.which, self.known, state.topic, state.tally, server.word_at,
                server.word_length, server.word_rows, own.word_length, own.word_rows, shape.shift,
            )  # fmt: skip
            mine = slice(*state.tokens.ptr[[p * CHUNKS, (p + 1) * CHUNKS]])
            kept, now = (np.bincount(one[mine], minlength=shape.topics) for one in (self.known, state.topic))
            own.total[:] = server.total - kept + now
        self.behind[got] = 0
        totals = self.workers * TOTAL_BYTES * shape.topics
        return totals + int(cost[sent].sum()), totals + int(fresh[got].sum())

    def end_clock(self) -> tuple[int, int]:
        """All changes go up, all rows that others changed come down; the bytes of both."""
        entries, size = self.pending()
        changed = size > 0
        up = int((ROW_BYTES + ENTRY_BYTES * entries[changed]).sum())
        self.send(changed, size)
        stale = self.behind > 0
        down = int((ROW_BYTES + ENTRY_BYTES * self.state.entries()[self.word[stale]]).sum())
        self.behind[:] = 0
        totals = self.workers * TOTAL_BYTES * self.state.shape.topics
        self.take_all()
        return up + totals, down + totals

    def clock(self, first: int, last: int, epoch: int) -> tuple[int, int]:
        """Every worker goes through its chunks `first` to `last`; the bytes up and down."""
        parts = self.early.exchanges + 1 if self.early else 1
        marks = np.linspace(first, last, parts + 1).astype(int).tolist()
        up = down = 0
        for low, high in pairwise(marks):
            for worker in range(self.workers):
                if not self.early:
                    self.take_all()
                self.work(worker, low, high, epoch)
            if self.early and high < last:
                sent, got = self.exchange(self.early)
                up, down = up + sent, down + got
        sent, got = self.end_clock()
        return up + sent, down + got

    def epochs(self, number: int, clocks: int) -> Iterator[Epoch]:
        """n epochs of `clocks` clocks each."""
        yield self.state.look()
        marks = np.linspace(0, CHUNKS, clocks + 1).astype(int).tolist()
        for epoch in range(number):
            sent = [self.clock(*ends, epoch) for ends in pairwise(marks)]
            yield self.state.look(sum(up for up, _ in sent), sum(down for _, down in sent))


def data_parallel(
    corpus: Corpus,
    workers: int,
    epochs: int,
    crew: Crew,
    *,
    clocks: int = 1,
    early: Early | None = None,
    name: str = "",
) -> Curve:
    """A run of `workers` with so many clocks an epoch."""
    run = Workers(corpus, workers, crew, early).epochs(epochs, clocks)
    return Curve(name or ("data-parallel" if clocks == 1 else f"data-parallel, {clocks} clocks"), workers, tuple(run))
