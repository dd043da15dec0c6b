"""Sparse regression on nodes: the bits of the compiled engine on threads, whatever crashes, and after resuming."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse

import stretto as st
from stretto.errors import Diverged, OtherPlan, PlanError, RunError
from stretto.programs.coordinates.regression import SparseRegression
from stretto.programs.values import ProgramResult
from stretto.runtime.cluster.rounds import driver
from stretto.runtime.simulated.faults import Crash, Pause
from stretto.schedule.spec import Chooser, Schedule
from test_programs_coordinates import SPECS, data

ROUNDS = 37
GRAPH = scipy.sparse.random_array((90, 90), density=0.03, format="csr", rng=np.random.default_rng(0))
SCHEDULES: dict[str, Any] = {**SPECS, "clustered": st.schedule.clustered((GRAPH + GRAPH.T) / 2, 6)}
# schedule, storage, loss, by, pipeline, intercept
EVERY = list(product(SCHEDULES, ("dense", "sparse"), ("squared", "logistic"), ("rows", "columns"), (1, 2, 3), (0, 1)))
SOME = EVERY[::13]
Case = tuple[str, str, str, str, int, int]


def made(case: Case, **settings: Any) -> SparseRegression:
    name, kind, loss, by, _, intercept = case
    X, y = data(kind, loss)
    return SparseRegression(
        X, y, 0.05, loss=loss, schedule=SCHEDULES[name], by=by, intercept=bool(intercept), l1_ratio=0.8,
        **{"blocks": 5, **settings},
    )  # fmt: skip


def run(case: Case, runtime: Any, **options: Any) -> ProgramResult:
    options = {"rounds": ROUNDS, "every": 5, "pipeline": case[4], "seed": 4, "record": True, **options}
    return st.run(made(case), runtime=runtime, **options)


def bits(result: ProgramResult) -> tuple[Any, ...]:
    arrays = tuple(result.params[name].tobytes() for name in ("coef", "intercept", "fitted"))
    return (
        *arrays,
        result.updates,
        [(look.round, look.samples, look.objective, look.updates) for look in result.history],
    )


@cache
def on_threads(case: Case) -> tuple[Any, ...]:
    return bits(run(case, st.Threads(1)))


def same_everywhere(case: Case, *runtimes: Any) -> None:
    one = run(case, st.Threads(3))
    assert bits(one) == on_threads(case)
    for runtime in runtimes:
        other = run(case, runtime)
        assert bits(other) == on_threads(case), runtime
        assert [(r.number, r.jobs, r.read) for r in other.record] == [(r.number, r.jobs, r.read) for r in one.record]


def test_the_sample_meets_everything() -> None:
    for place, values in enumerate(zip(*EVERY, strict=True)):
        assert {case[place] for case in SOME} == set(values)


@pytest.mark.parametrize("case", SOME, ids=str)
def test_the_same_bits_on_simulated_nodes(case: Case) -> None:
    same_everywhere(case, st.Simulated(nodes=4))


@pytest.mark.slow
@pytest.mark.parametrize("case", EVERY, ids=str)
def test_the_same_bits_on_simulated_nodes_for_all(case: Case) -> None:
    same_everywhere(case, st.Simulated(nodes=4), st.Simulated(nodes=1, threads=2), st.Simulated(nodes=7))


ON_PROCESSES: list[Case] = [
    ("three schedulers", "sparse", "logistic", "rows", 3, 1),
    ("prioritised", "dense", "squared", "columns", 2, 1),
]


@pytest.mark.parametrize("case", ON_PROCESSES, ids=str)
def test_the_same_bits_on_processes(case: Case) -> None:
    same_everywhere(case, st.Cluster("processes", nodes=2))


@pytest.mark.slow
@pytest.mark.parametrize("case", EVERY[::7], ids=str)
def test_the_same_bits_on_processes_for_more(case: Case) -> None:
    same_everywhere(case, st.Cluster("processes", nodes=3, threads=2))


@pytest.mark.parametrize("case", ON_PROCESSES, ids=str)
def test_the_same_bits_after_crashes(case: Case) -> None:
    seconds = run(case, st.Simulated(nodes=4)).seconds
    for share in (0.2, 0.5, 0.8):
        faults: list[Any] = [Crash(1, at=share * seconds, back_after=0.01), Pause(3, at=0.3 * seconds, seconds=0.1)]
        nodes = st.Simulated(nodes=4, faults=faults, detect=0.05)
        assert bits(run(case, nodes)) == on_threads(case)
        assert nodes.report is not None
        assert nodes.report.losses


def test_a_killed_process_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    killed: list[int] = []
    begin = driver.HostRounds._flush

    def flush(self: Any) -> None:
        begin(self)
        if not killed and self.pipeline.done >= 21:
            killed.append(self.hosts.addresses[1].pid)
            os.kill(killed[-1], signal.SIGKILL)

    monkeypatch.setattr(driver.HostRounds, "_flush", flush)
    with pytest.warns(RuntimeWarning, match="host 1 .*was lost"):
        result = run(ON_PROCESSES[0], st.Cluster("processes", nodes=2))
    assert killed
    assert bits(result) == on_threads(ON_PROCESSES[0])


@pytest.mark.parametrize("case", [*ON_PROCESSES, ("random", "dense", "logistic", "rows", 1, 0)], ids=str)
def test_resuming_on_another_runtime(case: Case, tmp_path: Path) -> None:
    for number, (first, second) in enumerate(
        [(st.Simulated(nodes=3), st.Threads(2)), (st.Threads(2), st.Simulated(nodes=2)), (st.Serial(), st.Serial())]
    ):
        folder = tmp_path / str(number)
        run(case, first, rounds=25, checkpoint=folder, checkpoint_every=10, record=False)
        result = run(case, second, checkpoint=folder, resume=True, record=False)
        assert bits(result)[:4] == on_threads(case)[:4]
        assert result.history[-1].objective == on_threads(case)[4][-1][2]
    with pytest.raises(OtherPlan, match="pipeline is"):
        run(case, st.Threads(1), pipeline=5, checkpoint=folder, resume=True)
    with pytest.raises(OtherPlan, match="blocks is 5 of rows"):
        st.run(made(case, blocks=3), rounds=30, pipeline=case[4], seed=4, checkpoint=folder, resume=True)


@pytest.mark.parametrize("case", ON_PROCESSES, ids=str)
def test_until_and_going_on(case: Case) -> None:
    results = []
    for runtime in (st.Threads(2), st.Simulated(nodes=3)):
        program = made(case)
        one = st.run(program, until=lambda look: look.round >= 23, pipeline=3, runtime=runtime)
        two = st.run(program, rounds=9, pipeline=2, runtime=runtime)
        assert one.stopped == "until"
        assert program.params["fitted"].tobytes() == two.params["fitted"].tobytes()
        results.append((bits(one), bits(two)))
    assert results[0] == results[1]
    nothing = run(case, st.Simulated(nodes=2), rounds=0)
    assert bits(nothing) == bits(run(case, st.Threads(1), rounds=0))


@pytest.mark.slow  # compiles kernels of float32 rounds
@pytest.mark.parametrize("by", ["rows", "columns"])
def test_float32_more_nodes_than_parts_and_tiny_data(by: str) -> None:
    X, y = data()
    for shape in ((700, 90), (3, 2), (40, 1)):
        found = []
        for runtime in (st.Threads(1), st.Simulated(nodes=12)):
            some = np.asarray(X[: shape[0], : shape[1]], np.float32)
            program = SparseRegression(some, y[: shape[0]], 0.01, by=by, intercept=True)
            found.append(bits(st.run(program, rounds=20, pipeline=2, runtime=runtime)))
        assert found[0] == found[1]


def test_divergence_is_told_alike() -> None:
    X, y = data()
    X = X + 5 * np.random.default_rng(0).standard_normal((len(X), 1))
    told = []
    for runtime in (st.Threads(1), st.Simulated(nodes=3)):
        program = SparseRegression(X, y, 0.0, schedule=st.schedule.random(60), by="rows")
        with pytest.raises(Diverged, match="is not finite after round") as caught:
            st.run(program, rounds=5000, every=5000, runtime=runtime)
        told.append(str(caught.value))
    assert told[0] == told[1]


def test_the_plan_is_the_same_and_runs_anywhere() -> None:
    case = ON_PROCESSES[0]
    nodes = st.Simulated(nodes=3)
    plan = made(case).plan(pipeline=3, seed=4, runtime=nodes, rounds=ROUNDS, every=5)
    assert plan.fingerprint == made(case).plan(pipeline=3, seed=4, rounds=ROUNDS).fingerprint
    assert "simulated" in plan.explain()
    assert bits(plan.run()) == on_threads(case)


def test_what_is_refused() -> None:
    X, y = data()
    with pytest.raises(PlanError, match="blocks=701, and X has 700 rows; give at most 700"):
        SparseRegression(X, y, 0.1, blocks=701)
    with pytest.raises(PlanError, match="SparseRegression: blocks=0 is less than 1"):
        SparseRegression(X, y, 0.1, blocks=0)


# --- schedules of the user's, and schedules in segments ---------------------------------------------------------------


class Backwards(Schedule):
    """A schedule of the user's: from the last column to the first, and what moved far once more."""

    def __init__(self, width: Any = 5, wrong: Any = None, rounds: int = 1000) -> None:
        self.width, self.wrong, self.rounds = width, wrong, rounds

    def start(self, size: int, seed: int, data: Any = None) -> Any:
        return BackwardsChooser(self, size)

    def __repr__(self) -> str:
        return f"Backwards({self.width})"


