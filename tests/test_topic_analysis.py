"""Looking at topics: similarity, map, names, merging, matching and shares over time, each beside a plain reference."""

from __future__ import annotations

import datetime
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.cluster.hierarchy as scipy_hierarchy
from numpy.typing import NDArray
from scipy.special import rel_entr

import stretto as st
from stretto.data.generate.corpus import corpus
from stretto.errors import DataError, PlanError
from stretto.models.topics.analysis.topic_map import classical_scaling, places
from stretto.models.topics.summary import affinities
from stretto.models.topics.topics import Topics

NASTY = '</script><img src=x onerror="window.ran = 1">\'&'


def topics_of(counts: Any, alpha: Any = 0.5) -> Topics:
    """Topics with these counts [K, V]."""
    from scipy.sparse import csr_array

    by_word = csr_array(np.asarray(counts).T)
    K = by_word.shape[1]
    return Topics(
        by_word.indptr.astype(np.int64), by_word.indices.astype(np.int32), by_word.data,
        np.asarray(counts, np.float64).sum(axis=1), np.full(K, alpha, np.float64), 0.01,
    )  # fmt: skip


def model_of(counts: Any, vocabulary: list[str] | None = None) -> st.LatentDirichletAllocation:
    """A fitted model with these counts [K, V]."""
    model = st.LatentDirichletAllocation(len(counts), n_jobs=1)
    fitted: dict[str, Any] = {"topics_": topics_of(counts), "n_features_in_": len(counts[0]), "vocabulary_": vocabulary}
    fitted |= {"history_": [], "n_iter_": 1, "fingerprint_": "0", "seed_names_": None, "text_options_": None}
    for name, value in fitted.items():
        setattr(model, name, value)
    return model


def random_counts(topics: int, words: int, seed: int = 0) -> NDArray[np.int32]:
    rng = np.random.default_rng(seed)
    shares = rng.dirichlet(np.full(words, 0.1), topics)
    found: NDArray[np.int32] = rng.poisson(shares * rng.uniform(50, 2000, topics)[:, None]).astype(np.int32)
    return found


def affinity_of(counts: Any) -> NDArray[np.float64]:
    shares = np.asarray(counts, np.float64) / np.asarray(counts).sum(axis=1, keepdims=True)
    found: NDArray[np.float64] = np.sqrt(shares) @ np.sqrt(shares).T
    return found


@pytest.fixture(scope="module")
def fitted() -> st.LatentDirichletAllocation:
    X = corpus(150, 80, 4, 40, beta=0.5, seed=2).data
    words = [f"w{w}" for w in range(80)]
    model = st.LatentDirichletAllocation(8, max_iter=12, random_state=0, n_jobs=2)
    model.fit(X, vocabulary=words)
    return model


DOCUMENTS = corpus(150, 80, 4, 40, beta=0.5, seed=2).data


# --- similarity and the map ------------------------------------------------------------


@pytest.mark.parametrize("topics", [1, 7, 40])
def test_similarities_are_hellinger_affinities_at_any_number_of_threads(topics: int) -> None:
    counts = random_counts(topics, 300)
    found = []
    for threads in (1, 2, 4):
        with st.Threads(threads).open() as crew:
            found.append(affinities(topics_of(counts).by_topic(), crew))
    np.testing.assert_allclose(found[0], affinity_of(counts), atol=1e-12)
    assert np.array_equal(found[0], found[1])
    assert np.array_equal(found[0], found[2])


def test_points_of_the_plane_are_found_again() -> None:
    points = np.random.default_rng(1).normal(size=(9, 2))
    squared = ((points[:, None] - points[None]) ** 2).sum(axis=2)
    found = classical_scaling(squared)
    np.testing.assert_allclose(((found[:, None] - found[None]) ** 2).sum(axis=2), squared, atol=1e-10)
    assert (found[np.abs(found).argmax(axis=0), [0, 1]] > 0).all()
    assert np.ptp(found[:, 0]) > np.ptp(found[:, 1]) or found[:, 0].std() >= found[:, 1].std()


