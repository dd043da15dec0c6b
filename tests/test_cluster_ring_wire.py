"""Rotation over real hosts: processes, ZeroMQ and CURVE between them."""

from __future__ import annotations

import os
import signal
from typing import Any

import numpy as np
import pytest

import stretto as st
from jobs import PROBLEMS, digest, job_on, make_job, some_ratings
from loop_bodies import fresh, results
from stretto.runtime.blocks.train import JobTrainer
from stretto.runtime.cluster.blocks.block_executor import ClusterCrew
from stretto.runtime.cluster.hosts.hosts import Hosts
from stretto.runtime.cluster.spec import Cluster
from stretto.runtime.runtimes import Serial
from test_cluster_ring_loops import made

DATA = some_ratings()


def train(runtime: Any, name: str, epochs: int = 3) -> tuple[str, list[float]]:
    with job_on(runtime, PROBLEMS[name], DATA) as (job, crew):
        outcome = JobTrainer(job, crew).run(epochs)
        return digest(job.arrays()), [report.objective for report in outcome.reports]


@pytest.mark.parametrize("name", ["sgd", "adarevision"])
def test_factors_over_processes(name: str) -> None:
    assert train(Cluster("processes", nodes=3), name) == train(Serial(), name)


def test_a_loop_over_processes() -> None:
    loop, arguments, _ = made("factorization")
    found = []
    for runtime in (Serial(), Cluster("processes", nodes=2, threads=2)):
        mine = fresh(arguments)
        here = loop.using(runtime=runtime)
        for _ in range(2):
            here(**mine)
        found.append(results(mine))
    assert all(np.array_equal(array, found[1][name]) for name, array in found[0].items())


def test_a_process_killed_within_an_epoch() -> None:
    """kill -9 while blocks rotate: another takes its place, and the factors have the same bits."""
    expected = train(Serial(), "adagrad", 6)
    with Hosts(Cluster("processes", nodes=3, patience=3.0)) as hosts:
        crew = ClusterCrew(hosts)
        job = make_job(PROBLEMS["adagrad"], DATA, crew)
        asked, real = [0], hosts.ask

        def ask(what: str, *args: Any, **more: Any) -> Any:
            answer = real(what, *args, **more)
            asked[0] += what == "run"
            if what == "run" and asked[0] == 3:
                os.kill(hosts.addresses[1].pid, signal.SIGKILL)
            return answer

        hosts.ask = ask  # type: ignore[method-assign]
        with pytest.warns(RuntimeWarning, match=r"host 1 on .* was lost: .*SIGKILL"):
            outcome = JobTrainer(job, crew).run(6)
        assert (digest(job.arrays()), [report.objective for report in outcome.reports]) == expected
        crew.close()
        assert len(hosts.losses) == 1


def test_the_estimator_takes_a_cluster() -> None:
    models = []
    for runtime in (st.Serial(), Cluster("processes", nodes=2)):
        model = st.MatrixFactorization(n_components=4, max_iter=2, width=4, random_state=0, runtime=runtime)
        models.append(model.fit(DATA, validation=0.2))
    assert np.array_equal(models[0].item_factors_, models[1].item_factors_)
    assert models[0].history_ == models[1].history_
    assert "cluster, 2 workers" in models[1].plan_.explain()