class BackwardsChooser(Chooser):
    def __init__(self, spec: Backwards, size: int) -> None:
        self.spec, self.size = spec, size
        self.place = np.zeros(2, np.int64)  # rounds so far, and the job that moved farthest in the last known one

    def choose(self) -> Any:
        if self.place[0] >= self.spec.rounds:
            return []
        if self.spec.wrong is not None:
            return self.spec.wrong
        self.place[0] += 1
        jobs = [(-3 * int(self.place[0]) - k) % self.size for k in range(3)]
        return jobs if self.place[1] in jobs else [*jobs, int(self.place[1])]

    def learn(self, jobs: Any, change: Any) -> None:
        self.place[1] = jobs[np.abs(change).argmax()]

    def arrays(self) -> dict[str, Any]:
        return {"place": self.place.copy()}

    def restore(self, arrays: dict[str, Any]) -> None:
        self.place = arrays["place"].copy()


def squared(change: Any) -> Any:
    return change * change


def cosine(candidates: Any, columns: Any) -> Any:
    return st.schedule.correlation(candidates, columns)


MORE: dict[str, Any] = {
    "own priority": st.schedule.prioritised(8, threshold=0.2, schedulers=2, by=squared),
    "own conflicts": st.schedule.prioritised(8, threshold=0.2, conflicts=cosine),
    "own schedule": Backwards(),
    "working sets": st.schedule.working_sets(first=10),
    "auto": st.schedule.auto(16, latency=1e-5),
}
SCHEDULES |= MORE
MORE_CASES = list(product(MORE, *[sorted(set(values)) for values in list(zip(*EVERY, strict=True))[1:]]))
FEW = MORE_CASES[::19]


