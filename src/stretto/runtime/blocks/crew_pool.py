"""Reuse the threads of a crew between calls: loops are called once an epoch, and starting threads takes milliseconds.

    kept = KeptCrew()
    with kept.open(Threads(2)) as crew:     # the crew of the last call, if it was for the same runtime
        ...

Two concurrent calls get a crew each. A forked child creates its own, since threads are not inherited. The threads end
with the object that holds them.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from stretto.runtime.interrupts import deferring_ctrl_c, raising_ctrl_c, shielding_ctrl_c
from stretto.runtime.runtimes import Runtime

from .crew import Crew


@dataclass(frozen=True)
class _Idle:
    runtime: Runtime
    process: int
    crew: Crew
    workers: int  # of the runtime; its number of threads may be "all", which can change
    end: weakref.finalize[[], CrewPool]


class CrewPool:
    """Holds at most one idle crew."""

    def __init__(self) -> None:
        self._idle: list[_Idle] = []

    @contextmanager
    def open(self, runtime: Runtime) -> Iterator[Crew]:
        """A crew for this runtime, exclusive to the caller."""
        idle = self._take(runtime)
        if idle is None:
            idle = self._start(runtime)
        try:
            with raising_ctrl_c():
                yield idle.crew
        except BaseException:
            with shielding_ctrl_c():
                idle.end()  # its state is unknown: do not reuse it
            raise
        if self._idle:
            idle.end()
        else:
            self._idle.append(idle)

    def _start(self, runtime: Runtime) -> _Idle:
        stack = ExitStack()
        try:
            with deferring_ctrl_c():  # starting threads must not be interrupted
                crew = stack.enter_context(runtime.crew())
            return _Idle(runtime, os.getpid(), crew, runtime.workers, weakref.finalize(self, stack.close))
        except BaseException:
            with shielding_ctrl_c():
                stack.close()
            raise

    def _take(self, runtime: Runtime) -> _Idle | None:
        try:
            idle = self._idle.pop()
        except IndexError:
            return None
        if idle.process != os.getpid():
            idle.end.detach()  # its threads belong to the parent process
            return None
        if idle.runtime == runtime and idle.workers == runtime.workers:
            return idle
        idle.end()
        return None
