"""Topic shares of unseen documents against the same fixed point in plain NumPy."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from stretto.errors import DataError, PlanError
from stretto.kernels.topics import infer_sparse
from stretto.models.topics import infer
from stretto.models.topics.infer import Inferrer
from stretto.models.topics.topics import Topics
from stretto.runtime.blocks.crew import Crew
from stretto.runtime.runtimes import Serial, Threads

Floats = NDArray[np.float64]
f4 = np.float32


@pytest.fixture
def crew() -> Iterator[Crew]:
    with Serial().open() as found:
        yield found


@pytest.fixture(params=["dense", "sparse"])
def rows(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both ways of keeping φ, whatever the number of topics."""
    monkeypatch.setattr(infer, "DENSE_TOPICS", 10**6 if request.param == "dense" else 0)
    return str(request.param)


def made(K: int, V: int, seed: int = 0, *, per_word: int = 12, skewed: bool = True) -> Topics:
    """Topics with counts at a few topics of every word; the last word never occurred."""
    random = np.random.default_rng(seed)
    each = np.append(random.integers(1, min(K, per_word) + 1, V - 1), 0)
    topic = [np.sort(random.choice(K, n, replace=False)) for n in each]
    count = random.geometric(0.02, each.sum()).astype(np.int32)
    flat = np.concatenate(topic).astype(np.int32)
    totals = np.bincount(flat, count, minlength=K).astype(np.float64)
    alpha = random.gamma(1.0, 0.2, K) + 0.01 if skewed else np.full(K, 0.1)
    return Topics(np.concatenate([[0], np.cumsum(each)]).astype(np.int64), flat, count, totals, alpha, 0.01)


def phi_of(topics: Topics) -> Floats:
    """[V, K] in float64."""
    dense = np.zeros((topics.n_words, topics.n_topics))
    dense[np.repeat(np.arange(topics.n_words), np.diff(topics.indptr)), topics.topic] = topics.count
    return np.asarray((dense + topics.beta) / (topics.totals + topics.n_words * topics.beta))


def some(topics: Topics, D: int, seed: int = 1, *, tokens: int = 60) -> Any:
    """[D, V] documents of a few topics each, drawn from the model; the first is empty."""
    random = np.random.default_rng(seed)
    phi = phi_of(topics)
    X = np.zeros((D, topics.n_words), np.int32)
    for d in range(1, D):
        theta = np.zeros(topics.n_topics)
        few = random.choice(topics.n_topics, min(4, topics.n_topics), replace=False)
        theta[few] = random.dirichlet(np.ones(len(few)))
        X[d] = random.multinomial(random.integers(1, 2 * tokens), phi @ theta)
    return scipy.sparse.csr_array(X)


def fixed_point(topics: Topics, X: Any, passes: int = 600) -> Floats:
    """The shares, by plain passes in float64 over every topic."""
    phi, theta = phi_of(topics), np.empty((X.shape[0], topics.n_topics))
    for d in range(X.shape[0]):
        at = slice(X.indptr[d], X.indptr[d + 1])
        Y, c = phi[X.indices[at]], X.data[at].astype(float)
        a = topics.alpha * (1.0 + c.sum() / topics.alpha.sum())
        for _ in range(passes):
            a = topics.alpha + a * ((c / (Y @ a)) @ Y)
        theta[d] = a / a.sum()
    return theta


def likelihood(topics: Topics, X: Any, theta: Any) -> Floats:
    """[D] Σ_w c_w ln Σ_k θ_dk φ_kw."""
    phi, found = phi_of(topics), np.zeros(X.shape[0])
    for d in range(X.shape[0]):
        at = slice(X.indptr[d], X.indptr[d + 1])
        found[d] = X.data[at] @ np.log(phi[X.indices[at]] @ np.asarray(theta[d], float))
    return found


def height(topics: Topics, X: Any, theta: Any) -> Floats:
    """[D] of what the shares are the maximum of: Σ_w c_w ln Σ_k θ_k φ_wk + Σ_k α_k ln θ_k."""
    return np.asarray(likelihood(topics, X, theta) + np.log(np.asarray(theta, float)) @ topics.alpha)


