"""The simulated hosts of a static plan, with the interface of `cluster.hosts.Hosts`, in virtual time.

    hosts = VirtualHosts(Simulated(nodes=64))
    hosts.begin(make_virtual_task, payloads)        # as `cluster.hosts.Hosts`; time passes while the driver waits
    hosts.ask("run", go); hosts.events(0.2)

The driver has its own link, as fast as the fastest node's, outside all racks. Its calls, their answers and the nodes'
reports pass the network by their bytes. Computation in the driver takes no time.

A node that crashes loses its memory. The driver notices it `detect` later, waits until the node is back, and restarts
all nodes from what it gathered last. A node that pauses for longer than `detect` counts as lost too. Calls have no
deadline: the answer arrives, or the loss is noticed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from math import inf
from typing import Any, cast

import numpy as np

from stretto.errors import RunError
from stretto.runtime.cluster.hosts.calls import BeginTask, HostEvent, HostLost
from stretto.runtime.cluster.hosts.failure_detector import Losses
from stretto.runtime.interrupts import check_ctrl_c
from stretto.runtime.simulated.fault_schedule import schedule
from stretto.runtime.simulated.faults import Crash, Pause
from stretto.runtime.simulated.network import FrameBatch, Network
from stretto.runtime.simulated.settings import SimulatedSettings
from stretto.runtime.simulated.virtual_time import Hub

from .host import DriverCall, VirtualHost
from .shared_memory import SharedSteps

_SLICE = 2000  # events between two checks for Ctrl-C
_STILL = 5_000_000  # events without a visit after which the simulation is considered broken
_CALL = 256  # bytes of a call or an answer besides its arrays


class Crashed(HostLost):
    """A host that was lost in a crash; one that only counts as lost still runs."""


@dataclass(frozen=True)
class NodeLoss:
    """A node that was lost."""

    seconds: float  # virtual, when the driver noticed it
    node: int
    why: str


class VirtualHosts:
    """Like `cluster.hosts.Hosts`, with one host for each node. `asked`: whether the caller wants the driver's
    attention.
    """

    def __init__(self, spec: SimulatedSettings) -> None:
        self.spec = spec
        self.nodes, self.where = spec.nodes, tuple(range(spec.nodes))
        self.incarnation = 0
        self.hub, self.shared = Hub(), SharedSteps()
        self.network = Network(spec, self.hub, self._arrived, self._reset, driver=True)
        self.losses: list[NodeLoss] = []
        self.carried = 0  # bytes between the driver and the nodes
        self.asked: Callable[[], bool] = lambda: False
        self._driver = spec.nodes  # its address in the network
        self._hosts = [VirtualHost(number, self) for number in range(spec.nodes)]
        self._gone: set[int] = set()  # hosts that the driver knows to be lost
        self._events: list[HostEvent] = []
        self._lost: list[HostLost] = []
        self._counted = Losses()
        self._still = (-1, 0)  # visits made by all nodes, and the number of the event at which that count was reached
        schedule(spec, self.hub, self._pause, self._crash)

    def now(self) -> float:
        """Virtual seconds since the crew was opened."""
        return self.hub.now

    # -- called by the crew -----------------------------------------------------------------------------------------

    def begin(self, make: Callable[..., Any], payloads: Any) -> None:
        """Start a task on every host, in a new incarnation; wait for lost hosts to come back."""
        while True:
            self.incarnation += 1
            self._events.clear()
            self._wait(lambda: all(self._hosts[number].alive for number in self._gone))
            self._gone.clear()
            try:
                questions = []
                for number in range(self.nodes):
                    begin = BeginTask(self.incarnation, {}, self.where, make, {number: payloads[number]})
                    questions.append(DriverCall(number, "begin", (), begin))
                self._answers(questions)
                self._counted.began()
                return
            except HostLost as lost:
                self.lose(lost)

    def ask(self, what: str, *args: Any, timeout: float | None = None) -> dict[int, Any]:
        """Call the task on all hosts at the same time; return the results by host."""
        return self.ask_each(what, dict.fromkeys(range(self.nodes), args))

    def ask_one(self, host: int, what: str, *args: Any, timeout: float | None = None) -> Any:
        """Call the task on one host."""
        return self.ask_each(what, {host: args})[host]

    def ask_each(
        self, what: str, args: Mapping[int, tuple[Any, ...]], *, timeout: float | None = None
    ) -> dict[int, Any]:
        """Call the task on several hosts at the same time, each with its own arguments."""
        for number in args:
            if number in self._gone:
                raise HostLost(number, "it has crashed")
        questions = [DriverCall(number, what, mine) for number, mine in args.items()]
        self._answers(questions)
        return {question.host: question.answer for question in questions}

    def send(self, host: int, what: str, *args: Any) -> None:
        """Call the task on one host without waiting for the answer."""
        if host in self._gone:
            raise HostLost(host, "it has crashed")
        self._carry(self._driver, host, DriverCall(host, what, args, wanted=False), size_of(args))

    def events(self, wait: float) -> list[HostEvent]:
        """Events of this incarnation, after `wait` virtual seconds at most. Raises HostLost.

        inf: wait until there is an event or a stop is requested.
        """
        if wait == inf:
            self._wait(lambda: bool(self._events or self._lost or self.asked()))
        else:
            self._wait(lambda: bool(self._events or self._lost), self.hub.now + wait)
        if self._lost:
            raise self._lost.pop(0)
        found, self._events = self._events, []
        return found

    def lose(self, lost: HostLost) -> None:
        """Record a lost host. One that only counts as lost is ended, and comes back after a while."""
        number = lost.host
        if number in self._gone:
            return
        self._gone.add(number)
        self._lost = [other for other in self._lost if other.host != number]
        host = self._hosts[number]
        if host.alive and not isinstance(lost, Crashed):
            self._end(number, float(self.spec.back_after))
        self.losses.append(NodeLoss(self.hub.now, number, lost.why))
        why = self._counted.lost(number)
        if why:
            raise RunError(
                f"{why}; the last loss, after {self.hub.now:.1f} virtual seconds, was node {number}: {lost.why}. Give "
                "nodes that fail less often (failures=), or a problem whose epochs are shorter"
            ) from lost

    def progressed(self) -> None:
        """The job has got further than ever before."""
        self._counted.progressed()
        self._still = self._still[0], self.hub.events

    # -- sending calls and answers -----------------------------------------------------------------------------------

    def _answers(self, questions: list[DriverCall]) -> None:
        """Send calls and wait until all are answered. Raises HostLost, and what a host raised."""
        for question in questions:
            self._carry(self._driver, question.host, question, size_of(question.args))
        self._wait(lambda: bool(self._lost) or all(question.answered for question in questions))
        for question in questions:
            if question.error is not None:
                raise question.error
        if not all(question.answered for question in questions):
            raise self._lost.pop(0)

    def answer(self, question: DriverCall) -> None:
        """Send an answer to the driver."""
        self._carry(question.host, self._driver, question, size_of(question.answer))

    def tell(self, event: HostEvent) -> None:
        """Send an event to the driver."""
        self._carry(event.host, self._driver, event, size_of(event.value))

    def _carry(self, source: int, target: int, content: Any, nbytes: int) -> None:
        self.carried += nbytes + _CALL
        self.network.send(source, target, [content], nbytes + _CALL)

    def _arrived(self, train: FrameBatch) -> None:
        if train.target == self._driver:
            content: Any = train.frames[0]
            if isinstance(content, DriverCall):
                content.answered = True
            elif content.incarnation == self.incarnation:
                self._events.append(content)
            self.hub.over = True  # the driver checks whether it has what it waits for
        elif train.source == self._driver:
            self._hosts[train.target].asked(cast(Any, train.frames[0]))
        else:
            self._hosts[train.target].receive((train.source, train.frames))

    def _reset(self, ends: tuple[int, int]) -> None:
        self._hosts[ends[0]].reset(ends[1])

    # -- virtual time ------------------------------------------------------------------------------------------------

    def _wait(self, ready: Callable[[], bool], until: float | None = None) -> None:
        """Let virtual time pass until a condition holds, or until the given time."""
        hub = self.hub
        deadline = float("inf") if until is None else until
        while not ready():
            hub.over = False
            if not hub.advance(deadline if until is not None else hub.now + 3600.0, _SLICE):
                if until is not None:
                    return
                if hub.idle:
                    raise RunError(
                        "the simulated nodes wait for each other, and no event is left; please report this, "
                        f"with {self.spec!r}"
                    )
            check_ctrl_c()
            if self.asked() and until is not None:
                return
            self._check_progress()

    def _check_progress(self) -> None:
        """RunError after very many events without a visit or update."""
        made = sum(host.task.made for host in self._hosts if host.task is not None)
        before, since = self._still
        if made != before:
            self._still = made, self.hub.events
        elif self.hub.events - since > _STILL:
            raise RunError(
                f"no visit or update was made during {_STILL:,} events, {self.hub.now:.1f} virtual seconds after the "
                f"start; please report this, with {self.spec!r}"
            )

    # -- faults ------------------------------------------------------------------------------------------------------

    def _pause(self, fault: Pause) -> None:
        self._hosts[fault.node].pause(float(fault.seconds))
        self.hub.at(self.hub.now + float(self.spec.detect), self._silent, (fault.node, self._hosts[fault.node].life))

    def _silent(self, what: tuple[int, int]) -> None:
        """A node that is still paused after `detect` counts as lost, since it sends nothing."""
        number, life = what
        host = self._hosts[number]
        if number not in self._gone and host.life == life and host.paused:
            self._lost.append(HostLost(number, f"it has sent nothing for {float(self.spec.detect):g} s"))
            self.hub.over = True

    def _crash(self, fault: Crash) -> None:
        host = self._hosts[fault.node]
        if host.alive:
            self._end(fault.node, float(fault.back_after))
            self.hub.at(self.hub.now + float(self.spec.detect), self._notice, (fault.node, self.hub.now))

    def _end(self, number: int, back_after: float) -> None:
        """A node loses everything, and is back after a while."""
        self._hosts[number].crash()
        self.hub.at(self.hub.now + back_after, self._back, number)

    def _back(self, number: int) -> None:
        self._hosts[number].restart()
        self.hub.over = True

    def _notice(self, what: tuple[int, float]) -> None:
        """The driver notices a crash, unless the host has started this incarnation's task since."""
        number, when = what
        if number not in self._gone and self._hosts[number].incarnation != self.incarnation:
            self._lost.append(Crashed(number, f"it crashed at {when:.3f} virtual seconds"))
            self.hub.over = True


def size_of(value: Any) -> int:
    """Bytes of the arrays and strings in a message; an object that occurs twice counts once, as in a pickle."""
    total, seen, todo = 0, set(), [value]
    while todo:
        one = todo.pop()
        if isinstance(one, np.ndarray):
            total += one.nbytes if id(one) not in seen else 0
        elif isinstance(one, bytes | str):
            total += len(one)
        elif one is None or isinstance(one, int | float | np.generic):
            total += 8
            continue
        elif id(one) in seen:
            continue
        elif isinstance(one, dict):
            todo += one.values()
        elif isinstance(one, list | tuple):
            todo += one
        elif is_dataclass(one):
            todo += [getattr(one, field.name) for field in fields(one)]
        elif hasattr(one, "indptr") and hasattr(one, "data"):
            todo += [one.data, one.indices, one.indptr]  # a sparse matrix
        seen.add(id(one))
    return total
