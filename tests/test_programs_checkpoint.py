"""Checkpoints of programs: a run that is resumed ends with the bits of one that never stopped, also after kill -9."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stretto as st
from programs_cut import Cut, Own, OwnRemembering, Remembering
from programs_made import Lasso, bits, regression
from rounds_fleet import Stepped
from stretto.errors import CheckpointError, DataError, OtherPlan, PlanError, RunError
from stretto.observe.record import RunRecord
from stretto.programs.program import Program
from stretto.runtime.files import checkpoint as files

X, Y = regression()
ROUNDS = 23


class Prioritised(Cut):
    schedule = st.schedule.prioritised(width=3, conflicts=None)


class Taking(Cut):
    """Ready schedules taking turns in a schedule of its own: the state is in state.memory."""

    def schedule(self, state: Any) -> Any:
        if not state.memory:
            state.memory["sweep"] = st.schedule.cyclic(width=2).start(self.size, seed=0)
            state.memory["draw"] = np.random.default_rng(5)
        if state.round % 2:
            return state.memory["sweep"].choose()
        return state.memory["draw"].choice(self.size, 3, replace=False)


MADE: dict[str, Any] = {
    "not cut": lambda: Lasso(X, Y),
    "shuffled": lambda: _with(Cut(), schedule=st.schedule.cyclic(width=3, shuffle=True)),
    "prioritised": Prioritised,
    "own schedule": Own,
    "schedules in memory": Taking,
    "state": Remembering,
}


def _with(program: Program, **attributes: Any) -> Program:
    for name, value in attributes.items():
        setattr(program, name, value)
    return program


def runtimes() -> list[Any]:
    return [st.Serial(), st.Threads(3), st.Simulated(nodes=3), Stepped(2, 0, crash=0.001)]


class Stopped(Exception):
    pass


def stopping(at: int) -> Callable[[Any], bool]:
    def until(look: Any) -> bool:
        if look.round == at:
            raise Stopped
        return False

    return until


@pytest.mark.parametrize("name", MADE)
@pytest.mark.parametrize("depth", [1, 3])
def test_resumed_at_any_round(name: str, depth: int, tmp_path: Path) -> None:
    """It stops in some round, goes on elsewhere, stops again, and ends."""
    options: dict[str, Any] = {"pipeline": depth, "seed": 4, "every": 1}
    expect = st.run(MADE[name](), rounds=ROUNDS, runtime=st.Serial(), **options)
    for number, (first, second) in enumerate([(5, 12), (8, 9)]):
        folder = tmp_path / str(number)
        there = runtimes()

        options |= {"checkpoint": folder, "checkpoint_every": 3, "rounds": ROUNDS}
        for turn, at in enumerate((first, second)):
            with pytest.raises(RunError, match="Stopped"):
                st.run(
                    MADE[name](),
                    until=stopping(at),
                    resume=turn > 0,
                    runtime=there[(number + turn) % 4],
                    **options,
                )
        result = st.run(MADE[name](), resume=True, runtime=there[(number + 2) % 4], **options)
        assert bits(result) == bits(expect)
        assert [look.round for look in result.history] == list(range(ROUNDS + 1))
        for option in ("checkpoint", "checkpoint_every", "rounds"):
            del options[option]


def test_a_longer_run_goes_on_from_a_shorter_one(tmp_path: Path) -> None:
    for make in (Cut, Remembering):
        folder = tmp_path / make.__name__
        program = make()
        st.run(program, rounds=7, pipeline=2, checkpoint=folder, runtime=st.Threads(2))
        result = st.run(program, rounds=20, pipeline=2, checkpoint=folder, resume=True, runtime=st.Simulated(nodes=2))
        expect = st.run(make(), rounds=20, pipeline=2, runtime=st.Serial())
        assert np.array_equal(result.params["beta"], expect.params["beta"])
        assert result.updates == expect.updates


def test_a_schedule_that_ended_stays_ended(tmp_path: Path) -> None:
    def make() -> Program:
        return _with(Cut(), schedule=lambda state: [1, 2] if state.round < 9 else None)

    first = st.run(make(), pipeline=3, checkpoint=tmp_path, checkpoint_every=2)
    again = st.run(make(), pipeline=3, checkpoint=tmp_path, resume=True)
    assert (again.rounds, again.stopped, first.stopped) == (8, "schedule", "schedule")
    assert bits(first) == bits(again)


def test_what_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="resume= and checkpoint_every= need checkpoint="):
        st.run(Cut(), rounds=1, resume=True)
    with pytest.raises(PlanError, match="checkpoint_every=0 is less than 1"):
        st.run(Cut(), rounds=1, checkpoint=tmp_path, checkpoint_every=0)
    with pytest.raises(PlanError, match=r"checkpoint=3; give a folder, or st.Saving"):
        st.run(Cut(), rounds=1, checkpoint=3)  # type: ignore[call-overload]
    with pytest.raises(PlanError, match="programs are saved by rounds"):
        st.run(Cut(), rounds=1, checkpoint=st.Saving(tmp_path, every_seconds=3.0))
    with pytest.raises(CheckpointError, match="no checkpoints in"):
        st.run(Cut(), rounds=1, checkpoint=tmp_path / "empty", resume=True)
    st.run(Cut(), rounds=3, checkpoint=tmp_path)
    with pytest.raises(OtherPlan, match="pipeline is 1 in the checkpoint and 2 in this run"):
        st.run(Cut(), rounds=4, pipeline=2, checkpoint=tmp_path, resume=True)
    with pytest.raises(OtherPlan, match="parts is 5 in the checkpoint and 4 in this run"):
        st.run(Cut(4), rounds=4, checkpoint=tmp_path, resume=True)
    with pytest.raises(OtherPlan, match="`update` is"):
        st.run(type("Cut", (Cut,), {"update": lambda *args: 0})(), rounds=4, checkpoint=tmp_path, resume=True)

    def schedule(state: Any) -> list[int]:
        state.memory["f"] = lambda: 0
        return [0]

    with pytest.raises(RunError, match=r"the checkpoint after round 1 cannot be saved: .*keep what can be pickled"):
        st.run(_with(Cut(), schedule=schedule), rounds=4, checkpoint=tmp_path / "f", checkpoint_every=1)


def test_keep_and_other_dtypes(tmp_path: Path) -> None:
    def make() -> Program:
        return st.program(
            update=lambda job, data, params: params["z"][job] * 1j + 1,
            aggregate=lambda results, params: params["z"].__setitem__(slice(0, 2), results),
            schedule=lambda state: [0, 1],
            params={"z": np.arange(4.0) + 0j},
        )

    saving = st.Saving(tmp_path, keep=3)
    st.run(make(), rounds=5, checkpoint=saving, checkpoint_every=1)
    assert len(list(tmp_path.glob("checkpoint-*"))) == 3
    result = st.run(make(), rounds=9, checkpoint=saving, resume=True)
    assert np.array_equal(result.params["z"], st.run(make(), rounds=9).params["z"])


def test_a_session_records_saves_and_resumes(tmp_path: Path) -> None:
    def session(resume: bool = False) -> st.Session:
        return st.Session(tmp_path, st.Saving(tmp_path / "checkpoints", every_epochs=3), resume)

    with pytest.raises(RunError, match="Stopped"):
        st.run(Cut(), rounds=9, until=stopping(7), session=session())
    result = st.run(Cut(), rounds=9, session=session(resume=True))
    assert bits(result) == bits(st.run(Cut(), rounds=9))
    found = RunRecord.load(tmp_path)
    assert found.epochs["epoch"].tolist() == list(range(1, 10))
    assert found.epochs["objective"].tolist() == [look.objective for look in result.history[1:]]
    assert (found.run["status"], found.run["sessions"], found.run["checkpoint"]["epoch"]) == ("done", 2, 9)
    assert len(found.run["fingerprint"]) >= 8
    with pytest.raises(PlanError, match="session= says where checkpoints go"):
        st.run(Cut(), rounds=9, session=session(), checkpoint=tmp_path)
    with pytest.raises((PlanError, DataError), match=r"an st\.Session"):
        st.run(Cut(), rounds=9, session=tmp_path)  # type: ignore[call-overload]


def test_a_damaged_checkpoint_and_a_full_disk_are_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    st.run(Cut(), rounds=6, checkpoint=tmp_path, checkpoint_every=3)
    newest = max(tmp_path.glob("checkpoint-*"))
    (newest / "arrays.safetensors").write_bytes(b"damaged")
    with pytest.warns(RuntimeWarning, match="is damaged: .*the previous checkpoint is used"):
        result = st.run(Cut(), rounds=9, checkpoint=tmp_path, resume=True)
    assert bits(result) == bits(st.run(Cut(), rounds=9))

    def full(*args: Any, **kwargs: Any) -> Path:
        raise CheckpointError("could not save: no space left")

    monkeypatch.setattr(files, "save", full)
    with pytest.warns(RuntimeWarning, match="no space left"):
        assert bits(st.run(Cut(), rounds=9, checkpoint=tmp_path)) == bits(result)


SCRIPT = """
import sys, time
import numpy as np
import stretto as st
from programs_cut import OwnRemembering, Remembering

