"""Values and protocols of calls between driver and hosts: addresses, tasks, events, errors.

A **host** is a process that holds one node of a job, or several when there are fewer processes than nodes. The driver,
the process in which the user called, starts hosts through a fleet and starts a task on each:

    driver   BeginTask(incarnation, roster, where, make, payload)  →  every host
    host     task = begin.make(host, begin); task.start()
    hosts    frames over the network, from node to node (`wire.Wire`)
    host     events(wait) → [HostEvent, …]  →  driver

Every loss of a host ends the incarnation: the driver halts the tasks on the remaining hosts, replaces the lost host or
gives its nodes to others, and calls `begin` with the next incarnation's number. Frames of another incarnation are
dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from stretto.comm.link import Frame

TABLES, RING, PROBE, PARTS, STATES = 0, 1, 2, 3, 4  # channels: the kind of task a frame is for


class HostLost(Exception):
    """A host is lost. `why` is the reason for the user, with the machine and the log."""

    def __init__(self, host: int, why: str) -> None:
        super().__init__(f"host {host}: {why}")
        self.host, self.why = host, why


class NotStarted(HostLost):
    """A process started but could not become a host; a replacement would fail the same way."""


@dataclass(frozen=True)
class Address:
    """The address and properties of a host."""

    host: int  # its number
    endpoint: str  # such as tcp://10.0.0.2:41234
    public: str  # CURVE key (Z85 text); "" without encryption
    machine: str  # name and IP address, for messages
    pid: int
    log: str  # path of its log on that machine; "" where the driver has the log
    versions: dict[str, str] = field(default_factory=dict)  # see `host.versions`; must be equal on all hosts
    target: str = ""  # processor features; must be equal for profile "fast"
    starved: int = -1  # processes that its machine's kernel has killed for lack of memory so far; −1: unknown


@dataclass(frozen=True, eq=False)
class BeginTask:
    """A task to start on a host."""

    incarnation: int
    roster: dict[int, Address]
    where: tuple[int, ...]  # the host of each node
    make: Callable[[HostApi, BeginTask], HostTask]  # creates the task; can be pickled
    payload: Any = None  # for `make`
    oldest: int | None = None  # tasks of incarnations from this one on go on beside it; None: it replaces all others

    def nodes_of(self, host: int) -> list[int]:
        """The nodes a host holds."""
        return [node for node, at in enumerate(self.where) if at == host]


class HostEvent(NamedTuple):
    """An event that a host reports to the driver."""

    incarnation: int
    host: int
    what: str  # "failed" (worker, clock, error), "silent" (host, seconds), or an event of the task
    node: int
    value: Any = None


class HostTask(Protocol):
    """The work of a host in one incarnation."""

    channel: int

    def start(self) -> None:
        """Start the task; returns at once."""

    def receive(self, now: float, source: int, target: int, frames: Sequence[Frame]) -> None:
        """Handle frames of node `source` for node `target` of this host. On the network thread: must not wait for
        workers.
        """

    def tend(self, now: float) -> float:
        """Run timers; return when to call again. On the network thread, after every receive and when that time has
        come.
        """

    def halt(self) -> None:
        """Stop all threads, whatever they wait for; returns when they have ended."""

    def ask(self, what: str, *args: Any) -> Any:
        """Answer a call of the driver."""


class TaskHosts(Protocol):
    """What every driver of a task uses of `hosts.Hosts`, or of simulated hosts."""

    nodes: int
    where: tuple[int, ...]
    incarnation: int

    def begin(self, make: Callable[..., Any], payloads: Any) -> None: ...
    def ask_each(
        self, what: str, args: Mapping[int, tuple[Any, ...]], *, timeout: float | None = None
    ) -> dict[int, Any]: ...
    def lose(self, lost: HostLost) -> None: ...
    def progressed(self) -> None: ...


class HostApi(Protocol):
    """The services of a host that a task may use."""

    number: int
    threads: int

    def now(self) -> float:
        """Seconds of a monotonic clock."""

    def post(self, begin: BeginTask, source: int, target: int, channel: int, frames: Sequence[Frame]) -> None:
        """Send frames of one node to another, also within one host. From any thread; never waits."""

    def backlog(self, begin: BeginTask, node: int) -> int:
        """Bytes queued for a node's host, waiting for credit or for the connection; for back-pressure."""

    def tell(self, event: HostEvent) -> None:
        """Report an event to the driver. From any thread."""

    def rouse(self) -> None:
        """Have `tend` called soon. From any thread."""
