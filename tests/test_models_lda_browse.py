"""What the topic browser is filled with: the right words, documents and numbers, in bounded steps."""

from __future__ import annotations

import numpy as np
import pytest

import stretto as st
from stretto.data.generate.corpus import corpus
from stretto.models.topics import browse as lda_browse
from stretto.models.topics.browse import browse
from stretto.models.topics.input import Corpus, as_corpus


@pytest.fixture(scope="module")
def documents() -> Corpus:
    names = [f"w{w}" for w in range(80)]
    return as_corpus(corpus(150, 80, 4, 40, beta=0.5, seed=2).data, seed=0, vocabulary=names)


@pytest.fixture(scope="module")
def model(documents: Corpus) -> st.LatentDirichletAllocation:
    model = st.LatentDirichletAllocation(5, max_iter=12, optimize_every=4, burn_in=2, random_state=0, evaluate_every=4)
    model.fit(documents.data, vocabulary=documents.vocabulary)
    return model


def test_words_and_weights_are_the_models(model: st.LatentDirichletAllocation) -> None:
    view = browse(model, words=6)
    assert view.words == model.top_words(n=6)
    likely = model.components_ / model.components_.sum(axis=1, keepdims=True)
    place = {f"w{w}": w for w in range(80)}
    for k, row in enumerate(view.words):
        np.testing.assert_allclose(view.weights[k], likely[k, [place[word] for word in row]], rtol=1e-5)
    np.testing.assert_array_equal(view.tokens, np.rint(model.topic_tokens_))  # of averaged states
    assert [epoch for epoch, _ in view.history] == [1, 4, 6, 8, 10, 12]  # 6 and 10: priors were learned then
    assert view.coherence is None
    assert view.shares.shape == (5, 0)


def test_likeness_is_worked_out_unless_there_are_very_many(
    model: st.LatentDirichletAllocation, monkeypatch: pytest.MonkeyPatch
) -> None:
    view = browse(model, similar=3)
    roots = np.sqrt(model.topics_.counts() / model.topic_tokens_[:, None])
    affinity = roots @ roots.T - 2 * np.eye(5)
    np.testing.assert_array_equal(view.similar, np.argsort(-affinity, axis=1)[:, :3])
    np.testing.assert_allclose(view.similarity, np.sort(affinity, axis=1)[:, ::-1][:, :3], rtol=1e-5)
    monkeypatch.setattr(lda_browse, "MOST_ALIKE", 4)
    assert browse(model).similar.shape == (5, 0)


@pytest.mark.parametrize("at_once", [40, 1000])
def test_documents_with_most_of_a_topic(
    at_once: int, model: st.LatentDirichletAllocation, documents: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lda_browse, "_SHARES", 4 * 5 * at_once)
    view = browse(model, documents, documents=4)
    shares = model.transform(documents.data)
    for k in range(5):
        best = np.argsort(-shares[:, k], kind="stable")[:4]
        assert view.documents[k] == [f"document {d}" for d in best]
        np.testing.assert_array_equal(view.shares[k], shares[best, k])
    assert view.coherence is not None
    np.testing.assert_allclose(view.coherence, model.coherence(documents.data), rtol=1e-6)


def test_of_many_documents_some_are_looked_at(
    model: st.LatentDirichletAllocation, documents: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lda_browse, "LOOKED", 50)
    view = browse(model, documents, documents=50)
    assert view.facts["documents"] == "150"
    assert view.facts["documents evaluated"] == "50, spread evenly"
    assert sorted(int(name.split()[1]) for name in view.documents[0]) == list(range(0, 150, 3))


def test_a_topic_without_tokens_has_no_words() -> None:
    X = np.array([[5, 0], [4, 0], [0, 3]])
    model = st.LatentDirichletAllocation(20, max_iter=5, doc_topic_prior=0.01, random_state=0).fit(X)
    view = browse(model, as_corpus(X, seed=0))
    empty = np.flatnonzero(model.topic_tokens_ == 0)
    assert len(empty)
    assert all(view.words[k] == [] for k in empty)
    assert view.coherence is not None
    assert np.isnan(view.coherence[empty]).all()
    assert len(view.documents[0]) == 3
