"""`lasso_path`: the same problem under ever weaker penalties, each solution the start of the next.

    alphas, coefs, gaps = st.lasso_path(X, y)       # coefs [p, n_alphas], as scikit-learn gives them

One solver is kept for the whole path: neighbouring solutions share most of their features, and with them the products
of columns that the solver has worked out already.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from numbers import Integral
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from stretto.data.design import LARGEST, Design
from stretto.data.design_files import names_files
from stretto.errors import PlanError
from stretto.kernels.profiles import PROFILES
from stretto.runtime.runtimes import Runtime
from stretto.solvers.regression import Fit

from . import checks
from .linear_base import say
from .linear_input import Given, converted, labelled, laid_out, numbers, shape_of, squared, squared_gap, weights
from .sklearn_base import ConvergenceWarning, check_X_y

if TYPE_CHECKING:
    from stretto.solvers.working_sets import Solver

Floats = NDArray[np.float64]
_MOST_ALPHAS, _LEAST_EPS = 100_000, 1e-12


@dataclass(frozen=True, eq=False)
class LinearPath:
    """Solutions along a path; unpacks into (alphas, coefs, gaps) as scikit-learn's does."""

    alphas: Floats  # [k], falling
    coefs: Any  # [p, k] dense, or CSC
    gaps: Floats  # [k], in units of the objective
    intercepts: Floats  # [k]
    rounds: NDArray[np.int64]  # [k]

    def __iter__(self) -> Iterator[Any]:
        return iter((self.alphas, self.coefs, self.gaps))

    def __len__(self) -> int:
        return 3


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
    n_jobs: int | None = None,
    runtime: Runtime | None = None,
    profile: str = "exact",
    verbose: int = 0,
) -> LinearPath:
    """Coefficients of the Lasso, or with l1_ratio < 1 of the elastic net, along a falling row of penalties.

    X [n, p] dense or sparse, y [n]; or svmlight files, as in `st.Lasso`. alphas: the penalties, put in falling order;
    None or a number k makes n_alphas (or k) of them, evenly spaced in the logarithm from the smallest that gives all
    zeros down to eps times that. As in scikit-learn no intercept is learned unless fit_intercept is set. sparse: coefs
    come as CSC, which for many features is far smaller. The rest is as in `st.Lasso`; every point is solved to tol.

    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(50, 8))
    >>> alphas, coefs, gaps = lasso_path(X, X[:, 0] - X[:, 1], n_alphas=5)
    >>> coefs.shape, (coefs != 0).sum(axis=0).tolist()[:3]
    ((8, 5), [0, 2, 2])
    """
    from stretto.solvers.working_sets import Solver  # here, not above: it imports Numba

    check = checks.of("lasso_path")
    check.number("tol", tol, least=0)
    check.number("tol", tol, most=LARGEST)
    check.number("max_iter", max_iter, least=1, whole=True)
    check.number("l1_ratio", l1_ratio, least=0, most=1)
    check.flags(positive=positive, fit_intercept=fit_intercept, standardize=standardize, sparse=sparse)
    check.choice("profile", profile, PROFILES)
    check.level(verbose)
    where = checks.place(runtime, n_jobs, owner=check.owner)
    given = _given(X, y, sample_weight, check.owner)
    tol, l1_ratio = float(tol), float(l1_ratio)
    with where.open() as crew:
        design, rules = laid_out(given, crew).design, {"positive": positive, "standardize": standardize}
        problem = squared(design, given.y, given.weight, intercept=fit_intercept, **rules)
        works = Solver(problem, crew, profile=profile)
        grid = alphas_for(works, design.shape[0], alphas, n_alphas, eps=eps, l1_ratio=l1_ratio, check=check)
        gap = squared_gap(problem, tol)
        path = follow(works, design.shape, grid, l1_ratio=l1_ratio, gap=gap, max_rounds=max_iter, verbose=verbose > 0)
    return path if sparse else LinearPath(path.alphas, path.coefs.toarray(), path.gaps, path.intercepts, path.rounds)


def _given(X: Any, y: Any, sample_weight: Any, owner: str) -> Given:
    """What a path is made of, validated."""
    if names_files(X):
        X, y = labelled(X, y, owner=owner)
    else:
        X, y = checks.plain(X, owner=owner), checks.plain(y, owner=owner, name="y")
        X, y = check_X_y(X, y, accept_sparse=True, dtype="numeric", ensure_all_finite=False, y_numeric=True)
    weight = weights(sample_weight, shape_of(X), owner=owner)
    return converted(Given(X, numbers(y, owner=owner), Design((0, 0)), weight))


