"""Programs on several nodes: the bits of a serial run, whatever crashes, comes late or moves to another host."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as hs

import stretto as st
from programs_cut import Cut, Own, Remembering
from programs_made import Greedy, Lasso, bits, regression
from rounds_fleet import Stepped
from stretto.programs.program import Program
from stretto.runtime.cluster.rounds import driver
from stretto.runtime.cluster.rounds.node import RoundsNode
from stretto.runtime.simulated.faults import Crash, Pause
from stretto.schedule.pipeline import UPDATE
from stretto.schedule.turns import rotation

X, Y = regression()
ROUNDS = 34


class GreedyCut(Cut):
    schedule = Greedy(width=2)


class OwnPriority(Cut):
    """Functions of the user's in a ready schedule, of two schedulers."""

    schedule = st.schedule.prioritised(
        2, by=np.abs, conflicts=lambda jobs, data: np.eye(len(jobs)), schedulers=2, floor=0.5
    )


class Sets(Cut):
    schedule = st.schedule.working_sets(width=3)


class Automatic(Cut):
    schedule = st.schedule.auto(4, latency=1e-4)
    columns = ()


class Rotating(Program):
    """Jobs of a round read what those before them have written."""

    def __init__(self) -> None:
        self.schedule = rotation(3)
        self.params = {"left": np.arange(1.0, 4.0), "right": np.linspace(0.5, 1.5, 3)}

    def update(self, job: Any, data: Any, params: Any) -> Any:
        worker, block = job
        return job, 0.9 * params["left"][worker] + 0.1 * params["right"][block]

    def aggregate(self, results: Any, params: Any) -> None:
        for (worker, block), value in results:
            params["left"][worker] = value
            params["right"][block] = 0.5 * (params["right"][block] + value)

    def objective(self, data: Any, params: Any) -> float:
        return float(params["left"].sum())


MADE: dict[str, Callable[[], Program]] = {
    "not cut": lambda: Lasso(X, Y),
    "parts": Cut,
    "parts with state": Remembering,
    "own schedule": Own,
    "learns": GreedyCut,
    "own priority": OwnPriority,
    "working sets": Sets,
    "auto": Automatic,
    "rotation": Rotating,
}
DEPTHS = {"not cut": (1, 3), "parts": (1, 3), "parts with state": (1, 3), "own schedule": (3,), "learns": (2,)}
DEPTHS |= {"own priority": (3,), "working sets": (2,), "auto": (2,)}
CASES = [(name, depth) for name in MADE for depth in DEPTHS.get(name, (1,))]
SERIAL: dict[tuple[str, int], bytes] = {}


def made(name: str, depth: int, runtime: Any, **options: Any) -> Any:
    return st.run(MADE[name](), rounds=ROUNDS, pipeline=depth, every=5, seed=3, runtime=runtime, **options)


def serial(name: str, depth: int) -> bytes:
    if (name, depth) not in SERIAL:
        SERIAL[name, depth] = bits(made(name, depth, st.Serial()))
    return SERIAL[name, depth]


@pytest.mark.parametrize(("name", "depth"), CASES)
def test_the_same_bits_on_threads_and_simulated(name: str, depth: int) -> None:
    for runtime in (st.Threads(1), st.Threads(3), st.Simulated(nodes=4), st.Simulated(nodes=1, threads=2)):
        result = made(name, depth, runtime, record=True)
        assert bits(result) == serial(name, depth), runtime
        if name != "rotation":
            assert [one.read for one in result.record] == [max(0, t - depth) for t in range(1, ROUNDS + 1)]


@pytest.mark.parametrize(
    ("name", "depth"),
    [
        pytest.param("parts", 1, marks=pytest.mark.slow),
        pytest.param("parts", 3, marks=pytest.mark.slow),
        ("parts with state", 3),
        ("rotation", 1),
    ],
)
def test_the_same_bits_on_processes(name: str, depth: int) -> None:
    result = made(name, depth, st.Cluster("processes", nodes=3, threads=2))
    assert bits(result) == serial(name, depth)
    assert result.busy_seconds > 0


