"""Documents on their way into a topic model, and corpora drawn from one."""

from __future__ import annotations

import gzip
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import BaseEstimator

from stretto.data.convert.convert import as_data
from stretto.data.generate import corpus as making
from stretto.data.generate.corpus import corpus as make_corpus
from stretto.data.generate.corpus import generate_corpus, topic_words, write_corpus
from stretto.data.reading.read import read
from stretto.data.records.data import Data
from stretto.errors import DataError
from stretto.keyed import uniform
from stretto.models.topics.input import (
    Corpus,
    FractionalCountsWarning,
    UnknownWordsWarning,
    as_corpus,
    split_documents,
    split_tokens,
)

COUNTS = np.array([[2, 0, 1, 0], [0, 0, 0, 0], [0, 3, 0, 0], [1, 1, 7, 0]])  # an empty document, a word nobody uses


class Model(BaseEstimator):  # type: ignore[misc]
    """What scikit-learn's checks need of an estimator."""


def table(corpus: Corpus) -> Any:
    return corpus.data.to_csr().toarray()


def same(a: Corpus, b: Corpus) -> bool:
    parts = ("rows", "cols", "values")
    return a.data.shape == b.data.shape and all(
        np.array_equal(getattr(a.data, part), getattr(b.data, part)) for part in parts
    )


def tangled(counts: Any, seed: int = 0) -> Any:
    """The same matrix as COO: every unit an entry of its own, in random order, with some zeros stored."""
    rows, cols = np.nonzero(np.ones_like(counts))
    units = np.maximum(counts[rows, cols], 1).astype(int)
    values = np.repeat(counts[rows, cols] > 0, units).astype(np.int8)
    order = np.random.default_rng(seed).permutation(len(values))
    return sp.coo_array((values[order], (np.repeat(rows, units)[order], np.repeat(cols, units)[order])), counts.shape)


def wide_indices(counts: Any) -> Any:
    X = sp.csr_matrix(counts)
    X.indices, X.indptr = X.indices.astype(np.int64), X.indptr.astype(np.int64)
    return X


def unsorted(counts: Any) -> Any:
    X = sp.csr_matrix(counts.astype(np.float32))
    X.indices[-3:], X.data[-3:] = X.indices[-3:][::-1].copy(), X.data[-3:][::-1].copy()
    return X


def frame(counts: Any, **options: Any) -> Any:
    return pytest.importorskip("pandas").DataFrame(counts, columns=list("abcd"), **options)


FORMS: dict[str, Callable[[Any], Any]] = {
    "csr": sp.csr_matrix,
    "csr int64 indices": wide_indices,
    "csr unsorted": unsorted,
    "csr array float": lambda c: sp.csr_array(c.astype(float)),
    "csc uint8": lambda c: sp.csc_matrix(c.astype(np.uint8)),
    "coo tangled": tangled,
    "lil": sp.lil_matrix,
    "dense int": lambda c: c,
    "dense float32, Fortran": lambda c: np.asfortranarray(c, dtype=np.float32),
    "lists": lambda c: c.tolist(),
    "DataFrame": frame,
    "Data": lambda c: as_data(sp.csc_matrix(c)),
}


@pytest.mark.parametrize("form", FORMS)
def test_one_matrix_in_any_form_is_one_corpus(form: str) -> None:
    corpus = as_corpus(FORMS[form](COUNTS), seed=3)
    assert np.array_equal(table(corpus), COUNTS)
    assert same(corpus, as_corpus(COUNTS, seed=3))
    assert (corpus.n_documents, corpus.n_words, corpus.n_tokens) == (4, 4, 15)
    assert corpus.data.values.dtype == np.float32
    assert corpus.data.values.min() >= 1
    assert corpus.data.rows.dtype == corpus.data.cols.dtype == np.int32


@given(st.lists(st.lists(st.integers(0, 5), min_size=3, max_size=3), min_size=1, max_size=6), st.integers(0, 99))
@settings(max_examples=40, deadline=None)
def test_entries_come_out_sorted_and_once_each(counts: list[list[int]], seed: int) -> None:
    corpus = as_corpus(tangled(np.array(counts), seed), words=3, seed=0)
    keys = corpus.data.rows.astype(np.int64) * 3 + corpus.data.cols
    assert np.all(np.diff(keys) > 0)
    assert np.array_equal(table(corpus), counts)


