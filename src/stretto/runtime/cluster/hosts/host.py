"""A host process of a job: it owns the connections to other hosts and runs one task per incarnation.

    host = Host(0, job="…", threads=2)
    host.address()                  how others reach it
    host.begin(begin)               starts a task, with the addresses of the others; the previous task is halted
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
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import replace
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

_log = logging.getLogger("stretto.cluster")


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
        self.number, self.threads = number, threads
        self._log = log or ""
        self._keys = new_pair() if encrypt else None
        # The last incarnation, its `BeginTask` (until it is halted) and its task (once created). Always replaced as a
        # whole, because other threads read it without a lock.
        self._life: tuple[int, BeginTask | None, HostTask | None] = (0, None, None)
        # arrived before the task: channel, source, target, frames
        self._early: list[tuple[int, int, int, list[Frame]]] = []
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
        with self._beginning:
            if self._closed:
                raise RunError(f"host {self.number} received a start after it was closed")
            self._halt()
            with self._news:
                self._events.clear()  # events of earlier incarnations
            known = replace(begin, payload=None)  # the payload may be large
            self._life = (begin.incarnation, known, None)
            task = begin.make(self, begin)
            check = getattr(task, "check", None)
            self._wire.meet(begin.roster, begin.incarnation, where=begin.where, check=check)
            self._life = (begin.incarnation, known, task)
            task.start()
            self._wire.rouse()

    def events(self, wait: float) -> list[HostEvent]:
        """All pending events, in order; waits up to `wait` seconds for the first."""
        with self._news:
            if not self._events and not self._closed:
                self._news.wait(wait)
            found = list(self._events)
            self._events.clear()
        return found

    def ask(self, what: str, *args: Any) -> Any:
        """Pass a call to the task. "wire" is answered by the host: the counters of its network thread."""
        if what == "wire":
            return self._wire.counters
        _, _, task = self._life
        if task is None:
            raise RunError(f"host {self.number} was asked for {what!r} and has nothing to do: no task runs on it")
        return task.ask(what, *args)

    def heard(self, host: int) -> float:
        """Seconds since anything came from another host."""
        return self._wire.heard(host)

    def halt(self) -> None:
        """Stop the task; returns when its threads have ended."""
        with self._beginning:
            self._halt()

    def close(self) -> None:
        """Stop the task and the network thread."""
        with self._beginning:
            self._halt()
            self._closed = True
            self._wire.close()
        with self._news:
            self._news.notify_all()

    def _halt(self) -> None:
        number, _, task = self._life
        self._life = (number, None, None)
        if task is not None:
            task.halt()

    # -- what tasks call ---------------------------------------------------------------------------------------------

    def now(self) -> float:
        """Seconds of a monotonic clock."""
        return time.monotonic()

    def post(self, begin: BeginTask, source: int, target: int, channel: int, frames: Sequence[Frame]) -> None:
        """Send frames of one node to another; frames of a task that was halted are dropped."""
        number, known, _ = self._life
        if begin.incarnation == number and known is not None:
            self._wire.post(begin.where[target], channel, source, target, frames)

    def backlog(self, node: int) -> int:
        """Bytes queued for a node's host, waiting for credit or for the connection."""
        _, begin, _ = self._life
        return 0 if begin is None else self._wire.backlog(begin.where[node])

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
        number, begin, task = self._life
        if begin is None or frames[0].incarnation != number:
            return
        if task is None or self._early:
            self._early.append((channel, source, target, frames))
        elif channel == task.channel:
            self._guard(task.receive, now, source, target, frames)

    def _tend(self, now: float) -> float:
        _, _, task = self._life
        if task is None:
            return inf
        early, self._early = self._early, []
        for channel, source, target, frames in early:  # tasks check incarnations themselves
            if channel == task.channel:
                self._guard(task.receive, now, source, target, frames)
        due: float | None = self._guard(task.tend, now)
        return now + 1.0 if due is None else due

    def _reset(self, now: float, host: int) -> None:
        """A lost connection to a host was re-established."""
        _, begin, task = self._life
        again = getattr(task, "reset", None)
        if begin is not None and again is not None:
            self._guard(again, now, begin.nodes_of(host))

    def _guard(self, call: Any, *args: Any) -> Any:
        """Call the task; log its exceptions, so that the network thread goes on."""
        number, _, _ = self._life
        try:
            return call(*args)
        except Exception as error:
            _log.exception("host %d: a task failed on the wire's thread", self.number)
            self.tell(HostEvent(number, self.number, "failed", -1, (-2, -1, portable(error))))
            return None

    def _silent(self, host: int, seconds: float) -> None:
        number, begin, _ = self._life
        if begin is not None:
            self.tell(HostEvent(number, self.number, "silent", -1, (host, seconds)))


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
