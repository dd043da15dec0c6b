"""Training from the command line: what a run leaves behind, and that stopping and resuming does not change a bit."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest

from clirun import empty_pictures, private_cache, same_model, start, stretto

EPOCHS = 200


@pytest.fixture(scope="module", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with private_cache(tmp_path_factory.mktemp("cache")):
        yield


@pytest.fixture(autouse=True)
def pictures(request: pytest.FixtureRequest) -> Iterator[None]:
    """Drawn where a test reads what a run leaves behind, empty for all others."""
    with nullcontext() if request.node.name == "test_a_run_leaves_its_record" else empty_pictures():
        yield


@pytest.fixture(scope="module")
def ratings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("ratings") / "ratings.dat"
    stretto("generate", path, "--ratings", "10000", "--rows", "200", "--cols", "150", "--seed", "2")
    return path


def train(ratings: Path, out: Path, *more: str) -> str:
    return stretto("train", "mf", ratings, "--rank", "8", "--epochs", "6", "--out", out, *more).out


@pytest.fixture(scope="module")
def whole(ratings: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of six epochs that nothing disturbed."""
    out = tmp_path_factory.mktemp("runs") / "whole"
    train(ratings, out, "--workers", "1")
    return out


def test_a_run_leaves_its_record(ratings: Path, tmp_path: Path) -> None:
    said = train(ratings, tmp_path / "run", "--verbose")
    there = {path.name for path in (tmp_path / "run").iterdir()}
    assert there >= {"run.json", "events.jsonl", "plan.txt", "plan.svg", "plan.png", "trace.json", "convergence.svg"}
    assert "model.safetensors" in there
    assert all((tmp_path / "run" / name).stat().st_size > 1000 for name in ("plan.svg", "plan.png", "convergence.svg"))
    assert "epoch 6/6" in said
    assert "train RMSE" in said
    assert "test RMSE" in said
    assert "grade       identical" in said
    assert f"stretto recommend {tmp_path / 'run'}" in said
    about = json.loads((tmp_path / "run" / "run.json").read_text())
    assert about["status"] == "done"
    assert about["config"]["recipe"]["file"] == str(ratings)