@pytest.mark.parametrize("case", FEW, ids=str)
def test_more_schedules_have_the_same_bits_on_simulated_nodes(case: Case) -> None:
    one = run(case, st.Threads(1), rounds=60)
    for runtime in (st.Threads(3), st.Simulated(nodes=4)):
        other = run(case, runtime, rounds=60)
        assert (bits(other), other.choices) == (bits(one), one.choices)
        assert [(r.jobs, r.read) for r in other.record] == [(r.jobs, r.read) for r in one.record]
    if case[0] in ("working sets", "auto"):
        assert len(one.choices) > 1


@pytest.mark.slow
@pytest.mark.parametrize("case", MORE_CASES, ids=str)
def test_more_schedules_have_the_same_bits_for_all(case: Case, tmp_path: Path) -> None:
    test_more_schedules_have_the_same_bits_on_simulated_nodes(case)
    resuming_has_the_same_bits(case, tmp_path)


def resuming_has_the_same_bits(case: Case, folder: Path) -> None:
    whole = run(case, st.Threads(2), rounds=60)
    run(case, st.Threads(2), rounds=41, checkpoint=folder, checkpoint_every=13)
    rest = run(case, st.Simulated(nodes=3), rounds=60, checkpoint=folder, resume=True)
    assert bits(rest)[:4] == bits(whole)[:4]
    assert rest.choices == whole.choices
    assert [(r.jobs, r.read) for r in rest.record] == [(r.jobs, r.read) for r in whole.record][41:]