def test_the_map_is_scikit_learns_classical_scaling() -> None:
    manifold = pytest.importorskip("sklearn.manifold")
    alike = affinity_of(random_counts(12, 60))
    distance = np.sqrt(np.maximum(0, 1 - alike))
    np.fill_diagonal(distance, 0)
    reference = manifold.ClassicalMDS(n_components=2, metric="precomputed").fit_transform(distance)
    found = places(alike)
    signs = np.sign((reference * found).sum(axis=0))
    np.testing.assert_allclose(found, reference * signs, atol=1e-9)


def test_the_map_of_few_or_equal_topics() -> None:
    assert places(np.ones((1, 1))).tolist() == [[0.0, 0.0]]
    assert places(np.ones((3, 3))).tolist() == [[0.0, 0.0]] * 3
    two = places(np.array([[1.0, 0.5], [0.5, 1.0]]))
    np.testing.assert_allclose(two, [[np.sqrt(0.5) / 2, 0], [-np.sqrt(0.5) / 2, 0]], atol=1e-12)


# --- names ------------------------------------------------------------


def test_names_are_the_most_relevant_words_that_are_mostly_the_topics_own() -> None:
    words = ["the", "cat", "dog", "price", "market", "tea"]
    counts = [[90, 70, 65, 0, 1, 0], [80, 0, 1, 60, 30, 0], [10, 0, 0, 2, 0, 0], [0, 0, 0, 0, 0, 0]]
    model = model_of(counts, words)
    assert model.topic_names(2) == ["cat, dog", "price, market", "topic 2", "topic 3"]
    # By probability alone the common word comes first, where most of its tokens are.
    assert model.topic_names(2, weight=1.0) == ["the, cat", "price, market", "topic 2", "topic 3"]
    assert model_of(counts).topic_names(1) == ["1", "3", "topic 2", "topic 3"]
    with pytest.raises(PlanError, match="weight"):
        model.topic_names(weight=2.0)


def test_the_browser_has_the_words_of_every_relevance(fitted: st.LatentDirichletAllocation) -> None:
    relevant = fitted.browse(words=5).view.relevant
    assert relevant is not None
    counts = fitted.topics_.counts().astype(np.float64)
    p, share = counts / counts.sum(axis=1, keepdims=True), counts.sum(axis=0) / counts.sum()
    for k, listed in enumerate(relevant):
        probable = np.argsort(-p[k], kind="stable")[:40]
        probable = probable[p[k, probable] > 0]
        given = {int(word[1:]): (likely, overall) for word, likely, overall in listed}
        for weight in (0.0, 0.3, 1.0):
            score = np.log(p[k, probable]) - (1 - weight) * np.log(share[probable])
            assert set(probable[np.argsort(-score, kind="stable")[:5]].tolist()) <= given.keys()
        for w, values in given.items():
            np.testing.assert_allclose(values, (p[k, w], share[w]), rtol=1e-6)


def test_no_word_is_in_two_names(fitted: st.LatentDirichletAllocation) -> None:
    found = [word for name in fitted.topic_names(4) if not name.startswith("topic ") for word in name.split(", ")]
    assert len(found) == len(set(found)) > 8
    counts = fitted.topics_.counts()
    for k, name in enumerate(fitted.topic_names(1)):
        if not name.startswith("topic "):
            assert counts[:, int(name[1:])].argmax() == k


# --- merging ------------------------------------------------------------


def loss(a: Any, b: Any) -> float:
    """(n_a + n_b) · JS(a, b), by relative entropies."""
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    m, n = a.sum(), b.sum()
    if not m or not n:
        return 0.0
    mean = (a + b) / (m + n)
    return float(m * rel_entr(a / m, mean).sum() + n * rel_entr(b / n, mean).sum())


def merged_by_hand(counts: Any) -> tuple[list[set[int]], list[float], list[list[set[int]]]]:
    """The clusters made, their losses, and all clusters after each merge, by trying every pair every time."""
    alive = {k: ({k}, np.asarray(row, np.float64)) for k, row in enumerate(counts)}
    made, losses, after = [], [], []
    while len(alive) > 1:
        pairs = [(loss(alive[a][1], alive[b][1]), a, b) for a in alive for b in alive if a < b]
        least, a, b = min(pairs)
        alive[a] = alive[a][0] | alive[b][0], alive[a][1] + alive[b][1]
        del alive[b]
        made.append(alive[a][0])
        losses.append(least)
        after.append([members for members, _ in alive.values()])
    return made, losses, after


