"""Rotation over nodes when hosts are lost: begun again from what was gathered, with the same bits at the end."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

import stretto as st
from jobs import PROBLEMS, digest, job_on, some_ratings
from ring_fleet import InProcess, QueueHosts
from stretto.errors import RunError
from stretto.runtime.blocks.train import JobTrainer
from stretto.runtime.cluster.blocks import block_executor as crews
from stretto.runtime.cluster.blocks.block_executor import ClusterCrew
from stretto.runtime.cluster.blocks.ring import Block
from stretto.runtime.files.run_checkpoints import Saving
from stretto.runtime.runtimes import Serial
from stretto.solvers.factorization.sgd import SgdJob

DATA = some_ratings()
EPOCHS = 4


@pytest.fixture(scope="module")
def expected() -> tuple[str, list[float]]:
    return train(Serial())


def train(runtime: Any, epochs: int = EPOCHS, **rules: Any) -> tuple[str, list[float]]:
    with job_on(runtime, PROBLEMS["adagrad"], DATA) as (job, crew):
        outcome = JobTrainer(job, crew, **rules).run(epochs)
        return digest(job.arrays()), [report.objective for report in outcome.reports]


class Killer:
    """Kills hosts: before the n-th question of the driver for n in `at`. held: with blocks on their way that never
    arrive."""

    def __init__(self, hosts: QueueHosts, at: set[int], seed: int = 0, *, held: bool = False) -> None:
        self.hosts, self.at, self.held = hosts, at, held
        self.random = random.Random(seed)
        self.count = self.killed = 0
        hosts.before = self

    def __call__(self, what: str) -> None:
        self.count += 1
        if what == "load":
            self.hosts.release()
        if self.count in self.at:
            alive = [number for number, host in self.hosts.hosts.items() if not host.dead]
            if len(alive) > 1:
                self.killed += 1
                if self.held:
                    self.hosts.hold()
                self.hosts.kill(self.random.choice(alive))


def on(nodes: int, at: set[int], *, replaces: bool = True, seed: int = 0, held: bool = False) -> Any:
    runtime = InProcess(nodes)

    def prepare(hosts: QueueHosts) -> None:
        hosts.replaces = replaces
        Killer(hosts, at, seed, held=held)

    runtime.prepare = prepare
    return runtime


@pytest.mark.parametrize("replaces", [True, False], ids=["replaced", "shared out"])
@pytest.mark.parametrize("question", [1, 4, 8, 11, 14, 17, 20])
def test_one_host_lost(question: int, replaces: bool, expected: tuple[str, list[float]]) -> None:
    """While entries or states are sent, between runs and in them, and while all is gathered."""
    runtime = on(3, {question}, replaces=replaces, seed=question)
    assert train(runtime) == expected
    hosts = runtime.hosts[0]
    assert hosts.before.killed == 1
    assert hosts.incarnation == 2
    assert len(set(hosts.where)) == (3 if replaces else 2)


def test_lost_with_blocks_under_way(expected: tuple[str, list[float]]) -> None:
    runtime = on(3, {13, 14}, seed=1, held=True)
    assert train(runtime) == expected
    assert runtime.hosts[0].incarnation > 1


@pytest.mark.parametrize("seed", range(6))
def test_many_losses(seed: int, expected: tuple[str, list[float]]) -> None:
    draw = random.Random(seed)
    at = set(draw.sample(range(1, 40), 5))
    runtime = on(4, at, replaces=seed % 2 == 0, seed=seed, held=seed % 3 == 0)
    assert train(runtime) == expected
    assert runtime.hosts[0].before.killed >= 1


def test_lost_between_checkpoints(tmp_path: Path, expected: tuple[str, list[float]]) -> None:
    runtime = on(3, {9, 30, 41}, seed=5)
    assert train(runtime, saving=Saving(tmp_path, every_epochs=2)) == expected
    resumed = train_from(tmp_path)
    assert resumed == expected[0]


def train_from(folder: Path) -> str:
    with job_on(Serial(), PROBLEMS["adagrad"], DATA) as (job, crew):
        trainer = JobTrainer(job, crew, saving=Saving(folder))
        assert trainer.restore() == 2
        trainer.run(EPOCHS)
        return digest(job.arrays())


def test_gathered_every_so_often_nothing_is_made_twice(
    monkeypatch: pytest.MonkeyPatch, expected: tuple[str, list[float]]
) -> None:
    """With an interval of nothing every run is gathered, and a loss costs one run at most."""
    monkeypatch.setattr(crews, "_FAILURE_SECONDS", 1e-12)
    runtime = on(3, {30}, seed=2)
    assert train(runtime) == expected
    asked = runtime.hosts[0].asked
    assert asked.count("fetch") >= 3 * EPOCHS
    assert asked.count("run") <= 3 * (EPOCHS + 1)


def test_changes_of_the_driver_reach_the_nodes() -> None:
    """Between runs the owner of the arrays writes to them: what the nodes have is no longer right."""
    results = []
    for runtime in (Serial(), InProcess(2)):
        with job_on(cast(Any, runtime), PROBLEMS["sgd"], DATA) as (job, crew):
            JobTrainer(job, crew).run(1)
            job.arrays()["H"][3:9] *= 2.0
            trainer = JobTrainer(job, crew)
            trainer.run(2)
            results.append(digest(job.arrays()))
    assert results[0] == results[1]


def test_what_a_node_raises_reaches_the_caller() -> None:
    runtime = InProcess(2)
    with job_on(cast(Any, runtime), PROBLEMS["sgd"], DATA) as (job, crew):
        JobTrainer(job, crew).run(1)
        before = {name: array.copy() for name, array in job.arrays().items()}
        node = runtime.hosts[0].hosts[1].task.nodes[1]  # type: ignore[union-attr]

        def broken(*args: Any) -> None:
            raise ZeroDivisionError("broken by the test")

        node._plans[0].compiled = broken
        with pytest.raises(RunError, match=r"node 1 of the cluster, on host 1: .*broken by the test"):
            crew.run(job.steps(1)[0], "exact")
        # The driver's arrays are as they were, and the next run begins again from them.
        assert all(np.array_equal(array, before[name]) for name, array in job.arrays().items())
        steps = job.steps(1)
        crew.run(steps[0], "exact")
        crew.gather()
        job.report(1, steps)
        again = digest(job.arrays())
    assert again == train_sgd(2)


def test_a_block_that_cannot_be_ends_the_run() -> None:
    """Rather than letting everybody wait without end."""
    runtime = InProcess(2)
    with job_on(cast(Any, runtime), PROBLEMS["sgd"], DATA) as (job, crew):
        JobTrainer(job, crew).run(1)
        task = runtime.hosts[0].hosts[0].task
        task._take(task.nodes[0], 1, Block(0, 1, 0, 0, ()))  # type: ignore[union-attr]
        with pytest.raises(
            RunError,
            match="node 0 received block 0 after turn 0 of epoch 1 and cannot use it: this node already has the block",
        ):
            JobTrainer(job, crew).run(1)


def train_sgd(epochs: int) -> str:
    with job_on(Serial(), PROBLEMS["sgd"], DATA) as (job, crew):
        JobTrainer(job, crew).run(epochs)
        return digest(job.arrays())


def test_ctrl_c_without_draining_leaves_the_arrays_alone() -> None:
    runtime = InProcess(2)
    with job_on(cast(Any, runtime), PROBLEMS["sgd"], DATA) as (job, crew):
        JobTrainer(job, crew).run(1)
        hosts, real = runtime.hosts[0], runtime.hosts[0].events
        before = digest(job.arrays())

        def struck(wait: float) -> Any:
            hosts.events = real  # type: ignore[method-assign]
            raise KeyboardInterrupt

        hosts.events = struck  # type: ignore[method-assign]
        with pytest.raises(KeyboardInterrupt):
            crew.run(job.steps(1)[0], "exact")
        assert digest(job.arrays()) == before
        JobTrainer(job, crew).run(1)
        assert isinstance(job, SgdJob)
        assert isinstance(crew, ClusterCrew)


def test_steps_that_read_the_factors_here_see_them() -> None:
    """`predict` of held-out pairs runs on the driver's threads, after every epoch."""
    histories = []
    for runtime in (st.Serial(), InProcess(3)):
        model = st.MatrixFactorization(n_components=4, max_iter=3, width=4, random_state=0, runtime=cast(Any, runtime))
        histories.append(model.fit(DATA, validation=0.3).history_)
    assert histories[0] == histories[1]
