"""Least squares with groups of coefficients: the problem (`GroupProblem`), and how columns form groups (`Groups`).

min over W, b:   ½ Σ_i weight_i ‖y_i − W x_i − b‖²  +  l1·(1 − within)·Σ_g c_g‖W_g‖  +  l1·within·Σ|w|  +  ½·l2·‖W‖²

W [k, p] has a row for each of k outputs; W_g are the coefficients of the columns of group g, in all outputs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..regression import RegressionProblem

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Groups:
    """Groups of columns: each column is in exactly one."""

    column: Ints  # [p] columns, group by group
    bounds: Ints  # [G + 1] group g has the columns column[bounds[g]] … column[bounds[g + 1] − 1]
    factor: Floats  # [G] > 0, factors c of the penalty

    @staticmethod
    def single(columns: int) -> Groups:
        """Every column is a group."""
        return Groups(np.arange(columns), np.arange(columns + 1), np.ones(columns))

    def among(self, usable: NDArray[np.bool_]) -> Groups:
        """The groups without the columns that are not usable [p], and without groups that are empty then."""
        kept = usable[self.column]
        sizes = np.diff(np.concatenate([np.zeros(1, np.int64), np.cumsum(kept)])[self.bounds])
        left = np.flatnonzero(sizes)
        bounds = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes[left])])
        return Groups(self.column[kept], bounds, self.factor[left])

    @property
    def sizes(self) -> Ints:
        """[G] columns of each group."""
        return np.diff(self.bounds)


@dataclass(frozen=True, eq=False)
class GroupProblem(RegressionProblem):
    """The objective without the penalty strengths l1 and l2. y [k, n]."""

    groups: Groups | None = None  # None: every column is a group
    within: float = 0.0  # share of l1 that is the sum of absolute values
