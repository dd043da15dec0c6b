"""Epochs that nodes begin without a word of the driver: the same bits, and every end is at a state that there is."""

from __future__ import annotations

import random
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from jobs import PROBLEMS, digest, job_on, some_ratings
from ring_fleet import InProcess, QueueHosts
from stretto.errors import Diverged, RunError
from stretto.observe.events import EpochDone
from stretto.runtime.blocks.train import JobTrainer
from stretto.runtime.cluster.blocks import block_executor as crews
from stretto.runtime.cluster.blocks import driver_runs
from stretto.runtime.cluster.blocks.block_executor import ClusterCrew
from stretto.runtime.cluster.blocks.driver_runs import Runs
from stretto.runtime.cluster.blocks.driver_step import RepeatableRun
from stretto.runtime.cluster.blocks.ring import Block, Ring
from stretto.runtime.cluster.blocks.step_messages import NodeRunResult, StartRun
from stretto.runtime.cluster.hosts.calls import HostEvent
from stretto.runtime.cluster.hosts.fleet import HostLost
from stretto.runtime.cluster.spec import Cluster
from stretto.runtime.files.run_checkpoints import Saving
from stretto.runtime.runtimes import Serial
from stretto.schedule.orders.order import Ints, Order
from stretto.schedule.orders.rotation import panels, rotation
from stretto.schedule.orders.route import Route, owners
from stretto.schedule.orders.wavefront import wavefront

DATA = some_ratings()
NAME = "adagrad"


def serial(epochs: int) -> tuple[str, list[float]]:
    with job_on(Serial(), PROBLEMS[NAME], DATA) as (job, crew):
        outcome = JobTrainer(job, crew).run(epochs)
        return digest(job.arrays()), [report.objective for report in outcome.reports]


def on(nodes: int = 3, **faults: Any) -> Any:
    return InProcess(nodes, **faults)


# --- decisions ------------------------------------------------------------------------------------------------------


class World:
    """Rings of all nodes, each in an epoch of its own; what happens next is drawn from the seed."""

    def __init__(self, order: Order, nodes: int, seed: int) -> None:
        self.order, self.nodes, self.draw = order, nodes, random.Random(seed)
        self.route = Route(order, owners(order, np.ones(len(order), np.int64), nodes))
        self.rings = [Ring(n, self.route) for n in range(nodes)]
        self.epoch = [-1] * nodes
        self.done: list[Ints] = [np.zeros(0, np.int64)] * nodes
        self.made: list[set[int]] = [set() for _ in range(nodes)]  # of each node in its epoch
        self.log: list[tuple[int, int]] = []  # (epoch, visit) in the order they were made
        self.flying: list[tuple[int, Block]] = []
        self.none = np.zeros(order.cols, np.int64)
        for ring in self.rings:
            ring.settle(0, self.none)

    def first(self) -> int:
        """The epoch that not all have made."""
        whole = [len(self.made[n]) == len(self.route.own_visits(n)) for n in range(self.nodes)]
        return min(epoch + 1 if epoch < 0 or done else epoch for epoch, done in zip(self.epoch, whole, strict=True))

    def choices(self, last: list[int], stop: int) -> list[tuple[str, int]]:
        """last: of each node, the last epoch it may begin. stop: no visits of this epoch or later ones."""
        found = [("arrive", k) for k in range(len(self.flying))]
        for n in range(self.nodes):
            own = set(self.route.own_visits(n).tolist())
            if (self.epoch[n] < 0 or self.made[n] == own) and self.epoch[n] < last[n]:
                found.append(("begin", n))
            elif 0 <= self.epoch[n] < stop:
                for v in own - self.made[n]:
                    rows = sum(int(self.order.row_block[w] == self.order.row_block[v]) for w in self.made[n])
                    if (
                        rows == self.order.row_turn[v]
                        and self.done[n][self.order.col_block[v]] == self.order.col_turn[v]
                    ):
                        found.append(("visit", v))
        return found

    def step(self, last: list[int], stop: int) -> bool:
        """One thing more, if there is one."""
        choices = self.choices(last, stop)
        if not choices:
            return False
        what, which = self.draw.choice(choices)
        if what == "begin":
            self.epoch[which] += 1
            self.made[which] = set()
            self.done[which] = self.rings[which].start(self.epoch[which], self.none)
        elif what == "visit":
            n, c = int(self.route.node[which]), int(self.order.col_block[which])
            assert self.rings[n].here[c]
            self.made[n].add(which)
            self.log.append((self.epoch[n], which))
            self.done[n][c] += 1
            if self.done[n][c] == self.rings[n].leave_at[c]:
                leave = self.rings[n].leaves(c)
                self.flying.append((leave.node, Block(0, leave.epoch, c, leave.turn, ())))
        else:
            n, block = self.flying.pop(which)
            assert not self.rings[n].refuses(block)
            turn = self.rings[n].arrives(block)
            if turn is not None and self.epoch[n] >= 0:
                self.done[n][block.block] = turn
        return True


