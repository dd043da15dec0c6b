"""The Lasso beside celer, skglm and scikit-learn: single fits at λ_max/10, /100 and /1000, with intercept.

The objective is ½‖y − Xβ − b‖² + λ‖β‖₁. IMDB (stars of a review) and 20news (number of the class) are logarithms of
word counts and sparse, as is BlogFeedback; mice GWAS (body-mass index), Gordon (microarray, label −1 or +1) and the
generated set (2 000 × 200 000, blocks of 50 features with correlation 0.9, 100 true ones) are dense.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import stretto as st

from . import peers, report, sparse_sets
from .peers import Fit, Floats, Problem

DIVISORS = (10, 100, 1000)
LIMIT = 60.0
PACKAGES = ("celer", "skglm", "scikit-learn")
SCALE = "‖y − ȳ‖²"
PATIENT = 1_000_000  # iterations no program comes to: the tolerance ends a fit, or the clock

load = sparse_sets.load


def largest(X: Any, y: Floats) -> float:
    """λ_max of the problem with intercept."""
    return float(np.abs(X.T @ (y - y.mean())).max())


def posed(X: Any, y: Floats, lambdas: Floats, top: float) -> Problem:
    """The problem with these penalties, its gap measured on centred data."""
    centred = y - y.mean()

    def gap(coefs: Floats) -> float:
        used = np.flatnonzero(coefs.any(axis=1))
        residuals = y[:, None] - X[:, used] @ coefs[used]
        residuals -= residuals.mean(axis=0)  # the best intercept, and X need not be centred any more
        squares = np.einsum("nk,nk->k", residuals, residuals)
        # A dual point is the residual scaled: as far as the objective gains by it and no correlation exceeds λ.
        steepest = np.abs(X.T @ residuals).max(axis=0)
        share = np.minimum(centred @ residuals / squares, lambdas / steepest)
        primal = squares / 2 + lambdas * np.abs(coefs).sum(axis=0)
        dual = share * (centred @ residuals) - share**2 * squares / 2
        return float((primal - dual).max())

    return Problem(X, y, lambdas, top, float(centred @ centred), gap)


def pose(X: Any, y: Floats, divisor: int) -> Problem:
    """λ = λ_max / divisor."""
    top = largest(X, y)
    return posed(X, y, np.array([top / divisor]), top)


def _alpha(problem: Problem) -> float:
    return float(problem.lambdas[0]) / len(problem.y)


def stretto(problem: Problem, threads: int) -> Fit:
    """`st.Lasso`."""
    model = st.Lasso(_alpha(problem), n_jobs=threads)
    return lambda tol: model.set_params(tol=tol).fit(problem.X, problem.y).coef_[:, None]


def celer(problem: Problem, threads: int) -> Fit:
    """`celer.Lasso`."""
    from celer import Lasso

    model = Lasso(_alpha(problem), max_iter=PATIENT)
    return lambda tol: model.set_params(tol=tol).fit(problem.X, problem.y).coef_[:, None]


def skglm(problem: Problem, threads: int) -> Fit:
    """`skglm.Lasso`."""
    from skglm import Lasso

    unit = problem.largest / len(problem.y)
    model = Lasso(_alpha(problem), max_iter=PATIENT)
    return lambda tol: model.set_params(tol=tol * unit).fit(problem.X, problem.y).coef_[:, None]


def sklearn(problem: Problem, threads: int) -> Fit:
    """`sklearn.linear_model.Lasso`."""
    from sklearn.linear_model import Lasso

    model = Lasso(_alpha(problem), max_iter=PATIENT)
    return lambda tol: model.set_params(tol=tol).fit(problem.X, problem.y).coef_[:, None]


PROGRAMS: peers.Programs = {peers.OURS: stretto, "celer": celer, "skglm": skglm, peers.BASE: sklearn}


def main() -> None:
    """Measure every set at every penalty."""
    peers.compare(
        "lasso",
        "Lasso beside celer, skglm and scikit-learn",
        list(PROGRAMS),
        sparse_sets.REGRESSION,
        DIVISORS,
        limit=LIMIT,
        scale=SCALE,
        about=report.text(__doc__),
        packages=PACKAGES,
    )
