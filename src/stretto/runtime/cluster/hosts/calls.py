"""What the driver, the hosts and the tasks on them say to each other: values only.

A **host** is a process that holds one node of a job, or several when there are fewer processes than nodes. The driver,
the process in which the user called, makes hosts through a fleet, and tells them to `begin` a task:

    driver   Begin(incarnation, roster, where, make, payload)  →  every host
    host     task = begin.make(host, begin); task.start()
    hosts    frames over the wire, from node to node (`wire.Wire`)
    host     events(wait) → [Told, …]  →  driver

Every loss of a host ends the incarnation: the driver lets all that are left `halt`, has the lost one replaced or gives
its nodes to others, and says `begin` again with the next number. Frames of another incarnation are dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from stretto.comm.link import Frame

TABLES, RING, PROBE, PARTS = 0, 1, 2, 3  # channels: whose frames they are


class HostLost(Exception):
    """A host is gone, or counts as gone; why: in words, with the machine and the log."""

    def __init__(self, host: int, why: str) -> None:
        super().__init__(f"host {host}: {why}")
        self.host, self.why = host, why


class NotStarted(HostLost):
    """Its process came up and could not become a host: another in its place would fail the same way."""


@dataclass(frozen=True)
class Address:
    """How to reach a host, and what it is. public: its CURVE key (Z85 text), "" where nothing is encrypted."""

    host: int
    endpoint: str  # tcp://10.0.0.2:41234
    public: str
    machine: str  # name and IP address, for people
    pid: int
    log: str  # where its log lies, on that machine; "" where the driver has it
    versions: dict[str, str] = field(default_factory=dict)  # see `host.versions`; equal everywhere
    target: str = ""  # processor features; must be equal for profile "fast"
    starved: int = -1  # processes that its machine's kernel has ended for lack of memory so far; −1: not known


@dataclass(frozen=True, eq=False)
class Begin:
    """A task to be begun. where: the host of each node. make(host, begin) -> Task, a function that can be pickled."""

    incarnation: int
    roster: dict[int, Address]
    where: tuple[int, ...]
    make: Callable[[HostApi, Begin], Task]
    payload: Any = None

    def nodes_of(self, host: int) -> list[int]:
        """The nodes a host holds."""
        return [node for node, at in enumerate(self.where) if at == host]


class Told(NamedTuple):
    """An event of a host. what: "failed" (worker, clock, error), "silent" (host, seconds), or one of a task's own."""

    incarnation: int
    host: int
    what: str
    node: int
    value: Any = None


class Task(Protocol):
    """What a host does in one incarnation."""

    channel: int

    def start(self) -> None:
        """Begin; returns at once."""

    def receive(self, now: float, source: int, target: int, frames: Sequence[Frame]) -> None:
        """Frames of node `source` for node `target` of this host. On the wire's thread: must not wait for workers."""

    def tend(self, now: float) -> float:
        """Timers: when to call again. On the wire's thread, after every receive and when the time has come."""

    def halt(self) -> None:
        """End all threads, whatever they wait for; returns when they have ended."""

    def ask(self, what: str, *args: Any) -> Any:
        """A call of the driver's."""


class HostApi(Protocol):
    """What a task may ask its host for."""

    number: int
    threads: int

    def now(self) -> float:
        """Seconds of a steady clock."""

    def post(self, begin: Begin, source: int, target: int, channel: int, frames: Sequence[Frame]) -> None:
        """Send frames of one node to another. From any thread; never waits. Nodes of one host reach each other too."""

    def backlog(self, node: int) -> int:
        """Bytes on their way to a node's host that credit or the connection holds back: for back-pressure."""

    def tell(self, event: Told) -> None:
        """Have an event told to the driver. From any thread."""

    def rouse(self) -> None:
        """Have `tend` called soon. From any thread."""
