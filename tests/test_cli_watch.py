"""`stretto runs`, `compare`, `report` and `dashboard`."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from clirun import stretto
from page_records import record


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """Two finished runs that differ in their seed."""
    record(tmp_path / "runs" / "one")
    record(tmp_path / "runs" / "two", config={"estimator": "Made", "seed": 4}, epochs=3, status="stopped")
    return tmp_path / "runs"


def test_runs_are_listed(runs: Path) -> None:
    said = stretto("runs", runs)
    assert said.code == 0
    assert "6 of 6" in said.out
    found = json.loads(stretto("runs", runs, "--json").out)["runs"]
    assert [(one["name"], one["status"], one["epochs"]) for one in found] == [("one", "done", 6), ("two", "stopped", 3)]
    assert found[0]["last"]["objective"] == pytest.approx(8 / 6)


def test_a_run_of_a_program_is_named(tmp_path: Path) -> None:
    record(tmp_path / "runs" / "one", config={"program": "tables/mine"})
    assert "tables/mine" in "".join(stretto("runs", tmp_path / "runs").out.split())


def test_runs_are_compared(runs: Path) -> None:
    said = stretto("compare", runs / "one", runs / "two")
    assert said.code == 0
    assert "seed" in said.out
    found = json.loads(stretto("compare", runs, "--json").out)
    assert found["differences"]["seed"] == {"one": 3, "two": 4}
    assert "estimator" not in found["differences"]
    same = stretto("compare", runs / "one", runs / "one")
    assert same.code == 0


def test_a_report_and_a_picture(runs: Path, tmp_path: Path) -> None:
    said = stretto("report", runs, "-o", tmp_path / "r.html", "--png", tmp_path / "r.png")
    assert said.code == 0
    assert "one, two" in said.out
    assert b"plan f00d" in (tmp_path / "r.html").read_bytes()
    assert (tmp_path / "r.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["runs", "nowhere"], "nowhere does not exist; name the folder of a run, or a folder of runs"),
        (["report", "RUNS", "-o", "r.txt"], "--output r.txt: a report is HTML; use a name that ends in .html"),
        (["report", "RUNS", "--png", "r.jpeg"], "--png r.jpeg: use a name that ends in .png, .svg or .pdf"),
        (["compare", "RUNS/none"], "does not exist"),
        (["dashboard", "/"], "holds no run record"),
    ],
)
def test_mistakes(runs: Path, arguments: list[str], message: str) -> None:
    said = stretto(*(text.replace("RUNS", str(runs)) for text in arguments), code=2)
    assert message in " ".join(said.err.split())


def test_the_dashboard_serves_until_ctrl_c(runs: Path) -> None:
    command = [sys.executable, "-m", "stretto.cli", "dashboard", str(runs / "one")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ | {"PYTHONUNBUFFERED": "1"})
    assert process.stdout is not None
    link = urlsplit(process.stdout.readline().split()[0])
    connection = http.client.HTTPConnection("127.0.0.1", link.port or 0, timeout=30)
    connection.request("GET", f"/?{link.query}")
    assert connection.getresponse().status == 200
    connection.close()
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 130  # as of every command that Ctrl-C ends
