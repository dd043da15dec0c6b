"""`Mailbox`: values in transit between devices that take turns in one process."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch


class _PeerFailed(Exception):
    """Another device has failed."""


class Mailbox:
    """Values in transit between devices, and the lock that a running device holds."""

    def __init__(self) -> None:
        self._lock = threading.Condition()
        self._posted: dict[int, torch.Tensor] = {}
        self._failed: list[BaseException] = []
        self._turn = 0

    def clear(self) -> None:
        """Remove everything at the beginning of a step."""
        self._posted.clear()
        self._failed.clear()
        self._turn = 0

    def post(self, pair: int, value: torch.Tensor) -> None:
        """Store a copy of a value."""
        self._posted[pair] = value.clone()
        self._lock.notify_all()

    def take(self, pair: int) -> torch.Tensor:
        """Wait for a value and remove it."""
        self._wait(lambda: pair in self._posted)
        return self._posted.pop(pair)

    def in_turn(self, turn: int, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call an operation after all operations with smaller turns."""
        self._wait(lambda: self._turn == turn)
        made = call(*args, **kwargs)
        self._turn += 1
        self._lock.notify_all()
        return made

    def _wait(self, until: Callable[[], bool]) -> None:
        self._lock.wait_for(lambda: self._failed or until())
        if self._failed:
            raise _PeerFailed

    def together(self, calls: Sequence[Callable[[], Any]]) -> list[Any]:
        """The results of functions that run in turns and may wait for one another."""
        found: list[Any] = [None] * len(calls)

        def one(k: int) -> None:
            with self._lock:
                try:
                    found[k] = calls[k]() if not self._failed else None
                except BaseException as error:
                    self._failed.append(error)
                    self._lock.notify_all()

        threads = [threading.Thread(target=one, args=(k,), daemon=True) for k in range(len(calls))]
        for thread in threads:
            thread.start()
        try:
            for thread in threads:
                thread.join()
        except BaseException as error:  # Ctrl-C: stop all devices, because parameters are half updated
            with self._lock:
                self._failed.append(error)
                self._lock.notify_all()
            raise
        if self._failed:
            raise next(error for error in self._failed if not isinstance(error, _PeerFailed))
        return found
