"""Topic models from the command line: from a file of counts to topics, a browser, shares of new documents, and back
after an interruption with the same bits.
"""

from __future__ import annotations

import csv
import inspect
import json
import signal
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest

import stretto as st
from clirun import empty_pictures, private_cache, same_model, start, stretto
from stretto.cli import documents, topic_shares, vocabulary
from stretto.cli.commands import train
from stretto.cli.recipes import recipe
from stretto.cli.recipes.mf import MfRecipe
from stretto.data.generate.corpus import topic_words, write_corpus

DOCUMENTS, WORDS, TOPICS, LENGTH, SEED = 400, 900, 4, 50, 3
MADE = ["--documents", "400", "--words", "900", "--topics", "4", "--length", "50", "--seed", "3"]
OPTIONS = ["--topics", "4", "--alpha", "0.1", "--epochs", "40", "--optimize-every", "5", "--burn-in", "10"]
COMMANDS = [["train", "lda"], ["topics"], ["infer"]]


@pytest.fixture(scope="module", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with private_cache(tmp_path_factory.mktemp("cache")):
        yield


@pytest.fixture(autouse=True)
def pictures(request: pytest.FixtureRequest) -> Iterator[None]:
    """Drawn where a test reads what a run leaves behind, empty for all others."""
    drawn = request.node.name == "test_a_run_prints_its_topics_and_leaves_them_to_look_through"
    with nullcontext() if drawn else empty_pictures():
        yield


def write_words(path: Path, words: list[str] | None = None) -> Path:
    path.write_text("\n".join(words or [f"word{w}" for w in range(WORDS)]) + "\n", encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def docword(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twenty thousand tokens from four topics, with their vocabulary beside them."""
    path = tmp_path_factory.mktemp("corpus") / "docword.toy.txt.gz"
    stretto("generate", path, *MADE)
    write_words(path.parent / "vocab.toy.txt")
    return path


@pytest.fixture(scope="module")
def whole(docword: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that nothing disturbed."""
    out = tmp_path_factory.mktemp("runs") / "whole"
    stretto("train", "lda", docword, *OPTIONS, "--workers", "1", "--out", out)
    return out


@pytest.fixture(scope="module")
def model(whole: Path) -> st.LatentDirichletAllocation:
    return st.LatentDirichletAllocation.load(whole / "model.safetensors")


# --- training ------------------------------------------------------------


def test_a_run_prints_its_topics_and_leaves_them_to_look_through(docword: Path, tmp_path: Path) -> None:
    said = stretto("train", "lda", docword, *OPTIONS, "--out", tmp_path / "run", "--verbose").out
    there = {path.name for path in (tmp_path / "run").iterdir()}
    assert there >= {"run.json", "events.jsonl", "plan.txt", "plan.svg", "convergence.svg", "trace.json"}
    assert there >= {"model.safetensors", "topics.html"}
    assert (tmp_path / "run" / "convergence.svg").stat().st_size > 1000
    assert f"words from {docword.parent / 'vocab.toy.txt'}" in said
    assert "400 documents × 900 words" in said
    assert "epoch 40/40  tokens moved" in said
    assert "M tokens/s" in said
    assert "log-likelihood -" in said
    assert "grade       identical" in said
    for words in st.LatentDirichletAllocation.load(tmp_path / "run" / "model.safetensors").top_words(n=10):
        assert f" {' '.join(words)} " in " ".join(said.replace("│", " ").split())
    assert f"stretto topics {tmp_path / 'run'}" in said
    page = (tmp_path / "run" / "topics.html").read_text(encoding="utf-8")
    assert "word" in page
    assert "document " in page
    assert json.loads((tmp_path / "run" / "run.json").read_text())["config"]["recipe"]["file"] == str(docword)


def test_the_topics_behind_the_documents_are_found(docword: Path, tmp_path: Path) -> None:
    options = ["--topics", "4", "--alpha", "0.1", "--epochs", "300", "--evaluate-every", "0", "--seed", "2", "--quiet"]
    stretto("train", "lda", docword, *options, "--out", tmp_path / "run")
    weights = st.LatentDirichletAllocation.load(tmp_path / "run" / "model.safetensors").components_
    truth = topic_words(WORDS, TOPICS, seed=SEED)
    affinity = np.sqrt(truth) @ np.sqrt(weights / weights.sum(axis=1, keepdims=True)).T
    best = affinity.argmax(axis=1)
    assert sorted(best.tolist()) == list(range(TOPICS))
    assert affinity.max(axis=1).min() > 0.9
    lines = stretto("topics", tmp_path / "run", "--all", "--words", "3").out.splitlines()
    for k, row in enumerate(truth):
        line = next(line for line in lines if line.startswith(f"│ {best[k]:>5} "))
        assert f"word{row.argmax()}" in line.split()


def test_the_next_free_folder_is_taken_and_quiet_is_quiet(
    docword: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        assert stretto("train", "lda", docword, "--topics", "2", "--epochs", "1", "--quiet").out == ""
    assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == ["lda-1", "lda-2"]


@pytest.mark.parametrize("more", [["--workers", "3"], ["--memory", "64MB"]], ids=" ".join)
def test_where_it_runs_changes_no_bit(more: list[str], docword: Path, whole: Path, tmp_path: Path) -> None:
    stretto("train", "lda", docword, *OPTIONS, *more, "--out", tmp_path / "run", "--quiet")
    assert same_model(whole, tmp_path / "run")
    # A streamed file has its browser too, from the documents it begins with.
    assert "document " in (tmp_path / "run" / "topics.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "more",
    [["--sampler", "mh", "--mh-steps", "1"], ["--average-every", "2", "--burn-in", "2", "--topics", "300"]],
    ids=" ".join,
)
def test_other_ways_of_training(more: list[str], docword: Path, tmp_path: Path) -> None:
    options = ["--topics", "4", "--epochs", "6", "--out", str(tmp_path / "run")]
    assert "result" in stretto("train", "lda", docword, *options, *more).out


def test_documents_can_be_held_out_and_stop_the_training(docword: Path, tmp_path: Path) -> None:
    options = ["--topics", "4", "--epochs", "300", "--early-stop", "--out", str(tmp_path / "run")]
    said = stretto("train", "lda", docword, *options).out
    assert "5% held out" in said
    assert "held-out perplexity" in said
    assert json.loads((tmp_path / "run" / "run.json").read_text())["status"] == "early"
    assert "stopped early, as asked" in stretto("resume", tmp_path / "run").out


def test_many_topics_are_cut_short_unless_asked_for(docword: Path, tmp_path: Path) -> None:
    options = ["--topics", "25", "--epochs", "1"]
    said = stretto("train", "lda", docword, *options, "--out", tmp_path / "some").out
    assert "the 20 largest of 25 topics" in said
    said = stretto("train", "lda", docword, *options, "--all", "--out", tmp_path / "all").out
    assert all(f"│ {k:>5} │" in said for k in range(25))


# --- stopping and going on ------------------------------------------------------------


LONG = ["--topics", "4", "--epochs", "150", "--optimize-every", "7", "--average-every", "11"]


@pytest.fixture(scope="module")
def long(docword: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "long"
    stretto("train", "lda", docword, *LONG, "--out", out, "--quiet")
    return out


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL], ids=["Ctrl-C", "kill -9"])
def test_an_interrupted_run_goes_on_to_the_same_bits(
    how: signal.Signals, docword: Path, long: Path, tmp_path: Path
) -> None:
    options = [*LONG, "--checkpoint-every", "10 epochs"]
    process = start("train", "lda", docword, *options, "--out", tmp_path / "cut")
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("epoch  30/"):
            process.send_signal(how)
            break
    out, err = process.communicate(timeout=60)
    assert process.returncode == (130 if how == signal.SIGINT else -signal.SIGKILL), out + err
    assert "Traceback" not in err
    assert "epoch 150/" not in out
    if how == signal.SIGINT:
        assert f"go on with: stretto resume {tmp_path / 'cut'}" in err
    said = stretto("resume", tmp_path / "cut", "--workers", "2").out
    assert "going on from checkpoint-" in said
    assert "tokens/s" in said
    assert same_model(long, tmp_path / "cut")
    assert (tmp_path / "cut" / "topics.html").is_file()


def test_training_longer_equals_having_trained_longer(docword: Path, whole: Path, tmp_path: Path) -> None:
    few = ["25" if option == "40" else option for option in OPTIONS]
    stretto("train", "lda", docword, *few, "--checkpoint-every", "5 epochs", "--out", tmp_path / "run", "--quiet")
    stretto("resume", tmp_path / "run", "--epochs", "40", "--quiet")
    assert same_model(whole, tmp_path / "run")
    said = stretto("resume", tmp_path / "run").out
    assert "is complete: 40 epochs" in said
    assert "stretto topics" in said


def test_documents_that_changed_are_refused(docword: Path, tmp_path: Path) -> None:
    here = tmp_path / "docword.txt"
    write_corpus(here, 50, 30, 2, 20, seed=1)
    run = tmp_path / "run"
    options = ["--topics", "2", "--epochs", "4", "--checkpoint-every", "2 epochs", "--out", str(run), "--quiet"]
    stretto("train", "lda", here, *options)
    write_corpus(here, 50, 30, 2, 20, seed=2)
    assert "is not what" in stretto("resume", run, "--epochs", "6", code=2).err


def test_a_recipe_that_names_no_model_is_one_for_ratings() -> None:
    told = {"file": "r.dat", "read": {}, "test": 0.1, "parameters": {}, "checkpoint_every": None, "memory": None}
    assert isinstance(recipe.Recipe.of({"recipe": told}, Path("run")), MfRecipe)
    with pytest.raises(st.errors.RunError, match="holds no recipe"):
        recipe.Recipe.of({"recipe": {**told, "model": "dream"}}, Path("run"))


# --- topics ------------------------------------------------------------


def test_a_topic_in_detail(model: st.LatentDirichletAllocation, whole: Path) -> None:
    said = stretto("topics", whole, "--topic", "2", "--words", "4").out
    assert f"topic 2: {model.topic_tokens_[2]:,.0f} tokens" in said
    likely = model.components_[2] / model.components_[2].sum()
    for word in model.top_words(n=4)[2]:
        assert f" {word} " in said
        assert f"{likely[int(word[4:])]:.4f}" in said
    assert "most like topic 2" in said


def test_the_browser_can_be_written_again(whole: Path, tmp_path: Path) -> None:
    said = stretto("topics", whole, "--html", tmp_path / "deep" / "again.html").out
    assert "4 topics" in said
    assert (tmp_path / "deep" / "again.html").read_text(encoding="utf-8").count("document ") > 4
    said = stretto("topics", whole / "model.safetensors", "--html", tmp_path / "bare.html").out
    assert "without documents" in said


def test_documents_that_are_gone_are_told_of(tmp_path: Path) -> None:
    write_corpus(tmp_path / "docword.txt", 50, 30, 2, 20, seed=1)
    stretto("train", "lda", tmp_path / "docword.txt", "--topics", "2", "--epochs", "2", "--out", tmp_path / "r", "-q")
    (tmp_path / "docword.txt").rename(tmp_path / "moved.txt")
    said = stretto("topics", tmp_path / "r", "--html", tmp_path / "t.html")
    assert "is gone" in said.err
    assert "without documents" in said.out
    said = stretto("topics", tmp_path / "r", "--html", tmp_path / "t.html", "--file", tmp_path / "moved.txt")
    assert "without" not in said.out


# --- inference ------------------------------------------------------------


def test_shares_of_new_documents(
    model: st.LatentDirichletAllocation, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    new = tmp_path / "new.txt"
    write_corpus(new, 30, WORDS, TOPICS, LENGTH, seed=SEED + 1)
    truth = model.transform(st.read(new, cache=False))
    monkeypatch.setattr(topic_shares, "_BYTES", 4 * TOPICS * 7)  # seven documents at a time
    said = stretto("infer", whole, new, "--out", tmp_path / "shares.npz", "--perplexity").out
    assert "30 documents × 4 topics" in said
    assert f"perplexity {model.perplexity(st.read(new, cache=False)):.1f}" in said
    with np.load(tmp_path / "shares.npz") as stored:
        assert stored.files == ["shares"]
        np.testing.assert_array_equal(stored["shares"], truth)
    stretto("infer", whole, new, "--out", tmp_path / "shares.csv", "--least", "0.2")
    with open(tmp_path / "shares.csv", newline="", encoding="utf-8") as file:
        rows = [(int(r["document"]), int(r["topic"]), float(r["share"])) for r in csv.DictReader(file)]
    assert [row[:2] for row in rows] == list(zip(*(a.tolist() for a in np.nonzero(truth >= 0.2)), strict=True))
    np.testing.assert_allclose([share for *_, share in rows], truth[truth >= 0.2], rtol=1e-5)
    assert not list(tmp_path.glob(".shares*"))


def test_words_are_looked_up_by_name(model: st.LatentDirichletAllocation, whole: Path, tmp_path: Path) -> None:
    """A file with the model's words in another order, and some that the model does not know."""
    order = np.random.default_rng(0).permutation(WORDS)
    counts = np.zeros((2, WORDS), np.int64)
    counts[0, :10], counts[1, 50:55] = 3, 2
    lines = [f"{d + 1} {w + 1} {counts[d, order[w]]}" for d in range(2) for w in range(WORDS) if counts[d, order[w]]]
    lines += [f"1 {WORDS + 1} 9"]
    new = tmp_path / "docword.other.txt"
    new.write_text(f"2\n{WORDS + 1}\n{len(lines)}\n" + "\n".join(lines) + "\n")
    write_words(tmp_path / "vocab.other.txt", [f"word{w}" for w in order] + ["unheard"])
    said = stretto("infer", whole, new, "--out", tmp_path / "shares.npz")
    assert "9 of 49 tokens" in said.err
    with np.load(tmp_path / "shares.npz") as stored:
        np.testing.assert_array_equal(stored["shares"], model.transform(counts))


def test_documents_keep_their_names(tmp_path: Path) -> None:
    rows = [f"{name},{word},2" for k, name in enumerate(["ada", "eve", "kim"]) for word in ["tea", "rye", "fig"][k:]]
    (tmp_path / "notes.csv").write_text("document,word,count\n" + "\n".join(rows) + "\n")
    stretto("train", "lda", tmp_path / "notes.csv", "--topics", "2", "--epochs", "3", "--out", tmp_path / "run", "-q")
    page = (tmp_path / "run" / "topics.html").read_text(encoding="utf-8")
    assert "kim" in page
    assert "rye" in page
    stretto("infer", tmp_path / "run", tmp_path / "notes.csv", "--out", tmp_path / "s.npz", "-q")
    with np.load(tmp_path / "s.npz") as stored:
        assert stored["documents"].tolist() == ["ada", "eve", "kim"]
        np.testing.assert_allclose(stored["shares"].sum(axis=1), 1, rtol=1e-5)


@pytest.mark.parametrize("entries", [1_000, 10**6])
def test_a_file_that_is_not_read_whole_is_looked_at_from_its_beginning(
    entries: int, docword: Path, model: st.LatentDirichletAllocation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(documents, "_ENTRIES", entries)
    found, every = documents.first_documents(str(docword), model), documents.documents_of(str(docword), model, None)
    assert found is not None
    some = found.n_documents
    assert (some == DOCUMENTS) == (entries == 10**6)
    assert some > 20
    here = every.data.rows < some
    for name in ("rows", "cols", "values"):
        np.testing.assert_array_equal(getattr(found.data, name), getattr(every.data, name)[here])


def test_documents_that_are_scattered_over_a_file_are_not_looked_at(
    model: st.LatentDirichletAllocation, tmp_path: Path
) -> None:
    (tmp_path / "docword.txt").write_text(f"2\n{WORDS}\n3\n1 1 2\n2 5 1\n1 7 3\n")
    assert documents.first_documents(str(tmp_path / "docword.txt"), model) is None


# --- errands ------------------------------------------------------------


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_has_help_with_examples(command: list[str]) -> None:
    said = stretto(*command, "--help")
    assert "Examples" in said.out
    assert "stretto " + " ".join(command) in " ".join(said.out.split())


def test_the_defaults_shown_are_the_estimators() -> None:
    ours = inspect.signature(train.lda).parameters
    theirs = inspect.signature(st.LatentDirichletAllocation).parameters
    same = set(ours) & set(theirs) - {"memory"}
    assert len(same) > 9
    for name in same:
        assert ours[name].default == theirs[name].default, name


def test_generate_writes_what_the_generator_makes(docword: Path, tmp_path: Path) -> None:
    write_corpus(tmp_path / "again.txt.gz", DOCUMENTS, WORDS, TOPICS, LENGTH, seed=SEED)
    assert (tmp_path / "again.txt.gz").read_bytes() == docword.read_bytes()


def test_explain_foretells_the_fingerprint_of_the_run(docword: Path, tmp_path: Path) -> None:
    options = ["--topics", "6", "--test", "0.1", "--optimize-every", "3", "--epochs", "1"]
    stretto("train", "lda", docword, *options, "--out", tmp_path / "run", "-q")
    said = stretto("explain", docword, "--model", "lda", *options, "--workers", "5", "--draw", tmp_path / "plan.svg")
    assert said.out.split(":")[0] == (tmp_path / "run" / "plan.txt").read_text().split(":")[0]
    assert "5 workers" in said.out
    assert (tmp_path / "plan.svg").read_text().startswith("<svg")


@pytest.mark.parametrize("name", ["vocab.toy.txt", "docword.vocab", "vocab.txt"])
def test_a_vocabulary_beside_the_file_is_found(name: str, tmp_path: Path) -> None:
    file = str(tmp_path / "docword.toy.txt")
    assert vocabulary.vocabulary_of(file, None, quiet=True) is None
    there = write_words(tmp_path / name)
    assert vocabulary.vocabulary_of(file, None, quiet=True) == str(there)
    assert vocabulary.vocabulary_of(file, "none", quiet=True) is None


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (["train", "lda", "nothing.txt"], "nothing.txt"),
        (["train", "lda", "DOCS", "--out", "RUN"], "stretto resume"),
        (["train", "lda", "DOCS", "--topics", "0"], "topics"),
        (["train", "lda", "DOCS", "--sampler", "magic"], "magic"),
        (["train", "lda", "DOCS", "--alpha", "-1"], "--alpha must be"),
        (["train", "lda", "DOCS", "--vocab", "gone.txt"], "gone.txt"),
        (["train", "lda", "DOCS", "--memory", "plenty"], "memory"),
        (["train", "lda", "DOCS", "--memory", "1GiB", "--test", "0.1"], "leave --test out"),
        (["train", "lda", "DOCS", "--memory", "1GiB", "--early-stop"], "leave --early-stopping out"),
        (["train", "lda", "DOCS", "--early-stop", "--test", "0"], "held out"),
        (["topics", "nowhere"], "nowhere"),
        (["topics", "RUN", "--topic", "4"], "from 0 to 3"),
        (["infer", "RUN", "DOCS", "--out", "shares.xls"], ".npz or .csv"),
        (["infer", "RUN", "OTHER", "--out", "shares.npz", "--vocab", "none"], "trained on"),
        (["recommend", "RUN", "--some", "1"], "model.safetensors"),
        (["generate", "x.txt.xz", "--documents", "10"], ".txt.gz"),
        (["explain", "nothing.txt", "--model", "lda"], "nothing.txt"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_errors_are_one_message_and_exit_code_2(
    args: list[str], told: str, docword: Path, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_corpus(tmp_path / "other.txt", 5, 7, 2, 9)
    names = {"DOCS": str(docword), "RUN": str(whole), "OTHER": "other.txt"}
    said = stretto(*[names.get(arg, arg) for arg in args], code=2)
    assert told in said.err
    assert "Traceback" not in said.err
    assert not (tmp_path / "runs").exists() or not any((tmp_path / "runs").iterdir())
