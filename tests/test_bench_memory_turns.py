"""Benches that share a GPU: turns with real processes, what becomes of the others, and the run of several jobs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from bench import memory_side_by_side as side
from bench.memory_side_by_side import Job
from bench.memory_turns import look_after, register, turn

COUNTS = """
import mmap, os, sys, time
from bench.memory_turns import turn
with turn(still=False):
    pass  # and now it is registered
parent, n = os.getppid(), 0
with open(sys.argv[1], "r+b") as file:
    shown = mmap.mmap(file.fileno(), 8)
while os.getppid() == parent:
    n += 1
    shown[:8] = n.to_bytes(8, "little")
    time.sleep(0.001)
"""
HOLDS = """
import sys, time
from bench.memory_turns import turn
print("asks", flush=True)
with turn(still=sys.argv[1] == "still"):
    print("in", time.monotonic(), flush=True)
    sys.stdin.readline()
    print("out", time.monotonic(), flush=True)
"""


def until(true: Callable[[], object], seconds: float = 20.0) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it did not come true"
        time.sleep(0.002)


class Tiny:
    """A process in a session of its own."""

    def __init__(self, script: str, argument: str, shown: Path) -> None:
        command = [sys.executable, "-c", script, argument]
        environment = {**os.environ, "PYTHONPATH": str(side.ROOT)}
        self.process = subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        self.pid, self._shown = self.process.pid, shown

    def stands(self) -> bool:
        return Path(f"/proc/{self.pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "T"

    def used(self) -> list[str]:
        """Ticks of processor time that it has had."""
        return Path(f"/proc/{self.pid}/stat").read_text().rsplit(")", 1)[1].split()[11:13]

    def count(self) -> int:
        return int.from_bytes(self._shown.read_bytes(), "little")

    def goes_on(self) -> bool:
        before = self.count()
        until(lambda: self.count() != before)
        return not self.stands()

    def line(self) -> list[str]:
        assert self.process.stdout is not None
        return self.process.stdout.readline().split()

    def leave(self) -> float:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        said, when = self.line()
        assert said == "out"
        return float(when)


@pytest.fixture
def turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of its own for each test: one that takes a turn itself would pause for others there."""
    monkeypatch.setenv("STRETTO_TURNS", str(tmp_path / "turns"))
    (tmp_path / "turns").mkdir()
    return tmp_path / "turns"


@pytest.fixture
def tiny(turns: Path, tmp_path: Path) -> Iterator[Callable[[str, str], Tiny]]:
    """Starts processes, and ends them."""
    started: list[Tiny] = []

    def start(script: str, argument: str = "") -> Tiny:
        shown = tmp_path / f"shown-{len(started)}"
        shown.write_bytes(bytes(8))
        started.append(Tiny(script, argument or str(shown), shown))
        if script == COUNTS:
            assert started[-1].goes_on()
        return started[-1]

    yield start
    for one in started:
        one.process.kill()
        with one.process:
            pass


def registered(turns: Path) -> set[int]:
    return {int(path.name.split(".")[0]) for path in turns.glob("*.*")}


# -- turns -------------------------------------------------------------------------------------------------------------


def test_who_has_a_turn_runs_alone(tiny: Callable[..., Tiny], turns: Path) -> None:
    one, other = tiny(COUNTS), tiny(COUNTS)
    assert registered(turns) == {one.pid, other.pid}
    with turn():
        until(lambda: one.stands() and other.stands())
        before = one.count(), other.count(), one.used(), other.used()
        began = time.process_time()
        while time.process_time() < began + 0.05:  # work of this process, in which one that runs would count to fifty
            assert one.stands()
            assert other.stands()
        assert (one.count(), other.count(), one.used(), other.used()) == before
    assert one.goes_on()
    assert other.goes_on()


def test_others_prepare_while_an_operation_is_measured_and_wait_for_their_turn(tiny: Callable[..., Tiny]) -> None:
    counting, first = tiny(COUNTS), tiny(HOLDS, "moving")
    assert first.line() == ["asks"]
    assert first.line()[0] == "in"
    second = tiny(HOLDS, "moving")
    assert second.line() == ["asks"]
    assert counting.goes_on()
    over = first.leave()
    said, began = second.line()
    assert said == "in"
    assert float(began) >= over - 0.001  # it says so before the lock is given on


def test_others_go_on_after_an_error(tiny: Callable[..., Tiny]) -> None:
    counting = tiny(COUNTS)

    def failing() -> None:
        with turn():
            until(counting.stands)
            raise RuntimeError("no room")

    with pytest.raises(RuntimeError, match="no room"):
        failing()
    assert counting.goes_on()


