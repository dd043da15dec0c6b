"""Paths of `LogisticRegressionCV`: one fold's solutions for rising C, and their scores on held-out samples.

The objectives are divided by C, so that the loss stays as it is and the penalty falls along the path. One solver is
kept for all penalties of two classes; several classes are learned jointly, each fit from the solution before it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from stretto.data.convert.sparse_structure import is_sparse
from stretto.data.design.design import Design, refuse_unbounded
from stretto.data.design.row_design import RowDesign
from stretto.errors import DataError
from stretto.solvers.linear.regression import Fit

from ..base import FitSession
from ..input import LinearInput, converted, laid_out, logistic, logistic_gap

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Samples:
    """Samples of a classification in memory."""

    X: Any  # [n, p] array, or sparse by rows
    which: Ints  # [n] class indices
    weight: Floats  # [n]

    @staticmethod
    def of(X: Any, which: Ints, weight: Floats) -> Samples:
        """With sparse X by rows, from which rows are taken; DataError for NaN, infinity and huge numbers."""
        if is_sparse(X):
            return Samples(RowDesign.of(X).matrix, which, weight)
        X = np.ascontiguousarray(X)
        if X.dtype.kind == "f":
            refuse_unbounded(X.ravel(), lambda at: divmod(at, X.shape[1]))
        if X.dtype.kind == "f" and X.dtype != np.float32:  # longdouble too is read as float64
            X = X.astype(np.float64, copy=False)
        return Samples(X, which, weight)

    def take(self, rows: Ints, owner: str) -> Samples:
        """Only these samples; one that is named twice has twice the weight."""
        times = np.bincount(rows, minlength=len(self.which))
        kept = np.flatnonzero(times)
        weight = self.weight[kept] * times[kept]
        if not weight.sum() > 0:
            raise DataError(
                f"{owner}: the samples of a fold all weigh 0; use fewer folds or shuffle them, or leave such "
                "samples out"
            )
        return Samples(self.X[kept], self.which[kept], weight)


@dataclass(frozen=True, eq=False)
class ClassPath:
    """Solutions for k values of C; one output for two classes, else one for each class."""

    coefs: Floats  # [k, outputs, p]
    intercepts: Floats  # [k, outputs]
    rounds: Ints  # [k]
    left: Ints  # [k] whether the gap that was asked for was not reached

    def scores(self, X: Any) -> Floats:
        """[k, n, outputs] Xw + b."""
        k, outputs, p = self.coefs.shape
        flat = self.coefs.reshape(k * outputs, p)
        used = np.flatnonzero(flat.any(axis=0))  # few of many features are ever used
        z = np.asarray(X[:, used] @ np.ascontiguousarray(flat[:, used].T)) if len(used) else np.zeros((X.shape[0], 1))
        return np.moveaxis((z + self.intercepts.reshape(1, -1)).reshape(X.shape[0], k, outputs), 1, 0)


class PathModel(Protocol):
    """What a path reads of an estimator."""

    Cs_: Floats
    classes_: NDArray[Any]
    fit_intercept: bool
    standardize: bool
    tol: float
    max_iter: int
    profile: str

    @property
    def _smooth(self) -> bool: ...


def follow_classes(model: PathModel, sitting: FitSession, data: Samples, share: float) -> ClassPath:
    """The solutions for every C in rising order. share: of the penalty that is ‖w‖₁"""
    missing = np.flatnonzero(np.bincount(data.which, data.weight, minlength=len(model.classes_)) <= 0)
    if len(missing):
        raise DataError(
            f"{type(model).__name__}: the training samples of a fold have none of class "
            f"{model.classes_.tolist()[missing[0]]!r}; use fewer folds, or folds that keep the shares of the classes"
        )
    return (_follow_two if len(model.classes_) == 2 else _follow_joint)(model, sitting, data, share)


def _follow_two(model: PathModel, sitting: FitSession, data: Samples, share: float) -> ClassPath:
    few = not model.standardize
    given = LinearInput(data.X, data.which, Design((0, 0)), data.weight)
    given = laid_out(converted(given, by_newton=few, by_rows=True, smooth=model._smooth), sitting.crew)
    scale = given.design.spread(data.weight) if model.standardize else None
    signs = np.where(data.which == 1, 1.0, -1.0)
    problem = logistic(given.design, signs, data.weight, intercept=model.fit_intercept, scale=scale)
    works, gap = sitting.solver(problem), logistic_gap(problem, model.tol)
    found = _Solutions(len(model.Cs_), 1, data.X.shape[1])
    fit: Fit | None = None
    for k, C in enumerate(model.Cs_.tolist()):
        fit = works.fit(share / C, (1.0 - share) / C, gap=gap, share=model.tol, max_rounds=model.max_iter, start=fit)
        found.add(k, fit.coef[None], np.array([fit.intercept]), fit.rounds, fit.converged)
        sitting.saved.round(fit.objective * C, {"gap": fit.gap * C, "C": C})
        if sitting.crew.asked:
            break
    return found.path


def _follow_joint(model: PathModel, sitting: FitSession, data: Samples, share: float) -> ClassPath:
    from stretto.solvers.softmax.solver import solve

    from ..softmax_fit import joint_gap, joint_problem, unpack

    alone = _At(1.0, share, model.fit_intercept, model.standardize)
    problem = joint_problem(alone, data.X, data.which, len(model.classes_), data.weight)
    found = _Solutions(len(model.Cs_), len(model.classes_), data.X.shape[1])
    W: Floats | None = None
    for k, C in enumerate(model.Cs_.tolist()):
        now = replace(problem, weight=C * problem.weight)
        fit = solve(
            now, sitting.crew, gap=joint_gap(now, model.tol), max_rounds=model.max_iter, profile=model.profile,
            seed=sitting.seed, start=W,
        )  # fmt: skip
        W = fit.W
        found.add(k, *unpack(fit.W, now), fit.rounds, fit.converged)
        sitting.saved.round(fit.objective, {"gap": fit.gap, "C": C})
        if sitting.crew.asked:
            break
    return found.path


@dataclass(frozen=True)
class _At:
    """The parameters of one fit of several classes."""

    C: float
    l1_ratio: float
    fit_intercept: bool
    standardize: bool


class _Solutions:
    """Arrays of a `ClassPath` that are filled point by point."""

    def __init__(self, count: int, outputs: int, features: int) -> None:
        coefs, intercepts = np.zeros((count, outputs, features)), np.zeros((count, outputs))
        self.path = ClassPath(coefs, intercepts, np.ones(count, np.int64), np.zeros(count, np.int64))

    def add(self, k: int, coef: Floats, intercept: Floats, rounds: int, converged: bool) -> None:
        """Store one solution."""
        path = self.path
        path.coefs[k], path.intercepts[k] = coef, intercept
        path.rounds[k], path.left[k] = max(1, rounds), not converged


Score = Callable[[Floats, Samples], float]  # of scores [n, outputs] and what they should have been


def log_loss(z: Floats, data: Samples) -> float:
    """Minus the weighted mean of −log p of the true classes: scikit-learn's "neg_log_loss"."""
    if z.shape[1] == 1:
        away = np.logaddexp(0.0, np.where(data.which == 1, -z[:, 0], z[:, 0]))
    else:
        top = z.max(axis=1)
        own = z[np.arange(len(z)), data.which]
        away = np.log(np.exp(z - top[:, None]).sum(axis=1)) + top - own
    return -float(np.average(away, weights=data.weight))


def accuracy(z: Floats, data: Samples) -> float:
    """The weighted share of samples whose class is found."""
    best = (z[:, 0] > 0.0).astype(np.int64) if z.shape[1] == 1 else z.argmax(axis=1)
    return float(np.average(best == data.which, weights=data.weight))


QUICK: dict[str | None, Score] = {None: accuracy, "accuracy": accuracy, "neg_log_loss": log_loss}
