"""Plain Python functions that loops of the tests call, in a module of their own with its own constants."""

from __future__ import annotations

from typing import Any

import numpy as np

SLACK = 0.25
TABLE = np.arange(4.0)


def norm(w: Any) -> Any:
    """The length of a row, and a constant of this module."""
    return np.sqrt(w @ w) + SLACK


def distance(a: Any, b: Any) -> Any:
    d = a - b
    return norm(d)


def shortened(w: Any, least: float = 1.0, *, most: float = 3.0) -> Any:
    """A row; from several places."""
    length = norm(w)
    if length < least:
        return w * 2.0
    elif length > most:
        t = w / length
        return t
    return w + 0.5


def descend(w: Any, g: Any, rate: Any) -> None:
    """Changes its first argument in place."""
    w -= rate * g
    if w[0] > 1:
        return
    w[0] = w[0] + rate


def ordered(a: Any, b: Any) -> Any:
    if a > b:
        return a, b
    return b, a


def first_above(w: Any, x: Any) -> Any:
    for k in range(len(w)):
        if w[k] > x:
            return k
    return -1


def first_pair(w: Any, x: Any) -> Any:
    """Leaves two loops at once."""
    found = 0
    for k in range(len(w)):
        for m in range(k):
            if w[k] * w[m] > x:
                return 10 * k + m
            found += 1
    return -found


def looked_up(k: Any) -> Any:
    return TABLE[k % 4]


def halved(x: Any, times: int) -> Any:
    """Rebinds its parameter."""
    while times > 0:
        x = x / 2
        times -= 1
    return x


def square(x: Any) -> Any:
    return x**2


def forever(x: Any) -> Any:
    return forever(x - 1) if x > 0 else x


def nothing(x: Any) -> Any:
    if x > 0:
        return x


def printing(x: Any) -> Any:
    print(x)
    return x


def any_number(*x: Any) -> Any:
    return x[0]


def lowered(w: Any) -> Any:
    """Changes its argument and returns a number."""
    w -= 1.0
    return w[0]


def chosen(a: Any, b: Any) -> Any:
    """One of two rows."""
    if a[0] > b[0]:
        return a
    return b
