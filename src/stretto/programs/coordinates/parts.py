"""Parts of a sparse regression: what a node holds of the data, and what it does in a round.

By rows, a part is a block of rows. Its state is what is left of y there (and what is fitted, for the logistic loss).
Round t first applies the changes up to round t − pipeline to the block, then gathers partial inner products.

By columns, a part is every k-th column. It gathers whole inner products of its columns with v, a parameter that the
driver keeps and of which nodes receive what changed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stretto.kernels.factorization.losses import LOGISTIC
from stretto.kernels.linear import coordinate
from stretto.schedule.columns import Columns
from stretto.schedule.spec import Floats, Ints


class Change(NamedTuple):
    """What a round changed, as blocks of rows apply it."""

    round: int
    coordinates: Ints  # those that moved
    change: Floats  # by how much
    level: float  # after the round


class RoundJob(NamedTuple):
    """A round of coordinates, the one job that all parts get."""

    round: int
    coordinates: Ints
    samples: int  # entries of their columns
    moved: tuple[Change, ...]  # of the rounds that it reads and the one before it did not; by columns none


@dataclass(frozen=True)
class Shape:
    """What is the same for all parts.

    Attributes
    ----------
    loss : int
        Its code.
    intercept : bool
    width : int
        The most coordinates of a round.
    depth : int
        Rounds in flight.
    """

    loss: int
    intercept: bool
    width: int
    depth: int

    def problem(self, part: Part, v: Floats, z: Floats) -> Any:
        """The arrays of a part, for compiled code. They hold the last depth + 1 rounds."""
        ring, logistic = self.depth + 1, self.loss == LOGISTIC
        facts = np.zeros(coordinate.FACTS, np.int64)
        facts[:] = (part.rows, part.dense, self.loss, self.intercept, 1)
        cuts = np.zeros((max(0, len(part.indptr) - 1), 2), np.int32)
        if len(cuts):
            cuts[:, 1] = np.diff(part.indptr)
        numbers, whole = np.empty(0), np.empty(0, np.int64)  # what only the driver uses
        return coordinate.Problem(
            facts, np.zeros(2), part.values, part.indices, part.indptr, cuts, np.array([0, part.rows]),
            part.y, numbers, numbers, numbers, whole, z, v, np.zeros(part.rows if logistic else 0, np.int64),
            np.zeros((ring, self.width), np.int64), np.zeros(ring, np.int64), np.zeros((ring, 1, self.width)),
            np.zeros((ring, self.width)), np.empty((0, 0)), np.zeros(ring), np.zeros((ring, 1)),
            np.zeros(coordinate.COUNTS, np.int64),
        )  # fmt: skip


@dataclass(eq=False)
class Part:
    """Some rows or some columns of the data. Dense: `values` column by column, the next two empty.

    Attributes
    ----------
    number : int
        Its place among the parts.
    rows : int
        How many rows it has.
    values, indices, indptr : array
        Its columns.
    y, v, z : array [rows]
        By rows: the target, the residual or pull before the first round, and for the logistic loss what is fitted.
    """

    number: int
    rows: int
    values: NDArray[Any]
    indices: NDArray[np.int32]
    indptr: Ints
    y: Floats
    v: Floats
    z: Floats

    @property
    def dense(self) -> bool:
        return len(self.indptr) == 0


@dataclass(eq=False)
class BlockState:
    """The state of a block of rows.

    Attributes
    ----------
    v, z : array [rows]
        After round `applied`.
    pull : float
        The sum of v, where the intercept needs it.
    applied : int
        The last round whose changes are in it.
    """

    v: Floats
    z: Floats
    pull: float
    applied: int = 0
    _problem: Any = field(default=None, repr=False)

    def problem(self, part: Part, shape: Shape) -> Any:
        """The arrays of the block, made once."""
        if self._problem is None:
            self._problem = shape.problem(part, self.v, self.z)
        return self._problem

    def __reduce__(self) -> tuple[Any, ...]:
        return BlockState, (self.v, self.z, self.pull, self.applied)


def row_parts(columns: Columns, problem: Any) -> list[Part]:
    """The data by blocks of rows, as the driver's `problem` cuts them."""
    found = []
    for block, (low, high) in enumerate(zip(problem.bounds[:-1], problem.bounds[1:], strict=True)):
        rows = slice(low, high)
        if columns.dense:
            values = columns.values.reshape(columns.size, columns.rows)[:, rows].ravel()
            indices, indptr = columns.indices, columns.indptr
        else:
            lengths = (problem.cuts[:, block + 1] - problem.cuts[:, block]).astype(np.int64)
            entries, indptr = _entries(columns.indptr[:-1] + problem.cuts[:, block], lengths)
            values, indices = columns.values[entries], columns.indices[entries] - np.int32(low)
        found.append(
            Part(block, int(high - low), values, indices, indptr, problem.y[rows].copy(), problem.v[rows].copy(),
                 problem.z[rows].copy())
        )  # fmt: skip
    return found


def column_parts(columns: Columns, count: int) -> list[Part]:
    """The data by columns: part k has the columns k, k + count, …"""
    found, nothing = [], np.empty(0)
    for part in range(count):
        if columns.dense:
            values = columns.values.reshape(columns.size, columns.rows)[part::count].ravel()
            indices, indptr = columns.indices, columns.indptr
        else:
            entries, indptr = _entries(columns.indptr[:-1][part::count], columns.length[part::count])
            values, indices = columns.values[entries], columns.indices[entries]
        found.append(Part(part, columns.rows, values, indices, indptr, nothing, nothing, nothing))
    return found


def _entries(starts: Ints, lengths: Ints) -> tuple[Ints, Ints]:
    """Where some ranges of entries are, one after another, and the `indptr` of the result."""
    indptr = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=indptr[1:])
    return np.repeat(starts - indptr[:-1], lengths) + np.arange(indptr[-1]), indptr
