"""Seed words: planted topics are found under their names, and the model is exactly one with a prior for each topic."""

from __future__ import annotations

import itertools
import warnings
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from scipy.special import gammaln

import stretto as st
from stretto.errors import DataError, PlanError
from stretto.models.topics.input import UnknownWordsWarning, as_corpus
from stretto.models.topics.job import LdaJob, lay_out_in_memory
from stretto.models.topics.layout import take_census
from stretto.models.topics.monitor import LikelihoodMonitor
from stretto.models.topics.priors import optimise_beta
from stretto.models.topics.problem import TopicProblem, schedule
from stretto.models.topics.seeding.prior_tokens import with_seeds
from stretto.models.topics.seeding.seeds import Seeds
from stretto.plan.plan import Physical, PlanSettings
from stretto.runtime.blocks.crew import Crew
from stretto.runtime.blocks.source import InMemory
from stretto.runtime.blocks.train import JobTrainer
from stretto.runtime.runtimes import Serial

K, V = 12, 600


@cache
def planted() -> tuple[Any, NDArray[np.float64]]:
    """(counts, words of the topics [K, V])."""
    rng = np.random.default_rng(0)
    phi = rng.dirichlet(np.full(V, 0.05), K)
    theta = rng.dirichlet(np.full(K, 0.1), 900)
    return sp.csr_array(np.array([rng.multinomial(60, p / p.sum()) for p in theta @ phi])), phi


def two_best(phi: NDArray[np.float64], k: int) -> list[int]:
    return [int(w) for w in np.argsort(-phi[k])[:2]]


def seeds_of(order: NDArray[np.int64]) -> dict[str, list[int]]:
    """Topic `name k` is the planted topic order[k]."""
    return {f"name {k}": two_best(planted()[1], int(topic)) for k, topic in enumerate(order)}


def best_match(model: st.LatentDirichletAllocation) -> NDArray[np.int64]:
    """[K] the learned topic most like each planted one."""
    found = model.components_
    affinity = np.sqrt(planted()[1]) @ np.sqrt(found / found.sum(axis=1, keepdims=True)).T
    assert affinity.max(axis=1).min() > 0.9
    return np.asarray(affinity.argmax(axis=1))


@pytest.mark.parametrize("more", [{}, {"sampler": "mh"}, {"n_components": 300}], ids=str)
def test_planted_topics_are_found_under_their_names(more: dict[str, Any]) -> None:
    X, phi = planted()
    order = np.random.default_rng(1).permutation(K)
    given: dict[str, Any] = {"n_components": K, "max_iter": 40, "random_state": 3, "seeds": seeds_of(order)} | more
    model = st.LatentDirichletAllocation(**given).fit(X)
    if more.get("n_components") == 300:  # many more topics than planted: the seeded ones have their words
        lists = model.top_words(n=8)
        right = sum({str(w) for w in two_best(phi, int(topic))} <= set(lists[k]) for k, topic in enumerate(order))
    else:
        right = int((best_match(model)[order] == np.arange(K)).sum())
    assert right >= K - 1
    assert model.seed_names_ is not None
    assert model.seed_names_[:K] == [f"name {k}" for k in range(K)]
    assert model.topic_tokens_.sum() == pytest.approx(X.sum())
    plain = st.LatentDirichletAllocation(K, max_iter=40, random_state=3).fit(X)
    assert plain.seed_names_ is None
    assert model.fingerprint_ != plain.fingerprint_
    if not more:
        assert model.perplexity(X) < 1.02 * plain.perplexity(X)


def test_small_collections_follow_their_seeds() -> None:
    words = [["game", "team", "score"], ["gene", "dna", "cell"], ["court", "judge", "law"]]
    rng, right = np.random.default_rng(0), 0
    for trial in range(6):
        texts = [" ".join(rng.choice(words[d % 3], 25)) for d in range(60)]
        model = st.LatentDirichletAllocation(
            3, max_iter=20, random_state=trial, seeds={"law": ["court"], "life": ["gene"], "sport": ["game"]}
        ).fit(st.read_text(texts))
        right += sum(set(found) == set(words[k]) for found, k in zip(model.top_words(n=3), (2, 1, 0), strict=True))
    assert right >= 16  # of 18


# --- the same bits everywhere ------------------------------------------------


@pytest.mark.parametrize("sampler", ["sparse", "mh"])
def test_where_it_runs_changes_no_bit(sampler: str, tmp_path: Path) -> None:
    X, _ = planted()
    path = tmp_path / "corpus.npz"
    sp.save_npz(path, sp.csr_matrix(X))
    given: dict[str, Any] = {
        "n_components": K, "max_iter": 6, "random_state": 0, "sampler": sampler, "optimize_every": 2,
        "seeds": {5: two_best(planted()[1], 0), "name": {1: 30, 2: 4.5}}, "burn_in": 2,
    }  # fmt: skip
    one = st.LatentDirichletAllocation(**given, n_jobs=1)
    assert one.plan(X).fingerprint == one.fit(X).fingerprint_
    simulated: dict[str, Any] = {"runtime": st.Simulated(nodes=2, threads=1)}
    for more in ({"n_jobs": 2}, {"n_jobs": 4}, {"memory": "64MB"}, simulated):
        other = st.LatentDirichletAllocation(**given, **more).fit(str(path) if "memory" in more else X)
        assert other.fingerprint_ == one.fingerprint_
        assert np.array_equal(other.components_, one.components_)
        assert np.array_equal(other.topic_tokens_, one.topic_tokens_)
    saved = tmp_path / "model.safetensors"
    one.save(saved)
    again = st.LatentDirichletAllocation.load(saved)
    assert np.array_equal(again.topic_tokens_, one.topic_tokens_)
    assert again.seed_names_ == one.seed_names_
    assert again.seed_names_ is not None
    assert again.seed_names_[0] == "name"
    assert again.fit(X).fingerprint_ == one.fingerprint_


