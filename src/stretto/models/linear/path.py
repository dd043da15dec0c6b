"""`lasso_path` and `enet_path`: solutions for falling penalties, each starting from the one before.

    alphas, coefs, gaps = st.lasso_path(X, y)       # coefs [p, n_alphas], as scikit-learn returns them
    alphas, coefs, gaps = st.enet_path(X, y, l1_ratio=0.5)

One solver is kept for the whole path: neighbouring solutions share most of their features, so the solver can reuse
inner products of columns.
"""

from __future__ import annotations

import time
from typing import Any, Literal

from stretto.data.design.design import LARGEST, Design
from stretto.data.design.design_files import names_files
from stretto.kernels.core.profiles import PROFILES
from stretto.models import checks
from stretto.models.sklearn_base import check_X_y
from stretto.observe.events import WidthChosen
from stretto.runtime.runtimes import Runtime
from stretto.runtime.session import Session
from stretto.solvers.linear.fit_saving import saving_fit

from .input import LinearInput, converted, labelled, laid_out, numbers, shape_of, squared, squared_gap, weights
from .path_points import LinearPath, alphas_for, follow
from .plan import plan_path


def lasso_path(
    X: Any,
    y: Any = None,
    *,
    eps: float = 1e-3,
    n_alphas: int = 100,
    alphas: Any = None,
    l1_ratio: float = 1.0,
    positive: bool = False,
    fit_intercept: bool = False,
    standardize: bool = False,
    tol: float = 1e-4,
    max_iter: int = 100,
    sample_weight: Any = None,
    sparse: bool = False,
    n_jobs: int | Literal["auto"] | None = None,
    runtime: Runtime | None = None,
    profile: str = "exact",
    verbose: int = 0,
    session: Session | None = None,
) -> LinearPath:
    """Coefficients of the Lasso, or with l1_ratio < 1 of the elastic net, along falling penalties.

    Parameters
    ----------
    X : array or sparse matrix [n, p], DataFrame or paths
        Samples × features, or svmlight files, as for `st.Lasso`.
    y : array [n] or None, default None
        Targets; None with files.
    eps : float, default 0.001
        The smallest penalty, as a share of the smallest one that gives all zeros.
    n_alphas : int, default 100
        Number of penalties, evenly spaced in the logarithm.
    alphas : array, int or None, default None
        The penalties, or how many; overrides eps and n_alphas.
    l1_ratio : float, default 1.0
        Share of the penalty that is ‖w‖₁.
    positive : bool, default False
        Coefficients may not be negative.
    fit_intercept : bool, default False
        Learn an intercept; not by default, as in scikit-learn.
    standardize : bool, default False
        Penalise as if every column had standard deviation 1.
    tol : float, default 0.0001
        Stop when the duality gap is at most tol·‖y − ȳ‖²/n, for every penalty.
    max_iter : int, default 100
        The most rounds for each penalty.
    sample_weight : array [n] or None, default None
        Weights of the samples.
    sparse : bool, default False
        Return coefficients as CSC, which for many features is far smaller.
    n_jobs : int, "auto" or None, default None
        Threads; None uses every core that this process may use. "auto" uses a thread for every 65,536 values that a
        pass over X reads, at most every core. Never changes the answer.
    runtime : runtime or None, default None
        Where to run, as in `st.Lasso`; overrides n_jobs.
    profile : {"exact", "fast"}, default "exact"
        "exact" gives the same bits on every x86-64 processor.
    verbose : int, default 0
        0 quiet, 1 a line for each penalty.
    session : Session or None, default None
        Where to record the run, when to save checkpoints, and whether to resume from one.

    Returns
    -------
    LinearPath
        Unpacks into (alphas, coefs, gaps).

    Examples
    --------
    >>> import numpy as np, stretto as st
    >>> X = np.random.default_rng(0).normal(size=(50, 8))
    >>> alphas, coefs, gaps = st.lasso_path(X, X[:, 0] - X[:, 1], n_alphas=5)
    >>> coefs.shape, (coefs != 0).sum(axis=0).tolist()[:3]
    ((8, 5), [0, 2, 2])
    """
    return _path(
        "lasso_path",
        X,
        y,
        eps=eps,
        n_alphas=n_alphas,
        alphas=alphas,
        l1_ratio=l1_ratio,
        positive=positive,
        fit_intercept=fit_intercept,
        standardize=standardize,
        tol=tol,
        max_iter=max_iter,
        sample_weight=sample_weight,
        sparse=sparse,
        n_jobs=n_jobs,
        runtime=runtime,
        profile=profile,
        verbose=verbose,
        session=session,
    )


