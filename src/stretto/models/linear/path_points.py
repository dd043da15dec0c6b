"""Points of a path of penalties: which penalties, and their solutions, each starting from the one before."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.data.design.design import LARGEST
from stretto.errors import PlanError
from stretto.models import checks
from stretto.models.sklearn_base import ConvergenceWarning
from stretto.solvers.linear.fit_saving import FitSaving
from stretto.solvers.linear.regression import Fit, PathSolver, PenaltySolver

from .base import say

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
    stacklevel: int = 3,
) -> LinearPath:
    """Solve for each alpha from the solution before it; coefs are returned as CSC. verbose: print a line for each."""
    import scipy.sparse

    samples, features = shape
    points = _Points.of(saved.take("path"), len(alphas))
    fit = works.restore(saved.take("solver") or {})
    with saved.level("path", points.state), saved.level("solver", works.state):
        strengths = alphas[points.done :] * samples
        fits = _solutions(
            works, strengths * l1_ratio, strengths * (1.0 - l1_ratio), fit, gap=gap, max_rounds=max_rounds, saved=saved
        )
        told = saved.watching or saved.ended is not None
        for k, fit in enumerate(fits, points.done):
            alpha = float(alphas[k])
            points.add(fit, samples)
            if told:
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
            stacklevel=stacklevel,
        )
    indptr = np.cumsum([0, *points.entries])
    coefs = scipy.sparse.csc_array(
        (np.concatenate(points.values), np.concatenate(points.rows), indptr), shape=(features, len(alphas))
    )
    return LinearPath(alphas, coefs, points.gaps, points.intercepts, points.rounds)


def _solutions(
    works: PenaltySolver, l1s: Floats, l2s: Floats, fit: Fit | None, *, gap: float, max_rounds: int, saved: FitSaving
) -> Iterator[Fit]:
    """The solution for each penalty, several in one call where the solver can and nothing is saved in between."""
    done = 0
    together = works if isinstance(works, PathSolver) and saved.ended is None else None
    while done < len(l1s):
        several: list[Fit] = []
        # A call ends at a penalty that needs more rounds, and its sweeps are lost; the next ones need more as well.
        if together is not None and (fit is None or fit.rounds <= 2):
            several = together.fit_path(l1s[done:], l2s[done:], gap=gap, max_rounds=max_rounds, start=fit)
        if not several:
            l1, l2 = float(l1s[done]), float(l2s[done])
            several = [works.fit(l1, l2, gap=gap, max_rounds=max_rounds, start=fit, ended=saved.ended)]
        yield from several
        fit = several[-1]
        done += len(several)


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
        self.rows.append(np.flatnonzero(fit.coef != 0.0))  # faster than of floats
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
