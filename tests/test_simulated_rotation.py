"""Rotation on simulated nodes: the bits of the serial runtime, virtual time for what-if questions, and faults."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

import stretto as st
import test_cluster_lda as topics
import test_cluster_ring_loops as loops
from jobs import PROBLEMS, digest, job_on, some_ratings
from rotation_schedules import EPOCHS, SmallRotation, check, schedule
from stretto.errors import Diverged, RunError
from stretto.models.topics import problem as lda_base
from stretto.observe.events import EpochDone, Event
from stretto.runtime.blocks.train import JobTrainer
from stretto.runtime.simulated.blocks import hosts
from stretto.runtime.simulated.blocks.block_executor import SimulatedCrew
from stretto.runtime.simulated.blocks.hosts import size_of
from stretto.runtime.simulated.blocks.node import VirtualNode

DATA = some_ratings()
NODES = [1, 3, 16]


def learned(runtime: Any, name: str, epochs: int = 3, **job: Any) -> tuple[str, list[float]]:
    """(hash of everything learned, objectives)."""
    with job_on(runtime, PROBLEMS[name], DATA, **job) as (made, crew):
        outcome = JobTrainer(made, crew).run(epochs)
        return digest(made.arrays()), [report.objective for report in outcome.reports]


@pytest.fixture(scope="module")
def small() -> SmallRotation:
    return SmallRotation()


def seconds(small: SmallRotation, **given: Any) -> float:
    """Virtual seconds of the passes alone."""
    spec = st.Simulated(**{"nodes": 4, "threads": 1, "seconds_per_item": 1e-5, "link": "10Mbit", **given})
    crew = small.run(spec)
    assert small.learned() == small.expected
    return sum(one.seconds for one in crew.report.passes)


# --- the same bits --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("nodes", NODES)
@pytest.mark.parametrize("name", ["sgd", "adagrad", "sgd, no biases", "adarevision"])
def test_the_same_factors(name: str, nodes: int) -> None:
    assert learned(st.Simulated(nodes=nodes, threads=2), name) == learned(st.Serial(), name)


@pytest.mark.parametrize("nodes", NODES)
@pytest.mark.parametrize("name", topics.KINDS)
def test_the_same_topics(name: str, nodes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lda_base, "FEWEST_TOKENS", 64)
    mine, theirs = (
        topics.learned(runtime, topics.KINDS[name], 3)
        for runtime in (st.Simulated(nodes=nodes, threads=2), st.Serial())
    )
    assert mine == theirs


@pytest.mark.parametrize("nodes", NODES)
@pytest.mark.parametrize("name", loops.LOOPS)
def test_the_same_loops(name: str, nodes: int) -> None:
    loop, arguments, _ = loops.made(name)
    runtime = st.Simulated(nodes=nodes, threads=2)
    loops.same(
        loops.calls(loop.using(runtime=runtime), arguments), loops.calls(loop.using(runtime=st.Serial()), arguments)
    )
    assert len(runtime.report.passes) == 3


def test_estimators_take_it() -> None:
    runtime = st.Simulated(nodes=6, threads=2, failures=[st.faults.Crash(1, at=0.01, back_after=0.1)], detect=0.05)
    one, other = (
        st.MatrixFactorization(n_components=4, max_iter=3, solver="sgd", random_state=0, runtime=where).fit(DATA)
        for where in (runtime, st.Serial())
    )
    assert np.array_equal(one.user_factors_, other.user_factors_)
    pairs = np.array([[0, 1], [5, 3]])
    assert np.array_equal(one.predict(pairs), other.predict(pairs))
    assert [loss.node for loss in runtime.report.losses] == [1]
    counts = np.random.default_rng(0).poisson(0.3, (60, 50))
    topic = [
        st.LatentDirichletAllocation(4, max_iter=3, random_state=0, runtime=where).fit(counts).components_
        for where in (st.Simulated(nodes=3, threads=1), st.Serial())
    ]
    assert np.array_equal(*topic)


def test_a_runtime_that_has_run_nothing_has_no_report() -> None:
    runtime = st.Simulated(nodes=2, threads=1)
    with pytest.raises(RunError, match="has not run blocks or a program yet"):
        _ = runtime.report


def test_divergence_is_reported_as_elsewhere() -> None:
    problem = replace(PROBLEMS["sgd"], learning_rate=1e30)
    messages = []
    for runtime in (st.Serial(), st.Simulated(nodes=3, threads=1)):
        with job_on(runtime, problem, DATA) as (job, crew), pytest.raises(Diverged) as error:
            JobTrainer(job, crew).run(3)
        messages.append(str(error.value)[:30])
    assert messages[0] == messages[1]


# --- virtual time ---------------------------------------------------------------------------------------------------


def test_the_same_seed_the_same_time(small: SmallRotation) -> None:
    faults: list[Any] = [
        st.faults.Crash(2, at=0.02, back_after=0.05),
        st.faults.Reset(0, 1, at=0.01),
        st.faults.Pause(3, at=0.03, seconds=0.02),
    ]
    spec = st.Simulated(nodes=5, threads=2, link="2Mbit", jitter="1ms", faults=faults, detect=0.01, seed=4)
    crews = [small.run(replace(spec)) for _ in range(2)]
    first, second = (crew.report for crew in crews)
    assert first.seconds == second.seconds
    assert [one.seconds for one in first.passes] == [one.seconds for one in second.passes]
    assert np.array_equal(first.waited, second.waited)
    assert crews[0].hosts.hub.events == crews[1].hosts.hub.events
    assert small.run(replace(spec, seed=5)).report.seconds != first.seconds


def test_what_makes_it_faster_and_slower(small: SmallRotation) -> None:
    usual = seconds(small)
    assert seconds(small, link="1Gbit") < usual < seconds(small, link="1Mbit")
    assert seconds(small, nodes=1) > seconds(small, nodes=2, link="10Gbit", latency=0.0)
    assert seconds(small, threads=2, nodes=1) < seconds(small, nodes=1)
    assert seconds(small, stragglers=lambda node, now: 10.0 if node == 1 else 1.0) > 2 * usual
    assert seconds(small, speed=[1.0, 1.0, 0.1, 1.0]) > 2 * usual
    assert seconds(small, racks=2, uplink="1Mbit") > usual
    assert seconds(small, latency="20ms") > usual
    assert seconds(small, message_cost=(1e-3, 0.0)) > usual
    assert seconds(small, faults=[st.faults.SlowLink(1, 2, at=0.0, factor=50.0)]) > usual


def test_a_pause_holds_everybody_up(small: SmallRotation) -> None:
    spec = st.Simulated(nodes=4, threads=1, seconds_per_item=1e-5)
    report = small.run(spec).report
    at = report.passes[1].began + report.passes[1].seconds / 2
    paused = small.run(replace(spec, faults=[st.faults.Pause(1, at=at, seconds=0.5)])).report
    assert small.learned() == small.expected
    assert report.seconds + 0.4 < paused.seconds < report.seconds + 0.6
    assert not paused.losses


def test_one_worker_takes_the_time_of_its_items(small: SmallRotation) -> None:
    items = small.steps[0].items
    crew = small.run(st.Simulated(nodes=1, threads=1, seconds_per_item=1e-3, latency=0.0, speed=2.0))
    report = crew.report
    for one in report.passes:
        assert one.computed == pytest.approx(items * 1e-3 / 2, rel=1e-4)
        assert one.seconds == pytest.approx(items * 1e-3 / 2, rel=1e-2)
    assert report.computing > 0.98
    assert report.moved == 0


def test_epochs_told_ahead_hide_latency(small: SmallRotation) -> None:
    spec = st.Simulated(nodes=4, threads=1, seconds_per_item=1e-5, latency="5ms")
    ahead = small.run(spec).report.seconds
    small.restore()
    with spec.crew() as crew:
        for step in small.steps:
            crew.run(step, "exact")
        crew.gather()
    assert small.learned() == small.expected
    assert ahead < crew.report.seconds - 0.01


def test_the_report_and_events_are_in_virtual_time() -> None:
    events: list[Event] = []
    runtime = st.Simulated(nodes=4, threads=2, seconds_per_item=1e-3)
    with job_on(runtime, PROBLEMS["sgd"], DATA) as (job, crew):
        JobTrainer(job, crew, tell=events.append).run(2)
    epochs = [event.seconds for event in events if isinstance(event, EpochDone)]
    assert epochs == [one.seconds for one in runtime.report.passes]
    assert min(epochs) > len(DATA.values) * 1e-3 / 8
    assert runtime.report.moved > 0
    assert runtime.report.driver_bytes > DATA.values.nbytes
    assert runtime.report.waited.shape == (4,)
    assert 0 < runtime.report.computing < 1
    assert "4 nodes of 2 threads: 2 passes in" in str(runtime.report)


def test_what_the_driver_does_takes_no_time() -> None:
    test = some_ratings(500, 300, 200, seed=1)
    with job_on(st.Simulated(nodes=2, threads=1), PROBLEMS["sgd"], DATA, test=test) as (job, crew):
        outcome = JobTrainer(job, crew).run(2)
    with job_on(st.Serial(), PROBLEMS["sgd"], DATA, test=test) as (job, serial):
        assert [one.metrics for one in outcome.reports] == [
            one.metrics for one in JobTrainer(job, serial).run(2).reports
        ]
    assert isinstance(crew, SimulatedCrew)


def test_bytes_of_messages() -> None:
    array = np.zeros(100)
    assert size_of(array) == 800
    assert size_of([array, {"again": array}, "abc"]) == 803


# --- faults ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("at", [0.0, 0.003, 0.01, 0.02, 0.03, 0.05])
@pytest.mark.parametrize("back_after", [0.0, 0.2])
def test_one_crash(small: SmallRotation, at: float, back_after: float) -> None:
    """While data are sent, in an epoch, and while results are gathered."""
    spec = st.Simulated(
        nodes=4,
        threads=1,
        seconds_per_item=1e-5,
        detect=0.01,
        failures=[st.faults.Crash(1, at=at, back_after=back_after)],
    )
    without = small.run(replace(spec, failures=None)).report.seconds
    crew = small.run(spec)
    assert small.learned() == small.expected
    if at < without - 0.01:
        assert [loss.node for loss in crew.report.losses] == [1]
        assert crew.report.seconds > without


def test_a_crash_while_gathering(small: SmallRotation) -> None:
    spec = st.Simulated(nodes=4, threads=1, seconds_per_item=1e-5, link="1Mbit", detect=0.01)
    times: list[float] = []

    class Watched(SimulatedCrew):
        def _gather(self) -> None:
            times.append(self.hosts.now())
            super()._gather()
            times.append(self.hosts.now())

    small.restore()
    crew = Watched(spec)
    for step in small.steps:
        crew.run(step, "exact")
    crew.gather()
    crew.close()
    began, ended = times[-2:]
    assert ended > began
    crash = st.faults.Crash(2, at=(began + ended) / 2, back_after=0.05)
    small.restore()
    with replace(spec, faults=[crash]).crew() as crashed:
        for step in small.steps:
            crashed.run(step, "exact")
        crashed.gather()
    assert small.learned() == small.expected
    assert [loss.node for loss in crashed.report.losses] == [2]
    assert crashed.report.losses[0].seconds > began


def test_a_node_that_pauses_for_long_counts_as_lost(small: SmallRotation) -> None:
    spec = st.Simulated(
        nodes=3, threads=1, seconds_per_item=1e-3, detect=1.0, faults=[st.faults.Pause(1, at=0.1, seconds=1000.0)]
    )
    crew = small.run(spec)
    assert small.learned() == small.expected
    assert [(loss.node, loss.why) for loss in crew.report.losses] == [(1, "it has sent nothing for 1 s")]
    assert crew.report.seconds < 20.0


def test_resets_exercise_the_links(small: SmallRotation) -> None:
    faults = [st.faults.Reset(a, b, at=0.002 * k, doubled=k % 2) for k in range(1, 40) for a, b in ((0, 1), (1, 2))]
    spec = st.Simulated(nodes=3, threads=1, seconds_per_item=1e-5, link="5Mbit", faults=faults)
    small.restore()
    counted = np.zeros(2, int)
    with spec.crew() as crew:
        for step in small.steps:
            crew.run(step, "exact")
        counted += np.sum(list(crew.hosts.ask("counters").values()), axis=0)
        crew.gather()
    assert small.learned() == small.expected
    assert counted.sum() > 0  # frames that came twice, or too early


def test_nodes_that_always_fail_end_the_run(small: SmallRotation) -> None:
    with pytest.raises(RunError, match=r"Give nodes that fail less often \(failures=\)"):
        small.run(st.Simulated(nodes=4, threads=1, seconds_per_item=1e-3, failures=0.2, detect=0.01, back_after=0.01))


def test_a_run_that_stalls_ends_with_an_error(small: SmallRotation, monkeypatch: pytest.MonkeyPatch) -> None:
    """Should a block ever be lost, the driver's own watch finds out, in virtual time."""
    small.restore()
    spec = st.Simulated(nodes=3, threads=1, seconds_per_item=1e-5)
    monkeypatch.setattr(VirtualNode, "arrives", lambda self, message: None)
    with spec.crew() as crew, pytest.raises(RunError, match="all nodes have waited"):
        crew.run(small.steps[0], "exact")
    assert crew.hosts.now() > 60.0


