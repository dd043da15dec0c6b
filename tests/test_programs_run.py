"""Programs of users: the same bits on every runtime, what rounds read, what a run leaves behind."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as hs
from numpy.typing import NDArray

import stretto as st
from programs_made import RUNTIMES, Greedy, Lasso, bits, regression
from stretto.programs.choosing import Situation
from stretto.programs.params import Versions
from stretto.programs.program import Program, program
from stretto.programs.run import run
from stretto.programs.values import Look
from stretto.runtime.runtimes import Serial, Threads

X, Y = regression()


def by_hand(rounds: int, depth: int, seed: int = 0) -> list[dict[str, NDArray[Any]]]:
    """The same Lasso as a plain loop: version t comes from version t − 1 and the results of jobs that saw t − depth."""
    made = Lasso(X, Y)
    versions = [{name: array.copy() for name, array in made.params.items()}]
    for t in range(1, rounds + 1):
        seen = versions[max(0, t - depth)]
        key = np.array([seed, t], dtype=np.uint64)
        jobs = np.random.Generator(np.random.Philox(key=key)).choice(X.shape[1], made.width, replace=False).tolist()
        results = [made.update(job, made.data, seen) for job in jobs]
        new = {name: array.copy() for name, array in versions[-1].items()}
        made.aggregate(results, new)
        versions.append(new)
    return versions


@pytest.mark.parametrize("depth", [1, 2, 3, 5])
def test_equals_the_plain_loop_on_every_runtime(depth: int) -> None:
    expect = by_hand(40, depth)[-1]
    found = set()
    for runtime in RUNTIMES:
        result = run(Lasso(X, Y), rounds=40, pipeline=depth, every=7, runtime=runtime)
        for name, array in result.params.items():
            assert np.array_equal(array, expect[name]), f"{name} on {runtime}"
        found.add(bits(result))
    assert len(found) == 1


@settings(max_examples=30)
@given(
    depth=hs.integers(1, 6),
    rounds=hs.integers(0, 12),
    width=hs.integers(1, 9),
    every=hs.integers(1, 5),
    seed=hs.integers(0, 2**63 - 1),
)
def test_any_depth_width_and_seed(depth: int, rounds: int, width: int, every: int, seed: int) -> None:
    results = [
        run(
            Lasso(X, Y, width=width),
            rounds=rounds,
            pipeline=depth,
            every=every,
            seed=seed,
            runtime=runtime,
            record=True,
        )
        for runtime in (Serial(), Threads(3))
    ]
    assert bits(results[0]) == bits(results[1])
    for result in results:
        assert [made.number for made in result.record] == list(range(1, rounds + 1))
        assert [made.read for made in result.record] == [max(0, t - depth) for t in range(1, rounds + 1)]
        assert [made.jobs for made in result.record] == [made.jobs for made in results[0].record]
        assert result.updates == rounds * width
        assert (result.rounds, result.stopped) == (rounds, "rounds")


def test_what_was_read_is_measured_and_not_assumed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Were the ring one place short, jobs would read what is newer, and the record would say so."""
    monkeypatch.setattr("stretto.programs.engine.Versions", lambda arrays, depth: Versions(arrays, depth - 1))
    result = run(Lasso(X, Y), rounds=9, pipeline=3, runtime=Serial(), record=True)
    assert any(made.read != max(0, made.number - 3) for made in result.record)


@pytest.mark.parametrize("depth", [1, 3])
def test_rounds_overlap_as_deep_as_the_pipeline_and_no_deeper(depth: int) -> None:
    """Jobs of as many rounds as are in flight meet at a barrier: they can only get past it together."""
    barrier, seen = threading.Barrier(depth), []

    class Meet(Program):
        def __init__(self) -> None:
            self.params = {"x": np.zeros(1)}

        def schedule(self, state: Situation) -> list[int]:
            return [state.round]

        def update(self, job: int, data: Any, params: Any) -> int:
            barrier.wait(60)
            seen.append((job, int(params["x"][0])))
            return job

        def aggregate(self, results: list[int], params: Any) -> None:
            params["x"][0] = results[0]

    run(Meet(), rounds=6 * depth, pipeline=depth, runtime=Threads(depth), check_every=0)
    assert sorted(seen) == [(t, max(0, t - depth)) for t in range(1, 6 * depth + 1)]