def test_a_turn_within_a_turn_changes_nothing(tiny: Callable[..., Tiny]) -> None:
    counting = tiny(COUNTS)
    with turn():
        with turn(still=False):  # an operation is measured because a step is planned anew
            until(counting.stands)
        assert counting.stands()
    assert counting.goes_on()


def test_alone_nothing_happens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STRETTO_TURNS", raising=False)
    monkeypatch.chdir(tmp_path)
    with turn():
        pass
    assert list(tmp_path.iterdir()) == []


# -- the watchdog ------------------------------------------------------------------------------------------------------


def test_a_killed_holder_leaves_nobody_stopped(tiny: Callable[..., Tiny], turns: Path) -> None:
    counting, holder = tiny(COUNTS), tiny(HOLDS, "still")
    until(counting.stands)
    assert look_after(turns) is None
    assert counting.stands()  # it is somebody's turn
    holder.process.kill()
    holder.process.wait()
    assert counting.stands()
    assert look_after(turns) is None
    assert counting.goes_on()
    assert registered(turns) == {counting.pid}


def test_nobody_stands_still_for_long(tiny: Callable[..., Tiny], turns: Path) -> None:
    counting, holder = tiny(COUNTS), tiny(HOLDS, "still")
    until(counting.stands)
    assert look_after(turns, longest=0.0) == holder.pid
    assert counting.goes_on()
    assert holder.line() == ["asks"]
    assert holder.line()[0] == "in"
    assert holder.leave()


def test_a_number_that_was_given_to_another_process_is_forgotten(tiny: Callable[..., Tiny], turns: Path) -> None:
    counting = tiny(COUNTS)
    (mine,) = turns.glob("*.*")
    mine.rename(turns / f"{counting.pid}.1")  # an earlier process of that number
    with turn():
        assert counting.goes_on()
        assert registered(turns) == {os.getpgrp()}
    register(turns.parent / "other", counting.pid)
    assert registered(turns.parent / "other") == {counting.pid}


# -- several jobs ------------------------------------------------------------------------------------------------------


def scripts(monkeypatch: pytest.MonkeyPatch, **texts: str) -> None:
    """Jobs run these instead of benches."""
    monkeypatch.setattr(side, "command", lambda job: [sys.executable, "-c", texts[job.bench]])


def last(folder: Path, name: str) -> str:
    return (folder / name / "log").read_text().splitlines()[-1]