def test_a_run_stopped_within_its_first_epoch_goes_on(tmp_path: Path) -> None:
    """The first epoch has two passes, one for the seed words and one for the others."""
    with Serial().open() as crew:
        whole = _laid_out(crew)[0]
        JobTrainer(whole, crew).run(4)
        stopped, going_on = (JobTrainer(_laid_out(crew)[0], crew, saving=st.Saving(tmp_path)) for _ in range(2))
        seeds, others = stopped.job.steps(0)
        crew.run(seeds, "exact")
        assert 0 < seeds.total() < seeds.total() + others.weight.sum()
        stopped.position.outs[0], stopped.position.step = seeds.out, 1
        stopped.save()
        going_on.restore()
        assert (going_on.position.epoch, going_on.position.step) == (0, 1)
        going_on.run(4)
        for name, array in whole.arrays().items():
            assert np.array_equal(going_on.job.arrays()[name], array), name


# --- the model ---------------------------------------------------------------


def _laid_out(crew: Crew, **more: Any) -> tuple[LdaJob, NDArray[np.float64]]:
    """A job with seeds, and the prior tokens [K, V]."""
    X, _ = planted()
    corpus = as_corpus(X, seed=0)
    source = InMemory(corpus.data)
    census = take_census(source, crew)
    plan = schedule(10, warm_up=0, burn_in=0, average_every=0, learning=True, stopping=False) | more
    problem = TopicProblem(K, (0.1,) * K, 0.05, "sparse", 2, **plan)
    problem, start = with_seeds(problem, Seeds.of({0: [1, 2], 3: {4: 25, 1: 2}}, K), 0.02, None, census)
    settings = PlanSettings(0, "exact", 16, Physical("serial", 1, None))
    watch = LikelihoodMonitor(1, 10)
    job = lay_out_in_memory(problem, source, census, crew, settings, watch=watch, earlier=start)
    return job, start.counts().astype(np.float64)


def test_the_likelihood_is_that_of_a_prior_for_each_topic() -> None:
    """lnΓ of the counts and of β + s, by SciPy; and the learned β is where it is largest."""
    with Serial().open() as crew:
        job, s = _laid_out(crew)
        trainer = JobTrainer(job, crew)
        trainer.run(4)
        documents, words = job.histograms(False)
        n = job.topics().counts().astype(np.float64) - s
        assert n.min() >= 0
        assert n.sum() == job.items

        def expected(beta: float) -> float:
            prior = beta + s
            whole = prior.sum(axis=1)
            found = gammaln(n + prior) - gammaln(prior)
            return float(found.sum() + (gammaln(whole) - gammaln(whole + n.sum(axis=1))).sum())

        assert job.before is not None
        for beta in (0.05, 0.3):
            assert words.likelihood(beta) - job.before.likelihood(beta) == pytest.approx(expected(beta), rel=1e-10)
        report = job.report(3, job.steps(3))
        assert report.metrics["log_likelihood"] * job.items == pytest.approx(
            documents.likelihood(0.1) + expected(0.05), rel=1e-10
        )
        best = minimize_scalar(lambda b: -expected(b), bounds=(1e-4, 5), method="bounded", options={"xatol": 1e-9}).x
        learned = optimise_beta(words, 0.05, given=job.before, iterations=500)
        assert learned == pytest.approx(best, rel=1e-4)
        assert learned != pytest.approx(optimise_beta(words, 0.05, iterations=500), rel=1e-3)