def alphas_for(
    works: Solver, samples: int, alphas: Any, count: int, *, eps: float, l1_ratio: float, check: checks.Checks
) -> Floats:
    """The penalties of a path in falling order: those given, or a grid from the smallest that gives all zeros."""
    if isinstance(alphas, Integral):
        count, alphas = int(alphas), None
    if alphas is not None:
        return _given_alphas(alphas, check)
    check_grid(check, count, eps)
    if l1_ratio == 0:
        raise PlanError("with l1_ratio=0 no penalty gives all zeros, so that there is no grid; give alphas=[...]")
    largest = works.largest_l1()
    top = largest / (samples * l1_ratio)
    if not top <= LARGEST:
        raise PlanError(f"l1_ratio={l1_ratio:g}: the penalty that gives all zeros would be {top:g}; give alphas=[...]")
    while top * samples * l1_ratio < largest:  # rounding must not let a coefficient in at the first point
        top = float(np.nextafter(top, np.inf))
    smallest = float(np.finfo(np.float64).resolution)
    return np.full(count, smallest) if top <= smallest else np.geomspace(top, top * eps, count)


def check_grid(check: checks.Checks, count: Any, eps: Any) -> None:
    """Refuse a grid of penalties that cannot be solved for."""
    check.number("n_alphas", count, least=1, whole=True)
    check.number("n_alphas", count, most=_MOST_ALPHAS)
    check.number("eps", eps, above=0, below=1)
    check.number("eps", eps, least=_LEAST_EPS, why="weaker penalties are lost in rounding")


def _given_alphas(alphas: Any, check: checks.Checks) -> Floats:
    """Penalties in falling order."""
    try:
        given = np.asarray(alphas)
        if given.ndim != 1 or given.dtype.kind not in "iufO":
            raise TypeError
        found = np.sort(given.astype(np.float64))[::-1]
    except (TypeError, ValueError, OverflowError):
        found = np.empty(0)
    if not len(found) or not found[-1] > 0 or not found[0] <= LARGEST:
        raise check.wrong("alphas", f"numbers more than 0 and at most {LARGEST:g}, or how many to make", alphas)
    return np.ascontiguousarray(found)


def follow(
    works: Solver,
    shape: tuple[int, int],
    alphas: Floats,
    *,
    l1_ratio: float,
    gap: float,
    max_rounds: int,
    verbose: bool = False,
) -> LinearPath:
    """Solve for each alpha from the solution before it; coefs come as CSC. verbose: a line for each."""
    import scipy.sparse

    samples, features = shape
    rows: list[NDArray[np.int64]] = []
    values: list[Floats] = []
    gaps, intercepts = np.empty(len(alphas)), np.empty(len(alphas))
    rounds = np.zeros(len(alphas), np.int64)
    fit: Fit | None = None
    unfinished = 0
    for k, alpha in enumerate(alphas):
        strength = float(alpha) * samples
        fit = works.fit(strength * l1_ratio, strength * (1.0 - l1_ratio), gap=gap, max_rounds=max_rounds, start=fit)
        rows.append(np.flatnonzero(fit.coef))
        values.append(fit.coef[rows[-1]])
        gaps[k], intercepts[k], rounds[k] = fit.gap / samples, fit.intercept, fit.rounds
        unfinished += not fit.converged
        if verbose:
            found = f"{len(rows[-1]):,} coefficients  gap {gaps[k]:.2e} of {gap / samples:.2e}"
            say(f"alpha {k + 1}/{len(alphas)}  {alpha:.4g}  {found}  {fit.rounds} rounds")
    if unfinished:
        warnings.warn(
            f"{unfinished} of {len(alphas)} points of the path stopped after {max_rounds} rounds above the duality gap "
            f"of {gap / samples:.3g} that tol asks for (the largest is {gaps.max():.3g}); raise max_iter, tol or eps",
            ConvergenceWarning,
            stacklevel=3,
        )
    indptr = np.cumsum([0, *map(len, rows)])
    coefs = scipy.sparse.csc_array(
        (np.concatenate(values), np.concatenate(rows), indptr), shape=(features, len(alphas))
    )
    return LinearPath(alphas, coefs, gaps, intercepts, rounds)
