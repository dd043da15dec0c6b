"""Passes over the rows in softmax regression: loss, gradient and Hessian products, for dense and sparse storage.

Every pass is divided into visits by the amount of data, never by the number of workers, and the results of visits are
added in order. So the bits are the same with any number of workers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.kernels.linear import softmax as kernels
from stretto.kernels.linear import softmax_vectors as vectors
from stretto.kernels.linear.softmax_tiles import strips
from stretto.runtime.blocks.crew import Crew
from stretto.runtime.blocks.step import equal_work, make_step
from stretto.schedule.orders.rotation import independent

from .rows import DesignRows

Array = NDArray[Any]
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_VISITS = 32
_NUMBERS = 1 << 15  # numbers of X in a visit, at least
_ROOM = 1 << 23  # numbers in the gradients of all visits together, at most, unless two visits need more


def column_bounds(csc: tuple[Array, ...]) -> Ints:
    """First column of each visit in a sum over columns."""
    return equal_work(np.diff(csc[0]).astype(np.int64) + 2, _VISITS, _NUMBERS)


@lru_cache(maxsize=64)
def _places(size: int) -> Ints:
    """First element of each visit in a pass over a vector."""
    count = max(1, min(_VISITS, size // (1 << 14)))
    return np.unique(np.append(np.linspace(0, size // 16, count + 1).astype(np.int64)[:-1] * 16, size))


class Passes:
    """Loss, gradient and curvature at weights W [p + 1, K] (last row: intercepts) over some rows.

    `look(W)` returns the loss and stores what `gradient`, `entropy` and `curve` need. It computes in W's dtype.

    y : [n] class indices
    weight : [n] sample weights
    bounds : first row of each visit; None divides the rows by the amount of data
    """

    def __init__(
        self,
        rows: DesignRows,
        y: Ints,
        weight: Floats,
        classes: int,
        crew: Crew,
        profile: str,
        *,
        bounds: Ints | None = None,
    ) -> None:
        self.rows, self.y, self.weight, self.classes = rows, y, weight, classes
        self.crew, self.profile = crew, profile
        self.n, self.p = rows.shape
        self.width, self.strip = strips(classes)
        self.shape = self.p + 1, self.width
        if bounds is not None:
            self._bounds = bounds
        elif rows.sparse:
            self._bounds = equal_work(np.diff(rows.parts[0]).astype(np.int64) + 8, _VISITS, _NUMBERS)
        else:
            most = max(2, min(_VISITS, _ROOM // (self.shape[0] * self.width)))
            self._bounds = equal_work(np.full(self.n, self.p + 8, np.int64), most, _NUMBERS)
        self._visits = len(self._bounds) - 1
        # Of a pass over the data, or over the products of all features.
        self._work = max(rows.entries * self.width, self.p**3 // 3)
        self._columns: Ints | None = None
        self._features = equal_work(np.full(self.p + 1, 4 * self.width, np.int64), _VISITS, _NUMBERS)
        self.wrong, self.spread = np.empty(self.n), np.empty(self.n)
        self._made: dict[tuple[str, str], Array] = {}
        self._type = np.dtype(np.float64)  # dtype of the last evaluation

    def run(self, name: str, kernel: Any, bounds: Ints, *args: Any) -> Floats:
        """Run one pass of a kernel over len(bounds) − 1 visits; return the result of each visit."""
        step = make_step(name, kernel, independent(len(bounds) - 1), bounds[1:] - bounds[:-1], bounds, *args)
        self.crew.run_pass(step, self.profile, self._work)
        return step.out

    def _room(self, name: str, shape: tuple[int, ...], dtype: Any = np.float64) -> Array:
        """A buffer that is reused from pass to pass."""
        key = name, np.dtype(dtype).name
        if key not in self._made:
            self._made[key] = np.empty(shape, dtype)
        return self._made[key]

    def look(self, W: Array) -> float:
        """Σ weight·loss at W."""
        self._type = W.dtype
        P = self._room("P", (self.n, self.width), W.dtype)
        given = (*self.rows.parts, self.y, self.weight, W, self.classes, self.strip, P)
        worker = kernels.look_sparse_worker if self.rows.sparse else kernels.look_dense_worker
        out = self.run("look", worker, self._bounds, *given, *self.left, self.wrong, self.spread)
        return math.fsum(out)

    @property
    def left(self) -> tuple[Array, ...]:
        """What the last pass left to be summed.

        Dense: the visits' gradients G [V, p + 1, K]. Sparse: residuals R [n, K] and the visits' sums of them [V, K].
        """
        if not self.rows.sparse:
            return (self._room("G", (self._visits, *self.shape)),)
        return self._room("R", (self.n, self.width), self._type), self._room("gb", (self._visits, self.width))

    def probabilities(self) -> Array:
        """[n, K] class probabilities at the last evaluated W."""
        return self._room("P", (self.n, self.width), self._type)

    def gradient(self) -> Floats:
        """[p + 1, K] the gradient of the loss at the last evaluated W, in a new array."""
        return self._gather()

    def curve(self, V: Array) -> Floats:
        """[p + 1, K] the loss's Hessian at the last evaluated W times V, which must have W's dtype."""
        self._bend(V, self.left)
        return self._gather()

    def bend(self, V: Array) -> tuple[Array, ...]:
        """The summands of `curve(V)`, in new arrays."""
        made = tuple(np.empty_like(one) for one in self.left)
        self._bend(V, made)
        return made

    def _bend(self, V: Array, into: tuple[Array, ...]) -> None:
        given = (*self.rows.parts, self.weight, self.probabilities(), V, self.classes, self.strip)
        worker = kernels.curve_sparse_worker if self.rows.sparse else kernels.curve_dense_worker
        self.run("curve", worker, self._bounds, *given, *into)

    def _gather(self) -> Floats:
        """Sum the contributions of the rows."""
        total = np.empty(self.shape)
        if not self.rows.sparse:
            self.run("fold", kernels.fold_worker, self._features, *self.left, total)
            return total
        R, sums = self.left
        self._back(R, total)
        total[self.p] = sums.sum(axis=0)
        return total

    def _back(self, R: Array, total: Floats) -> None:
        """Sum residuals over the columns."""
        if self._columns is None:
            self._columns = column_bounds(self.rows.csc)
        self.run("back", kernels.back_worker, self._columns, *self.rows.csc, R, self.strip, total)

    def entropy(self, share: float = 1.0) -> float:
        """Σ weight·entropy of share·p + (1 − share)·(the sample's own class) at the last evaluated W."""
        return float(kernels.mixed_entropy[self.profile](self.wrong, self.spread, self.weight, share))

    def unsure(self) -> Floats:
        """[K] the mean of p(1 − p) over the samples at the last evaluated W, for every class."""
        P = self.probabilities()
        total = np.zeros(self.width)
        for top in range(0, self.n, 4096):
            part = P[top : top + 4096].astype(np.float64)
            total += (part * (1.0 - part) * self.weight[top : top + 4096, None]).sum(axis=0)
        return np.maximum(total / max(float(self.weight.sum()), 1e-300), 1e-12)

    def sums(self) -> Floats:
        """[p + 1] Σ_i weight_i x_ij, and Σ_i weight_i for the intercept."""
        return self._moments(lambda part: part)

    def squares(self) -> Floats:
        """[p + 1] Σ_i weight_i x_ij², and Σ_i weight_i for the intercept."""
        return self._moments(np.square)

    def _moments(self, of: Callable[[Floats], Floats]) -> Floats:
        made = np.zeros(self.p + 1)
        made[self.p] = self.weight.sum()
        if not self.rows.sparse:
            [X] = self.rows.parts
            for top in range(0, self.n, 1024):
                part = of(X[top : top + 1024].astype(np.float64)) * self.weight[top : top + 1024, None]
                made[: self.p] += part.sum(axis=0)
            return made
        indptr, indices, values = self.rows.csc
        terms = np.append(self.weight[indices] * of(values.astype(np.float64)), 0.0)
        made[: self.p] = np.where(np.diff(indptr) > 0, np.add.reduceat(terms, indptr[:-1].astype(np.int64)), 0.0)
        return made

    # --- long vectors -------------------------------------------------------------------------------------------------

    def products(self, H: Array, count: int, X: Floats) -> Floats:
        """[count, r] products of the first rows of H [m, N] with the rows of X [r, N]."""
        bounds = _places(H.shape[1])
        made = np.zeros((len(bounds) - 1, H.shape[0], len(X)))
        self.run("products", vectors.products_worker, bounds, H, count, X, made)
        return np.asarray(made.sum(axis=0)[:count])

    def mix(self, H: Array, factor: Floats, scale: float, x: Floats) -> Floats:
        """scale·x + Σ_i factor[i]·H[i], [N]."""
        made = np.empty(H.shape[1])
        bounds = _places(H.shape[1])
        self.run("mix", vectors.mix_worker, bounds, H, len(factor), np.ascontiguousarray(factor), scale, x, made)
        return made

    def over_features(self, name: str, kernel: Any, sums: int, *args: Any) -> Floats:
        """Run a pass over the features; return the results of its visits, [V, sums]."""
        made = np.zeros((len(self._features) - 1, sums))
        self.run(name, kernel, self._features, *args, made)
        return made
