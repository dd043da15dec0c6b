"""Topic models of text: what `st.read_text` returns is fitted, and new text is counted in the same words."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.pipeline import make_pipeline

import stretto as st
from stretto.errors import DataError
from stretto.models.topics.input import UnknownWordsWarning

WORDS = [["game", "team", "score", "coach"], ["gene", "dna", "cell", "virus"], ["court", "judge", "law", "jury"]]


def texts(documents: int = 90, seed: int = 0) -> list[str]:
    draw = random.Random(seed)
    return [" ".join(draw.choices(WORDS[k % 3], k=20)).capitalize() + "." for k in range(documents)]


def fitted(**more: Any) -> st.LatentDirichletAllocation:
    given: dict[str, Any] = {"max_iter": 20, "random_state": 0, "doc_topic_prior": 0.1} | more
    model = st.LatentDirichletAllocation(3, **given)
    model.fit(st.read_text(texts(), ngram_range=(1, 2), min_df=2))
    return model


def test_text_is_fitted_and_new_text_is_counted_alike(tmp_path: Path) -> None:
    model = fitted()
    assert model.vocabulary_ == st.read_text(texts(), ngram_range=(1, 2), min_df=2).vocabulary
    vectorizer = CountVectorizer(ngram_range=(1, 2), min_df=2)
    same = st.LatentDirichletAllocation(3, max_iter=20, random_state=0, doc_topic_prior=0.1)
    same.fit(vectorizer.fit_transform(texts()), vocabulary=vectorizer.get_feature_names_out())
    assert np.array_equal(same.components_, model.components_)
    new = [*texts(6, seed=1), "", "nothing of this is known"]
    expected = same.transform(vectorizer.transform(new))
    model.save(tmp_path / "model.safetensors")
    again = st.LatentDirichletAllocation.load(tmp_path / "model.safetensors")
    for one in (model, again):
        assert np.array_equal(one.transform(new), expected)
        assert np.array_equal(one.transform(np.array(new)), expected)
        assert np.array_equal(one.transform(st.read_text(new, like=one)), expected)
        assert one.perplexity(new) == same.perplexity(vectorizer.transform(new))
        assert one.score(new) == same.score(vectorizer.transform(new))
    assert expected[:6].argmax(axis=1).tolist() == [expected[k].argmax() for k in (0, 1, 2)] * 2
    counts = st.read_text(new)
    with pytest.warns(UnknownWordsWarning, match="not in the vocabulary"):
        shares = model.transform(counts)
    assert np.array_equal(shares[6:], expected[6:])


def test_the_vectorizer_of_scikit_learn_works_in_a_pipeline() -> None:
    model = make_pipeline(CountVectorizer(), st.LatentDirichletAllocation(3, max_iter=5, random_state=0))
    shares = model.fit_transform(texts())
    assert shares.shape == (90, 3)
    assert model.get_feature_names_out().tolist() == [f"latentdirichletallocation{k}" for k in range(3)]
    direct = st.LatentDirichletAllocation(3, max_iter=5, random_state=0).fit(st.read_text(texts()))
    assert np.array_equal(direct.transform(texts()), shares)


def test_the_number_of_threads_and_the_place_change_no_bit() -> None:
    one = fitted(n_jobs=1, max_iter=4)
    places: list[dict[str, Any]] = [{"n_jobs": 2}, {"n_jobs": 4}, {"memory": "64MB"}]
    for more in places:
        other = fitted(max_iter=4, **more)
        assert other.fingerprint_ == one.fingerprint_
        assert np.array_equal(other.components_, one.components_)


def test_more_text_is_learned_in_the_words_of_the_first() -> None:
    model = st.LatentDirichletAllocation(3, random_state=0).partial_fit(st.read_text(texts()))
    model.partial_fit(texts(30, seed=2))
    assert model.topic_tokens_.sum() == 90 * 20 + 30 * 20
    assert model.vocabulary_ == sorted(word for words in WORDS for word in words)


def test_text_itself_is_refused_where_nothing_says_how_to_cut_it() -> None:
    with pytest.raises(DataError, match=r"count the words first, with st\.read_text\(X\)"):
        st.LatentDirichletAllocation(2).fit(texts())
    counts = st.read_text(texts())
    model = st.LatentDirichletAllocation(2, max_iter=2).fit(counts.counts)
    assert model.text_options_ is None
    with pytest.raises(DataError, match=r"st\.read_text"):
        model.transform(texts())
    with pytest.raises(DataError, match="not made from text"):
        st.read_text(texts(), like=model)
