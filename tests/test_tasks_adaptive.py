"""Loops with a sync, sync="adaptive", and numbers that units expose with st.knob."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stretto as st
from stretto.errors import PlanError, RunError
from stretto.observe.events import SettingTuned

FEATURES, PARTS = 20, 4
EVERY = np.arange(FEATURES)
NODES = dict.fromkeys(range(PARTS), 1)


@cache
def data() -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(0)
    X = draw.standard_normal((800, FEATURES))
    return X, X @ draw.standard_normal(FEATURES)


def step(worker: Any, X: Any, y: Any, w: Any, rate: float) -> None:
    """A small batch, on which a node computes for two milliseconds unless it straggles."""
    rows = worker.random().integers(len(y), size=20)
    worker.work(20)
    A = X[rows]
    with np.errstate(all="ignore"):
        w.add(EVERY, -rate / worker.parts * (A.T @ (A @ w.read() - y[rows])) / 20)


def loss(worker: Any, X: Any, y: Any, w: Any) -> float:
    with np.errstate(all="ignore"):
        return float(((X @ w.read() - y) ** 2).sum() / 800)


def training(sync: Any, rate: Any = 0.005, times: int = 200, target: float = 0.01, **unit: Any) -> tuple[Any, Any]:
    X, y = data()
    w = st.zeros(FEATURES, "f8")
    body = st.unit(step, X, y, w, rate, parts=PARTS, iterations=20, **unit)
    return st.loop(body, until=st.below(st.unit(loss, X, y, w, parts=PARTS), target), times=times, sync=sync), w


def straggling() -> Any:
    """In every 4 ms another quarter of the nodes is ten times slower."""
    slow = {"share": 0.25, "slow": 10.0, "seconds": 0.004}
    return st.Simulated(nodes=PARTS, threads=1, latency="200us", seconds_per_item=1e-4, stragglers=slow)


# -- which unit has which sync -----------------------------------------------------------------------------------------


def syncs(task: Any) -> dict[str, Any]:
    return {unit.name: (unit.sync, unit.tuned) for unit in task.units()}


def named(name: str, **options: Any) -> Any:
    return st.unit(lambda worker: 1.0, name=name, **options)


def test_the_sync_of_a_loop_holds_for_units_without_their_own() -> None:
    inner = st.loop(named("inner"), times=2, sync=st.tables.SSP(3))
    body = st.seq(named("plain"), named("own", sync=st.tables.BSP()), inner, st.branch(named("test"), named("then")))
    task = st.loop(body, until=st.below(named("loss"), 0.5), times=3, sync=st.tables.ASP())
    assert syncs(task) == {
        "plain": (st.tables.ASP(), False),
        "own": (st.tables.BSP(), False),
        "inner": (st.tables.SSP(3), False),
        "test": (st.tables.BSP(), False),
        "then": (st.tables.ASP(), False),
        "loss": (st.tables.BSP(), False),
    }
    assert task.plan(workers=1).grade == "replayable"
    assert st.loop(named("plain"), times=2).plan(workers=1).grade == "identical"


def test_an_adaptive_loop_tunes_units_without_their_own_sync() -> None:
    body = st.seq(named("plain"), named("own", sync=st.tables.SSP(1)))
    task = st.loop(body, until=st.below(named("loss"), 0.5), sync="adaptive")
    assert syncs(task)["plain"] == (st.tables.BSP(), True)
    assert syncs(task)["own"] == (st.tables.SSP(1), False)
    assert task.plan(workers=1).grade == "replayable"
    assert "adaptive" in task.logical()


def test_a_unit_is_tuned_by_the_nearest_loop_with_an_objective() -> None:
    unit = named("steps", sync="adaptive")
    inner = st.loop(unit, times=3)
    task = st.loop(inner, until=st.stalls(named("loss"), 0.5), times=2)
    assert (inner.adaptive, task.adaptive) == (False, True)
    task.plan(workers=1)
    with pytest.raises(PlanError, match="unit steps: sync='adaptive' needs an objective"):
        inner.plan(workers=1)


def test_mistakes_are_named() -> None:
    with pytest.raises(PlanError, match="loop: sync='adaptive' needs an objective"):
        st.loop(named("x"), times=3, sync="adaptive")
    with pytest.raises(PlanError, match="or 'adaptive'"):
        st.loop(named("x"), times=3, sync="fast")
    with pytest.raises(PlanError, match="contradict"):
        named("x", sync="adaptive", mode="hogwild")
    with pytest.raises(PlanError, match="knob rate"):
        st.knob(0.3, [0.1, 0.2], name="rate")


# -- running -----------------------------------------------------------------------------------------------------------


def test_with_a_straggling_node_it_is_faster_than_bsp_and_near_the_best_fixed_rule() -> None:
    rules = (st.tables.BSP(), *(st.tables.SSP(s) for s in (1, 4)), st.tables.ASP())
    fixed = [st.run(training(rule, placement=NODES)[0], runtime=straggling()).seconds for rule in rules]
    events: list[Any] = []
    result = st.run(training("adaptive", placement=NODES)[0], runtime=straggling(), on_event=events.append)
    assert result.value < 0.01
    assert result.seconds < 0.75 * fixed[0]
    assert result.seconds <= 1.1 * min(fixed)
    again = st.run(training("adaptive", placement=NODES)[0], runtime=straggling())
    assert (again.moves, again.seconds) == (result.moves, result.seconds)  # virtual time: the same decisions
    assert [(e.knob, e.before, e.after, e.reason) for e in events if isinstance(e, SettingTuned)] == [
        (move.knob, move.before, move.after, move.reason) for move in result.moves
    ]
    assert any("staleness SSP(4)" in stage.reason for stage in result.stages)


def test_a_knob_has_its_first_number_where_nothing_tunes_it() -> None:
    seen = []
    unit = st.unit(lambda worker, batch: seen.append(batch), st.knob(10, [5, 10, 20], whole=True))
    st.run(st.loop(unit, times=3), runtime=st.Serial())
    assert seen == [10, 10, 10]
    assert isinstance(seen[0], int)


def test_a_step_size_that_diverges_is_undone() -> None:
    """The largest rate diverges."""
    rate = st.knob(0.05, [0.05, 0.1, 20.0], name="rate")
    task, w = training("adaptive", rate, times=150, target=1e-8)
    cluster = st.Simulated(nodes=1, threads=4, seconds_per_item=1e-4)
    result = st.run(task, runtime=cluster)
    assert result.value < 1e-8
    assert np.isfinite(w.array).all()
    assert any(move.knob == "rate" and move.kind == "keep" for move in result.moves)
    undone = [move for move in result.moves if "the objective went from" in move.reason]
    assert len(undone) == 1
    plain, _ = training(None, 0.05, times=400, target=1e-8)
    assert result.seconds < st.run(plain, runtime=cluster).seconds


def test_a_run_that_cannot_go_lower_fails_with_advice() -> None:
    broken = st.unit(lambda worker: float("nan"), name="broken")
    task = st.loop(named("steps", iterations=5), until=st.below(broken, 0.5), times=10, sync="adaptive")
    with pytest.raises(RunError, match=r"expose the step size with st\.knob"):
        st.run(task, runtime=st.Serial())


def test_a_trial_does_not_end_a_loop_by_stalling() -> None:
    """A trial that makes no progress is no sign that the run has none."""
    x = st.full(1, 100.0)

    def shrink(worker: Any, x: Any, rate: float) -> None:
        worker.work(1)
        x.add([0], -x.read([0]) * (0.1 if rate == 1.0 else 0.0))

    task = st.loop(
        st.unit(shrink, x, st.knob(1.0, [1.0, 2.0], name="rate")),
        until=st.stalls(st.unit(lambda worker, x: float(x.read([0])[0]), x, name="size"), 1e-3),
        times=30,
        sync="adaptive",
    )
    result = st.run(task, runtime=st.Simulated(nodes=1, threads=1))
    assert [move.kind for move in result.moves][:2] == ["try", "back"]
    assert len(result.history("size")) == 30


def test_a_resumed_run_keeps_its_settings(tmp_path: Path) -> None:
    seen: list[Any] = []

    def stop(stage: Any) -> None:
        seen.append(stage)
        if len(seen) == 30:
            raise InterruptedError("the power fails")

    options: Any = {"runtime": straggling(), "checkpoint": tmp_path, "checkpoint_every": 1}
    with pytest.raises(InterruptedError):
        st.run(training("adaptive", times=16, target=1e-9, placement=NODES)[0], on_stage=stop, **options)
    assert "staleness BSP" not in seen[-2].reason
    again, _ = training("adaptive", times=16, target=1e-9, placement=NODES)
    result = st.run(again, resume=True, **options)
    assert 0 < len(result.stages) < 6
    assert "staleness BSP" not in result.stages[0].reason
    assert st.run(again, resume=True, **options).value is None  # it has ended: there is nothing left to run


@pytest.mark.parametrize("runtime", [st.Serial(), st.Threads(2)], ids=["serial", "threads"])
def test_it_runs_where_times_are_measured(runtime: Any) -> None:
    rate = st.knob(0.02, [0.01, 0.02, 0.05], name="rate")
    task, _ = training("adaptive", rate, times=300, target=1e-4)
    result = st.run(task, runtime=runtime)
    assert result.value < 1e-4


# -- replicated states, sessions, plots --------------------------------------------------------------------------------


def descend(worker: Any, X: Any, y: Any, v: Any) -> Any:
    for _ in range(4):
        rows = worker.random().integers(len(y), size=10)
        worker.work(10)
        v.array[:] -= 0.02 * X[rows].T @ (X[rows] @ v.array - y[rows]) / 10
        yield


def replicated(sync: Any) -> Any:
    X, y = data()
    v = st.state(np.zeros(FEATURES), replicate=True, merge=st.average(), filter=st.top("absolute", share=0.5))
    until = st.below(st.unit(loss, X, y, v, parts=PARTS, workers=1), 0.5)
    return st.loop(
        st.unit(descend, X, y, v, parts=PARTS, iterations=2, placement=NODES), until=until, times=80, sync=sync
    )


def test_share_and_period_of_replicated_states_are_tuned() -> None:
    cluster = st.Simulated(nodes=PARTS, threads=1, link="200Kbit", latency="1ms", seconds_per_item=1e-4)
    plain = st.run(replicated(None), runtime=cluster)
    result = st.run(replicated("adaptive"), runtime=cluster)
    assert result.value < 0.5
    assert {move.knob for move in result.moves if move.kind == "keep"} & {"share of v", "period of v"}
    assert any("period of v" in stage.reason for stage in result.stages)
    assert result.seconds < plain.seconds / 1.2


def test_the_period_is_not_tuned_where_the_function_does_not_yield() -> None:
    v = st.state(np.zeros(3), replicate=True)

    def grow(worker: Any, v: Any) -> None:
        worker.work(1)
        v.array[:] += 1

    until = st.below(st.unit(lambda worker, v: -float(v.read()[0]), v, name="negative"), -60.0)
    task = st.loop(st.unit(grow, v, parts=2, iterations=4), until=until, times=30, sync="adaptive")
    result = st.run(task, runtime=st.Simulated(nodes=2, threads=1))
    assert not any("period" in stage.reason for stage in result.stages)


def test_a_session_reports_the_decisions() -> None:
    events: list[Any] = []
    session = st.Session()
    task, _ = training("adaptive", times=12, target=1e-9, placement=NODES)
    result = session.submit(task, runtime=straggling(), on_event=events.append).result(120)
    session.close()
    assert len(result.moves) > 0
    assert [event.reason for event in events] == [move.reason for move in result.moves]


def test_decisions_are_plotted(tmp_path: Path) -> None:
    result = st.run(training("adaptive", times=12, target=1e-9, placement=NODES)[0], runtime=straggling())
    result.plot_settings(tmp_path / "moves.svg", "loss", "Least squares with a straggling node")
    drawn = (tmp_path / "moves.svg").read_text()
    assert drawn.startswith("<?xml")
    assert [move.seconds for move in result.moves] == sorted(move.seconds for move in result.moves)
    assert 0 < result.moves[0].seconds <= result.seconds
    with pytest.raises(PlanError, match="name the unit of the criterion"):
        result.plot_settings(tmp_path / "moves.svg", "steps")
    with pytest.raises(PlanError, match="no setting was tuned"):
        st.run(training(None, times=2)[0], runtime=straggling()).plot_settings(tmp_path / "none.svg", "loss")


@pytest.mark.parametrize("turns", [2, 5, 10])
def test_short_loops_cost_little_over_the_default(turns: int) -> None:
    """No straggler, no latency to speak of, and a step that cannot be improved: nothing is to be gained."""
    cluster = st.Simulated(nodes=PARTS, threads=1, latency="20us", seconds_per_item=1e-4)
    rate = st.knob(0.05, [0.0125, 0.025, 0.05], name="rate")
    tuned = st.run(training("adaptive", rate, times=turns, target=1e-12, placement=NODES)[0], runtime=cluster)
    plain = st.run(training(None, 0.05, times=turns, target=1e-12, placement=NODES)[0], runtime=cluster)
    assert tuned.seconds < 1.1 * plain.seconds
    assert tuned.value < plain.history("loss")[0] or turns == 2
    assert np.log(tuned.value) < 0.75 * np.log(plain.value) + 0.25 * np.log(plain.history("loss")[0])


def test_on_processes_the_states_of_before_a_trial_that_diverges_are_restored() -> None:
    """The nodes hold the states; the driver copies them before a trial, and gives them back."""
    rate = st.knob(0.02, [0.02, 50.0], name="rate")
    task, w = training("adaptive", rate, times=400, target=1e-6)
    values: list[float] = []

    def note(stage: Any) -> None:
        if stage.unit == "loss":
            values.append(stage.value)

    result = st.run(task, runtime=st.Cluster("processes", nodes=2), on_stage=note)
    worst = int(np.argmax(np.nan_to_num(values, nan=np.inf)))
    assert any(move.knob == "rate" and move.kind == "back" and "objective went" in move.reason for move in result.moves)
    assert not values[worst] < values[0]
    assert values[worst + 1] < values[worst - 1]
    assert np.isfinite(w.array).all()
    assert result.value < 1e-6