@settings(max_examples=25)
@given(
    K=st.integers(1, 40),
    V=st.integers(2, 60),
    D=st.integers(1, 12),
    dense=st.booleans(),
    wide=st.booleans(),
    kind=st.sampled_from(["i4", "i8", "f4", "f8"]),
    seed=st.integers(0, 99),
)
def test_shares_are_the_fixed_point(K: int, V: int, D: int, dense: bool, wide: bool, kind: str, seed: int) -> None:
    topics = made(K, V, seed)
    X = some(topics, D, seed)
    X = scipy.sparse.csr_array((X.data.astype(kind), X.indices, X.indptr), X.shape)
    if wide:
        topics = dataclasses.replace(topics, count=topics.count.astype(f4))  # as averaged counts are
        X.indices, X.indptr = X.indices.astype(np.int64), X.indptr.astype(np.int64)
    with pytest.MonkeyPatch.context() as patch, Serial().open() as crew:
        patch.setattr(infer, "DENSE_TOPICS", 256 if dense else 0)
        inferrer = Inferrer.of(topics, crew)
        theta = inferrer.shares(X, passes=400, tol=0.0, crew=crew)
        value = inferrer.log_likelihood(X, theta, crew=crew)
    assert theta.dtype == np.float32
    np.testing.assert_allclose(theta.sum(1), 1.0, atol=1e-5)
    # This few topics are all active in sparse rows, too. The maximum may be flat: what is compared is its height.
    exact = fixed_point(topics, X)
    np.testing.assert_allclose(theta, exact, atol=5e-3)
    np.testing.assert_allclose(height(topics, X, theta), height(topics, X, exact), rtol=1e-6, atol=1e-4)
    np.testing.assert_allclose(value, likelihood(topics, X, theta), rtol=1e-5, atol=1e-5)


def test_few_active_topics_are_as_likely_as_all(crew: Crew) -> None:
    topics = made(1500, 400, 2, per_word=60)
    whole = some(topics, 60, 3, tokens=120)
    random = np.random.default_rng(0)
    seen = random.binomial(whole.data, 0.5)
    observed = scipy.sparse.csr_array((seen, whole.indices.copy(), whole.indptr.copy()), whole.shape)
    held = scipy.sparse.csr_array((whole.data - seen, whole.indices.copy(), whole.indptr.copy()), whole.shape)
    inferrer = Inferrer.of(topics, crew)
    assert inferrer.trained is not None
    found, tokens = inferrer.completion(observed, held, crew=crew)
    assert tokens == held.sum()
    exact = likelihood(topics, held, fixed_point(topics, observed, 200)).sum()
    assert abs(found - exact) < 1e-3 * abs(exact)
    prior = likelihood(topics, held, np.tile(topics.alpha / topics.alpha.sum(), (60, 1))).sum()
    assert prior < 1.02 * exact  # or anything would have passed


def test_long_documents_use_every_topic(crew: Crew, monkeypatch: pytest.MonkeyPatch) -> None:
    topics = made(300, 2500, 4)
    X = scipy.sparse.csr_array(np.random.default_rng(5).poisson(3.0, (3, 2500)))
    assert np.diff(X.indptr).min() > infer_sparse.LONG
    theta = Inferrer.of(topics, crew).shares(X, passes=100, tol=0.0, crew=crew)
    np.testing.assert_allclose(theta, fixed_point(topics, X, 300), atol=1e-4)
    monkeypatch.setattr(infer, "DENSE_TOPICS", 10**6)
    dense = Inferrer.of(topics, crew).shares(X, passes=100, tol=0.0, crew=crew)
    np.testing.assert_allclose(theta, dense, atol=1e-4)


