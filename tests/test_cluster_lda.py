"""Topic models over nodes: the same topics, counts and totals as on one machine, whichever host is lost on the way."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

import stretto as st
from clirun import same_model, stretto
from jobs import digest
from ring_fleet import InProcess, QueueHosts
from stretto.errors import PlanError
from stretto.models.topics import problem as lda_base
from stretto.models.topics.monitor import LikelihoodMonitor
from stretto.models.topics.problem import TopicProblem
from stretto.observe.events import EpochDone, Event
from stretto.plan.arrays import StepSpec, by_rows, constant, number
from stretto.plan.kernel_reference import KernelReference
from stretto.runtime.blocks.train import JobTrainer
from stretto.runtime.cluster.blocks.block_executor import ClusterCrew
from stretto.runtime.files.run_checkpoints import Saving
from stretto.runtime.runtimes import Serial
from stretto.runtime.session import Session
from test_cluster_driver import hosts_of_this_process
from topic_jobs import check_counts, corpus, lda_on, problem, run_passes, some_documents

DATA = some_documents(160, 120, 9000)
EPOCHS = 4
KINDS = {"dense": problem(12), "packed": problem(300), "mh": problem(20, "mh", steps=2)}


def on(nodes: int, threads: int = 1, **faults: Any) -> Any:
    """A runtime of nodes in this process; Any, for it is none that users have."""
    return InProcess(nodes, threads, **faults)


def learned(runtime: Any, which: TopicProblem, epochs: int = EPOCHS, every: int = 0, **rules: Any) -> tuple[str, Any]:
    """(hash of every array of the job, what was reported)."""
    with lda_on(runtime, which, DATA) as (job, crew):
        job.watch = LikelihoodMonitor(every, epochs)
        outcome = JobTrainer(job, crew, **rules).run(epochs)
        check_counts(job)
        return digest(job.arrays()), [report.metrics for report in outcome.reports]


@pytest.fixture(scope="module", autouse=True)
def small_visits() -> Iterator[None]:
    """Many visits in spite of few tokens."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lda_base, "FEWEST_TOKENS", 64)
        yield


@pytest.fixture(scope="module")
def expected() -> dict[str, tuple[str, Any]]:
    return {name: learned(Serial(), which) for name, which in KINDS.items()}


# --- the same bits --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("nodes", [1, 2, 3, 9])
@pytest.mark.parametrize("name", KINDS)
def test_the_same_topics_on_nodes(name: str, nodes: int, expected: dict[str, Any]) -> None:
    """Nine are more than there are row blocks."""
    assert learned(on(nodes, 2 if nodes == 3 else 1), KINDS[name]) == expected[name]


def test_a_wire_that_loses_and_repeats() -> None:
    """Blocks come home when the next epoch has begun there."""
    mine, theirs = (learned(runtime, KINDS["dense"], 2) for runtime in (on(3, lose=0.25, twice=0.1, seed=3), Serial()))
    assert mine == theirs


@pytest.mark.parametrize("name", ["packed", "mh"])
def test_likelihood_priors_and_averages_on_nodes(name: str) -> None:
    given = KINDS[name]
    which = TopicProblem(given.topics, given.alpha, given.beta, given.sampler, 1, 2, 1, 1, "random", 1)
    mine, theirs = learned(on(3), which, 6, 2), learned(Serial(), which, 6, 2)
    assert mine == theirs
    assert "log_likelihood" in mine[1][-1]


