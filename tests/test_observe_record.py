"""The run record: what it holds, that it survives crashes and full disks, and that a resumed run goes on with it."""

from __future__ import annotations

import csv
import errno
import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stretto.errors import RunError
from stretto.observe import files
from stretto.observe import record as record_module
from stretto.observe.events import (
    Bus,
    CheckpointRejected,
    CheckpointSaved,
    EpochDone,
    Event,
    PassDone,
    PlanMade,
    RunEnded,
    RunStarted,
    Warned,
)
from stretto.observe.record import RunRecord

NOW = 1_700_000_000.0
FILES = ["convergence.csv", "convergence.svg", "events.jsonl", "lanes.json", "plan.txt", "run.json", "trace.json"]
GRID = np.array([[row, col] for row in range(3) for col in range(3)])


def epoch_events(epoch: int, epochs: int = 6) -> list[Event]:
    """One epoch of nine visits on two workers, 1 ms each."""
    start = 5_000_000_000 + epoch * 20_000_000
    visits = np.array([[v, v % 2, start + v // 2 * 10**6, start + (v // 2 + 1) * 10**6] for v in range(9)])
    return [
        PassDone(NOW + epoch, epoch, "sgd", 0.02, 900, visits),
        EpochDone(
            NOW + epoch, epoch, epochs, 0.5, 900, 10.0 / epoch, {"train_rmse": 1 / epoch, "test_rmse": 2 / epoch}
        ),
    ]


def session(first: int, last: int, *, status: Any = "done") -> list[Event]:
    events: list[Event] = [
        RunStarted(NOW, {"seed": 7, "rank": np.int64(4), "path": Path("x"), "odd": object}, epoch=first - 1),
        PlanMade("f" * 64, "a plan\nin two lines", "exact", GRID),
    ]
    for epoch in range(first, last + 1):
        events += epoch_events(epoch)
    events.append(CheckpointSaved(NOW + last + 0.5, "checkpoint-000003", last, 1000, 0.25))
    return [*events, RunEnded(NOW + last + 1, status, "")]


def tell(listener: RunRecord, events: list[Event]) -> None:
    for event in events:
        listener(event)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def slices(folder: Path, cat: str = "visit") -> list[dict[str, Any]]:
    events = json.loads((folder / "trace.json").read_bytes())["traceEvents"]
    return [event for event in events if event.get("cat") == cat]


def test_a_whole_run(tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "first"
    tell(RunRecord(folder), session(1, 6))
    assert names(folder) == FILES
    run = json.loads((folder / "run.json").read_bytes())
    assert run["status"] == "done"
    assert run["config"] == {"seed": 7, "rank": 4, "path": "x", "odd": repr(object)}
    assert (run["seed"], run["profile"], run["fingerprint"]) == (7, "exact", "f" * 64)
    assert run["versions"]["numpy"] == np.__version__
    assert run["versions"].keys() >= {"stretto", "numba", "python"}
    assert run["machine"]["cpus"] >= run["machine"]["usable"] >= 1
    assert run["machine"]["cpu"]
    assert run["final"]["test_rmse"] == pytest.approx(1 / 3)
    assert run["started"] == "2023-11-14T22:13:20+00:00"
    assert (folder / "plan.txt").read_text() == "a plan\nin two lines\n"
    assert (folder / "convergence.svg").read_bytes().startswith(b"<svg ")
    with open(folder / "convergence.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["epoch"] for row in rows] == list("123456")
    assert rows[-1]["items"] == "5400"
    assert float(rows[3]["seconds"]) == 2.0
    lines = [json.loads(line) for line in (folder / "events.jsonl").read_bytes().splitlines()]
    assert [line["event"] for line in lines[:4]] == ["RunStarted", "PlanMade", "PassDone", "EpochDone"]
    assert lines[2]["visits"] == {"dtype": "int64", "shape": [9, 4]}
    assert lines[-1]["event"] == "RunEnded"


def test_every_kind_of_event_can_be_recorded(tmp_path: Path) -> None:
    listener = RunRecord(tmp_path)
    tell(
        listener,
        [Warned("careful"), CheckpointRejected("p", "damaged"), PassDone(NOW, 1, "x", 0.1, 1), PlanMade("f", "t")],
    )
    tell(listener, [EpochDone(NOW, 1, 1, 0.1, 1, math.inf, {"m": math.nan}), RunEnded(NOW, "failed", "diverged")])
    assert names(tmp_path) == [name for name in FILES if name != "lanes.json"]  # no visits were reported
    assert math.isnan(RunRecord.load(tmp_path).epochs["m"][0])


def test_a_record_is_not_written_over(tmp_path: Path) -> None:
    tell(RunRecord(tmp_path), session(1, 2))
    before = (tmp_path / "events.jsonl").read_bytes()
    with pytest.raises(RunError, match=r"already holds the record.*another folder"):
        RunRecord(tmp_path)
    assert (tmp_path / "events.jsonl").read_bytes() == before


def test_an_existing_folder_with_other_things_is_fine(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    tell(RunRecord(tmp_path), session(1, 2))
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_a_folder_that_cannot_be_written_is_refused_before_the_run(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(RunError, match="name a folder you may write to"):
        RunRecord(tmp_path / "file" / "run")


def test_load(tmp_path: Path) -> None:
    tell(RunRecord(tmp_path), session(1, 4, status="stopped"))
    view = RunRecord.load(tmp_path)
    assert view.config["seed"] == 7
    assert view.status == "stopped"
    assert view.fingerprint == "f" * 64
    assert list(view.epochs) == ["epoch", "seconds", "items", "objective", "train_rmse", "test_rmse"]
    np.testing.assert_allclose(view.epochs["objective"], [10, 5, 10 / 3, 2.5])
    with pytest.raises(RunError, match="no run record"):
        RunRecord.load(tmp_path / "nowhere")


def test_load_says_when_run_json_is_broken(tmp_path: Path) -> None:
    tell(RunRecord(tmp_path), session(1, 2))
    (tmp_path / "run.json").write_text("{")
    with pytest.raises(RunError, match=r"run\.json cannot be read"):
        RunRecord.load(tmp_path)


def test_a_resumed_run_goes_on_with_the_record(tmp_path: Path) -> None:
    tell(RunRecord(tmp_path), session(1, 4, status="stopped"))
    old = max(one["ts"] + one["dur"] for one in slices(tmp_path))
    tell(RunRecord(tmp_path, exist_ok=True), session(4, 6))  # epoch 4 is done again
    view = RunRecord.load(tmp_path)
    assert view.epochs["epoch"].tolist() == [1, 2, 3, 4, 5, 6]
    assert view.epochs["seconds"].tolist() == [0.5, 1.0, 1.5, 2.0, 2.5, 3.0]
    assert view.run["sessions"] == 2
    assert view.status == "done"
    visits = slices(tmp_path)
    assert sorted({one["args"]["epoch"] for one in visits}) == [1, 2, 3, 4, 5, 6]
    assert len(visits) == 6 * 9
    assert min(one["ts"] for one in visits if one["args"]["epoch"] >= 4) >= old
    assert {(one["args"]["row block"], one["args"]["column block"]) for one in visits} == set(map(tuple, GRID.tolist()))


@pytest.mark.parametrize("cut", [1, 20, 200])
def test_a_torn_last_line_is_left_out(tmp_path: Path, cut: int) -> None:
    listener = RunRecord(tmp_path)
    tell(listener, session(1, 3)[:-2])
    listener.close()
    log = tmp_path / "events.jsonl"
    log.write_bytes(log.read_bytes()[:-cut])
    assert RunRecord.load(tmp_path).epochs["epoch"].tolist() == ([1, 2, 3] if cut == 1 else [1, 2])
    listener = RunRecord(tmp_path, exist_ok=True)
    tell(listener, session(3, 4))
    for line in log.read_bytes().splitlines():
        json.loads(line)
    assert RunRecord.load(tmp_path).epochs["epoch"].tolist() == [1, 2, 3, 4]


def test_a_log_without_any_line_end_is_emptied(tmp_path: Path) -> None:
    (tmp_path / "events.jsonl").write_bytes(b"x" * 10_000)
    tell(RunRecord(tmp_path, exist_ok=True), session(1, 2))
    assert RunRecord.load(tmp_path).epochs["epoch"].tolist() == [1, 2]


def test_the_files_are_valid_when_the_process_dies(tmp_path: Path) -> None:
    script = f"""
import os, sys
sys.path[:0] = {sys.path!r}
from test_observe_record import session
from stretto.observe import record
from stretto.observe.record import RunRecord
record._FIRST = 64
listener = RunRecord({str(tmp_path)!r})
for event in session(1, 40)[:-1]:
    listener(event)
os._exit(1)
"""
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 1
    assert RunRecord.load(tmp_path).status == "running"
    assert len(RunRecord.load(tmp_path).epochs["epoch"]) == 40
    assert len(slices(tmp_path)) >= 40 * 9 // 2 - 64
    assert (tmp_path / "convergence.csv").read_text().count("\n") > 20


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EACCES])
def test_a_full_disk_costs_the_record_and_not_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    full = False
    told: list[str] = []
    real = files.replace

    def replace(path: Path, content: Any) -> None:
        if full:
            raise OSError(number, "the disk refuses")
        real(path, content)

    monkeypatch.setattr(record_module, "replace", replace)
    monkeypatch.setattr(record_module, "_FIRST", 10)
    listener = RunRecord(tmp_path, warn=told.append)
    events = session(1, 6)
    tell(listener, events[:4])
    full = True
    tell(listener, events[4:-1])
    assert len(told) == 1
    assert "the disk refuses" in told[0]
    tell(listener, events[-1:])
    assert len(told) == 1
    # and when the disk has space again at the end, the files made whole are complete
    full = False
    tell(listener, events[-1:])
    assert json.loads((tmp_path / "run.json").read_bytes())["status"] == "done"
    assert (tmp_path / "convergence.csv").read_text().count("\n") == 7


def test_the_user_is_warned_by_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def encode(event: Event) -> bytes:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(record_module, "encode", encode)
    listener = RunRecord(tmp_path)
    with pytest.warns(RuntimeWarning, match="No space left on device; the run itself continues"):
        listener(Warned("x"))
    listener.close()


def test_a_disk_that_really_refuses(tmp_path: Path) -> None:
    script = f"""
import resource, sys
sys.path[:0] = {sys.path!r}
from test_observe_record import session
from stretto.observe.record import RunRecord
told = []
listener = RunRecord({str(tmp_path)!r}, warn=told.append)
resource.setrlimit(resource.RLIMIT_FSIZE, (3000, 3000))
for event in session(1, 40):
    listener(event)
assert len(told) == 1, told
assert "File too large" in told[0], told
"""
    subprocess.run([sys.executable, "-c", script], check=True)
    assert RunRecord.load(tmp_path).status == "done"  # short enough to be written at the end
    assert len(RunRecord.load(tmp_path).epochs["epoch"]) >= 2


def test_a_plot_that_fails_does_not_lose_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def convergence(*args: object) -> None:
        raise ValueError("no font")

    monkeypatch.setattr("stretto.observe.record.convergence_svg", convergence)
    told: list[str] = []
    tell(RunRecord(tmp_path, warn=told.append), session(1, 2))
    assert "no font" in told[0]
    assert names(tmp_path) == [name for name in FILES if name != "convergence.svg"]


def test_a_bus_tells_all_and_closes_those_that_can_be_closed(tmp_path: Path) -> None:
    told: list[Event] = []
    with Bus(told.append, RunRecord(tmp_path)) as bus:
        for event in session(1, 2):
            bus(event)
    assert told == session(1, 2)[:1] + told[1:]
    assert len(told) == len(session(1, 2))


def test_nothing_heavy_is_imported() -> None:
    script = (
        "import sys, stretto.observe.record, stretto.observe.progress, stretto.runtime.files.checkpoint as c\n"
        "heavy = {'matplotlib', 'rich', 'safetensors', 'numba', 'scipy', 'sklearn', 'pandas'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", script], env={"PYTHONPATH": ":".join(sys.path)}, check=True)
