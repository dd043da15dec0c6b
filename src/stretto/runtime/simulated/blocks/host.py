"""A simulated machine with one node of a static plan: the cluster's own task and links, in virtual time.

`RingTask`, its links and its nodes' state machine are those of the cluster. The differences: `VirtualNode` makes the
visits, frames go to the simulated network, and timers are events in virtual time. So a connection reset loses frames
that the links then retransmit, as on a real network.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf
from typing import Any, Protocol, cast

from stretto.comm.link import Frame
from stretto.runtime.blocks.crew import Crew
from stretto.runtime.cluster.blocks.step_messages import NodeProgress, StartRun
from stretto.runtime.cluster.blocks.task import RingTask
from stretto.runtime.cluster.hosts.calls import BeginTask, HostApi, HostEvent, HostTask
from stretto.runtime.cluster.hosts.remote_errors import portable
from stretto.runtime.cluster.parts.calls import HostCall
from stretto.runtime.cluster.parts.task import PartsTask
from stretto.runtime.simulated.network import Network
from stretto.runtime.simulated.settings import SimulatedSettings
from stretto.runtime.simulated.virtual_time import Hub

from .node import VirtualNode
from .shared_memory import SharedSteps

WIRE = 32  # bytes that the network adds to a frame


class DriverCall:
    """A call of the driver, in flight to a host or back. `wanted`: whether the driver waits for the answer."""

    __slots__ = ("answer", "answered", "args", "begin", "error", "host", "wanted", "what")

    def __init__(
        self, host: int, what: str, args: tuple[Any, ...], begin: BeginTask | None = None, *, wanted: bool = True
    ) -> None:
        self.host, self.what, self.args, self.begin, self.wanted = host, what, args, begin, wanted
        self.answered = False
        self.answer: Any = None
        self.error: Exception | None = None


class VirtualTask(RingTask):
    """A task whose node makes its visits in virtual time."""

    nodes: dict[int, VirtualNode]

    def _node(self, number: int) -> VirtualNode:
        host = cast(VirtualHost, self._host)

        def report(what: str, value: Any) -> None:
            self._tell(what, number, (-1, -1, portable(value)) if what == "failed" else value)

        return VirtualNode(number, host.threads, lambda to, block: self._send(number, to, block), host, report)

    def _run(self, go: StartRun) -> None:
        for node in self.nodes.values():
            node.enqueue(go)

    @property
    def made(self) -> int:
        """Visits made so far."""
        return sum(node.made for node in self.nodes.values())

    def hold_up(self, seconds: float) -> None:
        """The machine pauses: the current work of its workers takes this much longer."""
        for node in self.nodes.values():
            node.hold_up(seconds)

    def _progress(self) -> dict[int, NodeProgress]:
        found = {number: node.progress() for number, node in self.nodes.items()}
        return {number: progress for number, progress in found.items() if progress is not None}


def make_virtual_task(host: HostApi, begin: BeginTask) -> RingTask:
    """Create the task; for `BeginTask.make`."""
    return VirtualTask(host, begin)


def make_virtual_parts(crew: Crew) -> Callable[[HostApi, BeginTask], PartsTask]:
    """A function for `BeginTask.make`. Functions over parts use the threads of `crew`, the driver's, on all nodes."""
    return lambda host, begin: PartsTask(host, begin, crew)


class HostedTask(HostTask, Protocol):
    """A task in virtual time."""

    @property
    def made(self) -> int:
        """Visits or updates made so far."""
        ...

    def hold_up(self, seconds: float) -> None:
        """The machine pauses: the current work of its workers takes this much longer."""
        ...

    def reset(self, now: float, nodes: Sequence[int]) -> None:
        """The lost connection to these nodes was re-established."""
        ...


class DriverApi(Protocol):
    """The parts of the simulation that a host uses."""

    spec: SimulatedSettings
    hub: Hub
    network: Network
    shared: SharedSteps

    def answer(self, question: DriverCall) -> None:
        """Send an answer to the driver."""

    def tell(self, event: HostEvent) -> None:
        """Send an event to the driver."""


