"""Data of the parts that run in this process, kept from one stage to the next.

    rows = held("session 7", (2, part, parts), lambda: cut(X, part, parts))
    release("session 7", 2)

A key belongs to an owner and begins with the number of a data set.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

_lock = threading.Lock()
_held: dict[str, dict[tuple[int, ...], Any]] = {}


def held(owner: str, key: tuple[int, ...], make: Callable[[], Any]) -> Any:
    """The data of a key; made by the first who asks."""
    with _lock:
        mine = _held.setdefault(owner, {})
        if key in mine:
            return mine[key]
    made = make()  # without the lock: parts are read at the same time
    with _lock:
        return _held.setdefault(owner, mine).setdefault(key, made)


def put(owner: str, given: dict[tuple[int, ...], Any]) -> None:
    """Keep data that came from elsewhere."""
    with _lock:
        _held.setdefault(owner, {}).update(given)


def release(owner: str, number: int | None = None) -> None:
    """Forget a data set of an owner; None: all of them."""
    with _lock:
        if number is None:
            _held.pop(owner, None)
        else:
            mine = _held.get(owner, {})
            for key in [key for key in mine if key[0] == number]:
                del mine[key]


def numbers_held(owner: str) -> set[int]:
    """The data sets of an owner that this process holds."""
    with _lock:
        return {key[0] for key in _held.get(owner, {})}
