"""The simulated cluster: virtual time, the network, faults, recovery, and the protocol on top of all of them.

The golden traces are in tests/golden/simulated. After a change that is meant, write them anew and read the difference:

    STRETTO_GOLDEN=write pytest tests/test_runtime_simulated.py
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest

from stretto.comm.messages import Rows, Update
from stretto.comm.policy import Eager, Lazy, Managed, Policy
from stretto.consistency.rules import ASP, BSP, SSP, Rule
from stretto.errors import PlanError, RunError
from stretto.runtime.simulated.fault_schedule import of_seed
from stretto.runtime.simulated.faults import Crash, Delay, Pause, Reset, SlowLink
from stretto.runtime.simulated.spec import Simulated
from stretto.runtime.simulated.tables.job import SimulatedCluster, run
from stretto.runtime.tables.job import TableJob, TableOutcome, WorkerApi
from stretto.runtime.tables.serial import run as run_serial
from stretto.store.layout import TableSpec
from stretto.store.shard.functions import adarevision, add

GOLDEN = Path(__file__).parent / "golden" / "simulated"
WRITE = os.environ.get("STRETTO_GOLDEN") == "write"
ROWS = 40
WORKERS = 4
CLOCKS = 6
SMALL = Simulated(nodes=4, threads=1, seconds_per_item=1e-3)


def blame(worker: int, clock: int, error: Exception) -> NoReturn:
    raise RunError(f"worker {worker}, clock {clock}: {error}") from error


def job(
    work: Callable[[WorkerApi], None] | None = None,
    rule: Rule | None = None,
    policy: Policy | None = None,
    *,
    workers: int = WORKERS,
    tables: tuple[TableSpec, ...] | None = None,
    **more: Any,
) -> TableJob:
    tables = tables or (TableSpec("x", add, rows=ROWS, cols=3),)
    return TableJob(tables, workers, rule or BSP(), policy or Eager(), work or mixer(), blame, **more)


def mixer(clocks: int = CLOCKS, items: float = 5.0, keys: int = 9) -> Callable[[WorkerApi], None]:
    """Workers that read rows and add something computed from them: every mistake in what was read shows in the end."""

    def work(client: WorkerApi) -> None:
        while client.clock < clocks:
            draw = np.random.default_rng((client.worker, client.clock))
            total = client.local.setdefault("total", np.zeros(3))
            for _ in range(2):
                rows = np.sort(draw.choice(ROWS, keys, replace=False))
                out = np.empty((keys, 3), dtype=np.float32)
                client.read(0, rows, out)
                total += out.sum(axis=0)
                client.work(items * draw.random())
                client.add(0, rows, (0.25 * out + draw.normal(size=out.shape)).astype(np.float32))
            client.tick()

    return work


def table(outcome: TableOutcome, number: int = 0) -> np.ndarray[Any, Any]:
    """[rows, cols] a table at the end, zeros where nobody was."""
    rest = outcome.tables[number]
    whole = np.zeros((ROWS, rest.values.shape[1]), dtype=rest.values.dtype)
    whole[rest.keys] = rest.values
    return whole


def witnessed(outcome: TableOutcome) -> bool:
    """Whether every call of add is in the rows at the end exactly once, but for those a restart has undone."""
    recording = outcome.recording
    counts = np.zeros((ROWS, recording.layout.workers), dtype=np.int64)
    for entry in recording.adds:
        if not any(entry.order < restart.order and entry.clock >= restart.clock for restart in recording.restarts):
            np.add.at(counts, (entry.keys, entry.worker), 1)
    keys, found = recording.final[0]
    whole = np.zeros_like(counts)
    whole[keys] = found
    return bool((whole == counts).all())


# -- the specification ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"nodes": 0}, "nodes=0 is less than 1"),
        ({"nodes": 2.5}, "is not a whole number; give one of at least 1"),
        ({"threads": -1}, "less than 1"),
        ({"link": "fast"}, "is not a rate"),
        ({"nodes": 3, "link": ["1Gbit"] * 2}, "2 values for 3 nodes"),
        ({"latency": "1 parsec"}, "is not a time"),
        ({"nodes": 2, "speed": [1.0, 0.0]}, "speed=0"),
        ({"speed": "quick"}, "speed must be a number at least 0"),
        ({"stragglers": {"share": 0.1}}, "'share': …, 'slow': …, 'seconds'"),
        ({"stragglers": {"share": 2, "slow": 3, "seconds": 1}}, "share within 0 and 1"),
        ({"failures": 0}, "must be above 0"),
        ({"nodes": 2, "failures": [Crash(5, 1.0)]}, "there is no node 5"),
        ({"nodes": 2, "failures": [Pause(0, 1.0, 1.0)]}, "only Crash belongs here"),
        ({"uplink": "1Gbit"}, "give racks="),
        ({"nodes": 2, "racks": 3}, "only 2 nodes"),
        ({"nodes": 2, "racks": [0]}, "1 racks named for 2 nodes"),
        ({"message_cost": 1e-6}, "seconds per message, seconds per byte"),
        ({"message_cost": (1e-6, -1)}, "at least 0"),
        ({"faults": ["crash"]}, "is not a fault"),
        ({"nodes": 2, "faults": [Reset(0, 2, 1.0)]}, "there is no node 2"),
        ({"jitter": -1.0}, "is not a time"),
        ({"seed": "x"}, "is not a whole number"),
    ],
)
def test_a_cluster_that_cannot_be_is_refused(wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(PlanError, match=says):
        Simulated(**wrong)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Pause(-1, 1.0, 1.0), "Pause: node must be a whole number at least 0; got -1"),
        (lambda: Pause(0, "soon", 1.0), "is not a time"),
        (lambda: SlowLink(0, 0, 1.0), "two different nodes"),
        (lambda: SlowLink(0, 1, 1.0, factor=0.5), "1 or more"),
        (lambda: Reset(0, 1, 1.0, lost=-1), "Reset: lost must be a whole number at least 0"),
    ],
)
def test_a_fault_that_cannot_be_is_refused(make: Callable[[], object], says: str) -> None:
    with pytest.raises(PlanError, match=says):
        make()


def test_a_specification_is_a_value() -> None:
    a = Simulated(
        nodes=3, link="100Mbit", latency="1ms", speed=[1, 2, 3], racks=2, uplink="1Gbit", faults=[Pause(0, 1, "2ms")]
    )
    assert a == replace(a)
    assert a.links == (12.5e6,) * 3
    assert a.speeds == (1.0, 2.0, 3.0)
    assert a.rack_of == (0, 0, 1)
    assert a.latency == 1e-3
    assert a.faults == (Pause(0, 1.0, 0.002),)
    assert not a.can_fail
    assert Simulated(nodes=2, failures="5h").mean_failure() == 5 * 3600


def test_stragglers_are_as_many_as_asked_and_others_each_time() -> None:
    spec = Simulated(nodes=50, stragglers={"share": 0.2, "slow": 3.0, "seconds": 2.0}, seed=4)
    slow = np.array([[spec.slowness(node, 2.0 * turn + 0.5) for node in range(50)] for turn in range(200)])
    assert set(np.unique(slow)) == {1.0, 3.0}
    assert abs((slow == 3.0).mean() - 0.2) < 0.02
    assert ((slow == 3.0).mean(axis=0) < 0.4).all()
    assert spec.slowness(7, 2.1) == spec.slowness(7, 3.9)
    own = Simulated(nodes=2, stragglers=lambda node, seconds: 1.0 + node * seconds)
    assert own.slowness(1, 3.0) == 4.0


def test_crashes_of_a_seed() -> None:
    drawn = of_seed(1, 10, mean=100.0, back_after=5.0)
    first = [next(drawn) for _ in range(2000)]
    again = of_seed(1, 10, mean=100.0, back_after=5.0)
    assert first == [next(again) for _ in range(2000)]
    times = np.array([float(crash.at) for crash in first])
    assert abs(times[-1] / 2000 - 10.0) < 1.0  # ten nodes fail ten times as often as one
    assert np.ptp(np.bincount([crash.node for crash in first])) < 100


# -- a job, from start to end -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def truth() -> np.ndarray[Any, Any]:
    return table(run_serial(job()))


@pytest.mark.parametrize("nodes", [1, 2, 4])
@pytest.mark.parametrize("policy", [Eager(), Lazy(), Managed("2MB", burst=(3, 3))], ids=["eager", "lazy", "managed"])
def test_bsp_has_the_bits_of_the_serial_run(nodes: int, policy: Policy, truth: np.ndarray[Any, Any]) -> None:
    outcome = run(replace(SMALL, nodes=nodes), job(policy=policy))
    assert outcome.clocks == (CLOCKS,) * WORKERS
    assert table(outcome).tobytes() == truth.tobytes()


TROUBLED = Simulated(
    nodes=4,
    threads=1,
    seconds_per_item=1e-3,
    link=["1Gbit", "20Mbit", "1Gbit", "100Mbit"],
    speed=[1.0, 0.5, 1.0, 2.0],
    jitter="2ms",
    racks=2,
    uplink="10Mbit",
    stragglers={"share": 0.3, "slow": 4.0, "seconds": 0.004},
    faults=[
        Pause(1, at="3ms", seconds="20ms"),
        SlowLink(0, 2, at="1ms", seconds="10ms", factor=50),
        Delay(3, 0, at=0.0, extra="7ms"),
        Reset(0, 3, at="2ms"),
        Reset(1, 2, at="8ms", lost=1),
        Reset(0, 1, at="11ms", lost=0, doubled=3),
        Reset(0, 1, at="30ms", lost=2, doubled=2),
    ],
    seed=5,
)


@pytest.mark.parametrize("policy", [Eager(), Lazy(), Managed("2MB", burst=(3, 3))], ids=["eager", "lazy", "managed"])
def test_bsp_has_the_same_bits_in_any_trouble(policy: Policy, truth: np.ndarray[Any, Any]) -> None:
    outcome = run(TROUBLED, job(policy=policy))
    assert table(outcome).tobytes() == truth.tobytes()
    crashing = replace(
        TROUBLED,
        faults=[*TROUBLED.faults, Crash(2, at="40ms", back_after="5ms"), Crash(0, "90ms", "1ms")],
        detect="25ms",  # longer than the pause, which would count as a loss
    )
    crashed = run(crashing, job(policy=policy, every_clocks=2))
    assert len(crashed.recording.restarts) == 2
    assert table(crashed).tobytes() == truth.tobytes()
    assert crashed.seconds > outcome.seconds
    for one, other in zip(outcome.local, crashed.local, strict=True):
        assert one["total"].tobytes() == other["total"].tobytes()


@pytest.mark.parametrize("rule", [SSP(0), SSP(2), ASP()], ids=str)
@pytest.mark.parametrize("policy", [Eager(), Lazy(), Managed("1MB", burst=(3, 3))], ids=["eager", "lazy", "managed"])
def test_nothing_is_lost_or_doubled_and_reads_are_fresh_enough(rule: Rule, policy: Policy) -> None:
    outcome = run(TROUBLED, job(rule=rule, policy=policy, record="full"))
    assert witnessed(outcome)
    recording = outcome.recording
    adds: dict[tuple[int, int, int], int] = {}  # (worker, clock, key) → how many
    for entry in recording.adds:
        for key in entry.keys.tolist():
            adds[entry.worker, entry.clock, key] = adds.get((entry.worker, entry.clock, key), 0) + 1
    for read in recording.reads:
        need = rule.need(read.clock)
        for place, key in enumerate(read.keys.tolist()):
            for worker in range(WORKERS):
                least = sum(adds.get((worker, clock, key), 0) for clock in range(need))
                assert read.seen[place, worker] >= least
    assert outcome.staleness is not None
    assert outcome.staleness.sum() == CLOCKS * WORKERS * 2 * 9


def test_the_same_seed_gives_the_same_trace() -> None:
    def trace(seed: int) -> tuple[Any, ...]:
        spec = replace(TROUBLED, seed=seed, faults=[*TROUBLED.faults, Crash(2, "40ms", "5ms")], detect="25ms")
        tried = job(rule=SSP(1), policy=Managed("1MB", burst=(4, 4)), record="full", every_clocks=2)
        outcome = run(spec, tried)
        recording = outcome.recording
        sends = [entry[:9] for entry in recording.sends]
        return sends, recording.ticks, recording.deliveries, outcome.seconds, table(outcome).tobytes()

    first, second, other = trace(1), trace(1), trace(2)
    assert first == second
    assert first[0] != other[0]


def test_adarevision_on_a_cluster() -> None:
    tables = (TableSpec("x", adarevision(0.1), rows=ROWS, cols=3),)
    truth = table(run_serial(job(tables=tables)))
    outcome = run(TROUBLED, job(tables=tables))
    np.testing.assert_allclose(table(outcome), truth, rtol=1e-5, atol=1e-6)
    for policy in (Eager(), Managed("1MB", burst=(3, 3))):
        late = run(TROUBLED, job(rule=SSP(2), policy=policy, tables=tables))
        assert np.isfinite(table(late)).all()


# -- time -------------------------------------------------------------------------------------------------------------


def idle(items: list[float]) -> Callable[[WorkerApi], None]:
    """Workers that only compute, and wait for each other by a row they all read."""

    def work(client: WorkerApi) -> None:
        for amount in items:
            client.work(amount)
            client.add(0, np.array([0]), np.ones((1, 3), dtype=np.float32))
            client.tick()

    return work


FREE: dict[str, Any] = {"message_cost": (0.0, 0.0), "latency": 0.0, "link": 1e15}


def test_work_takes_items_times_seconds_by_speed() -> None:
    spec = Simulated(nodes=2, threads=1, seconds_per_item=0.5, speed=[1.0, 0.25], **FREE)
    outcome = run(spec, job(idle([3.0, 1.0]), SSP(5), workers=2))
    assert outcome.seconds == pytest.approx(4 * 0.5 / 0.25)
    assert outcome.items == 8.0
    shared = run(replace(spec, nodes=1, speed=1.0), job(idle([3.0]), workers=4))
    assert shared.seconds == pytest.approx(4 * 3.0 * 0.5)  # four workers on one core
    assert run(replace(spec, nodes=1, speed=1.0, threads=4), job(idle([3.0]), workers=4)).seconds == pytest.approx(1.5)


def test_computing_without_saying_so_takes_no_time() -> None:
    spec = Simulated(nodes=2, threads=1, **FREE)
    assert run(spec, job(mixer(items=0.0), workers=2)).seconds == pytest.approx(0.0, abs=1e-9)


def test_messages_cost_their_node_time() -> None:
    spec = Simulated(nodes=2, threads=1, seconds_per_item=1e-3, latency=0.0, link=1e15)
    free = run(replace(spec, message_cost=(0.0, 0.0)), job(mixer(), workers=2))
    dear = run(replace(spec, message_cost=(1e-3, 0.0)), job(mixer(), workers=2))
    shared = run(replace(spec, message_cost=(1e-3, 0.0), threads=2), job(mixer(), workers=2))
    sent = dear.recording.messages
    # Each message is charged at both ends; what comes after a worker's last work() is not waited for.
    assert 0.4 * sent * 1e-3 < dear.seconds - free.seconds <= 2 * sent * 1e-3
    assert free.seconds < shared.seconds < dear.seconds


def test_a_paused_node_holds_up_its_work_and_what_arrives() -> None:
    spec = Simulated(nodes=2, threads=1, seconds_per_item=1.0, **FREE)
    still = replace(spec, faults=[Pause(1, at=0.5, seconds=10.0), Pause(1, at=5.0, seconds=7.0)], detect=20.0)
    assert run(spec, job(idle([1.0]), workers=2)).seconds == pytest.approx(1.0)
    assert run(still, job(idle([1.0]), workers=2)).seconds == pytest.approx(1.0 + 11.5)
    outcome = run(still, job(mixer(2, items=1.0), workers=2))
    assert outcome.seconds > 12.0
    assert outcome.recording.waits["read"][0] > 5.0


def test_waits_and_clocks_are_recorded() -> None:
    spec = replace(SMALL, nodes=2, speed=[1.0, 0.1])
    outcome = run(spec, job(workers=2))
    waits = outcome.recording.waits["read"]
    assert waits[0] > 0.5 * outcome.seconds > 10 * waits[1]
    clocks = outcome.recording.clocks
    assert [least for _, least, _ in clocks] == list(range(1, CLOCKS + 1))
    assert all(now <= later for (now, *_), (later, *_) in pairwise(clocks))
    loose = run(spec, job(rule=SSP(3), workers=2))
    assert max(most - least for _, least, most in loose.recording.clocks) in (3, 4)


def test_traffic_is_counted_by_link_and_reason() -> None:
    outcome = run(replace(SMALL, nodes=2), job(workers=2, record="full"))
    recording = outcome.recording
    assert sum(entry.nbytes for entry in outcome.traffic) == recording.bytes
    assert sum(entry.nbytes for entry in recording.sends) == recording.bytes
    assert {(entry.source, entry.target) for entry in outcome.traffic} == {(0, 1), (1, 0)}
    reasons = recording.by_reason()
    assert set(reasons) <= {"clock", "fetch", "control", "acknowledge"}
    assert sum(number for number, _, _ in reasons.values()) == recording.messages == len(recording.sends)
    counted = np.zeros(ROWS, dtype=np.int64)
    for entry in recording.sends:
        if entry.keys is not None:
            np.add.at(counted, entry.keys, 1)
    assert (recording.row_sends(0) == counted).all()
    assert counted.sum() == sum(rows for _, rows, _ in reasons.values())
    with pytest.raises(PlanError, match="record='rows'"):
        run(SMALL, job()).recording.row_sends(0)


def test_a_budget_is_kept() -> None:
    policy = Managed("400kB", burst=(3, 3), rank="absolute")
    outcome = run(replace(SMALL, seconds_per_item=1e-2), job(rule=SSP(1), policy=policy, record="full"))
    assert outcome.recording.by_reason()["rank"][0] > 10
    for node in range(4):
        for side in ("updates", "rows"):
            sends = [e for e in outcome.recording.sends if e.source == node and e.side == side]
            times = np.array([entry.now for entry in sends])
            sizes = np.array([entry.nbytes for entry in sends])
            for begin in range(0, len(sends), 3):
                spent = np.cumsum(sizes[begin:])
                allowed = 200e3 * (times[begin:] - times[begin]) + sizes[begin:] + 1e-6
                assert (spent <= allowed + sizes.max()).all()


def test_ticks_wait_for_what_the_budget_holds_back() -> None:
    policy = Managed("30kB", burst=(3, 3))
    outcome = run(SMALL, job(rule=SSP(5), policy=policy))
    assert outcome.recording.waits["tick"].sum() > 0
    assert "tick" not in run(SMALL, job(rule=SSP(5))).recording.waits


# -- watching, ending, failing ----------------------------------------------------------------------------------------


def test_watching() -> None:
    seen = []

    def watch(moment: Any) -> float:
        keys, values = moment.values(0)
        seen.append((moment.clock, len(keys), len(moment.local)))
        return float(np.abs(values).sum())

    outcome = run(SMALL, job(watch=watch, every=2))
    assert [look.clock for look in outcome.history] == [0, 2, 4, 6]
    assert outcome.history[0].seconds == 0.0
    assert all(a.seconds < b.seconds and a.bytes < b.bytes for a, b in pairwise(outcome.history))
    assert outcome.history[-1].objective == pytest.approx(float(np.abs(table(outcome)).sum()))
    serial = run_serial(job(watch=watch, every=2))
    assert [look.objective for look in outcome.history] == pytest.approx([look.objective for look in serial.history])


def test_enough_is_enough() -> None:
    outcome = run(SMALL, job(mixer(clocks=1000), watch=lambda moment: moment.clock, until=lambda look: look.clock >= 3))
    assert outcome.stopped == "until"
    assert outcome.history[-1].clock == 3
    assert max(outcome.clocks) < 10


def test_the_error_of_a_worker_is_told() -> None:
    def work(client: WorkerApi) -> None:
        if client.worker == 2:
            client.tick()
            raise ValueError("no luck")
        mixer()(client)

    with pytest.raises(RunError, match="worker 2, clock 1: no luck"):
        run(SMALL, job(work))
    with pytest.raises(RunError, match="worker -1, clock 0: division"):
        run(SMALL, job(watch=lambda moment: 1 / 0))


def test_ctrl_c_ends_a_run_with_what_is_there() -> None:
    def work(client: WorkerApi) -> None:
        while True:
            if client.worker == 1 and client.clock == 3:
                signal.raise_signal(signal.SIGINT)
            mixer(clocks=client.clock + 1)(client)

    outcome = run(SMALL, job(work, watch=lambda moment: moment.clock))
    assert outcome.stopped == "interrupted"
    assert max(outcome.clocks) == 3
    assert outcome.history[-1].clock in (2, 3)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_cluster_that_stands_still_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """It cannot happen unless we made a mistake, such as losing messages."""
    cluster = SimulatedCluster(SMALL, job())
    send, count = cluster.network.send, iter(range(1_000))
    monkeypatch.setattr(cluster.network, "send", lambda *train: None if next(count) > 50 else send(*train))
    with pytest.raises(
        RunError, match=r"makes no progress at .* workers wait, such as worker \d at clock \d \(read, table 0\)"
    ):
        cluster.run()
    cluster.close()


def test_workers_may_end_at_different_clocks() -> None:
    def work(client: WorkerApi) -> None:
        mixer(clocks=2 + client.worker)(client)
        client.add(0, np.array([client.worker]), np.full((1, 3), 100.0, dtype=np.float32))  # and no tick

    truth = run_serial(job(work))
    for rule in (BSP(), SSP(1)):
        outcome = run(SMALL, job(work, rule=rule))
        assert outcome.clocks == truth.clocks == (2, 3, 4, 5)
        if rule == BSP():
            assert table(outcome).tobytes() == table(truth).tobytes()


def test_local_state_and_cursors_come_back_after_a_crash() -> None:
    calls: list[tuple[int, int]] = []

    def work(client: WorkerApi) -> None:
        calls.append((client.worker, client.clock))
        if client.clock == 0:
            client.local["made"] = 0
            client.cursors.append([0])
        while client.clock < 10:
            client.local["made"] += 1
            client.cursors[0][0] += 10
            assert client.local["made"] == client.clock + 1
            assert client.cursors == [[10 * client.clock + 10]]
            client.work(10.0)
            client.add(0, np.array([client.worker]), np.ones((1, 3), dtype=np.float32))
            client.tick()

    spec = replace(SMALL, faults=[Crash(1, at=0.055, back_after=0.01)], detect=0.02)
    outcome = run(spec, job(work, every_clocks=3))
    (restart,) = outcome.recording.restarts
    assert restart.clock == 3
    assert restart.now == pytest.approx(0.075, abs=1e-5)  # and a little to read the checkpoint
    assert calls == [(w, 0) for w in range(4)] + [(w, 3) for w in range(4)]
    assert table(outcome)[:4].tolist() == [[10.0] * 3] * 4


def test_a_delay_is_silence_until_the_first_message_arrives() -> None:
    """The sender answers the driver, so it is lost after six times as long as one that does not."""

    def work(client: Any) -> None:
        while client.clock < 10:
            client.work(10.0)
            client.add(0, np.array([client.worker]), np.ones((1, 3), dtype=np.float32))
            client.tick()

    for extra, lost in ((0.011, 0), (0.05, 0), (0.07, 1)):
        spec = replace(SMALL, faults=[Delay(0, 1, at=0.035, seconds=0.001, extra=extra)], detect=0.01, back_after=0.01)
        assert spec.can_fail == bool(lost)
        outcome = run(spec, job(work, every_clocks=3))
        assert [restart.now for restart in outcome.recording.restarts] == pytest.approx([0.105] * lost, abs=1e-3)
        assert table(outcome)[:4].tolist() == [[10.0] * 3] * 4


def test_nodes_without_workers_only_serve() -> None:
    truth = table(run_serial(job(workers=2)))
    spec = replace(
        SMALL, nodes=5, faults=[Crash(3, at="22ms", back_after="1ms"), Crash(0, "34ms", "1ms")], detect="1ms"
    )
    for policy in (Eager(), Lazy(), Managed("2MB", burst=(3, 3))):
        outcome = run(spec, job(policy=policy, workers=2, every_clocks=2))
        assert [restart.clock > 0 for restart in outcome.recording.restarts] == [True, True]
        assert table(outcome).tobytes() == truth.tobytes()


def test_nodes_that_always_fail() -> None:
    spec = Simulated(nodes=4, threads=1, seconds_per_item=1.0, failures=1.0, detect=0.1, back_after=0.1)
    with pytest.raises(RunError, match="nodes fail faster than checkpoints"):
        run(spec, job(mixer(items=10.0)))


def test_random_failures_are_survived(truth: np.ndarray[Any, Any]) -> None:
    spec = replace(SMALL, failures=0.15, detect=1e-3, back_after=2e-3, save="1GB")
    outcome = run(spec, job())
    assert len(outcome.recording.restarts) >= 1
    assert table(outcome).tobytes() == truth.tobytes()


# -- golden traces ----------------------------------------------------------------------------------------------------


def told(spec: Simulated, tried: TableJob) -> str:
    """What happened, a line for each message and tick."""
    cluster = SimulatedCluster(spec, tried)
    outcome = cluster.run()
    cluster.close()
    recording = outcome.recording
    lines = []
    for entry in sorted(
        [*recording.sends, *recording.ticks, *recording.restarts, *recording.deliveries], key=lambda e: e.order
    ):
        at = f"{entry.now * 1e3:9.4f} ms"
        name = type(entry).__name__
        if name == "Send":
            keys = "" if entry.keys is None else f" rows {','.join(map(str, entry.keys.tolist()))}"
            kind = entry.kind or "bare"
            lines.append(f"{at}  {entry.source} → {entry.target}  {kind} ({entry.reason}, {entry.nbytes} bytes){keys}")
        elif name == "Tick":
            lines.append(f"{at}  worker {entry.worker} at clock {entry.clock}")
        elif name == "Restart":
            lines.append(f"{at}  restart from clock {entry.clock}, life {entry.incarnation}")
        else:
            lines.append(f"{at}  {entry.source} ⇒ {entry.target}  frame {entry.sequence} of life {entry.incarnation}")
    lines.append(f"{outcome.seconds * 1e3:9.4f} ms  end; {recording.messages} messages, {recording.bytes} bytes")
    return "\n".join(lines) + "\n"


def few(clocks: int = 2) -> Callable[[WorkerApi], None]:
    def work(client: WorkerApi) -> None:
        while client.clock < clocks:
            rows = np.arange(3) + client.worker
            out = np.empty((3, 1), dtype=np.float32)
            client.read(0, rows, out)
            client.work(1.0 + client.worker)
            client.add(0, rows, out + 1.0)
            client.tick()

    return work


@pytest.mark.parametrize(
    ("name", "rule", "policy", "faults"),
    [
        ("bsp", BSP(), Eager(), []),
        ("ssp-reset", SSP(1), Eager(), [Reset(0, 1, at="1.15ms")]),
        ("ssp-lazy", SSP(1), Lazy(), []),
        ("ssp-managed", SSP(1), Managed("200kB", burst=(2, 2)), []),
        ("bsp-crash", BSP(), Eager(), [Crash(1, at="4.5ms", back_after="1ms")]),
    ],
)
def test_golden_traces(name: str, rule: Rule, policy: Policy, faults: list[Any]) -> None:
    spec = Simulated(nodes=2, threads=1, seconds_per_item=1e-3, faults=faults, detect="1ms", message_cost=(1e-5, 1e-9))
    tables = (TableSpec("x", add, rows=4, cols=1, partition="range"),)
    tried = job(few(), rule, policy, workers=2, tables=tables, record="full", every_clocks=1)
    text = told(spec, tried)
    path = GOLDEN / f"{name}.txt"
    if WRITE:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert path.exists(), f"no golden file {path.name}; see the top of this module"
    assert text == path.read_text(encoding="utf-8")


def test_messages_stay_as_they_were_handed_over() -> None:
    """Nobody changes an array that is on its way; a recording keeps them to the end."""
    outcome = run(TROUBLED, job(rule=SSP(1), policy=Managed("1MB", burst=(3, 3)), record="full"))
    recording = outcome.recording
    assert all(isinstance(entry.message, Update) for entry in recording.updates)
    assert all(isinstance(entry.message, Rows) for entry in recording.rows)
    total = np.zeros((ROWS, 3))
    for entry in recording.updates:
        np.add.at(total, entry.message.keys, entry.message.deltas.astype(np.float64))
    np.testing.assert_allclose(total, table(outcome), rtol=1e-3, atol=1e-3)
