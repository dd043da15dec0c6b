"""Tables on hosts that talk over real sockets, all inside this process: bits, floors, cuts, losses, and every end.

What differs from a cluster is only that the hosts share a process; each has its wire, its keys and its threads.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import stretto as st
from cluster_hosts import PATIENCE, InProcess, Party, close_all, job_of
from stretto.errors import RunError
from stretto.runtime.tables.job import FAR
from stretto.tables.worker import Worker
from stretto.testing.replay import check_replay
from test_tables_threads import ROWS, bits, mixed, momentum, start

FUNCTIONS = [
    st.tables.add,
    st.tables.average,
    st.tables.adagrad(0.1),
    st.tables.proximal(0.1, l1=0.05, l2=0.1),
    st.tables.adarevision(0.1),
]


@pytest.fixture(autouse=True, scope="module")
def hosts() -> Iterator[None]:
    yield
    close_all()


# -- BSP ---------------------------------------------------------------------------------------------------------------


def compare(
    body: Callable[[Worker], Any], *places: InProcess, workers: int = 4, comm: Any = None, **tables: st.tables.Table
) -> None:
    options: dict[str, Any] = {"workers": workers, "tables": tables, "comm": comm}
    truth = bits(st.run(body, runtime=st.Serial(), **options))
    assert bits(st.run(body, runtime=st.Threads(2), **options)) == truth
    for runtime in places:
        assert bits(st.run(body, runtime=runtime, **options)) == truth, runtime


@pytest.mark.parametrize("dtype", ["f4", pytest.param("f8", marks=pytest.mark.slow)])
@pytest.mark.parametrize("apply", FUNCTIONS, ids=repr)
def test_bsp_has_the_bits_of_threads_and_serial(apply: Any, dtype: str) -> None:
    table = st.tables.Table(rows=ROWS, cols=3, dtype=dtype, apply=apply, start=start(3))
    compare(mixed, InProcess(2), InProcess(4, threads=1), x=table, n=st.tables.Table(dtype="i8"))


def test_bsp_with_a_function_of_the_users() -> None:
    apply = st.tables.server_function(momentum, states=1, params=(0.1, 0.9))
    table = st.tables.Table(rows=ROWS, cols=3, apply=apply, start=start(3))
    compare(mixed, InProcess(3), x=table, n=st.tables.Table(dtype="i4"))


@pytest.mark.parametrize(
    "comm",
    [st.tables.Lazy(), st.tables.Managed("1Gbit"), st.tables.Managed("20Mbit", codec="f2", burst=(2, 3))],
    ids=repr,
)
def test_bsp_whatever_is_sent_when(comm: Any) -> None:
    table = st.tables.Table(rows=ROWS, cols=3, apply=st.tables.adarevision(0.1), start=start(3).astype("f4"))
    compare(mixed, InProcess(2), InProcess(3), comm=comm, x=table, n=st.tables.Table(dtype="i8"))


def test_bsp_of_short_numbers_small_caches_and_more_workers_than_fit() -> None:
    compare(
        mixed,
        InProcess(3),
        x=st.tables.Table(rows=ROWS, cols=3, dtype="f2", start=start(3)),
        n=st.tables.Table(dtype="i8"),
    )
    small = st.tables.Table(rows=ROWS, cols=3, start=start(3), cache_rows=12)
    compare(mixed, InProcess(2), x=small, n=st.tables.Table(dtype="i8"))
    table = st.tables.Table(rows=ROWS, cols=2, start=start(2), apply=st.tables.adagrad(0.1))
    compare(mixed, InProcess(4, threads=1), workers=11, x=table, n=st.tables.Table(dtype="i8"))
    compare(mixed, InProcess(4), workers=3, x=table, n=st.tables.Table(dtype="i8"))  # a node without workers


def test_bsp_where_a_host_holds_two_nodes() -> None:
    table = st.tables.Table(rows=ROWS, cols=3, start=start(3), apply=st.tables.adarevision(0.1))
    places = InProcess(3, where=(0, 1, 1)), InProcess(4, where=(2, 2, 0, 0)), InProcess(3, where=(0, 0, 0))
    compare(mixed, *places, x=table, n=st.tables.Table(dtype="i8"))


# -- SSP and ASP -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sync", [st.tables.BSP(), st.tables.SSP(0), st.tables.SSP(2), st.tables.ASP()], ids=repr)
@pytest.mark.parametrize("comm", [st.tables.Eager(), st.tables.Lazy(), st.tables.Managed("100Mbit")], ids=repr)
def test_no_read_is_older_than_the_rule_allows(sync: Any, comm: Any) -> None:
    clocks = 12

    def body(w: Worker) -> None:
        x = w.table("x")
        for clock in w.clocks(clocks):
            seen = x.read()
            assert seen[w.number] == clock  # own writes, all of them
            assert (seen >= sync.need(clock)).all()
            if isinstance(sync, st.tables.BSP):
                assert (seen == clock).all()
            x.add([w.number], [1.0])

    result = st.run(body, workers=3, tables={"x": st.tables.Table(rows=3)}, sync=sync, comm=comm, runtime=InProcess(3))
    assert result.tables["x"].tolist() == [clocks] * 3
    assert result.staleness.sum() == 3 * 3 * clocks
    bound = sync.s if isinstance(sync, st.tables.SSP) else 0 if isinstance(sync, st.tables.BSP) else 31
    assert result.staleness[:, bound + 1 :].sum() == 0


@pytest.mark.parametrize(
    "comm", [st.tables.Eager(), st.tables.Managed("50Mbit", burst=(3, 3)), st.tables.Lazy()], ids=repr
)
@pytest.mark.parametrize("sync", [st.tables.SSP(1), st.tables.ASP()], ids=repr)
def test_a_recorded_run_is_replayed_and_checked(sync: Any, comm: Any) -> None:
    """Of several nodes: their recordings are put together by time."""
    tables = {"x": st.tables.Table(rows=ROWS, cols=3, start=start(3)), "n": st.tables.Table(dtype="i8")}
    result = st.run(mixed, workers=5, tables=tables, sync=sync, comm=comm, record="full", runtime=InProcess(3))
    report = check_replay(result.recording)
    assert not report.violations
    assert len(result.recording.ticks) == sum(result.clocks)


@pytest.mark.parametrize("sync", [st.tables.BSP(), st.tables.SSP(1)], ids=repr)
def test_versions_of_rows_that_small_caches_let_go(sync: Any) -> None:
    """Changes name the version they were computed from; rows come and go, and versions are given back."""
    table = st.tables.Table(rows=ROWS, cols=3, start=start(3), apply=st.tables.adarevision(0.1), cache_rows=12)
    tables = {"x": table, "n": st.tables.Table(dtype="i8")}
    result = st.run(mixed, workers=4, tables=tables, sync=sync, record="full", runtime=InProcess(3))
    assert not check_replay(result.recording).violations


@pytest.mark.parametrize("comm", [st.tables.Eager(), st.tables.Managed("200Mbit")], ids=repr)
def test_workers_converge_whatever_the_staleness(comm: Any) -> None:
    """Least squares by gradients, each worker with its share of the data."""
    rng = np.random.default_rng(3)
    X, truth = rng.standard_normal((400, 8)), rng.standard_normal(8)
    y = X @ truth

    def body(w: Worker) -> None:
        x = w.table("x")
        for batch in w.batches(400, 25, passes=12):
            rows = x.read().ravel()
            x.add(np.arange(8), 0.02 * (X[batch].T @ (y[batch] - X[batch] @ rows) / 25)[:, None])
            w.tick()

    result = st.run(
        body,
        workers=4,
        tables={"x": st.tables.Table(rows=8, dtype="f8")},
        sync=st.tables.SSP(2),
        comm=comm,
        runtime=InProcess(4),
    )
    assert np.abs(result.tables["x"].ravel() - truth).max() < 0.15


def test_managed_communication_sends_between_clocks() -> None:
    """One long clock: another node sees rows of it, because spare bandwidth carried them."""
    seen = threading.Event()

    def body(w: Worker) -> None:
        x = w.table("x")
        began = time.monotonic()
        while not seen.is_set() and time.monotonic() - began < PATIENCE:
            if w.number == 0:
                x.add([3], [1.0])
            elif x.read([3])[0] > 0:
                seen.set()
        assert seen.is_set()
        w.tick()

    tables = {"x": st.tables.Table(rows=ROWS)}
    st.run(body, workers=2, tables=tables, sync=st.tables.ASP(), comm=st.tables.Managed("1Gbit"), runtime=InProcess(2))
    assert seen.is_set()


# -- what the driver receives ------------------------------------------------------------------------------------------


def test_events_of_a_run() -> None:
    job = job_of(
        mixed,
        workers=4,
        tables={"x": st.tables.Table(rows=ROWS, cols=3), "n": st.tables.Table(dtype="i8")},
        record="rows",
    )
    with Party(job, 2) as party:
        party.begin()
        party.until_drained()
        # A thread reports that it has ended after what it added has left.
        party.listen(lambda: sum(event.what == "ended" for event in party.told) == 2)
        kinds = [(event.what, event.node) for event in party.told]
        assert kinds.count(("ended", 0)) == kinds.count(("ended", 1)) == 1
        assert kinds.count(("drained", 0)) == kinds.count(("drained", 1)) == 1
        for node in (0, 1):
            moved = [event.value for event in party.told if event.what == "moved" and event.node == node]
            assert moved == sorted(moved)
            assert moved[-1] == (FAR, 5)
        outcome = party.outcome()
        assert outcome.recording.row_sends(0).sum() > 0
        assert {entry.reason for entry in outcome.traffic} >= {"clock", "fetch"}
        assert all(entry.source != entry.target for entry in outcome.traffic)
        [(standing, *_), _] = party.ask("standing")
        assert (standing.worker, standing.ended, standing.waits) == (0, True, "")
        with pytest.raises(RunError, match="asked for 'tea'"):
            party.ask("tea")


def test_an_error_in_a_worker_ends_it_for_everybody_on_its_host() -> None:
    def body(w: Worker) -> None:
        for clock in w.clocks(1000):
            w.table("x").read([0])
            if w.number == 2 and clock == 5:
                raise ValueError("no more")

    with pytest.raises(RunError, match=r"^worker 2 failed at clock 5: ValueError: no more$") as caught:
        st.run(body, workers=4, tables={"x": st.tables.Table(rows=1)}, runtime=InProcess(2))
    assert "raise ValueError" in "".join(caught.value.__cause__.__notes__)  # type: ignore[union-attr]


class Awkward(Exception):
    """Cannot be rebuilt from what it pickles."""

    def __init__(self, one: int, two: int) -> None:
        super().__init__(f"{one} and {two}")


def test_an_error_that_cannot_travel_is_told_in_words() -> None:
    def body(w: Worker) -> None:
        raise Awkward(1, 2)

    with pytest.raises(RunError, match="Awkward: 1 and 2"):
        st.run(body, workers=1, tables={"x": st.tables.Table(rows=1)}, runtime=InProcess(2))


def explodes(row: Any, state: Any, delta: Any, old: Any, params: Any) -> float:
    if delta[0] > 2.5:
        raise ValueError("too much for this function")
    row[0] += delta[0]
    return 1.0


def test_a_server_function_that_fails_on_the_wires_thread_is_told() -> None:
    """Worker 1's change is applied by node 0's shard when it arrives."""

    def body(w: Worker) -> None:
        for clock in w.clocks(50):
            w.table("x").read([0])
            if w.number == 1:
                w.table("x").add([0], [float(clock)])

    table = st.tables.Table(rows=1, apply=st.tables.server_function(explodes), shards=(0,))
    with pytest.raises((RunError, ValueError), match="too much"):
        st.run(body, workers=2, tables={"x": table}, sync=st.tables.SSP(0), runtime=InProcess(2))
