"""The task of a simulated host in a program: updates are really computed and take virtual time.

A node has `threads` workers. An update takes `items · seconds_per_item / speed`, times the node's current slowness. It
is computed when it begins and reported when it ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from stretto.runtime.cluster.hosts.calls import BeginTask, HostApi, HostTask
from stretto.runtime.cluster.rounds.node import CHOICE, STATE, NodeUpdate, UpdateOutcome
from stretto.runtime.cluster.rounds.task import RoundsTask
from stretto.runtime.simulated.blocks.host import VirtualHost


class VirtualRounds(RoundsTask):
    """One incarnation of a program on a simulated host. `made`: updates so far."""

    def __init__(self, host: HostApi, begin: BeginTask) -> None:
        super().__init__(host, begin)
        self._machine = cast(VirtualHost, host)
        self._hub = self._machine.hub
        self._running: dict[NodeUpdate, float] = {}  # when each ends
        self.made = 0

    def start(self) -> None:
        """Nothing to do before the driver's first call."""

    def halt(self) -> None:
        """Start no more updates, and report nothing."""
        self._halted = True
        self._running.clear()

    def hold_up(self, seconds: float) -> None:
        """The machine pauses: the current work of its workers takes this much longer."""
        for update in self._running:
            self._running[update] += seconds

    def reset(self, now: float, nodes: Sequence[int]) -> None:
        """Nodes of a program send each other nothing."""

    def _take(self, number: int, message: Any) -> None:
        super()._take(number, message)
        self._begin_updates()

    def _begin_updates(self) -> None:
        while len(self._running) < self._machine.threads and (update := self.node.next_update()) is not None:
            assert self.node.work is not None
            outcome = self.node.run(update)
            items = {STATE: 0.0, CHOICE: 1.0}.get(update.number)
            seconds = self._machine.seconds(self.node.work.items(update.job) if items is None else items)
            self._running[update] = self._hub.now + seconds
            self._hub.at(self._running[update], self._end, (update, outcome, seconds))

    def _end(self, what: tuple[NodeUpdate, UpdateOutcome, float]) -> None:
        update, outcome, seconds = what
        end = self._running.get(update)
        if end is None or self._halted:
            return
        if end > self._hub.now:  # it was delayed meanwhile
            self._hub.at(end, self._end, what)
            return
        del self._running[update]
        self.made += 1
        self.report(self.node.made(update, outcome, seconds))
        self._begin_updates()


def make_virtual_rounds(host: HostApi, begin: BeginTask) -> HostTask:
    """Create the task; for `BeginTask.make`."""
    return VirtualRounds(host, begin)