def test_jobs_start_when_there_is_room(
    tmp_path: Path, turns: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    tell = "import json, os; open(os.environ['OUT'] + '/x.json', 'w').write(json.dumps(dict(os.environ)))"
    scripts(monkeypatch, x=tell)
    monkeypatch.setenv("STRETTO_MODELS", "gpt")  # not for jobs
    monkeypatch.setenv("STRETTO_METHODS", "eager")
    monkeypatch.setenv("STRETTO_CACHE", str(tmp_path / "cache"))
    jobs = {"a": Job("x", "first", 60), "b": Job("x", "second", 70, "lstm"), "c": Job("x", "third", 5)}
    side.run(jobs, tmp_path, turns, 60, host=100)
    said = capfd.readouterr().out.splitlines()
    assert said[:2] == ["a: started", "c: started"]
    assert said.index("b: started") > said.index("a: ended")
    told = {name: json.loads((tmp_path / name / "x.json").read_text()) for name in jobs}
    assert [one["STRETTO_CASES"] for one in told.values()] == ["first", "second", "third"]
    assert [one.get("STRETTO_MODELS") for one in told.values()] == [None, "lstm", None]
    assert {(one["STRETTO_METHODS"], one["STRETTO_TURNS"]) for one in told.values()} == {("eager", str(turns))}
    for name in ("OUT", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"):
        assert len({one[name] for one in told.values()}) == len(jobs)
    assert all(last(tmp_path, name).startswith("ended with 0 after") for name in jobs)


def test_one_who_dies_in_a_turn_stops_no_other_job(
    tmp_path: Path, turns: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = f"""
import os, time
from pathlib import Path
while not Path({str(tmp_path / "met")!r}).exists():
    time.sleep(0.002)
"""
    dies = """
import os, signal
from bench.memory_turns import turn
with turn():
    for pid in {int(path.name.split(".")[0]) for path in Path(os.environ["STRETTO_TURNS"]).glob("*.*")} - {os.getpid()}:
        while Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "T":
            time.sleep(0.002)
    os.kill(os.getpid(), signal.SIGKILL)
"""
    counts = f"""
import os, time
from pathlib import Path
Path({str(tmp_path / "met")!r}).touch()
while sum(1 for _ in Path(os.environ["STRETTO_TURNS"]).glob("*.*")) > 1:
    time.sleep(0.002)
"""
    scripts(monkeypatch, dies=waits + dies, counts=counts)
    side.run({"one": Job("dies", "", 1), "two": Job("counts", "", 1)}, tmp_path, turns, 60)
    assert last(tmp_path, "one").startswith(f"ended with {-signal.SIGKILL} after")
    assert last(tmp_path, "two").startswith("ended with 0 after")


@pytest.mark.parametrize(("hears", "ended_by"), [(signal.SIG_DFL, signal.SIGTERM), (signal.SIG_IGN, signal.SIGKILL)])
def test_what_runs_for_too_long_is_ended(
    tmp_path: Path, turns: Path, monkeypatch: pytest.MonkeyPatch, hears: signal.Handlers, ended_by: signal.Signals
) -> None:
    monkeypatch.setattr(side, "GRACE", 0.1 if hears == signal.SIG_IGN else 20)
    scripts(monkeypatch, sleeps="import time; time.sleep(99)")
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "sleeps.json").touch()  # of an earlier run
    before = signal.signal(signal.SIGTERM, hears)  # processes inherit it
    try:
        side.run({"one": Job("sleeps", "", 1), "two": Job("sleeps", "", 99)}, tmp_path, turns, 0.3, host=10)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert last(tmp_path, "one").startswith(f"ended early with {-ended_by} after")
    assert last(tmp_path, "two") == "not started: there was no time"
    assert not (tmp_path / "one" / "sleeps.json").exists()


def test_the_table_has_every_case_and_large_jobs_run_one_at_a_time() -> None:
    from bench import memory_batches, memory_frontier, memory_sizes
    from reproductions import memory_chapter

    cases = {
        "memory_frontier": {f"{label}-{dtype}" for label, _, dtype, _ in memory_frontier.CASES},
        "memory_chapter": set(memory_chapter.CASES),
        "memory_batches": set(memory_batches.CASES),
        "memory_sizes": set(memory_sizes.CASES),
    }
    for bench, wanted in cases.items():
        assert {case for job in side.JOBS.values() if job.bench == bench for case in job.cases.split()} == wanted
    for name, chapter in memory_chapter.CASES.items():
        models = [job.models for job in side.JOBS.values() if name in job.cases.split()]
        assert models == [""] or sorted(models) == sorted(model for model, _, _ in chapter)
    large = {name: job for name, job in side.JOBS.items() if name.startswith(("batches", "sizes"))}
    for name, job in large.items():
        others = {other: one for other, one in large.items() if other != name}
        assert side.startable(others, [job]) == []
    assert len(side.startable(side.JOBS, [])) >= 18  # the frontier and the chapter are prepared together


def test_jobs_are_chosen_by_name_or_pattern() -> None:
    assert list(side.chosen(["chapter-lstm", "gpt-*"])) == ["gpt-bf16", "gpt-fp32", "chapter-lstm"]
    with pytest.raises(SystemExit, match=r"no job 'chapter-gpu' .*chapter-gpt"):
        side.chosen(["chapter-gpu"])
    assert side.startable({"a": Job("x", "", 200), "b": Job("x", "", 1)}, []) == ["a"]  # with nothing beside it


@pytest.mark.slow
def test_two_toy_benches_take_turns(
    tmp_path: Path, turns: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torch", reason="needs torch: pip install 'stretto[memory]'")
    predicted = [
        {"model": name, "dtype": "fp32", "options": {}, "eager": {"batch": 4}, "ours": {"batch": 8}}
        for name in ("gpt", "wgan")
    ]
    (tmp_path / "predicted.json").write_text(json.dumps(predicted))
    for name, value in {
        "OUT": str(tmp_path / "out"),
        "STRETTO_JOBS": "batches-gpt batches-wgan",
        "STRETTO_HOST": "200",
        "STRETTO_TOY": "1",
        "STRETTO_PLACE": "cpu",
        "STRETTO_SECONDS": "100",
        "STRETTO_BATCHES": str(tmp_path / "predicted.json"),
    }.items():
        monkeypatch.setenv(name, value)
    side.main()
    said = capfd.readouterr().out.splitlines()
    assert said[:2] == ["batches-gpt: started", "batches-wgan: started"]
    assert set(said[2:4]) == {"batches-gpt: ended", "batches-wgan: ended"}
    for name in ("gpt", "wgan"):
        (row,) = json.loads((tmp_path / "out" / f"batches-{name}" / "memory_batches.json").read_text())
        assert (row["model"], row["how"]) == (name, "measured")
        assert f"== {tmp_path / 'out' / f'batches-{name}'}" in said
    assert sum(line.startswith("ended with 0 after") for line in said) == 2