@pytest.mark.parametrize("name", [pytest.param("not cut", marks=pytest.mark.slow), "parts with state"])
def test_a_killed_process_is_replaced(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    killed: list[int] = []
    begin = driver.HostRounds._flush

    def flush(self: Any) -> None:
        begin(self)
        if len(killed) < (self.pipeline.done >= 9) + (self.pipeline.done >= 21):
            killed.append(self.hosts.addresses[1].pid)
            os.kill(killed[-1], signal.SIGKILL)

    monkeypatch.setattr(driver.HostRounds, "_flush", flush)
    with pytest.warns(RuntimeWarning, match="host 1 .*was lost"):
        result = made(name, 3, st.Cluster("processes", nodes=3))
    assert len(set(killed)) == 2
    assert bits(result) == serial(name, 3)


def faults(seed: int) -> list[Any]:
    chance = random.Random(seed)
    span = 0.02 if chance.random() < 0.5 else 0.2
    found: list[Any] = []
    for _ in range(chance.randint(1, 5)):
        node, at = chance.randrange(4), chance.random() * span
        if chance.random() < 0.7:
            found.append(Crash(node, at, back_after=chance.choice([0.001, 0.5, 20.0])))
        else:
            found.append(Pause(node, at, chance.choice([0.0005, 0.01, 8.0])))
    return found


def run_with_faults(seed: int) -> int:
    name, depth = CASES[seed % len(CASES)]
    runtime = st.Simulated(nodes=4, threads=1 + seed % 3, faults=faults(seed), seconds_per_item=2e-4, detect=0.05)
    assert bits(made(name, depth, runtime)) == serial(name, depth), (seed, name, depth, runtime)
    return len(runtime.report.losses)


@pytest.mark.parametrize("block", range(2))
def test_simulated_faults(block: int) -> None:
    assert sum(run_with_faults(seed) for seed in range(50 * block, 50 * block + 50)) > 25, "nodes were lost"


@pytest.mark.slow
@pytest.mark.parametrize("block", range(10))
def test_thousands_of_simulated_faults(block: int) -> None:
    for seed in range(1000 * block, 1000 * block + 1000):
        run_with_faults(seed)


@settings(max_examples=25, deadline=None)
@given(
    case=hs.sampled_from(CASES),
    nodes=hs.integers(1, 5),
    crash=hs.sampled_from([0.0, 0.002, 0.01]),
    gone=hs.sampled_from([0.0, 0.5]),
    seed=hs.integers(0, 2**32),
)
def test_hosts_that_crash_at_any_step(case: tuple[str, int], nodes: int, crash: float, gone: float, seed: int) -> None:
    """Messages overtake each other, calls of an earlier incarnation come late, hosts crash while they begin."""
    assert bits(made(*case, Stepped(nodes, seed, crash=crash, gone=gone))) == serial(*case)


def crashes(seed: int) -> bool:
    """Whether a run with crashes ends with the right bits."""
    return bits(made("parts with state", 3, Stepped(3, seed, crash=0.004))) == serial("parts with state", 3)


def forgets_states(self: Any) -> None:
    running = {task for task in self.pipeline.running if task.stage == UPDATE}
    self._out = sorted(running, key=lambda task: task.key)


def forgets_order(self: Any) -> Any:
    return self._queue.pop() if self._queue else None


@pytest.mark.parametrize("bug", ["updates since the states are not repeated", "updates of a part in any order"])
def test_planted_bugs_are_found(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert all(crashes(seed) for seed in range(3))
    if "repeated" in bug:
        monkeypatch.setattr(driver.HostRounds, "_assign_again", forgets_states)
    else:
        monkeypatch.setattr(RoundsNode, "next_update", forgets_order)
    assert not all(crashes(seed) for seed in range(3))


def test_latency_is_hidden_by_rounds_in_flight() -> None:
    seconds = {
        depth: made("parts", depth, st.Simulated(nodes=4, latency="5ms", seconds_per_item=1e-3)).seconds
        for depth in (1, 3)
    }
    assert seconds[3] < 0.5 * seconds[1]


def test_virtual_seconds_and_samples() -> None:
    """An update takes as long as its share of the samples that its job reads."""

    class Counted(Cut):
        def samples(self, jobs: Any) -> int:
            return 500 * len(jobs)

    def span(program: Program) -> float:
        cluster = st.Simulated(nodes=5, threads=1, latency=0.0, seconds_per_item=1e-3, message_cost=(0.0, 0.0))
        return st.run(program, rounds=10, every=10, runtime=cluster).seconds

    # Three jobs in a round, one part on each node: 3 items or 3 · 500 / 5 of them, one after another.
    assert span(Cut()) == pytest.approx(10 * 3e-3, rel=0.03)
    assert span(Counted()) == pytest.approx(10 * 3 * 0.1, rel=0.03)


def test_the_report_of_a_simulated_run() -> None:
    cluster = st.Simulated(nodes=2, faults=[Crash(1, at=0.001, back_after=0.01)], detect=0.01)
    result = made("parts", 1, cluster)
    assert [loss.node for loss in cluster.report.losses] == [1]
    assert cluster.report.seconds == pytest.approx(result.seconds)
    assert "MB to and from the driver\nlost at" in str(cluster.report)


RUNTIMES = [st.Cluster("processes", nodes=2), st.Simulated(nodes=2)]


@pytest.mark.parametrize("runtime", RUNTIMES, ids=["processes", "simulated"])
def test_ctrl_c_ends_with_whole_parameters(runtime: Any) -> None:
    class Slow(Cut):
        def update(self, job: int, part: Any, params: Any) -> Any:
            time.sleep(0.02)
            return super().update(job, part, params)

    def until(look: Any) -> bool:
        if look.round == 5:
            os.kill(os.getpid(), signal.SIGINT)
        return False

    result = st.run(Slow(), rounds=10_000, pipeline=2, until=until, runtime=runtime)
    assert result.stopped == "interrupted"
    assert 5 <= result.rounds == int(result.params["steps"])
    again = st.run(Cut(), rounds=result.rounds, pipeline=2, runtime=st.Serial())
    assert np.array_equal(again.params["beta"], result.params["beta"])


def test_ctrl_c_within_a_round_of_jobs_that_wait_for_each_other() -> None:
    class Pressed(Rotating):
        def aggregate(self, results: Any, params: Any) -> None:
            super().aggregate(results, params)
            if results[0][0] == (1, 2) and not seen:
                seen.append(1)
                os.kill(os.getpid(), signal.SIGINT)

    seen: list[int] = []
    result = st.run(Pressed(), rounds=500, runtime=st.Simulated(nodes=2))
    assert (result.rounds, result.stopped) == (1, "interrupted")
