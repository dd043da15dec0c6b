"""Preconditioners of softmax regression: coordinates in which the curvature of the loss is nearly uniform.

`DiagonalMetric` scales each feature by the fourth root of its curvature. That is half-way between no scaling, where
frequent features slow convergence, and full scaling, where steps of rare features are too long. `SampledGram`, for
dense data with a moderate number of features, factorises the Gram matrix of all features over a sample of the rows.

    metric.scale            [p + 1] the unit of each feature
    metric.pull(turned)     convert gradients and their changes into the metric's coordinates
    metric.push(d)          convert a direction back
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from stretto.kernels.linear import gram
from stretto.kernels.linear import softmax_gram as kernels

from .passes import Passes
from .point import SoftmaxProblem

Floats = NDArray[np.float64]

_SAMPLES = 8192  # samples that a Gram matrix is computed from
_FEATURES = 1536  # at most: a Gram matrix of this size is factorised in a fraction of a second
_ROOM = 1 << 28  # bytes of factors, one for each class, at most


class DiagonalMetric:
    """Scales each feature independently."""

    def __init__(self, problem: SoftmaxProblem, passes: Passes) -> None:
        k = problem.classes
        curved = passes.squares() * (k - 1) / k**2 + problem.ridge
        curved = np.maximum(curved, 1e-12 * float(curved.max()))
        self.scale: Floats = curved**-0.25

    def pull(self, turned: Floats) -> None:
        """Do nothing: numbers in units of `scale` are in the metric's coordinates already."""

    def push(self, d: Floats) -> Floats:
        """[p + 1, K] the direction d in weights."""
        return d * self.scale[:, None]


def fits_table(problem: SoftmaxProblem) -> bool:
    """Whether computing a Gram matrix of all features is cheap compared with passes over the data."""
    samples, features = problem.rows.shape
    return not problem.rows.sparse and features < _FEATURES and features <= 4 * samples


class SampledGram:
    """Gram matrix of the features over samples drawn by the seed, with the exact curvature on its diagonal."""

    def __init__(self, problem: SoftmaxProblem, passes: Passes, seed: int) -> None:
        self.problem, self.passes = problem, passes
        n, p = problem.rows.shape
        which = np.arange(n, dtype=np.int64)
        if n > _SAMPLES:
            which = np.sort(np.random.default_rng(seed).choice(n, _SAMPLES, replace=False)).astype(np.int64)
        weight = problem.weight[which]
        if weight.sum() <= 0.0:
            which, weight = np.arange(n, dtype=np.int64), problem.weight
        k = problem.classes
        curve = (k - 1) / k**2 * problem.weight.sum() / weight.sum()
        self.size = -(-(p + 1) // 64) * 64
        panels = np.empty((self.size // gram.PANEL, len(which), gram.PANEL))
        [X] = problem.rows.parts
        root = np.sqrt(curve * weight)
        passes.run("pack", kernels.pack_rows_worker, _even(len(which)), X, which, root, panels)
        self.G = np.zeros((self.size, self.size))
        passes.run("products", gram.dense_worker, np.arange(len(panels) + 1), panels, self.G)
        if not problem.intercept:
            self.G[p] = self.G[:, p] = 0.0
        # Features that hardly occur in the drawn samples must not appear to have no curvature.
        exact = passes.squares() * (k - 1) / k**2
        held = np.diagonal(self.G)[: p + 1]
        self.extra = np.ones(self.size)
        self.extra[: p + 1] = np.maximum(exact - held, 0.0) + problem.ridge + 1e-9 * float(exact.max())
        self.scale: Floats = np.ones(p + 1)
        self.tables = problem.classes if np.any(problem.l1 > 0.0) else 1
        self.U = np.empty((self.tables, self.size, self.size))
        self.inverse = np.empty((self.tables, self.size))

    def renew(self, share: float, bent: Floats | None = None) -> None:
        """Factorise share·(loss curvature at zero) + ridge + bent [p + 1, K], the curvature of the penalty."""
        p = self.problem.rows.shape[1]
        extra = np.repeat(self.extra[None] * share, self.tables, axis=0)
        extra[:, : p + 1] += (1.0 - share) * self.problem.ridge
        if bent is not None:
            extra[:, : p + 1] += bent.T[: self.tables]
        bounds = np.arange(self.tables + 1)
        self.passes.run("factorise", kernels.factorise_worker, bounds, self.G, share, extra, self.U, self.inverse)

    def solve(self, r: Floats) -> Floats:
        """[p + 1, K] precondition a gradient: the solution of A z = r."""
        made = np.zeros_like(r)
        self._solve("solve", r, made)
        return made

    def pull(self, turned: Floats) -> None:
        """Convert the changes and the slope of turned [3, p + 1, K]; the step is known already."""
        for part in turned[1:]:
            self._solve("pull", part, part, back=False)

    def push(self, d: Floats) -> Floats:
        """[p + 1, K] the direction d in weights."""
        made = np.zeros_like(d)
        self._solve("push", d, made, forth=False)
        return made

    def _solve(self, name: str, A: Floats, B: Floats, *, forth: bool = True, back: bool = True) -> None:
        bounds = np.arange(self.problem.classes + 1, dtype=np.int64)
        self.passes.run(name, kernels.solve_worker, bounds, self.U, self.inverse, forth, back, A, B)


def room_for_table(problem: SoftmaxProblem) -> bool:
    """Whether the factors of all classes fit in memory."""
    size = problem.rows.shape[1] + 64
    return 8 * size * size * (problem.classes if np.any(problem.l1 > 0.0) else 1) <= _ROOM


def _even(count: int) -> NDArray[np.int64]:
    return np.unique(np.linspace(0, count, min(32, count) + 1).astype(np.int64))
