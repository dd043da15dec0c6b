"""Prints a hash of whole paths of sparse regressions; run it under several processor settings and compare.

NUMBA_CPU_NAME=haswell NUMBA_CPU_FEATURES= python tests/isa_linear.py
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from jobs import digest
from stretto.data.design.design import Design
from stretto.data.design.row_design import RowDesign
from stretto.runtime.runtimes import Threads
from stretto.schedule.working_sets import working_sets
from stretto.solvers.linear.few_features.solver import FewFeaturesSolver
from stretto.solvers.linear.moments.solver import MomentSolver
from stretto.solvers.linear.regression import Fit, RegressionProblem
from working_made import numbers, solving, stored

FITS: dict[str, dict[str, Any]] = {
    "dense lasso": {},
    "sparse lasso": {"storage": "sparse", "density": 0.08},
    "swept": {"slots": 256, "schedule": working_sets(280)},
    "logistic": {"loss": "logistic", "storage": "sparse", "density": 0.3},
    "dense logistic": {"loss": "logistic"},
}
FEW, ROWS = "few features", "rows"
MOMENTS = {"dense moments": "dense", "sparse moments": "sparse"}


def learned(density: float = 1.0, loss: str = "squared", **settings: Any) -> str:
    """The hash of every fit along a short path, on two threads, with supports large enough for shared factors."""
    X = numbers(240, 420, density)
    score = X[:, :30] @ np.random.default_rng(1).normal(size=30)
    y = score if loss == "squared" else np.where(score > np.median(score), 1.0, -1.0)
    fits: list[Fit] = []
    with solving(X, y, loss=loss, runtime=Threads(2), **settings) as works:
        for share in (0.3, 0.03):
            start = fits[-1] if fits else None
            fits.append(works.fit(share * works.largest_l1(), 0.01, gap=1e-4, start=start))
    facts = [(fit.intercept, fit.gap, fit.objective, fit.rounds, fit.epochs) for fit in fits]
    return digest([fit.coef for fit in fits], np.array(facts))


def from_moments(storage: str) -> str:
    """The hash of a fit from sufficient statistics, with weights and without."""
    X = numbers(700, 21, 0.4)
    y, weight = X[:, :5].sum(axis=1), np.linspace(0.5, 1.5, 700)
    found = []
    with Threads(2).open() as crew:
        for weights in (weight, np.broadcast_to(np.float64(1.0), (700,))):
            solver = MomentSolver(RegressionProblem(stored(X, storage), y, weights, "squared", True), crew)
            fit = solver.fit(0.05 * solver.largest_l1(), 0.01, gap=1e-3)
            found += [fit.coef, np.array([fit.intercept, fit.gap, fit.objective, fit.epochs])]
    return digest(found, np.zeros(0))


def from_few_features() -> str:
    """The hash of fits of few dense features, with L1, both and L2 penalties."""
    X = numbers(900, 37)
    score = X[:, :9] @ np.random.default_rng(1).normal(size=9)
    problem = RegressionProblem(
        Design.of(X), np.where(score > 1.0, 1.0, -1.0), np.ones(900), "logistic", intercept=True
    )
    with Threads(2).open() as crew:
        works = FewFeaturesSolver(problem, crew)
        fits = [works.fit(l1, l2, gap=1e-6) for l1, l2 in ((3.0, 0.0), (0.5, 0.5), (0.0, 1.0))]
    facts = [(fit.intercept, fit.gap, fit.objective, fit.rounds, fit.epochs) for fit in fits]
    return digest([fit.coef for fit in fits], np.array(facts))


def from_rows() -> str:
    """The hash of fits of many sparse features with L2 penalties."""
    X = numbers(400, 700, 0.05)
    y = np.where(X[:, :50] @ np.random.default_rng(1).normal(size=50) > 1.0, 1.0, -1.0)
    problem = RegressionProblem(RowDesign.of(csr_array(X)), y, np.linspace(0.5, 1.5, 400), "logistic", intercept=True)
    with Threads(2).open() as crew:
        works = FewFeaturesSolver(problem, crew, smooth=True)
        fits = [works.fit(0.0, l2, gap=1e-6) for l2 in (10.0, 0.1)]
    facts = [(fit.intercept, fit.gap, fit.objective, fit.rounds, fit.epochs) for fit in fits]
    return digest([fit.coef for fit in fits], np.array(facts))


def hashes(names: list[str]) -> str:
    """A line for each: its name and the hash of what it learned."""

    def made(name: str) -> str:
        if name == FEW:
            return from_few_features()
        if name == ROWS:
            return from_rows()
        return from_moments(MOMENTS[name]) if name in MOMENTS else learned(**FITS[name])

    return "\n".join(f"{name}: {made(name)}" for name in names)


if __name__ == "__main__":
    print(hashes(sys.argv[1:] or [*FITS, *MOMENTS, FEW, ROWS]))
