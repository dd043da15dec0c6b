"""Rotation over nodes: who has which block when, and factors with the same bits as on one machine."""

from __future__ import annotations

import random
import threading
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

import stretto as st
from jobs import PROBLEMS, digest, job_on, some_ratings
from ring_fleet import InProcess, QueueHosts
from stretto.errors import Diverged
from stretto.kernels.core import claims
from stretto.kernels.core.departures import arrive, await_departures
from stretto.plan.arrays import by_cols, by_rows
from stretto.runtime.blocks.train import JobTrainer
from stretto.runtime.cluster.blocks.block_executor import ClusterCrew
from stretto.runtime.cluster.blocks.ring import Block, Ring
from stretto.runtime.cluster.pages import LEAST, Pages
from stretto.runtime.files.run_checkpoints import Saving
from stretto.runtime.runtimes import Runtime, Serial
from stretto.runtime.session import Session
from stretto.schedule.orders.order import Ints, Order
from stretto.schedule.orders.rotation import independent, panels, rotation
from stretto.schedule.orders.route import Route, owners
from stretto.schedule.orders.wavefront import wavefront
from stretto.solvers.factorization.problem import FactorizationProblem

DATA = some_ratings()
SGD = [name for name, problem in PROBLEMS.items() if problem.solver == "sgd"]
ORDERS = [
    rotation(8),
    rotation(6, "ring"),
    wavefront(5, 7),
    panels(4, 2),
    independent(9),
    Order("one", 1, 3, np.zeros(3, np.int64), np.arange(3)),
]


def on(nodes: int, threads: int = 1, **faults: Any) -> Any:
    """A runtime of nodes in this process; Any, for it is none that users have."""
    return InProcess(nodes, threads, **faults)


def learned(runtime: Runtime, problem: FactorizationProblem, epochs: int = 3, **job: Any) -> tuple[str, list[float]]:
    """(hash of everything learned, objectives)."""
    with job_on(runtime, problem, DATA, **job) as (made, crew):
        outcome = JobTrainer(made, crew).run(epochs)
        return digest(made.arrays()), [report.objective for report in outcome.reports]


# --- decisions ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("nodes", [1, 2, 3, 4, 11])
@pytest.mark.parametrize("order", ORDERS, ids=lambda order: order.name)
def test_blocks_are_where_their_visits_are(order: Order, nodes: int) -> None:
    """In serial order, over two epochs: every visit finds its column block on its node, moved only by departures."""
    route = Route(order, owners(order, np.ones(len(order), np.int64), nodes))
    none = np.zeros(order.cols, np.int64)
    at = [route.holder(c, 0) for c in range(order.cols)]
    leaves = {n: [list(turns) for turns in route.departures(n, none)] for n in range(nodes)}
    for _ in range(2):
        for v in range(len(order)):
            c, turn = int(order.col_block[v]), int(order.col_turn[v]) + 1
            assert at[c] == route.node[v]
            if turn in leaves[at[c]][c]:
                at[c] = route.holder(c, turn)
        assert at == [route.holder(c, 0) for c in range(order.cols)]


def test_owners_are_neighbours_with_equal_work() -> None:
    order = rotation(16)
    weight = np.where(order.row_block < 4, 3, 1)
    owner = owners(order, weight, 3)
    assert (np.diff(owner) >= 0).all()
    assert set(owner) == {0, 1, 2}
    work = np.bincount(owner[order.row_block], weights=weight)
    assert work.max() - work.min() <= 2 * 3 * 16  # a row block more or less on either side


def test_the_exchange_order_moves_blocks_seldom() -> None:
    order = rotation(32)
    assert Route(order, owners(order, np.ones(len(order), np.int64), 4)).moves() == 32 * 4
    assert Route(order, np.arange(32) % 4).moves() == 32 * 32


def test_pieces_put_together_are_the_array() -> None:
    array = np.arange(60.0).reshape(10, 6)
    for role in (by_rows("a", [0, 3, 3, 10]).ranges, by_cols("b", [0, 2, 5, 6], axis=1).ranges):
        assert role is not None
        other = np.zeros_like(array)
        for blocks in ([0, 2], [1]):
            role.fill(other, role.pieces(array, blocks))
        assert np.array_equal(other, array)
    ranges = by_rows("a", [0, 3, 3, 10]).ranges
    assert ranges is not None
    assert ranges.spans([0, 1, 2]) == [(0, 10)]


