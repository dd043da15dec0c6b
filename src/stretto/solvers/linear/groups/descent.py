"""Minimise over one working set of groups: by inner products of its columns, or by sweeps over the data.

Both are block coordinate descent with Anderson extrapolation. A sweep by products takes m² fast operations for each
output, where m is the number of columns; a sweep over the data takes one slow operation for each entry.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stretto.kernels.linear.groups import columns as group_columns
from stretto.kernels.linear.groups import descent as group_descent
from stretto.kernels.numeric import extrapolation

from ..gram import Gram
from .point import GroupPoint, PreparedGroups

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

# Columns whose products are kept: half a gigabyte. A constant, because the number kept can change the last bit.
_SLOTS = 8192
_FEW = 256  # columns whose products always pay
_SWEEPS = 10_000  # by products, at most: a sweep takes microseconds
_SWEEPS_OVER_DATA = 300
_BETWEEN = 20  # sweeps over non-zero groups between two over all
_ENOUGH = 0.3  # of the violation of a sweep over all groups, to which the non-zero ones are solved
_HELD = 1 << 25  # numbers that iterates may take: larger data are swept without extrapolation


@dataclass(frozen=True, eq=False)
class GroupPenalty:
    """The penalty of a fit: Σ_g group_l1_g ‖W_g‖ + l1 Σ |w| + ½ l2 ‖W‖²."""

    group_l1: Floats  # [G]
    l1: float
    l2: float

    @property
    def unit(self) -> Floats:
        """[G] the gradient at which a group moves, in which violations are measured."""
        unit = self.group_l1 + self.l1
        return np.where(unit > 0.0, unit, 1.0)

    def value(self, W: Floats, bounds: Ints) -> float:
        """The penalty of coefficients W [m, k] whose groups have these bounds."""
        square = np.sum(W * W, axis=1)
        norms = np.sqrt(np.add.reduceat(square, bounds[:-1])) if len(square) else square
        value = float(np.sum(self.group_l1 * norms)) + 0.5 * self.l2 * float(np.sum(square))
        return value + self.l1 * float(np.sum(np.abs(W))) if self.l1 else value

    def among(self, chosen: Ints) -> GroupPenalty:
        """The penalty of these groups."""
        return GroupPenalty(self.group_l1[chosen], self.l1, self.l2)


class GroupDescent:
    """Minimises over chosen groups of one problem, at any penalties."""

    def __init__(self, setting: PreparedGroups) -> None:
        self.setting = setting
        problem = setting.problem
        self.gram = Gram(setting.columns, problem.weight, setting.mean, problem.intercept, _SLOTS)

    def solve(self, point: GroupPoint, chosen: Ints, penalty: GroupPenalty, tolerance: float) -> int:
        """Minimise over the chosen groups to violations of `tolerance` units; return the sweeps made, 0 if none helped.

        penalty : of all groups
        """
        setting = self.setting
        before = point.loss + penalty.value(point.W, setting.groups.bounds)
        positions, bounds = setting.positions(chosen)
        kept, intercepts = point.W[positions], point.b.copy()
        few = penalty.among(chosen)
        if self._by_products(positions):
            made = self._descend_products(point, positions, bounds, few, tolerance)
        else:
            made = self._descend_data(point, chosen, positions, bounds, few, tolerance)
        setting.predict(point)
        if not point.loss + penalty.value(point.W, setting.groups.bounds) <= before + 1e-9 * abs(before):
            point.W[positions], point.b = kept, intercepts  # the products are too ill-conditioned
            setting.predict(point)
            return 0
        return made

    def _by_products(self, positions: Ints) -> bool:
        """Whether products pay."""
        columns, m = self.setting.columns, len(positions)
        entries = int(columns.entries[self.setting.column[positions]].sum())
        return m <= self.gram.limit and m * m <= max(_FEW * _FEW, (8 if columns.sparse else 1) * entries)

    def _descend_products(
        self, point: GroupPoint, positions: Ints, bounds: Ints, penalty: GroupPenalty, tolerance: float
    ) -> int:
        setting, k = self.setting, self.setting.outputs
        columns = setting.column[positions]
        setting.columns.need(columns)
        H = self.gram.of(columns)
        m, step = H.shape
        H[np.arange(m), np.arange(m)] += penalty.l2
        W = np.ascontiguousarray(point.W[positions].T)
        h = np.empty((k, step))
        flat = H.reshape(-1)
        group_descent.multiply_products[setting.profile](flat, W, h)
        q = np.zeros((k, step))
        q[:, :m] = point.A[positions].T - penalty.l2 * W
        q += h
        groups, largest = len(bounds) - 1, int(np.max(np.diff(bounds)))
        history, said = extrapolation.MOST + 1, np.zeros(group_descent.RESULTS)
        group_descent.descend_products[setting.profile](
            flat, bounds, q, W, h, penalty.group_l1, penalty.l1, penalty.unit, tolerance, _SWEEPS,
            np.empty(groups, np.int64), np.empty(groups), np.empty((3, k * largest)), np.empty((history, k * m)),
            np.empty((history, k * step)), np.empty((history, extrapolation.MOST)), np.empty(k * (m + step)), said,
        )  # fmt: skip
        point.W[positions] = W.T
        return int(said[group_descent.SWEPT])

    def _descend_data(
        self, point: GroupPoint, chosen: Ints, positions: Ints, bounds: Ints, penalty: GroupPenalty, tolerance: float
    ) -> int:
        setting = self.setting
        sweeps = _DataSweeps(setting, point, chosen, positions, bounds, penalty)
        made = 0
        everything = np.arange(len(chosen))
        while made < _SWEEPS_OVER_DATA and not setting.crew.asked:
            worst = sweeps.sweep(everything)
            made += 1
            if worst <= tolerance:
                break
            goal = max(0.5 * tolerance, _ENOUGH * worst)
            on = sweeps.support()
            sweeps.forget()
            for _ in range(_BETWEEN):
                made += 1
                if sweeps.sweep(on) <= goal or setting.crew.asked:
                    break
                sweeps.extrapolate()
        point.W[positions] = sweeps.W
        return made


class _DataSweeps:
    """Sweeps over the data of a working set, and their extrapolation."""

    def __init__(
        self, setting: PreparedGroups, point: GroupPoint, chosen: Ints, positions: Ints, bounds: Ints,
        penalty: GroupPenalty,
    ) -> None:  # fmt: skip
        self.setting, self.penalty, self.bounds = setting, penalty, bounds
        columns, profile = setting.columns, setting.profile
        self.column = setting.column[positions]
        k, largest = setting.outputs, int(np.max(np.diff(bounds)))
        self.W = point.W[positions]
        self.v = np.ascontiguousarray(point.v.T) if columns.sparse else point.v.copy()
        self.mean = np.ascontiguousarray(setting.mean[self.column])
        self.mass = setting.mass if setting.problem.intercept else 0.0
        self.lag, self.scratch = np.zeros(k), np.empty((3, k * largest))
        self.start, self.H = setting.square(chosen, bounds, self.column, penalty.l2)
        self.curve, self.unit = np.empty(len(chosen)), penalty.unit
        group_columns.bound_curvatures[profile](bounds, self.start, self.H, self.scratch, self.curve)
        self.weight = np.empty(0) if setting.ones else setting.problem.weight
        kind = group_columns.sweep_groups_sparse if columns.sparse else group_columns.sweep_groups_dense
        self._sweep = kind[profile]
        size = self.W.size + self.v.size
        history = extrapolation.MOST + 1
        self._points = np.empty((history, self.W.size if history * size <= _HELD else 0))
        self._pulls = np.empty((history, self.v.size if self._points.size else 0))
        self._held = 0

    def sweep(self, which: Ints) -> float:
        """One sweep over these groups; return the largest violation."""
        penalty = self.penalty
        worst = self._sweep(
            which, self.bounds, self.start, self.column, *self.setting.columns.parts, self.v, self.weight, self.mean,
            self.mass, self.lag, penalty.l2, self.H, self.curve, self.W, penalty.group_l1, penalty.l1, self.unit,
            self.scratch,
        )  # fmt: skip
        return float(worst)

    def support(self) -> Ints:
        """The groups with a coefficient other than zero."""
        return np.flatnonzero(np.add.reduceat((self.W != 0.0).any(axis=1), self.bounds[:-1])).astype(np.int64)

    def forget(self) -> None:
        """Extrapolate from later iterates alone."""
        self._held = 0

    def extrapolate(self) -> None:
        """Keep the iterate; once there are enough, move to the point they lead to if the objective is lower there."""
        if not self._points.size:
            return
        self._settle()
        self._points[self._held], self._pulls[self._held] = self.W.ravel(), self.v.ravel()
        self._held += 1
        if self._held <= extrapolation.MOST:
            return
        self._held = 0
        most = extrapolation.MOST
        W, v = np.empty_like(self.W), np.empty_like(self.v)
        found = extrapolation.extrapolate[self.setting.profile](
            self._points, self._pulls, np.empty((most, most)), np.empty(most), W.reshape(-1), v.reshape(-1)
        )
        if found and self._objective(W, v) < self._objective(self.W, self.v):
            self.W, self.v = W, v

    def _settle(self) -> None:
        """Add the part of the means to every sample's pull."""
        weight = self.setting.problem.weight
        if self.setting.columns.sparse:
            self.v += weight[:, None] * self.lag
        else:
            self.v += self.lag[:, None] * weight
        self.lag[:] = 0.0

    def _objective(self, W: Floats, v: Floats) -> float:
        weight = self.setting.problem.weight
        weight = weight[:, None] if self.setting.columns.sparse else weight
        square = np.divide(v * v, weight, out=np.zeros_like(v), where=weight > 0.0)
        return 0.5 * float(np.sum(square)) + self.penalty.value(W, self.bounds)