def test_too_many_events_without_a_visit(small: SmallRotation, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hosts, "_STILL", 10)
    monkeypatch.setattr(hosts, "_SLICE", 5)
    with pytest.raises(RunError, match="no visit or update was made during 10 events"):
        small.run(st.Simulated(nodes=8, threads=1))


def asking(crew: SimulatedCrew, at: float) -> None:
    """As Ctrl-C would, at a virtual time."""
    crew.hosts.hub.at(at, lambda _: crew.ask(), None)


@pytest.mark.parametrize("at", [0.002, 0.01, 0.02])
def test_ctrl_c_ends_a_pass_that_is_resumed(small: SmallRotation, at: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hosts, "_SLICE", 5)  # events between two looks
    small.restore()
    stopped = 0
    with st.Simulated(nodes=4, threads=2, seconds_per_item=1e-4).crew() as crew:
        for step in small.steps:
            asking(crew, crew.hosts.now() + at)
            done = crew.run(step, "exact", drain=True)
            stopped += done.interrupted
            crew.asked = False
            while done.finished is not None:
                done = crew.run(step, "exact", done.finished)
        crew.gather()
    assert small.learned() == small.expected
    assert stopped or at > 0.015


def test_nodes_read_their_own_ratings(tmp_path: Path) -> None:
    file = tmp_path / "ratings.csv"
    columns = zip(DATA.rows.tolist(), DATA.cols.tolist(), DATA.values.tolist(), strict=True)
    file.write_text("".join(f"{row},{col},{value}\n" for row, col, value in columns))
    options: dict[str, Any] = {
        "n_components": 3,
        "max_iter": 2,
        "solver": "sgd",
        "random_state": 0,
        "duplicates": "keep",
    }
    runtime = st.Simulated(nodes=3, threads=1)
    mine = st.MatrixFactorization(**options, runtime=runtime, memory="1MiB").fit(file)
    theirs = st.MatrixFactorization(**options, runtime=st.Serial()).fit(file)
    assert np.array_equal(mine.user_factors_, theirs.user_factors_)
    # Entries do not pass the driver's link.
    st.MatrixFactorization(**options, runtime=(sent := st.Simulated(nodes=3, threads=1))).fit(file)
    assert runtime.report.driver_bytes < sent.report.driver_bytes - 4 * len(DATA.values)