class _World:
    """Rings of all nodes; whatever may happen next happens in an order drawn from the seed."""

    def __init__(self, order: Order, nodes: int, seed: int) -> None:
        self.order, self.nodes = order, nodes
        self.route = Route(order, owners(order, np.ones(len(order), np.int64), nodes))
        self.rings = [Ring(n, self.route) for n in range(nodes)]
        self.flying: list[tuple[int, Block]] = []
        self.draw = random.Random(seed)
        none = np.zeros(order.cols, np.int64)
        for ring in self.rings:
            ring.settle(0, none)

    def run(self, epoch: int, finished: set[int], most: int) -> None:
        """Until all visits are made, or `most` of them."""
        done: dict[int, Ints] = {}
        waiting = list(range(self.nodes))
        start = np.bincount(self.order.col_block[sorted(finished)], minlength=self.order.cols).astype(np.int64)
        rows = np.bincount(self.order.row_block[sorted(finished)], minlength=self.order.rows)
        made = 0
        while True:
            ready = [
                v
                for v in range(len(self.order))
                if v not in finished
                and made < most
                and int(self.route.node[v]) in done
                and rows[self.order.row_block[v]] == self.order.row_turn[v]
                and done[int(self.route.node[v])][self.order.col_block[v]] == self.order.col_turn[v]
            ]
            choices = [("start", n) for n in waiting] + [("visit", v) for v in ready]
            choices += [("arrive", k) for k in range(len(self.flying))]
            if not choices or (made >= most and not waiting):
                break
            what, which = self.draw.choice(choices)
            if what == "start":
                waiting.remove(which)
                done[which] = self.rings[which].start(epoch, start)
            elif what == "visit":
                node, c = int(self.route.node[which]), int(self.order.col_block[which])
                assert self.rings[node].here[c]
                rows[self.order.row_block[which]] += 1
                finished.add(which)
                made += 1
                done[node][c] += 1
                if done[node][c] == self.rings[node].leave_at[c]:
                    leave = self.rings[node].leaves(c)
                    self.flying.append((leave.node, Block(0, leave.epoch, c, leave.turn, ())))
            else:
                self.arrive(which, done)

    def arrive(self, which: int, done: dict[int, Ints]) -> None:
        node, block = self.flying.pop(which)
        assert not self.rings[node].refuses(block)
        turn = self.rings[node].arrives(block)
        if turn is not None and node in done:
            done[node][block.block] = turn
        assert sum(ring.here[block.block] for ring in self.rings) == 1


