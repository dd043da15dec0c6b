"""Integer solutions of linear equations and inequalities: exact over equations, a superset under projection.

Equations are solved over the integers: x = base + Σ tᵢ columnᵢ for any integers tᵢ (a column Hermite form).
Inequalities are then in t. `project` removes unknowns (Fourier-Motzkin): every integer solution stays, and a few
points without one may join. So a dependence test on top of it may claim too much and never too little.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence

import numpy as np

Row = tuple[int, ...]
Inequality = tuple[Row, int]  # row · t ≥ bound

MOST = 160  # inequalities that a projection may have; where it would have more, some are dropped
_CUTS = 40_000  # subsets of inequalities that `corners` may intersect


def solve(equations: Iterable[Inequality], size: int) -> tuple[list[int], list[list[int]]] | None:
    """base and columns of all integer solutions of row · x = constant; None if there are none.

    >>> solve([((2, -2), 1)], 2) is None, solve([((2, -3), 1)], 2)
    (True, ([2, 1], [[-3, -2]]))
    """
    base = [0] * size
    columns = [[int(k == at) for k in range(size)] for at in range(size)]
    for row, constant in equations:
        rest = constant - _dot(row, base)
        pivot = _pivot(columns, row)
        if pivot is None:
            if rest:
                return None
            continue
        column = columns.pop(pivot)
        times, left = divmod(rest, _dot(row, column))
        if left:
            return None
        base = [a + times * b for a, b in zip(base, column, strict=True)]
    return base, columns


def echelon(columns: list[list[int]], rows: int) -> list[tuple[int, list[int]]]:
    """Columns for the first rows, as (row, column) where row is the first that the column changes.

    `columns` keeps those that change none of these rows.
    """
    size = len(columns[0]) if columns else 0
    found = []
    for row in range(rows):
        pivot = _pivot(columns, tuple(int(k == row) for k in range(size)))
        if pivot is not None:
            found.append((row, columns.pop(pivot)))
    return found


def _pivot(columns: list[list[int]], row: Sequence[int]) -> int | None:
    """Combine columns, without changing what they span, until a single one has row · column ≠ 0; return its place."""
    values = [_dot(row, column) for column in columns]
    while True:
        some = [k for k, value in enumerate(values) if value]
        if len(some) <= 1:
            return some[0] if some else None
        least = min(some, key=lambda k: abs(values[k]))
        for k in some:
            if k != least:
                times = values[k] // values[least]
                columns[k] = [a - times * b for a, b in zip(columns[k], columns[least], strict=True)]
                values[k] -= times * values[least]


def _dot(a: Sequence[int], b: Sequence[int]) -> int:
    return sum(x * y for x, y in zip(a, b, strict=True) if x)


def tightened(inequalities: Iterable[Inequality]) -> list[Inequality] | None:
    """Each divided by its greatest common divisor, the strictest of each direction; None if they contradict."""
    strictest: dict[Row, int] = {}
    for row, bound in inequalities:
        divisor = math.gcd(*row) if row else 0
        if divisor == 0:
            if bound > 0:
                return None
            continue
        direction = tuple(x // divisor for x in row)
        least = -(-bound // divisor)
        if least > strictest.get(direction, least - 1):
            strictest[direction] = least
    for row, bound in strictest.items():
        other = strictest.get(tuple(-x for x in row))
        if other is not None and bound > -other:
            return None
    return list(strictest.items())


def project(inequalities: list[Inequality], keep: int) -> list[Inequality] | None:
    """The inequalities that the first `keep` unknowns satisfy in every solution; None if they contradict."""
    current = tightened(inequalities)
    size = len(inequalities[0][0]) if inequalities else keep
    left = set(range(keep, size))
    while current is not None and left:
        counts = {k: (sum(row[k] > 0 for row, _ in current), sum(row[k] < 0 for row, _ in current)) for k in left}
        k = min(left, key=lambda k: counts[k][0] * counts[k][1] - sum(counts[k]))
        left.remove(k)
        below = [(row, bound) for row, bound in current if row[k] > 0]
        above = [(row, bound) for row, bound in current if row[k] < 0]
        rest = [(row, bound) for row, bound in current if row[k] == 0]
        if len(rest) + len(below) * len(above) > MOST:
            current = rest  # fewer conditions: a superset
            continue
        for (one, low), (two, high) in itertools.product(below, above):
            a, b = -two[k], one[k]
            rest.append((tuple(a * x + b * y for x, y in zip(one, two, strict=True)), a * low + b * high))
        current = tightened(rest)
    return None if current is None else [(row[:keep], bound) for row, bound in current]


def corners(inequalities: list[Inequality], size: int) -> list[tuple[float, ...]] | None:
    """The corners of a bounded polyhedron, slightly enlarged; [] if it is empty, None if there are too many to find."""
    if size == 0:
        return [()]
    if size == 1:
        low = max((-(-bound // row[0]) for row, bound in inequalities if row[0] > 0), default=None)
        high = min((-bound // -row[0] for row, bound in inequalities if row[0] < 0), default=None)
        if low is None or high is None:
            return None
        return [(float(low),), (float(high),)] if low <= high else []
    matrix = np.array([row for row, _ in inequalities], np.float64).reshape(-1, size)
    bounds = np.array([bound for _, bound in inequalities], np.float64)
    if math.comb(len(matrix), size) > _CUTS or (len(matrix) and max(abs(matrix).max(), abs(bounds).max()) > 2**31):
        return None
    which = np.array(list(itertools.combinations(range(len(matrix)), size)), np.int64).reshape(-1, size)
    parts, ends = matrix[which], bounds[which]
    regular = np.abs(np.linalg.det(parts)) > 0.5  # determinants of integers
    if not regular.any():
        return None
    points = np.linalg.solve(parts[regular], ends[regular][..., None])[..., 0]
    slack = points @ matrix.T - bounds
    scale = np.abs(points) @ np.abs(matrix).T + np.abs(bounds)
    inside = points[(slack >= -1e-7 * (1 + scale)).all(axis=1)]
    return [tuple(point) for point in np.unique(np.round(inside, 9), axis=0).tolist()]
