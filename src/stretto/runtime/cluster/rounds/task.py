"""The task of a host in a program: runs the updates that the driver assigns, on threads.

    ask("do", incarnation, number, message)     handle a message (`runtime.cluster.rounds.node`), in order of numbers

Reports go to the driver as "made" events. A message that cannot be handled is reported as "failed".
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from math import inf
from typing import Any

from stretto.comm.link import Frame
from stretto.errors import RunError
from stretto.runtime.cluster.hosts.calls import RING, BeginTask, HostApi, HostEvent, HostTask
from stretto.runtime.cluster.hosts.remote_errors import portable

from .node import RoundsNode, UpdateReport

_ENDING = 1.0  # seconds that a halted task waits for running updates; their results are dropped in any case


class RoundsTask:
    """One incarnation of a program on a host. Subclasses run the updates."""

    channel = RING  # unused: nodes of a program send each other nothing

    def __init__(self, host: HostApi, begin: BeginTask) -> None:
        self._host, self._begin = host, begin
        self.node = RoundsNode()
        self._halted = False

    def receive(self, now: float, source: int, target: int, frames: Sequence[Frame]) -> None:
        """Nodes of a program send each other nothing."""

    def tend(self, now: float) -> float:
        """No timers."""
        return inf

    def ask(self, what: str, *args: Any) -> None:
        """Handle a message of the driver; see the module's docstring."""
        if what != "do":
            raise RunError(f"a host was asked for {what!r}, and a program has no such call; please report this")
        incarnation, number, message = args
        if incarnation != self._begin.incarnation:
            return  # calls run concurrently: one of an earlier incarnation may arrive late
        try:
            self._take(number, message)
        except Exception as error:
            self._tell("failed", portable(error))

    def _take(self, number: int, message: Any) -> None:
        self.node.take(number, message)

    def report(self, report: UpdateReport | None) -> None:
        """Send a report to the driver."""
        if report is not None and not self._halted:
            self._tell("made", report)

    def _tell(self, what: str, value: Any) -> None:
        node = self._begin.nodes_of(self._host.number)[0]
        self._host.tell(HostEvent(self._begin.incarnation, self._host.number, what, node, value))


class RoundsThreads(RoundsTask):
    """Runs updates on the threads of a host."""

    def __init__(self, host: HostApi, begin: BeginTask) -> None:
        super().__init__(host, begin)
        self._changed = threading.Condition()
        self._threads = [
            threading.Thread(target=self._work, name=f"stretto-rounds-{host.number}-{worker}", daemon=True)
            for worker in range(host.threads)
        ]

    def start(self) -> None:
        """Start the threads."""
        for thread in self._threads:
            thread.start()

    def halt(self) -> None:
        """Start no more updates, and report nothing."""
        with self._changed:
            self._halted = True
            self._changed.notify_all()
        deadline = time.monotonic() + _ENDING
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))

    def _take(self, number: int, message: Any) -> None:
        with self._changed:
            super()._take(number, message)
            self._changed.notify_all()

    def _work(self) -> None:
        while True:
            with self._changed:
                while not self._halted and (update := self.node.next_update()) is None:
                    self._changed.wait()
                if self._halted:
                    return
            assert update is not None
            began = time.thread_time()
            outcome = self.node.run(update)
            spent = time.thread_time() - began
            with self._changed:
                report = self.node.made(update, outcome, spent)
                self._changed.notify_all()  # an update of the same part may be waiting
            self.report(report)


def make_rounds_task(host: HostApi, begin: BeginTask) -> HostTask:
    """Create the task; for `BeginTask.make`."""
    return RoundsThreads(host, begin)
