"""A host process of a job: it owns the connections to other hosts and runs tasks, each in its incarnation.

    host = Host(0, job="…", threads=2)
    host.address()                  how others reach it
    host.begin(begin)               starts a task, with the addresses of the others; earlier tasks are halted
    host.events(1.0)                the task's events
    host.close()

The driver calls it through a fleet, several calls at a time. The network thread calls it too and never waits for a call
of the driver.
"""

from __future__ import annotations

import logging
import os
import platform
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import PackageNotFoundError, version
from math import inf
from pathlib import Path
from typing import Any

from stretto.comm.link import Frame
from stretto.errors import RunError
from stretto.runtime.cluster.net.curve_keys import new_pair
from stretto.runtime.cluster.net.wire import Wire

from .calls import Address, BeginTask, HostEvent, HostTask
from .remote_errors import portable

_SWITCH_SECONDS = 0.0005
_log = logging.getLogger("stretto.cluster")


@dataclass(eq=False)
class _Life:
    """A task that runs, or is being created."""

    begin: BeginTask  # without its payload
    task: HostTask | None = None
    early: list[tuple[int, int, int, list[Frame]]] = field(default_factory=list)  # frames that came before the task


class Host:
    """One host of a job.

    Parameters
    ----------
    number : int
        Its number among the hosts of the job.
    job : str
        An unguessable id, the same on all hosts.
    ip : str
        The address to listen on.
    threads : int
        Workers that may run at a time.
    encrypt : bool
        Encrypt messages and admit only the job's hosts.
    log : str or None
        The path of this process's log, for messages.
    patience : float
        Seconds of silence after which another host is reported.
    """

    def __init__(
        self,
        number: int,
        job: str,
        *,
        ip: str = "127.0.0.1",
        threads: int = 1,
        encrypt: bool = True,
        log: str | None = None,
        patience: float = 5.0,
    ) -> None:
        # Threads hand work to each other: with Python's own interval of 5 ms, each hand-over may take that long.
        sys.setswitchinterval(_SWITCH_SECONDS)
        self.number, self.threads = number, threads
        self._log = log or ""
        self._keys = new_pair() if encrypt else None
        # The tasks by incarnation, ascending. Replaced as a whole, because other threads read it without a lock.
        self._lives: dict[int, _Life] = {}
        self._beginning = threading.Lock()  # one begin, halt or close at a time
        self._events: deque[HostEvent] = deque()
        self._news = threading.Condition()
        self._closed = False
        self._wire = Wire(
            number,
            job,
            ip=ip,
            keys=self._keys,
            deliver=self._deliver,
            tend=self._tend,
            silent=self._silent,
            patience=patience,
            reset=self._reset,
        )

    # -- what the driver calls ---------------------------------------------------------------------------------------

    def address(self) -> Address:
        """How others reach this host, and which versions it runs."""
        from stretto.kernels.core.compile import target

        return Address(
            self.number,
            self._wire.endpoint,
            "" if self._keys is None else self._keys.public,
            _machine(self._wire.endpoint),
            os.getpid(),
            self._log,
            versions(),
            target(),
            _starved(),
        )

    def begin(self, begin: BeginTask) -> None:
        """Start a task; returns when it runs."""
        self.begin_beside([begin], [])

    def begin_beside(self, begins: Sequence[BeginTask], ends: Sequence[int]) -> None:
        """Start tasks, one after another; returns when they run. ends: incarnations to end first."""
        with self._beginning:
            if self._closed:
                raise RunError(f"host {self.number} received a start after it was closed")
            self._halt(ends)
            if not begins:
                self._wire.end(ends)
            for begin in begins:
                self._begin(begin, ends)
                ends = ()
            self._wire.rouse()

    def _begin(self, begin: BeginTask, ends: Sequence[int]) -> None:
        number = begin.incarnation
        oldest = number if begin.oldest is None else begin.oldest
        self._halt([other for other in self._lives if other < oldest])
        with self._news:  # without events of incarnations that have ended
            self._events = deque(event for event in self._events if event.incarnation >= oldest)
        known = replace(begin, payload=None)  # the payload may be large
        self._lives = {**self._lives, number: _Life(known)}
        task = begin.make(self, begin)
        check = getattr(task, "check", None)
        self._wire.meet(begin.roster, number, where=begin.where, check=check, oldest=oldest, ends=ends)
        self._lives[number].task = task
        task.start()

    def events(self, wait: float) -> list[HostEvent]:
        """All pending events, in order; waits up to `wait` seconds for the first."""
        with self._news:
            if not self._events and not self._closed:
                self._news.wait(wait)
            found = list(self._events)
            self._events.clear()
        return found

    def ask(self, what: str, *args: Any) -> Any:
        """Pass a call to the newest task. "wire" is answered by the host: the counters of its network thread."""
        if what == "wire":
            return self._wire.counters
        return self.ask_task(max(self._lives, default=-1), what, *args)

    def ask_task(self, incarnation: int, what: str, *args: Any) -> Any:
        """Pass a call to the task of an incarnation."""
        life = self._lives.get(incarnation)
        if life is None or life.task is None:
            if what == "standing":  # the driver does not wait for the start of a stage, and a busy host starts late
                return []
            raise RunError(f"host {self.number} was asked for {what!r} and has nothing to do: no task runs on it")
        return life.task.ask(what, *args)

    def states(self, what: str, *args: Any) -> Any:
        """Read or release what tasks have left in this process, or open files (`runtime.stages.held_states`)."""
        from stretto.runtime.stages.held_states import CALLS

        return CALLS[what](*args)

    def heard(self, host: int) -> float:
        """Seconds since anything came from another host."""
        return self._wire.heard(host)

    def halt(self) -> None:
        """Stop the task; returns when its threads have ended."""
        with self._beginning:
            self._halt(list(self._lives))

    def close(self) -> None:
        """Stop the task and the network thread."""
        with self._beginning:
            self._halt(list(self._lives))
            self._closed = True
            self._wire.close()
        with self._news:
            self._news.notify_all()

    def _halt(self, incarnations: Sequence[int]) -> None:
        gone = [self._lives[number] for number in incarnations if number in self._lives]
        self._lives = {number: life for number, life in self._lives.items() if number not in incarnations}
        for life in gone:
            if life.task is not None:
                life.task.halt()

    # -- what tasks call ---------------------------------------------------------------------------------------------

    def now(self) -> float:
        """Seconds of a monotonic clock."""
        return time.monotonic()

    def post(self, begin: BeginTask, source: int, target: int, channel: int, frames: Sequence[Frame]) -> None:
        """Send frames of one node to another; frames of a task that was halted are dropped."""
        if begin.incarnation in self._lives:
            self._wire.post(begin.where[target], channel, source, target, frames)

    def backlog(self, begin: BeginTask, node: int) -> int:
        """Bytes queued for a node's host, waiting for credit or for the connection."""
        return self._wire.backlog(begin.where[node])

    def tell(self, event: HostEvent) -> None:
        """Report an event to the driver."""
        with self._news:
            self._events.append(event)
            self._news.notify()

    def rouse(self) -> None:
        """Have `tend` called soon."""
        self._wire.rouse()

    # -- what the wire calls, on its thread --------------------------------------------------------------------------

    def _deliver(self, now: float, host: int, channel: int, source: int, target: int, frames: list[Frame]) -> None:
        life = self._lives.get(frames[0].incarnation)
        if life is None:
            return
        if life.task is None or life.early:
            life.early.append((channel, source, target, frames))
        elif channel == life.task.channel:
            self._guard(life, life.task.receive, now, source, target, frames)

    def _tend(self, now: float) -> float:
        return min((self._tend_one(life, now) for life in self._lives.values() if life.task is not None), default=inf)

    def _tend_one(self, life: _Life, now: float) -> float:
        task = life.task
        assert task is not None
        early, life.early = life.early, []
        for channel, source, target, frames in early:  # tasks check incarnations themselves
            if channel == task.channel:
                self._guard(life, task.receive, now, source, target, frames)
        due: float | None = self._guard(life, task.tend, now)
        return now + 1.0 if due is None else due

    def _reset(self, now: float, host: int) -> None:
        """A lost connection to a host was re-established."""
        for life in self._lives.values():
            again = getattr(life.task, "reset", None)
            if again is not None:
                self._guard(life, again, now, life.begin.nodes_of(host))

    def _guard(self, life: _Life, call: Any, *args: Any) -> Any:
        """Call a task; log its exceptions, so that the network thread goes on."""
        try:
            return call(*args)
        except Exception as error:
            _log.exception("host %d: a task failed on the wire's thread", self.number)
            self.tell(HostEvent(life.begin.incarnation, self.number, "failed", -1, (-2, -1, portable(error))))
            return None

    def _silent(self, host: int, seconds: float) -> None:
        if self._lives:
            self.tell(HostEvent(max(self._lives), self.number, "silent", -1, (host, seconds)))


def _machine(endpoint: str) -> str:
    """The machine's name and the IP address it is reached at."""
    return f"{socket.gethostname()} ({endpoint.removeprefix('tcp://').rpartition(':')[0]})"


def versions() -> dict[str, str]:
    """Versions that must be the same on every machine of a job."""
    found = {name: _version(name) for name in ("stretto", "numba", "numpy", "ray", "pyzmq")}
    return found | {"python": platform.python_version()}


def _starved() -> int:
    """How many processes the kernel of this machine has killed for lack of memory so far; −1: unknown."""
    try:
        lines = Path("/proc/vmstat").read_text().splitlines()
    except OSError:
        return -1
    return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), -1)


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"
