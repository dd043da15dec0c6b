"""Coherence of topics against plain NumPy and the numbers of gensim; top words and similar topics against sorting."""

from __future__ import annotations

import math
import tracemalloc
from collections.abc import Callable, Sequence
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import stretto
from stretto.data.reading.read import read
from stretto.errors import DataError, PlanError
from stretto.models.topics import coherence as room
from stretto.models.topics.summary import similar_topics, top_words
from stretto.runtime.runtimes import Runtime, Serial, Threads

Array = NDArray[Any]
MEASURES = ("npmi", "umass", "c_v")


def coherence(words: Any, X: Any, runtime: Runtime | None = None, **options: Any) -> Array:
    with (runtime or Serial()).open() as crew:
        return room.coherence(words, X, crew=crew, **options)


def corpus(documents: int, vocabulary: int, seed: int = 0, density: float = 0.2) -> Any:
    """Counts of words, the first ones in most documents and the last ones in hardly any."""
    rng = np.random.default_rng(seed)
    often = density * np.linspace(3.0, 0.05, vocabulary)
    return scipy.sparse.csr_array(rng.integers(1, 5, (documents, vocabulary)) * (rng.random((documents, 1)) < often))


def topics(count: int, n: int, vocabulary: int, seed: int = 0) -> Array:
    rng = np.random.default_rng(seed)
    return np.array([rng.permutation(vocabulary)[:n] for _ in range(count)])


def npmi(one: Array, other: Array, eps: float) -> float:
    """NPMI of two words, given whether each document has them."""
    documents, a, b, both = len(one), int(one.sum()), int(other.sum()), int((one & other).sum()) + eps
    p = both / documents
    return -1.0 if p == 0 else 1.0 if p >= 1 else math.log(p * documents**2 / (a * b)) / -math.log(p)


def expected(words: Array, X: Any, measure: str, eps: float | None = None) -> Array:
    """The definition, pair by pair, over a dense table of the words in question."""
    eps = {"npmi": 0.0, "umass": 1.0, "c_v": 1e-12 * X.shape[0]}[measure] if eps is None else eps
    found = []
    for topic in words:
        held = [(X[:, [w]].toarray() != 0).ravel() for w in topic if w >= 0]
        values = []
        if measure == "c_v":
            held = [one for one in held if one.any()]
            near = np.array([[npmi(one, other, eps) for other in held] for one in held]).reshape(len(held), len(held))
            whole = near.sum(axis=0)
            with np.errstate(invalid="ignore"):
                values = list(near @ whole / np.linalg.norm(near, axis=1) / np.linalg.norm(whole))
            values = values if len(held) > 1 else []
        else:
            for one, other in combinations(held, 2):
                if measure == "umass":
                    values += [math.log((int((one & other).sum()) + eps) / int(one.sum()))] if one.any() else []
                elif one.any() and other.any():
                    values.append(npmi(one, other, eps))
        found.append(np.mean(values) if values else math.nan)
    return np.array(found)


# --- coherence --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("measure", MEASURES)
@pytest.mark.parametrize("documents", [1, 2, 63, 64, 65, 511, 512, 513, 1100])
def test_coherence_is_what_the_definition_says(measure: str, documents: int) -> None:
    X, words = corpus(documents, 40, seed=documents), topics(9, 7, 40, seed=documents)
    np.testing.assert_allclose(coherence(words, X, measure=measure), expected(words, X, measure), rtol=1e-10)


