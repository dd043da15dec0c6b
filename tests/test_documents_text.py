"""Documents of text as counts of words: those of scikit-learn's CountVectorizer, from files of all kinds."""

from __future__ import annotations

import gzip
import json
import lzma
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from sklearn.feature_extraction.text import CountVectorizer

import stretto as st
from stretto.data.documents import read_text as reading
from stretto.data.documents import tokens
from stretto.data.documents.kind import holds_text
from stretto.data.documents.options import TOKEN_PATTERN
from stretto.data.documents.skipped import SkippedDocumentsWarning
from stretto.errors import DataError, FormatError

TEXTS = [
    "The cat saw a cat. naïve Ünïcode_1 x é ÉÉ ΣΑΣ. Σ",
    "",
    "A dog! the the cat \U0001d538\U0001d539 中文字 ١٢",
    "dog cat dog, don't",
    "İstanbul straße ﬁne x1 1x the a_b",
]
OPTIONS: list[dict[str, Any]] = [
    {},
    {"lowercase": False},
    {"ngram_range": (1, 2)},
    {"ngram_range": (2, 3)},
    {"stop_words": "english", "ngram_range": (1, 3)},
    {"stop_words": ["the", "cat"]},
    {"min_df": 2},
    {"min_df": 0.3},
    {"max_df": 0.5},
    {"max_df": 2, "ngram_range": (1, 2)},
    {"token_pattern": r"(?u)\b\w+\b"},
    {"token_pattern": r"\b\w\w\w+\b"},
    {"token_pattern": r"[a-z]+", "ngram_range": (1, 2)},
    {"token_pattern": r"\b(\w)\w+\b"},
]


def same_as_scikit(texts: list[str], options: dict[str, Any]) -> None:
    vectorizer = CountVectorizer(**options)
    expected = vectorizer.fit_transform(texts)
    found = st.read_text(texts, **options)
    assert found.vocabulary == vectorizer.get_feature_names_out().tolist()
    assert np.array_equal(found.counts.toarray(), expected.toarray())
    assert found.counts.has_sorted_indices
    assert found.to_csr() is found.counts
    again = st.read_text([*texts, "unknown words"], like=found)
    assert np.array_equal(again.counts.toarray()[:-1], expected.toarray())
    assert again.vocabulary == found.vocabulary


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_words_and_counts_are_those_of_scikit_learn(options: dict[str, Any]) -> None:
    same_as_scikit(TEXTS, options)


@settings(max_examples=60, deadline=None)
@given(some.lists(some.text(max_size=30), min_size=1, max_size=5))
def test_any_text_is_cut_as_by_scikit_learn(texts: list[str]) -> None:
    same_as_scikit([*texts, "one word"], {"ngram_range": (1, 2)})


def test_the_most_frequent_words_are_kept() -> None:
    found = st.read_text(["b b b a a c c d", "b a c"], token_pattern=r"\w", max_features=2)
    assert found.vocabulary == ["a", "b"]  # a and c are equally frequent: the first is kept
    assert found.counts.toarray().tolist() == [[2.0, 3.0], [1.0, 1.0]]


def test_many_documents_are_the_same_in_any_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = random.Random(0)
    texts = [" ".join(f"wörd{draw.randrange(400)}" for _ in range(draw.randrange(40))) for _ in range(3000)]
    whole = st.read_text(texts, ngram_range=(1, 2), min_df=3)
    monkeypatch.setattr(tokens, "CHARACTERS", 500)
    monkeypatch.setattr(reading, "CHARACTERS", 700)
    cut = st.read_text(texts, ngram_range=(1, 2), min_df=3)
    assert cut.vocabulary == whole.vocabulary
    assert (cut.counts != whole.counts).nnz == 0
    assert whole.n_empty == sum(not text for text in texts)


def test_which_patterns_are_compiled() -> None:
    assert tokens.least_characters(TOKEN_PATTERN) == 2
    assert tokens.least_characters(r"\b\w+\b") == 1
    assert tokens.least_characters(r"(?u)\b\w\w\w\w+\b") == 4
    for other in (r"\w+", r"(?i)\b\w\w+\b", r"\b\w\w*\b", r"\b[a-z]+\b", r"\b\w\w+"):
        assert tokens.least_characters(other) is None


# --- files -----------------------------------------------------------------


