"""Heavy words are divided among the column blocks: more workers are busy, and every runtime has the same bits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_matrix

import stretto as st
from jobs import digest
from ring_fleet import InProcess
from stretto.data import heavy_columns as heavy_module
from stretto.data.heavy_columns import cut_columns, heavy_columns
from stretto.models.topics import problem as lda_base
from stretto.models.topics.monitor import LikelihoodMonitor
from stretto.runtime.blocks.train import JobTrainer
from stretto.runtime.runtimes import Serial, Threads
from topic_jobs import corpus, lda_on, problem, run_passes

KINDS = {"dense": problem(12), "packed": problem(300), "mh": problem(20, "mh", steps=2)}
D, V, TOKENS = 160, 120, 9000


def skewed() -> Any:
    """Counts in which one word has a third of the tokens and another a fifth."""
    random = np.random.default_rng(1)
    share = np.r_[0.33, 0.2, np.full(V - 2, 0.47 / (V - 2))]
    X = np.zeros((D, V), np.int64)
    np.add.at(X, (random.integers(0, D, TOKENS), random.permutation(V)[random.choice(V, TOKENS, p=share)]), 1)
    return X


COUNTS = skewed()
DATA = corpus(COUNTS)


@pytest.fixture(autouse=True)
def small_visits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many visits, and heavy words, in spite of few tokens."""
    monkeypatch.setattr(lda_base, "FEWEST_TOKENS", 64)
    monkeypatch.setattr(heavy_module, "FEWEST_TOKENS", 1)


def learned(runtime: Any, name: str) -> tuple[str, Any]:
    with lda_on(runtime, KINDS[name], DATA) as (job, crew):
        job.watch = LikelihoodMonitor(1, 4)
        outcome = JobTrainer(job, crew).run(4)
        return digest(job.arrays()), [report.metrics for report in outcome.reports]


@pytest.mark.parametrize("name", KINDS)
def test_the_same_bits_on_threads_and_on_nodes(name: str) -> None:
    expected = learned(Serial(), name)
    assert learned(Threads(2), name) == expected
    assert learned(InProcess(3, 1), name) == expected


@pytest.mark.parametrize("name", KINDS)
def test_counts_are_those_of_the_tokens(name: str) -> None:
    """Every word has its tokens, and the counts of the heavy words are those of the topics of their tokens."""
    with lda_on(Threads(2), KINDS[name], DATA) as (job, crew):
        run_passes(job, crew, 3)
        topics, K, shape = job.topics(), job.shape.topics, job.shape
        assert np.array_equal(topics.counts().sum(axis=0), COUNTS.sum(axis=0))
        tokens, cols = job.laid.tokens, job.plan.logical.cols
        assert len(shape.heavy) == 2
        run_visit = np.repeat(np.arange(len(job.plan.order)), np.diff(tokens.run_ptr))
        place = np.repeat(tokens.word_base[run_visit] + tokens.run_word, tokens.run_length)
        word = np.empty(len(cols), np.int64)
        word[cols.place] = np.r_[np.arange(V), np.repeat(shape.heavy, cols.blocks)]
        expected = np.zeros((V, K), np.int64)
        np.add.at(expected, (word[place], tokens.topic.astype(np.int64)), 1)
        assert np.array_equal(topics.counts().T, expected)
        assert np.array_equal(job.counts.total[:K], expected.sum(axis=0))


def test_the_likelihood_counts_heavy_words_once() -> None:
    """The likelihood from the histograms is the one computed from dense counts."""
    from scipy.special import gammaln

    with lda_on(Serial(), KINDS["dense"], DATA) as (job, crew):
        run_passes(job, crew, 2)
        _, words = job.histograms(False)
        beta, counts = job.priors.beta, job.topics().counts().astype(np.float64)
        K = len(counts)
        expected = gammaln(counts + beta).sum() - K * V * gammaln(beta) + K * gammaln(V * beta)
        expected -= gammaln(counts.sum(axis=1) + V * beta).sum()
        assert np.isclose(words.likelihood(beta), expected, rtol=1e-12)


def test_the_order_keeps_many_workers_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    with lda_on(Serial(), KINDS["dense"], DATA) as (job, _):
        split = job.plan.bound(4).efficiency
        assert dict(job.plan.logical.parameters)["split_words"] == 2
    monkeypatch.setattr(heavy_module, "FEWEST_TOKENS", 1 << 20)
    with lda_on(Serial(), KINDS["dense"], DATA) as (job, _):
        whole = job.plan.bound(4).efficiency
    assert split > 0.9
    assert whole < 0.8


def test_from_disk_and_in_memory(tmp_path: Path) -> None:
    path = tmp_path / "docword.txt"
    docs, words = np.nonzero(COUNTS)
    lines = [f"{d + 1} {w + 1} {COUNTS[d, w]}" for d, w in zip(docs, words, strict=True)]
    path.write_text("\n".join([str(D), str(V), str(len(docs)), *lines]) + "\n")
    options: dict[str, Any] = {"max_iter": 3, "random_state": 0, "width": 4, "evaluate_every": 1}
    inside = st.LatentDirichletAllocation(20, **options).fit(csr_matrix(COUNTS))
    outside = st.LatentDirichletAllocation(20, memory="1MB", **options).fit(path)
    assert outside.plan_.physical.tile is not None
    assert np.array_equal(inside.components_, outside.components_)
    assert inside.history_[-1]["log_likelihood"] == outside.history_[-1]["log_likelihood"]


def test_more_documents_go_on_from_heavy_columns() -> None:
    model = st.LatentDirichletAllocation(8, max_iter=4, random_state=0, width=4)
    once = model.partial_fit(csr_matrix(COUNTS)).topics_.counts()
    twice = model.partial_fit(csr_matrix(COUNTS)).topics_.counts()
    assert np.array_equal(once.sum(axis=0), COUNTS.sum(axis=0))
    assert np.array_equal(twice.sum(axis=0), 2 * COUNTS.sum(axis=0))


def test_which_words_are_heavy(monkeypatch: pytest.MonkeyPatch) -> None:
    tokens = np.array([5, 100, 10, 40, 10])
    assert heavy_columns(tokens, 4).tolist() == [1]
    assert heavy_columns(tokens, 8).tolist() == [1, 3]
    cols = cut_columns(tokens, 4, seed=0)
    assert len(cols) == 5 + 4
    assert cols.block_of()[5:].tolist() == [0, 1, 2, 3]
    assert sorted(cols.place.tolist()) == list(range(9))
    monkeypatch.setattr(heavy_module, "FEWEST_TOKENS", 166)
    assert len(heavy_columns(tokens, 4)) == 0
    assert len(cut_columns(tokens, 4, seed=0)) == 5