@settings(max_examples=40)
@given(st.integers(1, 150), st.integers(2, 12), st.floats(0.01, 0.33), st.integers(0, 999), st.sampled_from(MEASURES))
def test_coherence_of_any_corpus(documents: int, n: int, density: float, seed: int, measure: str) -> None:
    X, words = corpus(documents, 12, seed, density), topics(4, n, 12, seed)
    words[0, n // 2 :] = -1
    made = coherence(words, X, measure=measure)
    np.testing.assert_allclose(made, expected(words, X, measure), rtol=1e-9, atol=1e-12)
    if measure == "npmi":
        assert np.all(np.isnan(made) | (np.abs(made) <= 1.0))


@pytest.mark.parametrize("measure", MEASURES)
def test_coherence_of_real_documents(measure: str, shared_data: Callable[..., Path]) -> None:
    X = read(shared_data("ap", "ap.dat.xz")).to_csr()
    often = np.argsort(-np.bincount(X.indices, minlength=X.shape[1]), kind="stable")
    words = often[topics(12, 10, 3000)]
    made = coherence(words, X, Threads(2), measure=measure)
    np.testing.assert_allclose(made, expected(words, X, measure), rtol=1e-10)


# Made with gensim 4.4.0's CoherenceModel: "u_mass", and "c_npmi" with a window longer than any document. It adds 1e-12
# to p(i, j), which is 1e-12·D to the number of documents. "c_v" is with its window of 110 words, and smaller ones.
GENSIM_DOCUMENTS = (
    "cat dog cat|dog bone dog|cat fish|sun moon star|moon star moon star|sun star|cat sun|dog cat bone fish|moon"
)
GENSIM_TOPICS = ("cat dog fish bone", "moon star sun cat", "dog moon bone sun")
GENSIM = {
    "umass": [-0.8283022165892501, -9.345495408007737, -17.87137459961606],
    "npmi": [0.35772755311593557, -0.1785036028077471, -0.48702465167097],
    "c_v": [0.8374086952322289, 0.4150822564970229, 0.14964024992673722],
}
# C_v by the words of a window. gensim forgets a word that leaves a window and is in it a second time; here none is.
GENSIM_WINDOWS = {
    2: [0.4537521375714421, 0.37558110408972856, 0.20517183467347544],
    3: [0.6247055117525524, 0.4864468309813766, 0.10366305621987945],
}


@pytest.mark.parametrize("measure", MEASURES)
def test_coherence_agrees_with_gensim(measure: str) -> None:
    documents = [document.split() for document in GENSIM_DOCUMENTS.split("|")]
    vocabulary = sorted({word for document in documents for word in document})
    X = scipy.sparse.csr_array([[document.count(word) for word in vocabulary] for document in documents])
    words = [[vocabulary.index(word) for word in topic.split()] for topic in GENSIM_TOPICS]
    made = coherence(words, X, measure=measure, eps=1e-12 * len(documents))
    np.testing.assert_allclose(made, GENSIM[measure], rtol=1e-10 if measure == "c_v" else 1e-12)


@pytest.mark.parametrize("size", GENSIM_WINDOWS)
def test_windows_agree_with_gensim(size: int) -> None:
    text = GENSIM_DOCUMENTS.replace("moon star moon star", "moon star sun moon star")
    made = coherence(*in_windows(text, GENSIM_TOPICS, size), measure="c_v")
    np.testing.assert_allclose(made, GENSIM_WINDOWS[size], rtol=1e-9)


def in_windows(text: str, about: Sequence[str], size: int) -> tuple[Array, room.WordSequences]:
    documents = [document.split() for document in text.split("|")]
    vocabulary = sorted({word for document in documents for word in document})
    codes = np.array([vocabulary.index(word) for document in documents for word in document], np.int32)
    ptr = np.cumsum([0, *map(len, documents)])
    words = np.array([[vocabulary.index(word) for word in topic.split()] for topic in about])
    return words, room.WordSequences(ptr, codes, len(vocabulary), size)


@pytest.mark.parametrize("size", [2, 9, 110, 700])
def test_windows_are_documents_of_their_words(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every window as a document of its own has the same coherence, at any number of threads."""
    rng = np.random.default_rng(size)
    ptr = np.cumsum([0, *rng.choice([0, 1, 5, 63, 64, 109, 110, 111, 512, 600], 20)])
    codes = np.minimum(rng.geometric(0.04, ptr[-1]) - 2, 29).astype(np.int32)  # −1: a word that is not counted
    text = room.WordSequences(ptr, codes, 30, size)
    rows: list[Array] = []
    for first, last in pairwise(ptr):
        for start in range(first, max(first, last - size) + 1):
            inside = codes[start : min(start + size, last)]
            rows.append(np.bincount(inside[inside >= 0], minlength=30))
    assert text.offsets()[-1] == len(rows)
    X, words = scipy.sparse.csr_array(np.array(rows)), topics(9, 7, 30)
    for measure in MEASURES:
        made = coherence(words, text, measure=measure)
        np.testing.assert_array_equal(made, coherence(words, X, measure=measure))
        np.testing.assert_array_equal(coherence(words, text, Threads(3), measure=measure), made)
    monkeypatch.setattr(room, "_BITS", 1)
    monkeypatch.setattr(room, "_CHUNKS", 2)
    np.testing.assert_array_equal(coherence(words, text, Threads(2), measure=measure), made)


def test_a_model_of_texts_measures_windows_of_texts() -> None:
    rng = np.random.default_rng(0)
    themes = [["cat", "dog", "bone", "fish", "fur", "paw"], ["sun", "moon", "star", "sky", "night", "light"]]
    texts = [" ".join(rng.choice(themes[k % 2], 130 + k)) + " the zebra" * (k == 3) for k in range(12)]
    counts = stretto.read_text(texts, stop_words=["the"], min_df=2)
    model = stretto.LatentDirichletAllocation(2, max_iter=20, random_state=0).fit(counts)
    topic = np.argsort(-model.components_, axis=1, kind="stable")[:, :4]
    codes = [
        [counts.vocabulary.index(w) if w in counts.vocabulary else -1 for w in t.split() if w != "the"] for t in texts
    ]
    for size in (None, 5):
        ptr = np.cumsum([0, *map(len, codes)])
        sequences = room.WordSequences(ptr, np.concatenate(codes).astype(np.int32), len(counts.vocabulary), size or 110)
        want = coherence(topic, sequences, measure="c_v")
        np.testing.assert_array_equal(model.coherence(texts, 4, "c_v", window=size), want)
    whole = model.coherence(counts, 4, "c_v")
    np.testing.assert_array_equal(whole, coherence(topic, counts.counts, measure="c_v"))
    np.testing.assert_array_equal(model.coherence(texts, 4), model.coherence(counts, 4))
    with pytest.raises(DataError, match="window= needs the order of words"):
        model.coherence(counts, 4, "c_v", window=5)
    with pytest.raises(PlanError, match="window must be a whole number at least 2"):
        model.coherence(texts, 4, "c_v", window=1)
    pairs = stretto.LatentDirichletAllocation(2, max_iter=2).fit(stretto.read_text(texts, ngram_range=(1, 2)))
    with pytest.raises(DataError, match=r"windows need single words, and the words have ngram_range=\(1, 2\)"):
        pairs.coherence(texts, 4, "c_v")


def test_a_sparse_array_with_one_dimension_is_refused_as_counts() -> None:
    X = corpus(20, 12)
    model = stretto.LatentDirichletAllocation(2, max_iter=2, random_state=0).fit(X)
    for row in (scipy.sparse.coo_array(X[[0]].toarray()[0]), X[[0]].toarray()[0]):
        with pytest.raises((DataError, ValueError), match=r"two dimensions, got shape|Expected 2D array"):
            model.coherence(row)


def test_the_limits_of_npmi() -> None:
    X = scipy.sparse.csr_array(
        # always, always, at times, at times (with the one before), never with them, by chance, never at all
        [[1, 1, 1, 1, 0, 1, 0], [1, 1, 1, 1, 0, 0, 0], [1, 1, 0, 0, 1, 1, 0], [1, 1, 0, 0, 1, 0, 0]]
    )
    made = coherence([[0, 1], [2, 3], [2, 4], [2, 5], [0, 2]], X)
    np.testing.assert_array_equal(made, [1.0, 1.0, -1.0, 0.0, 0.0])
    assert coherence([[2, 4]], X, eps=0.5)[0] > -1.0, "a pair that never occurs may be given a little"
    np.testing.assert_array_equal(coherence([[0, 1]], X, eps=0.5), [1.0])


def test_words_that_never_occur_are_left_out() -> None:
    X = scipy.sparse.csr_array([[1, 1, 0, 1], [1, 0, 0, 1], [0, 1, 0, 0]])
    pair = coherence([[0, 1]], X)[0]
    np.testing.assert_array_equal(coherence([[2, 0, 1], [0, 2, 1], [0, 1, -1], [-1, 0, 1]], X), [pair] * 4)
    assert np.isnan(coherence([[0, 2], [2, 0], [0, -1], [-1, -1]], X)).all()
    # UMass asks how often the second word occurs when the first does; that has an answer as long as the first occurs.
    made = coherence([[0, 2, -1], [2, 0, -1], [0, -1, -1], [2, 0, 3]], X, measure="umass")
    np.testing.assert_allclose(made, [math.log(1 / 2), np.nan, np.nan, math.log(3 / 2)])


def test_umass_depends_on_the_order_of_the_words_and_npmi_does_not() -> None:
    X, words = corpus(200, 30), topics(5, 6, 30)
    assert np.all(coherence(words, X, measure="umass") != coherence(words[:, ::-1], X, measure="umass"))
    np.testing.assert_allclose(coherence(words, X), coherence(words[:, ::-1], X), rtol=1e-12)


def test_words_of_one_theme_go_together() -> None:
    rng = np.random.default_rng(0)
    theme = rng.integers(0, 4, 600)
    X = scipy.sparse.csr_array(rng.poisson(np.where(theme[:, None] == np.arange(40) // 10, 0.6, 0.1)))
    themes = np.arange(40).reshape(4, 10)
    for measure in MEASURES:
        assert coherence(themes, X, measure=measure).min() > coherence(themes.T, X, measure=measure).max()


def test_no_documents_and_no_topics() -> None:
    words = [[0, 1], [1, 2]]
    for measure in MEASURES:
        assert np.isnan(coherence(words, scipy.sparse.csr_array((0, 3)), measure=measure)).all()
        assert np.isnan(coherence(words, scipy.sparse.csr_array((70, 3)), measure=measure)).all()
        assert coherence(np.empty((0, 5), int), corpus(9, 9), measure=measure).shape == (0,)


# --- how the counts are stored ----------------------------------------------------------------------------------------


def stored(X: Any) -> dict[str, Any]:
    """The same occurrences in every form a sparse matrix may have."""
    rng = np.random.default_rng(1)
    wide = scipy.sparse.csr_array((X.data, X.indices.astype(np.int64), X.indptr.astype(np.int64)), X.shape)
    indices, data = X.indices.copy(), X.data.copy()
    for first, last in zip(X.indptr, X.indptr[1:], strict=False):
        order = first + rng.permutation(last - first)
        indices[first:last], data[first:last] = indices[order], data[order]
    shuffled = scipy.sparse.csr_array((data, indices, X.indptr), X.shape)
    # Every entry twice, and between them a zero in the column beside.
    beside = (X.indices + 1) % X.shape[1]
    three = np.stack([X.indices, beside, X.indices], axis=1).ravel(), np.stack([X.data, 0 * X.data, X.data], 1).ravel()
    twice = scipy.sparse.csr_array((three[1], three[0], 3 * X.indptr), X.shape)
    frozen = X.copy()
    for part in (frozen.data, frozen.indices, frozen.indptr):
        part.flags.writeable = False
    longer = X.copy()
    longer.indices, longer.data = np.append(X.indices, 0).astype(X.indices.dtype), np.append(X.data, -1)
    return {
        "int64": wide, "shuffled": shuffled, "zeros and duplicates": twice, "read only": frozen, "too long": longer,
        "matrix": scipy.sparse.csr_matrix(X), "csc": X.tocsc(), "coo": X.tocoo(), "float32": X.astype(np.float32),
        "bool": X.astype(bool), "uint8": X.astype(np.uint8),
    }  # fmt: skip


@pytest.mark.parametrize("form", list(stored(corpus(3, 3))))
def test_the_form_of_the_counts_changes_no_bit(form: str) -> None:
    X, words = corpus(700, 25), topics(6, 5, 25)
    other = stored(X)[form]
    before = other.data.copy()
    for measure in MEASURES:
        np.testing.assert_array_equal(coherence(words, other, measure=measure), coherence(words, X, measure=measure))
    np.testing.assert_array_equal(other.data, before)


@pytest.mark.parametrize("measure", MEASURES)
def test_neither_threads_nor_blocks_change_a_bit(measure: str, monkeypatch: pytest.MonkeyPatch) -> None:
    X, words = corpus(6000, 60, density=0.05), topics(150, 8, 60)
    whole = coherence(words, X, measure=measure)
    for runtime in (Threads(1), Threads(3)):
        np.testing.assert_array_equal(coherence(words, X, runtime, measure=measure), whole)
    monkeypatch.setattr(room, "_BITS", 1)
    for chunks in (1, 5):
        monkeypatch.setattr(room, "_CHUNKS", chunks)
        np.testing.assert_array_equal(coherence(words, X, Threads(3), measure=measure), whole)
    monkeypatch.setattr(room, "_COUNTS", 4 * 8 * 8 * 40)
    np.testing.assert_array_equal(coherence(words, X, Threads(3), measure=measure), whole)


def test_memory_follows_the_words_that_are_asked_about() -> None:
    """A dense copy would take 8 GB, pairs of the whole vocabulary 160."""
    documents, vocabulary = 5000, 200_000
    X = scipy.sparse.random_array((documents, vocabulary), density=1e-4, rng=np.random.default_rng(0), format="csr")
    words = topics(30, 10, 2000)
    coherence(words, X)
    tracemalloc.start()
    coherence(words, X)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 << 20


# --- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([0, 1], r"words is int64 \[2\], coherence needs whole numbers \[topics, words\]"),
        ([[0, 1], [0, 1, 2]], "words has topics of different lengths; fill the shorter ones up with -1"),
        ([[0.0, 1.0]], r"words is float64 \[1, 2\]"),
        ([[0], [1]], "words has 1 for each topic, and coherence compares pairs; give at least 2"),
        ([[0, 1], [1, 9]], "word 1 of topic 1 is 9, and X has columns 0 to 8; take words and X from the same"),
        ([[0, 1], [-2, 1]], "word 0 of topic 1 is -2"),
        ([[0, 1, 2], [4, 3, 4]], "topic 1 has word 4 twice"),
    ],
)  # fmt: skip
def test_words_that_cannot_be_used(words: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        coherence(words, corpus(10, 9))


def test_counts_that_cannot_be_used() -> None:
    words = [[0, 1]]
    with pytest.raises(DataError, match="X is a ndarray, coherence needs a sparse matrix; pass scipy"):
        coherence(words, np.eye(3))
    X = corpus(50, 9).astype(float)
    for wrong in (-1.0, np.nan):
        bad = X.copy()
        bad.data[bad.indptr[7]] = wrong
        with pytest.raises(DataError, match=rf"X\[7, {bad.indices[bad.indptr[7]]}\] is {wrong}; counts of words are 0"):
            coherence(words, bad)
    for column in (-1, 9, 2**30):
        bad = X.copy()
        bad.indices[[4, 11]] = column
        with pytest.raises(DataError, match="X: 2 entries are in no column of its 9"):
            coherence(words, bad)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"measure": "c_p"}, "measure must be one of 'npmi', 'umass', 'c_v'; got 'c_p'"),
        ({"eps": -1.0}, "eps must be a number at least 0; got -1.0"),
        ({"eps": 0.0, "measure": "umass"}, "eps must be a number more than 0; got 0.0; UMass takes the logarithm"),
    ],
)
def test_options_that_have_no_meaning(options: Any, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        coherence([[0, 1]], corpus(10, 9), **options)


# --- top words --------------------------------------------------------------------------------------------------------


def weights(K: int, V: int, seed: int = 0) -> Array:
    """A third of them zero, and many equal."""
    rng = np.random.default_rng(seed)
    return rng.integers(0, 6, (K, V)) * (rng.random((K, V)) < 0.8)


@pytest.mark.parametrize("dtype", ["int8", "uint64", "float32", "float64"])
@pytest.mark.parametrize("n", [0, 1, 7, 29, 30, 99])
def test_top_words_are_those_of_a_stable_sort(dtype: str, n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    C = weights(11, 30)
    C[4] = 0
    order = np.argsort(-C, axis=1, kind="stable")[:, :n]
    total = np.maximum(1, C.sum(axis=1, keepdims=True))
    for at_once in (1 << 20, 8 * 30 * 3):
        monkeypatch.setattr("stretto.models.topics.summary._SUMS", at_once)
        for form in (C.astype(dtype), scipy.sparse.csr_array(C.astype(dtype)), scipy.sparse.csr_matrix(C)):
            index, share = top_words(form, n)
            assert [index.dtype, share.dtype] == [np.dtype(np.int32), np.dtype(np.float32)]
            np.testing.assert_array_equal(index, order)
            np.testing.assert_allclose(share, np.take_along_axis(C / total, order, 1), rtol=1e-6)


# --- similar topics ---------------------------------------------------------------------------------------------------


def affinity(C: Array) -> Array:
    total = C.sum(axis=1, keepdims=True)
    root = np.sqrt(C / np.where(total > 0, total, 1.0))
    found: Array = root @ root.T
    return found


@pytest.mark.parametrize(("K", "V"), [(2, 1), (3, 40), (16, 511), (33, 512), (70, 513), (40, 1300)])
def test_similar_topics_have_the_largest_affinity(K: int, V: int) -> None:
    C = np.random.default_rng(K).gamma(0.1, size=(K, V))
    alike = affinity(C)
    for count in (1, 3, K + 5):
        m = min(count, K - 1)
        index, similarity = similar_topics(C, count)
        assert index.shape == similarity.shape == (K, m)
        assert [index.dtype, similarity.dtype] == [np.dtype(np.int32), np.dtype(np.float32)]
        assert np.all(index != np.arange(K)[:, None])
        assert all(len(set(row)) == m for row in index.tolist())
        np.testing.assert_allclose(similarity, np.take_along_axis(alike, index.astype(int), 1), rtol=1e-6)
        np.fill_diagonal(alike, -1.0)
        np.testing.assert_allclose(similarity, -np.sort(-alike, axis=1)[:, :m], rtol=1e-6)
        assert similarity.max() <= 1.0


def test_equal_topics_come_in_the_order_of_their_numbers() -> None:
    one = np.random.default_rng(0).gamma(0.1, size=(1, 700))
    other = np.random.default_rng(1).gamma(0.1, size=(1, 700))
    C = np.concatenate([one, other] * 25)  # across tiles, panels and what is worked out or mirrored
    index, similarity = similar_topics(C, 49)
    for k in range(50):
        same, not_same = np.arange(k % 2, 50, 2), np.arange(1 - k % 2, 50, 2)
        np.testing.assert_array_equal(index[k], [*same[same != k], *not_same])
        assert np.all(similarity[k, :24] == similarity[k, 0])
        assert np.all(similarity[k, 24:] == similarity[k, 24])
    np.testing.assert_allclose(similarity[:, 0], 1.0, rtol=1e-6)


def test_neither_threads_nor_blocks_change_what_is_similar(monkeypatch: pytest.MonkeyPatch) -> None:
    C = np.random.default_rng(0).gamma(0.05, size=(130, 1100))
    whole = similar_topics(C, 9)
    results = []
    for runtime in (Serial(), Threads(1), Threads(3)):
        with runtime.open() as crew:
            results.append(similar_topics(C, 9, crew))
    for rows in (32, 64, 96):
        monkeypatch.setattr("stretto.models.topics.summary._SUMS", 8 * 160 * rows)
        results.append(similar_topics(C, 9))
    for found in results:
        np.testing.assert_array_equal(found[0], whole[0])
        np.testing.assert_array_equal(found[1], whole[1])


def test_sparse_and_small_types_give_the_same_topics() -> None:
    C = weights(20, 600)
    index, similarity = similar_topics(C.astype(float), 5)
    dense = [C, np.asfortranarray(C), *(C.astype(kind) for kind in ("int8", "float16", "float32"))]
    sparse = [scipy.sparse.csr_array(C), scipy.sparse.csc_array(C), scipy.sparse.csr_matrix(C.astype(np.float32))]
    for form in (*dense, *sparse):
        found = similar_topics(form, 5)
        np.testing.assert_array_equal(found[0], index)
        np.testing.assert_array_equal(found[1], similarity)


def test_topics_without_neighbours() -> None:
    index, similarity = similar_topics(np.ones((1, 5)), 3)
    assert index.shape == similarity.shape == (1, 0)
    assert similar_topics(np.ones((4, 5)), 0)[0].shape == (4, 0)
    assert similar_topics(np.ones((0, 5)), 3)[0].shape == (0, 0)
    index, similarity = similar_topics(np.array([[1.0, 1.0], [0.0, 0.0], [2.0, 2.0]]), 2)
    np.testing.assert_array_equal(index, [[2, 1], [0, 2], [0, 1]])
    np.testing.assert_allclose(similarity, [[1, 0], [0, 0], [1, 0]], rtol=1e-6)


@pytest.mark.parametrize("of", [lambda C: similar_topics(C, 1), lambda C: top_words(C, 1)])
def test_components_that_cannot_be_used(of: Callable[[Any], Any]) -> None:
    for wrong in (-1.0, np.nan, np.inf):
        C = np.ones((3, 4))
        C[1, 2] = wrong
        for form in (C, scipy.sparse.csr_array(C)):
            with pytest.raises(DataError, match="components holds a negative number, infinity or NaN"):
                of(form)
    with pytest.raises(DataError, match=r"components is float64 \[3\]; give numbers \[topics, words\]"):
        of(np.ones(3))
    with pytest.raises(PlanError, match="count must be a whole number at least 0; got -1"):
        similar_topics(np.ones((2, 2)), -1)
    with pytest.raises(PlanError, match=r"n must be a whole number at least 0; got 1\.5"):
        top_words(np.ones((2, 2)), 1.5)  # type: ignore[arg-type]
