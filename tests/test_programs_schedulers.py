"""Schedulers on nodes of their own: the rounds and bits of schedulers on the driver, whatever crashes."""

from __future__ import annotations

import os
import random
import signal
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse

import stretto as st
from programs_cut import Cut, Remembering
from programs_made import Lasso, bits, regression
from rounds_fleet import Stepped
from stretto.errors import PlanError, RunError
from stretto.runtime.cluster.rounds import driver
from stretto.runtime.cluster.rounds.remote_choices import RemoteChoices
from stretto.runtime.cluster.rounds.task import RoundsTask
from stretto.runtime.simulated.faults import Crash, Pause
from stretto.schedule.columns import columns_of
from stretto.schedule.scheduler_share import RemoteChooser, scheduler_share
from test_programs_coordinates import data

ROUNDS = 40


class Two(Cut):
    """Two schedulers, and a priority function."""

    schedule = st.schedule.prioritised(2, by=np.abs, conflicts=None, schedulers=2, floor=0.5)


class TwoRemembering(Two, Remembering):
    """The parts have state as well."""


def cosine(jobs: Any, columns: Any) -> Any:
    return st.schedule.correlation(jobs, columns)


class Whole(Lasso):
    """Data that are not cut; conflicts of the user's."""

    def __init__(self) -> None:
        X, y = regression()
        super().__init__(X, y)
        self.columns = X
        vars(self)["schedule"] = st.schedule.prioritised(3, conflicts=cosine, threshold=0.3, schedulers=3)


MADE = {"parts": Two, "parts with state": TwoRemembering, "not cut": Whole}
SERIAL: dict[tuple[str, int], bytes] = {}


def made(name: str, depth: int, runtime: Any, **options: Any) -> Any:
    return st.run(MADE[name](), rounds=ROUNDS, pipeline=depth, every=5, seed=3, runtime=runtime, **options)


def serial(name: str, depth: int) -> bytes:
    if (name, depth) not in SERIAL:
        SERIAL[name, depth] = bits(made(name, depth, st.Serial()))
    return SERIAL[name, depth]


@pytest.mark.parametrize(("name", "depth"), [*product(MADE, (3,)), ("parts", 1), ("not cut", 2)])
def test_programs_have_the_bits_of_a_serial_run(name: str, depth: int) -> None:
    one = made(name, depth, st.Serial(), record=True)
    for nodes in (4, 6):
        other = made(name, depth, st.Simulated(nodes=nodes), schedulers_on="nodes", record=True)
        assert bits(other) == serial(name, depth)
        assert [(r.jobs, r.read) for r in other.record] == [(r.jobs, r.read) for r in one.record]


def regression_bits(case: Any, runtime: Any, **how: Any) -> Any:
    kind, loss, by, depth, queues = case
    X, y = data(kind, loss)
    spec = st.schedule.prioritised(8, threshold=0.2, schedulers=queues)
    program = st.SparseRegression(X, y, 0.05, loss=loss, by=by, blocks=5, intercept=True, schedule=spec)
    result = st.run(program, rounds=ROUNDS, pipeline=depth, every=7, seed=4, record=True, runtime=runtime, **how)
    arrays = [result.params[name].tobytes() for name in ("coef", "intercept", "fitted")]
    looks = [(look.round, look.objective, look.samples) for look in result.history]
    return arrays, looks, [(one.jobs, one.read) for one in result.record]


CASES = list(product(("dense", "sparse"), ("squared", "logistic"), ("rows", "columns"), (1, 2, 3), (1, 2, 3)))


@pytest.mark.parametrize("case", CASES[::11], ids=str)
def test_sparse_regressions_have_the_bits_of_threads(case: Any) -> None:
    nodes = st.Simulated(nodes=5)
    assert regression_bits(case, nodes, schedulers_on="nodes") == regression_bits(case, st.Threads(1))


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=str)
def test_sparse_regressions_have_the_bits_of_threads_for_all(case: Any) -> None:
    test_sparse_regressions_have_the_bits_of_threads(case)


def faulty(seed: int) -> int:
    """Crashes and pauses of any node, schedulers among them; how many were lost."""
    chance = random.Random(seed)
    name, depth = list(product(MADE, (1, 2, 3)))[seed % 9]
    span = chance.choice([0.02, 0.1])
    faults: list[Any] = []
    for _ in range(chance.randint(1, 4)):
        node, at = chance.choice([0, 1, 2, 3, 4, 4, 5, 5]), chance.random() * span
        crash = chance.random() < 0.7
        back = chance.choice([0.001, 0.5, 20.0])
        faults.append(Crash(node, at, back_after=back) if crash else Pause(node, at, chance.choice([0.0005, 8.0])))
    runtime = st.Simulated(nodes=6, threads=1 + seed % 2, faults=faults, seconds_per_item=2e-4, detect=0.05)
    assert bits(made(name, depth, runtime, schedulers_on="nodes")) == serial(name, depth), (seed, name, depth)
    assert runtime.report is not None
    return len(runtime.report.losses)


