"""How other threads reach the one that owns the sockets: they ring, and may have something done there.

    bell.ring()                          the thread, if it sleeps, wakes
    bell.order(work, deadline)           work() on the thread; returns when it is done, raises what it raised

The thread, in turn, before it sleeps on `bell.fd` and whatever else it waits for:

    bell.asleep = True                   whoever comes from here on rings …
    if nothing came before:              … and what came before is seen now
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


class Bell:
    """name: whose it is, for people."""

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
            with suppress(BlockingIOError):  # it rings already
                os.write(self._in, b"\0")

    def answer(self) -> None:
        """The thread is awake."""
        self.asleep = False
        with suppress(BlockingIOError):
            os.read(self.fd, 4096)

    def order(self, work: Callable[[], None], deadline: float) -> None:
        """Have something done on the thread."""
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
        """On the thread: do what was ordered."""
        while self.orders:
            self.orders.popleft()()

    def close(self) -> None:
        """Nobody rings any more."""
        os.close(self._in)
        os.close(self.fd)
