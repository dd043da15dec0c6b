"""Regressions that the dynamic schedules are compared on: correlated genotypes, generated blocks, text.

The paper's own sets are not public (Alzheimer) or too large (60 GB). Columns are centred where they are dense, and
scaled to a mean square of 1, as the paper's update supposes; y has mean 0 and variance 1 for the Lasso, and is −1 or 1
for the logistic loss. λ is a tenth of the smallest that gives zero.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from bench import sets, sparse_sets
from numpy.typing import NDArray

import stretto as st
from stretto.programs.coordinates.regression import SparseRegression
from stretto.schedule.spec import Schedule

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Task:
    """A regression. best: its least objective; start: the objective at zero."""

    name: str
    X: Any
    y: Floats
    alpha: float
    loss: str
    start: float
    best: float

    def program(self, schedule: Schedule) -> SparseRegression:
        """The regression as a program, at zero."""
        return SparseRegression(self.X, self.y, self.alpha, loss=self.loss, schedule=schedule)

    def target(self, share: float) -> float:
        """The objective when all but so much of the way is behind."""
        return self.best + share * (self.start - self.best)


def scaled(X: Any) -> Any:
    """Columns with a mean square of 1; dense ones are centred first. Columns that are constant stay zero."""
    if not isinstance(X, np.ndarray):
        import scipy.sparse

        size = np.sqrt(np.asarray(X.multiply(X).mean(axis=0)).ravel())
        return scipy.sparse.csc_matrix(X @ scipy.sparse.diags_array(1.0 / np.where(size > 0, size, 1.0)))
    X = np.asfortranarray(X - X.mean(axis=0))
    size = np.sqrt(np.einsum("ij,ij->j", X, X) / len(X))
    X /= np.where(size > 1e-12, size, 1.0)
    return X


def task(name: str, X: Any, y: Floats, loss: str, part: float = 10.0) -> Task:
    """The regression at λ_max / part, with its optimum by the estimators."""
    n = len(y)
    X = scaled(X)
    if loss == "squared":
        y = (y - y.mean()) / y.std()
        alpha = float(np.abs(X.T @ y).max()) / n / part
        coef = st.Lasso(alpha, fit_intercept=False, tol=1e-7).fit(X, y).coef_
        start = 0.5
    else:
        alpha = float(np.abs(X.T @ y).max()) / 2 / n / part
        coef = (
            st.LogisticRegression(1 / (n * alpha), fit_intercept=False, tol=1e-7, l1_ratio=1.0).fit(X, y).coef_.ravel()
        )
        start = float(np.log(2.0))
    found = Task(name, X, y, alpha, loss, start, 0.0)
    params = {"fitted": X @ coef, "intercept": np.zeros(1), "coef": coef}
    best = found.program(st.schedule.cyclic()).objective(None, params)
    return Task(name, X, y, alpha, loss, start, best)


def lasso(part: float = 10.0) -> list[Task]:
    """Mice (where present), generated blocks, 20news (where present)."""
    found = [task("blocks", *sparse_sets.generated(1_000, 20_000), "squared", part)]
    if sets.real_data() is not None:
        found.insert(0, task("mice", *sparse_sets.load("mice"), "squared", part))
        found.append(task("20news", *sparse_sets.load("20news"), "squared", part))
    return found


def logistic() -> list[Task]:
    """Generated blocks with the sign of their target, 20news (where present)."""
    X, y = sparse_sets.generated(1_000, 20_000)
    found = [task("blocks", X, np.where(y > np.median(y), 1.0, -1.0), "logistic")]
    if sets.real_data() is not None:
        found.append(task("20news", *sparse_sets.load_classes("20news"), "logistic"))
    return found
