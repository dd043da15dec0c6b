"""Ctrl-C and real processes: at any moment a job ends soon, with its processes, and leaves nothing in the temporary
folder. What interrupted training saved is in `test_cli_runs` and `test_runtime_signals`."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).with_name("sigint_script.py")
SOON = 60.0  # seconds: the slowest part of an end is Python's own, on a machine with much to do


def children(pid: int) -> list[int]:
    """Processes that a process has started and that still run."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            stat = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(stat[1]) == pid and stat[0] != "Z":
            found.append(int(entry.name))
    return found


def pressed(kind: str, line: str, folder: Path, seconds: float = 0.0) -> tuple[int, str, list[int], list[Path]]:
    """Press Ctrl-C so long after a job wrote a line: exit status, what it wrote, processes and files that are left."""
    folder.mkdir()
    process = subprocess.Popen(
        [sys.executable, str(SCRIPT), kind],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "TMPDIR": str(folder)},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509
    )
    try:
        assert process.stdout is not None
        assert any(found == f"{line}\n" for found in iter(process.stdout.readline, "")), "it ended before"
        with suppress(subprocess.TimeoutExpired):
            process.wait(seconds)
        hosts = children(process.pid)
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=SOON)
        left = [pid for pid in hosts if Path(f"/proc/{pid}").exists() and _state(pid) != "Z"]
        return process.returncode, out, left, [*folder.glob("stretto-*")]
    finally:
        process.kill()
        process.wait()


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "Z"


def check(found: tuple[int, str, list[int], list[Path]], when: Any) -> None:
    status, out, left, files = found
    assert status == -signal.SIGINT, (when, status, out)
    assert "KeyboardInterrupt" in out, (when, out)
    assert not left, (when, left, out)
    assert not files, (when, files, out)


@pytest.mark.parametrize(
    ("kind", "line"),
    [
        ("factorise", "begun"),
        pytest.param("factorise", "round", marks=pytest.mark.slow),
        ("loop", "round"),
        pytest.param("tables", "begun", marks=pytest.mark.slow),
        ("tables", "(host 1) worker 1: in its sixth clock"),
    ],
)
def test_a_job_ends_with_its_processes(kind: str, line: str, tmp_path: Path) -> None:
    check(pressed(kind, line, tmp_path / "temporary"), line)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", ["factorise", "loop", "tables"])
def test_at_many_moments(kind: str, tmp_path: Path) -> None:
    draw = random.Random(kind)
    for turn in range(40):
        seconds = draw.uniform(0.0, 12.0)
        check(pressed(kind, "begun", tmp_path / f"{turn}", seconds), (turn, seconds))
