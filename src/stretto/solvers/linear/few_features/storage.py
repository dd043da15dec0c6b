"""X as the kernels of `FewFeaturesSolver` take it: dense columns, or sparse rows.

Sparse rows have two kernels: Newton steps by a factor of the columns' products, or by conjugate gradients.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from stretto.data.design.design import Design
from stretto.data.design.row_design import RowDesign
from stretto.kernels.core.transpose_sparse import by_columns
from stretto.kernels.linear.column_statistics import clear_constant
from stretto.kernels.newton import logistic_fit, logistic_step, smooth_fit, sparse_fit
from stretto.kernels.newton.block_products import ROWS

from ..regression import RegressionProblem
from .choice import suits_sparse_newton

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


_SHORT = 8  # entries of a mean row, below which the loops over rows take longer than a copy by columns


class Storage(Protocol):
    """What the solver needs of X."""

    norm: Floats  # [p] norms of the columns about their means; 0 for a constant column
    shift: Floats  # [p] the kernels' intercept is b + shift·β
    small: Floats  # [SMALL, p] gradients, and what describes the quadratic model
    column: Ints  # the columns of the model
    H: Floats  # [p, p] products of the model

    def prepare(self, profile: str, vectors: Floats, numbers: Floats) -> None:
        """Evaluate the loss at β = 0, and compute means and norms; DataError for NaN, infinity and huge values."""

    def predict(self, profile: str, coef: Floats, vectors: Floats, numbers: Floats) -> None:
        """Evaluate the loss at β = coef."""

    def step(
        self, profile: str, l1: Floats, l2: Floats, goals: tuple[float, float, float], steps: int, coef: Floats,
        vectors: Floats, numbers: Floats,
    ) -> None:  # fmt: skip
        """Make Newton steps. goals: the gap, the share of the objective, and the least gap."""


def storage_of(problem: RegressionProblem, *, smooth: bool) -> Storage:
    """X of a problem, by columns if it is dense, else by rows. smooth : there is no L1 penalty"""
    design = problem.design
    if not design.sparse:
        return DenseColumns(problem)
    few = not smooth or suits_sparse_newton(*design.shape, design.nnz, smooth=True)
    return SparseRows(problem) if few else SmoothRows(problem)


def _rows_of(problem: RegressionProblem) -> RowDesign:
    """X by rows, in rising order of their columns."""
    given = problem.design
    if isinstance(given, RowDesign):
        return given
    design = given if isinstance(given, Design) else given.pick(np.arange(given.shape[1], dtype=np.int64))
    return RowDesign.of(design.matrix)


class DenseColumns:
    """Dense columns, centred about their means."""

    def __init__(self, problem: RegressionProblem) -> None:
        given = problem.design
        p = given.shape[1]
        # Columns on nodes are copied here: the data are small.
        self._design = given if isinstance(given, Design) else given.pick(np.arange(p, dtype=np.int64))
        self._data = (self._design.parts[0], problem.y, problem.weight)
        self._intercept = problem.intercept
        self.shift, self.norm = np.empty(p), np.empty(p)
        self.small, self.column, self.H = (
            np.empty((logistic_step.SMALL, p)),
            np.empty(2 * p, np.int64),
            np.empty((p, p)),
        )
        width = (p + 4) // 4 * 4  # of all columns and the intercept
        self._block, self._products = np.empty((width + 1) * ROWS), np.empty(width * width)
        self._factor = np.empty((p, p))

    def prepare(self, profile: str, vectors: Floats, numbers: Floats) -> None:
        mass = logistic_fit.prepare[profile](
            *self._data, self._intercept, self.shift, self.norm, vectors, self.small, np.empty((6, 2)), numbers
        )
        self._design.refuse_unproven_values(self.shift, self.norm, self._data[2])
        clear_constant(self.norm, self.shift, mass)

    def predict(self, profile: str, coef: Floats, vectors: Floats, numbers: Floats) -> None:
        logistic_fit.predict[profile](
            *self._data, self._intercept, self.shift, coef, vectors, self.small, self.column, numbers
        )

    def step(
        self, profile: str, l1: Floats, l2: Floats, goals: tuple[float, float, float], steps: int, coef: Floats,
        vectors: Floats, numbers: Floats,
    ) -> None:  # fmt: skip
        logistic_fit.fit[profile](
            *self._data, self.shift, self.norm, self._intercept, l1, l2, *goals, steps, coef, vectors, self.small,
            self.column, self._block, self._products, self.H, self._factor, numbers,
        )  # fmt: skip


class SparseRows:
    """Sparse rows, in rising order of their columns; short ones by columns as well."""

    def __init__(self, problem: RegressionProblem) -> None:
        given = _rows_of(problem)
        p = given.shape[1]
        _, indices, values = given.rows
        short = len(indices) < _SHORT * given.shape[0]
        size = len(indices) if short else 0
        columns = np.empty((p + 1) * short, np.int64), np.empty(size, np.int32), np.empty(size, values.dtype)
        if short:
            by_columns(*given.rows, *columns)
        self._data = (*given.rows, *columns, problem.y, problem.weight)
        self._intercept = problem.intercept
        self.shift, self.norm, self._mean = np.zeros(p), np.empty(p), np.empty(p)
        self.small, self.column, self.H = (
            np.empty((logistic_step.SMALL, p)),
            np.empty(3 * p, np.int64),
            np.empty((p, p)),
        )
        longest = int(np.max(np.diff(given.rows[0]), initial=0)) + 1
        self._row = np.empty(longest, np.int64), np.empty(longest)
        self._change, self._factor = np.empty(p), np.empty((p, p))

    def prepare(self, profile: str, vectors: Floats, numbers: Floats) -> None:
        mass = sparse_fit.prepare[profile](
            *self._data, self._intercept, self._mean, self.norm, vectors, self.small, np.empty((6, 2)), numbers
        )
        clear_constant(self.norm, self._mean, mass)

    def predict(self, profile: str, coef: Floats, vectors: Floats, numbers: Floats) -> None:
        sparse_fit.predict[profile](*self._data, self._intercept, coef, vectors, numbers)

    def step(
        self, profile: str, l1: Floats, l2: Floats, goals: tuple[float, float, float], steps: int, coef: Floats,
        vectors: Floats, numbers: Floats,
    ) -> None:  # fmt: skip
        sparse_fit.fit[profile](
            *self._data, self._mean, self.norm, self._intercept, l1, l2, *goals, steps, coef, vectors, self.small,
            self.column, *self._row, self._change, self.H, self._factor, numbers,
        )  # fmt: skip


class SmoothRows:
    """Sparse rows of many columns, for problems without an L1 penalty."""

    def __init__(self, problem: RegressionProblem) -> None:
        given = _rows_of(problem)
        n, p = given.shape
        self._rows, self._data, self._intercept = given.rows, (problem.y, problem.weight), problem.intercept
        self.shift, self.norm, self._mean, self._mass = np.zeros(p), np.empty(p), np.empty(p), 0.0
        self.small, self.column = np.empty((logistic_step.SMALL, p)), np.arange(p, dtype=np.int64)
        self.H = np.empty((0, 0))  # the model is never stored
        self._work, self._out = np.empty(4 * p), np.empty(n)

    def prepare(self, profile: str, vectors: Floats, numbers: Floats) -> None:
        columns = np.empty(0, np.int64), np.empty(0, np.int32), np.empty(0, self._rows[2].dtype)
        self._mass = sparse_fit.prepare[profile](
            *self._rows, *columns, *self._data, self._intercept, self._mean, self.norm, vectors, self.small,
            np.empty((6, 2)), numbers,
        )  # fmt: skip
        clear_constant(self.norm, self._mean, self._mass)

    def predict(self, profile: str, coef: Floats, vectors: Floats, numbers: Floats) -> None:
        smooth_fit.predict[profile](*self._rows, *self._data, self._intercept, coef, vectors, numbers)

    def step(
        self, profile: str, l1: Floats, l2: Floats, goals: tuple[float, float, float], steps: int, coef: Floats,
        vectors: Floats, numbers: Floats,
    ) -> None:  # fmt: skip
        smooth_fit.fit[profile](
            *self._rows, *self._data, self._mean, self.norm, self._mass, self._intercept, l1, l2, *goals, steps, coef,
            vectors, self.small, self.column, self._work, self._out, numbers,
        )  # fmt: skip