# --- fault schedules ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(40))
def test_fault_schedules(small: SmallRotation, seed: int) -> None:
    check(small, seed)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("name", topics.KINDS)
def test_fault_schedules_of_topics(name: str, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Arrays that are zeros when an epoch begins, and totals that all nodes read."""
    monkeypatch.setattr(lda_base, "FEWEST_TOKENS", 64)
    assert topics.learned(schedule(seed)[0], topics.KINDS[name], 2) == topic_results(name)


@pytest.mark.parametrize("seed", range(12))
def test_fault_schedules_of_loops(seed: int) -> None:
    """Accumulators, one part for each visit."""
    loop, arguments, _ = loops.made("factorization")
    mine = loops.calls(loop.using(runtime=schedule(seed)[0]), arguments)
    loops.same(mine, loops.calls(loop.using(runtime=st.Serial()), arguments))


@cache
def topic_results(name: str) -> Any:
    return topics.learned(st.Serial(), topics.KINDS[name], 2)


@settings(max_examples=25)
@given(some.integers(100_000, 2**31))
def test_fault_schedules_drawn(seed: int) -> None:
    check(_small(), seed)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_ten_thousand_fault_schedules(small: SmallRotation) -> None:
    """Crashes, pauses, slow links, delays and resets on one to nine nodes: never other bits, never a hang."""
    losses = sum(len(check(small, seed).report.losses) for seed in range(10_000))
    assert losses > 5_000


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_256_nodes() -> None:
    """512 × 512 blocks: 262,144 visits an epoch."""
    wide = SmallRotation("sgd, no biases", 60_000, shape=(4000, 3000), blocks=512)
    crew = wide.run(st.Simulated(nodes=256, threads=2, failures=[st.faults.Crash(77, at=30.0)]))
    assert wide.learned() == wide.expected
    assert len(crew.report.passes) == EPOCHS


_made: list[SmallRotation] = []


def _small() -> SmallRotation:
    """For tests of hypothesis, which take no fixtures of a module."""
    if not _made:
        _made.append(SmallRotation())
    return _made[0]


@pytest.fixture(autouse=True, scope="module")
def _forget() -> Iterator[None]:
    yield
    _made.clear()