def test_repeated_entries_add_up_even_where_their_type_is_too_small() -> None:
    X = sp.coo_matrix((np.array([100, 100, 100], np.int8), ([0, 0, 1], [1, 1, 0])), shape=(2, 2))
    before = X.data.copy(), X.row.copy()
    assert table(as_corpus(X, seed=0)).tolist() == [[0, 200], [100, 0]]
    twice = sp.coo_matrix((np.array([True, True]), ([0, 0], [0, 0])), shape=(1, 1))
    assert table(as_corpus(twice, seed=0)).tolist() == [[2]]
    assert np.array_equal(X.data, before[0])
    assert np.array_equal(X.row, before[1])


def test_what_the_caller_holds_stays_as_it_is() -> None:
    X = unsorted(COUNTS)
    X.data[0] = 0.0  # a stored zero
    indices, data = X.indices.copy(), X.data.copy()
    corpus = as_corpus(X, seed=0)
    assert len(corpus.data) == X.nnz - 1
    assert np.array_equal(X.indices, indices)
    assert np.array_equal(X.data, data)


def with_value(value: Any, dtype: Any = np.float64, sparse: bool = False) -> Any:
    X = COUNTS.astype(dtype)
    X[2, 3] = value
    return sp.csr_matrix(X) if sparse else X


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize(
    ("value", "message"),
    [
        (-2.0, r"Negative values in data passed to .*: -2\.0 at row 2, column 3"),
        (np.nan, r"NaN.*inf.* nan at row 2, column 3"),
        (-np.inf, r"NaN.*inf.*: -inf at row 2, column 3"),
        (2.0**24, r"above 2\^24 − 1: 16777216\.0 at row 2, column 3"),
        (2.0**24 - 0.5, r"above 2\^24"),
    ],
)
def test_what_is_no_count_is_refused_with_its_place(value: float, message: str, sparse: bool) -> None:
    with pytest.raises(DataError, match=message):
        as_corpus(with_value(value, sparse=sparse), seed=0)


@pytest.mark.parametrize("kind", [list, tuple, np.array])
def test_text_is_refused_with_the_way_to_count_words(kind: Any) -> None:
    with pytest.raises(DataError, match=r"X holds text, such as .*'the cat'.*st\.read_text\(X\)"):
        as_corpus(kind(["the cat", "a dog"]), seed=0)


def test_the_largest_count_is_kept() -> None:
    corpus = as_corpus(with_value(2**24 - 1, np.int64), seed=0)
    assert table(corpus)[2, 3] == 2**24 - 1
    assert corpus.n_tokens == 15 + 2**24 - 1
    with pytest.raises(DataError, match=r"-1 at row 2"):
        as_corpus(with_value(-1, np.int8), seed=0)