def test_tokens_travel_once_and_little_is_brought_back() -> None:
    runtime = on(2)
    with lda_on(runtime, KINDS["packed"], DATA) as (job, crew):
        JobTrainer(job, crew).run(5)
        hosts = runtime.hosts[0]
        counted = {what: hosts.asked.count(what) for what in ("load", "put", "run", "fetch")}
        assert counted == {"load": 2, "put": 2, "run": 10, "fetch": 2}
        # A node has the documents and topics of its own visits only; together they have all.
        loaded = [hosts.hosts[n].task.nodes[n]._plans[0] for n in range(2)]
        flat = loaded[0].load.spec.flat(job.steps(5)[0].args)
        for at, whole in (
            ("doc", job.laid.tokens.doc),
            ("topic", job.laid.tokens.topic),
            ("doc_rows", job.counts.doc_rows),
        ):
            assert flat[at] is whole
            parts = [node.args[at].astype(np.int64) for node in loaded]
            assert all(0 < np.count_nonzero(part) < np.count_nonzero(whole) for part in parts)
            assert np.array_equal(sum(parts), whole)


def test_arguments_in_named_tuples_count_one_by_one() -> None:
    from stretto.kernels.topics.rows import TopicModel

    rows, numbers = by_rows("W", [0, 2, 4]), cast(Any, [number(f"n{k}") for k in range(8)])
    spec = StepSpec("", KernelReference("", ""), (constant("first"), TopicModel(rows, *numbers), number("last")))
    args = ("a", TopicModel(*cast(Any, range(9))), 9)
    assert list(spec.flat(args).values()) == ["a", 0, 1, 2, 3, 4, 5, 6, 7, 8, 9]
    assert spec.nested(spec.flat(args)) == list(args)
    assert type(spec.nested(spec.flat(args))[1]) is TopicModel
    assert spec.arrays["W"] is rows
    assert spec.states == ["W"]


# --- stopping, losing, going on -------------------------------------------------------------------------------------


def lost_at(hosts: QueueHosts, questions: set[int], seed: int) -> None:
    """Kill a host before each of these questions of the driver."""
    draw, count = random.Random(seed), 0

    def before(what: str) -> None:
        nonlocal count
        count += 1
        alive = [number for number, host in hosts.hosts.items() if not host.dead]
        if count in questions and len(alive) > 1:
            hosts.kill(draw.choice(alive))

    hosts.before = before


@pytest.mark.parametrize("seed", range(8))
def test_hosts_lost(seed: int, expected: dict[str, Any]) -> None:
    """Runs that were lost are repeated with the totals as they were then."""
    name = list(KINDS)[seed % 3]
    runtime = on(3)
    questions = set(random.Random(seed).sample(range(4, 36), 3))

    def prepare(hosts: QueueHosts) -> None:
        hosts.replaces = seed % 2 == 0
        lost_at(hosts, questions, seed)

    runtime.prepare = prepare
    assert learned(runtime, KINDS[name]) == expected[name]
    assert runtime.hosts[0].incarnation > 1


def stop_in_the_middle(crew: ClusterCrew, *, lost: bool = False) -> None:
    """The next run is stopped when no block can move any more; those after it are not. lost: a host is, when what the
    run has made is gathered."""
    hosts = cast(QueueHosts, crew.hosts)

    def before(what: str) -> None:
        if what == "run":
            hosts.hold()
            crew.stop()
        elif what == "stop":
            hosts.release()
        elif what == "fetch":
            hosts.before = lambda what: None
            if lost:
                hosts.kill(1)

    hosts.before = before


@pytest.mark.parametrize("name", KINDS)
def test_lost_after_an_epoch_that_was_stopped_in_the_middle(name: str, expected: dict[str, Any]) -> None:
    """What is gathered last is from within an epoch whose end the driver knows already."""
    runtime = on(3)
    with lda_on(runtime, KINDS[name], DATA) as (job, crew):
        for epoch in range(EPOCHS):
            (step,) = job.steps(epoch)
            finished = None
            if epoch == 1:
                stop_in_the_middle(crew)  # type: ignore[arg-type]
                finished = crew.run(step, "exact", drain=True).finished
                assert finished is not None
                assert 0 < len(finished) < len(step.order)
                check_counts(job)
            assert crew.run(step, "exact", finished).finished is None
            if epoch == 2:
                assert runtime.hosts[0].asked.count("fetch") == 3
                runtime.hosts[0].kill(1)
        crew.gather()
        assert runtime.hosts[0].incarnation == 2
        assert digest(job.arrays()) == expected[name][0]


