"""Run functions at the same time and take their results as they end.

    together = Together()
    together.start("a", work)
    key, result = together.next()

A function that is alone runs on the caller's thread when its result is asked for, so that Ctrl-C reaches it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any


class Together:
    """Functions that run at the same time."""

    def __init__(self) -> None:
        self._ended: SimpleQueue[tuple[Any, Any, BaseException | None]] = SimpleQueue()
        self._ready: list[tuple[Any, Callable[[], Any]]] = []  # not started yet
        self._threads = 0

    def start(self, key: Any, work: Callable[[], Any]) -> None:
        """Add a function."""
        self._ready.append((key, work))

    @property
    def running(self) -> int:
        """Functions whose results were not taken."""
        return self._threads + len(self._ready)

    def next(self) -> tuple[Any, Any]:
        """The next that ends: its key and its result. Raises what it raised, after the others have ended."""
        if self._threads == 0 and len(self._ready) == 1:
            key, work = self._ready.pop()
            return key, work()
        for key, work in self._ready:
            threading.Thread(target=self._run, args=(key, work), name=f"stretto-stage-{key}", daemon=True).start()
        self._threads += len(self._ready)
        self._ready.clear()
        key, result, error = self._ended.get()
        self._threads -= 1
        if error is not None:
            while self._threads:
                self._ended.get()
                self._threads -= 1
            raise error
        return key, result

    def _run(self, key: Any, work: Callable[[], Any]) -> None:
        try:
            self._ended.put((key, work(), None))
        except BaseException as error:
            self._ended.put((key, None, error))
