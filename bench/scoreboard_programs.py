"""Programs of the scoreboard's linear models: ours and every peer.

Every program is a function of a tolerance that fits and returns (coefficients [k, p], intercepts [k]).
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

import stretto as st

from . import scoreboard_paths
from .scoreboard_linear import WORKS, LinearProblem, Solution
from .scoreboard_paths import PathProblem

Fit = Callable[[float], Solution]

OURS = "Stretto"
LOOSE_TO_TIGHT = (1.0, 0.3, 1e-1, 3e-2, 1e-2, 3e-3, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7)
PATIENT = 2_000  # iterations at most
_CONSTANT = 100.0  # feature that stands for an intercept: the larger, the less the penalty on it counts
SAGA_ENTRIES = 5_000_000  # entries above which saga, never the fastest, is left out


def _solution(model: Any) -> Solution:
    return np.atleast_2d(model.coef_), np.ravel(model.intercept_)


def _at(model: Any, tol: float, most: int = PATIENT) -> Any:
    """The model with another tolerance. Not by `set_params`, which takes as long as a small fit."""
    model.tol, model.max_iter = tol, most
    return model


def stretto(problem: LinearProblem, threads: int) -> Fit:
    """Our estimator with its defaults, apart from the tolerance."""
    model: Any
    n = len(problem.y)
    if problem.work == "lasso":
        X, model = problem.columns, st.Lasso(problem.weight / n, n_jobs=threads)
    elif problem.work == "elastic":
        X, model = problem.columns, st.ElasticNet(problem.weight / n, l1_ratio=problem.l1, n_jobs=threads)
    else:
        X, model = problem.data.X, st.LogisticRegression(1.0 / problem.weight, l1_ratio=problem.l1, n_jobs=threads)
    return lambda tol: _solution(_at(model, tol).fit(X, problem.y))


def coordinate_descent(problem: LinearProblem, threads: int) -> Fit:
    """scikit-learn's coordinate descent."""
    from sklearn.linear_model import ElasticNet, Lasso

    alpha = problem.weight / len(problem.y)
    model: Any = Lasso(alpha) if problem.l1 == 1.0 else ElasticNet(alpha, l1_ratio=problem.l1)
    X = problem.columns
    return lambda tol: _solution(_at(model, tol).fit(X, problem.y))


def _sklearn(solver: str, **options: Any) -> Callable[[LinearProblem, int], Fit]:
    def make(problem: LinearProblem, threads: int) -> Fit:
        from sklearn.linear_model import LogisticRegression

        C = 1.0 / problem.weight
        model = LogisticRegression(C=C, l1_ratio=problem.l1, solver=solver, max_iter=PATIENT, random_state=0, **options)
        return lambda tol: _solution(_at(model, tol).fit(problem.data.X, problem.y))

    return make


def skglm(problem: LinearProblem, threads: int) -> Fit:
    """skglm's estimators; its elastic net for classes is put together from its parts."""
    import skglm as package

    n, X, model = len(problem.y), problem.columns, None
    alpha = problem.weight / n
    if problem.work == "lasso":
        model = package.Lasso(alpha)
    elif problem.work == "elastic":
        model = package.ElasticNet(alpha, l1_ratio=problem.l1)
    elif problem.work == "logistic-l1":
        model = package.SparseLogisticRegression(alpha)
    if model is not None:
        return lambda tol: _solution(_at(model, tol * alpha, 200).fit(X, problem.y))
    from skglm.datafits import Logistic
    from skglm.penalties import L1_plus_L2
    from skglm.solvers import ProxNewton

    def fit(tol: float) -> Solution:
        solver = ProxNewton(tol=tol * alpha, max_iter=200)
        made = package.GeneralizedLinearEstimator(Logistic(), L1_plus_L2(alpha, problem.l1), solver)
        return _solution(made.fit(X, problem.y))

    return fit


def celer(problem: LinearProblem, threads: int) -> Fit:
    """celer's Lasso and elastic net."""
    import celer as package

    alpha, X = problem.weight / len(problem.y), problem.columns
    model = package.Lasso(alpha) if problem.l1 == 1.0 else package.ElasticNet(alpha, l1_ratio=problem.l1)
    return lambda tol: _solution(_at(model, tol, 200).fit(X, problem.y))


