"""Softmax regression passes with the rows on cluster nodes: a part is the rows of one visit on a single machine.

Each visit computes the same numbers wherever it runs, and the driver adds the results in visit order, so the bits are
those of a single machine. Gradients of sparse data are sums over columns. For these the nodes hold the columns too, and
receive the residuals of all rows. The driver keeps X and computes by itself what needs few passes: moments, the Gram
matrix, and the last Newton steps on few features.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.data.design.design import Design, for_kernels
from stretto.kernels.linear import softmax as kernels
from stretto.kernels.linear.softmax_tiles import strips
from stretto.runtime.blocks.crew import Crew
from stretto.runtime.blocks.step import make_step
from stretto.runtime.cluster.parts.driver import RemoteParts, RemoteValues
from stretto.schedule.orders.rotation import independent
from stretto.solvers.linear import column_parts
from stretto.solvers.linear.node_columns import cut_columns

from .passes import Passes, column_bounds
from .point import SoftmaxProblem
from .rows import DesignRows

Array = NDArray[Any]
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class RowPart:
    """Some samples."""

    rows: DesignRows  # their features
    y: Ints  # class indices
    weight: Floats  # sample weights


# --- on the nodes -----------------------------------------------------------------------------------------------------


def receive(crew: Crew, own: Mapping[int, RowPart]) -> dict[int, RowPart]:
    """Convert the rows that the driver sent to the form that kernels take."""
    return {part: RowPart(one.rows.usable(), for_kernels(one.y), for_kernels(one.weight)) for part, one in own.items()}


def look(crew: Crew, part: RowPart, own: None, W: Array, classes: int, profile: str) -> tuple[Passes, float]:
    """`Passes.look` of one visit: its results, and the loss."""
    whole = np.array([0, len(part.y)])
    passes = Passes(part.rows, part.y, part.weight, classes, crew, profile, bounds=whole)
    return passes, passes.look(for_kernels(W))


def told(crew: Crew, looked: tuple[Passes, float], own: None) -> tuple[float, Floats, Floats]:
    """Loss, `wrong` and `spread` of the samples."""
    passes, loss = looked
    return loss, passes.wrong, passes.spread


def residuals(crew: Crew, looked: tuple[Passes, float], own: None) -> tuple[Array, ...]:
    """Residuals of the last evaluation, for the gradient."""
    return looked[0].left


def probabilities(crew: Crew, looked: tuple[Passes, float], own: None) -> Array:
    """[rows, K] class probabilities."""
    return looked[0].probabilities()


def bend(crew: Crew, looked: tuple[Passes, float], own: None, V: Array) -> tuple[Array, ...]:
    """Contribution of the rows to the product of the Hessian with V."""
    return looked[0].bend(for_kernels(V))


def back(crew: Crew, design: Design, own: None, R: Array, classes: int, profile: str) -> Floats:
    """[columns, K] sums of the residuals of all rows over each column."""
    total, bounds = np.empty((design.shape[1], R.shape[1])), column_bounds(design.csc)
    given = (*design.csc, for_kernels(R), strips(classes)[1], total)
    step = make_step("back", kernels.back_worker, independent(len(bounds) - 1), np.diff(bounds), bounds, *given)
    crew.run(step, profile, again=True)
    return total


# --- on the driver ----------------------------------------------------------------------------------------------------


class NodePasses(Passes):
    """`Passes` over rows on nodes, one part for each visit."""

    def __init__(self, rows: DesignRows, y: Ints, weight: Floats, classes: int, crew: Crew, profile: str) -> None:
        super().__init__(rows, y, weight, classes, crew, profile)
        parts = crew.parts()
        assert parts is not None
        self._parts: RemoteParts = parts
        self._at = [slice(lo, hi) for lo, hi in pairwise(self._bounds.tolist())]
        each = [RowPart(rows.between(at.start, at.stop), y[at], weight[at]) for at in self._at]
        self._held = parts.make(receive, each)
        self._looked: RemoteValues | None = None
        self._by_columns: RemoteValues | None = None

    def look(self, W: Array) -> float:
        """As `Passes.look`."""
        self._type = W.dtype
        items = float(self.rows.entries * self.width)
        self._looked = self._held.derive(look, W, self.classes, self.profile, items=items)
        found = self._looked.map(told)
        for part, (_, wrong, spread) in found.items():
            self.wrong[self._at[part]], self.spread[self._at[part]] = wrong, spread
        return math.fsum(loss for loss, _, _ in found.values())

    def gradient(self) -> Floats:
        """As `Passes.gradient`."""
        assert self._looked is not None
        return self._summed(self._looked.map(residuals))

    def curve(self, V: Array) -> Floats:
        """As `Passes.curve`."""
        assert self._looked is not None
        return self._summed(self._looked.map(bend, V, items=2.0 * self.rows.entries * self.width))

    def probabilities(self) -> Array:
        """As `Passes.probabilities`."""
        assert self._looked is not None
        return np.concatenate(list(self._looked.map(probabilities).values()))

    def _summed(self, found: dict[int, tuple[Array, ...]]) -> Floats:
        """Sum of the visits' results."""
        for part, (made, *sums) in found.items():
            if self.rows.sparse:
                self.left[0][self._at[part]] = made
                self.left[1][part] = sums[0][0]
            else:
                self.left[0][part] = made[0]
        return self._gather()

    def _back(self, R: Array, total: Floats) -> None:
        if self._by_columns is None:
            indptr, indices, values = self.rows.csc
            design = Design(self.rows.shape, indptr=indptr, indices=indices, values=values)
            bounds = cut_columns(design.entries)
            pieces = [design.between(first, last) for first, last in pairwise(bounds.tolist())]
            self._by_columns = self._parts.make(column_parts.receive, pieces)
        items = float(self.rows.entries * self.width)
        found = self._by_columns.map(back, R, self.classes, self.profile, items=items)
        total[: self.p] = np.concatenate(list(found.values()))


def passes_of(problem: SoftmaxProblem, crew: Crew, profile: str) -> Passes:
    """The passes over a problem's rows, on this machine or on nodes."""
    kind = Passes if crew.parts() is None else NodePasses
    return kind(problem.rows, problem.y, problem.weight, problem.classes, crew, profile)