def test_topics_merge_as_by_trying_every_pair() -> None:
    counts = random_counts(14, 90, seed=3)
    counts[5] = 0
    tokens = counts.sum()
    found = model_of(counts).hierarchy()
    made, losses, after = merged_by_hand(counts)
    np.testing.assert_allclose(found.losses * tokens, losses, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(found.linkage[:, 2], np.cumsum(found.losses), rtol=1e-12)
    assert found.linkage[:, 3].tolist() == [len(members) for members in made]
    for n in range(1, 15):
        labels = found.labels(n)
        groups = [set(np.flatnonzero(labels == label).tolist()) for label in range(n)]
        assert sorted(map(sorted, groups)) == sorted(map(sorted, after[13 - n] if n < 14 else [{k} for k in range(14)]))
        assert [min(group) for group in groups] == sorted(min(group) for group in groups)
    # In all, merging loses what topics say about words: their mutual information.
    joint = counts / tokens
    information = rel_entr(joint, joint.sum(axis=1, keepdims=True) * joint.sum(axis=0)).sum()
    assert found.losses.sum() == pytest.approx(information, rel=1e-9)


def test_the_linkage_is_scipys(fitted: st.LatentDirichletAllocation) -> None:
    found = fitted.hierarchy()
    assert scipy_hierarchy.is_valid_linkage(found.linkage)
    for n in (1, 3, 8):
        ours, theirs = found.labels(n), scipy_hierarchy.fcluster(found.linkage, n, "maxclust")
        assert len(set(zip(ours.tolist(), theirs.tolist(), strict=True))) == n == len(set(theirs.tolist()))
    for threads in (1, 4):
        again = fitted.set_params(n_jobs=threads).hierarchy()
        assert np.array_equal(again.linkage, found.linkage)
    with pytest.raises(PlanError, match="n must be"):
        found.labels(9)


def test_a_merged_model_is_a_model(fitted: st.LatentDirichletAllocation, tmp_path: Path) -> None:
    model = fitted.merge_topics(3)
    labels = fitted.hierarchy().labels(3)
    counts = fitted.topics_.counts()
    by_hand = np.array([counts[labels == k].sum(axis=0) for k in range(3)])
    np.testing.assert_allclose(model.topics_.counts(), by_hand, rtol=1e-6)
    np.testing.assert_allclose(model.topic_tokens_, by_hand.sum(axis=1), rtol=1e-6)
    assert model.doc_topic_prior_.sum() == pytest.approx(fitted.doc_topic_prior_.sum())
    assert model.n_components == 3
    assert model.transform(DOCUMENTS).shape == (150, 3)
    assert fitted.perplexity(DOCUMENTS) < model.perplexity(DOCUMENTS) < fitted.merge_topics(1).perplexity(DOCUMENTS)
    assert [len(row) for row in model.top_words(n=5)] == [5, 5, 5]
    model.save(tmp_path / "m.safetensors")
    again = st.LatentDirichletAllocation.load(tmp_path / "m.safetensors")
    assert np.array_equal(again.components_, model.components_)
    assert np.array_equal(fitted.merge_topics(8).components_, fitted.components_)
    assert fitted.merge_topics(2, labels=[0] * 7 + [1]).topic_tokens_[1] == pytest.approx(fitted.topic_tokens_[7])
    with pytest.raises(DataError, match="labels must have"):
        fitted.merge_topics(3, labels=[0] * 7 + [1])
    fitted_with = st.LatentDirichletAllocation(4, doc_topic_prior=[1, 2, 3, 4.0], max_iter=3, random_state=0)
    assert len(fitted_with.fit(DOCUMENTS).merge_topics(2).doc_topic_prior) == 2


# --- matching ------------------------------------------------------------


def test_topics_are_matched_as_by_trying_every_pairing() -> None:
    one, other = random_counts(5, 60, seed=1), random_counts(6, 60, seed=2)
    found = model_of(one).match(model_of(other))
    roots = [np.sqrt(c / c.sum(axis=1, keepdims=True)) for c in (one, other)]
    alike = roots[0] @ roots[1].T
    best = max(permutations(range(6), 5), key=lambda order: sum(alike[k, j] for k, j in enumerate(order)))
    assert found.topics.tolist() == list(best)
    np.testing.assert_allclose(found.similarity, alike[np.arange(5), list(best)], rtol=1e-9)
    np.testing.assert_allclose(found.affinity, alike, rtol=1e-9, atol=1e-12)
    back = model_of(other).match(model_of(one))
    assert (back.topics == -1).sum() == 1
    assert back.mean == pytest.approx(found.mean)


def test_models_are_matched_by_the_names_of_their_words() -> None:
    counts, order = random_counts(4, 30), np.random.default_rng(0).permutation(30)
    names = [f"w{w}" for w in range(30)]
    one = model_of(counts, names)
    other = model_of(counts[[2, 0, 3, 1]][:, order], [names[w] for w in order])
    found = one.match(other)
    assert found.topics.tolist() == [1, 3, 0, 2]
    np.testing.assert_allclose(found.similarity, 1.0, rtol=1e-12)
    with pytest.raises(DataError, match="29 and 30 words"):
        model_of(counts).match(model_of(counts[:, 1:]))
    with pytest.raises(DataError, match="give a fitted LatentDirichletAllocation"):
        one.match("another")


# --- shares over time ------------------------------------------------------------


def dates(n: int = 150) -> NDArray[np.datetime64]:
    days = np.random.default_rng(5).integers(0, 400, n)
    found: NDArray[np.datetime64] = np.datetime64("2023-11-20") + days.astype("m8[D]")
    return found


@pytest.mark.parametrize(
    ("freq", "rule"), [("day", "D"), ("week", "W-SUN"), ("month", "M"), ("quarter", "Q"), ("year", "Y")]
)
def test_shares_of_periods_are_those_of_pandas(fitted: st.LatentDirichletAllocation, freq: str, rule: str) -> None:
    pandas = pytest.importorskip("pandas")
    theta = fitted.transform(DOCUMENTS)
    found = fitted.topic_shares(DOCUMENTS, by=dates(), freq=freq)
    groups = pandas.DataFrame(theta.astype(np.float64)).groupby(pandas.PeriodIndex(dates(), freq=rule))
    every = pandas.period_range(groups.mean().index.min(), groups.mean().index.max(), freq=rule)
    mean, spread, count = (frame.reindex(every) for frame in (groups.mean(), groups.std(ddof=1), groups.count()))
    assert len(found.periods) == len(every)
    assert found.periods[0].startswith(str(every[0].start_time.date())[:4])
    if freq == "week":
        assert found.periods == [str(period.start_time.date()) for period in every]
    if freq in {"day", "month", "year"}:
        assert found.periods == [str(period) for period in every]
    np.testing.assert_allclose(found.shares, mean, rtol=1e-9)
    assert found.documents.tolist() == count[0].fillna(0).astype(int).tolist()
    half = 1.959963984540054 * spread / np.sqrt(count)
    np.testing.assert_allclose(found.low, np.clip(mean - half, 0, 1), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(found.high, np.clip(mean + half, 0, 1), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(np.nansum(found.shares, axis=1)[found.documents > 0], 1, rtol=1e-5)


def test_dates_come_in_many_forms(fitted: st.LatentDirichletAllocation) -> None:
    theta = fitted.transform(DOCUMENTS)[:4]
    text = ["2024-01-31", "", "2024-03-01T12:00:00", "2024-03-09"]
    objects = [datetime.date(2024, 1, 31), None, datetime.datetime(2024, 3, 1, 12), datetime.date(2024, 3, 9)]
    stamps = np.array(["2024-01-31", "NaT", "2024-03-01", "2024-03-09"], "M8[s]")
    for by in (text, objects, stamps):
        found = fitted.topic_shares(shares=theta, by=by, freq="month")
        assert found.periods == ["2024-01", "2024-02", "2024-03"]
        assert found.documents.tolist() == [1, 0, 2]
        assert found.left_out == 1
        assert np.isnan(found.shares[1]).all()
        assert np.isnan(found.low[0]).all()
        np.testing.assert_allclose(found.shares[2], theta[2:].mean(axis=0), rtol=1e-6)
    assert fitted.topic_shares(shares=theta, by=text, freq="quarter").periods == ["2024-Q1"]


def test_groups_are_labels(fitted: st.LatentDirichletAllocation, tmp_path: Path) -> None:
    theta = fitted.transform(DOCUMENTS)
    by = ["red", "blue", "green"] * 50
    found = fitted.topic_shares(shares=theta, by=by)
    assert found.periods == ["blue", "green", "red"]
    np.testing.assert_allclose(found.shares[0], theta[1::3].mean(axis=0), rtol=1e-5)
    assert fitted.topic_shares(shares=theta, by=[3, 10, 1] * 50).periods == ["1", "3", "10"]
    frame = found.to_frame()
    assert list(frame.columns) == ["period", "topic", "name", "share", "low", "high", "documents"]
    assert len(frame) == 3 * 8
    assert set(frame["name"]) == set(fitted.topic_names())
    assert found.largest(8) == np.argsort(-theta.mean(axis=0), kind="stable").tolist()
    found.plot(tmp_path / "shares.png", topics=[1, 0])
    assert (tmp_path / "shares.png").stat().st_size > 5000
    found.write(tmp_path / "shares.csv")
    assert (tmp_path / "shares.csv").read_text().count("\n") == 25
    with pytest.raises(DataError, match="name 1 to 6 topics, from 0 to 7"):
        found.plot(tmp_path / "x.png", topics=[8])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"by": ["2024-01-01"], "freq": "month"}, r"by has shape \[1\] for 4 documents"),
        ({"by": ["2024-01-01", "soon", "", ""], "freq": "month"}, r"by\[1\] is 'soon', not a date"),
        ({"by": [""] * 4, "freq": "month"}, "by holds no date"),
        ({"by": ["2024-01-01", "0001-01-01", "", ""], "freq": "day"}, "periods by day"),
        ({"by": [1.0, np.nan, 2.0, 3.0]}, "by holds NaN"),
        ({"by": [1, 2, 3, 4], "shares": np.zeros((4, 7))}, r"shares has shape \[4, 7\]"),
        ({"by": [1, 2, 3, 4], "X": np.ones((4, 80))}, "either the documents"),
    ],
)
def test_wrong_dates_are_refused(fitted: st.LatentDirichletAllocation, given: dict[str, Any], message: str) -> None:
    theta = np.full((4, 8), 1 / 8)
    with pytest.raises(DataError, match=message):
        fitted.topic_shares(**{"shares": theta, **given})


