"""Data parts of a distributed sparse regression: blocks of rows or sets of columns, and their state on a node.

By rows, a part is a block of rows. Its state is the residual of its rows (and, for the logistic loss, the fitted
values). Round t first applies the changes up to round t − pipeline to the block, then computes partial inner products.

By columns, a part is every k-th column. It computes whole inner products of its columns with the parameter v. The
driver keeps v, and nodes receive its changed elements.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stretto.kernels.factorization.loss_codes import LOGISTIC
from stretto.kernels.linear import coordinate
from stretto.ranges import join_ranges
from stretto.schedule.columns import Columns
from stretto.schedule.spec import Floats, Ints


class Change(NamedTuple):
    """The changes of a round, which blocks of rows apply."""

    round: int  # its number
    coordinates: Ints  # those that moved
    change: Floats  # by how much
    level: float  # the intercept after the round


class RoundJob(NamedTuple):
    """A round of coordinates: one job for all parts."""

    round: int  # its number
    coordinates: Ints  # columns to update
    samples: int  # entries of their columns
    moved: tuple[Change, ...]  # changes of rounds that this round reads and the one before did not; empty by columns


@dataclass(frozen=True)
class PartSettings:
    """Settings that all parts share.

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

    def problem(self, part: CoordinatePart, v: Floats, z: Floats) -> Any:
        """The arrays of a part, for compiled code. They hold the last depth + 1 rounds."""
        ring, logistic = self.depth + 1, self.loss == LOGISTIC
        facts = np.zeros(coordinate.FACTS, np.int64)
        facts[:] = (part.rows, part.dense, self.loss, self.intercept, 1)
        cuts = np.zeros((max(0, len(part.indptr) - 1), 2), np.int32)
        if len(cuts):
            cuts[:, 1] = np.diff(part.indptr)
        numbers, whole = np.empty(0), np.empty(0, np.int64)  # used by the driver only
        return coordinate.CoordinateProblem(
            facts, np.zeros(2), part.values, part.indices, part.indptr, cuts, np.array([0, part.rows]),
            part.y, numbers, numbers, numbers, whole, z, v, np.zeros(part.rows if logistic else 0, np.int64),
            np.zeros((ring, self.width), np.int64), np.zeros(ring, np.int64), np.zeros((ring, 1, self.width)),
            np.zeros((ring, self.width)), np.empty((0, 0)), np.zeros(ring), np.zeros((ring, 1)),
            np.zeros(coordinate.COUNTS, np.int64),
        )  # fmt: skip


@dataclass(eq=False)
class CoordinatePart:
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

    def problem(self, part: CoordinatePart, shape: PartSettings) -> Any:
        """The arrays of the block, created once."""
        if self._problem is None:
            self._problem = shape.problem(part, self.v, self.z)
        return self._problem

    def __reduce__(self) -> tuple[Any, ...]:
        return BlockState, (self.v, self.z, self.pull, self.applied)


def row_parts(columns: Columns, problem: Any) -> list[CoordinatePart]:
    """Blocks of rows, cut as in the driver's `problem`."""
    found = []
    for block, (low, high) in enumerate(zip(problem.bounds[:-1], problem.bounds[1:], strict=True)):
        rows = slice(low, high)
        if columns.dense:
            values = columns.values.reshape(columns.size, columns.rows)[:, rows].ravel()
            indices, indptr = columns.indices, columns.indptr
        else:
            lengths = (problem.cuts[:, block + 1] - problem.cuts[:, block]).astype(np.int64)
            entries, indptr = join_ranges(columns.indptr[:-1] + problem.cuts[:, block], lengths)
            values, indices = columns.values[entries], columns.indices[entries] - np.int32(low)
        found.append(
            CoordinatePart(block, int(high - low), values, indices, indptr, problem.y[rows].copy(),
            problem.v[rows].copy(),
                 problem.z[rows].copy())
        )  # fmt: skip
    return found


def column_parts(columns: Columns, count: int) -> list[CoordinatePart]:
    """Sets of columns: part k has the columns k, k + count, …"""
    found, nothing = [], np.empty(0)
    for part in range(count):
        own = columns.pick(slice(part, None, count))
        found.append(CoordinatePart(part, own.rows, own.values, own.indices, own.indptr, nothing, nothing, nothing))
    return found
