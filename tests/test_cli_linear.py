"""`stretto train lasso` and `stretto train logistic`: files of samples, coefficients with names, held-out scores."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import dump_svmlight_file

import stretto as st
from clirun import private_cache, same_model, stretto
from stretto.cli.samples.read import read_samples

N, P = 300, 6


@pytest.fixture(scope="module", autouse=True)
def table(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The same samples in every form: table.csv, .tsv, .parquet, .npz, .svm."""
    import pandas

    folder = tmp_path_factory.mktemp("tables")
    draw = np.random.default_rng(1)
    X = draw.normal(size=(N, P)).astype(np.float32).astype(np.float64)
    y = np.round(2 * X[:, 1] - X[:, 4] + 0.05 * draw.normal(size=N), 6)
    frame = pandas.DataFrame({f"f{k}": X[:, k] for k in range(P)} | {"target": y})
    frame.to_csv(folder / "table.csv", index=False)
    frame.to_csv(folder / "table.tsv", index=False, sep="\t")
    frame.to_csv(folder / "bare.csv", index=False, header=False)
    frame.to_csv(folder / "packed.csv.gz", index=False)
    frame.to_parquet(folder / "table.parquet")
    np.savez(folder / "table.npz", X=X, y=y, names=[f"f{k}" for k in range(P)])
    dump_svmlight_file(X, y, str(folder / "table.svm"), zero_based=False)
    with private_cache(tmp_path_factory.mktemp("cache")):
        yield folder


def coefficients(run: Path) -> dict[tuple[str, str], float]:
    with open(run / "coefficients.csv", newline="") as file:
        return {(row["class"], row["feature"]): float(row["coefficient"]) for row in csv.DictReader(file)}


@pytest.mark.parametrize(
    "name", ["table.csv", "table.tsv", "bare.csv", "packed.csv.gz", "table.parquet", "table.npz", "table.svm"]
)
def test_every_form_of_the_same_samples_is_read_alike(name: str, table: Path) -> None:
    one = read_samples(str(table / "table.npz"), target=None)
    other = read_samples(str(table / name), target=str(P) if name == "bare.csv" else None)
    dense = other.X if isinstance(other.X, np.ndarray) else other.X.toarray()
    np.testing.assert_array_equal(dense, one.X)
    np.testing.assert_array_equal(other.y, one.y)
    assert other.names == ([str(k) for k in range(P)] if name in {"bare.csv", "table.svm"} else one.names)


def test_lasso_leaves_the_estimators_coefficients_and_honest_scores(table: Path, tmp_path: Path) -> None:
    said = stretto(
        "train", "lasso", table / "table.csv", "--alpha", "0.05", "--test", "0.25", "--out", tmp_path / "run"
    )
    assert "25% held out" in said.out
    samples = read_samples(str(table / "table.csv"), target=None)
    from stretto.data.records.data import held_out

    held = held_out(0, N, 0.25, 0)
    model = st.ElasticNet(0.05, l1_ratio=1.0, random_state=0)
    model.fit(samples.part(~held).X, samples.y[~held])
    found = coefficients(tmp_path / "run")
    assert found == {("", "(intercept)"): model.intercept_} | {
        ("", name): value for name, value in zip(samples.names, model.coef_.tolist(), strict=True)
    }
    scores = json.loads((tmp_path / "run" / "scores.json").read_text())
    assert scores["test_r2"] == pytest.approx(model.score(samples.X[held], samples.y[held]), abs=1e-12)
    assert scores["train_r2"] == pytest.approx(model.score(samples.X[~held], samples.y[~held]), abs=1e-12)
    assert "test R²" in said.out
    back = st.ElasticNet.load(tmp_path / "run" / "model.safetensors")
    np.testing.assert_array_equal(back.coef_, model.coef_)
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    assert record["status"] == "done"
    assert record["fingerprint"] == model.fingerprint_
    assert "complete" in stretto("resume", tmp_path / "run").out


def test_workers_do_not_change_the_bits(table: Path, tmp_path: Path) -> None:
    for workers in ("1", "4"):
        stretto(
            "train", "lasso", table / "table.svm", "--alpha", "0.05", "-w", workers, "--out", tmp_path / workers, "-q"
        )
    assert same_model(tmp_path / "1", tmp_path / "4")