@pytest.mark.parametrize("seed", range(30))
def test_an_end_is_in_one_epoch_wherever_nodes_are(seed: int) -> None:
    """Ended at a random moment by the rule of `runtime.cluster.blocks.driver_runs`: all visits of the epochs before,
    and of the latest some that are closed under the order, with every block where it belongs after them."""
    draw = random.Random(seed)
    order = draw.choice([rotation(8), rotation(6, "ring"), wavefront(5, 7), panels(4, 2)])
    world = World(order, draw.choice([2, 3, 5]), seed)
    for _ in range(draw.randrange(3 * len(order))):
        world.step([world.first() + 1] * world.nodes, 99)
    first = world.first()
    reached = [max(epoch, first) for epoch in world.epoch]
    for _ in range(5):  # before the second word has come
        world.step(reached, 99)
    latest = max(reached)
    while world.step(reached, latest):
        pass
    assert not world.flying
    for epoch in range(latest):
        assert sorted(v for e, v in world.log if e == epoch) == list(range(len(order)))
    finished = np.array(sorted(v for e, v in world.log if e == latest), np.int64)
    assert order.finished_closed(finished)
    turns = np.bincount(order.col_block[finished], minlength=order.cols).astype(np.int64)
    assert all(ring.complete(turns) for ring in world.rings)


# --- the same bits --------------------------------------------------------------------------------------------------


def test_epochs_follow_each_other_without_a_word() -> None:
    """All Gos but the first are sent while the epoch before is made; if no evaluation is due, the bits are the same."""
    runtime = on(3)
    ahead: list[bool] = []
    with job_on(runtime, PROBLEMS[NAME], DATA) as (job, crew):

        def tell(event: Any) -> None:
            if isinstance(event, EpochDone):
                ahead.append(crew.told_ahead)

        outcome = JobTrainer(job, crew, tell=tell).run(5)
        found = digest(job.arrays()), [report.objective for report in outcome.reports]
    assert found == serial(5)
    assert ahead == [True, True, True, True, False]


@pytest.mark.parametrize("rule", ["a rule to stop", "checkpoints", "held-out ratings"])
def test_nobody_is_ahead_of_a_look(rule: str, tmp_path: Path) -> None:
    looks: dict[str, Any] = {}
    if rule == "a rule to stop":
        looks["stop_after"] = lambda epoch, report: epoch == 3
    elif rule == "checkpoints":
        looks["saving"] = Saving(tmp_path, every_epochs=1)
    runtime = on(2)
    with job_on(runtime, PROBLEMS[NAME], DATA) as (job, crew):
        cast(Any, job).steps_ahead = rule != "held-out ratings"
        JobTrainer(job, crew, tell=lambda event: never(crew.told_ahead), **looks).run(3)
        assert digest(job.arrays()) == serial(3)[0]


def never(what: bool) -> None:
    assert not what


def test_gathered_as_often_as_is_due(monkeypatch: pytest.MonkeyPatch) -> None:
    """A gathering that is due waits for one epoch that nothing follows."""
    monkeypatch.setattr(crews, "_FAILURE_SECONDS", 1e-12)
    runtime = on(3)
    with job_on(runtime, PROBLEMS[NAME], DATA) as (job, crew):
        JobTrainer(job, crew).run(4)
        assert digest(job.arrays()) == serial(4)[0]
    assert runtime.hosts[0].asked.count("fetch") == 3 * 4


