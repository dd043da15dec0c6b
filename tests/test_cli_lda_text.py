"""From a folder of text to topics on the command line, and back after an interruption with the same words and bits."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import stretto as st
from clirun import empty_pictures, private_cache, same_model, stretto
from stretto.observe.record import RunRecord
from test_models_lda_text import texts

OPTIONS = ["--topics", "3", "--alpha", "0.1", "--epochs", "12", "--stop-words", "english", "--min-df", "2"]


@pytest.fixture(scope="module", autouse=True)
def surroundings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with private_cache(tmp_path_factory.mktemp("cache")), empty_pictures():
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ninety letters in two folders."""
    path = tmp_path_factory.mktemp("text") / "letters"
    for k, text in enumerate(texts()):
        file = path / ("even" if k % 2 == 0 else "odd") / f"{k:03}.txt"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{text}\nThe letter is about that.", encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def run(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "letters"
    said = stretto("train", "lda", folder, *OPTIONS, "--workers", "1", "--out", out).out
    assert f"{folder}: read as text, one document a file" in said
    assert "90 documents × 13 words, 1,890 tokens" in said  # twelve words, and "letter"
    return out


def test_a_folder_becomes_topics_with_documents_by_name(run: Path, folder: Path) -> None:
    page = (run / "topics.html").read_text(encoding="utf-8")
    assert re.search(
        r"(even|odd)/[0-9]{3}\.txt: (Game|Team|Score|Coach|Gene|Dna|Cell|Virus|Court|Judge|Law|Jury) ", page
    )
    model = st.LatentDirichletAllocation.load(run / "model.safetensors")
    assert model.vocabulary_ is not None
    assert set(model.vocabulary_) >= {"game", "gene", "court"}
    table = stretto("topics", run).out
    assert "judge" in table
    assert "gene" in table


def test_workers_streaming_and_resuming_change_no_bit(run: Path, folder: Path, tmp_path: Path) -> None:
    for more in (["--workers", "3"], ["--memory", "64MB"]):
        out = tmp_path / more[0]
        stretto("train", "lda", folder, *OPTIONS, *more, "--out", out, "--quiet")
        assert same_model(run, out)
    out = tmp_path / "longer"
    given = [*OPTIONS, "--burn-in", "6", "--checkpoint-every", "1 epochs"]
    stretto("train", "lda", folder, *given, "--out", tmp_path / "whole", "--quiet")
    stretto("train", "lda", folder, *given, "--epochs", "9", "--average-every", "1", "--out", out, "--quiet")
    stretto("resume", out, "--epochs", "12")
    longer = st.LatentDirichletAllocation.load(out / "model.safetensors")
    assert longer.n_iter_ == 12
    assert longer.vocabulary_ == st.LatentDirichletAllocation.load(run / "model.safetensors").vocabulary_
    said = RunRecord.load(out).config["recipe"]["text"]
    assert (said["stop_words"], said["min_df"], said["ngram_range"]) == ("english", 2, [1, 1])


def test_new_text_is_cut_as_in_training(run: Path, folder: Path, tmp_path: Path) -> None:
    model = st.LatentDirichletAllocation.load(run / "model.safetensors")
    new = texts(12, seed=4)
    lines = tmp_path / "new.txt"
    lines.write_text("\n".join(new), encoding="utf-8")
    stretto("infer", run, lines, "--out", tmp_path / "lines.npz", "--text", "lines")
    assert np.array_equal(np.load(tmp_path / "lines.npz")["shares"], model.transform(new))
    table = tmp_path / "new.csv"
    with table.open("w", newline="") as file:
        csv.writer(file).writerows([("title", "body"), *((f"no {k}", text) for k, text in enumerate(new))])
    asked: list[str | Path] = ["--text", "body", "--names", "title", "--out", tmp_path / "table.npz", "--perplexity"]
    assert "perplexity" in stretto("infer", run, table, *asked).out
    found = np.load(tmp_path / "table.npz")
    assert found["documents"].tolist() == [f"no {k}" for k in range(12)]
    assert np.array_equal(found["shares"], model.transform(new))
    stretto("infer", run, folder, "--out", tmp_path / "all.csv", "--quiet")
    with (tmp_path / "all.csv").open() as file:
        named = {row["document"] for row in csv.DictReader(file)}
    assert "odd/001.txt" in named
    assert len(named) == 90


def test_a_column_of_a_table_with_options_of_text(tmp_path: Path) -> None:
    table = tmp_path / "reviews.jsonl"
    table.write_text("".join(json.dumps({"id": k, "body": text}) + "\n" for k, text in enumerate(texts())))
    stops = tmp_path / "stops.txt"
    stops.write_text("Game\njury\n")
    asked: list[str | Path] = [
        "--text",
        "body",
        "--names",
        "id",
        "--ngrams",
        "1,2",
        "--max-words",
        "20",
        "--stop-words",
        stops,
    ]
    asked += ["--no-lowercase", "--token-pattern", r"\b[a-z]+\b", "--max-df", "0.9"]
    stretto("train", "lda", table, *asked, "--topics", "3", "--epochs", "2", "--out", tmp_path / "run", "--quiet")
    model = st.LatentDirichletAllocation.load(tmp_path / "run" / "model.safetensors")
    expected = st.read_text(
        texts(), ngram_range=(1, 2), max_features=20, stop_words=["Game", "jury"], lowercase=False,
        token_pattern=r"\b[a-z]+\b", max_df=0.9,
    )  # fmt: skip
    assert model.vocabulary_ == expected.vocabulary
    assert "read as text" not in stretto("explain", table, *asked, "--topics", "3").out


