"""The bookkeeping of data-parallel topic models: the comparison of `reproductions.lda_parallel` stands on it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from reproductions.lda_parallel_clocks import RANKS, Early, Workers, data_parallel
from reproductions.lda_parallel_runs import TOTAL_BYTES, Corpus, Counted, rotated, serial, serial_by_documents

from stretto.runtime.blocks.crew import Crew
from stretto.runtime.runtimes import Serial

pytestmark = pytest.mark.slow  # reproductions are no part of `make test`

TOPICS, WORKERS = 300, 4


@pytest.fixture(scope="module")
def crew() -> Iterator[Crew]:
    with Serial().open() as found:
        yield found


@pytest.fixture(scope="module")
def corpus(crew: Crew) -> Corpus:
    """Frequent words, so that some rows are plain, and rare ones."""
    rng = np.random.default_rng(0)
    counts = rng.poisson(3.0 / np.arange(1, 61), (150, 60)) + (np.arange(60) == 0) * 3
    return Corpus.of("made", scipy.sparse.csr_matrix(counts), TOPICS, crew)


def dense(state: Counted, length: Any, rows: Any) -> Any:
    """[V, K] counts of word rows."""
    found = np.zeros((len(length), TOPICS), np.int64)
    for w, (at, n) in enumerate(zip(state.counts.word_at, length, strict=True)):
        if n < 0:
            found[w] = rows[at : at + TOPICS]
        else:
            entries = rows[at : at + n].astype(np.int64)
            found[w, entries >> state.shape.shift] = entries & ((1 << state.shape.shift) - 1)
            assert np.all(entries & ((1 << state.shape.shift) - 1) > 0)
    return found


def counted(state: Counted, topic: Any) -> Any:
    """[V, K] counts of the tokens themselves."""
    found = np.zeros((len(state.shape.word_tokens), TOPICS), np.int64)
    np.add.at(found, (state.word, topic.astype(np.int64)), 1)
    return found


def test_every_way_begins_with_the_same_topics(corpus: Corpus, crew: Crew) -> None:
    starts = [
        serial(corpus, 0, crew).epochs[0],
        rotated(corpus, WORKERS, 0, crew).epochs[0],
        data_parallel(corpus, WORKERS, 0, crew).epochs[0],
    ]
    assert len({(math.floor(one.likelihood * 1e9), one.entries) for one in starts}) == 1
    assert starts[0].likelihood < serial(corpus, 3, crew).epochs[-1].likelihood - 0.5  # random topics are worse


def test_one_worker_is_serial(corpus: Corpus, crew: Crew) -> None:
    expected = serial_by_documents(corpus, 3, crew).epochs
    for meetings, run in (
        (1, data_parallel(corpus, 1, 3, crew)),
        (4, data_parallel(corpus, 1, 3, crew, clocks=4)),
        (4, data_parallel(corpus, 1, 3, crew, early=Early(3, 1e9, 1e9))),
    ):
        assert [one.likelihood for one in run.epochs] == [one.likelihood for one in expected]
        # Nobody else changed anything, so only totals come down.
        assert [one.down for one in run.epochs[1:]] == [meetings * TOTAL_BYTES * TOPICS] * 3


@pytest.mark.parametrize("rank", RANKS)
def test_copies_hold_what_was_exchanged(corpus: Corpus, crew: Crew, rank: str) -> None:
    early = Early(3, 800.0, 2_000.0, rank)
    run = Workers(corpus, WORKERS, crew, early)
    state, totals = run.state, WORKERS * TOTAL_BYTES * TOPICS
    owner = np.repeat(np.arange(WORKERS), np.diff(state.tokens.ptr).reshape(WORKERS, -1).sum(axis=1))
    for part in range(3):
        for p in range(WORKERS):
            run.work(p, part * 4, part * 4 + 4, 0)
        up, down = run.exchange(early)
        assert 0 < up - totals <= WORKERS * early.up
        assert 0 < down - totals <= WORKERS * early.down
        server = state.counts
        assert np.array_equal(dense(state, server.word_length, server.word_rows), counted(state, run.known))
        for p in range(WORKERS):
            copy = run.copy(p)
            rows = dense(state, copy.word_length, copy.word_rows)
            assert np.array_equal(rows.sum(axis=1), state.shape.word_tokens)
            # A row that nobody else changed since it was fetched is the server's with the worker's own changes.
            mine = np.where(owner == p, state.topic, run.known)
            current = run.word[(run.owner == p) & (run.behind == 0)]
            assert len(current) > 0
            assert np.array_equal(rows[current], counted(state, mine)[current])
            assert np.array_equal(copy.total, counted(state, mine).sum(axis=0))
    run.end_clock()
    expected = counted(state, state.topic)
    for p in range(WORKERS):
        copy = run.copy(p)
        assert np.array_equal(dense(state, copy.word_length, copy.word_rows), expected)
        assert np.array_equal(copy.total, expected.sum(axis=0))


def test_a_free_exchange_leaves_nobody_behind(corpus: Corpus, crew: Crew) -> None:
    early = Early(3, 1e9, 1e9)
    run = Workers(corpus, WORKERS, crew, early)
    for p in range(WORKERS):
        run.work(p, 0, 4, 0)
    entries, _ = run.pending()
    assert entries.sum() > 0
    run.exchange(early)
    assert not run.pending()[0].any()
    assert not run.behind.any()
    assert run.end_clock() == (WORKERS * TOTAL_BYTES * TOPICS,) * 2


def test_a_clock_hides_what_others_do(corpus: Corpus, crew: Crew) -> None:
    """Two workers in one clock draw as if each were alone."""
    both, first = (Workers(corpus, 2, crew) for _ in range(2))
    both.clock(0, 16, 0)
    first.take_all()
    first.work(1, 0, 16, 0)
    own = slice(int(both.state.tokens.ptr[16]), None)
    assert np.array_equal(both.state.topic[own], first.state.topic[own])