class VirtualHost:
    """A simulated machine. The driver starts a task on it; when it crashes, the task and all memory are lost.

    Attributes
    ----------
    alive : bool
        Whether it runs.
    life : int
        How often it has crashed.
    spent : float
        Seconds of a core that handling messages took so far.
    """

    def __init__(self, number: int, driver: DriverApi) -> None:
        self.number, self.threads = number, driver.spec.threads
        self.hub, self.shared, self._driver, self._spec = driver.hub, driver.shared, driver, driver.spec
        self.alive, self.life, self.spent = True, 0, 0.0
        self.task: HostedTask | None = None
        self._begun: BeginTask | None = None
        self._paused_until = 0.0
        self._waiting: list[tuple[Callable[[Any], None], Any]] = []  # what arrived during a pause
        self._tends_at = inf
        self._unanswered: list[DriverCall] = []  # calls that are answered when blocks have arrived
        self._per_item = self._spec.seconds_per_item / self._spec.speeds[number]
        self._steady = self._spec.stragglers is None

    @property
    def paused(self) -> bool:
        """Whether it neither computes nor answers."""
        return self.alive and self._paused_until > self.hub.now

    @property
    def incarnation(self) -> int:
        """The incarnation of its task, 0 without one."""
        return 0 if self._begun is None else self._begun.incarnation

    # -- called by its node ------------------------------------------------------------------------------------------

    def seconds(self, items: float) -> float:
        """Seconds that a worker takes for a number of items, if it begins now."""
        now, took = self.hub.now, items * self._per_item
        if not self._steady:
            took *= self._spec.slowness(self.number, now)
        return took + self._paused_until - now if self._paused_until > now else took

    # -- HostApi -----------------------------------------------------------------------------------------------------

    def now(self) -> float:
        """Virtual seconds."""
        return self.hub.now

    def post(self, begin: BeginTask, source: int, target: int, channel: int, frames: Sequence[Frame]) -> None:
        """Send frames of its node to another."""
        nbytes = self._pay(frames)
        self._driver.network.send(source, target, list(frames), nbytes)

    def backlog(self, begin: Any, node: int) -> int:
        """Always 0: the simulated network queues without a limit."""
        return 0

    def tell(self, event: HostEvent) -> None:
        """Report an event to the driver."""
        self._driver.tell(event)

    def rouse(self) -> None:
        """Have `tend` called soon."""
        self._tend_by(self.hub.now)

    def _pay(self, frames: Sequence[Frame]) -> int:
        """Charge the cost of handling frames to a core; return their bytes."""
        nbytes = WIRE * len(frames)
        for frame in frames:
            nbytes += frame.nbytes
        per_message, per_byte = self._spec.message_cost
        self.spent += per_message * len(frames) + per_byte * nbytes
        return nbytes

    # -- arrivals ---------------------------------------------------------------------------------------------------

    def receive(self, what: tuple[int, list[Frame]]) -> None:
        """Receive frames of another node."""
        task = self.task
        if not self.alive or task is None or self._postpones(self.receive, what):
            return
        source, frames = what
        self._pay(frames)
        task.receive(self.hub.now, source, self.number, frames)
        self._tend_by(task.tend(self.hub.now))
        if self._unanswered:
            self._answer_waiting()

    def asked(self, question: DriverCall) -> None:
        """Receive a call of the driver."""
        if not self.alive or self._postpones(self.asked, question):
            return
        if question.what == "begin" and question.begin is not None:
            self._begin(question.begin)
        elif self.task is None:
            return  # it has crashed and is back: the driver will notice
        elif question.what == "arrived" and not self.task.ask("arrived", *question.args):
            self._unanswered.append(question)
            self.hub.at(self.hub.now + float(question.args[-1]), self._give_up, question)
            return
        else:
            try:
                question.answer = self.task.ask(question.what, *question.args)
            except Exception as error:
                question.error = error
            if self.task is not None:
                self._tend_by(self.task.tend(self.hub.now))
            work = question.args[0] if question.args else None
            if isinstance(work, HostCall):
                self.hub.at(
                    self.hub.now + self.seconds(work.items / self.threads), self._computed, (self.life, question)
                )
                return
        if question.wanted:
            self._driver.answer(question)

    def _computed(self, what: tuple[int, DriverCall]) -> None:
        """The time that a function over parts takes has passed."""
        life, question = what
        if life == self.life and not self._postpones(self._computed, what):
            self._driver.answer(question)

    def _begin(self, begin: BeginTask) -> None:
        if self.task is not None:
            self.task.halt()
        self._unanswered.clear()
        self._begun, self.task = begin, cast(HostedTask, begin.make(self, begin))
        self.task.start()

    def _answer_waiting(self) -> None:
        waiting, self._unanswered = self._unanswered, []
        for question in waiting:
            if self.task is not None and self.task.ask("arrived", *question.args):
                question.answer = True
                self._driver.answer(question)
            else:
                self._unanswered.append(question)

    def _give_up(self, question: DriverCall) -> None:
        if question in self._unanswered:
            self._unanswered.remove(question)
            question.answer = False
            self._driver.answer(question)

    def reset(self, peer: int) -> None:
        """The lost connection to another machine was re-established."""
        if not self.alive or self.task is None or self._postpones(self.reset, peer):
            return
        self.task.reset(self.hub.now, [peer])
        self._tend_by(self.task.tend(self.hub.now))

    # -- timers ------------------------------------------------------------------------------------------------------

    def _tend_by(self, when: float) -> None:
        if when < self._tends_at:
            self._tends_at = when
            self.hub.at(when, self._tend, self.life)

    def _tend(self, life: int) -> None:
        if life != self.life or not self.alive or self.task is None or self._postpones(self._tend, life):
            return
        if self.hub.now < self._tends_at:
            return  # another call is scheduled for that time
        self._tends_at = inf
        self._tend_by(self.task.tend(self.hub.now))

    # -- faults ------------------------------------------------------------------------------------------------------

    def _postpones(self, call: Callable[[Any], None], argument: Any) -> bool:
        """Whether the machine is paused; then call(argument) runs when it continues."""
        if self._paused_until > self.hub.now or self._waiting:
            self._waiting.append((call, argument))
            return True
        return False

    def pause(self, seconds: float) -> None:
        """Pause: neither compute nor answer for a while."""
        now = self.hub.now
        more = now + seconds - max(now, self._paused_until)
        if not self.alive or more <= 0:
            return
        self._paused_until = now + seconds
        if self.task is not None:
            self.task.hold_up(more)
        self.hub.at(self._paused_until, self._resume, self.life)

    def _resume(self, life: int) -> None:
        if life != self.life or self._paused_until > self.hub.now:
            return
        waiting, self._waiting = self._waiting, []
        for call, argument in waiting:
            call(argument)

    def crash(self) -> None:
        """Crash: lose all memory, and all messages in flight to it."""
        if self.task is not None:
            self.task.halt()
        self.alive, self.task, self._begun = False, None, None
        self.life += 1
        self._paused_until, self._tends_at = 0.0, inf
        self._waiting.clear()
        self._unanswered.clear()

    def restart(self) -> None:
        """Come back, without a task."""
        self.alive = True
