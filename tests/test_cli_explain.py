"""`stretto explain` takes every option of `stretto train`, and prints the fingerprint that `train` then reports."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import typer

from clirun import empty_pictures, private_cache, stretto
from plan_cases import documents
from stretto.cli import app
from stretto.cli.commands import train
from stretto.cli.merged_options import MergedOptions


@pytest.fixture(scope="module", autouse=True)
def _quick(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with private_cache(tmp_path_factory.mktemp("cache")), empty_pictures():
        yield


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("data")
    random = np.random.default_rng(0)
    cells = random.choice(60 * 40, 1500, replace=False)
    lines = [f"{c // 40},{c % 40},{random.integers(1, 6)}" for c in cells.tolist()]
    (folder / "ratings.csv").write_text("\n".join(lines) + "\n")
    X = documents().tocoo()
    words = [f"{d + 1} {w + 1} {n}" for d, w, n in zip(X.row, X.col, X.data, strict=True)]
    (folder / "docword.toy.txt").write_text("\n".join([*map(str, (*X.shape, X.nnz)), *words]) + "\n")
    (folder / "words.txt").write_text("\n".join(f"w{k}" for k in range(199)) + "\n")
    return {"mf": folder / "ratings.csv", "lda": folder / "docword.toy.txt", "words": folder / "words.txt"}


def flags(*path: str) -> set[str]:
    command = typer.main.get_command(app)
    for name in path:
        command = command.commands[name]  # type: ignore[attr-defined]
    return {flag for parameter in command.params for flag in (*parameter.opts, *parameter.secondary_opts)}


@pytest.mark.parametrize("model", ["mf", "lda"])
def test_every_option_of_train_is_one_of_explain(model: str) -> None:
    assert flags("train", model) <= flags("explain")


MF = [
    "",
    "--rank 5 --reg 0.1 --bias-reg 0.2 --seed 3 --width 3",
    "-k 4 --optimizer adagrad --learning-rate 0.1 --schedule constant",
    "--loss absolute --no-biases --profile fast",
    "--solver als",
    "--solver als --implicit --alpha 2",
    "--solver ccd --test 0",
    "--test 0.3 --early-stopping",
    "--memory 1MB",
    "--memory 60kB --width 8 --test 0.2",
    "--columns 1,0,2 --no-cache",
    "--runtime serial",
    "--runtime cluster:processes --nodes 2",
    "--checkpoint-every 5 --quiet",
]
LDA = [
    "",
    "-k 5 --alpha 0.3 --beta 0.05 --seed 2",
    "--topics 5 --sampler mh --mh-steps 3",
    "--optimize-every 1 --burn-in 1 --average-every 1 --warm-up 2",
    "--early-stopping --test 0.1",
    "--vocab WORDS --strict",
    "--memory 3MB",
    "--runtime serial --width 3 --profile fast",
    "--evaluate-every 0 --all",
]


@pytest.mark.parametrize(("model", "options"), [("mf", o) for o in MF] + [("lda", o) for o in LDA])
def test_explain_tells_the_fingerprint_of_train(
    model: str, options: str, files: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    typed = [str(files["words"]) if word == "WORDS" else word for word in options.split()]
    if "--epochs" not in typed:
        typed += ["--epochs", "2"]
    said = stretto("explain", files[model], "--model", model, *typed).out
    assert list(tmp_path.iterdir()) == [], "explain leaves nothing behind"
    stretto("train", model, files[model], *typed, "--out", "run")
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    trained = (tmp_path / "run" / "plan.txt").read_text()
    assert said.split(":")[0] == trained.split(":")[0]
    assert said.split(":")[0].removeprefix("plan ") in json.dumps(record)


def test_an_option_of_one_model_says_which_is_meant(files: dict[str, Path]) -> None:
    assert ": lda/" in stretto("explain", files["lda"], "--topics", "3").out
    assert ": lda/" in stretto("explain", files["lda"], "--sampler", "sparse").out
    assert ": mf/als" in stretto("explain", files["mf"], "--solver", "als").out
    wrong = stretto("explain", files["mf"], "--topics", "3", "--rank", "3", code=2).err
    assert "--topics is an option of lda, not of mf; leave it out" in " ".join(wrong.split())
    wrong = stretto("explain", files["lda"], "--model", "lda", "--bias-reg", "3", code=2).err
    assert "--bias-reg is an option of mf, not of lda" in " ".join(wrong.split())


def test_where_it_would_run(files: dict[str, Path]) -> None:
    said = stretto("explain", files["mf"], "--runtime", "cluster", "--nodes", "3", "--workers", "2").out
    assert "runs on     cluster, 6 workers" in said


def test_merged_options_keep_their_own_defaults() -> None:
    merged = MergedOptions({"mf": train.mf, "lda": train.lda})
    for name, command in (("mf", train.mf), ("lda", train.lda)):
        asked = merged.asked(name, {"seed": 5})
        given = {p.name: p.default for p in inspect.signature(command).parameters.values()}
        assert asked == {option: value for option, value in given.items() if option != "file"} | {"seed": 5}