def test_what_a_schedule_is_given() -> None:
    states: list[tuple[int, float, Any, Any]] = []

    class Watch(Program):
        data = "the data"

        def __init__(self) -> None:
            self.params = {"x": np.zeros(3)}

        def schedule(self, state: Situation) -> list[int] | None:
            assert state.data == "the data"
            assert not state.params["x"].flags.writeable
            state.memory["calls"] = state.memory.get("calls", 0) + 1
            assert state.memory["calls"] == state.round
            last = None if state.last is None else (state.last.round, state.last.jobs, state.last.changes)
            states.append((state.round, float(state.params["x"].sum()), last, state.random.random()))
            return None if state.round > 6 else [state.round, -state.round]

        def update(self, job: int, data: Any, params: Any) -> int:
            return job

        def aggregate(self, results: list[int], params: Any) -> list[float]:
            params["x"] += 1
            return [job / 2 for job in results]

    found = []
    for runtime in (Serial(), Threads(3)):
        states.clear()
        result = run(Watch(), pipeline=2, runtime=runtime)
        assert (result.stopped, result.rounds, result.updates) == ("schedule", 6, 12)
        found.append(
            [(t, total, None if last is None else (*last[:2], last[2].tolist()), u) for t, total, last, u in states]
        )
    assert found[0] == found[1]
    assert [t for t, *_ in found[0]][:7] == [1, 2, 3, 4, 5, 6, 7]
    assert [total for _, total, *_ in found[0]][:7] == [3 * max(0, t - 2) for t in range(1, 8)]
    assert found[0][1][2] is None
    assert found[0][4][2] == (3, (3, -3), [1.5, -1.5])
    assert len({u for *_, u in found[0]}) == len(found[0]), "random numbers of a round are its own"
    states.clear()
    run(Watch(), pipeline=1, seed=1, runtime=Serial())
    assert states[0][3] != found[0][0][3]


def test_looks_history_and_until() -> None:
    made = Lasso(X, Y)
    looks: list[Look] = []

    def until(look: Look) -> bool:
        looks.append(look)
        return look.objective < 60

    result = run(made, until=until, every=3, pipeline=2)
    assert result.stopped == "until"
    assert result.history[0].round == 0, "the start is evaluated too"
    assert list(result.history[1:]) == looks
    assert [look.round for look in result.history] == list(range(0, result.rounds + 1, 3))
    assert result.history[-2].objective >= 60 > result.history[-1].objective == result.objective
    assert result.objective == made.objective(made.data, made.params), "the parameters are those of that round"
    for name, array in by_hand(result.rounds, 2)[-1].items():
        assert np.array_equal(result.params[name], array), "what was in flight is left out"
    seconds = [look.seconds for look in result.history]
    assert seconds == sorted(seconds)
    assert 0 <= result.schedule_seconds <= result.busy_seconds


def test_the_last_round_is_always_looked_at() -> None:
    result = run(Lasso(X, Y), rounds=10, every=4)
    assert [look.round for look in result.history] == [0, 4, 8, 10]
    assert [look.updates for look in result.history] == [0, 24, 48, 60]


def test_time_is_up() -> None:
    result = run(Lasso(X, Y), seconds=1e-9)
    assert (result.stopped, result.rounds) == ("seconds", 1)


def test_running_again_goes_on_and_results_stay_what_they_were() -> None:
    made = Lasso(X, Y)
    beta = made.params["beta"]
    first = run(made, rounds=5, pipeline=3)
    kept = first.params["beta"].copy()
    assert np.array_equal(beta, kept), "the arrays of the program are written to, not exchanged"
    assert made.params["beta"] is beta
    second = run(made, rounds=5, pipeline=3, seed=1)
    assert np.array_equal(first.params["beta"], kept)
    assert second.history[0].objective == first.objective


class Shrink(Program):
    """Every number goes half of its way to zero; jobs come from a ready schedule."""

    def __init__(self, x: Any, schedule: Any, *, tell: bool) -> None:
        self.params = {"x": x}
        self.schedule, self.tell = schedule, tell

    def update(self, job: int, data: Any, params: Any) -> tuple[int, Any]:
        return job, params["x"][job] / 2

    def aggregate(self, results: list[tuple[int, Any]], params: Any) -> Any:
        jobs = [job for job, _ in results]
        before = params["x"][jobs]
        for job, value in results:
            params["x"][job] = value
        return params["x"][jobs] - before if self.tell else None