def adelie(problem: LinearProblem, threads: int) -> Fit:
    """adelie at one penalty, the coordinate descent of glmnet's authors."""
    import adelie as package

    alpha, regression = problem.weight / len(problem.y), WORKS[problem.work].use == "value"
    X = package.matrix.sparse(problem.columns, n_threads=threads) if problem.sparse else problem.columns
    target = problem.y if regression else (problem.y > 0.0).astype(np.float64)
    glm = package.glm.gaussian(target) if regression else package.glm.binomial(target)

    def fit(tol: float) -> Solution:
        state = package.grpnet(
            X, glm, alpha=problem.l1, lmda_path=[alpha], tol=tol, irls_tol=tol, n_threads=threads, early_exit=False,
            progress_bar=False,
        )  # fmt: skip
        return state.betas.toarray()[-1:], np.ravel(state.intercepts)[-1:]

    return fit


def snapml(problem: LinearProblem, threads: int) -> Fit:
    """Snap ML's logistic regression in the primal, which has no intercept: a large constant feature stands for it."""
    import scipy.sparse
    import snapml as package

    target = (problem.y > 0.0).astype(np.float64)
    constant = np.full((len(target), 1), _CONSTANT)
    X = (
        scipy.sparse.hstack([problem.data.X, constant], "csr")
        if problem.sparse
        else np.hstack([problem.data.X, constant])
    )
    penalty = "l1" if problem.l1 else "l2"

    def fit(tol: float) -> Solution:
        model = package.LogisticRegression(
            max_iter=PATIENT, regularizer=problem.weight, dual=False, penalty=penalty, tol=tol, n_jobs=threads
        )
        coef = np.ravel(model.fit(X, target).coef_)
        return coef[None, :-1], _CONSTANT * coef[-1:]

    return fit


def intelex(problem: LinearProblem, threads: int) -> Fit:
    """Intel's extension of scikit-learn: its own L-BFGS and coordinate descent, for dense data."""
    if WORKS[problem.work].use == "value":
        from daal4py.sklearn import linear_model as package

        alpha = problem.weight / len(problem.y)
        X = problem.columns
        model: Any = package.Lasso(alpha) if problem.l1 == 1.0 else package.ElasticNet(alpha, l1_ratio=problem.l1)
    else:
        from sklearnex import linear_model as package

        X, model = problem.data.X, package.LogisticRegression(C=1.0 / problem.weight)
    return lambda tol: _solution(_at(model, tol).fit(X, problem.y))


def glmnet(problem: LinearProblem, threads: int) -> Fit:
    """glmnet at one penalty. Not elastic nets: it scales y, and the ridge part of a given penalty with it."""
    import glmnet as package

    alpha, regression = problem.weight / len(problem.y), WORKS[problem.work].use == "value"
    kind = package.ElasticNet if regression else package.LogitNet
    options = {"n_splits": 0, "lambda_path": [alpha], "standardize": False, "max_iter": 1_000_000}
    model = kind(alpha=problem.l1, **options)
    X = problem.columns

    def fit(tol: float) -> Solution:
        model.tol = tol
        try:
            model.fit(X, problem.y)
        except (
            ValueError,
            RuntimeError,
        ):  # its iterations ended; the objective is NaN, and the next tolerance is tried
            return np.full((1, X.shape[1]), np.nan), np.zeros(1)
        coef = np.atleast_2d(model.coef_path_[..., 0])
        return coef, np.ravel(model.intercept_path_)[: len(coef)]

    return fit


def liblinear_threads(problem: LinearProblem, threads: int) -> Fit:
    """liblinear with several threads (-m) and an intercept without penalty (-R)."""
    from liblinear import liblinearutil

    sign = np.where(problem.y > 0, 1.0, -1.0)
    made = liblinearutil.problem(sign, problem.data.X)
    solver = 6 if problem.l1 else 0

    def fit(tol: float) -> Solution:
        options = f"-s {solver} -c {1.0 / problem.weight:.17g} -e {tol:g} -B 1 -R -m {threads} -q"
        model = liblinearutil.train(made, options)
        coef, intercept = model.get_decfun()
        return np.atleast_2d(coef), np.ravel(intercept)

    return fit


