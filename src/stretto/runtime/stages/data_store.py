"""Data of the parts that run in this process, kept from one stage to the next.

    rows = held(("run 7", 0, part, parts), lambda: cut(X, part, parts))
    release("run 7")

A key begins with the name of its owner, which releases all of its data at once.
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


def release(owner: str) -> None:
    """Forget the data of an owner."""
    with _lock:
        _held.pop(owner, None)


def owners() -> list[str]:
    """Those whose data this process holds."""
    with _lock:
        return list(_held)
