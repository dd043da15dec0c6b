"""A run that was stopped, wherever it was, and goes on ends with the bits of one that was not."""

from __future__ import annotations

import concurrent.futures
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from jobs import PROBLEMS, digest, job_on, some_ratings

from stretto.errors import CheckpointError, Diverged
from stretto.models.mf_base import Problem
from stretto.observe.events import CheckpointRejected, CheckpointSaved, EpochDone, Event, PassDone, Warned
from stretto.runtime import runtimes
from stretto.runtime.runtimes import Crew, Runtime, Serial, Threads
from stretto.runtime.train import Outcome, Patience, Saving, Trainer

DATA = some_ratings()
EPOCHS = 4
NAMES = ["sgd", "adagrad", "als", "als, cg", "als, implicit"]


def train(
    runtime: Runtime,
    problem: Problem,
    *,
    saving: Saving | None = None,
    resume: bool = False,
    epochs: int = EPOCHS,
    listen: Callable[[Event], None] | None = None,
    **rules: Any,
) -> tuple[Outcome, str, list[Event]]:
    """(outcome, hash of what was learned, events) of a run; stopped by the user, it is saved as a session would."""
    events: list[Event] = []

    def tell(event: Event) -> None:
        events.append(event)
        if listen is not None:
            listen(event)

    with job_on(runtime, problem, DATA) as (job, crew):
        trainer = Trainer(job, crew, tell=tell, saving=saving, **rules)
        if resume:
            trainer.restore()
        outcome = trainer.run(epochs)
        if outcome.status == "stopped":
            trainer.save()
        return outcome, digest(job.arrays()), events


def objectives(*runs: list[Event]) -> list[float]:
    return [event.objective for events in runs for event in events if isinstance(event, EpochDone)]


