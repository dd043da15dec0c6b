"""`stretto evaluate`: the run's own held-out ratings, a file, a new split; what it writes, and what it refuses."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import stretto as st
from clirun import private_cache, stretto
from stretto.data.generate.ratings import ratings as generate

DATA = generate(5_000, 200, 90, rank=3, noise=0.3, seed=3, step=1.0).data
TIMES = 978_300_000 + np.random.default_rng(0).integers(0, 5_000, len(DATA))


@pytest.fixture(scope="module", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with private_cache(tmp_path_factory.mktemp("cache")):
        yield


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("ratings") / "ratings.csv"
    lines = zip(DATA.rows, DATA.cols, DATA.values, TIMES, strict=True)
    path.write_text("user,item,rating,timestamp\n" + "".join(f"u{r},i{c},{v:g},{t}\n" for r, c, v, t in lines))
    return path


@pytest.fixture(scope="module")
def run(file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "one"
    stretto("train", "mf", file, "--rank", "4", "--epochs", "3", "--seed", "5", "--out", out, "--quiet")
    return out


def test_what_the_run_held_out(run: Path, file: Path, tmp_path: Path) -> None:
    to = tmp_path / "table.csv"
    said = stretto("evaluate", run, "--metrics", "ndcg@10,rmse,coverage@5", "--threshold", "4", "--to", to).out
    model = st.MatrixFactorization.load(run / "model.safetensors")
    seed = st.MatrixFactorization(random_state=5)._seed()
    test = st.read(file).split(0.1, seed=seed)[1]
    found = st.evaluate(model, test, metrics=("ndcg@10", "rmse", "coverage@5"), threshold=4)
    with open(to, encoding="utf-8") as lines:
        rows = list(csv.DictReader(lines))
    assert [row["metric"] for row in rows] == ["ndcg@10", "rmse", "coverage@5"]
    for row, one in zip(rows, found.scores, strict=True):
        assert float(row["value"]) == one.value
        assert int(row["users"]) == one.users
    assert f"{found['rmse']:.4f}" in said
    assert "95 % confidence intervals" in said


def test_a_file_of_held_out_ratings(run: Path, tmp_path: Path) -> None:
    held = tmp_path / "held.csv"
    held.write_text(
        "user,item,rating\n" + "".join(f"u{r},i{c},5\n" for r, c in zip(range(50), range(20, 70), strict=True))
    )
    to = tmp_path / "table.json"
    stretto("evaluate", run, held, "-m", "recall@20,coverage@20", "--popular", "--to", to)
    found = json.loads(to.read_text())
    assert [line["model"] for line in found] == ["MatrixFactorization"] * 2 + ["most popular"] * 2
    assert found[1]["low"] is None
    wanted = st.evaluate(st.MatrixFactorization.load(run / "model.safetensors"), st.read(held), metrics="recall@20")
    assert found[0]["value"] == wanted["recall@20"]


@pytest.mark.parametrize("column", ["timestamp", "3"])
def test_the_model_of_the_run_on_another_split(run: Path, file: Path, tmp_path: Path, column: str) -> None:
    to = tmp_path / "table.html"
    said = stretto(
        "evaluate", run, "--split", "leave-k-out", "-k", "2", "--times", column, "-m", "recall@10", "--to", to
    ).out
    data = st.read(file)
    train, test = st.split.leave_k_out(data, k=2, times=TIMES)
    model = st.MatrixFactorization(4, max_iter=3, random_state=5).fit(train)
    wanted = st.evaluate(model, test, metrics="recall@10")["recall@10"]
    assert f"{wanted:.4f} [" in said
    assert f"{wanted:.4f} [" in to.read_text()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--split", "by-time"], "needs the column of the times: --times timestamp"),
        (["--split", "cold-users", "--times", "3"], "--times is for --split leave-k-out"),
        (["x.csv", "--split", "random"], "leave FILE out"),
        (["--to", "table.txt"], "ends in .csv, .json or .html"),
        (["-m", "ndgc@10"], "there is no metric 'ndgc@10'"),
        (["--confidence", "95"], "confidence must be a number"),
    ],
)
def test_what_is_refused(run: Path, options: list[str], message: str) -> None:
    assert message in " ".join(stretto("evaluate", run, *options, code=2).err.split())


def test_a_model_file_alone_does_not_say_what_was_held_out(run: Path) -> None:
    said = stretto("evaluate", run / "model.safetensors", code=2).err
    assert "what it held out is not known" in " ".join(said.split())
