"""A run that was stopped, wherever it was, and goes on ends with the bits of one that was not."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jobs import PROBLEMS, digest, job_on, some_ratings
from stretto.errors import CheckpointError, Diverged
from stretto.observe.events import CheckpointRejected, CheckpointSaved, EpochDone, Event, PassDone, Warned
from stretto.runtime.blocks.crew import Crew
from stretto.runtime.blocks.team import TeamCall
from stretto.runtime.blocks.train import JobTrainer, Patience, TrainOutcome
from stretto.runtime.files.run_checkpoints import Saving
from stretto.runtime.runtimes import Runtime, Serial, Threads
from stretto.solvers.factorization.problem import FactorizationProblem

DATA = some_ratings()
EPOCHS = 4
NAMES = ["sgd", "adagrad", "adarevision", "als", "als, cg", "als, implicit", "ccd"]


def train(
    runtime: Runtime,
    problem: FactorizationProblem,
    *,
    saving: Saving | None = None,
    resume: bool = False,
    epochs: int = EPOCHS,
    listen: Callable[[Event], None] | None = None,
    **rules: Any,
) -> tuple[TrainOutcome, str, list[Event]]:
    """(outcome, hash of what was learned, events) of a run; stopped by the user, it is saved as a session would."""
    events: list[Event] = []

    def tell(event: Event) -> None:
        events.append(event)
        if listen is not None:
            listen(event)

    with job_on(runtime, problem, DATA) as (job, crew):
        trainer = JobTrainer(job, crew, tell=tell, saving=saving, **rules)
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

        real = TeamCall.wait

        def wait(call: TeamCall, seconds: float | None = None) -> bool:
            left[0] -= 1
            if left[0] == 0:
                raise KeyboardInterrupt
            return real(call, seconds)

        monkeypatch.setattr(TeamCall, "wait", wait)

    return arm


@pytest.mark.parametrize("after", [Serial(), Threads(1), Threads(4)], ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_between_epochs(tmp_path: Path, name: str, after: Runtime) -> None:
    whole, wanted, told = train(Serial(), PROBLEMS[name])
    saving = Saving(tmp_path, every_epochs=1)
    _, _, first = train(Threads(2), PROBLEMS[name], saving=saving, epochs=3)
    assert [event.epoch for event in first if isinstance(event, CheckpointSaved)] == [1, 2], (
        "the end needs no checkpoint"
    )
    outcome, found, second = train(after, PROBLEMS[name], saving=saving, resume=True)
    assert found == wanted
    assert outcome.epochs == whole.epochs == EPOCHS
    assert objectives(first)[:2] + objectives(second) == objectives(told)


@pytest.mark.parametrize(
    ("name", "stop_at"),
    [(name, n) for name in NAMES for n in ((1, 2, 4) if PROBLEMS[name].solver == "sgd" else (1, 2, 4, 7))],
)
def test_in_the_middle_of_an_epoch(
    tmp_path: Path, name: str, stop_at: int, interrupt_after: Callable[[int], None]
) -> None:
    """Ctrl-C during a pass: what was running ends, the rest is left for later, perhaps for other threads."""
    _, wanted, told = train(Serial(), PROBLEMS[name])
    saving = Saving(tmp_path, every_epochs=100)
    with job_on(Threads(2), PROBLEMS[name], DATA) as (job, crew):
        trainer = JobTrainer(job, crew, saving=saving)
        interrupt_after(stop_at)
        outcome = trainer.run(EPOCHS)
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
    """A deadline of nearly nothing: stopped in the middle of almost every pass, and gone on from there."""
    _, wanted, told = train(Serial(), PROBLEMS[name])
    with job_on(Threads(2), PROBLEMS[name], DATA) as (job, crew):
        at: Any = None
        middles = 0
        seen: list[float] = []
        for epoch in range(EPOCHS):
            steps = job.steps(epoch)
            for step in steps:
                finished, seconds = None, 0.0
                while True:
                    done = crew.run(step, "exact", finished, seconds=seconds)
                    seconds = 0.0 if len(done.log) else 1.0
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
    with pytest.raises(
        CheckpointError, match=r"was saved under plan .*rank is \d+ in the checkpoint and 6 in this run"
    ):
        train(Serial(), FactorizationProblem(6), saving=saving, resume=True)
    with pytest.raises(CheckpointError, match="no checkpoint folder"):
        train(Serial(), PROBLEMS["sgd"], resume=True)


@pytest.mark.parametrize("memory", [60_000, 90_000])
@pytest.mark.parametrize("name", ["sgd", "adagrad", "adarevision"])
def test_a_run_may_move_to_disk_and_back_between_epochs(tmp_path: Path, name: str, memory: int) -> None:
    """Where it runs is not part of the plan."""
    problem = PROBLEMS[name]
    _, wanted, _ = train(Serial(), problem)
    saving = Saving(tmp_path / "saved", every_epochs=100)
    for epoch in range(1, EPOCHS + 1):
        scratch = tmp_path / str(epoch) if epoch % 2 else None
        if scratch is not None:
            scratch.mkdir()
        with job_on(Threads(2), problem, DATA, memory=memory if scratch else None, scratch=scratch) as (job, crew):
            trainer = JobTrainer(job, crew, saving=saving)
            if epoch > 1:
                trainer.restore()
            trainer.run(epoch)
            trainer.save()
            found = digest(job.arrays())
    assert found == wanted


@pytest.mark.parametrize("stop_at", [1, 2, 5, 11])
@pytest.mark.parametrize("name", ["sgd", "adagrad", "adarevision"])
def test_in_the_middle_of_an_epoch_on_disk(
    tmp_path: Path, name: str, stop_at: int, interrupt_after: Callable[[int], None]
) -> None:
    problem = PROBLEMS[name]
    _, wanted, _ = train(Serial(), problem)
    saving = Saving(tmp_path / "saved", every_epochs=100)
    for k, waits in enumerate((stop_at, stop_at, 10**9)):
        scratch = tmp_path / str(k)
        scratch.mkdir()
        with job_on(Threads(1 + k), problem, DATA, memory=60_000, scratch=scratch) as (job, crew):
            trainer = JobTrainer(job, crew, saving=saving)
            if k:
                trainer.restore()
            interrupt_after(waits)
            outcome = trainer.run(EPOCHS)
            trainer.save()
            found = digest(job.arrays())
    assert outcome.status == "done"
    assert found == wanted


def test_a_run_moves_to_disk_in_the_middle_of_an_epoch(tmp_path: Path, interrupt_after: Callable[[int], None]) -> None:
    """Finished visits are those of the plan, however they were brought in."""
    problem = PROBLEMS["sgd"]
    _, wanted, _ = train(Serial(), problem)
    saving = Saving(tmp_path / "saved", every_epochs=100)
    with job_on(Threads(2), problem, DATA) as (job, crew):
        trainer = JobTrainer(job, crew, saving=saving)
        interrupt_after(2)
        assert trainer.run(EPOCHS).status == "stopped"
        trainer.save()
        assert trainer.position.finished is not None
    with job_on(Threads(2), problem, DATA, memory=60_000, scratch=tmp_path) as (job, crew):
        trainer = JobTrainer(job, crew, saving=saving)
        trainer.restore()
        trainer.run(EPOCHS)
        assert digest(job.arrays()) == wanted


def test_nothing_is_left_of_a_step_on_disk_whose_visits_are_all_made(tmp_path: Path) -> None:
    """A run may be interrupted between the last visit and the end of its step."""
    with job_on(Threads(2), PROBLEMS["sgd"], DATA, memory=60_000, scratch=tmp_path) as (job, crew):
        step = JobTrainer(job, crew)._steps(0)[0]
        done = crew.run(step, "exact", np.arange(len(step.order)), drain=True)
        assert done.finished is None
        assert not len(done.log)
        assert not done.interrupted


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
    rules: dict[str, Any] = {"patience": Patience(2, tolerance=0.005)}
    alone, wanted, _ = train(Serial(), PROBLEMS["sgd"], epochs=50, **rules)
    assert alone.status == "early"
    assert 3 < alone.epochs < 50
    saving = Saving(tmp_path, every_epochs=1)
    train(
        Serial(),
        PROBLEMS["sgd"],
        epochs=alone.epochs,
        saving=saving,
        stop_after=lambda e, r: e == alone.epochs - 1,
        **rules,
    )
    # The checkpoint after the last but two epochs holds one epoch waited, or none.
    again, found, _ = train(Threads(2), PROBLEMS["sgd"], epochs=50, saving=saving, resume=True, **rules)
    assert (again.status, again.epochs, found) == ("early", alone.epochs, wanted)


def test_divergence_is_named_and_the_checkpoint_kept(tmp_path: Path) -> None:
    saving = Saving(tmp_path, every_epochs=1)
    says = r"NaN or infinity in epoch \d+, pass sgd, block \(\d+, \d+\).*lower learning_rate.*checkpoint is untouched"
    with pytest.raises(Diverged, match=says):
        train(Threads(2), FactorizationProblem(5, learning_rate=50.0, schedule="constant"), saving=saving, epochs=50)


def test_passes_are_told_with_their_visits() -> None:
    _, _, events = train(Threads(2), PROBLEMS["sgd"], epochs=1)
    passes = [event for event in events if isinstance(event, PassDone)]
    assert len(passes) == 1
    visits = passes[0].visits
    assert visits is not None
    assert sorted(visits[:, 0].tolist()) == list(range(16))
    assert set(visits[:, 1].tolist()) <= {0, 1}
    assert np.all(visits[:, 3] >= visits[:, 2])
    assert visits[:, 2].min() >= 0
    assert passes[0].items == len(DATA)


def test_a_second_interrupt_stops_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def wait(call: TeamCall, seconds: float | None = None) -> bool:
        raise KeyboardInterrupt

    with job_on(Threads(2), PROBLEMS["sgd"], DATA) as (job, crew):
        monkeypatch.setattr(TeamCall, "wait", wait)
        with pytest.raises(KeyboardInterrupt):
            crew.run(job.steps(0)[0], "exact")


def test_a_crew_survives_a_kernel_error() -> None:
    with job_on(Threads(2), PROBLEMS["sgd"], DATA) as (job, crew):
        assert isinstance(crew, Crew)
        with pytest.raises(KeyError, match="no numeric profile 'quick'; there are exact, fast"):
            crew.run(job.steps(0)[0], "quick")
        assert crew.run(job.steps(0)[0], "exact").finished is None


def test_sums_that_no_checkpoint_holds_are_made_again(tmp_path: Path) -> None:
    """The parts of YᵀY are not saved: visits that were finished before a stop count for nothing after a restart."""
    problem = PROBLEMS["als, implicit"]
    _, wanted, _ = train(Serial(), problem)
    saving = Saving(tmp_path, every_epochs=100)
    with job_on(Serial(), problem, DATA) as (job, crew):
        trainer = JobTrainer(job, crew, saving=saving)
        step = trainer._steps(0)[0]
        assert step.name == "gram"
        trainer.position.finished = np.arange(len(step.order) - 1)  # as if stopped before the last visit
        trainer.save()
    with job_on(Serial(), problem, DATA) as (job, crew):
        trainer = JobTrainer(job, crew, saving=saving)
        trainer.restore()
        trainer.run(EPOCHS)
        assert digest(job.arrays()) == wanted