def test_a_folder_is_one_document_a_file(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "two.txt").write_text("two words\nof two lines", encoding="utf-8")
    (tmp_path / "a.txt").write_text("\ufeffone café", encoding="utf-8")
    (tmp_path / "c.txt.gz").write_bytes(gzip.compress(b"three packed"))
    (tmp_path / "d.txt.xz").write_bytes(lzma.compress(b"four packed"))
    (tmp_path / "empty.txt").write_text("")
    (tmp_path / ".hidden").write_text("hidden")
    (tmp_path / "_SUCCESS").write_text("written")
    found = st.read_text(tmp_path)
    assert found.documents == ["a.txt", "b/two.txt", "c.txt.gz", "d.txt.xz", "empty.txt"]
    assert found.vocabulary == sorted({"café", "four", "lines", "of", "one", "packed", "three", "two", "words"})
    assert found.counts.sum(axis=1).tolist() == [2, 5, 2, 2, 0]
    assert found.snippets[1] == "two words of two lines"
    assert found.n_empty == 1
    some = st.read_text(str(tmp_path / "*.txt"))
    assert some.documents == ["a.txt", "empty.txt"]


def test_a_file_is_one_document_a_line(tmp_path: Path) -> None:
    path = tmp_path / "lines.txt"
    path.write_bytes(b"first line\r\n\nthird one\nlast")
    found = st.read_text(path)
    assert found.counts.sum(axis=1).tolist() == [2, 0, 2, 1]
    assert found.documents is None
    path.write_text("ein Wörtchen\nnoch eins", encoding="utf-16")
    assert st.read_text(path, encoding="utf-16").vocabulary == ["ein", "eins", "noch", "wörtchen"]


@pytest.mark.parametrize("kind", ["csv", "tsv", "jsonl", "parquet", "csv.gz", "position"])
def test_a_column_of_a_table(kind: str, tmp_path: Path) -> None:
    rows = [("k1", 'says "hello", twice\nand again'), ("k2", ""), ("k3", "bye now")]
    path = tmp_path / f"table.{kind}"
    column: str | int = "body"
    names: str | int = "key"
    if kind == "jsonl":
        lines = [{"key": k, "body": t} for k, t in rows]
        path.write_text("\n".join(map(json.dumps, lines)) + "\n", encoding="utf-8")
    elif kind == "parquet":
        pa = pytest.importorskip("pyarrow")
        table = pa.table({"key": [k for k, _ in rows], "body": [t or None for _, t in rows]})
        pytest.importorskip("pyarrow.parquet").write_table(table, path)
    else:
        sep = "\t" if kind == "tsv" else ","
        quoted = [f'{k}{sep}"' + t.replace('"', '""') + '"' for k, t in rows]
        head = [] if kind == "position" else [f"key{sep}body"]
        text = "\n".join([*head, *quoted]) + "\n"
        path = tmp_path / "plain.csv" if kind == "position" else path
        path.write_bytes(gzip.compress(text.encode()) if kind.endswith("gz") else text.encode())
        column, names = (1, 0) if kind == "position" else (column, names)
    found = st.read_text(path, column=column, names=names)
    assert found.documents == ["k1", "k2", "k3"]
    assert found.vocabulary == ["again", "and", "bye", "hello", "now", "says", "twice"]
    assert found.counts.sum(axis=1).tolist() == [5, 0, 2]