# --- the browser in a notebook ------------------------------------------------------------


def test_a_notebook_shows_the_browser_in_a_frame_of_its_own(tmp_path: Path) -> None:
    from html.parser import HTMLParser

    model = model_of([[5, 3, 1], [0, 2, 9]], [NASTY, "b", "c"])
    shown = model.browse(title=NASTY)
    seen: list[tuple[str, dict[str, str | None]]] = []

    class Tags(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            seen.append((tag, dict(attrs)))

    Tags().feed(shown._repr_html_())
    assert [tag for tag, _ in seen] == ["iframe"]
    frame = seen[0][1]
    assert frame["sandbox"] == "allow-scripts"
    assert NASTY in str(frame["title"])
    assert str(frame["srcdoc"]).encode() == shown.save(tmp_path / "t.html").read_bytes()
    assert "2 topics" in repr(shown)


def test_the_browser_has_documents_names_and_the_map(fitted: st.LatentDirichletAllocation) -> None:
    view = fitted.browse(DOCUMENTS, words=7, documents=3).view
    assert view.names == fitted.topic_names()
    assert [len(row) for row in view.documents] == [3] * 8
    assert view.places is not None
    counts = fitted.topics_.counts()
    np.testing.assert_allclose(view.places, places(affinity_of(counts)), atol=1e-6)
