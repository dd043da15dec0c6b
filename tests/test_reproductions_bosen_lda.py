"""The topic model of `reproductions.bosen_lda`: what it counts, and that its likelihood is the library's."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from bench.table_lda import ALPHA, BETA, Corpus, Way, run
from bench.table_runs import Look, Run

import stretto as st
from stretto.models.topics.priors import CountRows, joint_likelihood
from stretto.runtime.runtimes import Serial

pytestmark = pytest.mark.slow  # reproductions are no part of `make test`

TOPICS, PASSES = 8, 6


@pytest.fixture(scope="module")
def counts() -> Any:
    """Documents of two kinds, each with words of its own."""
    draw = np.random.default_rng(0)
    means = np.concatenate([np.full(30, 0.6), np.full(30, 0.05)])
    rows = [draw.poisson(means if d % 2 else means[::-1]) for d in range(64)]
    return scipy.sparse.csr_matrix(np.array(rows, np.int32))


def cluster(nodes: int, threads: int = 1) -> Any:
    return st.Simulated(nodes=nodes, threads=threads, link="2Mbit", seconds_per_item=1e-4)


WAYS = (
    Way("BS", 1, st.tables.SSP(2), st.tables.Eager(), "rows"),
    Way("BS-2", 2, st.tables.SSP(4), st.tables.Eager()),
    Way("Lazy", 1, st.tables.SSP(2), st.tables.Lazy()),
    Way("MC", 1, st.tables.SSP(2), st.tables.Managed("1Mbit", rank="relative", burst=(20, 20)), "rows"),
    Way("ASP", 1, st.tables.ASP(), st.tables.Managed("1Mbit", rank="round-robin", burst=(20, 20))),
)


def check(corpus: Corpus, result: Any) -> None:
    """The tables hold what the workers' topics say, no token more or less."""
    topics = [local["topic"] for local in result.local]
    words = np.zeros((corpus.words, TOPICS), int)
    for share, topic, local in zip(corpus.shares, topics, result.local, strict=True):
        np.add.at(words, (share.word, topic), 1)
        documents = np.zeros_like(local["counts"])
        np.add.at(documents, (share.doc, topic), 1)
        np.testing.assert_array_equal(local["counts"], documents)
    np.testing.assert_array_equal(result.tables["words"], words)
    np.testing.assert_array_equal(result.tables["totals"][0], words.sum(axis=0))
    assert words.sum() == corpus.tokens


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.name)
def test_counts_are_conserved_and_the_likelihood_rises(counts: Any, way: Way) -> None:
    corpus = Corpus(counts, TOPICS, 8, 4)
    found, result = run(corpus, way, PASSES, cluster(4, 2))
    check(corpus, result)
    epochs = [look.epoch for look in found.looks]
    # Lazy shards learn of the last passes at the same time, when everybody has left.
    assert epochs == list(range(PASSES + 1)) if way.name != "Lazy" else epochs[:4] == [0, 1, 2, 3]
    assert all(a.seconds < b.seconds and a.bytes <= b.bytes for a, b in pairwise(found.looks))
    assert found.looks[-1].objective > found.looks[0].objective + 0.1
    assert found.looks[-1].bytes > 0


def test_rotation_conserves_counts_too(counts: Any) -> None:
    corpus = Corpus(counts, TOPICS, 3, 1, blocks=3)
    found, result = run(corpus, Way("rotation", 3, st.tables.BSP(), st.tables.Lazy()), PASSES, cluster(3))
    check(corpus, result)
    assert found.looks[-1].objective > found.looks[0].objective + 0.1


def test_words_of_a_block_are_read_by_one_worker_at_a_time(counts: Any) -> None:
    corpus = Corpus(counts, TOPICS, 3, 1, blocks=3)
    assert sum(len(batch.tokens) for share in corpus.shares for batch in share.batches) == corpus.tokens
    for one in range(3):
        keys = [set(share.batches[one].keys.tolist()) for share in corpus.shares]
        others = [set(share.batches[(one + 1) % 3].keys.tolist()) for share in corpus.shares]
        assert not set.union(*keys) & set.union(*others)


def test_a_single_node_is_the_serial_truth(counts: Any) -> None:
    """One worker: whatever the rule, on a simulated node or without any."""
    corpus = Corpus(counts, TOPICS, 1, 16)
    single, alone = run(corpus, Way("SN", 1, st.tables.SSP(2), st.tables.Eager()), PASSES, cluster(1))
    exact, serial = run(corpus, Way("BSP", 1, st.tables.BSP(), st.tables.Eager()), PASSES, cluster(1))
    _, plain = run(corpus, Way("serial", 1, st.tables.BSP(), st.tables.Eager()), PASSES, st.Serial())
    assert [look.objective for look in single.looks] == [look.objective for look in exact.looks]
    for other in (serial, plain):
        np.testing.assert_array_equal(alone.tables["words"], other.tables["words"])
        np.testing.assert_array_equal(alone.local[0]["topic"], other.local[0]["topic"])


def test_likelihood_is_that_of_the_library(counts: Any) -> None:
    corpus = Corpus(counts, TOPICS, 4, 2)
    documents = np.concatenate([share.counts(TOPICS) for share in corpus.shares])
    rows = CountRows.dense(documents.ravel().astype(np.uint16), TOPICS, TOPICS)
    words = CountRows.dense(corpus.start.ravel().astype(np.uint32), TOPICS, TOPICS)
    with Serial().open() as crew:
        lengths, total = documents.sum(axis=1), corpus.start.sum(axis=0)
        expected = joint_likelihood(rows, lengths, words, total, ALPHA, BETA, crew) / corpus.tokens
    assert corpus.likelihood([share.topic for share in corpus.shares]) == pytest.approx(expected, abs=1e-12)


def test_topics_begin_alike_whatever_the_workers(counts: Any) -> None:
    one, five = (Corpus(counts, TOPICS, workers, 2).start for workers in (1, 5))
    np.testing.assert_array_equal(one, five)


def test_what_is_needed_to_a_target_and_what_is_kept(tmp_path: Path) -> None:
    looks = tuple(Look(epoch, 2.0 * epoch, 100 * epoch, value) for epoch, value in enumerate((-4.0, -3.0, -2.0)))
    one = Run("BS", 2, 4, 1, looks, {"clock": (1, 2, 3)}, (3, 1), (4, 0, 4), {"read": 0.5}, 1.0)
    assert (one.epochs_to(-2.5), one.seconds_to(-2.5), one.bytes_to(-2.5)) == (1.5, 3.0, 150.0)
    assert one.epochs_to(-1.0) == np.inf
    assert one.lag == 0.25
    assert one.scaled("LS", 4).seconds_to(-2.5) == 0.75
    one.save(tmp_path)
    assert Run.load(tmp_path, "BS") == one
    assert Run.load(tmp_path, "MC") is None
