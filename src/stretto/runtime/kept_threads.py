"""Threads that are kept for later work: starting one takes about as long as a short stage.

    running = start("stretto-worker-3", function, argument)     # returns at once; the thread has this name meanwhile
    running.join()

A new thread has to report that it has started before `threading.Thread.start` returns. On a busy machine that is one
more wait for the processor, once for every worker of a stage. A kept thread takes its work from a queue.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

_KEPT = 64  # threads that wait for work at most
_IDLE = "stretto-kept"  # the name of a thread that waits


class _Waiting:
    """The threads that wait for work."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """After a fork, the threads of the parent do not exist."""
        self.lock = threading.Lock()
        self.threads: deque[_KeptThread] = deque()

    def take(self) -> _KeptThread | None:
        """One of them, if there is any: the one that worked last."""
        with self.lock:
            return self.threads.popleft() if self.threads else None

    def put(self, thread: _KeptThread) -> bool:
        """Let a thread wait; False if enough do."""
        with self.lock:
            stays = len(self.threads) < _KEPT
            if stays:
                self.threads.appendleft(thread)
            return stays


class Running:
    """Work on a thread."""

    __slots__ = ("_args", "_done", "_name", "_work")

    def __init__(self, name: str, work: Callable[..., None], args: tuple[Any, ...]) -> None:
        self._name, self._work, self._args = name, work, args
        self._done = threading.Lock()
        self._done.acquire()

    def join(self) -> None:
        """Wait until the work is done."""
        with self._done:
            pass

    def _run(self) -> None:
        thread = threading.current_thread()
        thread.name = self._name
        try:
            self._work(*self._args)
        except BaseException as error:  # as for other threads: it is reported, and the next work begins
            threading.excepthook(threading.ExceptHookArgs((type(error), error, error.__traceback__, thread)))
        finally:
            del self._work, self._args  # a thread that waits must keep nothing alive
            thread.name = _IDLE


class _KeptThread:
    """One thread and the queue of its work."""

    def __init__(self) -> None:
        self._queue: SimpleQueue[Running] = SimpleQueue()
        threading.Thread(target=self._loop, name=_IDLE, daemon=True).start()

    def give(self, running: Running) -> None:
        self._queue.put(running)

    def _loop(self) -> None:
        while True:
            running = self._queue.get()
            running._run()
            stays = _waiting.put(self)
            running._done.release()
            del running
            if not stays:
                return


def start(name: str, work: Callable[..., None], *args: Any) -> Running:
    """Run a function on a kept thread, or on a new one if none is free; returns at once."""
    running = Running(name, work, args)
    (_waiting.take() or _KeptThread()).give(running)
    return running


_waiting = _Waiting()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_waiting.forget)
