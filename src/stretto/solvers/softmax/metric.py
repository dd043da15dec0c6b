"""In which coordinates a step is sought: those that make the curvature of the loss as even as it is cheap to make it.

`DiagonalMetric`: every feature on its own, by the fourth root of its curvature: half-way between leaving the features
as they are, which common ones spoil, and evening them out, which makes rare ones run ahead. `SampledGram`: for dense
data with not too many features, the inner products of all of them, over some of the samples, factorised.

    metric.scale            [p + 1] what a single feature is measured in
    metric.pull(turned)     gradients and changes of them, into the metric's coordinates
    metric.push(d)          a direction, back from there
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from stretto.kernels.linear import gram
from stretto.kernels.linear import softmax_gram as kernels

from .passes import Passes
from .point import SoftmaxProblem

Floats = NDArray[np.float64]

_SAMPLES = 8192  # that a table is made of
_FEATURES = 1536  # at most: a table of so many is factorised in a fraction of a second
_ROOM = 1 << 28  # bytes of factors, one for each class


class DiagonalMetric:
    """Every feature on its own."""

    def __init__(self, problem: SoftmaxProblem, passes: Passes) -> None:
        k = problem.classes
        curved = passes.squares() * (k - 1) / k**2 + problem.ridge
        curved = np.maximum(curved, 1e-12 * float(curved.max()))
        self.scale: Floats = curved**-0.25

    def pull(self, turned: Floats) -> None:
        """Nothing is left to do once numbers are measured in `scale`."""

    def push(self, d: Floats) -> Floats:
        """[p + 1, K] the direction d in weights."""
        return d * self.scale[:, None]


def fits_table(problem: SoftmaxProblem) -> bool:
    """Whether products of all features are cheap beside passes over the data."""
    samples, features = problem.rows.shape
    return not problem.rows.sparse and features < _FEATURES and features <= 4 * samples


class SampledGram:
    """Products of the features, over a share of the samples drawn by the seed, and the exact curvature on top."""

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
        # Features that the drawn samples hardly show must not look free to move.
        exact = passes.squares() * (k - 1) / k**2
        held = np.diagonal(self.G)[: p + 1]
        self.extra = np.ones(self.size)
        self.extra[: p + 1] = np.maximum(exact - held, 0.0) + problem.ridge + 1e-9 * float(exact.max())
        self.scale: Floats = np.ones(p + 1)
        self.tables = problem.classes if np.any(problem.l1 > 0.0) else 1
        self.U = np.empty((self.tables, self.size, self.size))
        self.inverse = np.empty((self.tables, self.size))

    def renew(self, share: float, bent: Floats | None = None) -> None:
        """Factorise share·(the curvature of the loss at zero) + ridge + bent [p + 1, K], that of the penalty."""
        p = self.problem.rows.shape[1]
        extra = np.repeat(self.extra[None] * share, self.tables, axis=0)
        extra[:, : p + 1] += (1.0 - share) * self.problem.ridge
        if bent is not None:
            extra[:, : p + 1] += bent.T[: self.tables]
        bounds = np.arange(self.tables + 1)
        self.passes.run("factorise", kernels.factorise_worker, bounds, self.G, share, extra, self.U, self.inverse)

    def solve(self, r: Floats) -> Floats:
        """[p + 1, K] what the metric makes of a gradient: the solution of A z = r."""
        made = np.zeros_like(r)
        self._solve("solve", r, made)
        return made

    def pull(self, turned: Floats) -> None:
        """Changes and slope of turned [3, p + 1, K]; the step is known already."""
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
    """Whether a factor for each class fits."""
    size = problem.rows.shape[1] + 64
    return 8 * size * size * (problem.classes if np.any(problem.l1 > 0.0) else 1) <= _ROOM


def _even(count: int) -> NDArray[np.int64]:
    return np.unique(np.linspace(0, count, min(32, count) + 1).astype(np.int64))