@pytest.mark.parametrize(
    ("X", "message"),
    [
        (COUNTS * 1j, "Complex data not supported"),
        (np.array([["two", "words"]]), "two|string"),
        ([1, 2, 3], "Reshape your data"),
        (np.zeros((0, 3)), r"0 sample\(s\)"),
        (np.zeros((3, 0)), r"0 feature\(s\)"),
        (np.zeros((3, 2)), "3 documents and no tokens; there is nothing"),
        (sp.csr_matrix((3, 2)), "no tokens"),
        ("no/such/docword.txt", "no such file"),
    ],
)
def test_what_is_no_corpus_is_refused(X: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        as_corpus(X, seed=0)


@pytest.mark.parametrize("form", ["csr", "csc", "coo"])
def test_a_damaged_matrix_is_refused(form: str) -> None:
    X = getattr(sp, f"{form}_array")(COUNTS)
    (X.coords[0] if form == "coo" else X.indices)[1] = 1_000_000
    with pytest.raises(DataError, match=f"this {form.upper()} matrix of shape .* is damaged"):
        as_corpus(X, seed=0)


def test_the_number_of_words_must_fit() -> None:
    with pytest.raises(DataError, match="X has 4 words, the model was trained on 12"):
        as_corpus(COUNTS, words=12, seed=0)
    with pytest.raises(DataError, match="the vocabulary has 3 words, X has 4"):
        as_corpus(COUNTS, vocabulary=["a", "b", "c"], seed=0)
    empty = as_corpus(np.zeros((2, 4)), words=4, seed=0)  # as in transform: the prior alone speaks
    assert (empty.n_documents, empty.n_tokens) == (2, 0)


def test_an_estimator_keeps_scikit_learns_rules() -> None:
    model = Model()
    corpus = as_corpus(frame(COUNTS), estimator=model, seed=0)
    assert model.n_features_in_ == 4
    assert corpus.vocabulary == list(model.feature_names_in_) == list("abcd")
    as_corpus(as_data(sp.csr_matrix(COUNTS)), estimator=model, seed=0)
    assert not hasattr(model, "feature_names_in_")
    with pytest.raises(DataError, match="X has 3 features, but Model is expecting 4 features as input"):
        as_corpus(COUNTS[:, :3], estimator=model, reset=False, seed=0)
    with pytest.raises(DataError, match=r"Negative values in data passed to Model"):
        as_corpus(-COUNTS, estimator=model, reset=False, seed=0)
    assert as_corpus(COUNTS * 0, estimator=model, reset=False, seed=0).n_tokens == 0
    with pytest.raises(DataError, match="no tokens"):
        as_corpus(COUNTS * 0, estimator=model, seed=0)


# ---- fractional counts


def fractional(n: int = 40, words: int = 30) -> Any:
    rng = np.random.default_rng(5)
    return np.where(rng.random((n, words)) < 0.4, rng.random((n, words)) * 3, 0.0)


def rounded(X: Any, **options: Any) -> Corpus:
    with pytest.warns(FractionalCountsWarning):
        return as_corpus(X, **options)


def test_fractional_counts_are_rounded_by_st_uniform() -> None:
    X = fractional()
    with pytest.warns(FractionalCountsWarning, match=r"of \d+ counts are fractional, the first .* at row 0, column"):
        corpus = as_corpus(X, seed=11)
    expected = np.floor(X)
    for i, j in zip(*np.nonzero(X % 1), strict=True):
        expected[i, j] += uniform(11, 1, i, j) < X[i, j] - np.floor(X[i, j])
    assert np.array_equal(table(corpus), expected)
    with pytest.warns(FractionalCountsWarning) as told:
        others = [as_corpus(form(X), seed=11) for form in (sp.csc_matrix, sp.coo_matrix, np.asfortranarray)]
    assert len(told) == 3
    assert told[0].filename == __file__
    assert all(same(corpus, other) for other in others)
    assert not same(corpus, rounded(X, seed=-12))


def test_rounding_is_right_on_average() -> None:
    X = np.full((400, 250), 1.3)
    corpus = rounded(X, seed=2)
    assert set(np.unique(corpus.data.values)) == {1.0, 2.0}
    assert abs(corpus.n_tokens / X.size - 1.3) < 5 * np.sqrt(0.21 / X.size)


def test_strict_refuses_fractions_and_takes_whole_floats() -> None:
    with pytest.raises(DataError, match=r"1 of 7 counts are fractional, the first 0\.5 at row 2, column 3"):
        as_corpus(with_value(0.5), strict=True, seed=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert same(as_corpus(COUNTS.astype(float), strict=True, seed=0), as_corpus(COUNTS, seed=0))


def test_keyed_by_content_a_document_is_rounded_the_same_in_any_company() -> None:
    X = fractional()
    order = np.random.default_rng(0).permutation(len(X))
    stored = sp.csr_matrix(X.astype(np.float32))
    stored.data[::7] = -0.0  # a stored zero is no word
    whole = table(rounded(X, seed=1, keyed_by="content"))
    assert np.array_equal(table(rounded(X[order], seed=1, keyed_by="content")), whole[order])
    assert np.array_equal(table(rounded(X[5:6], seed=1, keyed_by="content"))[0], whole[5])
    assert not np.array_equal(table(rounded(X[order], seed=1)), whole[order])
    without = rounded(stored.toarray(), seed=1, keyed_by="content")
    assert same(rounded(stored, seed=1, keyed_by="content"), without)
    with pytest.raises(DataError, match="keyed_by"):
        as_corpus(COUNTS, seed=1, keyed_by="row")


def test_counts_rounded_to_nothing_say_so() -> None:
    with (
        pytest.warns(FractionalCountsWarning),
        pytest.raises(DataError, match="all rounded to nothing, so scale them up"),
    ):
        as_corpus(np.full((2, 2), 1e-9), seed=0)


# ---- names and files


def test_files_of_every_kind_with_a_vocabulary_beside_them(tmp_path: Path) -> None:
    bow, ldac, svm = tmp_path / "docword.txt", tmp_path / "corpus.lda-c", tmp_path / "corpus.svm"
    bow.write_text("4\n4\n7\n1 1 2\n1 3 1\n3 2 3\n4 1 1\n4 2 1\n4 3 6\n4 3 1\n")  # a pair that occurs twice
    ldac.write_text("2 0:2 2:1\n0\n1 1:3\n3 0:1 1:1 2:7\n")
    svm.write_text("1 1:2 3:1\n1\n-1 2:3\n-1 1:1 2:1 3:7\n")
    words = tmp_path / "vocab.txt.gz"
    words.write_bytes(gzip.compress("àpple\r\nbee\r\nsea ice\r\ndee\r\n\r\n".encode()))
    for path in (bow, ldac, svm):  # the last two do not say that there is a fourth word
        corpus = as_corpus(path, vocabulary=words, seed=0)
        assert same(corpus, as_corpus(COUNTS, seed=0)), path
        assert corpus.vocabulary == ["àpple", "bee", "sea ice", "dee"]
    assert as_corpus(str(ldac), seed=0).n_words == 3
    assert as_corpus(ldac, words=9, seed=0).n_words == 9
    model = Model()
    as_corpus(bow, estimator=model, seed=0)
    assert as_corpus(svm, estimator=model, reset=False, seed=0).n_words == 4
    with pytest.raises(DataError, match="X has 4 words, the model was trained on 9"):
        as_corpus(bow, words=9, seed=0)
    words.write_bytes(b"caf\xe9\n")
    with pytest.raises(DataError, match=r"vocab.txt.gz: the vocabulary is not UTF-8"):
        as_corpus(bow, vocabulary=words, seed=0)


def test_data_that_name_their_words_are_put_into_the_order_of_the_vocabulary(tmp_path: Path) -> None:
    path = tmp_path / "counts.tsv"
    path.write_text("d1\tfox\t2\nd1\tant\t1\nd0\tfox\t4\nd0\tyak\t3\n")
    own = as_corpus(path, seed=0)
    assert (own.vocabulary, own.documents) == (["ant", "fox", "yak"], ["d0", "d1"])
    assert table(own).tolist() == [[0, 4, 3], [1, 2, 0]]
    with pytest.warns(UnknownWordsWarning, match="not in the vocabulary were left out: 1, with 3 tokens"):
        put = as_corpus(path, words=3, vocabulary=["fox", "bee", "ant"], seed=0)
    assert table(put).tolist() == [[4, 0, 0], [2, 0, 1]]
    assert put.vocabulary == ["fox", "bee", "ant"]


def test_numbered_words_are_found_again_by_number(tmp_path: Path) -> None:
    first, later = tmp_path / "first.tsv", tmp_path / "later.tsv"
    first.write_text("1\t10\t2\n1\t20\t1\n2\t30\t4\n")
    later.write_text("1\t30\t5\n1\t10\t6\n")
    learned = as_corpus(first, seed=0)
    assert learned.vocabulary == ["10", "20", "30"]
    assert table(as_corpus(later, words=3, vocabulary=learned.vocabulary, seed=0)).tolist() == [[6, 0, 5]]
    assert as_corpus(first, vocabulary=["a", "b", "c"], seed=0).vocabulary == ["a", "b", "c"]


def test_a_frames_index_names_the_documents() -> None:
    named = frame(COUNTS, index=["w", "x", "y", "z"])
    assert as_corpus(named, seed=0).documents == ["w", "x", "y", "z"]
    assert as_corpus(named, vocabulary=["p", "q", "r", "s"], seed=0).vocabulary == ["p", "q", "r", "s"]
    assert as_corpus(named.reset_index(drop=True), seed=0).documents is None


def test_a_real_corpus(shared_data: Callable[..., Path]) -> None:
    corpus = as_corpus(shared_data("ap", "ap.dat.xz"), vocabulary=shared_data("ap", "vocab.txt"), strict=True, seed=0)
    assert (corpus.n_documents, corpus.n_words, corpus.n_tokens) == (2246, 10473, 435838)
    assert corpus.vocabulary is not None
    assert corpus.vocabulary[:3] == ["i", "new", "percent"]


# ---- splits


@pytest.fixture(scope="module")
def made() -> making.GeneratedCorpus:
    return make_corpus(300, 200, 5, 40, seed=4)


def test_tokens_are_dealt_to_two_parts_by_keyed_draws(made: making.GeneratedCorpus) -> None:
    corpus = as_corpus(made.data, vocabulary=[f"w{k}" for k in range(200)], seed=0)
    observed, held = split_tokens(corpus, 0.3, seed=8)
    assert np.array_equal(table(observed) + table(held), table(corpus))
    assert abs(held.n_tokens / corpus.n_tokens - 0.3) < 5 * np.sqrt(0.21 / corpus.n_tokens)
    assert observed.vocabulary == held.vocabulary == corpus.vocabulary
    for k in range(0, len(corpus.data), 50):
        d, w, count = int(corpus.data.rows[k]), int(corpus.data.cols[k]), int(corpus.data.values[k])
        assert table(held)[d, w] == sum(uniform(8, 2, d, w, t) < 0.3 for t in range(count))


def test_a_split_in_many_pieces_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    corpus = as_corpus(COUNTS * 40, seed=0)
    whole = split_tokens(corpus, 0.5, seed=1)
    monkeypatch.setattr("stretto.models.topics.input.SLICE", 90)  # less than one of the counts
    pieces = split_tokens(corpus, 0.5, seed=1)
    assert same(whole[0], pieces[0])
    assert same(whole[1], pieces[1])


def test_documents_are_dealt_with_their_names(made: making.GeneratedCorpus) -> None:
    corpus = Corpus(made.data, None, [f"d{k}" for k in range(300)])
    kept, held = split_documents(corpus, 0.2, seed=3)
    assert kept.n_documents + held.n_documents == 300
    assert 35 < held.n_documents < 85
    for part in (kept, held):
        assert part.documents is not None
        assert np.array_equal(table(part), table(corpus)[[int(name[1:]) for name in part.documents]])
    assert same(split_documents(corpus, 0.2, seed=3)[1], held)


@pytest.mark.parametrize("share", [0.0, 1.0, -0.5, np.nan])
@pytest.mark.parametrize("split", [split_tokens, split_documents])
def test_a_part_without_tokens_is_refused(split: Any, share: float) -> None:
    with pytest.raises(DataError, match="share"):
        split(as_corpus(COUNTS, seed=0), share, 0)


# ---- generated corpora


def test_chunks_do_not_show_in_what_is_generated() -> None:
    whole = make_corpus(200, 100, 6, 30, alpha=[0.1, 0.2, 0.3, 0.4, 0.5, 0.6], seed=9)
    small = make_corpus(200, 100, 6, 30, alpha=[0.1, 0.2, 0.3, 0.4, 0.5, 0.6], seed=9, chunk=1)
    other = make_corpus(200, 100, 6, 30, alpha=[0.1, 0.2, 0.3, 0.4, 0.5, 0.6], seed=10)
    assert same(Corpus(whole.data), Corpus(small.data))
    assert not same(Corpus(whole.data), Corpus(other.data))
    assert same(as_corpus(whole.data, strict=True, seed=0), Corpus(whole.data))  # sorted, once each, whole
    assert len(np.unique(whole.data.rows)) == 200  # nobody is empty
    assert 25 < whole.data.values.sum() / 200 < 35
    chunks = list(generate_corpus(200, 100, 6, 30, chunk=600))
    assert all(count.sum() < 3000 for _, _, count in chunks)
    assert len(chunks) == 10


def test_topics_in_documents_follow_the_dirichlet_multinomial() -> None:
    """Topics of one word each make counts of words counts of topics."""
    alpha, K = 0.5, 3
    truth = topic_words(5000, K, beta=1e-9, zipf=0.0, seed=6)
    words = truth.argmax(axis=1)
    assert np.all(truth.max(axis=1) == 1.0)
    assert len(set(words)) == K
    made = make_corpus(20_000, 5000, K, 20, alpha=alpha, beta=1e-9, zipf=0.0, seed=6)
    assert np.array_equal(made.topics, truth)
    counts = made.data.to_csr()[:, words].toarray()
    n = counts.sum(axis=1, keepdims=True)
    assert np.allclose(counts.mean(axis=0) / n.mean(), 1 / K, atol=0.01)
    total = K * alpha
    expected = n * (1 / K) * (1 - 1 / K) * (n + total) / (1 + total)
    assert np.allclose(((counts - n / K) ** 2).mean(axis=0) / expected.mean(), 1.0, atol=0.03)


def test_words_follow_their_topic() -> None:
    made = make_corpus(2000, 50, 1, 50, beta=0.5, seed=2)
    seen = np.bincount(made.data.cols, made.data.values, minlength=50)
    expected = made.topics[0] * seen.sum()
    rare = expected < 20
    assert np.all(seen[expected == 0] == 0)
    chi = ((seen - expected)[~rare] ** 2 / expected[~rare]).sum()
    assert chi < np.count_nonzero(~rare) + 5 * np.sqrt(2 * np.count_nonzero(~rare))


def test_topics_scatter_around_a_zipf_law_as_a_dirichlet_does() -> None:
    V, K, beta = 40, 1500, 0.05
    law = np.sort(np.arange(1, V + 1) ** -1.0 / (np.arange(1, V + 1) ** -1.0).sum())[::-1]
    topics = topic_words(V, K, beta=beta, zipf=1.0, seed=3)
    assert np.allclose(topics.sum(axis=1), 1.0)
    mean = topics.mean(axis=0)
    order = np.argsort(-mean)
    assert set(order[:5]) != set(range(5))  # frequent words stand anywhere
    assert np.allclose(mean[order][:5], law[:5], atol=0.02)
    spread = law * (1 - law) / (V * beta + 1)
    assert abs((topics.var(axis=0)[order][:5] / spread[:5]).mean() - 1.0) < 0.08
    flat = topic_words(V, K, beta=beta, zipf=0.0, seed=3).mean(axis=0)
    assert np.allclose(flat, 1 / V, atol=0.01)


def test_a_written_corpus_reads_back_and_has_the_same_bytes(tmp_path: Path) -> None:
    made = make_corpus(150, 1200, 4, 25, seed=7)
    told: list[tuple[int, int]] = []
    plain, packed, again = tmp_path / "docword.txt", tmp_path / "docword.txt.gz", tmp_path / "again.txt.gz"
    entries, tokens = write_corpus(plain, 150, 1200, 4, 25, seed=7, chunk=500, progress=lambda *t: told.append(t))
    assert (entries, tokens) == (len(made.data), made.data.values.sum())
    assert told[-1] == (150, 150)
    assert [done for done, _ in told] == sorted(done for done, _ in told)
    assert len(told) == 8
    write_corpus(packed, 150, 1200, 4, 25, seed=7)
    write_corpus(again, 150, 1200, 4, 25, seed=7)
    assert packed.read_bytes() == again.read_bytes()
    assert gzip.decompress(packed.read_bytes()) == plain.read_bytes()
    lines = plain.read_text().splitlines()
    assert [int(line) for line in lines[:3]] == [150, 1200, len(lines) - 3]
    for path in (plain, packed):
        data = read(path, "bow", cache=False)
        assert same(Corpus(data), Corpus(made.data))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["again.txt.gz", "docword.txt", "docword.txt.gz"]


def test_a_corpus_that_cannot_be_written_leaves_nothing_behind(tmp_path: Path) -> None:
    def stop(done: int, documents: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_corpus(tmp_path / "docword.txt", 100, 50, 2, 10, progress=stop)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(DataError, match="cannot be written"):
        write_corpus(tmp_path / "no" / "docword.txt", 100, 50, 2, 10)


@pytest.mark.parametrize(
    "numbers",
    [
        {"documents": 0},
        {"words": 2**31},
        {"length": 0.5},
        {"length": np.nan},
        {"alpha": 0.0},
        {"alpha": [0.1, 0.2, 0.3]},
        {"beta": 0.0},
        {"zipf": -1.0},
        {"chunk": 0},
    ],
)
def test_impossible_corpora_are_refused_at_once(numbers: dict[str, Any]) -> None:
    with pytest.raises(DataError):
        generate_corpus(**({"documents": 10, "words": 10, "topics": 2, "length": 5} | numbers))


def test_many_topics_make_do_with_shorter_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(making, "ROOM", 1 << 16)
    assert making._tables(30, 20, 0.1, 1.0, 0).shape == (20, 2048)
    assert isinstance(make_corpus(5, 30, 20, 4).data, Data)