def enet_path(
    X: Any,
    y: Any = None,
    *,
    l1_ratio: float = 0.5,
    eps: float = 1e-3,
    n_alphas: int = 100,
    alphas: Any = None,
    positive: bool = False,
    fit_intercept: bool = False,
    standardize: bool = False,
    tol: float = 1e-4,
    max_iter: int = 100,
    sample_weight: Any = None,
    sparse: bool = False,
    n_jobs: int | Literal["auto"] | None = None,
    runtime: Runtime | None = None,
    profile: str = "exact",
    verbose: int = 0,
    session: Session | None = None,
) -> LinearPath:
    """Coefficients of the elastic net along falling penalties.

    Parameters
    ----------
    X : array or sparse matrix [n, p], DataFrame or paths
        Samples × features, or svmlight files, as for `st.ElasticNet`.
    y : array [n] or None, default None
        Targets; None with files.
    l1_ratio : float, default 0.5
        Share of the penalty that is ‖w‖₁. With 0, which gives no zeros, alphas must be given.
    eps : float, default 0.001
        The smallest penalty, as a share of the smallest one that gives all zeros.
    n_alphas : int, default 100
        Number of penalties, evenly spaced in the logarithm.
    alphas : array, int or None, default None
        The penalties, or how many; overrides eps and n_alphas.
    positive : bool, default False
        Coefficients may not be negative.
    fit_intercept : bool, default False
        Learn an intercept; not by default, as in scikit-learn.
    standardize : bool, default False
        Penalise as if every column had standard deviation 1.
    tol : float, default 0.0001
        Stop when the duality gap is at most tol·‖y − ȳ‖²/n, for every penalty.
    max_iter : int, default 100
        The most rounds for each penalty.
    sample_weight : array [n] or None, default None
        Weights of the samples.
    sparse : bool, default False
        Return coefficients as CSC, which for many features is far smaller.
    n_jobs : int, "auto" or None, default None
        Threads; None uses every core that this process may use. "auto" uses a thread for every 65,536 values that a
        pass over X reads, at most every core. Never changes the answer.
    runtime : runtime or None, default None
        Where to run, as in `st.Lasso`; overrides n_jobs.
    profile : {"exact", "fast"}, default "exact"
        "exact" gives the same bits on every x86-64 processor.
    verbose : int, default 0
        0 quiet, 1 a line for each penalty.
    session : Session or None, default None
        Where to record the run, when to save checkpoints, and whether to resume from one.

    Returns
    -------
    LinearPath
        Unpacks into (alphas, coefs, gaps).

    Examples
    --------
    >>> import numpy as np, stretto as st
    >>> X = np.random.default_rng(0).normal(size=(50, 8))
    >>> alphas, coefs, gaps = st.enet_path(X, X[:, 0] - X[:, 1], l1_ratio=0.9, n_alphas=5)
    >>> coefs.shape, (coefs != 0).sum(axis=0).tolist()[:3]
    ((8, 5), [0, 2, 2])
    """
    return _path(
        "enet_path",
        X,
        y,
        eps=eps,
        n_alphas=n_alphas,
        alphas=alphas,
        l1_ratio=l1_ratio,
        positive=positive,
        fit_intercept=fit_intercept,
        standardize=standardize,
        tol=tol,
        max_iter=max_iter,
        sample_weight=sample_weight,
        sparse=sparse,
        n_jobs=n_jobs,
        runtime=runtime,
        profile=profile,
        verbose=verbose,
        session=session,
    )


def _path(
    owner: str,
    X: Any,
    y: Any,
    *,
    eps: float,
    n_alphas: int,
    alphas: Any,
    l1_ratio: float,
    positive: bool,
    fit_intercept: bool,
    standardize: bool,
    tol: float,
    max_iter: int,
    sample_weight: Any,
    sparse: bool,
    n_jobs: int | Literal["auto"] | None,
    runtime: Runtime | None,
    profile: str,
    verbose: int,
    session: Session | None,
) -> LinearPath:
    """A path of penalties. owner: the function that was called, for messages"""
    from stretto.solvers.linear.moments.solver import solver_of  # here, not above: it imports Numba

    check = checks.of(owner)
    check.number("tol", tol, least=0)
    check.number("tol", tol, most=LARGEST)
    check.number("max_iter", max_iter, least=1, whole=True)
    check.number("l1_ratio", l1_ratio, least=0, most=1)
    check.flags(positive=positive, fit_intercept=fit_intercept, standardize=standardize, sparse=sparse)
    check.choice("profile", profile, PROFILES)
    check.level(verbose)
    where = checks.place(runtime, n_jobs, owner=owner)
    given = _given(X, y, sample_weight, owner)
    tol, l1_ratio = float(tol), float(l1_ratio)
    values = {"eps": eps, "n_alphas": n_alphas, "alphas": alphas, "l1_ratio": l1_ratio, "positive": positive}
    values |= {"fit_intercept": fit_intercept, "standardize": standardize, "tol": tol, "max_iter": max_iter}
    plan = plan_path(owner, given, values, profile, where, hashed=session is not None)
    where, reason = checks.by_work(where, plan.cost.entries)
    with where.open() as crew, saving_fit(session, plan) as saved:
        if reason:
            saved.tell(WidthChosen(time.time(), 1, crew.workers, reason, settled=True))
        design, rules = laid_out(given, crew).design, {"positive": positive, "standardize": standardize}
        problem = squared(design, given.y, given.weight, intercept=fit_intercept, **rules)
        works = solver_of(problem, crew, profile=profile)
        grid = alphas_for(works, design.shape[0], alphas, n_alphas, eps=eps, l1_ratio=l1_ratio, check=check)
        gap = squared_gap(works, tol)
        saved.goal = len(grid)
        path = follow(
            works,
            design.shape,
            grid,
            l1_ratio=l1_ratio,
            gap=gap,
            max_rounds=max_iter,
            verbose=verbose > 0,
            saved=saved,
            stacklevel=4,
        )
    return path if sparse else LinearPath(path.alphas, path.coefs.toarray(), path.gaps, path.intercepts, path.rounds)


def _given(X: Any, y: Any, sample_weight: Any, owner: str) -> LinearInput:
    """Validated input of a path."""
    if names_files(X):
        X, y = labelled(X, y, owner=owner)
    else:
        X, y = checks.plain(X, owner=owner), checks.plain(y, owner=owner, name="y")
        X, y = check_X_y(X, y, accept_sparse=True, dtype="numeric", ensure_all_finite=False, y_numeric=True)
    weight = weights(sample_weight, shape_of(X), owner=owner, shared=True)
    return converted(LinearInput(X, numbers(y, owner=owner), Design((0, 0)), weight))