@dataclass(frozen=True)
class Program:
    """A peer. package: imported to see whether it can run. works: kinds of problem. fits: problems it takes."""

    package: str
    works: tuple[str, ...]
    make: Callable[[LinearProblem, int], Fit]
    fits: Callable[[LinearProblem], bool] = lambda problem: True
    least_threads: int = 1  # below, another entry is the same program


def _small(problem: LinearProblem) -> bool:
    X = problem.data.X
    return int(X.nnz if problem.sparse else X.size) <= SAGA_ENTRIES


def _narrow(problem: LinearProblem) -> bool:
    classes = 1 if WORKS[problem.work].use == "sign" else int(problem.y.max()) + 1
    return problem.data.X.shape[1] * classes <= 2_000 and not problem.sparse


_free: dict[str, Any] = {"intercept_scaling": _CONSTANT}
REGRESSIONS, PENALISED = ("lasso", "elastic"), ("logistic-l1", "logistic-elastic", "softmax-l1")
SMOOTH = ("logistic-l2", "softmax-l2")
PEERS: Mapping[str, Program] = {
    "coordinate descent": Program("sklearn", REGRESSIONS, coordinate_descent),
    "liblinear": Program("sklearn", ("logistic-l1", "logistic-l2"), _sklearn("liblinear", **_free)),
    "liblinear -m": Program("liblinear", ("logistic-l1", "logistic-l2"), liblinear_threads, least_threads=2),
    "liblinear dual": Program("sklearn", ("logistic-l2",), _sklearn("liblinear", dual=True, **_free)),
    "saga": Program("sklearn", PENALISED, _sklearn("saga"), _small),
    "lbfgs": Program("sklearn", SMOOTH, _sklearn("lbfgs")),
    "newton-cg": Program("sklearn", ("softmax-l2",), _sklearn("newton-cg")),
    "newton-cholesky": Program("sklearn", SMOOTH, _sklearn("newton-cholesky"), _narrow),
    "skglm": Program("skglm", (*REGRESSIONS, "logistic-l1", "logistic-elastic"), skglm),
    "celer": Program("celer", REGRESSIONS, celer),
    "adelie": Program("adelie", (*REGRESSIONS, "logistic-l1", "logistic-elastic"), adelie),
    "glmnet": Program("glmnet", ("lasso", "logistic-l1", "logistic-elastic", *SMOOTH, "softmax-l1"), glmnet),
    "Snap ML": Program("snapml", ("logistic-l1", "logistic-l2"), snapml),
    "intelex": Program("sklearnex", (*REGRESSIONS, *SMOOTH), intelex, lambda problem: not problem.sparse),
}

PATHS: Mapping[str, Callable[[PathProblem, int], Fit]] = {
    "coordinate descent": scoreboard_paths.coordinate_descent,
    "skglm": scoreboard_paths.skglm,
    "celer": scoreboard_paths.celer,
    "adelie": scoreboard_paths.adelie,
    "glmnet": scoreboard_paths.glmnet,
}


def missing() -> list[str]:
    """Packages of peers that cannot be imported here."""
    absent = []
    for package in sorted({peer.package for peer in PEERS.values()}):
        try:
            importlib.import_module(package)
        except ImportError:
            absent.append(package)
    return absent


def programs(problem: LinearProblem, threads: int) -> dict[str, Fit]:
    """Ours and the peers that can run and solve this problem."""
    absent = missing()
    if isinstance(problem, PathProblem):
        made = {OURS: scoreboard_paths.stretto(problem, threads)}
        makers = {title: make for title, make in PATHS.items() if PEERS[title].package not in absent}
        return made | {title: make(problem, threads) for title, make in makers.items()}
    made = {OURS: stretto(problem, threads)}
    for title, peer in PEERS.items():
        here = peer.package not in absent and threads >= peer.least_threads
        if here and problem.work in peer.works and peer.fits(problem):
            made[title] = peer.make(problem, threads)
    return made
