"""L1 logistic regression beside liblinear, skglm, celer and scikit-learn's saga, at λ_max/10 and /100.

The objective is Σ log(1 + exp(−y·Xβ)) + λ‖β‖₁, without intercept, which celer does not offer; C = 1/λ. IMDB (7 stars
and more), 20news (the first ten classes against the others), a9a, w8a and ijcnn1 are sparse, Gordon (microarray) is
dense. liblinear is its solver 6, which also runs on several threads.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import stretto as st

from . import peers, report, sparse_sets
from .lasso import PATIENT
from .peers import Fit, Floats, Problem

DIVISORS = (10, 100)
LIMIT = 60.0
PACKAGES = ("liblinear-multicore", "skglm", "celer", "scikit-learn")

load = sparse_sets.load_classes


def pose(X: Any, y: Floats, divisor: int) -> Problem:
    """λ = λ_max / divisor."""
    from scipy.special import entr, expit

    top = float(np.abs(X.T @ y).max()) / 2
    penalty = top / divisor

    def gap(coefs: Floats) -> float:
        [coef] = coefs.T
        margins = y * (X @ coef)
        primal = np.logaddexp(0, -margins).sum() + penalty * np.abs(coef).sum()
        # A dual point is the probability of being wrong, scaled until no correlation exceeds λ.
        wrong = expit(-margins)
        wrong *= min(1.0, penalty / np.abs(X.T @ (y * wrong)).max())
        return float(primal - (entr(wrong) + entr(1 - wrong)).sum())

    return Problem(X, y, np.array([penalty]), top, len(y) * float(np.log(2)), gap)


def _C(problem: Problem) -> float:
    return 1.0 / float(problem.lambdas[0])


def _rows(X: Any) -> Any:
    """X by rows, for the programs that work on samples."""
    return X.tocsr() if hasattr(X, "indptr") else np.ascontiguousarray(X)


def stretto(problem: Problem, threads: int) -> Fit:
    """`st.LogisticRegression`."""
    model = st.LogisticRegression(_C(problem), l1_ratio=1.0, fit_intercept=False, n_jobs=threads)
    return lambda tol: model.set_params(tol=tol).fit(problem.X, problem.y).coef_.T


def liblinear(problem: Problem, threads: int) -> Fit:
    """LIBLINEAR's own library."""
    import scipy.sparse
    from liblinear import liblinearutil

    made = liblinearutil.problem(problem.y, scipy.sparse.csr_matrix(problem.X))

    def fit(tol: float) -> Floats:
        options = f"-s 6 -c {_C(problem):.17g} -e {tol} -m {threads} -q"
        model = liblinearutil.train(made, options)
        coef = np.array(model.get_decfun()[0])[:, None]
        return coef if model.get_labels()[0] > 0 else -coef

    return fit


def skglm(problem: Problem, threads: int) -> Fit:
    """`skglm.SparseLogisticRegression`."""
    from skglm import SparseLogisticRegression

    n = len(problem.y)
    model = SparseLogisticRegression(float(problem.lambdas[0]) / n, max_iter=PATIENT, fit_intercept=False)
    return lambda tol: model.set_params(tol=tol * problem.largest / n).fit(problem.X, problem.y).coef_.reshape(-1, 1)


def celer(problem: Problem, threads: int) -> Fit:
    """What `celer.LogisticRegression` calls, which would turn columns into rows and back again."""
    from celer import celer_path

    def fit(tol: float) -> Floats:
        X, y, alphas = problem.X, problem.y, problem.lambdas
        return np.asarray(celer_path(X, y, "logreg", alphas=alphas, tol=tol, max_iter=PATIENT, use_PN=True)[1])

    return fit


def sklearn(problem: Problem, threads: int) -> Fit:
    """`sklearn.linear_model.LogisticRegression`."""
    from sklearn.linear_model import LogisticRegression

    X = _rows(problem.X)
    model = LogisticRegression(
        C=_C(problem), l1_ratio=1.0, solver="saga", fit_intercept=False, max_iter=PATIENT, random_state=0
    )
    return lambda tol: model.set_params(tol=tol).fit(X, problem.y).coef_.T


PROGRAMS: peers.Programs = {
    peers.OURS: stretto,
    "liblinear": liblinear,
    "skglm": skglm,
    "celer": celer,
    peers.BASE: sklearn,
}


def main() -> None:
    """Measure every set at both penalties."""
    peers.compare(
        "sparse_logistic",
        "L1 logistic regression beside liblinear, skglm, celer and scikit-learn",
        list(PROGRAMS),
        sparse_sets.CLASSES,
        DIVISORS,
        limit=LIMIT,
        scale="n·log 2",
        about=report.text(__doc__),
        packages=PACKAGES,
    )