def test_bits_do_not_depend_on_threads(rows: str) -> None:
    topics = made(70, 500, 6)
    X = some(topics, 900, 7)
    seen = set()
    for runtime in (Serial(), Threads(1), Threads(2), Threads(3)):
        with runtime.open() as crew:
            inferrer = Inferrer.of(topics, crew)
            theta = inferrer.shares(X, crew=crew)
            seen.add((theta.tobytes(), inferrer.log_likelihood(X, theta, crew=crew).tobytes()))
    assert len(inferrer.documents(X).bounds()) > 3  # several visits, or there would be nothing to share
    assert len(seen) == 1


def test_a_document_does_not_depend_on_its_company(crew: Crew, rows: str) -> None:
    topics = made(50, 300, 8)
    X = some(topics, 40, 9)
    inferrer = Inferrer.of(topics, crew)
    together = inferrer.shares(X, crew=crew)
    for d in (0, 1, 17, 39):
        assert inferrer.shares(X[[d]], crew=crew).tobytes() == together[d].tobytes()


def test_empty_documents_have_the_prior(crew: Crew, rows: str) -> None:
    topics = made(20, 30)
    X = scipy.sparse.csr_array(([0, 0], [3, 5], [0, 0, 2]), (2, 30))  # nothing stored; zeros stored
    inferrer = Inferrer.of(topics, crew)
    theta = inferrer.shares(X, crew=crew)
    np.testing.assert_allclose(theta, np.tile(topics.alpha / topics.alpha.sum(), (2, 1)), rtol=1e-6)
    assert inferrer.log_likelihood(X, theta, crew=crew).tolist() == [0.0, 0.0]
    assert inferrer.shares(X[:0], crew=crew).shape == (0, 20)
    assert inferrer.log_likelihood(X[:0], crew=crew).shape == (0,)


def test_a_word_that_never_occurred_says_little(crew: Crew, rows: str) -> None:
    topics = made(20, 30, skewed=False)
    X = scipy.sparse.csr_array(([1], [29], [0, 1]), (1, 30))
    theta = Inferrer.of(topics, crew).shares(X, passes=200, tol=0.0, crew=crew)
    assert theta.sum() == pytest.approx(1.0)
    np.testing.assert_allclose(theta, fixed_point(topics, X, 3000), atol=1e-3)


def test_words_that_none_of_many_topics_has(crew: Crew) -> None:
    # No topic is active then, and the one pass from the prior is the answer.
    topics = made(400, 30)
    X = scipy.sparse.csr_array(([3], [29], [0, 1]), (1, 30))
    theta = Inferrer.of(topics, crew).shares(X, crew=crew)
    np.testing.assert_allclose(theta, fixed_point(topics, X, 1), rtol=1e-4)


def test_counts_weigh_and_repeats_add_up(crew: Crew, rows: str) -> None:
    topics = made(30, 40)
    inferrer = Inferrer.of(topics, crew)
    once = scipy.sparse.csr_array(([2.0, 3.0, 1.5], [4, 7, 9], [0, 3]), (1, 40))
    again = scipy.sparse.csr_array(([2.0, 1.0, 2.0, 1.5], [4, 7, 7, 9], [0, 4]), (1, 40))
    a, b = (inferrer.shares(X, passes=200, tol=0.0, crew=crew) for X in (once, again))
    np.testing.assert_allclose(a, b, atol=1e-5)
    other = scipy.sparse.csr_array(([2.0, 30.0, 1.5], [4, 7, 9], [0, 3]), (1, 40))
    assert np.abs(a - inferrer.shares(other, passes=200, tol=0.0, crew=crew)).sum() > 0.05


def test_ten_thousand_topics_and_equal_scores(crew: Crew) -> None:
    # One word that every topic has as often as any other: more equals than may be active.
    K = 10_000
    topics = Topics(
        np.array([0, K, K + 2]),
        np.append(np.arange(K), [5, 9]).astype(np.int32),
        np.append(np.full(K, 3), [50, 70]).astype(np.int32),
        np.full(K, 100.0),
        np.full(K, 0.01),
        0.01,
    )
    inferrer = Inferrer.of(topics, crew)
    theta = inferrer.shares(scipy.sparse.csr_array([[4, 0], [4, 9], [0, 9]]), crew=crew)
    np.testing.assert_allclose(theta.sum(1), 1.0, atol=1e-4)
    assert theta[0].max() < 20 * theta[0].min()
    assert sorted(np.argsort(-theta[1])[:2]) == sorted(np.argsort(-theta[2])[:2]) == [5, 9]


