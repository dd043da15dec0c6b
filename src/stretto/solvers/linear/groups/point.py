"""The state of a group solver: coefficients, predictions, residuals and gradients at a point.

Columns are numbered by their position in the groups, without those that are constant.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stretto.data.design.design import Design
from stretto.kernels.linear.column_statistics import clear_constant
from stretto.kernels.linear.groups import columns as group_columns
from stretto.runtime.blocks.crew import Crew
from stretto.runtime.blocks.step import make_step
from stretto.schedule.orders.rotation import independent

from ..columns import ColumnPasses, column_bounds
from ..losses.loss import Squared
from .problem import GroupProblem, Groups

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass
class GroupPoint:
    """The current point of a solver, with m usable columns and k outputs."""

    W: Floats  # [m, k] coefficients
    z: Floats  # [k, n] predictions without the intercepts
    b: Floats  # [k] intercepts
    v: Floats  # [k, n] weight·(y − z − b)
    loss: float
    A: Floats  # [m, k] x_j · v; current for the columns that were requested last

    def copy(self) -> GroupPoint:
        """Copy the point, so that changes to the copy leave this one as it is."""
        return GroupPoint(self.W.copy(), self.z.copy(), self.b.copy(), self.v.copy(), self.loss, self.A.copy())


class PreparedGroups:
    """A problem with the statistics of its columns."""

    def __init__(self, problem: GroupProblem, crew: Crew, profile: str) -> None:
        self.problem, self.crew, self.profile = problem, crew, profile
        self.columns = columns = ColumnPasses(problem.design, crew, profile)
        self.losses = [Squared(y, problem.weight, problem.intercept, profile) for y in problem.y]
        self.mass = float(np.sum(problem.weight))
        n, p = problem.design.shape
        k = len(self.losses)
        zero = GroupPoint(np.zeros((0, k)), np.zeros((k, n)), np.zeros(k), np.zeros((k, n)), 0.0, np.zeros((0, k)))
        self._look(zero)
        mean, norm, product = columns.survey(problem.weight, problem.intercept, zero.v[0])
        if isinstance(problem.design, Design) and not problem.design.sparse:
            problem.design.refuse_unproven_values(mean, norm, problem.weight)
        clear_constant(norm, mean, self.mass)
        self.groups = (problem.groups or Groups.single(p)).among(norm > 0.0)
        self.column = self.groups.column
        self.mean, self.norm = mean, norm[self.column]
        sizes = self.groups.sizes
        self.group_of = np.repeat(np.arange(len(sizes)), sizes)
        square = np.concatenate([np.zeros(1), np.cumsum(self.norm * self.norm)])
        # Sums of squares bound the spectral norms of groups.
        self.length = np.sqrt(np.maximum(np.diff(square[self.groups.bounds]), 0.0)) if len(sizes) else np.zeros(0)
        self.ones = bool((problem.weight == 1.0).all())  # whether all samples weigh 1
        m = len(self.column)
        zero.W, zero.A = np.zeros((m, k)), np.empty((m, k))
        if k == 1:
            zero.A[:, 0] = product[self.column]
            self._centre(zero, slice(None))
        else:
            self.price(zero, np.arange(m))
        self.zero = zero

    @property
    def outputs(self) -> int:
        return len(self.losses)

    def positions(self, chosen: Ints) -> tuple[Ints, Ints]:
        """Positions of the columns of these groups, and the bounds of the groups in them."""
        sizes = self.groups.sizes[chosen]
        bounds = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])
        first = np.repeat(self.groups.bounds[chosen] - bounds[:-1], sizes)
        return first + np.arange(len(first)), bounds

    def by_samples(self, v: Floats) -> Floats:
        """v [k, n] in the order that kernels read: [n, k] with sparse columns."""
        return np.ascontiguousarray(v.T) if self.columns.sparse else v

    def price(self, point: GroupPoint, which: Ints) -> None:
        """Compute x_j · v of the columns at these positions."""
        columns, k = self.columns, self.outputs
        kind = group_columns.price_groups_sparse_worker if columns.sparse else group_columns.price_groups_dense_worker
        entries = columns.entries[self.column[which]]
        bounds = column_bounds(entries * k)
        args = (which, self.column, *columns.parts, self.by_samples(point.v), point.A.reshape(-1))
        columns.run("price", kind, bounds, *args, work=int(entries.sum()) * k)
        self._centre(point, which if len(which) < len(self.column) else slice(None))

    def _centre(self, point: GroupPoint, which: Ints | slice) -> None:
        """Remove rounding errors of Σ v, which is zero with an intercept."""
        if self.problem.intercept:
            point.A[which] -= self.mean[self.column[which], None] * np.sum(point.v, axis=1)

    def predict(self, point: GroupPoint) -> None:
        """Recompute predictions, residuals and loss at the point's coefficients."""
        point.z[:] = 0.0
        for t in range(self.outputs):
            on = np.flatnonzero(point.W[:, t])
            if len(on):
                self.columns.add(self.column[on], np.ascontiguousarray(point.W[on, t]), point.z[t])
        self._look(point)

    def _look(self, point: GroupPoint) -> None:
        point.loss = 0.0
        for t, loss in enumerate(self.losses):
            at = loss.look(point.z[t], float(point.b[t]))
            point.loss, point.b[t], point.v[t] = point.loss + at.value, at.b, at.v

    def square(self, chosen: Ints, bounds: Ints, column: Ints, ridge: float) -> tuple[Ints, Floats]:
        """Products of the columns within each of these groups: where a group's begin, and all of them."""
        columns, sizes = self.columns, np.diff(bounds)
        start = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes * sizes)])
        H = np.empty(int(start[-1]))
        sparse = columns.sparse
        kind = group_columns.square_groups_sparse_worker if sparse else group_columns.square_groups_dense_worker
        work = np.add.reduceat(columns.entries[column], bounds[:-1]) * sizes if len(sizes) else sizes
        visits = column_bounds(work)
        weight = np.empty(0) if self.ones else self.problem.weight
        mass = self.mass if self.problem.intercept else 0.0
        mean = np.ascontiguousarray(self.mean[column])
        args = (visits, bounds, start, column, *columns.parts, weight, mass, mean, ridge, H)
        step = make_step("products", kind, independent(len(visits) - 1), np.diff(visits), *args)
        self.crew.run_pass(step, self.profile, int(work.sum()))
        return start, H