def test_what_cannot_be_read_is_named_and_may_be_left_out(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("good words", encoding="utf-8")
    (tmp_path / "b.txt").write_bytes(b"caf\xe9 noir")
    (tmp_path / "c.txt").write_bytes(b"zero \0 byte")
    (tmp_path / "d.txt").write_bytes(gzip.compress(b"broken " * 500)[:-12])
    with pytest.raises(FormatError, match=r'b\.txt: is not utf-8 text: byte 0xe9 at position 3; .*encoding="latin-1"'):
        st.read_text(tmp_path)
    with pytest.warns(SkippedDocumentsWarning, match=r"3 documents were left out.*b\.txt: is not utf-8"):
        assert st.read_text(tmp_path, on_error="skip").documents == ["a.txt"]
    with pytest.warns(SkippedDocumentsWarning, match="2 documents"):
        found = st.read_text(tmp_path, encoding="latin-1", on_error="skip")
    assert found.vocabulary == ["café", "good", "noir", "words"]
    lines = tmp_path / "lines.jsonl"
    lines.write_bytes(b'{"t": "one two"}\n{"u": 1}\nnot json\n{"t": 5}\n{"t": "three"}\n')
    with pytest.raises(FormatError, match=r"lines\.jsonl:2: has no field 't'"):
        st.read_text(lines, column="t")
    with pytest.warns(SkippedDocumentsWarning, match="3 documents were left out.*:2:"):
        assert len(st.read_text(lines, column="t", on_error="skip")) == 2
    table = tmp_path / "t.csv"
    table.write_bytes(b"id,t\n1,one two\n2\n3,caf\xe9\n4,three\n")
    with pytest.raises(FormatError, match=r"t\.csv:3: has 1 columns"):
        st.read_text(table, column="t")
    with pytest.warns(SkippedDocumentsWarning, match="2 documents"):
        assert len(st.read_text(table, column="t", on_error="skip")) == 2


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"source": "missing.txt"}, "no such file"),
        ({"source": []}, "flat list of texts"),
        ({"source": [["a"]]}, "flat list of texts"),
        ({"source": 5}, "is a int"),
        ({"source": ["a b"]}, "hold no words"),
        ({"source": ["one two", "one"], "min_df": 3}, "no word is left of 2"),
        ({"source": ["one"], "min_df": 0}, "min_df must be"),
        ({"source": ["one"], "max_df": 1.5}, "max_df must be"),
        ({"source": ["one"], "ngram_range": (2, 1)}, "ngram_range"),
        ({"source": ["one"], "ngram_range": "1,2"}, "two whole numbers"),
        ({"source": ["one"], "token_pattern": "("}, "not a regular expression"),
        ({"source": ["one"], "token_pattern": "(a)(b)"}, "2 groups"),
        ({"source": ["one"], "token_pattern": "a*"}, "matches an empty text"),
        ({"source": ["one"], "stop_words": "german"}, "stop_words must be"),
        ({"source": ["one"], "stop_words": [1]}, "not text"),
        ({"source": ["one"], "lowercase": 1}, "lowercase must be"),
        ({"source": ["one"], "max_features": 0}, "max_features must be"),
        ({"source": ["one"], "encoding": "utf-9"}, "encoding"),
        ({"source": ["one"], "on_error": "ignore"}, "on_error"),
        ({"source": ["one"], "column": "text"}, "column="),
        ({"source": ["one"], "names": ["a", "b"]}, "a name for each"),
        ({"source": ["one"], "like": 3}, "not made from text"),
        ({"source": ["one"], "vocabulary": ["one", "one"]}, "twice"),
    ],
)
def test_wrong_arguments_are_refused(given: dict[str, Any], said: str) -> None:
    if given.get("encoding"):
        given = {**given, "source": __file__}
    with pytest.raises(DataError, match=said):
        st.read_text(**given)


def test_tables_need_a_column(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("id,body\n1,one two\n")
    with pytest.raises(DataError, match="is a table; say which column"):
        st.read_text(path)
    with pytest.raises(FormatError, match=r"no column 'text' among 'id', 'body'"):
        st.read_text(path, column="text")
    with pytest.raises(DataError, match="name the column of the text"):
        st.read_text(path, names="id")


def test_texts_come_as_any_column(tmp_path: Path) -> None:
    expected = st.read_text(["one two", "two"])
    pandas = pytest.importorskip("pandas")
    for texts in (("one two", "two"), np.array(["one two", "two"]), pandas.Series(["one two", "two"])):
        found = st.read_text(texts, names=["a", "b"])
        assert found.vocabulary == expected.vocabulary
        assert found.documents == ["a", "b"]
        assert (found.counts != expected.counts).nnz == 0


def test_what_looks_like_text(tmp_path: Path) -> None:
    for name, text, prose in (
        ("prose.txt", "It was the best of times, it was the worst of times.\n" * 3, True),
        ("bow.txt", "2\n3\n2\n1 1 4\n2 3 1\n", False),
        ("lda-c.dat", "3 0:1 4:2 7:1\n2 1:1 2:1\n", False),
        ("svm.txt", "1 3:0.5 4:1\n0 2:1\n", False),
        ("ratings.dat", "1::1193::5::978300760\n", False),
        ("plays.txt", "ada tea 5\neve rye 3\n", False),
        ("t.csv", "id,body\n1,It was the best of times it was\n", False),
        ("matrix.mtx", "%%MatrixMarket matrix coordinate integer general\n2 2 1\n1 1 3\n", False),
        ("empty.txt", "", False),
    ):
        (tmp_path / name).write_text(text)
        assert holds_text(str(tmp_path / name)) == prose, name
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "one.txt").write_text("short\n")
    assert holds_text(str(folder))
    (folder / "a.dat").write_text("3 0:1 4:2 7:1\n")
    assert not holds_text(str(folder))
    assert not holds_text(str(tmp_path / "missing"))