where, program, schedulers = eval(sys.argv[1])


class Slow(program):
    def objective(self, data, params):
        time.sleep(0.02)
        return super().objective(data, params)


if __name__ == "__main__":
    resume = sys.argv[3] == "resume"
    made = Slow()
    if schedulers == "nodes":
        made.schedule = st.schedule.prioritised(2, conflicts=None, schedulers=2)
    done = st.run(
        made, rounds=60, pipeline=3, checkpoint=sys.argv[2], checkpoint_every=4, resume=resume, runtime=where,
        schedulers_on=schedulers,
    )
    print(done.params["beta"].tobytes().hex(), done.rounds)
"""


@pytest.mark.parametrize(
    "where",
    [
        "st.Threads(2), OwnRemembering, 'driver'",
        "st.Simulated(nodes=4), Remembering, 'nodes'",
        pytest.param("st.Cluster('processes', nodes=2), OwnRemembering, 'driver'", marks=pytest.mark.slow),
        pytest.param("st.Cluster('processes', nodes=4), Remembering, 'nodes'", marks=pytest.mark.slow),
    ],
)
def test_kill_dash_nine(where: str, tmp_path: Path) -> None:
    script, folder = tmp_path / "job.py", tmp_path / "saved"
    script.write_text(SCRIPT)
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])}

    def start(how: str) -> subprocess.Popen[str]:
        command = [sys.executable, str(script), where, str(folder), how]
        return subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True)

    job = start("anew")
    deadline = time.monotonic() + 60
    while not (folder.is_dir() and any(folder.glob("checkpoint-0*2*"))) and job.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    job.send_signal(signal.SIGKILL)
    job.communicate()
    saved = files.latest(folder).step
    assert 0 < saved < 60
    output, _ = start("resume").communicate(timeout=60)
    made: Program = OwnRemembering()
    if "nodes'" in where:
        made = _with(Remembering(), schedule=st.schedule.prioritised(2, conflicts=None, schedulers=2))
    expect = st.run(made, rounds=60, pipeline=3, runtime=st.Serial())
    assert output.split() == [expect.params["beta"].tobytes().hex(), "60"]
