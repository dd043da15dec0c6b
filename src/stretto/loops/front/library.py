"""Functions of NumPy that bodies may call and that are plain functions here, inlined as the user's own are."""

from __future__ import annotations

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


PLAIN = {id(np.sort): sort}


def replaced(value: object) -> object:
    """The plain function for one of NumPy's; anything else as it is."""
    return PLAIN.get(id(value), value)
