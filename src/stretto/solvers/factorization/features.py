"""Side features of rows or columns, and their linear regression: which factors do features predict?

Features X [m, p] are sparse and stay so: they are centred and scaled to variance 1 in the products, not in memory. A
map A minimises

    Σ_i w_i ‖t_i − level − z_i A‖² + N·Σ_k penalty_k ‖A_k‖²,    N = Σ w_i

for targets t [m, q] with weights w [m] and standardised features z, by conjugate gradients, one system for each target.
`chosen_penalty` tries penalties on held-out rows. All sums have a fixed order.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.data.partition import hashed
from stretto.kernels.factorization.features import product_worker
from stretto.runtime.blocks.crew import Crew
from stretto.runtime.blocks.step import equal_work, make_step
from stretto.schedule.orders.rotation import independent

Floats = NDArray[np.float64]
# Penalties that are tried, times the number of features over that of rows, which rows of unequal weight lower.
_TRIED = (100.0, 30.0, 10.0, 3.0, 1.0, 0.3, 0.1)
NO_MAP = math.inf
_FOLDS, _MANY = 4, 20_000  # folds of held-out rows; rows from which on one fold is enough
_PARTS, _LEAST = 64, 4096  # parts of a product, and entries of a part at least


@dataclass(frozen=True, eq=False)
class FeatureMatrix:
    """Features of m rows in compressed form; rows without features are known to have none."""

    indptr: NDArray[np.int64]  # [m + 1]
    indices: NDArray[np.int32]  # [n]
    values: Floats  # [n]
    columns: int  # p
    known: NDArray[np.bool_]  # [m] whether the row has features

    def __len__(self) -> int:
        return len(self.indptr) - 1

    def taken(self, index: NDArray[Any]) -> FeatureMatrix:
        """Rows in another order; −1 for a row without features."""
        known = index >= 0
        counts = np.where(known, np.diff(self.indptr)[index], 0)
        indptr = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        first = np.repeat(self.indptr[:-1][index], counts)
        at = first + np.arange(indptr[-1]) - np.repeat(indptr[:-1], counts)
        own = np.where(known, self.known[index], False)
        return FeatureMatrix(indptr, self.indices[at], self.values[at], self.columns, own)

    def transposed(self) -> FeatureMatrix:
        """The columns as rows."""
        order = np.argsort(self.indices, kind="stable")
        counts = np.bincount(self.indices, minlength=self.columns)
        rows = np.repeat(np.arange(len(self), dtype=np.int32), np.diff(self.indptr))
        indptr = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        ones = np.ones(self.columns, np.bool_)
        return FeatureMatrix(indptr, rows[order], self.values[order], len(self), ones)

    def times(self, dense: Floats, crew: Crew) -> Floats:
        """[m, q] the product with dense [p, q]."""
        result = np.empty((len(self), dense.shape[1]))
        work = np.diff(self.indptr) + 1
        bounds = equal_work(work, _PARTS, _LEAST)
        if len(bounds) > 1:
            args = (bounds, self.indptr, self.indices, self.values, np.ascontiguousarray(dense), result)
            weight = np.add.reduceat(work, bounds[:-1])
            crew.run_here(make_step("features", product_worker, independent(len(bounds) - 1), weight, *args), "exact")
        return result


@dataclass(frozen=True, eq=False)
class Standard:
    """Mean and spread of features; a feature that does not vary has the spread infinity, and so no effect."""

    mean: Floats  # [p]
    spread: Floats  # [p]

    def means(self, X: FeatureMatrix, coef: Floats, level: Floats, crew: Crew) -> Floats:
        """[m, q] level + z A for the rows of X; the level for a row without features."""
        scaled = coef / self.spread[:, None]
        found = X.times(scaled, crew) - (self.mean[:, None] * scaled).sum(axis=0)
        found[~X.known] = 0.0
        return np.asarray(found + level)


class FeatureRegression:
    """Regressions on the features of some rows, with weights.

    Parameters
    ----------
    X : FeatureMatrix
        The features.
    weights : [m] array
        Weights of the rows; 0 for rows without features.
    """

    def __init__(self, X: FeatureMatrix, weights: Floats, crew: Crew, across: FeatureMatrix | None = None) -> None:
        self.X, self.weights, self.crew = X, np.where(X.known, weights, 0.0), crew
        self.across = X.transposed() if across is None else across
        self.total = max(math.fsum(self.weights), 1e-300)
        square = FeatureMatrix(
            self.across.indptr, self.across.indices, self.across.values**2, len(X), self.across.known
        )
        weight = self.weights[:, None] / self.total
        mean = self.across.times(weight, crew)[:, 0]
        variance = square.times(weight, crew)[:, 0] - mean * mean
        scale = np.abs(mean) + np.sqrt(np.maximum(variance, 0.0))
        varies = variance > 1e-12 * scale * scale
        self.standard = Standard(mean, np.where(varies, np.sqrt(np.where(varies, variance, 1.0)), np.inf))

    def level_of(self, targets: Floats) -> Floats:
        """[q] the weighted mean of targets [m, q]."""
        return np.asarray((self.weights[:, None] * targets).sum(axis=0) / self.total)

    def solve(
        self, targets: Floats, penalties: Floats, start: Floats, *, steps: int, tol: float
    ) -> tuple[Floats, Floats]:
        """(A [p, q], level [q]) after at most `steps` steps of conjugate gradients from start [p, q].

        penalties : [q]; `NO_MAP` makes the map of a target zero
        """
        level, used = self.level_of(targets), np.isfinite(penalties)
        ridge = np.where(used, penalties, 1.0) * self.total
        pull = self._back(targets - level)
        A = np.where(used, start, 0.0)
        left = np.where(used, pull - self._curved(A, ridge), 0.0)
        along, size = left.copy(), (left * left).sum(axis=0)
        enough = tol * tol * (pull * pull).sum(axis=0)
        for _ in range(steps):
            going = size > enough
            if not going.any():
                break
            image = self._curved(along, ridge)
            bend = (along * image).sum(axis=0)
            step = np.where(going & (bend > 0), size / np.where(bend > 0, bend, 1.0), 0.0)
            A += step * along
            left -= step * image
            new = (left * left).sum(axis=0)
            along = left + np.where(size > 0, new / np.where(size > 0, size, 1.0), 0.0) * along
            size = np.where(going, new, size)
        return A, level

    def _curved(self, A: Floats, ridge: Floats) -> Floats:
        """(Zᵀ w Z + ridge) A."""
        product = self.standard.means(self.X, A, np.zeros(A.shape[1]), self.crew)
        return self._back(product) + ridge * A

    def _back(self, rows: Floats) -> Floats:
        """[p, q] Zᵀ w rows."""
        weighted = self.weights[:, None] * rows
        found = self.across.times(weighted, self.crew) - self.standard.mean[:, None] * weighted.sum(axis=0)
        return np.asarray(found / self.standard.spread[:, None])

    def chosen_penalty(self, targets: Floats, groups: tuple[slice, ...]) -> Floats:
        """[groups] the penalty for each group of targets that predicts held-out rows best, or `NO_MAP`."""
        unit = self.X.columns * math.fsum(self.weights * self.weights) / self.total**2
        fold = (hashed(0, 0, len(self.X)) % np.uint64(_FOLDS)).astype(np.int64)
        folds = 1 if np.count_nonzero(self.weights) > _MANY else _FOLDS
        errors = np.zeros((len(_TRIED) + 1, len(groups)))
        for one in range(folds):
            rest = FeatureRegression(self.X, np.where(fold == one, 0.0, self.weights), self.crew, self.across)
            held = np.where(fold == one, self.weights, 0.0)
            A, q = np.zeros((self.X.columns, targets.shape[1])), targets.shape[1]
            for at, factor in enumerate((None, *_TRIED)):
                if factor is not None:
                    A, level = rest.solve(targets, np.full(q, factor * unit), A, steps=30, tol=1e-3)
                else:
                    level = rest.level_of(targets)
                away = targets - rest.standard.means(self.X, A, level, self.crew)
                error = (held[:, None] * away * away).sum(axis=0)
                errors[at] += [math.fsum(error[group]) for group in groups]
        best = errors.argmin(axis=0)  # the strongest of equal ones
        tried = np.array([NO_MAP, *(factor * unit for factor in _TRIED)])
        return np.asarray(tried[best])
