"""Inject pauses and crashes of nodes into a simulated job over tables.

`network` handles faults of links; `driver` decides which nodes are lost, and when all restart.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from stretto.runtime.simulated.fault_schedule import schedule
from stretto.runtime.simulated.faults import Crash, Pause

if TYPE_CHECKING:
    from .job import SimulatedCluster

Later = tuple[Callable[[Any], None], Any]


class FaultInjector:
    """Pauses and crashes of nodes.

    Attributes
    ----------
    paused_until : list of float
        By node, when it continues.
    stalls : bool
        Whether any node has stalled so far; before that no call is ever postponed.
    """

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster, self._hub, spec = cluster, cluster.hub, cluster.spec
        self.paused_until = [0.0] * spec.nodes
        self.stalls = False
        self._backlog: list[list[Later]] = [[] for _ in range(spec.nodes)]
        schedule(spec, self._hub, self._pause, self._crash)

    def puts_off(self, node: int, call: Callable[[Any], None], argument: Any) -> bool:
        """Whether a node is stalled; then call(argument) runs when it continues."""
        if self.paused_until[node] > self._hub.now or self._backlog[node]:
            self._backlog[node].append((call, argument))
            return True
        return False

    def _pause(self, fault: Pause) -> None:
        cluster, number = self._cluster, fault.node
        until = self._hub.now + float(fault.seconds)
        more = until - max(self._hub.now, self.paused_until[number])
        if cluster.nodes[number] is None or more <= 0:
            return
        self.paused_until[number] = until
        self.stalls = True
        for worker in cluster.layout.workers_of(number):
            self._hub.hold_up(cluster.clients[worker].sleeper, more)
        self._hub.at(until, self._resume, number)
        cluster.driver.silent(number)

    def _resume(self, number: int) -> None:
        if self.paused_until[number] > self._hub.now:
            return
        backlog, self._backlog[number] = self._backlog[number], []
        for call, argument in backlog:
            call(argument)

    def _crash(self, fault: Crash) -> None:
        cluster, number = self._cluster, fault.node
        if cluster.nodes[number] is None:
            return
        cluster.lose(number)
        cluster.driver.crashed(number, float(fault.back_after))

    def end(self, number: int) -> None:
        """A node is lost, with all calls that waited for it."""
        self._backlog[number] = []
        self.paused_until[number] = 0.0

    def forget(self) -> None:
        """A new incarnation: discard calls that waited for stalled nodes."""
        self._backlog = [[] for _ in self._backlog]