# --- ends -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lose", [0.0, 0.02], ids=["wire", "wire that loses"])
def test_stopped_while_nodes_are_in_two_epochs(lose: float, tmp_path: Path) -> None:
    """Asked for an end at one event after the other; what is saved goes on to the same bits."""
    expected = serial(4)
    for question in range(1, 8):
        folder = tmp_path / str(question)
        runtime = on(3, seed=question, lose=lose)
        with job_on(runtime, PROBLEMS[NAME], DATA) as (job, crew):
            trainer = JobTrainer(job, crew, saving=Saving(folder))
            hosts = cast(QueueHosts, cast(ClusterCrew, crew).hosts)
            real, count = hosts.events, [0]

            def events(wait: float, real: Any = real, count: Any = count, crew: Any = crew, at: int = question) -> Any:
                count[0] += 1
                if count[0] == at:
                    crew.ask()
                return real(wait)

            hosts.events = events  # type: ignore[method-assign]
            outcome = trainer.run(4)
            assert outcome.status == "stopped"
            assert not crew.told_ahead
            trainer.save()
        with job_on(Serial(), PROBLEMS[NAME], DATA) as (job, crew):
            trainer = JobTrainer(job, crew, saving=Saving(folder))
            trainer.restore()
            outcome = trainer.run(4)
            assert (digest(job.arrays()), [report.objective for report in outcome.reports]) == expected


def test_somebody_looks_after_all() -> None:
    """A listener raises while the nodes are ahead: the arrays are those of the epochs that were reported."""
    runtime = on(3)
    with job_on(runtime, PROBLEMS[NAME], DATA) as (job, crew):

        def tell(event: Any) -> None:
            if isinstance(event, EpochDone) and event.epoch == 2:
                raise LookupError("raised by the test")

        with pytest.raises(LookupError):
            JobTrainer(job, crew, tell=tell).run(4)
        assert crew.told_ahead
        crew.gather()
        assert digest(job.arrays()) == serial(2)[0]
        assert runtime.hosts[0].incarnation == 2


def test_another_step_than_was_told_ahead() -> None:
    """Promised one step and asked for another: the promise is forgotten, and nothing of it is left."""
    found = []
    for runtime in (Serial(), on(2)):
        with job_on(cast(Any, runtime), PROBLEMS[NAME], DATA) as (job, crew):
            first, second, third = (job.steps(epoch)[0] for epoch in range(3))
            crew.run(first, "exact", then=second)
            crew.run(third, "exact")
            crew.gather()
            found.append(digest(job.arrays()))
    assert found[0] == found[1]


@pytest.mark.parametrize("visit", [0, 5, 11])
def test_a_visit_fails(visit: int) -> None:
    """NaN in one block: all end, whatever epoch they are in, and nothing is left to be asked for."""
    runtime = on(3)
    with job_on(runtime, PROBLEMS[NAME], DATA) as (job, crew):
        step = job.steps(0)[0]
        step.args[3][int(step.args[0][visit])] = np.nan  # a rating
        with pytest.raises(Diverged, match="NaN or infinity in epoch 1"):
            JobTrainer(job, crew).run(4)
        assert not crew.told_ahead


# --- what the driver says and hears -----------------------------------------------------------------------------------


def ran(epoch: int, made: int, failed: int = -1) -> NodeRunResult:
    visits = np.arange(made)
    log = np.stack([visits, 0 * visits, 0 * visits, 1 + visits], axis=1)
    return NodeRunResult(epoch, visits, np.zeros(made), {}, log, failed, {}, 0.0, 0.0, 0, {})


class Script:
    """Two hosts that answer what a test gives them: lists of (node, Ran), or something that is raised."""

    nodes, where, spec = 2, (0, 1), Cluster("processes", nodes=2)

    def __init__(self, *said: Any, reached: tuple[int, int] = (0, 0)) -> None:
        self.said, self.reached = list(said), reached
        self.asked: list[tuple[Any, ...]] = []

    def ask(self, what: str, *args: Any, timeout: float | None = None) -> dict[int, Any]:
        self.asked.append((what, *(arg.epoch if isinstance(arg, StartRun) else arg for arg in args)))
        return {host: {host: self.reached[host]} for host in range(2)} if what == "reached" else {}

    def events(self, wait: float) -> list[HostEvent]:
        assert self.said, "nobody says any more, and yet the driver waits"
        now = self.said.pop(0)
        if isinstance(now, BaseException):
            raise now
        return [HostEvent(1, node, "ran", node, one) for node, one in now]


PLAN = cast(Any, SimpleNamespace(go=lambda kept: StartRun(0, kept.epoch, kept.finished, {}, {}, {}), block_bytes=0))


def kept(epoch: int) -> RepeatableRun:
    return RepeatableRun(epoch, np.zeros(0, np.int64), {}, {}, {})


def test_runs_are_told_one_ahead() -> None:
    hosts = Script([(0, ran(0, 3)), (0, ran(1, 3))], [(1, ran(0, 3))], [(1, ran(1, 3))])
    runs = Runs(cast(Any, hosts))
    made = runs.make(PLAN, kept(0), kept(1))
    assert (sorted(made.ran), made.torn, runs.ahead) == ([0, 1], False, True)
    assert runs.expects(PLAN, kept(1))
    assert not runs.expects(PLAN, kept(0))
    runs.make(PLAN, kept(1))
    assert not runs.ahead
    assert hosts.asked == [("run", 0, 1)]


