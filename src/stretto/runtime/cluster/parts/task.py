"""What a host does when functions run over the parts of a data set that its nodes hold.

    ask("make", Work)       function(crew, {part: own}, *shared) -> {part: value}; the values are kept
    ask("map", Work)        function(crew, value, own, *shared) for each part -> {part: result}, or kept
    ask("drop", numbers)    forget values

A function may use the threads of `crew`. It changes neither a value nor an argument, so that it can be called again
after a node was lost. An error is an answer like any other: it names the part, and the driver raises it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

from stretto.comm.link import Frame
from stretto.errors import RunError
from stretto.runtime.blocks.crew import Crew
from stretto.runtime.cluster.hosts.calls import PARTS, Begin, HostApi
from stretto.runtime.cluster.hosts.remote_errors import portable


@dataclass(frozen=True, eq=False)
class Work:
    """One call for one host."""

    function: Callable[..., Any]
    own: Mapping[int, Any]  # by part: what is for this part alone
    shared: tuple[Any, ...]  # arguments that all parts have in common; a host receives them once
    values: int  # the number of the values that the function takes
    into: int  # the number under which results are kept; −1: they are returned
    items: float  # entries that are read in all: what the call costs in virtual time


@dataclass(frozen=True, eq=False)
class Failed:
    """A function raised an error. part: which one it was at; −1 where values are made for all parts at once."""

    part: int
    error: BaseException


class PartsTask:
    """One incarnation on a host.

    Parameters
    ----------
    crew : Crew or None
        Whose threads functions use; None: those of a crew of its own.
    """

    channel = PARTS
    made = 0  # no node makes visits by itself

    def __init__(self, host: HostApi, begin: Begin, crew: Crew | None = None) -> None:
        self._host = host
        self._own_crew = crew is None
        self._crew = crew
        self._values: dict[int, dict[int, Any]] = {}
        self._lock = threading.Lock()  # one function at a time, and none while it is halted
        self._halted = False

    def start(self) -> None:
        """Nothing is done before the driver asks for it."""

    def receive(self, now: float, source: int, target: int, frames: Sequence[Frame]) -> None:
        """Nodes send each other nothing."""

    def tend(self, now: float) -> float:
        """No timers."""
        return inf

    def reset(self, now: float, peers: Sequence[int]) -> None:
        """Nothing was on its way."""

    def hold_up(self, seconds: float) -> None:
        """The machine pauses: so do its answers."""

    def halt(self) -> None:
        """End after the part at which a function is."""
        self._halted = True
        with self._lock:
            self._values.clear()
            if self._own_crew and self._crew is not None:
                self._crew.close()

    def ask(self, what: str, *args: Any) -> Any:
        """A call of the driver's."""
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
                raise RunError(f"a host that holds parts cannot answer {what!r}")

    def _make(self, work: Work) -> Failed | None:
        with self._lock:
            try:
                self._values[work.into] = dict(work.function(self._threads(), work.own, *work.shared))
            except Exception as error:
                return Failed(-1, portable(error))
        return None

    def _map(self, work: Work) -> dict[int, Any] | Failed:
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


def make_parts_task(host: HostApi, begin: Begin) -> PartsTask:
    """For `Begin.make`."""
    return PartsTask(host, begin)