@pytest.mark.parametrize("depth", [1, 2, 4])
def test_ready_schedules_learn_what_aggregate_says_or_what_is_seen(depth: int) -> None:
    start = np.linspace(1.0, 8.0, 30)
    found = set()
    for tell in (True, False):
        for runtime in RUNTIMES:
            result = run(
                Shrink(start.copy(), Greedy(4), tell=tell), rounds=30, pipeline=depth, runtime=runtime, record=True
            )
            found.add((bits(result), tuple(made.jobs for made in result.record)))
    assert len(found) == 1
    jobs = found.pop()[1]
    assert {job for one in jobs for job in one} == set(range(30))
    assert all(isinstance(job, int) for one in jobs for job in one)


def test_rows_of_a_matrix_move_as_far_as_they_are_long() -> None:
    start = np.outer(np.array([1.0, 5.0, 3.0]), np.ones(4))
    result = run(Shrink(start, Greedy(1), tell=False), rounds=4, record=True)
    assert [made.jobs for made in result.record] == [(0,), (1,), (2,), (1,)], "the longest step is tried again first"


def test_without_a_class() -> None:
    def update(job: int, data: Any, params: Any) -> tuple[int, float]:
        return job, params["x"][job] * data

    def aggregate(results: list[tuple[int, float]], params: Any) -> None:
        for job, value in results:
            params["x"][job] = value

    x = np.ones(12)
    made = program(update=update, aggregate=aggregate, schedule=Greedy(3), size=12, data=0.5, params={"x": x})
    assert run(made, rounds=4).updates == 12
    assert (x == 0.5).all()
    made = program(
        update=update,
        aggregate=aggregate,
        schedule=lambda state: range(12) if state.round <= 2 else [],
        data=0.5,
        params={"x": st.full(12, 1.0, "f8")},
        objective=lambda data, params: float(params["x"].sum()),
        name="halving",
    )
    result = run(made)
    assert (made.name, result.stopped, result.objective) == ("halving", "schedule", 3.0)
    assert made.params["x"][0] == 0.25, "a State is written to like an array"


def test_params_may_be_assigned_by_name() -> None:
    class Assign(Lasso):
        def aggregate(self, results: list[tuple[int, float]], params: Any) -> Any:
            beta = params["beta"].copy()
            for job, step in results:
                beta[job] += step
            params["beta"] = beta
            params["r"] -= self.data[0][:, [job for job, _ in results]] @ np.array([step for _, step in results])

    made = Assign(X, Y)
    beta = made.params["beta"]
    run(made, rounds=3, pipeline=2)
    assert made.params["beta"] is beta
    assert beta.any()


def test_settings_of_the_caller_hold_for_the_workers() -> None:
    class Divide(Lasso):
        def update(self, job: int, data: Any, params: Any) -> tuple[int, float]:
            return job, float(params["beta"][0] / np.float64(0.0))

        def aggregate(self, results: Any, params: Any) -> Any:
            return None

    with np.errstate(all="ignore"):
        run(Divide(X, Y), rounds=1, runtime=Threads(2))


def test_samples_are_counted_where_somebody_counts() -> None:
    class Counted(Lasso):
        def samples(self, jobs: Any) -> int:
            return len(jobs) * len(X)

    assert run(Counted(X, Y), rounds=2).history[-1].samples == 2 * 6 * len(X)
    assert run(Lasso(X, Y), rounds=2).history[-1].samples == 0


def test_explain() -> None:
    text = Lasso(X, Y).explain(pipeline=3, runtime=Threads(2))
    assert text.startswith("program Lasso: 2 arrays of parameters, 800 B\n  grade       identical: ")
    for line in (
        "  schedule    the program's own: Lasso.schedule(state)",
        "  pipeline    3: round t is chosen from, and reads, the parameters after round t − 3",
        "  params      beta: float64 [40], shared, 320 B",
        "  copied      800 B a round; 3 versions are held, 2.3 KiB",
        "  runs on     threads, 2 workers",
    ):
        assert line in text.splitlines()
    text = Shrink(np.ones(3), Greedy(2), tell=True).explain(runtime=Serial())
    assert "  schedule    Greedy(width=2)" in text
    assert "  copied      nothing: the arrays are written in place" in text
    assert "  runs on     serial" in text


def test_progress_on_the_screen(capsys: pytest.CaptureFixture[str]) -> None:
    run(Lasso(X, Y), rounds=6, every=3, verbose=2)
    shown = capsys.readouterr().err
    assert "program Lasso: 2 arrays" in shown
    assert "round 3/6  objective " in shown
    assert "done  6/6 rounds in " in shown
    run(Lasso(X, Y), until=lambda look: look.round == 4, verbose=1)
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("stopped early  4/4 rounds in ")
    assert "jobs/s" in line
