"""Wake the thread that owns the sockets and run functions on it (a wakeup pipe).

    bell.ring()                          wakes the thread if it sleeps
    bell.order(work, deadline)           runs work() on the thread; returns when it is done, raises what it raised

The thread itself, before it sleeps on `bell.fd` and its sockets:

    bell.asleep = True                   from now on other threads ring …
    if nothing came before:              … and what came before is found by this check
        poll(bell.fd, …)
    bell.answer()
    bell.take_orders()
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress

from stretto.errors import RunError


class Wakeup:
    """A wakeup pipe and a queue of functions.

    Parameters
    ----------
    name : str
        Owner of the thread, for error messages.
    """

    def __init__(self, name: str) -> None:
        self.asleep = False
        self.orders: deque[Callable[[], None]] = deque()
        self._name = name
        self.fd, self._in = os.pipe()
        os.set_blocking(self.fd, False)
        os.set_blocking(self._in, False)

    def ring(self, always: bool = False) -> None:
        """Wake the thread if it sleeps."""
        if self.asleep or always:
            self.asleep = False
            with suppress(BlockingIOError):  # a wakeup is pending already
                os.write(self._in, b"\0")

    def answer(self) -> None:
        """Clear pending wakeups; the thread calls it when it is awake."""
        self.asleep = False
        with suppress(BlockingIOError):
            os.read(self.fd, 4096)

    def order(self, work: Callable[[], None], deadline: float) -> None:
        """Run a function on the thread and wait for it."""
        done = threading.Event()
        failed: list[Exception] = []

        def carry_out() -> None:
            try:
                work()
            except Exception as error:
                failed.append(error)
            done.set()

        self.orders.append(carry_out)
        self.ring()
        if not done.wait(deadline):
            raise RunError(
                f"{self._name} has not answered for {deadline:.0f} s: its thread has ended or is held up by a task; "
                "see the log of this process"
            )
        if failed:
            raise failed[0]

    def take_orders(self) -> None:
        """Run the queued functions; the thread calls it."""
        while self.orders:
            self.orders.popleft()()

    def close(self) -> None:
        """Close the pipe."""
        os.close(self._in)
        os.close(self.fd)
