"""Cuts through tables on several hosts: complete, exact, and a run that begins from one ends with the same bits."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import stretto as st
from cluster_hosts import PATIENCE, InProcess, Party, close_all, counting, job_of, values
from stretto.runtime.cluster.hosts.host import Host
from stretto.runtime.tables.job import TableJob, TableOutcome
from stretto.runtime.tables.run.node_cuts import CutPlan
from stretto.tables.worker import Worker
from test_tables_threads import ROWS, lasting, start


@pytest.fixture(autouse=True, scope="module")
def hosts() -> Iterator[None]:
    yield
    close_all()


LASTING: dict[str, Any] = {"workers": 3, "tables": {"x": st.tables.Table(rows=ROWS, cols=3, start=start(3))}}


def lasting_job(**options: Any) -> TableJob:
    return job_of(lasting, **LASTING | options)


def ending(outcome: TableOutcome) -> list[Any]:
    local = [(mine["total"].tobytes(), mine["last"]) for mine in outcome.local]
    states = [state[np.argsort(outcome.tables[0].keys)].tobytes() for state in outcome.tables[0].states]
    return [values(outcome).tobytes(), states, local, outcome.clocks]


def test_cuts_come_at_every_multiple() -> None:
    with Party(lasting_job(), 2, every=(5, 3)) as party:
        party.begin()
        party.until_drained()
        last = max(party.outcome().clocks)
        clocks = [clock for clock in range(1, last + 1) if clock % 3 == 0 or clock % 5 == 0]
        assert len(clocks) > 5
        party.listen(lambda: all(party.whole(clock) for clock in clocks))
        assert sorted(party.cuts) == clocks
        for clock, cut in party.cuts.items():
            assert max(part.clock for part in cut.workers.values()) == clock
            assert all(part.ended or part.clock == clock for part in cut.workers.values())
            assert [int(cut.shards[node]["clock"]) for node in (0, 1)] == [clock, clock]


@pytest.mark.parametrize("comm", [None, st.tables.Managed(1e9, codec="f2"), st.tables.Lazy()], ids=repr)
@pytest.mark.parametrize("apply", [st.tables.add, st.tables.adarevision(0.1)], ids=repr)
def test_a_run_begun_again_from_any_cut_ends_with_the_same_bits(apply: Any, comm: Any) -> None:
    tables = {"x": st.tables.Table(rows=ROWS, cols=3, apply=apply, start=start(3))}
    job = lasting_job(tables=tables, comm=comm)
    with Party(job, 3, every=(4,)) as party:
        party.begin()
        party.until_drained()
        whole = ending(party.outcome())
        assert whole == ending(InProcess(1).serve(job))
        party.listen(lambda: party.whole(4) and party.whole(8))
        kept = dict(party.cuts)
        for clock in (8, 4):
            party.cuts = dict(kept)
            party.begin(clock)
            party.until_drained()
            assert ending(party.outcome()) == whole


def test_a_host_that_is_lost_in_the_middle_and_begun_again() -> None:
    """One host is closed as a process that dies would be, while the others wait for it. A new one takes its place."""
    reached, halted = threading.Event(), threading.Event()

    def waits(w: Worker) -> None:
        """The last worker stays in clock 7 until its host is gone."""
        tick = w.tick

        def slow() -> None:
            tick()
            if w.number == 2 and w.clock == 7 and not halted.is_set():
                reached.set()
                halted.wait(PATIENCE)

        w.tick = slow  # type: ignore[method-assign]
        lasting(w)

    with Party(job_of(waits, **LASTING), 3, every=(2,), new=True) as party:
        party.begin()
        party.listen(lambda: reached.is_set() and party.whole(6))
        kept = {6: party.cuts[6]}
        closing = threading.Thread(target=party.hosts[2].close)
        closing.start()
        halted.set()
        closing.join()
        party.everybody[2] = Host(2, "a test", threads=2)
        party.cuts = kept
        party.begin(6)
        party.until_drained()
        again = ending(party.outcome())
    assert again == ending(InProcess(1).serve(lasting_job()))


@pytest.mark.parametrize("sync", [st.tables.SSP(1), st.tables.SSP(4), st.tables.ASP()], ids=repr)
@pytest.mark.parametrize("comm", [st.tables.Eager(), st.tables.Lazy(), st.tables.Managed("1Gbit")], ids=repr)
def test_a_cut_under_bounded_staleness_holds_exactly_its_clocks(sync: Any, comm: Any) -> None:
    def body(w: Worker) -> None:
        x = w.table("x")
        for _ in w.clocks(20):
            x.read([0])
            x.add([0, 1 + w.number], [1.0, 1.0])

    job = job_of(body, workers=3, tables={"x": st.tables.Table(rows=4)}, sync=sync, comm=comm)
    with Party(job, 3, every=(3,)) as party:
        party.begin()
        party.until_drained()
        assert values(party.outcome()).ravel().tolist() == [60.0, 20.0, 20.0, 20.0]
        party.listen(lambda: all(party.whole(clock) for clock in party.cuts))
        assert len(party.cuts) >= (6 if comm != st.tables.Lazy() else 1)
        for clock, cut in party.cuts.items():
            keys = np.concatenate([shard["x/keys"] for shard in cut.shards.values()])
            rows = np.concatenate([shard["x/values"] for shard in cut.shards.values()]).ravel()
            held = dict(zip(keys.tolist(), rows.tolist(), strict=True))
            assert [held.get(key, 0.0) for key in range(4)] == [3.0 * clock, clock, clock, clock]
        clock = max(clock for clock in party.cuts if clock < 20)
        party.begin(clock)
        party.until_drained()
        assert values(party.outcome()).ravel().tolist() == [60.0, 20.0, 20.0, 20.0]


def test_a_cut_and_a_stop_on_demand() -> None:
    job = job_of(counting, workers=4, tables={"x": st.tables.Table(rows=4)})
    with Party(job, 2) as party:
        party.begin()

        def most() -> int:
            return max([event.value[1] for event in party.told if event.what == "moved"], default=0)

        party.listen(lambda: most() > 5)
        assert not all(party.ask("cut", 3))  # long past
        party.ask("cancel", 3)
        clock, ahead = 0, 20
        while not clock:
            at = most() + ahead
            if all(party.ask("cut", at)):
                clock = at
            else:
                party.ask("cancel", at)
                ahead *= 2
        party.ask("stop", clock)
        party.until_drained()
        party.listen(lambda: party.whole(clock))
        outcome = party.outcome("interrupted")
        assert outcome.clocks == (clock,) * 4
        assert values(outcome).ravel().tolist() == [clock] * 4
        assert not any(part.ended for part in party.cuts[clock].workers.values())  # they can go on from here
        assert sorted(party.cuts) == [clock]


def test_a_stop_at_once() -> None:
    job = job_of(counting, workers=4, tables={"x": st.tables.Table(rows=4)})
    with Party(job, 2) as party:
        party.begin()
        party.listen(lambda: any(event.what == "moved" and event.value[1] > 3 for event in party.told))
        party.ask("stop", None)
        party.listen(lambda: {event.node for event in party.told if event.what == "ended"} == {0, 1})
        assert min(party.outcome("until").clocks) > 3


def test_plans_of_cuts() -> None:
    assert CutPlan((10, 4), start=8).between(0, 20) == [10, 12, 16, 20]
    assert CutPlan((10,)).between(10, 19) == []
    assert CutPlan().between(0, 10**9) == []
