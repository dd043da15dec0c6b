"""Paths of the Lasso beside celer, skglm and scikit-learn: 100 penalties from λ_max to λ_max/100, with intercept.

Every program goes down the same penalties with warm starts, and every point must reach the gap. The sets are those of
`python -m bench lasso`. celer's and scikit-learn's paths learn no intercept: they get centred data, as their
cross-validated estimators give them (dense ones as a centred copy, which is part of the time; sparse ones by offsets).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse

import stretto as st

from . import peers, report, sparse_sets
from .lasso import PACKAGES, PATIENT, SCALE, largest, posed
from .peers import Fit, Floats, Problem

DIVISORS = (100,)
POINTS = 100
LIMIT = 120.0

load = sparse_sets.load


def pose(X: Any, y: Floats, divisor: int) -> Problem:
    """From λ_max down to λ_max / divisor."""
    top = largest(X, y)
    return posed(X, y, np.geomspace(top, top / divisor, POINTS), top)


def _alphas(problem: Problem) -> Floats:
    return problem.lambdas / len(problem.y)


def _centred(X: Any, y: Floats) -> tuple[Any, Floats, dict[str, Floats]]:
    """Dense data centred; sparse data as they are, with what a solver needs to know to centre them."""
    if not scipy.sparse.issparse(X):
        return X - X.mean(axis=0), y - y.mean(), {}
    means = np.asarray(X.mean(axis=0)).ravel()
    return X, y - y.mean(), {"X_offset": means, "X_scale": np.ones_like(means)}


def stretto(problem: Problem, threads: int) -> Fit:
    """`st.lasso_path`."""

    def fit(tol: float) -> Floats:
        path = st.lasso_path(problem.X, problem.y, alphas=_alphas(problem), fit_intercept=True, tol=tol, n_jobs=threads)
        return np.asarray(path.coefs)

    return fit


def celer(problem: Problem, threads: int) -> Fit:
    """`celer.celer_path`."""
    from celer import celer_path

    def fit(tol: float) -> Floats:
        X, y, offsets = _centred(problem.X, problem.y)
        alphas = _alphas(problem)
        return np.asarray(celer_path(X, y, "lasso", alphas=alphas, tol=tol, max_iter=PATIENT, prune=True, **offsets)[1])

    return fit


def skglm(problem: Problem, threads: int) -> Fit:
    """`skglm.Lasso.path`."""
    from skglm import Lasso

    unit = problem.largest / len(problem.y)

    def fit(tol: float) -> Floats:
        model = Lasso(tol=tol * unit, max_iter=PATIENT)
        return np.asarray(model.path(problem.X, problem.y, _alphas(problem))[1][:-1])  # the last one is the intercept

    return fit


def sklearn(problem: Problem, threads: int) -> Fit:
    """`sklearn.linear_model.lasso_path`."""
    from sklearn.linear_model import lasso_path

    def fit(tol: float) -> Floats:
        X, y, offsets = _centred(problem.X, problem.y)
        return np.asarray(lasso_path(X, y, alphas=_alphas(problem), tol=tol, max_iter=PATIENT, **offsets)[1])

    return fit


PROGRAMS: peers.Programs = {peers.OURS: stretto, "celer": celer, "skglm": skglm, peers.BASE: sklearn}


def main() -> None:
    """Measure every set."""
    peers.compare(
        "lasso_path",
        "Lasso paths beside celer, skglm and scikit-learn",
        list(PROGRAMS),
        sparse_sets.REGRESSION,
        DIVISORS,
        limit=LIMIT,
        scale=SCALE,
        about=report.text(__doc__),
        packages=PACKAGES,
    )
