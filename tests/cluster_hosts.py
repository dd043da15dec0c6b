"""Hosts of a cluster inside this process, over real sockets, and a driver that does no more than a test needs.

st.run(worker, …, runtime=InProcess(4))         # a runtime like any other
with Party(job, nodes=3) as party:              # step by step
    party.begin()
    party.until_drained()
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Self

import numpy as np
import pytest

import stretto as st
from stretto.runtime.cluster.hosts.calls import Address, BeginTask, HostEvent
from stretto.runtime.cluster.hosts.host import Host
from stretto.runtime.cluster.tables.final_state import NodeFinalState, merged
from stretto.runtime.cluster.tables.payload import TablePayload
from stretto.runtime.cluster.tables.task import make_table_task
from stretto.runtime.tables.checkpoints import WorkerState
from stretto.runtime.tables.job import FinalRows, TableJob, TableOutcome
from stretto.runtime.tables.run.node_cuts import CutPlan
from stretto.store.node import NodePart
from stretto.tables.worker import Worker

PATIENCE = 60.0  # seconds: no test takes so long, so a thread that waits longer would never end
KEPT = 4
_kept: dict[int, Host] = {}
_lives = count(1)


def next_life() -> int:
    """The number of the next incarnation."""
    return next(_lives)


def kept_hosts() -> dict[int, Host]:
    """The hosts that all tests share."""
    if not _kept:
        _kept.update({number: Host(number, "tests", threads=2) for number in range(KEPT)})
    return _kept


def close_all() -> None:
    """End them."""
    for host in _kept.values():
        host.close()
    _kept.clear()


@dataclass(eq=False)
class Parts:
    """What has come in of one cut."""

    workers: dict[int, WorkerState] = field(default_factory=dict)
    residuals: dict[int, Any] = field(default_factory=dict)
    shards: dict[int, Any] = field(default_factory=dict)


class Party:
    """N hosts that run a job together. where: the host of each node."""

    def __init__(
        self,
        job: TableJob,
        nodes: int,
        *,
        threads: int = 2,
        every: tuple[int, ...] = (),
        where: tuple[int, ...] | None = None,
        new: bool = False,
    ) -> None:
        self.job, self.layout = job, job.layout(nodes, reserve=True)
        self.where, self.threads = where or tuple(range(nodes)), threads
        self.everybody = kept_hosts()
        if new:
            self.everybody = {number: Host(number, "a test", threads=threads) for number in sorted(set(self.where))}
        self._new = new
        self.every, self.incarnation = every, 0
        self.told: list[HostEvent] = []  # of this incarnation
        self.cuts: dict[int, Parts] = {}
        self._drained: set[int] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for host in self.hosts.values():
            if self._new:
                host.close()
            else:
                host.halt()

    @property
    def hosts(self) -> dict[int, Host]:
        """Those that hold a node."""
        return {number: self.everybody[number] for number in sorted(set(self.where))}

    def roster(self) -> dict[int, Address]:
        """Whom everybody knows."""
        return {number: host.address() for number, host in self.everybody.items()}

    def begin(self, clock: int = 0) -> None:
        """Everybody begins, at the start or from a cut that is whole."""
        self.incarnation = next(_lives)
        self.told, self._drained = [], set()
        roster = self.roster()
        cut = self.cuts[clock] if clock else Parts()
        self.cuts, began = {}, time.time()
        for number, host in self.hosts.items():
            starts = {
                node: NodePart(clock, cut.shards[node], cut.residuals[node])
                for node, at in enumerate(self.where)
                if clock and at == number
            }
            payload = TablePayload(
                self.job, self.layout, starts or None, cut.workers, clock, CutPlan(self.every, clock), began
            )
            host.threads = self.threads
            host.begin(BeginTask(self.incarnation, roster, self.where, make_table_task, payload))

    def listen(self, until: Callable[[], bool]) -> None:
        """Take events until something is true."""
        deadline = time.monotonic() + PATIENCE
        while not until():
            assert time.monotonic() < deadline, [host.ask("standing") for host in self.hosts.values()]
            for host in self.hosts.values():
                for event in host.events(0.002):
                    if event.incarnation == self.incarnation:
                        self.told.append(event)
                        self._take(event)

    def until_drained(self) -> None:
        """Until everybody has ended and all they added is at the shards."""
        self.listen(lambda: len(self._drained) == self.layout.nodes)

    def ask(self, what: str, *args: Any) -> list[Any]:
        """Of every host."""
        return [host.ask(what, *args) for host in self.hosts.values()]

    def whole(self, clock: int) -> bool:
        """Whether all of a cut has come in."""
        cut, nodes = self.cuts.get(clock, Parts()), self.layout.nodes
        return (len(cut.workers), len(cut.residuals), len(cut.shards)) == (self.layout.workers, nodes, nodes)

    def outcome(self, stopped: str = "done") -> TableOutcome:
        """What there is now."""
        rests: list[NodeFinalState] = [rest for found in self.ask("final") for rest in found.values()]
        rests.sort(key=lambda rest: rest.node)
        tables = []
        for parts in zip(*(rest.tables for rest in rests), strict=True):
            states = zip(*(part.states for part in parts), strict=True)
            keys, values = (np.concatenate([getattr(part, name) for part in parts]) for name in ("keys", "values"))
            tables.append(FinalRows(keys, values, tuple(np.concatenate(state) for state in states)))
        clocks = {worker: clock for rest in rests for worker, clock in rest.clocks.items()}
        local = {worker: mine for rest in rests for worker, mine in rest.local.items()}
        recording = merged(self.layout, self.job.record, rests)
        workers = range(self.job.workers)
        return TableOutcome(
            tuple(tables),
            tuple(clocks[worker] for worker in workers),
            1.0,
            tuple(local[worker] for worker in workers),
            stopped,
            staleness=np.concatenate([rest.staleness for rest in rests]),
            traffic=recording.traffic(),
            recording=recording,
            items=sum(rest.items for rest in rests),
        )

    def _take(self, event: HostEvent) -> None:
        what, node, value = event.what, event.node, event.value
        if what == "failed":
            worker, clock, error = value
            if worker < 0:
                raise error
            self.job.blame(worker, clock, error)
        elif what == "drained":
            self._drained.add(node)
        elif what == "worker":
            clock, worker, part = value
            assert worker not in self._cut(clock).workers
            self._cut(clock).workers[worker] = part
        elif what == "node":
            assert node not in self._cut(value[0]).residuals
            self._cut(value[0]).residuals[node] = value[1]
        elif what == "shard":
            assert node not in self._cut(value[0]).shards
            self._cut(value[0]).shards[node] = value[1]

    def _cut(self, clock: int) -> Parts:
        return self.cuts.setdefault(clock, Parts())


@dataclass(frozen=True)
class InProcess:
    """A runtime for `st.run`."""

    nodes: int
    threads: int = 2
    where: tuple[int, ...] | None = None
    every: tuple[int, ...] = ()

    def serve(self, job: TableJob) -> TableOutcome:
        with Party(job, self.nodes, threads=self.threads, where=self.where, every=self.every) as party:
            party.begin()
            party.until_drained()
            return party.outcome()


def job_of(body: Callable[[Worker], Any], **options: Any) -> TableJob:
    """The job that `st.run` would hand to a runtime."""
    found: list[TableJob] = []

    class Taker:
        def serve(self, job: TableJob) -> TableOutcome:
            found.append(job)
            raise StopIteration

    with pytest.raises(StopIteration):
        st.run(body, runtime=Taker(), **options)
    return found[0]


def values(outcome: TableOutcome, table: int = 0) -> np.ndarray[Any, Any]:
    """The rows of a table, by key."""
    rest = outcome.tables[table]
    return rest.values[np.argsort(rest.keys)]


def counting(w: Worker, clocks: int = 10**9) -> None:
    x = w.table("x")
    for _ in w.clocks(clocks):
        x.read([0])
        x.add([w.number], [1.0])
