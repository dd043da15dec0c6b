"""Small problems, the jobs that solve them, and ways to run a job: shared by the tests of runtimes and models."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from stretto.data.generate.ratings import ratings
from stretto.data.records.data import Data
from stretto.models.factorization.build import FactorJob, build
from stretto.models.factorization.input import RatingsInput
from stretto.plan.plan import Physical
from stretto.runtime.blocks.crew import Crew
from stretto.runtime.blocks.source import InMemory
from stretto.runtime.runtimes import Runtime, Serial, Threads
from stretto.solvers.factorization.problem import FactorizationProblem

RUNTIMES: tuple[Runtime, ...] = (Serial(), Threads(1), Threads(2), Threads(3), Threads(4), Threads(8))

PROBLEMS: dict[str, FactorizationProblem] = {
    "sgd": FactorizationProblem(5),
    "sgd, no biases": FactorizationProblem(20, biases=False),
    "sgd, absolute loss": FactorizationProblem(5, loss="absolute"),
    "sgd, logistic loss": FactorizationProblem(5, loss="logistic"),
    "adagrad": FactorizationProblem(20, optimizer="adagrad"),
    "adagrad, no biases": FactorizationProblem(5, optimizer="adagrad", biases=False),
    "adagrad, logistic loss": FactorizationProblem(3, optimizer="adagrad", loss="logistic"),
    "adarevision": FactorizationProblem(12, optimizer="adarevision"),
    "adarevision, no biases": FactorizationProblem(20, optimizer="adarevision", biases=False),
    "adarevision, logistic loss": FactorizationProblem(3, optimizer="adarevision", loss="logistic"),
    "bpr": FactorizationProblem(5, loss="bpr", implicit=True, negatives=2, reg=0.01),
    "warp, no biases": FactorizationProblem(20, loss="warp", implicit=True, biases=False, reg=0.01),
    "logistic, sampled": FactorizationProblem(5, loss="logistic", implicit=True, reg=0.01),
    "als": FactorizationProblem(5, solver="als"),
    "als, no biases": FactorizationProblem(16, solver="als", biases=False),
    "als, cg": FactorizationProblem(20, solver="als", linear_solver="cg"),
    "als, implicit": FactorizationProblem(5, solver="als", implicit=True, biases=False),
    "ccd": FactorizationProblem(5, solver="ccd"),
    "ccd, no biases": FactorizationProblem(5, solver="ccd", biases=False, inner=2),
    "als, implicit, cg": FactorizationProblem(5, solver="als", implicit=True, biases=False, linear_solver="cg"),
}


def some_ratings(n: int = 12_000, rows: int = 300, cols: int = 200, seed: int = 0) -> Data:
    """Skewed ratings, enough for a grid of several blocks."""
    return ratings(n, rows, cols, seed=seed).data


def make_job(
    problem: FactorizationProblem,
    data: Data,
    crew: Crew,
    *,
    seed: int = 7,
    profile: str = "exact",
    width: int = 4,
    test: Data | None = None,
    memory: int | None = None,
    scratch: Path | None = None,
) -> FactorJob:
    """A job over data in memory; with `memory` and `scratch` it streams from disk when it must."""
    return build(
        problem,
        RatingsInput(InMemory(data), data, test, data.shape, None, None),
        crew,
        seed=seed,
        profile=profile,
        width=width,
        physical=Physical("threads", crew.workers, memory),
        scratch=scratch,
    )


@contextmanager
def job_on(
    runtime: Runtime, problem: FactorizationProblem, data: Data, **settings: Any
) -> Iterator[tuple[FactorJob, Crew]]:
    """A job and the open crew it was built with."""
    with runtime.open() as crew:
        yield make_job(problem, data, crew, **settings), crew


def run_epochs(job: FactorJob, crew: Crew, epochs: int) -> list[float]:
    """The objective after each epoch, without a trainer in between."""
    objectives = []
    for epoch in range(epochs):
        steps = job.steps(epoch)
        for step in steps:
            done = crew.run(step, job.plan.logical.profile)
            assert done.failed is None
            assert done.finished is None
        objectives.append(job.report(epoch, steps).objective)
    return objectives


def digest(arrays: dict[str, NDArray[Any]] | Iterable[Any], *more: Any) -> str:
    """One hash over names and bits."""
    total = hashlib.sha256()
    named = sorted(arrays.items()) if isinstance(arrays, dict) else enumerate(arrays)
    for name, array in [*named, *enumerate(more)]:
        total.update(f"{name}:".encode() + np.ascontiguousarray(array).tobytes())
    return total.hexdigest()


def outcome(
    runtime: Runtime, problem: FactorizationProblem, data: Data, epochs: int = 3, **settings: Any
) -> tuple[str, str]:
    """(fingerprint, hash of everything learned and reported) of a run."""
    with job_on(runtime, problem, data, **settings) as (job, crew):
        objectives = run_epochs(job, crew, epochs)
        return job.plan.fingerprint, digest(job.arrays(), objectives)


@st.composite
def small_data(draw: st.DrawFn, max_side: int = 40, max_entries: int = 300) -> Data:
    """Distinct pairs with values from −5 to 5: skewed, with empty rows and columns, down to a single entry."""
    m, n = draw(st.integers(1, max_side)), draw(st.integers(1, max_side))
    seed, skew = draw(st.integers(0, 2**32 - 1)), draw(st.sampled_from([0.0, 1.0, 3.0]))
    random = np.random.default_rng(seed)
    share = [np.arange(1, k + 1.0) ** -skew for k in (m, n)]
    pairs = np.outer(share[0], share[1]).ravel()
    count = draw(st.integers(1, min(m * n, max_entries)))
    chosen = random.choice(m * n, size=count, replace=False, p=pairs / pairs.sum())
    values = random.integers(-10, 11, count).astype(np.float32) / 2
    return Data.from_arrays(*np.divmod(chosen, n), values, (m, n))


def claimable(order: Any, finished: Sequence[int], running: Sequence[int]) -> list[int]:
    """The claiming rule in plain Python: visits whose row block and column block have made every earlier turn."""
    gone = set(finished)
    rows, cols = [0] * order.rows, [0] * order.cols
    for v in finished:
        rows[int(order.row_block[v])] += 1
        cols[int(order.col_block[v])] += 1
    return [
        v
        for v in range(len(order))
        if v not in gone
        and v not in running
        and rows[int(order.row_block[v])] == order.row_turn[v]
        and cols[int(order.col_block[v])] == order.col_turn[v]
    ]
