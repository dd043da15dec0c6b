"""Functions of units on their way to nodes: pickled once for all nodes of a stage, and unpickled once by a process.

A process keeps the functions that it has received by their bytes. So a function that is the same in every stage stays
the same object there, with what it has compiled; and one whose captured values have changed is received anew.
"""

from __future__ import annotations

import hashlib
import pickle
import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

_KEPT = 64  # functions that a process keeps
_lock = threading.Lock()
_received: OrderedDict[bytes, Any] = OrderedDict()


class SentFunction:
    """A function as it is sent. `function` in the process that receives it."""

    def __init__(self, function: Callable[..., Any]) -> None:
        from stretto.runtime.cluster.hosts.fleet import packed

        self._body = packed(function)

    def __reduce__(self) -> tuple[Any, tuple[bytes]]:
        return receive, (self._body,)


def receive(body: bytes) -> Any:
    """The function of these bytes."""
    digest = hashlib.blake2b(body, digest_size=16).digest()
    with _lock:
        if digest in _received:
            _received.move_to_end(digest)
            return _received[digest]
    function = pickle.loads(body)
    with _lock:
        _received[digest] = function
        while len(_received) > _KEPT:
            _received.popitem(last=False)
        return function
