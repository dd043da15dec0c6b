"""Functions of NumPy that bodies may call and that are plain functions here, inlined as the user's own are."""

from __future__ import annotations

import math
from typing import Any

import numpy as np


def sort(w: Any) -> Any:
    """np.sort of a row: ascending, NaN last. Shell's sort; which of 0.0 and -0.0 comes first is not defined."""
    a = w.copy()
    gap = 1
    while gap < len(a) // 3:
        gap = 3 * gap + 1
    while gap > 0:
        for k in range(gap, len(a)):
            x = a[k]
            j = k
            while j >= gap and (a[j - gap] > x or (a[j - gap] != a[j - gap] and x == x)):  # noqa: PLR0124 (NaN is not equal to itself)
                a[j] = a[j - gap]
                j -= gap
            a[j] = x
        gap //= 3
    return a


def norm(w: Any) -> Any:
    """np.linalg.norm of a row: its length."""
    return np.sqrt(w @ w)


def solve(A: Any, b: Any) -> Any:
    """np.linalg.solve: elimination with the largest pivot of each column. b is a row, or a matrix of columns.

    A singular matrix gives inf or NaN, where NumPy raises an error. Sizes that do not fit end in a subscript out of
    range.
    """
    M, x = A * 1.0, b * 1.0
    n = max(len(M), M.shape[1], len(x))
    for k in range(n):
        p = k
        for i in range(k + 1, n):
            if abs(M[i, k]) > abs(M[p, k]):
                p = i
        if p != k:
            for j in range(k, n):
                t = M[k, j]
                M[k, j] = M[p, j]
                M[p, j] = t
            s = x[k] * 1.0
            x[k] = x[p]
            x[p] = s
        for i in range(k + 1, n):
            f = M[i, k] / M[k, k]
            for j in range(k + 1, n):
                M[i, j] -= f * M[k, j]
            x[i] -= f * x[k]
    for k in range(n - 1, -1, -1):
        r = x[k] * 1.0
        for j in range(k + 1, n):
            r -= M[k, j] * x[j]
        x[k] = r / M[k, k]
    return x


def hypot(x: Any, y: Any) -> Any:
    """math.hypot of two numbers that are neither huge nor tiny: squares of 1e155 overflow."""
    return math.sqrt(x * x + y * y)


PLAIN: dict[int, Any] = {
    id(np.sort): sort, id(np.linalg.norm): norm, id(np.linalg.solve): solve, id(math.hypot): hypot
}  # fmt: skip


def replaced(value: object) -> object:
    """The plain function for one of NumPy's; anything else as it is."""
    return PLAIN.get(id(value), value)