def test_logistic_with_text_classes_and_text_features(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    x, city = draw.normal(size=400).round(3), draw.choice(["oslo", "rome"], 400)
    kind = np.where(x + 2 * (city == "rome") > 1.5, "high", np.where(x < -0.5, "low", "mid"))
    lines = [f"{k},{a},{b},{c}" for k, (a, b, c) in enumerate(zip(x, city, kind, strict=True))]
    (tmp_path / "t.csv").write_text("\n".join(["id,x,city,label", *lines]) + "\n")
    stretto("train", "logistic", tmp_path / "t.csv", "--drop", "id", "--C", "10", "--out", tmp_path / "run", "-q")
    found = coefficients(tmp_path / "run")
    assert {label for label, _ in found} == {"high", "low", "mid"}
    assert {name for _, name in found} == {"(intercept)", "x", "city=oslo", "city=rome"}
    assert found["high", "city=rome"] > found["high", "city=oslo"]
    scores = json.loads((tmp_path / "run" / "scores.json").read_text())
    assert scores["test_accuracy"] > 0.85
    assert 0 < scores["test_log_loss"] < 0.6


def test_two_classes_are_one_row_named_by_the_second(table: Path, tmp_path: Path) -> None:
    X = read_samples(str(table / "table.npz"), target=None).X
    np.savez(tmp_path / "two.npz", X=X, y=np.where(X[:, 2] > 0, 7.0, 3.0))
    stretto("train", "logistic", tmp_path / "two.npz", "--l1-ratio", "1", "--out", tmp_path / "run", "-q")
    found = coefficients(tmp_path / "run")
    assert {label for label, _ in found} == {"7"}
    assert max(found, key=lambda pair: found[pair]) == ("7", "2")


MISTAKES: list[tuple[str, list[str], str]] = [
    ("a,b\n1,2\n3,4\n", [], "no column is called target, y, label, class; name it with --target: 'a', 'b'"),
    (
        "a,target\n1,2\n3,4\n",
        ["--target", "tagret"],
        "--target tagret: t.csv has no such column; the nearest is 'target'",
    ),
    ("a,target\n1,2\n3,4\n", ["--drop", "c"], "--drop c: t.csv has no such column"),
    ("a,target\n1,2\n3,4\n", ["--drop", "target"], "--drop target: is the target"),
    ("a,b,target\n1,2,3\n4,,5\n", [], "t.csv:3: column 'b' is missing; fill it, pass --on-error skip"),
    ("a,b,target\n1,nan,3\n4,1,5\n", [], "t.csv:2: column 'b' is missing"),
    ("a,target\n1,inf\n4,5\n", [], "t.csv:2: column 'target' is inf"),
    ("a,b,target\n1,2,3\n4,5\n", [], "t.csv:3: expected 3 fields, found 2; repair the line"),
    ("a,a,target\n1,2,3\n", [], "two columns are called 'a'"),
    ("a,target\n1,x\n2,y\n", [], "the target holds text, such as 'x', and a Lasso predicts numbers"),
    ("", [], "the file is empty"),
    ("a,target\n", [], "the file has a line of names and no rows"),
    ("a,target\n1,2\n3,4\n", ["--test", "0.5", "--alpha", "0"], "--alpha must be a number more than 0"),
    ("a,target\n1,2\n3,4\n", ["--test", "0.001"], "--test 0.001 holds out 0 of 2 samples"),
]


@pytest.mark.parametrize(("text", "more", "says"), MISTAKES, ids=[says[:40] for _, _, says in MISTAKES])
def test_mistakes(text: str, more: list[str], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("t.csv").write_text(text)
    assert says in stretto("train", "lasso", "t.csv", *more, code=2).err
    assert not Path("runs").exists()


def test_rows_with_missing_values_can_be_left_out(tmp_path: Path) -> None:
    lines = [f"{k % 9},{k % 5},{k % 9 - k % 5}" for k in range(60)]
    lines[7] = "1,,3"
    (tmp_path / "t.csv").write_text("a,b,y\n" + "\n".join(lines) + "\n")
    said = stretto("train", "lasso", tmp_path / "t.csv", "--on-error", "skip", "--out", tmp_path / "run")
    assert "1 rows with missing values were left out" in said.err
    assert "59 samples × 2 features" in said.out


def test_a_column_of_which_nothing_can_be_learned(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("name,b,y\n" + "".join(f"n{k},{k % 5},{k % 7}\n" for k in range(60)))
    said = stretto("train", "lasso", tmp_path / "t.csv", code=2)
    assert "column 'name' has another text in every row, such as 'n0'" in said.err
    assert "leave it out with --drop name" in said.err


def test_parquet_with_dates(tmp_path: Path) -> None:
    import pandas

    frame: Any = pandas.DataFrame({"when": pandas.date_range("2024", periods=80), "a": range(80), "y": range(80)})
    frame["y"] = frame["y"] % 9
    frame.to_parquet(tmp_path / "t.parquet")
    assert "column 'when' holds timestamp" in stretto("train", "lasso", tmp_path / "t.parquet", code=2).err
    stretto("train", "lasso", tmp_path / "t.parquet", "--drop", "when", "--out", tmp_path / "run", "-q")
    assert set(coefficients(tmp_path / "run")) == {("", "(intercept)"), ("", "a")}