@pytest.mark.parametrize("stops", [1, 2])
def test_lost_while_a_stopped_run_is_gathered(stops: int, expected: dict[str, Any]) -> None:
    """What was stopped is repeated up to where it was stopped, and no further."""
    runtime = on(3)
    with lda_on(runtime, KINDS["packed"], DATA) as (job, crew):
        hosts = runtime.hosts[0]
        run_passes(job, crew, 1)
        (step,) = job.steps(1)
        finished: Any = None
        for stop in range(stops):
            before = 0 if finished is None else len(finished)
            stop_in_the_middle(cast(ClusterCrew, crew), lost=stop == stops - 1)
            finished = crew.run(step, "exact", finished, drain=True).finished
            assert finished is not None
            assert before < len(finished) < len(step.order)
        check_counts(job)
        assert hosts.incarnation == 2
        crew.run(step, "exact", finished)
        run_passes(job, crew, EPOCHS - 2, first=2)
        crew.gather()
        assert digest(job.arrays()) == expected["packed"][0]


@pytest.mark.parametrize("after", [Serial(), on(2), st.Threads(2)], ids=["serial", "nodes", "threads"])
def test_stopped_within_an_epoch_and_resumed_anywhere(tmp_path: Path, after: Any, expected: dict[str, Any]) -> None:
    with lda_on(on(3), KINDS["packed"], DATA) as (job, crew):
        trainer = JobTrainer(job, crew, saving=Saving(tmp_path))
        trainer.run(1)
        stop_in_the_middle(cast(ClusterCrew, crew))
        crew.asked = True
        (step,) = job.steps(1)
        done = crew.run(step, "exact", drain=True)
        assert done.finished is not None
        trainer.position.finished, trainer.position.outs = done.finished, {0: step.out}
        trainer.save()
    with lda_on(after, KINDS["packed"], DATA) as (job, crew):
        trainer = JobTrainer(job, crew, saving=Saving(tmp_path))
        assert trainer.restore() == 1
        trainer.run(EPOCHS)
        assert digest(job.arrays()) == expected["packed"][0]


def test_checkpoints_every_so_often_and_losses(tmp_path: Path, expected: dict[str, Any]) -> None:
    runtime = on(3)
    runtime.prepare = lambda hosts: lost_at(hosts, {20, 41, 57}, 1)
    found = learned(runtime, KINDS["mh"], saving=Saving(tmp_path, every_seconds=0.003))
    assert found == expected["mh"]
    assert runtime.hosts[0].incarnation > 1


# --- processes ------------------------------------------------------------------------------------------------------


def cluster(nodes: int = 2, **more: Any) -> st.Cluster:
    pytest.importorskip("zmq", reason="the extra stretto[cluster] is not installed")
    return st.Cluster("processes", nodes=nodes, **more)


def model_on(runtime: Any, topics: int = 12, **settings: Any) -> st.LatentDirichletAllocation:
    common: dict[str, Any] = {"max_iter": 6, "width": 4, "evaluate_every": 3, "random_state": 0}
    return st.LatentDirichletAllocation(topics, runtime=runtime, **common | settings)


def same(one: st.LatentDirichletAllocation, other: st.LatentDirichletAllocation) -> None:
    assert one.fingerprint_ == other.fingerprint_
    assert one.history_ == other.history_
    np.testing.assert_array_equal(one.components_, other.components_)
    np.testing.assert_array_equal(one.doc_topic_prior_, other.doc_topic_prior_)