def test_draws_have_the_exact_distribution() -> None:
    """Five tokens, two topics: after some sweeps each state has the probability that the model gives it."""
    X = sp.csr_array([[2, 1, 0], [0, 1, 1]])
    prior = np.full((2, 3), 0.5)
    prior[0, 1] += 2
    alpha = 0.7
    tokens = [(0, 0), (0, 0), (0, 1), (1, 1), (1, 2)]
    chance = _chances(tokens, alpha, prior)
    total, every, draws = sum(chance.values()), 5, 1200
    problem = TopicProblem(2, (alpha,) * 2, 0.5, "sparse", 2, warm_up=0)
    source = InMemory(as_corpus(X, seed=0).data)
    seen = dict.fromkeys(chance, 0)
    with Serial().open() as crew:
        census = take_census(source, crew)
        problem, start = with_seeds(problem, Seeds.of({0: {"1": 2}}, 2), 0.02, None, census)
        settings = PlanSettings(5, "exact", 1, Physical("serial", 1, None))
        job = lay_out_in_memory(problem, source, census, crew, settings, earlier=start)
        for epoch in range(every * draws):
            for step in job.steps(epoch):
                crew.run(step, "exact")
            if epoch % every == every - 1:
                counts = job.topics().counts()[0]
                counts[1] -= 2
                seen[tuple(int(c) for c in counts)] += 1
    expected = {key: draws * value / total for key, value in chance.items()}
    squares = sum((seen[key] - expected[key]) ** 2 / expected[key] for key in expected)
    freedom = len(expected) - 1
    assert squares < freedom + 4 * np.sqrt(2 * freedom)
    # Without the prior of the seed word the same counts would be most unlikely.
    flat = _chances(tokens, alpha, np.full((2, 3), 0.5))
    other = {key: draws * value / sum(flat.values()) for key, value in flat.items()}
    assert sum((seen[key] - other[key]) ** 2 / other[key] for key in other) > 10 * squares


def _chances(tokens: list[tuple[int, int]], alpha: float, prior: NDArray[np.float64]) -> dict[tuple[int, ...], float]:
    """How likely the word counts of topic 0 are, up to a factor: all states of the tokens are added up."""
    chance: dict[tuple[int, ...], float] = {}
    for state in itertools.product((0, 1), repeat=len(tokens)):
        by_document, by_word = np.zeros((2, 2)), np.zeros((2, 3))
        for (d, w), k in zip(tokens, state, strict=True):
            by_document[d, k] += 1
            by_word[k, w] += 1
        log = gammaln(by_document + alpha).sum() + gammaln(by_word + prior).sum()
        log -= gammaln((by_word + prior).sum(axis=1)).sum()
        key = tuple(by_word[0].astype(int).tolist())  # the counts of topic 0; those of topic 1 follow
        chance[key] = chance.get(key, 0.0) + float(np.exp(log))
    return chance


def test_inference_and_more_documents_have_the_prior() -> None:
    X, phi = planted()
    seeds = {"first": two_best(phi, 0)}
    model = st.LatentDirichletAllocation(K, random_state=0, seeds=seeds).partial_fit(X[:450])
    first = model.topics_.given
    assert first is not None
    assert model.topic_tokens_.sum() == pytest.approx(X[:450].sum())
    assert (model.topics_.counts().sum() - first.sum()) == pytest.approx(X[:450].sum())
    model.partial_fit(X[450:])
    assert model.topic_tokens_.sum() == pytest.approx(X.sum())
    assert np.array_equal(np.asarray(model.topics_.given), first)
    assert model.transform(X[:3]).sum(axis=1) == pytest.approx(1.0, abs=1e-5)
    assert model.topic_names()[0] == "first"
    merged = model.merge_topics(3, labels=[k % 3 for k in range(K)])
    assert merged.topic_tokens_.sum() == pytest.approx(X.sum())
    assert merged.seed_names_ == ["first", None, None]
    assert merged.topic_names()[0] == "first"


# --- what is refused ---------------------------------------------------------


@pytest.mark.parametrize(
    ("seeds", "said"),
    [
        (["game"], "must be a mapping"),
        ({"a": "game"}, "list of words"),
        ({"a": []}, "has no words"),
        ({"a": [1.5]}, "give words"),
        ({"a": {"game": 0}}, "prior tokens"),
        ({"a": {"game": "many"}}, "prior tokens"),
        ({7: ["game"]}, "topics 0 to 2"),
        ({-1: ["game"]}, "topics 0 to 2"),
        ({True: ["game"]}, "a name, or a number"),
        ({"1": ["game"], 1: ["team"]}, "a topic twice"),
        ({" ": ["game"]}, "without a name"),
        ({name: ["game"] for name in "abcd"}, "seeds has 4 topics and the model 3"),
        ({"a": ["football", "tennis"]}, r"none of its words is in the documents \(football, tennis\)"),
    ],
    ids=str,
)
def test_wrong_seeds_are_refused(seeds: Any, said: str) -> None:
    X = st.read_text(["game team", "gene dna", "court judge"])
    with pytest.raises(DataError, match=said):
        st.LatentDirichletAllocation(3, max_iter=2, seeds=seeds).fit(X)


def test_unknown_seed_words_are_left_out_with_a_warning() -> None:
    X = st.read_text(["game team", "gene dna", "court judge"])
    with pytest.warns(UnknownWordsWarning, match=r"left out: 1 \(tennis\)"):
        st.LatentDirichletAllocation(2, max_iter=2, seeds={"a": ["game", "tennis"]}).fit(X)
    with pytest.raises(DataError, match="words have no names here"):
        st.LatentDirichletAllocation(2, max_iter=2, seeds={"a": ["game"]}).fit(X.counts)
    with pytest.raises(PlanError, match="seed_weight"):
        st.LatentDirichletAllocation(2, seed_weight=0.5).fit(X)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        st.LatentDirichletAllocation(2, max_iter=2, seeds={"a": ["game"]}).fit(X.counts, vocabulary=X.vocabulary)