@pytest.fixture
def interrupt_after(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """interrupt_after(n): the n-th wait for a pass is struck by Ctrl-C, before or while its workers run."""

    def arm(count: int) -> None:
        left = [count]

        def wait(futures: Any, timeout: float | None = None) -> Any:
            left[0] -= 1
            if left[0] == 0:
                raise KeyboardInterrupt
            return concurrent.futures.wait(futures, timeout)

        monkeypatch.setattr(runtimes, "wait", wait)

    return arm


@pytest.mark.parametrize("after", [Serial(), Threads(1), Threads(4)], ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_between_epochs(tmp_path: Path, name: str, after: Runtime) -> None:
    whole, wanted, told = train(Serial(), PROBLEMS[name])
    saving = Saving(tmp_path, every_epochs=1)
    _, _, first = train(Threads(2), PROBLEMS[name], saving=saving, epochs=3)
    assert [event.epoch for event in first if isinstance(event, CheckpointSaved)] == [1, 2], "the end needs no checkpoint"
    outcome, found, second = train(after, PROBLEMS[name], saving=saving, resume=True)
    assert found == wanted
    assert outcome.epochs == whole.epochs == EPOCHS
    assert objectives(first)[:2] + objectives(second) == objectives(told)


@pytest.mark.parametrize("stop_at", [1, 2, 4, 7])
@pytest.mark.parametrize("name", NAMES)
def test_in_the_middle_of_an_epoch(
    tmp_path: Path, name: str, stop_at: int, interrupt_after: Callable[[int], None]
) -> None:
    """Ctrl-C during a pass: what was running ends, the rest is left for later, perhaps for other threads."""
    _, wanted, told = train(Serial(), PROBLEMS[name])
    saving = Saving(tmp_path, every_epochs=100)
    with job_on(Threads(2), PROBLEMS[name], DATA) as (job, crew):
        trainer = Trainer(job, crew, saving=saving)
        interrupt_after(stop_at)
        outcome = trainer.run(EPOCHS)
        if outcome.status == "done":
            pytest.skip("this solver has fewer passes than that")
        assert outcome.status == "stopped"
        assert trainer.position.finished is not None
        trainer.save()
    for runtime in (Serial(), Threads(3)):
        copy = tmp_path / f"copy-{runtime.workers}"
        shutil.copytree(tmp_path, copy, ignore=shutil.ignore_patterns("copy-*"))
        done, found, events = train(runtime, PROBLEMS[name], saving=Saving(copy, every_epochs=100), resume=True)
        assert done.status == "done"
        assert found == wanted
        late = objectives(events)
        assert late == objectives(told)[-len(late) :]


@pytest.mark.parametrize("name", NAMES)
def test_again_and_again(tmp_path: Path, name: str) -> None:
    """A deadline of nearly nothing: a checkpoint in the middle of almost every pass, each one picked up by a new process's worth of state."""
    _, wanted, told = train(Serial(), PROBLEMS[name])
    with job_on(Threads(2), PROBLEMS[name], DATA) as (job, crew):
        at: Any = None
        middles = 0
        seen: list[float] = []
        for epoch in range(EPOCHS):
            steps = job.steps(epoch)
            for step in steps:
                finished = None
                while True:
                    done = crew.run(step, "exact", finished, seconds=0.0)
                    if done.finished is None:
                        break
                    middles += 1
                    assert step.order.finished_closed(done.finished)
                    # Leave and come back: everything through a copy, as a checkpoint would.
                    at = {k: v.copy() for k, v in job.arrays().items()}
                    for k, v in job.arrays().items():
                        v[...] = at[k]
                    finished = done.finished.copy()
            seen.append(job.report(epoch, steps).objective)
        assert digest(job.arrays()) == wanted
    assert seen == objectives(told)
    assert middles > 0


@pytest.mark.parametrize("name", ["sgd", "als, cg"])
def test_saving_all_the_time_still_gets_there(tmp_path: Path, name: str) -> None:
    _, wanted, _ = train(Serial(), PROBLEMS[name])
    outcome, found, events = train(Threads(2), PROBLEMS[name], saving=Saving(tmp_path, every_seconds=0.0), epochs=2)
    assert outcome.status == "done"
    saved = [event for event in events if isinstance(event, CheckpointSaved)]
    assert saved
    assert len(list(tmp_path.glob("checkpoint-*"))) <= 2, "older ones are removed"
    _, found, _ = train(Threads(3), PROBLEMS[name], saving=Saving(tmp_path, every_epochs=9), resume=True)
    assert found == wanted


@pytest.mark.parametrize("name", ["sgd", "adagrad", "als, cg"])
def test_a_damaged_checkpoint_is_passed_over(tmp_path: Path, name: str) -> None:
    _, wanted, _ = train(Serial(), PROBLEMS[name])
    saving = Saving(tmp_path, every_epochs=1)
    train(Threads(2), PROBLEMS[name], saving=saving, epochs=3)
    newest = sorted(tmp_path.glob("checkpoint-*"))[-1]
    arrays = newest / "arrays.safetensors"
    raw = bytearray(arrays.read_bytes())
    raw[len(raw) // 2] ^= 1
    arrays.write_bytes(raw)
    _, found, events = train(Threads(2), PROBLEMS[name], saving=saving, resume=True)
    assert found == wanted
    rejected = [event for event in events if isinstance(event, CheckpointRejected)]
    assert [event.path for event in rejected] == [str(newest)]
    assert next(event for event in events if isinstance(event, EpochDone)).epoch == 2


def test_another_plan_cannot_be_resumed(tmp_path: Path) -> None:
    saving = Saving(tmp_path, every_epochs=1)
    train(Serial(), PROBLEMS["sgd"], saving=saving, epochs=2)
    with pytest.raises(CheckpointError, match="was saved under plan"):
        train(Serial(), Problem(6), saving=saving, resume=True)
    with pytest.raises(CheckpointError, match="no checkpoint folder"):
        train(Serial(), PROBLEMS["sgd"], resume=True)


@pytest.mark.parametrize("memory", [60_000, 100_000])
def test_a_checkpoint_of_memory_goes_on_from_disk_and_back(
    tmp_path: Path, memory: int, interrupt_after: Callable[[int], None]
) -> None:
    """Where it runs is not part of the plan, so a run may move to disk, and back, in the middle of an epoch."""
    problem = PROBLEMS["sgd"]
    _, wanted, _ = train(Serial(), problem)
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    saving = Saving(tmp_path / "saved", every_epochs=100)

    def stretch(waits: int | None, scratch: Path | None) -> tuple[str, str]:
        with job_on(Threads(2), problem, DATA, memory=memory if scratch else None, scratch=scratch) as (job, crew):
            trainer = Trainer(job, crew, saving=saving)
            if saving.folder.exists():
                trainer.restore()
            if waits is not None:
                interrupt_after(waits)
            outcome = trainer.run(EPOCHS)
            trainer.save()
            found = digest(job.arrays())
            if scratch is not None:
                job.close()  # type: ignore[attr-defined]
            return outcome.status, found

    assert stretch(2, None)[0] == "stopped"
    assert stretch(3, tmp_path / "a")[0] == "stopped"
    assert stretch(2, None)[0] == "stopped"
    assert stretch(None, tmp_path / "b") == ("done", wanted)


def test_a_disk_that_refuses_is_told_and_training_goes_on(tmp_path: Path) -> None:
    _, wanted, _ = train(Serial(), PROBLEMS["sgd"])
    (tmp_path / "file").write_text("not a folder")
    saving = Saving(tmp_path / "file", every_epochs=1)
    outcome, found, events = train(Serial(), PROBLEMS["sgd"], saving=saving)
    assert outcome.status == "done"
    assert found == wanted
    assert any(isinstance(event, Warned) and "could not save a checkpoint" in event.message for event in events)


def test_patience_survives_a_resume(tmp_path: Path) -> None:
    """Epochs already waited count after a resume: both runs stop after the same epoch."""
    rules = {"patience": Patience(2, tolerance=0.02)}
    alone, wanted, _ = train(Serial(), PROBLEMS["sgd"], epochs=50, **rules)
    assert alone.status == "early"
    assert 3 < alone.epochs < 50
    saving = Saving(tmp_path, every_epochs=1)
    train(Serial(), PROBLEMS["sgd"], epochs=alone.epochs, saving=saving, stop_after=lambda e, r: e == alone.epochs - 1, **rules)
    # The checkpoint after the last but two epochs holds one epoch waited, or none.
    again, found, _ = train(Threads(2), PROBLEMS["sgd"], epochs=50, saving=saving, resume=True, **rules)
    assert (again.status, again.epochs, found) == ("early", alone.epochs, wanted)


def test_divergence_is_named_and_the_checkpoint_kept(tmp_path: Path) -> None:
    saving = Saving(tmp_path, every_epochs=1)
    with pytest.raises(Diverged, match=r"NaN or infinity in epoch \d+, pass sgd, block \(\d+, \d+\).*lower learning_rate.*checkpoint is untouched"):
        train(Threads(2), Problem(5, learning_rate=50.0, schedule="constant"), saving=saving, epochs=50)


def test_passes_are_told_with_their_visits() -> None:
    _, _, events = train(Threads(2), PROBLEMS["sgd"], epochs=1)
    passes = [event for event in events if isinstance(event, PassDone)]
    assert len(passes) == 1
    visits = passes[0].visits
    assert visits is not None
    assert sorted(visits[:, 0].tolist()) == list(range(64))
    assert set(visits[:, 1].tolist()) <= {0, 1}
    assert np.all(visits[:, 3] >= visits[:, 2])
    assert visits[:, 2].min() >= 0
    assert passes[0].items == len(DATA)


def test_a_second_interrupt_stops_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def wait(futures: Any, timeout: float | None = None) -> Any:
        raise KeyboardInterrupt

    with job_on(Threads(2), PROBLEMS["sgd"], DATA) as (job, crew):
        monkeypatch.setattr(runtimes, "wait", wait)
        with pytest.raises(KeyboardInterrupt):
            crew.run(job.steps(0)[0], "exact")


def test_a_crew_survives_a_kernel_error() -> None:
    with job_on(Threads(2), PROBLEMS["sgd"], DATA) as (job, crew):
        assert isinstance(crew, Crew)
        with pytest.raises(KeyError, match="no numeric profile 'quick'; there are exact, fast"):
            crew.run(job.steps(0)[0], "quick")
        assert crew.run(job.steps(0)[0], "exact").finished is None
