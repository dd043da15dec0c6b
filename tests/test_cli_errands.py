"""The command line, errand by errand: help, info, generate, explain, recommend, warmup, and how errors are reported."""

from __future__ import annotations

import csv
import inspect
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import stretto as st
from clirun import private_cache, stretto
from stretto.cli.commands import train
from stretto.cli.recipes import recipe
from stretto.cli.recipes.mf import _PARAMETERS
from stretto.kernels.build.storage import folder as kernel_folder
from stretto.warmup.tasks import tasks

COMMANDS = [["train", "mf"], ["recommend"], ["evaluate"], ["resume"], ["info"], ["generate"], ["explain"], ["warmup"]]


@pytest.fixture(scope="module", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with private_cache(tmp_path_factory.mktemp("cache")):
        yield


@pytest.fixture(scope="module")
def ratings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """20,000 generated ratings in MovieLens's format."""
    path = tmp_path_factory.mktemp("ratings") / "ratings.dat"
    stretto("generate", path, "--ratings", "20000", "--rows", "400", "--cols", "300", "--seed", "5")
    return path


@pytest.fixture(scope="module")
def run(ratings: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run on them."""
    out = tmp_path_factory.mktemp("runs") / "one"
    stretto("train", "mf", ratings, "--rank", "8", "--epochs", "4", "--out", out, "--quiet")
    return out


# --- help ------------------------------------------------------------


def test_help_and_version_import_next_to_nothing() -> None:
    code = (
        "import sys; from typer.testing import CliRunner; from stretto.cli import app\n"
        "assert CliRunner().invoke(app, ['--help']).exit_code == 0\n"
        "heavy = {'numpy', 'numba', 'scipy', 'sklearn', 'matplotlib', 'pandas', 'fsspec'} & set(sys.modules)\n"
        "print(sorted(heavy))"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "[]"


def test_version() -> None:
    assert stretto("--version").out == f"stretto {st.__version__}\n"


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_has_help_with_examples(command: list[str]) -> None:
    said = stretto(*command, "--help")
    assert "Examples" in said.out
    assert "stretto " + " ".join(command) in " ".join(said.out.split())


def test_the_defaults_shown_are_the_estimators() -> None:
    shown = inspect.signature(train.mf).parameters
    ours = {name: p.default for name, p in shown.items() if p.default is not inspect.Parameter.empty}
    theirs = {name: p.default for name, p in inspect.signature(st.MatrixFactorization).parameters.items()}
    theirs |= {option: theirs[name] for option, name in _PARAMETERS.items() if option != "seed"}
    both = ours.keys() & theirs.keys()
    assert {"rank", "epochs", "solver", "reg", "bias_reg", "alpha"} <= both
    assert {name: ours[name] for name in both} == {name: theirs[name] for name in both}


def test_a_handful_of_ratings_is_trained_on(tmp_path: Path) -> None:
    """The default share of so few may be none of them, which is no reason to refuse; one that is asked for is."""
    file = tmp_path / "few.csv"
    file.write_text("1,1,3\n1,2,4\n2,1,5\n2,2,1\n3,1,2\n3,3,5\n")
    outcomes = set()
    for seed in range(6):
        options = ["--rank", "2", "--epochs", "2", "--seed", str(seed)]
        said = stretto("train", "mf", file, *options, "--out", tmp_path / str(seed)).out
        none = "held out" not in said
        assert none == ("test RMSE" not in said)
        asked = stretto("explain", file, *options, "--test", "0.1", code=2 if none else 0).err
        assert ("--test 0.1 holds out none of these few ratings" in asked) == none
        assert ("or --test 0" in asked) == none
        stretto("explain", file, *options)
        outcomes.add(none)
    assert outcomes == {True, False}


# --- files ------------------------------------------------------------


def test_info_tells_about_a_good_file(ratings: Path) -> None:
    said = stretto("info", ratings)
    assert "movielens" in said.out
    assert "20000 records" in said.out.replace(",", "")
    assert "problems  none" in said.out


def test_info_names_the_lines_of_a_bad_one_and_ends_with_1(tmp_path: Path) -> None:
    bad = tmp_path / "bad.dat"
    bad.write_text("1::2::3::0\n1::3::five::0\n2::2::4::0\n1::2::5::0\n")
    said = stretto("info", bad, code=1)
    assert "line 2" in said.out
    assert "line 4" in said.out


def test_generate_writes_what_the_generator_makes(ratings: Path, tmp_path: Path) -> None:
    truth = st.generate_ratings(20_000, 400, 300, seed=5).data
    back = st.read(ratings, cache=False)
    assert back.row_ids is not None
    assert back.col_ids is not None
    np.testing.assert_array_equal(back.row_ids.decode(back.rows), truth.rows)
    np.testing.assert_array_equal(back.col_ids.decode(back.cols), truth.cols)
    np.testing.assert_array_equal(back.values, truth.values)
    again = tmp_path / "deep" / "again.dat"
    stretto("generate", again, "--ratings", "20000", "--rows", "400", "--cols", "300", "--seed", "5")
    assert again.read_bytes() == ratings.read_bytes()


def test_explain_prints_the_plan_and_draws_it(ratings: Path, tmp_path: Path) -> None:
    said = stretto("explain", ratings, "--workers", "3", "--draw", tmp_path / "plan.svg")
    assert "identical: same fingerprint, same bits" in said.out
    assert "3 workers" in said.out
    assert (tmp_path / "plan.svg").read_text().startswith("<svg")


def test_explain_foretells_the_fingerprint_of_the_run(ratings: Path, run: Path) -> None:
    said = stretto("explain", ratings, "--rank", "8", "--epochs", "4", "--workers", "5")
    assert said.out.split(":")[0] == (run / "plan.txt").read_text().split(":")[0]


# --- recommend ------------------------------------------------------------


def test_recommend_prints_the_models_choice_in_the_files_ids(run: Path) -> None:
    model = st.MatrixFactorization.load(run / "model.safetensors")
    items, _ = model.recommend([7], 3)
    said = stretto("recommend", run, "--user", "7", "-n", "3")
    assert "for user 7" in said.out
    assert all(f" {item} " in said.out for item in items[0])


def test_recommend_takes_examples_and_a_model_file(run: Path) -> None:
    said = stretto("recommend", run / "model.safetensors", "--some", "3", "-n", "2")
    assert said.out.count("for user") == 3


def test_recommend_can_include_what_was_seen(run: Path) -> None:
    model = st.MatrixFactorization.load(run / "model.safetensors")
    items, _ = model.recommend([0], 5, filter_seen=False)
    said = stretto("recommend", run, "--user", "0", "-n", "5", "--include-seen")
    assert all(f" {item} " in said.out for item in items[0])


def test_similar_items(run: Path) -> None:
    model = st.MatrixFactorization.load(run / "model.safetensors")
    items, _ = model.similar_items([4], 3)
    said = stretto("recommend", run, "--similar-to", "4", "-n", "3")
    assert all(f" {item} " in said.out for item in items[0])


def test_recommendations_for_everyone_go_to_a_file(run: Path, tmp_path: Path) -> None:
    model = st.MatrixFactorization.load(run / "model.safetensors")
    assert model.user_ids_ is not None
    items, scores = model.recommend(model.user_ids_.ids, 4)
    stretto("recommend", run, "--all", "-n", "4", "--to", tmp_path / "best.npz")
    with np.load(tmp_path / "best.npz") as stored:
        np.testing.assert_array_equal(stored["users"], model.user_ids_.ids)
        np.testing.assert_array_equal(stored["items"], items)
        np.testing.assert_array_equal(stored["scores"], scores)
    stretto("recommend", run, "--all", "-n", "4", "--to", tmp_path / "best.csv")
    with open(tmp_path / "best.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [int(row["item"]) for row in rows] == items.ravel().tolist()
    assert sorted(os.listdir(tmp_path)) == ["best.csv", "best.npz"]


def test_filter_lists_and_further_files(run: Path, tmp_path: Path) -> None:
    import pyarrow.parquet

    model = st.Recommender.load(run / "model.safetensors")
    everyone = model.to_numpy()["user_ids"]
    items, scores = model.recommend(everyone, 3, exclude=[1, 2], items=range(0, 60))
    filters = ["--exclude", "1", "--exclude", "2", *(word for item in range(60) for word in ("--only", str(item)))]
    for kind in ("parquet", "jsonl"):
        stretto("recommend", run, "--all", "-n", "3", *filters, "--to", tmp_path / f"best.{kind}")
    table = pyarrow.parquet.read_table(tmp_path / "best.parquet").to_pydict()
    assert list(table) == ["user", "item", "rank", "score"]
    assert table["item"] == items.ravel().tolist()
    lines = [json.loads(line) for line in (tmp_path / "best.jsonl").read_text().splitlines()]
    assert [line["user"] for line in lines] == everyone.tolist()
    assert [line["items"] for line in lines] == items.tolist()
    np.testing.assert_array_equal(np.array([line["scores"] for line in lines], np.float32), scores)
    assert "no item '99999'" in stretto("recommend", run, "--user", "7", "--exclude", "99999", code=2).err


def test_why_an_item_and_similar_users(run: Path) -> None:
    model = st.Recommender.load(run / "model.safetensors")
    item = int(model.recommend([7], 1)[0][0, 0])
    score = float(model.predict([[7, item]])[0])
    said = stretto("recommend", run, "--user", "7", "--why", str(item)).out
    assert f"item {item} for user 7: {score:.3f}" in said
    parts = [float(line.split("│")[3]) for line in said.splitlines() if line.startswith("│")]
    assert sum(parts) == pytest.approx(score, abs=0.02)
    seen = model.seen()
    assert len(parts) == min(int(np.diff(seen.indptr)[model.to_numpy()["user_ids"] == 7][0]), 21) + 3
    for wrong in (["--why", str(item)], ["--why", str(item), "--user", "1", "--user", "2"]):
        assert "--why explains the score of one user" in stretto("recommend", run, *wrong, code=2).err
    alone = stretto("recommend", run / "model.safetensors", "--user", "7", "--why", str(item), code=2).err
    assert "name the folder of the run" in alone
    users, _ = model.similar_users([7], 3)
    said = stretto("recommend", run, "--similar-users", "7", "-n", "3").out
    assert "like user 7" in said
    assert all(f" {user} " in said for user in users[0])


def test_ids_may_be_text(tmp_path: Path) -> None:
    names = [
        f"{user},{item},{(u * 7 + i * 3) % 5 + 1}"
        for u, user in enumerate("abcdefgh")
        for i, item in enumerate(["tea", "rye", "fig", "yam"])
        if (u + i) % 4
    ]
    (tmp_path / "plays.csv").write_text("user,item,rating\n" + "\n".join(names) + "\n")
    stretto(
        "train",
        "mf",
        tmp_path / "plays.csv",
        "--rank",
        "2",
        "--epochs",
        "2",
        "--test",
        "0",
        "--out",
        tmp_path / "run",
        "-q",
    )
    said = stretto("recommend", tmp_path / "run", "--user", "c")
    assert any(item in said.out for item in ("tea", "rye", "fig", "yam"))
    stretto("recommend", tmp_path / "run", "--all", "--to", tmp_path / "best.npz")
    with np.load(tmp_path / "best.npz") as stored:
        assert stored["users"].tolist() == list("abcdefgh")


# --- errors ------------------------------------------------------------


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (["info", "nothing.dat"], "nothing.dat"),
        (["train", "mf", "nothing.dat"], "nothing.dat"),
        (["train", "mf", "RATINGS", "--out", "RUN"], "stretto resume"),
        (["train", "mf", "RATINGS", "--checkpoint-every", "often"], "'5 epochs', '30s'"),
        (["train", "mf", "RATINGS", "--solver", "als", "--loss", "logistic"], "solver"),
        (["train", "mf", "RATINGS", "--implicit"], "als"),
        (["train", "mf", "RATINGS", "--memory", "plenty"], "memory"),
        (["train", "mf", "RATINGS", "--memory", "1GiB", "--on-error", "skip"], "--memory"),
        (["train", "mf", "RATINGS", "--rank", "0"], "--rank"),
        (["train", "mf", "RATINGS", "--solver", "magic"], "magic"),
        (["recommend", "nowhere", "--some", "1"], "nowhere"),
        (["recommend", "RUN"], "--user"),
        (["recommend", "RUN", "--user", "nobody"], "nobody"),
        (["recommend", "RUN", "--user", "123456"], "such as"),
        (["recommend", "RUN", "--all"], "--to"),
        (["recommend", "RUN", "--all", "--to", "best.xls"], ".csv"),
        (["resume", "nowhere"], "nowhere"),
        (["generate", "x.dat.gz"], "unpacked"),
        (["generate", "x.dat", "--ratings", "10", "--rows", "2", "--cols", "2"], "10"),
        (["explain", "RATINGS", "--draw", "plan.doc"], ".svg"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_errors_are_one_message_and_exit_code_2(
    args: list[str], told: str, ratings: Path, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names = {"RATINGS": str(ratings), "RUN": str(run)}
    said = stretto(*[names.get(arg, arg) for arg in args], code=2)
    assert told in said.err
    assert "Traceback" not in said.err
    assert not (tmp_path / "runs").exists() or not any((tmp_path / "runs").iterdir())


def test_a_bad_line_is_named_and_can_be_skipped(tmp_path: Path) -> None:
    good = "".join(f"{k % 20}::{(k * 7) % 31}::{k % 5 + 1}::0\n" for k in range(20 * 31))
    (tmp_path / "bad.dat").write_text(good[:-1] + "\noops\n")
    said = stretto("train", "mf", tmp_path / "bad.dat", "--out", tmp_path / "run", code=2)
    assert "bad.dat:621" in said.err
    assert not (tmp_path / "run").exists()
    said = stretto(
        "train", "mf", tmp_path / "bad.dat", "--out", tmp_path / "run", "--on-error", "skip", "--epochs", "1"
    )
    assert "warning: " in said.err
    assert "1 line was left out" in said.err


def test_debug_shows_the_traceback(tmp_path: Path) -> None:
    with pytest.raises(st.errors.StrettoError):  # what typer would print with its traceback
        stretto("--debug", "info", tmp_path / "nothing.dat")


@pytest.mark.parametrize("text", ["", "x", "0", "-5s", "1.5 epochs", "5 parsecs"])
def test_intervals_that_mean_nothing(text: str) -> None:
    with pytest.raises(st.errors.DataError, match="checkpoint interval"):
        recipe.parse_every(text)


# --- warmup ------------------------------------------------------------


def test_warmup_says_where_and_is_done_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it compiles is another test's; here it has one family of tasks, on two processes."""
    monkeypatch.setenv("STRETTO_CACHE", str(tmp_path))
    made = [task for task in tasks() if task.family == "readers"]
    assert made
    monkeypatch.setattr("stretto.warmup.fill.tasks", lambda **_: made)
    monkeypatch.setattr("stretto.warmup.tasks.tasks", lambda **_: made)
    first = stretto("warmup")
    assert str(kernel_folder()) in first.out
    assert f"compiling kernels: {len(made)} of {len(made)} done" in first.err
    assert any(kernel_folder().glob("parse.*.bin"))
    assert "already" in stretto("warmup").out


def test_warmup_that_fails_says_where(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("STRETTO_CACHE", str(tmp_path))
    monkeypatch.setattr(sys, "executable", "/bin/false")
    said = stretto("warmup", code=2)
    assert "kernels could not be compiled: " in said.err
    assert "factorization: exit code 1" in said.err
