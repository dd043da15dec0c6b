"""Ctrl-C and kill −9, for real: a signal to another process in the middle of a fit, and a resume to the same bits."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import IO

import numpy as np
import pytest

import fit_script
from jobs import PROBLEMS, job_on, some_ratings
from stretto.models.factorization.estimator import MatrixFactorization
from stretto.runtime.blocks.team import TeamCall
from stretto.runtime.runtimes import Threads

SCRIPT = Path(__file__).with_name("fit_script.py")
EPOCHS = 60


def begin(folder: Path, name: str, how: str, threads: int = 2, epochs: int = EPOCHS) -> subprocess.Popen[str]:
    command = [sys.executable, str(SCRIPT), str(folder), name, how, str(epochs), str(threads)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def end(process: subprocess.Popen[str]) -> tuple[int, list[str], str]:
    out, err = process.communicate(timeout=120)
    return process.returncode, out.split("\n"), err


def wait_for(pipe: IO[str] | None, line: str) -> None:
    assert pipe is not None
    for found in pipe:
        if found.strip() == line:
            return
    raise AssertionError(f"the process ended before it said {line!r}")


@pytest.mark.parametrize("name", ["sgd", "adagrad", "als"])
def test_ctrl_c_saves_and_resume_gives_the_same_bits(
    tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    process = begin(tmp_path, name, "run")
    wait_for(process.stdout, "epoch 1")
    process.send_signal(signal.SIGINT)
    code, said, problems = end(process)
    assert (code, problems) == (130, "")
    assert "interrupted" in said
    assert not any(line.startswith("learned") for line in said), "it stopped before its end"
    assert list(tmp_path.glob("checkpoint-*"))
    capsys.readouterr()
    resumed = fit_script.fit(tmp_path, name, "resume", EPOCHS, threads=1)
    assert "epoch 1\n" not in capsys.readouterr().out, "it did not begin anew"
    assert resumed == fit_script.fit(tmp_path, name, "alone", EPOCHS, threads=3)


def test_killed_at_any_moment(tmp_path: Path) -> None:
    """No chance to save or tidy up, twice; what was saved before is enough."""
    chance = random.Random(1)
    for how in ("run", "again"):
        process = begin(tmp_path, "sgd", how)
        assert process.stdout is not None
        first = next(process.stdout)
        wait_for(process.stdout, f"epoch {int(first.split()[1]) + chance.randrange(2, 6)}")
        process.kill()
        assert end(process)[0] == -signal.SIGKILL
    resumed = fit_script.fit(tmp_path, "sgd", "resume", EPOCHS, threads=1)
    assert resumed == fit_script.fit(tmp_path, "sgd", "alone", EPOCHS, threads=2)


def test_ctrl_c_between_passes_is_not_lost() -> None:
    """The handler asks; the run ends at the next safe place, and Python's own handler is back afterwards."""
    from stretto.observe.events import EpochDone, Event
    from stretto.runtime.session import Session

    def strike(event: Event) -> None:
        if isinstance(event, EpochDone) and event.epoch == 2:
            signal.raise_signal(signal.SIGINT)

    model = MatrixFactorization(n_components=4, max_iter=50, random_state=0)
    with pytest.raises(KeyboardInterrupt):
        model.fit(some_ratings(3000, 100, 80), session=Session(listeners=[strike]))
    assert model.n_iter_ == 2, "what was learned is kept"
    assert model.predict([[0, 0]]).shape == (1,)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_handler_of_somebody_else_is_left_alone() -> None:
    struck = []
    before = signal.signal(signal.SIGINT, lambda number, frame: struck.append(number))
    try:
        from stretto.observe.events import EpochDone, Event
        from stretto.runtime.session import Session

        def strike(event: Event) -> None:
            if isinstance(event, EpochDone) and event.epoch == 2:
                signal.raise_signal(signal.SIGINT)

        model = MatrixFactorization(n_components=4, max_iter=4, random_state=0)
        model.fit(some_ratings(3000, 100, 80), session=Session(listeners=[strike]))
    finally:
        signal.signal(signal.SIGINT, before)
    assert struck == [signal.SIGINT]
    assert model.n_iter_ == 4


def test_fitting_away_from_the_main_thread() -> None:
    model = MatrixFactorization(n_components=4, max_iter=3, random_state=0)
    thread = threading.Thread(target=model.fit, args=(some_ratings(3000, 100, 80),))
    thread.start()
    thread.join()
    assert model.n_iter_ == 3


def test_half_an_answer_is_never_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C while predicting or measuring is passed on: nobody takes what was not computed for a result."""
    model = MatrixFactorization(n_components=4, max_iter=2, random_state=0).fit(some_ratings(3000, 100, 80))
    strikes = [1]

    real = TeamCall.wait

    def wait(call: TeamCall, seconds: float | None = None) -> bool:
        if strikes and strikes.pop():
            raise KeyboardInterrupt
        return real(call, seconds)

    monkeypatch.setattr(TeamCall, "wait", wait)
    with pytest.raises(KeyboardInterrupt):
        model.predict(np.zeros((10, 2), int))
    strikes.append(1)
    with pytest.raises(KeyboardInterrupt):
        model.fit(some_ratings(3000, 100, 80))


def test_a_run_that_was_asked_to_stop_ends_between_steps() -> None:
    with job_on(Threads(2), PROBLEMS["sgd"], some_ratings()) as (job, crew):
        crew.ask()
        assert crew.asked
        assert crew.run(job.steps(0)[0], "exact").finished is None, "a step that may not be left half made is made"