def test_an_end_in_the_next_epoch_is_heard_of_twice() -> None:
    """Ctrl-C while node 0 is ahead: the first run is whole, and only the second was interrupted."""
    hosts = Script([(0, ran(0, 3))], [], [(1, ran(0, 3)), (0, ran(1, 2))], [(1, ran(1, 0))], reached=(1, 0))
    runs = Runs(cast(Any, hosts))

    def ending() -> bool:
        return len(hosts.said) <= 2

    made = runs.make(PLAN, kept(0), kept(1), ending=ending)
    assert hosts.asked == [("run", 0, 1), ("reached", 0), ("stop", 1)]
    assert (len(made.ran), runs.ahead) == (2, True)
    made = runs.make(PLAN, kept(1), kept(2), ending=ending)
    assert (runs.ahead, len(made.ran[0].made)) == (False, 2)
    assert len(hosts.asked) == 3


def test_an_end_before_anybody_is_ahead() -> None:
    hosts = Script([], [(0, ran(0, 2)), (0, ran(1, 0))], [(1, ran(0, 1)), (1, ran(1, 0))])
    runs = Runs(cast(Any, hosts))
    made = runs.make(PLAN, kept(0), kept(1), ending=lambda: True)
    assert hosts.asked == [("run", 0, 1), ("reached", 0), ("stop", 0)]
    assert (made.torn, runs.ahead) == (False, False)


def test_the_last_to_tell_has_failed() -> None:
    """All have reported the run, and some are in the next: that has to end too, and is of no use."""
    hosts = Script([(0, ran(0, 3))], [(1, ran(0, 1, failed=1))], [], [(0, ran(1, 2)), (1, ran(1, 0))])
    runs = Runs(cast(Any, hosts))
    made = runs.make(PLAN, kept(0), kept(1))
    assert hosts.asked == [("run", 0, 1), ("stop", 0)]
    assert (made.torn, runs.ahead) == (True, False)


def test_a_failure_after_an_end_was_asked_for() -> None:
    """Node 0 was to finish its epoch, and now waits for what node 1 will not send."""
    hosts = Script([], [(1, ran(0, 1, failed=1))], [(0, ran(0, 1)), (0, ran(1, 0)), (1, ran(1, 0))], reached=(0, 1))
    runs = Runs(cast(Any, hosts))
    made = runs.make(PLAN, kept(0), kept(1), ending=lambda: True)
    assert hosts.asked == [("run", 0, 1), ("reached", 0), ("stop", 1), ("stop", 0)]
    assert (made.torn, runs.ahead) == (False, False)


# --- standing still -------------------------------------------------------------------------------------------------


def test_a_node_that_lives_and_does_not_get_on_is_lost() -> None:
    runtime = on(3, patience=0.1)
    with job_on(runtime, PROBLEMS[NAME], DATA) as (job, crew):
        JobTrainer(job, crew).run(1)
        hosts: QueueHosts = runtime.hosts[0]
        node, freed = hosts.hosts[1].task.nodes[1], threading.Event()  # type: ignore[union-attr]
        lose, told = hosts.lose, []

        def stuck(*args: Any) -> None:
            assert freed.wait(60)

        def losing(lost: HostLost) -> None:
            told.append((lost.host, lost.why))
            freed.set()  # as killing a process would
            lose(lost)

        node._plans[0].compiled = stuck
        hosts.lose = losing  # type: ignore[method-assign]
        trainer = JobTrainer(job, crew)
        trainer.position.epoch = 1
        trainer.run(3)
        assert digest(job.arrays()) == serial(3)[0]
    assert [host for host, _ in told] == [1]
    assert "node 1 has visits to make but has made no progress" in told[0][1]


def test_blocks_that_never_come_end_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver_runs, "WITHIN", 0.1)
    monkeypatch.setattr(driver_runs, "_CRAWL", 1e9)
    runtime = on(2, patience=0.1)
    with job_on(runtime, PROBLEMS[NAME], DATA) as (job, crew):
        JobTrainer(job, crew).run(1)
        runtime.hosts[0].hold()
        with pytest.raises(RunError, match=r"all nodes have waited .* for blocks that others have sent"):
            JobTrainer(job, crew).run(2)
        runtime.hosts[0].release()
