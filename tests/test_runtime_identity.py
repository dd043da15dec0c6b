"""The promise: same fingerprint, same bits. Serially, on any threads, in any order the claiming rule allows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs import (
    PROBLEMS,
    RUNTIMES,
    claimable,
    digest,
    job_on,
    make_job,
    outcome,
    run_epochs,
    small_data,
    some_ratings,
)
from stretto.data.records.data import Data
from stretto.kernels.core import claims
from stretto.models.factorization.build import FactorJob
from stretto.runtime.blocks import pass_control
from stretto.runtime.blocks.crew import Crew
from stretto.runtime.blocks.step import BlockStep
from stretto.runtime.runtimes import Runtime, Serial, Threads
from stretto.solvers.factorization.problem import FactorizationProblem

DATA = some_ratings()


def fit_for(problem: FactorizationProblem, data: Data) -> Data:
    """Implicit feedback is counts, never negative."""
    return replace(data, values=np.abs(data.values)) if problem.implicit else data


@pytest.mark.parametrize("problem", PROBLEMS.values(), ids=PROBLEMS)
def test_every_runtime_gives_the_same_bits(problem: FactorizationProblem) -> None:
    found = {str(runtime): outcome(runtime, problem, DATA) for runtime in RUNTIMES}
    assert len(set(found.values())) == 1, found


@settings(max_examples=25)
@given(small_data(), st.integers(1, 8), st.sampled_from(sorted(PROBLEMS)), st.integers(0, 2**31), st.integers(2, 8))
def test_any_data_any_width(data: Data, width: int, name: str, seed: int, threads: int) -> None:
    """Tiny and lopsided data, empty rows and columns, one entry alone."""
    problem = PROBLEMS[name]
    data = fit_for(problem, data)
    one = outcome(Serial(), problem, data, width=width, seed=seed)
    assert outcome(Threads(threads), problem, data, width=width, seed=seed) == one


@pytest.fixture
def finely_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """Grids as fine as width asks for, however little data there is."""
    monkeypatch.setattr("stretto.solvers.factorization.sgd.choose_blocks", lambda entries, shape, width: 1 << width)


@pytest.mark.usefixtures("finely_cut")
@pytest.mark.parametrize("seed", range(12))
def test_more_blocks_than_rows_or_columns(seed: int) -> None:
    """Grids of 2 to 32 blocks a side over matrices that are smaller than that, with most blocks empty."""
    random = np.random.default_rng(seed)
    m, n = random.integers(1, 25, 2)
    pairs = random.choice(m * n, size=max(1, m * n // 3), replace=False)
    rows, cols = np.divmod(pairs, n)
    data = Data.from_arrays(rows, cols, random.integers(1, 6, len(pairs)), (int(m), int(n)))
    problem = PROBLEMS[("sgd", "adagrad", "adarevision")[seed % 3]]
    width = 1 + seed % 5
    with job_on(Serial(), problem, data, width=width) as (job, _):
        assert job.plan.order.rows == 2**width
    one = outcome(Serial(), problem, data, width=width)
    for threads in (1, 3, 8):
        assert outcome(Threads(threads), problem, data, width=width) == one


class Shuffled(Crew):
    """Makes the visits in a random order among all that the claiming rule allows."""

    def __init__(self, seed: int) -> None:
        super().__init__(1, serial=True)
        self.random = np.random.default_rng(seed)

    def make(self, step: BlockStep, profile: str) -> None:
        if step.before is not None:
            step.before(True)
        script: list[int] = []
        running: list[int] = []
        while len(script) < len(step.order):
            ready = claimable(step.order, [v for v in script if v not in running], running)
            # Workers of very different speeds: a claimed visit may stay unfinished for long.
            if ready and (not running or self.random.random() < 0.5):
                visit = int(self.random.choice(ready))
                script.append(visit)
                running.append(visit)
            else:
                running.pop(int(self.random.integers(len(running))))
        pass_ = pass_control.start(step.order, step.weight, script=np.array(script))
        step.kernel[profile](pass_.words, 0, step.out, *step.args)
        assert pass_.control[claims.LEFT] == 0
        if step.after is not None:
            step.after()


def shuffled_epochs(job: FactorJob, crew: Shuffled, epochs: int) -> list[float]:
    objectives = []
    for epoch in range(epochs):
        steps = job.steps(epoch)
        for step in steps:
            crew.make(step, "exact")
        objectives.append(job.report(epoch, steps).objective)
    return objectives


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    "name", ["sgd", "adagrad", "adarevision", "sgd, logistic loss", "als, cg", "als, implicit", "ccd"]
)
def test_any_order_the_rule_allows_gives_the_same_bits(name: str, seed: int) -> None:
    data = some_ratings(5000, 120, 90)
    crew = Shuffled(seed)
    try:
        job = make_job(PROBLEMS[name], data, crew)
        objectives = shuffled_epochs(job, crew, 2)
        found = job.plan.fingerprint, digest(job.arrays(), objectives)
    finally:
        crew.close()
    assert found == outcome(Serial(), PROBLEMS[name], data, epochs=2)


@pytest.mark.parametrize("runtime", [Serial(), Threads(3)], ids=str)
@pytest.mark.parametrize("name", ["sgd", "adagrad", "adarevision", "sgd, no biases", "als", "als, implicit", "ccd"])
@pytest.mark.parametrize("memory", [60_000, 90_000, 120_000])
def test_streaming_from_disk_gives_the_same_bits(tmp_path: Path, name: str, memory: int, runtime: Runtime) -> None:
    wanted = outcome(Serial(), PROBLEMS[name], DATA)
    # Row solvers keep the factors of both sides in memory, and working memory of every worker.
    memory += 0 if "sgd" in name or "ada" in name else 60_000
    with job_on(runtime, PROBLEMS[name], DATA, memory=memory, scratch=tmp_path) as (job, crew):
        assert job.plan.physical.tile is not None
        assert job.plan.physical.tile < job.plan.order.rows
        objectives = run_epochs(job, crew, 3)
        assert (job.plan.fingerprint, digest(job.arrays(), objectives)) == wanted


def test_irregular_values_in_another_order() -> None:
    """The same entries in another order: the same plan and the same bits, though sums of floats depend on order."""
    random = np.random.default_rng(0)
    data = replace(DATA, values=random.normal(size=len(DATA)).astype(np.float32) * np.float32(1e3))
    one = outcome(Serial(), PROBLEMS["sgd"], data)
    for seed in range(5):
        shuffled = data.take(np.random.default_rng(seed).permutation(len(data)))
        other = outcome(Serial(), PROBLEMS["sgd"], shuffled)
        assert other == one


def test_an_outlier_counts_wherever_it_stands() -> None:
    values = DATA.values.copy()
    values[0] = 500.0
    data = replace(DATA, values=values)
    one = outcome(Serial(), PROBLEMS["sgd"], data)
    turned = data.take(np.arange(len(data))[::-1].copy())
    assert outcome(Serial(), PROBLEMS["sgd"], turned) == one


def test_profile_fast_learns_the_same_within_rounding() -> None:
    with job_on(Serial(), FactorizationProblem(16), DATA) as (job, crew):
        exact = run_epochs(job, crew, 8)
    with job_on(Threads(2), FactorizationProblem(16), DATA, profile="fast") as (job, crew):
        fast = run_epochs(job, crew, 8)
    assert fast == pytest.approx(exact, rel=1e-3)
    assert outcome(Threads(3), FactorizationProblem(16), DATA, profile="fast") == outcome(
        Serial(), FactorizationProblem(16), DATA, profile="fast"
    )
