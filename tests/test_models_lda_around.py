"""What happens around a fit of a topic model: second fits, batches, names of words, tiny corpora, saved models."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

import stretto as st
from stretto.data.partition import cut
from stretto.errors import DataError
from stretto.models.topics.count_layout import Census, CountLayout
from stretto.models.topics.input import UnknownWordsWarning, as_corpus, split_documents
from stretto.models.topics.monitor import SummedCounts
from stretto.models.topics.priors import CountRows
from stretto.models.topics.problem import AVERAGE_BYTES, TopicProblem, settled
from stretto.runtime.runtimes import Serial


def counts(documents: int = 40, words: int = 12, seed: int = 0) -> csr_array:
    """Two kinds of documents, each with words of its own half."""
    rng = np.random.default_rng(seed)
    X = rng.poisson(0.2, (documents, words))
    half = words // 2
    X[::2, :half] += rng.poisson(2.0, (len(X[::2]), half))
    X[1::2, half:] += rng.poisson(2.0, (len(X[1::2]), words - half))
    return csr_array(X)


def named(path: Path, entries: list[tuple[str, str, int]]) -> st.Data:
    path.write_text("document,word,count\n" + "".join(f"{d},{w},{n}\n" for d, w, n in entries), encoding="utf-8")
    return st.read(str(path))


def test_words_are_looked_up_by_name(tmp_path: Path) -> None:
    """Data with other words, or in another order, mean the words they name."""
    train = [(f"d{k}", w, 3) for k in range(6) for w in (("ant", "bee") if k % 2 else ("cat", "cow"))]
    model = st.LatentDirichletAllocation(2, max_iter=30, random_state=0).fit(named(tmp_path / "a.csv", train))
    assert model.vocabulary_ == ["ant", "bee", "cat", "cow"]
    with pytest.warns(UnknownWordsWarning, match="not in the vocabulary"):
        shares = model.transform(named(tmp_path / "b.csv", [("x", "bee", 9), ("x", "dog", 5), ("x", "cat", 1)]))
    right = model.transform(csr_array([[0, 9, 1, 0]]))
    assert np.array_equal(shares, right)
    model.partial_fit(named(tmp_path / "c.csv", [("y", "cow", 4), ("y", "cat", 4)]))
    assert model.vocabulary_ == ["ant", "bee", "cat", "cow"]
    assert model.topic_tokens_.sum() == 36 + 8


def test_validation_documents_are_looked_up_by_name(tmp_path: Path) -> None:
    train = named(tmp_path / "a.csv", [(f"d{k}", w, 3) for k in range(6) for w in ("ant", "bee", "cat")])
    shuffled = named(tmp_path / "b.csv", [("x", "cat", 8), ("x", "bee", 3)])
    plain = csr_array([[0, 3, 8]])
    one, other = (
        st.LatentDirichletAllocation(2, max_iter=3, random_state=0).fit(train, validation=v).history_
        for v in (shuffled, plain)
    )
    assert [h["held_perplexity"] for h in one] == [h["held_perplexity"] for h in other]


def test_a_second_fit_forgets_the_first_vocabulary() -> None:
    model = st.LatentDirichletAllocation(2, max_iter=2, random_state=0)
    model.fit(np.array([[2, 1, 1], [1, 1, 0]]), vocabulary=["a", "b", "c"])
    model.fit(np.array([[2, 1, 1, 3], [1, 1, 0, 2]]))
    assert model.vocabulary_ is None
    assert all(word.isdecimal() for row in model.top_words() for word in row)


def test_partial_fit_with_early_stopping_has_nothing_to_watch() -> None:
    model = st.LatentDirichletAllocation(2, early_stopping=True, random_state=0).partial_fit(counts())
    assert model.n_iter_ == 20


def test_partial_fit_keeps_learned_priors() -> None:
    model = st.LatentDirichletAllocation(3, max_iter=40, warm_up=5, burn_in=5, optimize_every=5, random_state=0)
    learned = model.fit(counts()).doc_topic_prior_
    assert len(set(learned)) > 1
    beta = model.topic_word_prior_
    # A batch too short for priors to be learned again.
    model.set_params(burn_in=30).partial_fit(counts(seed=1))
    assert np.array_equal(model.doc_topic_prior_, learned)
    assert model.topic_word_prior_ == beta


def test_the_likelihood_of_a_batch_is_that_of_its_tokens() -> None:
    """One document more hardly changes how likely a token is; that of all earlier tokens is not part of it."""
    X = counts(400)
    model = st.LatentDirichletAllocation(2, max_iter=60, random_state=0).fit(X)
    before = model.history_[-1]["log_likelihood"]
    after = model.partial_fit(X[:20]).history_[-1]["log_likelihood"]
    assert after == pytest.approx(before, abs=0.35)


def test_burn_in_is_in_the_fingerprint_of_averages() -> None:
    one, other = (TopicProblem(2, (1.0, 1.0), 0.1, "sparse", 1, average_every=2, burn_in=b) for b in (10, 20))
    assert one.parameters() != other.parameters()


def test_averages_of_large_counts_do_not_wrap() -> None:
    summed = SummedCounts(CountLayout(1, True, np.array([1]), np.array([1])), wanted=True)
    state = CountRows.dense(np.array([2**31], np.uint32), n_topics=1, width=1)
    with Serial().open() as crew:
        for _ in range(3):
            summed.add(0, state, crew)
            summed.states += 1
    ((words, topics, means),) = summed.means(cut(np.array([1]), 1, seed=0, axis=1))
    assert (words.tolist(), topics.tolist(), means.tolist()) == ([0], [0], [2.0**31])


def test_rounded_averages_keep_the_tokens_of_every_word() -> None:
    X = counts(200)
    model = st.LatentDirichletAllocation(5, max_iter=20, average_every=1, random_state=0).fit(X)
    topics = model.topics_
    whole = topics.whole()
    assert (topics.count != np.rint(topics.count)).any()
    words = np.repeat(np.arange(topics.n_words), np.diff(topics.indptr))
    np.testing.assert_array_equal(np.bincount(words, whole, topics.n_words), np.asarray(X.sum(axis=0)).ravel())
    assert np.abs(whole - topics.count).max() < 1


def test_partial_fit_goes_on_from_averages_with_whole_counts() -> None:
    X = counts(200)
    model = st.LatentDirichletAllocation(5, max_iter=20, random_state=0).fit(X)
    assert model.topics_.count.dtype == np.float32
    model.partial_fit(X)
    assert model.topics_.count.dtype == np.int32
    assert model.topic_tokens_.sum() == 2 * X.sum()


def test_averages_by_default_take_little_memory() -> None:
    problem = TopicProblem(100, (0.1,) * 100, 0.01, "auto", 1, average_every=2, average_if_small=True)
    asked = replace(problem, average_if_small=False)
    few, many = AVERAGE_BYTES // 800, AVERAGE_BYTES // 800 + 1
    for words, tokens, averaged in ((few, 1, 2), (many, 1, 0), (many, many * 100, 2), (many, many * 100 - 1, 0)):
        census = Census(np.array([tokens]), np.arange(words) * 0 + 1, words, "")
        assert settled(problem, census).average_every == averaged
        assert settled(asked, census).average_every == 2


def test_words_a_topic_does_not_have_are_not_shown() -> None:
    X = counts()
    model = st.LatentDirichletAllocation(40, max_iter=40, doc_topic_prior=0.01, random_state=0, average_every=0).fit(X)
    tokens = model.topic_tokens_
    assert (tokens == 0).any()
    for words, n in zip(model.top_words(n=12), tokens, strict=True):
        assert bool(words) == (n > 0)
    assert np.isnan(model.coherence(X)[tokens == 0]).all()


@pytest.mark.parametrize("seed", range(10))
def test_a_few_documents_are_enough_to_hold_one_out(seed: int) -> None:
    corpus = as_corpus(counts(10), seed=0)
    kept, held = split_documents(corpus, 0.05, seed)
    assert held.n_documents >= 1
    assert kept.n_documents + held.n_documents == 10
    st.LatentDirichletAllocation(2, early_stopping=True, max_iter=2, random_state=seed).fit(counts(10))


def test_documents_of_one_token_cannot_be_measured() -> None:
    model = st.LatentDirichletAllocation(2, max_iter=2, random_state=0).fit(counts())
    with pytest.raises(DataError, match="at least two tokens"):
        model.score(csr_array(([1], ([0], [3])), shape=(1, 12)))


def test_numbers_of_numpy_survive_saving(tmp_path: Path) -> None:
    numbers: dict[str, Any] = {"n_components": np.int64(2), "max_iter": np.int64(3), "n_jobs": np.int64(1)}
    model = st.LatentDirichletAllocation(**numbers, random_state=0)
    model.fit(counts()).save(tmp_path / "model")
    again = st.LatentDirichletAllocation.load(tmp_path / "model")
    assert again.n_components == 2
    assert np.array_equal(again.transform(counts()), model.transform(counts()))
    again.partial_fit(counts())


def test_names_of_columns_survive_saving(tmp_path: Path) -> None:
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(counts(words=3).toarray(), columns=["ant", "bee", "cat"])
    st.LatentDirichletAllocation(2, max_iter=3, random_state=0).fit(frame).save(tmp_path / "model")
    again = st.LatentDirichletAllocation.load(tmp_path / "model")
    with pytest.raises(DataError, match="feature names"):
        again.transform(frame[["cat", "bee", "ant"]])