@pytest.mark.parametrize(("nodes", "sampler"), [(2, "sparse"), pytest.param(3, "mh", marks=pytest.mark.slow)])
def test_processes_threads_and_serial_learn_the_same(nodes: int, sampler: str) -> None:
    settings: dict[str, Any] = {"sampler": sampler, "optimize_every": 2, "burn_in": 2, "average_every": 2}
    models = [model_on(runtime, **settings) for runtime in (st.Serial(), st.Threads(2), cluster(nodes, threads=2))]
    for model in models:
        model.fit(DATA, validation=0.1)
    same(models[0], models[1])
    same(models[0], models[2])
    assert "cluster, " in models[2].plan_.explain()
    shares = [model.transform(DATA) for model in models]  # on this machine, wherever it was learned
    np.testing.assert_array_equal(shares[0], shares[2])


@pytest.mark.slow
def test_more_documents_on_processes() -> None:
    models = [model_on(runtime, topics=300) for runtime in (st.Threads(2), cluster(2))]
    for model in models:
        model.partial_fit(DATA).partial_fit(some_documents(50, 120, 1500, seed=4))
    same(*models)


class Killer:
    """Kills a process of the cluster after some epochs."""

    def __init__(self, *epochs: int) -> None:
        self.epochs = epochs

    def __call__(self, event: Event, /) -> None:
        if isinstance(event, EpochDone) and event.epoch in self.epochs:
            os.kill(hosts_of_this_process()[0], signal.SIGKILL)


def test_processes_are_killed() -> None:
    mine, theirs = model_on(cluster(3), topics=300), model_on(st.Threads(2), topics=300)
    with pytest.warns(RuntimeWarning, match="was lost: .*SIGKILL"):
        mine.fit(DATA, session=Session(listeners=[Killer(2, 4)]))
    same(mine, theirs.fit(DATA))


@pytest.mark.slow
def test_a_session_goes_on_elsewhere(tmp_path: Path) -> None:
    whole = model_on(st.Serial(), burn_in=2).fit(DATA)  # without burn_in the plan depends on max_iter
    saved = Saving(tmp_path / "saved", every_epochs=2)
    session = Session(record=tmp_path / "run", saving=saved)
    model_on(st.Threads(1), max_iter=3, burn_in=2).fit(DATA, session=session)
    model_on(cluster(2), max_iter=5, burn_in=2).fit(DATA, session=Session(saving=saved, resume=True))
    found = model_on(st.Serial(), burn_in=2).fit(DATA, session=Session(saving=saved, resume=True))
    np.testing.assert_array_equal(found.components_, whole.components_)


def test_the_command_line(tmp_path: Path) -> None:
    cluster()
    file = tmp_path / "docword.txt"
    stretto("generate", file, "--documents", "100", "--words", "80", "--topics", "4", "--length", "40", "--seed", "3")
    options = ["--topics", "5", "--evaluate-every", "2", "--checkpoint-every", "1 epoch", "--burn-in", "2", "-q"]
    there = ["--runtime", "cluster:processes", "--nodes", "2"]
    stretto("train", "lda", file, *options, "--epochs", "5", "--out", tmp_path / "whole")
    stretto("train", "lda", file, *options, "--epochs", "3", *there, "--out", tmp_path / "parts")
    stretto("resume", tmp_path / "parts", "--epochs", "5", "-q")
    assert same_model(tmp_path / "whole", tmp_path / "parts")
    assert (tmp_path / "parts" / "topics.html").is_file()


def test_what_does_not_run_on_a_cluster_is_refused() -> None:
    X = corpus(np.ones((4, 3)))
    with pytest.raises(PlanError, match=r"runtime=3 is not a runtime; give .*st.Cluster\(…\)"):
        model_on(3).fit(X)
    with pytest.raises(PlanError, match=r"mini-batches of solver='sgd' are drawn from all samples in one memory"):
        st.LogisticRegression(solver="sgd", runtime=st.Cluster("processes"), l1_ratio=1.0).fit(
            np.ones((4, 3)), np.arange(4)
        )
