"""Sparse regression on nodes: the bits of the compiled engine on threads, whatever crashes, and after resuming."""

from __future__ import annotations

import os
import signal
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse

import stretto as st
from stretto.errors import Diverged, OtherPlan, PlanError
from stretto.programs.coordinates import SparseRegression
from stretto.programs.values import Result
from stretto.runtime.cluster import rounds as driver
from stretto.runtime.simulated.faults import Crash, Pause
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


def run(case: Case, runtime: Any, **options: Any) -> Result:
    options = {"rounds": ROUNDS, "every": 5, "pipeline": case[4], "seed": 4, "record": True, **options}
    return st.run(made(case), runtime=runtime, **options)


def bits(result: Result) -> tuple[Any, ...]:
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
        with pytest.raises(Diverged, match="no finite number after round") as caught:
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
    own = SparseRegression(X, y, 0.1, schedule=st.schedule.prioritised(4, by=np.abs))
    with pytest.raises(PlanError, match=r"runtime=Simulated.*calls functions of yours.*give st\.Threads\(n\)"):
        st.run(own, rounds=2, runtime=st.Simulated(nodes=2))
    with pytest.raises(PlanError, match="blocks=701, and X has 700 rows; give at most 700"):
        SparseRegression(X, y, 0.1, blocks=701)
    with pytest.raises(PlanError, match="SparseRegression: blocks=0 is less than 1"):
        SparseRegression(X, y, 0.1, blocks=0)


@pytest.mark.parametrize("schedule", ["auto", st.schedule.auto(8), st.schedule.working_sets()], ids=str)
def test_schedules_that_look_between_rounds_are_refused(schedule: Any, tmp_path: Path) -> None:
    X, y = data("dense", "squared")
    program = SparseRegression(X, y, 0.05, schedule=schedule)
    for runtime in (st.Simulated(nodes=2), st.Cluster("processes", nodes=2)):
        with pytest.raises(PlanError, match=r"one memory; give st\.Threads"):
            st.run(program, rounds=3, runtime=runtime)
    folder = tmp_path / "saved"
    with pytest.raises(PlanError, match="leave checkpoint= out, or take another schedule"):
        st.run(program, rounds=3, checkpoint=folder)
    assert not folder.exists()
    assert st.run(program, rounds=3).rounds == 3