def test_seed_words_from_files(folder: Path, tmp_path: Path) -> None:
    files = {
        "seeds.toml": 'law = ["court", "judge"]\nlife = ["gene"]\n[2]\ngame = 40\n',
        "seeds.json": '{"law": ["court", "judge"], "life": ["gene"], "2": {"game": 40}}',
        "seeds.txt": "# topics\nlaw: court, judge\nlife: gene\n",
    }
    found = []
    for name, text in files.items():
        (tmp_path / name).write_text(text)
        out = tmp_path / f"run-{name}"
        stretto("train", "lda", folder, *OPTIONS, "--seeds", tmp_path / name, "--out", out, "--quiet")
        model = st.LatentDirichletAllocation.load(out / "model.safetensors")
        found.append(model.fingerprint_)
        assert model.seed_names_ == ["law", "life", None]
        best = model.top_words(n=4)
        assert {"court", "judge"} <= set(best[0])
        assert "gene" in best[1]
    assert found[0] == found[1] != found[2]
    table = stretto("topics", tmp_path / "run-seeds.toml").out
    assert "name" in table
    assert re.search(r"│ +0 │ +[0-9]+ │ law +│", table)
    assert "topic 1, life: " in stretto("topics", tmp_path / "run-seeds.toml", "--topic", "1").out
    assert '"titles":["law","life",' in (tmp_path / "run-seeds.toml" / "topics.html").read_text(encoding="utf-8")
    (tmp_path / "bad.toml").write_text("law = [")
    said = stretto("train", "lda", folder, "--seeds", tmp_path / "bad.toml", code=2).err
    assert "bad.toml: is no TOML" in said
    (tmp_path / "bad.txt").write_text("court judge")
    assert "bad.txt:1: has no colon" in stretto("train", "lda", folder, "--seeds", tmp_path / "bad.txt", code=2).err


def test_nothing_in_the_text_runs_in_the_browser(tmp_path: Path) -> None:
    folder = tmp_path / "letters"
    folder.mkdir()
    bad = "</script><script>alert(1)</script>"
    for k in range(6):
        (folder / f"<img src=x onerror=alert({k})>.txt").write_text(f"{bad} <b>word{k % 2}</b> & some more words")
    asked: list[str | Path] = ["--token-pattern", r"\S+", "--seeds", tmp_path / "seeds.json"]
    (tmp_path / "seeds.json").write_text(json.dumps({"<i>name</i>": ["words"]}))
    stretto("train", "lda", folder, *asked, "--topics", "2", "--epochs", "2", "--out", tmp_path / "run", "--quiet")
    page = (tmp_path / "run" / "topics.html").read_text(encoding="utf-8")
    for text in ("<script>alert", "<img src", "<b>word", "<i>name"):
        assert text not in page
    assert "\\u003cb\\u003eword0" in page
    assert "\\u003cimg src=x onerror=alert(0)\\u003e.txt: \\u003c/script" in page


def test_what_is_wrong_is_said_with_the_options(run: Path, folder: Path, tmp_path: Path) -> None:
    table = tmp_path / "t.csv"
    table.write_text("id,body\n1,one two\n")
    assert "no column 'text'" in stretto("train", "lda", table, "--text", "text", code=2).err
    bad = tmp_path / "bad"
    bad.mkdir()
    (bad / "a.txt").write_text("some good words of text here", encoding="utf-8")
    (bad / "b.txt").write_bytes(b"caf\xe9 noir and other words")
    said = " ".join(stretto("train", "lda", bad, code=2).err.split())
    assert "b.txt: is not utf-8 text: byte 0xe9 at position 3" in said
    assert "--encoding latin-1" in said
    assert "--on-error skip" in said
    more: list[str | Path] = ["--on-error", "skip", "--topics", "2", "--epochs", "1", "--out", tmp_path / "run"]
    assert "1 document was left out" in " ".join(stretto("train", "lda", bad, *more).err.split())
    counts = tmp_path / "docword.txt"
    counts.write_text("2\n3\n2\n1 1 4\n2 3 1\n")
    assert "does not look like text" in stretto("train", "lda", counts, "--min-df", "2", code=2).err
    assert "--vocab" in stretto("train", "lda", folder, "--vocab", counts, code=2).err
    assert "--ngrams 1-2" in stretto("train", "lda", folder, "--ngrams", "1-2", code=2).err
    assert "--min-df many" in stretto("train", "lda", folder, "--min-df", "many", code=2).err
    assert "no such file" in stretto("train", "lda", folder, "--stop-words", "german", code=2).err
