"""Tables on hosts whose network misbehaves: old frames, early ones, broken connections, back-pressure, halts."""

from __future__ import annotations

import pickle
import threading
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest

import stretto as st
from cluster_hosts import Party, close_all, counting, job_of, next_life, values
from stretto.comm.link import Frame, Link
from stretto.comm.messages import NodeClock, Update
from stretto.errors import RunError
from stretto.runtime.cluster.hosts.calls import TABLES, BeginTask
from stretto.runtime.cluster.hosts.host import Host
from stretto.runtime.cluster.tables.payload import TablePayload
from stretto.runtime.cluster.tables.pressure import BACKLOG
from stretto.runtime.cluster.tables.task import make_table_task
from stretto.tables.worker import Worker
from test_tables_threads import ROWS, mixed


@pytest.fixture(autouse=True, scope="module")
def hosts() -> Iterator[None]:
    yield
    close_all()


def test_a_frame_of_another_incarnation_changes_nothing() -> None:
    job = job_of(partial(counting, clocks=400), workers=2, tables={"x": st.tables.Table(rows=2)})
    with Party(job, 2) as party:
        party.begin()
        host = party.hosts[1]
        old = Link(0, 1, incarnation=0)
        bad = Update(0, 0, 1, 3, 0, np.array([0]), np.array([[9.0]], np.float32), 60, running=True)
        for message in (bad, NodeClock(0, 300)):
            frame = old.send(message)
            host._deliver(time.monotonic(), 0, TABLES, 0, 1, [frame])
            host._deliver(
                time.monotonic(), 0, 7, 0, 1, [Frame(party.incarnation, 0, 1, 0, message, False, 60)]
            )  # no such channel
        party.until_drained()
        assert values(party.outcome()).ravel().tolist() == [400.0, 400.0]


def test_frames_that_come_before_their_incarnation_are_kept_for_it() -> None:
    """Without that a link would lose patience first, a second later."""
    job = job_of(partial(counting, clocks=3), workers=2, tables={"x": st.tables.Table(rows=2)})
    with Party(job, 2) as party:
        for _ in range(3):
            party.begin()
            party.until_drained()
            assert values(party.outcome()).ravel().tolist() == [3.0, 3.0]
        again = [entry for entry in party.outcome().traffic if entry.reason == "again"]
        assert not again


@pytest.mark.parametrize("sync", [st.tables.BSP(), st.tables.SSP(1)], ids=repr)
def test_connections_that_break_lose_nothing(sync: Any) -> None:
    """Sockets are closed underneath again and again while workers run; what they held is sent again."""
    job = job_of(partial(counting, clocks=400), workers=3, tables={"x": st.tables.Table(rows=3)}, sync=sync)
    with Party(job, 3) as party:
        party.begin()
        for broken in range(6):
            clock = 40 * broken
            party.listen(lambda at=clock: min(f.clock for found in party.ask("standing") for f in found) >= at)  # type: ignore[misc]
            party.hosts[broken % 3]._wire.cut((broken + 1) % 3)
        party.until_drained()
        assert values(party.outcome()).ravel().tolist() == [400.0] * 3


class Slow:
    """A host that says how much is held back on the way to others."""

    def __init__(self, host: Host) -> None:
        self.host, self.held = host, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.host, name)

    def backlog(self, begin: Any, node: int) -> int:
        return self.held


def test_workers_wait_while_the_network_is_behind() -> None:
    job = job_of(partial(counting, clocks=300), workers=2, tables={"x": st.tables.Table(rows=2)}, sync=st.tables.ASP())
    slow: dict[int, Slow] = {}

    def make(host: Any, begin: BeginTask) -> Any:
        slow[host.number] = Slow(host)
        slow[host.number].held = BACKLOG + 1
        return make_table_task(slow[host.number], begin)

    with Party(job, 2) as party:
        party.incarnation = next_life()
        for host in party.hosts.values():
            host.begin(BeginTask(party.incarnation, party.roster(), (0, 1), make, TablePayload(job, party.layout)))
        party.listen(lambda: all(found.waits == "network" for [found] in party.ask("standing")))
        assert {found.clock for [found] in party.ask("standing")} == {0}
        for found in slow.values():
            found.held = 0
        party.until_drained()
        assert values(party.outcome()).ravel().tolist() == [300.0, 300.0]


def test_halting_ends_whoever_waits() -> None:
    """Worker 1 never ticks, the others wait for it; a halt ends them all, and the next begin finds a clean house."""
    waiting = threading.Event()

    def body(w: Worker) -> None:
        if w.number == 1:
            while not waiting.is_set():
                w.table("x").read([0])
        counting(w, 20)

    job = job_of(body, workers=3, tables={"x": st.tables.Table(rows=3)})
    with Party(job, 3) as party:
        party.begin()
        party.listen(lambda: sum(found.waits == "read" for [found] in party.ask("standing")) == 2)
        for host in party.hosts.values():
            host.halt()
        assert not [thread for thread in threading.enumerate() if thread.name.startswith("stretto-worker")]
        with pytest.raises(RunError, match="has nothing to do"):
            party.ask("final")
        assert party.ask("standing") == [[], [], []]  # asked before its task has begun, a host has no workers that wait
        waiting.set()
        party.begin()
        party.until_drained()
        assert values(party.outcome()).ravel().tolist() == [20.0] * 3


def test_what_is_told_travels() -> None:
    """Everything a host hands to the driver can be pickled, addresses and the end included."""
    tables = {
        "x": st.tables.Table(rows=ROWS, cols=3, apply=st.tables.adarevision(0.1)),
        "n": st.tables.Table(dtype="i8"),
    }
    job = job_of(mixed, workers=4, tables=tables, record="full")
    with Party(job, 2, every=(2,)) as party:
        party.begin()
        party.until_drained()
        pickle.loads(pickle.dumps([party.told, party.ask("final"), [host.address() for host in party.hosts.values()]]))
