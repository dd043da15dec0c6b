"""The hosts of one stage, as the driver of a job over tables sees them: some of the nodes, numbered from 0.

Several stages may run at the same time, each with its own incarnation. A lost host ends all that used it: `StageLost`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from stretto.runtime.cluster.hosts.calls import Address, HostEvent
from stretto.runtime.cluster.hosts.failure_detector import Losses
from stretto.runtime.cluster.hosts.fleet import HostLost
from stretto.runtime.cluster.hosts.hosts import Hosts

HostTaskSpec = tuple[Callable[..., Any], Sequence[int], Mapping[int, Any]]  # see `Hosts.begin_beside`


class StageHosts:
    """The hosts of one stage.

    Parameters
    ----------
    hosts : Hosts
        All hosts of the session.
    nodes : sequence of int
        The nodes of the stage.
    wrap : callable
        function(place, payload of the driver) -> payload of the stage on the node at this place.
    before : sequence of tasks
        Transfers that begin with it and end with it.
    """

    def __init__(
        self,
        hosts: Hosts,
        nodes: Sequence[int],
        wrap: Callable[[int, Any], Any],
        make: Callable[..., Any],
        before: Sequence[HostTaskSpec] = (),
    ) -> None:
        self._hosts, self._nodes, self._wrap, self._make, self._before = hosts, tuple(nodes), wrap, make, tuple(before)
        self.nodes = len(self._nodes)
        self._numbers: list[int] = []
        self._at: list[int] = []  # the host of each node
        self._used: set[int] = set()  # hosts of the stage and its transfers

    @property
    def addresses(self) -> Mapping[int, Address]:
        """By host."""
        return self._hosts.addresses

    @property
    def counted(self) -> Losses:
        """Losses of hosts so far."""
        return self._hosts.counted

    def begin(self, make: Any, payloads: Callable[[int, list[int]], Any]) -> None:
        """Begin the transfers and the stage. make: unused, the stage has its own task."""
        self._at = [self._hosts.where[node] for node in self._nodes]
        self._used = {self._hosts.where[node] for _, nodes, _ in self._before for node in nodes} | set(self._at)
        made = {}
        for place, host in enumerate(self._at):
            places = [other for other, at in enumerate(self._at) if at == host]
            made[place] = self._wrap(place, payloads(host, places))
        self._numbers = self._hosts.begin_beside([*self._before, (self._make, self._nodes, made)])

    def ask(self, what: str, *args: Any, timeout: float | None = None) -> dict[int, Any]:
        """Call the stage on all of its hosts."""
        return self._hosts.ask_beside(self._numbers[-1], list(dict.fromkeys(self._at)), what, *args, timeout=timeout)

    def events(self, wait: float) -> list[HostEvent]:
        """Events of the stage; an error of a transfer is raised."""
        try:
            for number in self._numbers[:-1]:
                for event in self._hosts.events_beside(number, 0.0):
                    if event.what == "failed":
                        raise event.value
            return self._hosts.events_beside(self._numbers[-1], wait)
        except HostLost as lost:
            if lost.host in self._used:
                raise
            self._hosts.lose(lost, "tasks go back to their last values")  # this stage does not need it
            return []

    def end(self) -> None:
        """The stage is over: its hosts forget it before their next task."""
        self._hosts.end_beside(self._numbers)
        self._numbers = []

    halt = end

    def lose(self, lost: HostLost, then: str = "") -> None:
        """A host is lost: so are the states that it held. The session handles that."""
        raise lost

    def words(self, host: int) -> str:
        """A host in words."""
        return self._hosts.words(host)
