"""What the tests of the working-set solver share: numbers, designs of every storage, a solver on a crew of its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from stretto.data.design.design import Design
from stretto.runtime.runtimes import Runtime, Serial
from stretto.solvers.linear.columns import ColumnPasses
from stretto.solvers.linear.regression import RegressionProblem
from stretto.solvers.linear.working_sets import WorkingSetSolver

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

LOSSES = ("squared", "logistic")
STORAGES = ("dense", "dense float32", "sparse", "sparse float32")


def numbers(n: int, p: int, density: float = 1.0, seed: int = 0) -> Floats:
    """[n, p] numbers that float32 holds exactly, about `density` of them not zero, away from a mean of zero."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p)) + 0.5
    return np.where(rng.random((n, p)) < density, X, 0.0).astype(np.float32).astype(np.float64)


def stored(X: Floats, storage: str) -> Design:
    """The matrix in one of `STORAGES`."""
    values = X.astype(np.float32) if storage.endswith("float32") else X
    return Design.of(sp.csc_array(values) if storage.startswith("sparse") else np.asfortranarray(values))


@contextmanager
def columns_of(X: Floats, storage: str, runtime: Runtime | None = None) -> Iterator[ColumnPasses]:
    """The passes over a matrix."""
    with (runtime or Serial()).open() as crew:
        yield ColumnPasses(stored(X, storage), crew, "exact")


@contextmanager
def solving(
    X: Floats,
    y: Floats,
    weight: Floats | None = None,
    *,
    loss: str = "squared",
    storage: str = "dense",
    intercept: bool = True,
    positive: bool = False,
    scale: Floats | None = None,
    runtime: Runtime | None = None,
    **settings: Any,
) -> Iterator[WorkingSetSolver]:
    """A solver; settings go to `WorkingSetSolver`."""
    weight = np.ones(len(y)) if weight is None else weight
    problem = RegressionProblem(stored(X, storage), y, weight, loss, intercept, positive, scale)
    with (runtime or Serial()).open() as crew:
        yield WorkingSetSolver(problem, crew, **settings)


def target(X: Floats, loss: str, seed: int = 0) -> Floats:
    """Numbers or classes that some of the columns explain."""
    rng = np.random.default_rng(seed)
    n, p = X.shape
    score = X[:, : min(12, p)] @ rng.normal(size=min(12, p)) + rng.normal(size=n)
    return score + 2.0 if loss == "squared" else np.where(score > np.median(score), 1.0, -1.0)


def weights(n: int) -> Floats:
    """A fifth of the samples do not count."""
    rng = np.random.default_rng(n)
    return np.where(rng.random(n) < 0.2, 0.0, rng.uniform(0.2, 2.0, n))


def whole(works: WorkingSetSolver) -> float:
    """The objective at zero: what gaps are measured by."""
    return works.fit(1.0, gap=0.0, max_rounds=0).objective
