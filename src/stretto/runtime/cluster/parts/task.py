"""The task of a host that holds parts of a data set: runs the driver's functions over them.

    ask("make", Work)       function(crew, {part: own}, *shared) -> {part: value}; the values are kept
    ask("map", Work)        function(crew, value, own, *shared) for each part -> {part: result}, or kept
    ask("drop", numbers)    discard values

A function may use the threads of `crew`. It changes neither a value nor an argument, so that it can be repeated after a
node was lost. An exception is returned with its part, and the driver raises it.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from math import inf
from typing import Any

from stretto.comm.link import Frame
from stretto.errors import RunError
from stretto.runtime.blocks.crew import Crew
from stretto.runtime.cluster.hosts.calls import PARTS, BeginTask, HostApi
from stretto.runtime.cluster.hosts.remote_errors import portable

from .calls import Failed, HostCall


class PartsTask:
    """The parts of one incarnation on a host.

    Parameters
    ----------
    crew : Crew or None
        Whose threads functions use; None: those of its own crew.
    """

    channel = PARTS
    made = 0  # visits made: always 0

    def __init__(self, host: HostApi, begin: BeginTask, crew: Crew | None = None) -> None:
        self._host = host
        self._own_crew = crew is None
        self._crew = crew
        self._values: dict[int, dict[int, Any]] = {}
        self._lock = threading.Lock()  # one function at a time, and none after a halt
        self._halted = False

    def start(self) -> None:
        """Nothing to do before the driver's first call."""

    def receive(self, now: float, source: int, target: int, frames: Sequence[Frame]) -> None:
        """Nodes send each other nothing."""

    def tend(self, now: float) -> float:
        """No timers."""
        return inf

    def reset(self, now: float, peers: Sequence[int]) -> None:
        """Nothing to retransmit."""

    def hold_up(self, seconds: float) -> None:
        """Nothing to delay: a paused machine's answers wait by themselves."""

    def halt(self) -> None:
        """Stop after the part that a function is processing."""
        self._halted = True
        with self._lock:
            self._values.clear()
            if self._own_crew and self._crew is not None:
                self._crew.close()

    def ask(self, what: str, *args: Any) -> Any:
        """Answer a call of the driver."""
        match what:
            case "make":
                return self._make(args[0])
            case "map":
                return self._map(args[0])
            case "drop":
                with self._lock:
                    for number in args[0]:
                        self._values.pop(number, None)
                return None
            case _:
                raise RunError(f"a host was asked for {what!r}, and parts have no such call; please report this")

    def _make(self, work: HostCall) -> Failed | None:
        with self._lock:
            try:
                self._values[work.into] = dict(work.function(self._threads(), work.own, *work.shared))
            except Exception as error:
                return Failed(-1, portable(error))
        return None

    def _map(self, work: HostCall) -> dict[int, Any] | Failed:
        found: dict[int, Any] = {}
        for part, own in sorted(work.own.items()):
            with self._lock:
                try:
                    found[part] = work.function(self._threads(), self._values[work.values][part], own, *work.shared)
                except Exception as error:
                    return Failed(part, portable(error))
        if work.into < 0:
            return found
        with self._lock:
            self._values[work.into] = found
        return {}

    def _threads(self) -> Crew:
        """A crew whose threads have not ended."""
        if self._halted:
            raise RunError("the node was halted")
        if self._crew is None:
            self._crew = Crew(self._host.threads, serial=False)
        return self._crew


def make_parts_task(host: HostApi, begin: BeginTask) -> PartsTask:
    """Create the task; for `BeginTask.make`."""
    return PartsTask(host, begin)