def test_simulated_faults() -> None:
    assert sum(faulty(seed) for seed in range(9)) > 5


@pytest.mark.slow
@pytest.mark.parametrize("block", range(4))
def test_hundreds_of_simulated_faults(block: int) -> None:
    for seed in range(250 * block, 250 * block + 250):
        faulty(seed)


@pytest.mark.parametrize("seed", [0, 2, 5])
def test_messages_in_any_order_and_hosts_that_share_nodes(seed: int) -> None:
    name, depth = list(product(MADE, (2, 3)))[seed % 6]
    runtime = Stepped(6, seed, crash=0.004, gone=0.3)
    assert bits(made(name, depth, runtime, schedulers_on="nodes")) == serial(name, depth)


@pytest.mark.slow
def test_a_killed_scheduler_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    killed: list[int] = []
    begin = driver.HostRounds._flush

    def flush(self: Any) -> None:
        begin(self)
        if not killed and self.pipeline.done >= 21:
            killed.append(self.hosts.addresses[2].pid)  # nodes 0, 1: updates; 2, 3: schedulers
            os.kill(killed[-1], signal.SIGKILL)

    monkeypatch.setattr(driver.HostRounds, "_flush", flush)
    with pytest.warns(RuntimeWarning, match="host 2 .*was lost"):
        result = made("parts", 3, st.Cluster("processes", nodes=4), schedulers_on="nodes")
    assert killed
    assert bits(result) == serial("parts", 3)


def test_schedulers_hold_their_columns_and_no_other_data(monkeypatch: pytest.MonkeyPatch) -> None:
    held: list[tuple[list[int], list[int]]] = []
    take = RoundsTask._take

    def watch(self: Any, number: int, message: Any) -> None:
        take(self, number, message)
        if number == 0:
            held.append((sorted(self.node.work.parts), sorted(self.node.work.schedulers)))

    monkeypatch.setattr(RoundsTask, "_take", watch)
    made("parts", 2, st.Simulated(nodes=4), schedulers_on="nodes")
    assert held == [([0, 1, 2], []), ([3, 4], []), ([], [5]), ([], [6])]
    held.clear()
    made("not cut", 2, st.Simulated(nodes=4), schedulers_on="nodes")
    assert held == [([-1], []), ([], [0]), ([], [1]), ([], [2])]
    for kind in ("dense", "sparse"):
        columns = columns_of(data(kind)[0])
        shares = [scheduler_share(st.schedule.prioritised(schedulers=3), 90, 0, columns, q) for q in range(3)]
        assert sum(len(share.data.own.values) for share in shares) == len(columns.values)


@pytest.mark.parametrize("long", [0, 700])
def test_a_scheduler_chooses_what_it_would_on_the_driver(long: int) -> None:
    """Also where only some columns of a sparse matrix are long, and none of them is its own."""
    draw = np.random.default_rng(0)
    X = scipy.sparse.random_array((1500, 60), density=0.02, format="csc", rng=draw).tolil()
    X[:long, [0, 3, 6]] = 1.0 + draw.random((long, 3))  # of scheduler 0
    X = X.tocsc()
    spec = st.schedule.prioritised(4, threshold=0.02, schedulers=3)
    whole = spec.start(60, 5, X)
    parts = [scheduler_share(spec, 60, 5, X, q).start() for q in range(3)]
    waiting: list[Any] = [[] for _ in range(3)]
    for number in range(60):
        q = number % 3
        jobs = whole.choose()
        assert np.array_equal(parts[q].choose(waiting[q]), jobs)
        change = draw.standard_normal(len(jobs)) * (draw.random(len(jobs)) < 0.7)
        whole.learn(jobs, change)
        waiting[q] = [(jobs, change)]
        if number % 7 == 0:  # a scheduler that was lost, from its state
            parts[q], state = scheduler_share(spec, 60, 5, X, q).start(), parts[q].state()
            parts[q].restore(state)


class Stopped(Exception):
    pass


def stopping(at: int) -> Any:
    def until(look: Any) -> bool:
        if look.round == at:
            raise Stopped
        return False

    return until


def resumed(name: str, depth: int, folder: Path, stops: tuple[int, ...], places: list[Any]) -> Any:
    """It stops in some rounds, goes on elsewhere, and ends."""
    keeps: dict[str, Any] = {"schedulers_on": "nodes", "checkpoint": folder, "checkpoint_every": 3}
    for turn, at in enumerate(stops):
        with pytest.raises(RunError, match="Stopped"):
            made(name, depth, places[turn], until=stopping(at), resume=turn > 0, **keeps)
    return made(name, depth, places[-1], resume=True, **keeps)


