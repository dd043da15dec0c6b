"""`LatentDirichletAllocation` as a user meets it."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

import stretto as st
from stretto.errors import DataError, PlanError
from stretto.models.topics.count_layout import Census
from stretto.models.topics.problem import TopicProblem, settled, warm_prior
from stretto.runtime.files.run_checkpoints import Saving
from stretto.runtime.session import Session


def planted(documents: int = 300, topics: int = 4, each: int = 15, length: int = 40, seed: int = 0) -> Any:
    """Counts of documents over topics with words of their own: topic k has words k·each to (k + 1)·each."""
    draw = np.random.default_rng(seed)
    share = draw.dirichlet([0.2] * topics, documents)
    counts = np.zeros((documents, topics * each), np.int64)
    for d in range(documents):
        topic = draw.choice(topics, length, p=share[d])
        np.add.at(counts[d], topic * each + draw.integers(0, each, length), 1)
    return sp.csr_array(counts), share


@pytest.fixture(scope="module")
def corpus() -> Any:
    return planted()


def fitted(X: Any, **choices: Any) -> Any:
    settings = {"max_iter": 30, "random_state": 0, "n_jobs": 2, "doc_topic_prior": 0.2} | choices
    return st.LatentDirichletAllocation(settings.pop("n_components", 4), **settings).fit(X)


def bits(model: Any) -> tuple[bytes, bytes]:
    return model.topics_.topic.tobytes(), model.topics_.count.tobytes()


def owner(model: Any, each: int = 15) -> NDArray[np.int64]:
    """The planted topic of each learned one, by its first words."""
    words = np.array([[int(w) for w in row] for row in model.top_words(n=each)])
    return np.array([np.bincount(row // each, minlength=4).argmax() for row in words])


@pytest.mark.parametrize("sampler", ["sparse", "mh"])
def test_planted_topics_and_shares_are_recovered(corpus: Any, sampler: str) -> None:
    X, share = corpus
    model = fitted(X, sampler=sampler, max_iter=60 if sampler == "sparse" else 300)
    mine = owner(model)
    assert sorted(mine) == [0, 1, 2, 3]
    found = model.transform(X)
    assert np.abs(found - share[:, mine]).mean() < 0.06
    np.testing.assert_allclose(found.sum(axis=1), 1, rtol=1e-5)


@pytest.mark.parametrize("choices", [{}, {"sampler": "mh"}, {"n_components": 300}, {"optimize_every": 5, "burn_in": 5}])
def test_the_bits_do_not_depend_on_threads(corpus: Any, choices: dict[str, Any]) -> None:
    X, _ = corpus
    one, two, serial = (
        fitted(X, max_iter=8, **choices, **where) for where in ({"n_jobs": 1}, {"n_jobs": 3}, {"runtime": st.Serial()})
    )
    assert bits(one) == bits(two) == bits(serial)
    assert one.fingerprint_ == two.fingerprint_
    assert one.doc_topic_prior_.tobytes() == two.doc_topic_prior_.tobytes()
    assert one.transform(X).tobytes() == two.transform(X).tobytes()
    assert bits(fitted(X, max_iter=8, **choices, random_state=1)) != bits(one)


def test_the_start_is_part_of_the_plan(corpus: Any) -> None:
    X, _ = corpus
    default, random, cold = (fitted(X, max_iter=2, **more) for more in ({}, {"first_topics": "random"}, {"warm_up": 0}))
    assert len({bits(default), bits(random), bits(cold)}) == 3
    assert len({default.fingerprint_, random.fingerprint_, cold.fingerprint_}) == 3
    flat = fitted(X, max_iter=1, first_topics="random")
    np.testing.assert_allclose(flat.topic_tokens_ / X.sum(), 0.25, atol=0.02)
    assert "first_topics=random, warm_up=1" in random.plan_.explain()


def test_the_prior_of_the_warm_up_follows_from_the_corpus() -> None:
    tokens = np.array([30, 30, 0, 0])  # two words without tokens
    census = Census(np.array([60]), tokens, 2, "")
    sparse = settled(TopicProblem(120, (1.0,) * 120, 0.01, "sparse", 1, warm_up=20), census)
    assert sparse.warm_beta == pytest.approx(0.07 * (60 / (120 * 2)) ** 0.5, rel=1e-5)
    problem = settled(TopicProblem(3, (1.0,) * 3, 0.01, "sparse", 1, warm_up=20), census)
    assert problem.warm_beta == 0.07
    assert [problem.warmth(epoch) for epoch in (0, 19, 20, 99)] == [problem.warm_beta / 0.01] * 2 + [1.0] * 2
    large = settled(TopicProblem(3, (1.0,) * 3, 0.9, "sparse", 1, warm_up=20), census)
    assert large.warmth(0) == 1.0, "never below the prior that was asked for"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, (75, 75, 3, 75)),
        ({"max_iter": 8}, (6, 6, 1, 6)),
        ({"max_iter": 1}, (0, 0, 1, 0)),
        ({"optimize_every": 5}, (30, 30, 3, 75)),
        ({"optimize_every": 5, "max_iter": 20}, (15, 15, 1, 15)),
        ({"early_stopping": True}, (30, 30, 0, None)),
        ({"warm_up": 0}, (0, 75, 3, 75)),
        ({"warm_up": 90}, (90, 75, 3, 75)),
        ({"burn_in": 40}, (40, 40, 3, 40)),
        ({"burn_in": 40, "warm_up": 50, "average_every": 5}, (40, 40, 5, 40)),
        ({"average_every": 0}, (75, 75, 0, None)),
    ],
)
def test_when_a_fit_warms_up_and_averages(given: dict[str, Any], expected: tuple[Any, ...]) -> None:
    model = st.LatentDirichletAllocation(2, **given)
    found = model._schedule(model.max_iter)
    assert tuple(found[name] for name in ("warm_up", "burn_in", "average_every", "average_from")) == expected


def test_states_of_a_long_warm_up_are_not_averaged() -> None:
    problem = TopicProblem(2, (1.0,) * 2, 0.01, "sparse", 1, average_every=1, average_from=75, warm_up=90)
    assert problem.averaging == 90


def test_fewer_epochs_reach_a_likelihood_of_unseen_words() -> None:
    """Sixty topics for twenty planted, 40 epochs: plain Gibbs sampling and the last state are behind the defaults."""
    X, _ = planted(600, 20, 30, 60)
    seen, held = X[:500], X[500:]
    plain = {"warm_up": 0, "average_every": 0}
    ours, cold, last = (
        np.mean([fitted(seen, n_components=60, max_iter=40, random_state=s, **more).perplexity(held) for s in range(3)])
        for more in ({}, plain, {"average_every": 0})
    )
    assert ours < 0.97 * cold
    assert ours < 0.99 * last


def test_long_documents_warm_up_with_a_smaller_prior() -> None:
    """Up to a mean of 200 tokens it follows from the words alone; documents without tokens do not count."""
    words = np.full(50, 400)

    def prior(tokens: list[int]) -> float:
        return warm_prior(10, Census(np.array(tokens), words, 0, ""))

    assert prior([200] * 100 + [0] * 100) == prior([100] * 200) == pytest.approx(0.07, rel=1e-4)
    assert prior([800] * 25) == pytest.approx(0.035, rel=1e-4)


def test_the_form_of_the_data_does_not_matter(corpus: Any) -> None:
    X, _ = corpus
    wanted = bits(fitted(X, max_iter=5))
    shuffled = X.tocoo()
    order = np.random.default_rng(1).permutation(shuffled.nnz)
    other = sp.coo_array((shuffled.data[order], (shuffled.row[order], shuffled.col[order])), shape=X.shape)
    for form in (X.toarray(), X.tocsc(), other, X.astype(np.float64)):
        assert bits(fitted(form, max_iter=5)) == wanted


def test_components_are_counts_and_the_prior(corpus: Any) -> None:
    X, _ = corpus
    model = fitted(X, topic_word_prior=0.5)
    assert model.components_.shape == (4, X.shape[1])
    np.testing.assert_allclose(model.components_.sum(), X.sum() + 0.5 * 4 * X.shape[1], rtol=1e-5)
    np.testing.assert_array_equal(model.components_.sum(axis=0) - 2.0, np.asarray(X.sum(axis=0)))
    np.testing.assert_allclose(model.topic_tokens_.sum(), X.sum())


def test_likelihood_rises_and_is_reported_when_asked(corpus: Any) -> None:
    X, _ = corpus
    model = fitted(X, evaluate_every=10, max_iter=25)
    seen = [epoch for epoch, entry in enumerate(model.history_, 1) if "log_likelihood" in entry]
    assert seen == [1, 10, 20, 25]
    assert model.history_[-1]["log_likelihood"] > model.history_[0]["log_likelihood"]
    assert not any("log_likelihood" in entry for entry in fitted(X, evaluate_every=0, max_iter=3).history_)


def test_priors_are_learned() -> None:
    draw = np.random.default_rng(3)
    counts = np.zeros((400, 40), np.int64)
    share = draw.dirichlet([0.9, 0.1, 0.1, 0.1], 400)
    for d in range(400):
        topic = draw.choice(4, 60, p=share[d])
        np.add.at(counts[d], topic * 10 + draw.integers(0, 10, 60), 1)
    fixed = fitted(counts, max_iter=200, doc_topic_prior=1.0)
    model = fitted(counts, max_iter=200, doc_topic_prior=1.0, optimize_every=5, burn_in=100)
    alpha = model.doc_topic_prior_
    assert np.argmax(alpha) == np.argmax(model.topic_tokens_)
    assert alpha.max() > 2 * alpha.min()
    assert alpha.sum() < 3.0  # it was 4, and is 1.2 in truth
    assert model.topic_word_prior_ != 0.01
    assert fixed.topic_word_prior_ == 0.01


def test_averaging_takes_the_mean_of_several_states(corpus: Any) -> None:
    X, _ = corpus
    single, mean = fitted(X, max_iter=20, average_every=0), fitted(X, max_iter=20, burn_in=10, average_every=2)
    assert mean.topics_.count.dtype == np.float32
    assert mean.topics_.count.sum() == pytest.approx(X.sum(), rel=1e-6)
    assert single.topics_.count.dtype == np.int32
    twice = np.rint(mean.topics_.count * 5)
    np.testing.assert_allclose(mean.topics_.count * 5, twice, atol=1e-3)  # five states


def test_early_stopping_and_a_validation_set(corpus: Any) -> None:
    X, _ = corpus
    model = fitted(X, early_stopping=True, max_iter=300, tol=0.01, n_iter_no_change=10, burn_in=30)
    assert 40 <= model.n_iter_ < 300
    values = [entry["held_perplexity"] for entry in model.history_]
    assert min(values) < 0.95 * values[0]
    other, _ = planted(50, seed=9)
    given = st.LatentDirichletAllocation(4, max_iter=3, random_state=0).fit(X, validation=other)
    assert all(entry["held_perplexity"] > 1 for entry in given.history_)


def test_perplexity_and_score_prefer_the_right_model(corpus: Any) -> None:
    X, _ = corpus
    other, _ = planted(100, seed=5)
    good, bad = fitted(X, max_iter=60), fitted(X, n_components=1)
    assert good.perplexity(other) < 0.7 * bad.perplexity(other)
    assert good.score(other) == pytest.approx(-np.log(good.perplexity(other)))
    assert bad.perplexity(other) == pytest.approx(60, rel=0.1)  # sixty words, all alike
    half = other.tocsr().copy()
    assert good.perplexity(half, held=half) < good.perplexity(other)  # it has seen what it is asked for


def test_partial_fit_goes_on(corpus: Any) -> None:
    X, _ = corpus
    model = st.LatentDirichletAllocation(4, doc_topic_prior=0.2, random_state=1, max_iter=60)
    for first in range(0, 300, 100):
        model.partial_fit(X[first : first + 100])
    assert model.topic_tokens_.sum() == X.sum()
    np.testing.assert_allclose(model.components_.sum(axis=0) - 0.04, np.asarray(X.sum(axis=0)), rtol=1e-4)
    assert sorted(owner(model)) == [0, 1, 2, 3]
    assert model.n_iter_ == 60
    model.n_components = 5
    with pytest.raises(DataError, match="was 4 when partial_fit"):
        model.partial_fit(X)


def test_partial_fit_with_packed_rows_keeps_every_count(corpus: Any) -> None:
    X, _ = corpus
    model = st.LatentDirichletAllocation(700, random_state=0, max_iter=2)
    model.partial_fit(X[:100]).partial_fit(X[100:200]).partial_fit(X[200:])
    counts = model.topics_.counts()
    np.testing.assert_array_equal(counts.sum(axis=0), np.asarray(X.sum(axis=0)))
    np.testing.assert_array_equal(counts.sum(axis=1), model.topic_tokens_)


def test_top_words_coherence_and_similar_topics(corpus: Any) -> None:
    X, _ = corpus
    model = fitted(X, max_iter=60)
    names = [f"w{w}" for w in range(X.shape[1])]
    assert model.top_words(names, 3)[0][0].startswith("w")
    assert len(model.top_words(n=7)[2]) == 7
    good = model.coherence(X, n=8)
    assert good.shape == (4,)
    noise = np.random.default_rng(0).poisson(0.7, X.shape)
    assert good.mean() > fitted(noise).coherence(noise, n=8).mean() + 0.3
    assert model.coherence(X, measure="umass").shape == (4,)
    numbers, likeness = model.similar_topics(2)
    assert numbers.shape == likeness.shape == (4, 2)
    with pytest.raises(DataError, match="vocabulary has 3 words"):
        model.top_words(["a", "b", "c"])


def test_names_come_from_a_data_frame() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame([[3, 0, 1], [0, 2, 1]], columns=["cat", "dog", "sun"])
    model = st.LatentDirichletAllocation(2, max_iter=3, random_state=0).fit(frame)
    assert {word for topic in model.top_words(n=3) for word in topic} == {"cat", "dog", "sun"}
    assert list(model.get_feature_names_out()) == ["latentdirichletallocation0", "latentdirichletallocation1"]


def test_edges() -> None:
    empty = np.array([[0, 0, 0], [2, 0, 1], [0, 0, 0]])  # documents without words, a word that never occurs
    model = st.LatentDirichletAllocation(2, max_iter=3, random_state=0).fit(empty)
    shares = model.transform(empty)
    np.testing.assert_allclose(shares[0], [0.5, 0.5], rtol=1e-6)
    one = st.LatentDirichletAllocation(1, max_iter=2, random_state=0).fit(empty)
    np.testing.assert_allclose(one.transform(empty), 1.0)
    single = st.LatentDirichletAllocation(3, max_iter=2, random_state=0).fit(np.array([[5]]))
    assert single.transform(np.array([[2]])).shape == (1, 3)


def test_wrong_data_is_refused_with_words_that_help(corpus: Any) -> None:
    X, _ = corpus
    model = fitted(X, max_iter=2)
    with pytest.raises(DataError, match=r"Negative values.*row 0, column 1"):
        st.LatentDirichletAllocation(2).fit(np.array([[1, -2]]))
    with pytest.raises(ValueError, match="60 features"):
        model.transform(X[:, :10])
    with pytest.raises(DataError, match="no tokens"):
        st.LatentDirichletAllocation(2).fit(np.zeros((3, 3)))
    with pytest.warns(UserWarning, match="fractional"):
        st.LatentDirichletAllocation(2, max_iter=1).fit(np.array([[1.5, 2.0]]))
    with pytest.raises(DataError, match="fractional"):
        st.LatentDirichletAllocation(2, strict=True).fit(np.array([[1.5, 2.0]]))


@pytest.mark.parametrize(
    ("choices", "said"),
    [
        ({"n_components": 0}, "n_components must be a whole number at least 1"),
        ({"sampler": "best"}, "sampler must be one of 'auto', 'sparse', 'mh'"),
        ({"doc_topic_prior": -1.0}, "doc_topic_prior"),
        ({"doc_topic_prior": [1.0, 2.0, 3.0]}, "or 2 of them"),
        ({"topic_word_prior": 0.0}, "topic_word_prior"),
        ({"max_iter": 0}, "max_iter"),
        ({"early_stopping": "yes"}, "True or False"),
        ({"profile": "quick"}, "profile"),
        ({"first_topics": "best"}, "first_topics must be one of"),
    ],
)
def test_wrong_parameters_are_refused_before_any_work(choices: dict[str, Any], said: str) -> None:
    settings = {"n_components": 2} | choices
    with pytest.raises(PlanError, match=said):
        st.LatentDirichletAllocation(**settings).fit(np.ones((2, 2)))


def test_saving_loading_and_pickling(corpus: Any, tmp_path: Path) -> None:
    X, _ = corpus
    model = fitted(X, doc_topic_prior=[0.1, 0.2, 0.3, 0.4])
    model.save(tmp_path / "topics.safetensors")
    again = st.LatentDirichletAllocation.load(tmp_path / "topics.safetensors")
    copied = pickle.loads(pickle.dumps(model))
    for other in (again, copied):
        assert bits(other) == bits(model)
        assert other.transform(X).tobytes() == model.transform(X).tobytes()
        assert other.n_iter_ == 30
    with pytest.raises(DataError, match="no such model file"):
        st.LatentDirichletAllocation.load(tmp_path / "nothing")
    st.MatrixFactorization(2, max_iter=1).fit(X[:20]).save(tmp_path / "other")
    with pytest.raises(DataError, match=r"not a model of LatentDirichletAllocation .*`stretto recommend`"):
        st.LatentDirichletAllocation.load(tmp_path / "other")


@pytest.mark.parametrize(
    "choices", [{}, {"n_components": 300}, {"optimize_every": 2, "average_every": 2, "burn_in": 1}]
)
def test_a_run_goes_on_with_the_same_bits(corpus: Any, tmp_path: Path, choices: dict[str, Any]) -> None:
    X, _ = corpus
    choices = {"burn_in": 3} | choices  # by default it follows from max_iter
    whole = fitted(X, max_iter=9, **choices)
    saving = Saving(tmp_path / "checkpoints", every_epochs=2)
    start: dict[str, Any] = {"max_iter": 5, "random_state": 0, "doc_topic_prior": 0.2, "n_components": 4, "n_jobs": 1}
    settings = start | choices
    st.LatentDirichletAllocation(**settings).fit(X, session=Session(saving=saving))
    settings |= {"max_iter": 9, "n_jobs": 2}
    again = st.LatentDirichletAllocation(**settings).fit(X, session=Session(saving=saving, resume=True))
    assert bits(again) == bits(whole)
    assert again.n_iter_ == 9


def test_it_stands_in_a_pipeline(corpus: Any) -> None:
    X, _ = corpus
    model = make_pipeline(FunctionTransformer(), st.LatentDirichletAllocation(3, max_iter=2, random_state=0))
    assert model.fit_transform(X).shape == (300, 3)
