"""Unimodular transformations (skew, interchange, reversal) of two dimensions, after which dependences point forward.

A matrix of integers with determinant 1 or -1 maps the points of the plane one to one. Skewing j to i + j turns the
vector (1, -1) of a nine-point stencil into (1, 0): the blocks of the new plane can then run as a wavefront. The search
tries all such matrices with small entries, simplest first.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from functools import cache
from typing import TypeAlias

from stretto.loops.analyse.facts import VectorEntry

Matrix: TypeAlias = tuple[tuple[int, ...], ...]

LARGEST = 3  # entries are from -3 to 3: a larger skew would leave almost empty tiles


def search(
    vectors: Sequence[tuple[VectorEntry, ...]], least_of: Callable[[Sequence[int], int], float] | None = None
) -> tuple[Matrix, bool] | None:
    """The simplest matrix under which all vectors (pairs of entries) point forward, and whether its plane can be tiled.

    tiled: every component of every new vector is ≥ 0, so both new dimensions may be cut into ranges. Otherwise the
    first component is > 0, and one value of the first new index is one time step. None where no matrix does either.
    Vectors that are zero in both entries stay within one point and are no obstacle. An entry may be any integer, but
    then only a coefficient of 0 makes the vector point forward. least_of(row, k): the least value of row · vector k,
    where it is known better than from the bounds of its entries.

    >>> one, zero = VectorEntry(1, 1), VectorEntry(0, 0)
    >>> search([(one, zero), (zero, one), (one, one), (one, VectorEntry(-1, -1))])
    (((1, 0), (1, 1)), True)
    """
    moving = [k for k, vector in enumerate(vectors) if not all(entry.zero for entry in vector)]
    if least_of is None:
        return search(vectors, lambda row, k: _combination(row, vectors[k]).low)
    found: dict[tuple[int, ...], float] = {}

    def least(row: tuple[int, ...]) -> float:
        """The least value of row · vector, or the first one below 0."""
        if row not in found:
            found[row] = math.inf
            for k in moving:
                found[row] = min(found[row], least_of(row, k))
                if found[row] < 0:
                    break
        return found[row]

    for matrix in _matrices():
        if all(least(row) >= 0 for row in matrix):
            return matrix, True
    return next(((matrix, False) for matrix in _matrices() if least(matrix[0]) > 0), None)


def transformed(matrix: Matrix, vector: tuple[VectorEntry, ...]) -> tuple[VectorEntry, ...]:
    """The matrix times a vector of ranges: every entry holds all values the product can take."""
    return tuple(_combination(row, vector) for row in matrix)


def apply(matrix: Matrix, point: Sequence[int]) -> tuple[int, ...]:
    """The matrix times a point.

    >>> apply(((1, 0), (1, 1)), (3, 4))
    (3, 7)
    """
    return tuple(sum(a * x for a, x in zip(row, point, strict=True)) for row in matrix)


def inverse(matrix: Matrix) -> Matrix:
    """The matrix that undoes a 2×2 unimodular one; its entries are integers too.

    >>> inverse(((1, 0), (1, 1)))
    ((1, 0), (-1, 1))
    """
    (a, b), (c, d) = matrix
    sign = a * d - b * c  # 1 or -1, its own reciprocal
    return ((sign * d, -sign * b), (-sign * c, sign * a))


def _combination(row: Sequence[int], vector: tuple[VectorEntry, ...]) -> VectorEntry:
    low = high = 0.0
    for factor, entry in zip(row, vector, strict=True):
        if factor:  # 0 times ∞ must be 0; floating point gives NaN
            ends = (factor * entry.low, factor * entry.high)
            low, high = low + min(ends), high + max(ends)
    return VectorEntry(low, high)


@cache
def _matrices() -> tuple[Matrix, ...]:
    """All candidates: small entries first, then those nearest to the identity, then those without reversals."""
    unit = (1, 0, 0, 1)
    found = [
        flat
        for flat in itertools.product(range(-LARGEST, LARGEST + 1), repeat=4)
        if abs(flat[0] * flat[3] - flat[1] * flat[2]) == 1
    ]
    found.sort(key=lambda m: (sum(map(abs, m)), sum(map(int.__ne__, m, unit)), sum(a < 0 for a in m), m))
    return tuple((flat[:2], flat[2:]) for flat in found)
