"""`lasso_path`: solutions of the Lasso for falling penalties, each starting from the one before.

    alphas, coefs, gaps = st.lasso_path(X, y)       # coefs [p, n_alphas], as scikit-learn returns them

One solver is kept for the whole path: neighbouring solutions share most of their features, so the solver can reuse
inner products of columns.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from numbers import Integral
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from stretto.data.design.design import LARGEST, Design
from stretto.data.design.design_files import names_files
from stretto.errors import PlanError
from stretto.kernels.core.profiles import PROFILES
from stretto.models import checks
from stretto.models.sklearn_base import ConvergenceWarning, check_X_y
from stretto.observe.events import WidthChosen
from stretto.runtime.runtimes import Runtime
from stretto.runtime.session import Session
from stretto.solvers.linear.fit_saving import FitSaving, saving_fit
from stretto.solvers.linear.regression import Fit, PenaltySolver

from .base import say
from .input import LinearInput, converted, labelled, laid_out, numbers, shape_of, squared, squared_gap, weights
from .plan import plan_path

Floats = NDArray[np.float64]
_MOST_ALPHAS, _LEAST_EPS = 100_000, 1e-12


@dataclass(frozen=True, eq=False)
class LinearPath:
    """Solutions along a path of penalties; unpacks into (alphas, coefs, gaps) as scikit-learn's does.

    Attributes
    ----------
    alphas : ndarray of float64 [k]
        The penalties, falling.
    coefs : ndarray [p, k] or sparse matrix
        Coefficients; CSC with sparse=True.
    gaps : ndarray of float64 [k]
        Duality gaps, in the units of the objective.
    intercepts : ndarray of float64 [k]
        Intercepts.
    rounds : ndarray of int64 [k]
        Rounds made.
    """

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
    from stretto.solvers.linear.moments.solver import solver_of  # here, not above: it imports Numba

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
    values = {"eps": eps, "n_alphas": n_alphas, "alphas": alphas, "l1_ratio": l1_ratio, "positive": positive}
    values |= {"fit_intercept": fit_intercept, "standardize": standardize, "tol": tol, "max_iter": max_iter}
    plan = plan_path(given, values, profile, where, hashed=session is not None)
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
            works, design.shape, grid, l1_ratio=l1_ratio, gap=gap, max_rounds=max_iter, verbose=verbose > 0, saved=saved
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


def alphas_for(
    works: PenaltySolver, samples: int, alphas: Any, count: int, *, eps: float, l1_ratio: float, check: checks.Checks
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
    while top * samples * l1_ratio < largest:  # rounding must not give a non-zero coefficient at the first point
        top = float(np.nextafter(top, np.inf))
    smallest = float(np.finfo(np.float64).resolution)
    return np.full(count, smallest) if top <= smallest else np.geomspace(top, top * eps, count)


def check_grid(check: checks.Checks, count: Any, eps: Any) -> None:
    """Raise an error for an invalid grid of penalties."""
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
    works: PenaltySolver,
    shape: tuple[int, int],
    alphas: Floats,
    *,
    l1_ratio: float,
    gap: float,
    max_rounds: int,
    verbose: bool = False,
    saved: FitSaving,
) -> LinearPath:
    """Solve for each alpha from the solution before it; coefs are returned as CSC. verbose: print a line for each."""
    import scipy.sparse

    samples, features = shape
    points = _Points.of(saved.take("path"), len(alphas))
    fit = works.restore(saved.take("solver") or {})
    with saved.level("path", points.state), saved.level("solver", works.state):
        for k in range(points.done, len(alphas)):
            alpha = float(alphas[k])
            strength = alpha * samples
            fit = works.fit(
                strength * l1_ratio, strength * (1.0 - l1_ratio), gap=gap, max_rounds=max_rounds, start=fit,
                ended=saved.ended,
            )  # fmt: skip
            points.add(fit, samples)
            saved.round(fit.objective / samples, {"gap": fit.gap / samples, "alpha": alpha})
            if verbose:
                found = f"{points.entries[k]:,} coefficients  gap {points.gaps[k]:.2e} of {gap / samples:.2e}"
                say(f"alpha {k + 1}/{len(alphas)}  {alpha:.4g}  {found}  {fit.rounds} rounds")
            if saved.ended is not None and k + 1 < len(alphas):
                saved.ended()
    if points.unfinished:
        warnings.warn(
            f"{points.unfinished} of {len(alphas)} points of the path stopped after {max_rounds} rounds above the "
            f"duality gap of {gap / samples:.3g} that tol asks for (the largest is {points.gaps.max():.3g}); raise "
            "max_iter, tol or eps",
            ConvergenceWarning,
            stacklevel=3,
        )
    indptr = np.cumsum([0, *points.entries])
    coefs = scipy.sparse.csc_array(
        (np.concatenate(points.values), np.concatenate(points.rows), indptr), shape=(features, len(alphas))
    )
    return LinearPath(alphas, coefs, points.gaps, points.intercepts, points.rounds)


class _Points:
    """The solved points of a path."""

    def __init__(self, count: int) -> None:
        self.rows: list[NDArray[np.int64]] = []  # the non-zero features of each point
        self.values: list[Floats] = []  # and their coefficients
        self.gaps, self.intercepts = np.empty(count), np.empty(count)
        self.rounds = np.zeros(count, np.int64)
        self.unfinished = 0

    @property
    def done(self) -> int:
        return len(self.rows)

    @property
    def entries(self) -> list[int]:
        return [len(rows) for rows in self.rows]

    def add(self, fit: Fit, samples: int) -> None:
        """Add the solution of the next point."""
        k = self.done
        self.rows.append(np.flatnonzero(fit.coef))
        self.values.append(fit.coef[self.rows[-1]])
        self.gaps[k], self.intercepts[k], self.rounds[k] = fit.gap / samples, fit.intercept, fit.rounds
        self.unfinished += not fit.converged

    def state(self) -> dict[str, NDArray[Any]]:
        """Arrays for a checkpoint."""
        done = self.done
        return {
            "rows": np.concatenate([np.empty(0, np.int64), *self.rows]),
            "values": np.concatenate([np.empty(0), *self.values]),
            "entries": np.array(self.entries, np.int64),
            "gaps": self.gaps[:done],
            "intercepts": self.intercepts[:done],
            "rounds": self.rounds[:done],
            "unfinished": np.array([self.unfinished]),
        }

    @staticmethod
    def of(state: Mapping[str, NDArray[Any]] | None, count: int) -> _Points:
        """Restore from a checkpoint, or start without points."""
        made = _Points(count)
        if state is not None:
            cuts, done = np.cumsum(state["entries"])[:-1], len(state["entries"])
            if done:
                made.rows = np.split(np.array(state["rows"]), cuts)
                made.values = np.split(np.array(state["values"]), cuts)
            for array, saved in ((made.gaps, "gaps"), (made.intercepts, "intercepts"), (made.rounds, "rounds")):
                array[:done] = state[saved]
            made.unfinished = int(state["unfinished"][0])
        return made