@pytest.mark.parametrize(("name", "depth"), [*product(MADE, (3,)), ("parts", 1), ("not cut", 2)])
def test_resumed_with_the_states_of_schedulers(name: str, depth: int, tmp_path: Path) -> None:
    for seed in range(3):
        places = [
            st.Simulated(nodes=4 + seed, latency=["0us", "1ms", "30ms"][seed]),
            Stepped(5, seed, crash=0.004, gone=0.3),
            st.Simulated(nodes=6),
        ]
        found = resumed(name, depth, tmp_path / str(seed), (10, 25), places)
        assert bits(found) == serial(name, depth), seed


@pytest.mark.slow
@pytest.mark.parametrize("block", range(4))
def test_resumed_in_any_order_of_messages(block: int, tmp_path: Path) -> None:
    for seed in range(50 * block, 50 * block + 50):
        chance = random.Random(seed)
        name, depth = list(product(MADE, (1, 2, 3)))[seed % 9]
        places = [Stepped(chance.choice([4, 6]), chance.randrange(999), crash=0.003, gone=0.3) for _ in range(3)]
        stops = tuple(sorted(chance.sample(range(5, ROUNDS, 5), 2)))
        assert bits(resumed(name, depth, tmp_path / str(seed), stops, places)) == serial(name, depth), seed


def test_states_of_schedulers_that_are_ahead_are_saved_with_their_rounds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some checkpoints must hold rounds that arrived late, and requests that are not answered."""
    held: list[tuple[int, int]] = []
    restore, receive = RemoteChoices.restore, RemoteChooser.receive

    def restoring(self: RemoteChoices, state: Any, chosen: bytes) -> Any:
        late = restore(self, state, chosen)
        held.append((0, len(self.requests)))
        monkeypatch.setattr(RemoteChooser, "receive", receiving)
        return late

    def receiving(self: RemoteChooser, number: int, jobs: Any) -> None:
        if number not in self._chosen and number > self._made:
            held.append((number, 0))
        receive(self, number, jobs)

    def started(self: Any) -> None:
        monkeypatch.setattr(RemoteChooser, "receive", receive)  # from here on rounds arrive from schedulers
        begin(self)

    begin = driver.HostRounds._begin
    monkeypatch.setattr(RemoteChoices, "restore", restoring)
    monkeypatch.setattr(driver.HostRounds, "_begin", started)
    for seed in range(6):
        places = [Stepped(6, 2 * seed, crash=0.002, late=0.95), Stepped(5, 2 * seed + 1)]
        found = resumed("not cut", 3, tmp_path / str(seed), (20,), places)
        assert bits(found) == serial("not cut", 3), seed
    assert any(late for late, _ in held)
    assert any(requests for _, requests in held)


@pytest.mark.parametrize("case", [("dense", "squared", "rows", 3, 2), ("sparse", "logistic", "columns", 2, 3)], ids=str)
def test_sparse_regressions_are_resumed(case: Any, tmp_path: Path) -> None:
    expect = regression_bits(case, st.Threads(1))
    keeps: dict[str, Any] = {"schedulers_on": "nodes", "checkpoint": tmp_path, "checkpoint_every": 6}
    with pytest.raises(RunError, match="Stopped"):
        regression_bits(case, st.Simulated(nodes=5), until=stopping(21), **keeps)
    arrays, looks, _ = regression_bits(case, st.Simulated(nodes=6), resume=True, **keeps)
    assert (arrays, looks) == expect[:2]
    with pytest.raises(PlanError, match="was saved with schedulers_on='nodes'; resume with schedulers_on='nodes'"):
        regression_bits(case, st.Simulated(nodes=6), checkpoint=tmp_path, resume=True)


def failing(change: Any) -> Any:
    raise ValueError("no priority")


def test_what_goes_wrong_is_named() -> None:
    nodes = st.Simulated(nodes=4)
    two = Two()
    two.schedule = replace(Two.schedule, by=failing)
    with pytest.raises(RunError, match=r"Two: `schedule` failed in round \d: ValueError: no priority"):
        st.run(two, rounds=9, runtime=nodes, schedulers_on="nodes")
    for wrong, says in (
        ({"schedulers_on": "moon"}, "schedulers_on='moon'; give 'driver' or 'nodes'"),
        ({"runtime": st.Threads(2)}, r"Threads\(.*has no nodes; give st\.Cluster"),
        ({"runtime": st.Simulated(nodes=2)}, "need 3 nodes, and there are 2; give more nodes, or fewer schedulers"),
    ):
        given: dict[str, Any] = {"runtime": nodes, "schedulers_on": "nodes", **wrong}
        with pytest.raises(PlanError, match=says):
            st.run(Two(), rounds=3, **given)
    with pytest.raises(PlanError, match=r"chooses on the driver; give st\.schedule\.prioritised\(schedulers=…\)"):
        st.run(Cut(), rounds=3, runtime=nodes, schedulers_on="nodes")
