"""`Team`: a minimal thread pool whose threads all call one function at a time.

An epoch may last fifteen milliseconds, and sixteen futures would cost one of them. In this pool a thread waits on its
own queue, calls compiled code and removes one token; the thread that removes the last token wakes the caller: a third
of the cost.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

from stretto.errors import PlanError
from stretto.runtime.interrupts import GLANCE


class TeamCall:
    """One function called by every member; `wait` until all have returned."""

    def __init__(self, fn: Callable[..., Any], members: int, stop: Callable[[], None]) -> None:
        self.fn, self._stop = fn, stop
        # Members remove these from the end; the one that gets the first of them is the last to return.
        self._left = [True, *[False] * (members - 1)]
        self._ended = False
        self._over = threading.Lock()  # held until all have returned
        self._over.acquire()
        self._errors: list[BaseException] = []

    def make(self, args: tuple[Any, ...]) -> None:
        """Call the function for one member, on its thread."""
        try:
            self.fn(*args)
        except BaseException as error:
            self._errors.append(error)
            self._stop()  # otherwise the others wait without end for what this one has claimed
        if self._left.pop():
            self._ended = True  # before the lock: a caller that is interrupted after taking it still finds this
            self._over.release()

    def wait(self, seconds: float | None = None) -> bool:
        """Whether every member has returned, within `seconds` if given. Ctrl-C ends the wait, not the members."""
        left = seconds
        while not self._ended:
            # In slices: a signal that arrives just before the wait begins would not end it.
            began = time.monotonic()
            if self._over.acquire(timeout=GLANCE if left is None else min(left, GLANCE)):
                break
            if left is not None:
                left -= time.monotonic() - began
                if left <= 0:
                    return self._ended
        return True

    def check(self) -> None:
        """Raise the exception of a member."""
        if self._errors:
            raise self._errors[0]


def _serve(tasks: SimpleQueue[tuple[TeamCall, tuple[Any, ...]] | None]) -> None:
    while (task := tasks.get()) is not None:
        task[0].make(task[1])
        del task  # it holds the arrays of the pass


class Team:
    """`members` threads; they end with `close`."""

    def __init__(self, members: int) -> None:
        self._queues: list[SimpleQueue[tuple[TeamCall, tuple[Any, ...]] | None]] = [
            SimpleQueue() for _ in range(members)
        ]
        self._threads = [
            threading.Thread(target=_serve, args=(queue,), name=f"stretto-{k}", daemon=True)
            for k, queue in enumerate(self._queues)
        ]
        for started, thread in enumerate(self._threads):
            try:
                thread.start()
            except RuntimeError as error:
                self._threads = self._threads[:started]
                self.close()
                raise PlanError(
                    f"the system starts no more than {started} of {members} threads ({error}); use fewer: n_jobs=…"
                ) from error

    def call(
        self, fn: Callable[..., Any], shares: list[tuple[Any, ...]], stop: Callable[[], None] = lambda: None
    ) -> TeamCall:
        """Call fn(*shares[k]) on member k, all at once; with fewer shares than members, the last members wait. If one
        raises, stop() makes the others return.
        """
        call = TeamCall(fn, len(shares), stop)
        for queue, share in zip(self._queues[: len(shares)], shares, strict=True):
            queue.put((call, share))
        return call

    def close(self) -> None:
        """Let every member finish its call, and end its thread."""
        for queue in self._queues:
            queue.put(None)
        for thread in self._threads:
            if thread is not threading.current_thread():  # the garbage collector may run on any thread
                thread.join()