SEGMENTED: list[Case] = [
    ("working sets", "dense", "logistic", "rows", 3, 1),
    ("auto", "sparse", "squared", "rows", 2, 0),
]


@pytest.mark.parametrize("case", [*SEGMENTED, ("own schedule", "dense", "squared", "columns", 3, 1)], ids=str)
def test_more_schedules_after_crashes_and_resuming(case: Case, tmp_path: Path) -> None:
    one, calm = run(case, st.Threads(2), rounds=60), run(case, st.Simulated(nodes=4), rounds=60)
    faults = [Crash(1, at=0.3 * calm.seconds, back_after=0.01), Crash(2, at=0.7 * calm.seconds, back_after=5)]
    nodes = st.Simulated(nodes=4, faults=faults, detect=0.05)
    other = run(case, nodes, rounds=60)
    assert (bits(other), other.choices) == (bits(one), one.choices)
    assert len(nodes.report.losses) > 1
    resuming_has_the_same_bits(case, tmp_path)


@pytest.mark.slow
def test_segments_on_processes() -> None:
    for case in SEGMENTED:
        one, other = run(case, st.Threads(2), rounds=60), run(case, st.Cluster("processes", nodes=2), rounds=60)
        assert (bits(other), other.choices) == (bits(one), one.choices)


def test_a_priority_function_with_the_ready_rule_has_the_bits_of_the_ready_schedule() -> None:
    X, y = data("sparse")
    found = []
    ready = st.schedule.prioritised(8, threshold=0.2, schedulers=2)
    for spec in (ready, replace(ready, by=squared)):
        found.append(bits(st.run(SparseRegression(X, y, 0.05, schedule=spec, intercept=True), rounds=40, pipeline=3)))
    assert found[0] == found[1]


def test_auto_goes_by_the_latency_of_the_runtime_and_can_be_replayed() -> None:
    X, y = data("dense", "squared")

    def found(schedule: Any, runtime: Any, **how: Any) -> Any:
        result = st.run(SparseRegression(X, y, 0.01, schedule=schedule), rounds=300, every=100, runtime=runtime, **how)
        return bits(result), result.choices

    far = found("auto", st.Simulated(nodes=3, latency="20ms"))
    assert far == found(st.schedule.auto(latency=0.02), st.Threads(2))  # three rounds in flight there too
    assert far == found(st.schedule.auto(latency=0.02), st.Serial(), pipeline=3)
    assert far[1] != found("auto", st.Simulated(nodes=3, latency=0), pipeline=3)[1]
    with pytest.raises(PlanError, match="latency is a time in seconds, 0 or more, got -1"):
        st.schedule.auto(latency=-1)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ([90], "jobs from 90 to 90; return numbers from 0 to 89"),
        ([1, 1], "more than once"),
        (range(6), "6 jobs, and its"),
        ([0.5], r"float64 \[1\]; return a list of column numbers"),
    ],
)
def test_what_a_schedule_may_not_choose(wrong: Any, says: str) -> None:
    X, y = data()
    for runtime in (st.Threads(1), st.Simulated(nodes=2)):
        program = SparseRegression(X, y, 0.1, schedule=Backwards(wrong=wrong))
        with pytest.raises(RunError, match=f"SparseRegression: the schedule chose for round 1: .*{says}"):
            st.run(program, rounds=2, runtime=runtime)


def test_a_schedule_with_nothing_left_ends_the_run() -> None:
    X, y = data()
    for runtime in (st.Threads(2), st.Simulated(nodes=2)):
        result = st.run(SparseRegression(X, y, 0.1, schedule=Backwards(None, rounds=7)), rounds=20, runtime=runtime)
        assert (result.rounds, result.stopped) == (7, "schedule")