@pytest.mark.parametrize("seed", range(20))
def test_every_visit_is_made_whatever_happens_first(seed: int) -> None:
    """Nodes begin at different times, blocks overtake each other, runs are stopped and go on."""
    draw = random.Random(seed)
    order = draw.choice(ORDERS)
    world = _World(order, draw.choice([1, 2, 3, 5]), seed)
    epoch = 0
    while epoch < 3:
        finished: set[int] = set()
        while len(finished) < len(order):
            world.run(epoch, finished, draw.choice([len(order), len(order), 1 + len(order) // 2]))
        epoch += 1
    turns = np.zeros(order.cols, np.int64)
    while world.flying:
        world.arrive(0, {})
    assert all(ring.complete(turns) for ring in world.rings)


def test_a_block_that_does_not_belong_is_refused() -> None:
    world = _World(rotation(4), 2, 0)
    ring = world.rings[0]
    for block in (
        Block(0, 0, 9, 0, ()),  # there is none
        Block(0, 0, 0, 9, ()),
        Block(0, 0, 0, 1, ()),  # it has arrived
        Block(0, 7, 3, 2, ()),  # of another time
        Block(0, 0, 3, 1, ()),  # the other node's turn
    ):
        assert ring.refuses(block)


# --- compiled waiting -----------------------------------------------------------------------------------------------


def test_departures_wait_until_a_block_is_ready() -> None:
    col_done, leave_at = np.array([0, -1, 3]), np.array([2, 2, -1])
    control, ready = np.zeros(claims.CONTROL_SLOTS, np.int64), np.zeros(3, np.int64)
    control[claims.LEFT] = 1
    found: list[list[int]] = []
    watcher = threading.Thread(
        target=lambda: found.append(ready[: await_departures.exact(col_done, leave_at, control, ready, 10)].tolist())
    )
    watcher.start()
    arrive.exact(col_done, 1, 2)
    watcher.join(20)
    assert found == [[1]]
    leave_at[1] = -1
    control[claims.STOP] = 1
    assert await_departures.exact(col_done, leave_at, control, ready, 10) == 0


def test_pages_are_given_back() -> None:
    pages = Pages((LEAST, 2), np.float32)
    pages.array[:] = 1.0
    pages.forget(10, LEAST // 8)
    assert pages.array.sum() == 2 * LEAST  # too little to be worth it
    pages.forget(10, LEAST // 2)
    assert (pages.array[:10] == 1.0).all()
    assert (pages.array[LEAST // 2 :] == 1.0).all()
    assert 0 < LEAST // 2 - int(pages.array[: LEAST // 2, 0].sum()) <= LEAST // 2 - 10


# --- the same bits --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SGD)
def test_the_same_factors_on_nodes(name: str) -> None:
    expected = learned(Serial(), PROBLEMS[name])
    assert learned(on(3), PROBLEMS[name]) == expected
    assert learned(on(2, threads=2), PROBLEMS[name]) == expected


@pytest.mark.parametrize("nodes", [1, 4, 9])
def test_any_number_of_nodes(nodes: int) -> None:
    """Nine are more than there are row blocks."""
    assert learned(on(nodes), PROBLEMS["sgd"]) == learned(Serial(), PROBLEMS["sgd"])


def test_profile_fast_on_nodes() -> None:
    problem = PROBLEMS["adagrad"]
    assert learned(on(3), problem, profile="fast") == learned(Serial(), problem, profile="fast")


def test_a_wire_that_loses_and_repeats() -> None:
    faulty = on(3, lose=0.05, twice=0.1, seed=3)
    assert learned(faulty, PROBLEMS["adagrad"], epochs=2) == learned(Serial(), PROBLEMS["adagrad"], epochs=2)


def test_entries_travel_once_and_blocks_no_more_than_they_must() -> None:
    runtime = on(2)
    with job_on(runtime, PROBLEMS["sgd, no biases"], DATA) as (job, crew):
        JobTrainer(job, crew).run(4)
        order = job.plan.order
        hosts = runtime.hosts[0]
        assert hosts.asked.count("load") == hosts.asked.count("put") == 2
        assert hosts.asked.count("run") == 2 * 3  # the second was announced with the first
        moves = Route(order, owners(order, job.plan.weight, 2)).moves()
        assert len(hosts.blocks) == 4 * moves
        assert {(source, target) for source, target, *_ in hosts.blocks} == {(0, 1), (1, 0)}
        ran = cast(ClusterCrew, crew).ran
        assert sum(len(one.made) for one in ran.values()) == len(order)
        assert all(one.waited <= one.seconds * 1.5 for one in ran.values())


def test_a_node_has_only_its_part_of_the_data() -> None:
    runtime = on(3)
    with job_on(runtime, PROBLEMS["sgd"], DATA) as (job, crew):
        JobTrainer(job, crew).run(1)
        held = [host.task.nodes[n]._plans[0].args["r"] for n, host in runtime.hosts[0].hosts.items()]
        whole = job.steps(0)[0].args[3]
        assert all(0 < np.count_nonzero(part) < np.count_nonzero(whole) for part in held)
        assert np.array_equal(sum(held), whole)


# --- the estimator --------------------------------------------------------------------------------------------------


def fitted(runtime: Any, **settings: Any) -> tuple[str, Any]:
    model = st.MatrixFactorization(n_components=6, max_iter=4, width=4, random_state=0, runtime=runtime, **settings)
    model.fit(DATA, validation=0.2)
    found = {name: getattr(model, name) for name in ("user_factors_", "item_factors_", "user_bias_", "item_bias_")}
    return digest(found), model


def test_validation_early_stopping_and_going_on() -> None:
    kinds: dict[str, Any] = {"early_stopping": True, "n_iter_no_change": 1, "tol": 1e9, "warm_start": True}
    (mine, model), (theirs, other) = fitted(on(3), **kinds), fitted(st.Serial(), **kinds)
    assert mine == theirs
    assert model.history_ == other.history_
    assert model.n_iter_ == 2
    assert model.fingerprint_ == other.fingerprint_
    for each in (model, other):
        each.partial_fit(DATA)
    assert np.array_equal(model.user_factors_, other.user_factors_)
    assert np.array_equal(model.predict([[0, 1], [5, 3]]), other.predict([[0, 1], [5, 3]]))
    assert "inprocess" in model.plan_.explain()


def test_divergence_names_the_block() -> None:
    wild = FactorizationProblem(5, learning_rate=60.0)
    said = []
    for runtime in (Serial(), on(3)):
        with pytest.raises(Diverged) as caught:
            learned(runtime, wild)
        said.append(str(caught.value))
    # Other nodes go on until they hear of it, and may find a second such block before.
    assert all("NaN or infinity in epoch" in text and "lower learning_rate" in text for text in said)


# --- stopping and going on ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("after", [Serial(), on(3), st.Threads(2)], ids=["serial", "nodes", "threads"])
def test_stopped_within_an_epoch_and_resumed_anywhere(tmp_path: Path, after: Any) -> None:
    """Asked for an end in the middle of an epoch: the finished visits are saved, and a resumed run continues there."""
    problem = PROBLEMS["adagrad"]
    expected, _ = learned(Serial(), problem)
    with job_on(on(2), problem, DATA) as (job, crew):
        # Somebody who looks after every epoch: nobody is ahead, and `Asking` can tell when the second begins.
        trainer = JobTrainer(job, crew, saving=Saving(tmp_path), stop_after=lambda epoch, report: False)
        hosts = cast(ClusterCrew, crew).hosts
        hosts.before = Asking(cast(ClusterCrew, crew), trainer)  # type: ignore[attr-defined]
        outcome = trainer.run(3)
        assert outcome.status == "stopped"
        assert trainer.position.epoch == 1
        made = trainer.position.finished
        assert made is not None
        assert 0 < len(made) < len(job.plan.order)
        trainer.save()
    with job_on(after, problem, DATA) as (job, crew):
        trainer = JobTrainer(job, crew, saving=Saving(tmp_path))
        trainer.restore()
        trainer.run(3)
        assert digest(job.arrays()) == expected


class Asking:
    """Asks for an end in the second epoch, once no block moves any more."""

    def __init__(self, crew: ClusterCrew, trainer: JobTrainer) -> None:
        self.crew, self.trainer = crew, trainer

    def __call__(self, what: str) -> None:
        hosts = cast(QueueHosts, self.crew.hosts)
        if what == "run" and self.trainer.position.epoch == 1:
            hosts.hold()
            self.crew.ask()
        elif what == "stop":
            hosts.release()


def test_checkpoints_every_so_often(tmp_path: Path) -> None:
    """Saving in the middle of epochs: the crew stops, gathers and goes on where it was."""
    expected = learned(Serial(), PROBLEMS["adarevision"], epochs=3)
    with job_on(on(3), PROBLEMS["adarevision"], DATA) as (job, crew):
        outcome = JobTrainer(job, crew, saving=Saving(tmp_path, every_seconds=0.004)).run(3)
        assert (digest(job.arrays()), [report.objective for report in outcome.reports]) == expected
        assert outcome.position.saves > 1


def test_a_session_on_nodes_is_resumed_here(tmp_path: Path) -> None:
    model = st.MatrixFactorization(n_components=4, max_iter=2, width=4, random_state=0, runtime=on(2))
    model.fit(DATA, session=Session(record=tmp_path / "run", saving=Saving(tmp_path / "saved", every_epochs=1)))
    other = st.MatrixFactorization(n_components=4, max_iter=2, width=4, random_state=0, runtime=st.Serial())
    other.fit(DATA, session=Session(saving=Saving(tmp_path / "saved"), resume=True))
    assert np.array_equal(model.item_factors_, other.item_factors_)
