"""What is seen of a job on processes, and what it leaves: lines that workers print, logs, temporary folders, and an end
where hosts are lost again and again."""

from __future__ import annotations

import ctypes
import io
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import stretto as st
from stretto.errors import RunError
from stretto.runtime.cluster.hosts.output import Output, WorkerLines

TABLES = {"x": st.tables.Table(rows=2)}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where jobs keep what is temporary."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    return tmp_path / "temporary"


def run(worker: Any, **given: Any) -> Any:
    return st.run(worker, workers=3, tables=TABLES, runtime=st.Cluster("processes", nodes=2, **given))


def test_workers_lines_are_forwarded_and_nothing_is_left(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def talk(w: Any) -> None:
        print("one", end=" ")
        for clock in w.clocks(2):
            print("clock", clock)
            w.table("x").add([0], [1.0])
        print("the end, without a newline", end="", file=sys.stderr)

    assert run(talk).tables["x"][0] == 6
    out, err = capsys.readouterr()
    for worker, host in ((0, 0), (1, 0), (2, 1)):
        lines = [line for line in out.splitlines() if line.startswith(f"(host {host}) worker {worker}: ")]
        assert lines == [f"(host {host}) worker {worker}: {text}" for text in ("one clock 0", "clock 1")]
        assert f"(host {host}) worker {worker}: the end, without a newline\n" in err
    assert not list(folder.iterdir())


def test_an_error_names_its_log_only_if_there_is_something_in_it(folder: Path) -> None:
    def fail(w: Any) -> None:
        if w.number == 2:
            raise ValueError("no more")
        for _ in w.clocks(3):
            w.table("x").read()

    with pytest.raises(RunError, match="worker 2 failed at clock 0: ValueError: no more") as caught:
        run(fail)
    assert isinstance(caught.value.__cause__, ValueError)
    assert [note for note in caught.value.__cause__.__notes__ if note.startswith("on host 1 on ")]
    assert "log:" not in str(caught.value.__cause__.__notes__)
    assert not list(folder.iterdir())

    def speak_and_fail(w: Any) -> None:
        print("I will fail")
        fail(w)

    with pytest.raises(RunError, match="no more") as caught:
        run(speak_and_fail)
    assert caught.value.__cause__ is not None
    (note,) = (note for note in caught.value.__cause__.__notes__ if note.startswith("on host 1 on "))
    log = Path(note.split("(log: ")[1].removesuffix(")"))
    assert "worker 2: I will fail" in log.read_text()
    assert log.parent.parent == folder


def test_a_worker_that_always_crashes_ends_the_job_with_what_it_said(folder: Path) -> None:
    """Six losses without progress, not a hundred; the error has the crash, and the log stays."""

    def crash(w: Any) -> None:
        for clock in w.clocks(4):
            w.table("x").add([0], [1.0])
            if w.number == 2 and clock == 1:
                ctypes.string_at(0)

    with (
        pytest.warns(
            RuntimeWarning, match=r"host 1 on .* was lost: .*SIGSEGV.*the run restarts from clock 0"
        ) as warned,
        pytest.raises(RunError, match=r"lost 6 times in a row, and the job got no further") as caught,
    ):
        run(crash)
    said = str(caught.value)
    assert "has ended (SIGSEGV)" in said
    assert "Fatal Python error: Segmentation fault" in said
    assert "in crash" in said
    losses = 1 + len([one for one in warned if "was lost" in str(one.message)])
    assert 6 <= losses <= 11  # that it had come to clock 1 may be heard of only in the sixth life
    (logs,) = folder.iterdir()
    assert (logs / "host-1.log").read_text().count("Fatal Python error") == losses


def newest(folder: Path) -> str:
    return max((path.parent.name for path in folder.glob("checkpoints/*/manifest.json")), default="")


def wait_for_newer(folder: Path, before: str) -> None:
    deadline = time.monotonic() + 60
    while newest(folder) <= before and time.monotonic() < deadline:
        time.sleep(0.01)


def test_a_job_that_gets_further_between_losses_goes_on(folder: Path, tmp_path: Path) -> None:
    """More losses than six, each one clock later."""

    def crash(w: Any) -> None:
        for clock in w.clocks(8):
            w.table("x").add([0], [1.0])
            mark = tmp_path / f"{clock}"
            if w.number == 2 and not mark.exists():
                if clock:  # what was learned since the last loss is saved, however slow the machine is
                    before = (tmp_path / f"{clock - 1}").read_text()
                    wait_for_newer(tmp_path, before)
                mark.write_text(newest(tmp_path))
                os.kill(os.getpid(), 9)

    with pytest.warns(RuntimeWarning, match="was lost"):
        result = st.run(
            crash,
            workers=3,
            tables=TABLES,
            runtime=st.Cluster("processes", nodes=2),
            checkpoint=tmp_path / "checkpoints",
            checkpoint_every=1,
        )
    assert result.tables["x"][0] == 24
    assert len(list(tmp_path.glob("[0-9]"))) == 8
    assert not list(folder.iterdir())


def test_a_loop_whose_nodes_always_die_gives_up(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from stretto.runtime.cluster.blocks.driver_runs import Runs
    from stretto.runtime.cluster.hosts.fleet import HostLost

    def lost(self: Any, *_: Any, **__: Any) -> Any:
        raise HostLost(0, "it is gone, says the test")

    monkeypatch.setattr(Runs, "make", lost)
    ratings = st.generate_ratings(500, 60, 40).data
    model = st.MatrixFactorization(n_components=2, max_iter=2, random_state=0, runtime=st.Cluster("processes", nodes=2))
    with (
        pytest.warns(RuntimeWarning, match="host 0 on .* was lost: it is gone"),
        pytest.raises(RunError, match="lost 6 times in a row, and the job got no further"),
    ):
        model.fit(ratings)


# --- the parts --------------------------------------------------------------------------------------------------------


def test_lines_of_several_threads_stay_whole() -> None:
    stream = io.StringIO()
    lines = WorkerLines(stream)
    go = [threading.Event(), threading.Event()]

    def first() -> None:
        lines.write("one ")
        go[0].set()
        assert go[1].wait(60)
        lines.write("line\nrest")
        lines.end()

    def second() -> None:
        assert go[0].wait(60)
        lines.write("another\n")
        go[1].set()

    threads = [threading.Thread(target=first, name="stretto-worker-3"), threading.Thread(target=second, name="other")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    lines.end()  # this thread has written nothing
    assert stream.getvalue() == "another\nworker 3: one line\nworker 3: rest\n"


def test_bytes_that_are_no_text_and_streams_that_are_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    closed = io.StringIO()
    closed.close()
    monkeypatch.setattr("sys.stdout", closed)
    monkeypatch.setattr("sys.stderr", None)
    pipes: dict[str, Any] = {"stdout": io.BytesIO(b"\xff\xfe\nsecond\n"), "stderr": io.BytesIO(b"third")}
    output = Output(4, pipes, tmp_path / "log")
    output.wait(60)
    output.note("it has ended")
    assert sorted(output.tail()) == ["second", "third", "��"]
    assert "[driver] it has ended\n" in (tmp_path / "log").read_text()
