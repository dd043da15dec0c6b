"""Paths of the Lasso on the scoreboard: 100 penalties from λ_max to λ_max / 100, with intercept.

Every program goes down the same penalties with warm starts. The objective of a path is the largest ratio, over its
penalties, of the objective to that of our path at a duality gap of 1e-7: at most 1 + 1e-4 at every point counts.
scikit-learn's and celer's paths learn no intercept: they get centred data, as their cross-validated estimators give
them (dense ones as a centred copy, which is part of the time; sparse ones by offsets).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import stretto as st

from .scoreboard_linear import Floats, LinearProblem, Solution

WORK = "lasso-path"
POINTS = 100
PATIENT = 2_000
Fit = Callable[[float], Solution]


@dataclass(frozen=True, eq=False)
class PathProblem(LinearProblem):
    """The problems of a path. best: the objectives of our path, filled in by `reference`."""

    best: list[Floats] = field(default_factory=list)

    @property
    def alphas(self) -> Floats:
        """[points] penalties, divided by the number of rows."""
        top = self.weight * self.divisor
        return np.geomspace(top, top / self.divisor, POINTS) / len(self.y)

    def objectives(self, coefs: Floats) -> Floats:
        """[points] objectives of coefficients [points, p], each with its best intercept."""
        used = np.flatnonzero(coefs.any(axis=0))
        residuals = self.y[:, None] - np.asarray(self.columns[:, used] @ coefs[:, used].T)
        residuals -= residuals.mean(axis=0)
        squares = np.einsum("nk,nk->k", residuals, residuals)
        return np.asarray(0.5 * squares + len(self.y) * self.alphas * np.abs(coefs).sum(axis=1))

    def reference(self, coefs: Floats) -> None:
        """Compare with the objectives of these coefficients from here on."""
        self.best[:] = [self.objectives(coefs)]

    def objective(self, found: Solution) -> float:
        """The largest ratio to the reference."""
        if not np.isfinite(found[0]).all():
            return np.inf
        return float((self.objectives(found[0]) / self.best[0]).max())


def _only_coefs(coefs: Any) -> Solution:
    return np.asarray(coefs).T, np.zeros(1)


def stretto(problem: PathProblem, threads: int) -> Fit:
    """`st.lasso_path`."""
    X, y = problem.columns, problem.y

    def fit(tol: float) -> Solution:
        path = st.lasso_path(X, y, alphas=problem.alphas, fit_intercept=True, tol=tol, n_jobs=threads)
        return _only_coefs(path.coefs)

    return fit


def _centred(problem: PathProblem) -> tuple[Any, Floats, dict[str, Floats]]:
    """Dense data centred; sparse data as they are, with what a solver needs to know to centre them."""
    X, y = problem.columns, problem.y
    if not problem.sparse:
        return X - X.mean(axis=0), y - y.mean(), {}
    means = np.asarray(X.mean(axis=0)).ravel()
    return X, y - y.mean(), {"X_offset": means, "X_scale": np.ones_like(means)}


def coordinate_descent(problem: PathProblem, threads: int) -> Fit:
    """`sklearn.linear_model.lasso_path`."""
    from sklearn.linear_model import lasso_path

    def fit(tol: float) -> Solution:
        X, y, offsets = _centred(problem)
        return _only_coefs(lasso_path(X, y, alphas=problem.alphas, tol=tol, max_iter=PATIENT, **offsets)[1])

    return fit


def celer(problem: PathProblem, threads: int) -> Fit:
    """`celer.celer_path`."""
    from celer import celer_path

    def fit(tol: float) -> Solution:
        X, y, offsets = _centred(problem)
        options = {"tol": tol, "max_iter": PATIENT, "prune": True, **offsets}
        return _only_coefs(celer_path(X, y, "lasso", alphas=problem.alphas, **options)[1])

    return fit


def skglm(problem: PathProblem, threads: int) -> Fit:
    """`skglm.Lasso.path`."""
    from skglm import Lasso

    def fit(tol: float) -> Solution:
        model = Lasso(tol=tol * problem.alphas[0], max_iter=PATIENT)
        found = model.path(problem.columns, problem.y, problem.alphas)[1]
        return _only_coefs(found[:-1])  # the last one is the intercept

    return fit


def adelie(problem: PathProblem, threads: int) -> Fit:
    """adelie's path."""
    import adelie as package

    X = package.matrix.sparse(problem.columns, n_threads=threads) if problem.sparse else problem.columns
    glm = package.glm.gaussian(problem.y)

    def fit(tol: float) -> Solution:
        state = package.grpnet(
            X, glm, lmda_path=problem.alphas, tol=tol, n_threads=threads, early_exit=False, progress_bar=False
        )
        coefs = state.betas.toarray()
        missing = POINTS - len(coefs)
        return np.vstack([coefs, np.full((missing, coefs.shape[1]), np.nan)]), np.zeros(1)

    return fit


def glmnet(problem: PathProblem, threads: int) -> Fit:
    """glmnet's path."""
    import glmnet as package

    options = {"n_splits": 0, "lambda_path": problem.alphas, "standardize": False, "max_iter": 1_000_000}

    def fit(tol: float) -> Solution:
        model = package.ElasticNet(alpha=1.0, **options)
        model.tol = tol
        try:
            model.fit(problem.columns, problem.y)
        except (ValueError, RuntimeError):  # its iterations ended
            return np.full((POINTS, problem.columns.shape[1]), np.nan), np.zeros(1)
        coefs = np.full((POINTS, problem.columns.shape[1]), np.nan)
        coefs[: model.coef_path_.shape[-1]] = model.coef_path_.T
        return coefs, np.zeros(1)

    return fit
