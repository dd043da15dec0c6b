"""One writer of a run folder at a time: processes and threads are refused in words, and dead ones leave no lock."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stretto as st
from stretto.errors import RunError
from stretto.observe import folder_lock
from stretto.observe.folder_lock import NAME, FolderLock, is_written
from stretto.observe.record import RunRecord
from stretto.runtime.files.checkpoint import writing
from stretto.runtime.files.run_checkpoints import Saving
from stretto.runtime.session import Session

HOLD = """
import sys
from pathlib import Path
from stretto.observe.folder_lock import FolderLock
lock = FolderLock(Path(sys.argv[1]))
print("held", flush=True)
sys.stdin.readline()
"""


@contextmanager
def held(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process writes there."""
    command = [sys.executable, "-c", HOLD, str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "held\n"
            yield process
        finally:
            process.kill()


def test_another_process_is_refused_and_named(tmp_path: Path) -> None:
    with held(tmp_path) as process:
        assert is_written(tmp_path)
        with pytest.raises(
            RunError, match=rf"is being written by process {process.pid} since .*; wait until it has ended"
        ):
            RunRecord(tmp_path)
        with pytest.raises(RunError, match="name another folder for the checkpoints of this run"), writing(tmp_path):
            raise AssertionError("nothing may be written")
        assert not (tmp_path / "events.jsonl").exists()


def test_the_lock_of_a_process_that_was_killed_is_none(tmp_path: Path) -> None:
    with held(tmp_path) as process:
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert (tmp_path / NAME).exists()  # left behind
    assert not is_written(tmp_path)
    RunRecord(tmp_path).close()
    assert not (tmp_path / NAME).exists()


def test_two_records_in_one_process(tmp_path: Path) -> None:
    first = RunRecord(tmp_path)
    with pytest.raises(RunError, match=f"is being written by process {os.getpid()} since"):
        RunRecord(tmp_path, exist_ok=True)
    first.close()
    RunRecord(tmp_path, exist_ok=True).close()


def test_a_record_that_is_refused_for_another_reason_holds_no_lock(tmp_path: Path) -> None:
    RunRecord(tmp_path).close()
    with pytest.raises(RunError, match="already holds the record of a run"):
        RunRecord(tmp_path)
    assert not is_written(tmp_path)


def test_a_file_that_was_removed_while_it_was_opened_is_no_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The moment between opening the file and locking it, in which its owner goes."""
    before = FolderLock(tmp_path)
    real, opened = folder_lock._locked, []

    def locked(file: int) -> bool:
        opened.append(file)
        if len(opened) == 1:
            before.release()  # removes the file that `file` is
        return real(file)

    monkeypatch.setattr(folder_lock, "_locked", locked)
    after = FolderLock(tmp_path)
    assert len(opened) == 2
    assert is_written(tmp_path)
    after.release()


def test_without_locks_of_the_file_system_the_process_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: Any) -> None:
        raise OSError("not supported")

    monkeypatch.setattr("fcntl.flock", refused)
    first = FolderLock(tmp_path)
    with pytest.raises(RunError, match=f"process {os.getpid()}"):
        FolderLock(tmp_path)
    first.release()
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        ended.wait()
    machine = socket.gethostname()
    (tmp_path / NAME).write_text(f'{{"pid": {ended.pid}, "machine": "{machine}", "since": "then"}}')
    FolderLock(tmp_path).release()
    (tmp_path / NAME).write_text('{"pid": 1, "machine": "elsewhere", "since": "then"}')
    with pytest.raises(RunError, match="process 1 on elsewhere since then"):
        FolderLock(tmp_path)
    (tmp_path / NAME).write_text("not what was written")
    FolderLock(tmp_path).release()


def test_a_fit_holds_its_folders_and_lets_go(tmp_path: Path) -> None:
    seen: list[bool] = []

    def look(event: Any) -> None:
        seen.append(is_written(tmp_path / "run") and is_written(tmp_path / "saved"))

    ratings = st.generate_ratings(500, 60, 40).data
    model = st.MatrixFactorization(n_components=2, max_iter=2, random_state=0)
    session = Session(record=tmp_path / "run", saving=Saving(tmp_path / "saved", every_epochs=1), listeners=[look])
    model.fit(ratings, session=session)
    assert seen[0]
    assert not is_written(tmp_path / "run")
    assert not is_written(tmp_path / "saved")
    assert not list(tmp_path.rglob(NAME))
    with held(tmp_path / "saved"), pytest.raises(RunError, match="is being written by process"):
        model.fit(ratings, session=Session(saving=Saving(tmp_path / "saved", every_epochs=1)))


def test_tables_hold_their_folder_too(tmp_path: Path) -> None:
    def worker(w: Any) -> None:
        for _ in w.clocks(2):
            w.table("x").add([0], np.ones(1))

    def run() -> Any:
        return st.run(worker, tables={"x": st.tables.Table(rows=1)}, checkpoint=tmp_path / "saved", checkpoint_every=1)

    run()
    with held(tmp_path / "saved"), pytest.raises(RunError, match="is being written by process"):
        run()
    assert run().stopped == "done"


def test_a_folder_in_which_nothing_was_saved_is_not_left_behind(tmp_path: Path) -> None:
    with writing(tmp_path / "new"):
        assert is_written(tmp_path / "new")
    assert not (tmp_path / "new").exists()
    (tmp_path / "old").mkdir()
    with writing(tmp_path / "old"):
        pass
    assert (tmp_path / "old").exists()
    with writing(None):
        pass