@settings(max_examples=40)
@given(
    values=st.lists(st.sampled_from([0.0, 0.0, 1e-30, 0.25, 0.5, 0.5, 1.0, 3e8]), min_size=1, max_size=90),
    most=st.integers(17, 60),
)
@example(values=[0.5] * 80, most=30)
@example(values=[0.0] * 20 + [0.5] * 50 + [1.0] * 5, most=40)
def test_the_highest_scores_are_chosen(values: list[float], most: int) -> None:
    K = len(values)
    score, slot, chosen = np.array(values, f4).view(np.int32), np.zeros(K + 16, np.int32), np.zeros(K + 16, np.int32)
    count = infer_sparse._choose(score, K, min(K, most), slot, chosen)
    positive = int((score > 0).sum())
    if positive <= most:
        assert count == (K if most >= K else positive)
    else:
        assert most - 16 < count <= most
    picked = chosen[:count]
    assert len(set(picked)) == count
    others = np.setdiff1d(np.arange(K), picked)
    assert all(score[p] >= score[o] for p, o in itertools.product(picked, others))
    wide = -(-count // 16) * 16
    assert slot[picked].tolist() == list(range(count))
    assert (slot[others] == wide).all()


def test_passes_and_tolerance(crew: Crew, rows: str) -> None:
    topics = made(60, 300, 10)
    X = some(topics, 50, 11)
    inferrer = Inferrer.of(topics, crew)
    exact = inferrer.shares(X, passes=500, tol=0.0, crew=crew)
    away, work = [], []
    for passes, tol in ((1, 0.0), (3, 0.0), (30, 1e-2), (300, 1e-4)):
        theta, spent = inferrer.measured_shares(X, passes=passes, tol=tol, crew=crew)
        away.append(np.abs(theta - exact).sum(1).mean())
        work.append(spent / X.sum())
    assert away == sorted(away, reverse=True)
    assert away[-1] < 1e-3
    assert away[0] > 0.1
    assert work[:2] == pytest.approx([1.0, 3.0])
    assert 3.0 < work[2] < 25.0
    assert work[2] < work[3]


def test_refused(crew: Crew) -> None:
    topics = made(20, 30)
    inferrer = Inferrer.of(topics, crew)
    X = some(topics, 4)
    with pytest.raises(DataError, match="31 words and the topics 30"):
        inferrer.shares(scipy.sparse.csr_array((4, 31)), crew=crew)
    with pytest.raises(DataError, match="CSR"):
        inferrer.shares(X.toarray(), crew=crew)
    for wrong in (-1.0, np.nan, np.inf):
        bad = X.astype(float)
        bad.data[2] = wrong
        with pytest.raises(DataError, match="negative or not finite"):
            inferrer.shares(bad, crew=crew)
    broken = X.copy()
    broken.indices[0] = 30
    with pytest.raises(DataError, match="outside 0 … 29"):
        inferrer.shares(broken, crew=crew)
    with pytest.raises(DataError, match=r"need \(4, 20\)"):
        inferrer.log_likelihood(X, np.ones((3, 20)), crew=crew)
    with pytest.raises(DataError, match="same documents"):
        inferrer.completion(X, X[:2], crew=crew)
    for passes, tol, name in ((0, 0.1, "passes"), (5, -1.0, "tol")):
        with pytest.raises(PlanError, match=name):
            inferrer.shares(X, passes=passes, tol=tol, crew=crew)
    with pytest.raises(DataError, match="priors above 0"):
        Inferrer.of(dataclasses.replace(topics, beta=0.0), crew)