def test_the_next_free_folder_is_taken(ratings: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        stretto("train", "mf", ratings, "--rank", "2", "--epochs", "1", "--quiet")
    assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == ["mf-1", "mf-2"]


def test_quiet_says_nothing(ratings: Path, tmp_path: Path) -> None:
    assert train(ratings, tmp_path / "run", "--quiet") == ""


@pytest.mark.parametrize("more", [["--workers", "2"], ["--workers", "3"], ["--memory", "1MB"]], ids=" ".join)
def test_where_it_runs_changes_no_bit(more: list[str], ratings: Path, whole: Path, tmp_path: Path) -> None:
    train(ratings, tmp_path / "run", *more)
    assert same_model(whole, tmp_path / "run")


@pytest.mark.parametrize(
    "more",
    [
        ["--solver", "als"],
        ["--solver", "ccd"],
        ["--solver", "als", "--implicit"],
        ["--optimizer", "adagrad", "--no-biases"],
        ["--optimizer", "adarevision", "--workers", "2"],
    ],
    ids=" ".join,
)
def test_other_solvers_train_too(more: list[str], ratings: Path, tmp_path: Path) -> None:
    assert "result" in train(ratings, tmp_path / "run", *more)


def test_implicit_feedback_measures_what_it_holds_out(ratings: Path, tmp_path: Path) -> None:
    said = train(ratings, tmp_path / "run", "--solver", "als", "--implicit")
    assert "10% held out" in said
    assert said.count("test NDCG@10") >= 6, "after each epoch"
    table = (tmp_path / "run" / "convergence.csv").read_text().splitlines()
    assert "test_ndcg@10" in table[0]
    assert 0 < float(table[-1].split(",")[table[0].split(",").index("test_ndcg@10")]) < 1


def test_early_stopping_is_told_as_complete(ratings: Path, tmp_path: Path) -> None:
    stretto("train", "mf", ratings, "--epochs", "200", "--reg", "0", "--early-stopping", "--out", tmp_path / "run")
    assert json.loads((tmp_path / "run" / "run.json").read_text())["status"] == "early"
    assert "stopped early, as asked" in stretto("resume", tmp_path / "run").out


# --- resume ------------------------------------------------------------


def test_a_complete_run_says_so(whole: Path) -> None:
    said = stretto("resume", whole).out
    assert "is complete: 6 epochs, done" in said
    assert "stretto recommend" in said


@pytest.mark.parametrize(
    ("steps", "every"),
    [
        pytest.param(["--schedule", "constant"], [], id="constant, no checkpoint"),
        pytest.param(["--schedule", "constant"], ["--checkpoint-every", "2 epochs"], id="constant"),
        pytest.param(["--optimizer", "adarevision"], ["--checkpoint-every", "2 epochs"], id="adarevision"),
    ],
)
def test_training_longer_equals_having_trained_longer(
    steps: list[str], every: list[str], ratings: Path, tmp_path: Path
) -> None:
    train(ratings, tmp_path / "short", *steps, *every)
    said = stretto("resume", tmp_path / "short", "--epochs", "9")
    assert ("begins again" in said.out) == (not every)
    options = ["--rank", "8", "--epochs", "9", *steps, "--out", str(tmp_path / "long")]
    stretto("train", "mf", ratings, *options)
    assert same_model(tmp_path / "short", tmp_path / "long")
    assert "is complete: 9 epochs" in stretto("resume", tmp_path / "short").out


def test_steps_planned_for_so_many_epochs_cannot_be_made_more(whole: Path) -> None:
    said = stretto("resume", whole, "--epochs", "9", code=2)
    assert "planned for 6 epochs" in said.err
    assert "--schedule constant" in said.err


def test_a_damaged_checkpoint_is_passed_over(ratings: Path, whole: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    train(ratings, run, "--checkpoint-every", "1 epoch")
    (run / "model.safetensors").unlink()
    newest = max((run / "checkpoints").iterdir())
    with open(newest / "arrays.safetensors", "r+b") as file:
        file.truncate(100)
    said = stretto("resume", run)
    assert "damaged" in said.err
    assert "going on from" in said.out
    assert same_model(run, whole)


def test_ratings_that_changed_are_refused(ratings: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.dat"
    text = ratings.read_text()
    copy.write_text(text)
    train(copy, tmp_path / "run", "--checkpoint-every", "2 epochs", "--schedule", "constant")
    user, item, value, rest = text.split("\n", 1)[0].split("::")
    other = "1" if value != "1" else "2"
    copy.write_text("::".join([user, item, other, rest]) + "\n" + text.split("\n", 1)[1])
    said = stretto("resume", tmp_path / "run", "--epochs", "9", code=2)
    assert "is not what" in said.err
    assert "data digest is" in said.err
    stretto("resume", tmp_path / "run", "--epochs", "9", "--file", ratings)


def test_ctrl_c_saves_and_resume_ends_with_the_same_bits(ratings: Path, tmp_path: Path) -> None:
    options = ["--rank", "8", "--epochs", str(EPOCHS), "--checkpoint-every", "20 epochs"]
    stretto("train", "mf", ratings, *options, "--out", tmp_path / "whole", "--quiet")
    process = start("train", "mf", ratings, *options, "--out", tmp_path / "cut")
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("epoch  30/"):
            process.send_signal(signal.SIGINT)
            break
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, out + err
    assert f"go on with: stretto resume {tmp_path / 'cut'}" in err
    assert "Traceback" not in err
    assert f"epoch {EPOCHS}/" not in out
    said = stretto("resume", tmp_path / "cut")
    assert "going on from checkpoint-" in said.out
    assert same_model(tmp_path / "whole", tmp_path / "cut")
