"""Hosts for tests of rotation, all in this process: threads and queues in the place of processes and sockets."""

from __future__ import annotations

import contextlib
import pickle
import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from math import inf
from queue import Empty, SimpleQueue
from typing import Any

from numba import cloudpickle

from stretto.comm.link import Frame
from stretto.runtime.cluster.blocks.block_executor import ClusterCrew
from stretto.runtime.cluster.blocks.ring import Block
from stretto.runtime.cluster.hosts.calls import BeginTask, HostEvent, HostTask
from stretto.runtime.cluster.hosts.fleet import HostLost
from stretto.runtime.cluster.spec import Cluster


class QueueHost:
    """A host whose wire is a queue."""

    def __init__(self, number: int, threads: int, fleet: QueueHosts) -> None:
        self.number, self.threads, self._fleet = number, threads, fleet
        self.inbox: SimpleQueue[tuple[int, int, int, list[Frame]] | None] = SimpleQueue()
        self.told: SimpleQueue[HostEvent] = fleet.told
        self.task: HostTask | None = None
        self.begun: BeginTask | None = None
        self.dead = False
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def now(self) -> float:
        return time.monotonic()

    def post(self, begin: BeginTask, source: int, target: int, channel: int, frames: Any) -> None:
        if not self.dead:
            self._fleet.carry(begin, source, target, list(frames))

    def backlog(self, begin: Any, node: int) -> int:
        return 0

    def tell(self, event: HostEvent) -> None:
        if not self.dead:
            self.told.put(event)

    def rouse(self) -> None:
        self.inbox.put((-1, 0, 0, []))

    def begin(self, begin: BeginTask) -> None:
        if self.task is not None:
            self.task.halt()
        self.begun = begin
        self.task = begin.make(self, begin)
        self.task.start()

    def close(self) -> None:
        self.dead = True
        self.inbox.put(None)
        self._thread.join()
        if self.task is not None:
            self.task.halt()

    def _serve(self) -> None:
        wake = inf
        while True:
            try:
                got = self.inbox.get(timeout=max(0.0, min(wake - self.now(), 0.5)))
            except Empty:
                got = (-1, 0, 0, [])
            if got is None:
                return
            incarnation, source, target, frames = got
            task, begun = self.task, self.begun
            if self.dead or task is None or begun is None:
                continue
            if incarnation == begun.incarnation:
                task.receive(self.now(), source, target, frames)
            wake = task.tend(self.now())


class QueueHosts:
    """What `ClusterCrew` needs of hosts. lose: share of the frames that are lost; twice: that come twice."""

    def __init__(
        self,
        nodes: int,
        threads: int = 1,
        *,
        lose: float = 0.0,
        twice: float = 0.0,
        seed: int = 0,
        patience: float = 5.0,
    ) -> None:
        self.spec = Cluster("processes", nodes=nodes, threads=threads, patience=patience)
        self.nodes, self.incarnation, self.where = nodes, 0, tuple(range(nodes))
        self.told: SimpleQueue[Any] = SimpleQueue()
        self.hosts = {number: QueueHost(number, threads, self) for number in range(nodes)}
        self.threads, self._lose, self._twice = threads, lose, twice
        self._random = random.Random(seed)
        self.blocks: list[tuple[int, int, int, int]] = []  # (source, target, block, bytes) as they were carried
        self.asked: list[str] = []
        self.lost: list[int] = []
        self.replaces = True
        self._held: list[tuple[BeginTask, int, int, list[Frame]]] | None = None
        self.before: Callable[[str], None] = lambda what: None  # called before every question

    # -- the wire

    def carry(self, begin: BeginTask, source: int, target: int, frames: list[Frame]) -> None:
        host = self.hosts.get(begin.where[target])
        if host is None:
            return
        if self._held is not None:
            self._held.append((begin, source, target, frames))
            return
        for frame in frames:
            message: Any = frame.message  # links carry whatever has a size
            if isinstance(message, Block):
                self.blocks.append((source, target, message.block, frame.nbytes))
            for _ in range((self._random.random() >= self._lose) + (self._random.random() < self._twice)):
                host.inbox.put((begin.incarnation, source, target, [frame]))

    # -- what the crew calls

    def begin(self, make: Any, payloads: Any) -> None:
        self.incarnation += 1
        for number in self.lost:
            if self.replaces:
                self.hosts[number] = QueueHost(number, self.threads, self)
        self.lost.clear()
        left = sorted(self.hosts)
        self.where = tuple(n if n in self.hosts else left[n % len(left)] for n in range(self.nodes))
        for number, host in self.hosts.items():
            nodes = [node for node in range(self.nodes) if self.where[node] == number]
            host.begin(BeginTask(self.incarnation, {}, self.where, make, {node: payloads[node] for node in nodes}))

    def ask(self, what: str, *args: Any, timeout: float | None = None) -> dict[int, Any]:
        return {number: self.ask_one(number, what, *args) for number in list(self.hosts)}

    def ask_one(self, host: int, what: str, *args: Any, timeout: float | None = None) -> Any:
        self.before(what)
        self.asked.append(what)
        if host not in self.hosts or self.hosts[host].dead:
            raise HostLost(host, "does not exist")
        task = self.hosts[host].task
        assert task is not None
        # As between processes: nothing is shared.
        return pickle.loads(cloudpickle.dumps(task.ask(what, *pickle.loads(cloudpickle.dumps(args)))))

    def ask_each(
        self, what: str, args: Mapping[int, tuple[Any, ...]], *, timeout: float | None = None
    ) -> dict[int, Any]:
        return {number: self.ask_one(number, what, *mine) for number, mine in args.items()}

    def events(self, wait: float) -> list[HostEvent]:
        try:
            told = self.told.get(timeout=max(wait, 1e-3))
        except Empty:
            return []
        if isinstance(told, QueueHost):
            if self.hosts.get(told.number) is not told:
                return []  # known, and replaced
            raise HostLost(told.number, "killed by the test")
        return [told] if told.incarnation == self.incarnation else []

    def lose(self, lost: HostLost) -> None:
        host = self.hosts.pop(lost.host, None)
        if host is not None:
            host.close()
            self.lost.append(lost.host)

    def progressed(self) -> None:
        pass

    # -- for tests

    def kill(self, number: int) -> None:
        """From now on it does nothing, and the driver will hear of it."""
        self.hosts[number].dead = True
        self.told.put(self.hosts[number])

    def hold(self) -> None:
        """Nothing arrives any more, until `release`."""
        self._held = []

    def release(self) -> None:
        held, self._held = self._held or [], None
        for one in held:
            self.carry(*one)

    def close(self) -> None:
        for host in self.hosts.values():
            host.close()


class InProcess:
    """A runtime: nodes in this process."""

    def __init__(self, nodes: int, threads: int = 1, **faults: Any) -> None:
        self.nodes, self.threads, self.faults = nodes, threads, faults
        self.crews: list[ClusterCrew] = []
        self.hosts: list[QueueHosts] = []
        self.prepare: Callable[[QueueHosts], None] = lambda hosts: None

    @property
    def workers(self) -> int:
        return self.nodes * self.threads

    @contextlib.contextmanager
    def open(self) -> Iterator[ClusterCrew]:
        hosts = QueueHosts(self.nodes, self.threads, **self.faults)
        crew = ClusterCrew(hosts)
        self.hosts.append(hosts)
        self.crews.append(crew)
        self.prepare(hosts)
        try:
            yield crew
        finally:
            crew.close()
            hosts.close()

    crew = open
