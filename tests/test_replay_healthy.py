"""The replay checker on healthy runs: many dtypes, sizes of numbers, shapes, rules and ends; not one false alarm."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stretto as st
from stretto.runtime.cluster.tables.events import Event, in_order
from stretto.store.recording import Delivery, Read, Send
from stretto.testing import check_replay
from stretto.testing.draws import draw
from stretto.testing.schedules import run_schedule

MAGNITUDES = {"f2": 1.0, "f4": 10.0, "f8": 100.0, "i4": 8.0, "i8": 17.0}


def worker_of(rows: int, cols: int, dtype: str, clocks: int, seed: int = 0) -> Any:
    """Reads all, adds numbers of many sizes to some rows, more than once to a few."""

    def worker(w: Any) -> None:
        table, reach = w.table("t"), MAGNITUDES[dtype]
        for clock in w.clocks(clocks):
            rng = w.random(clock, seed)
            table.read(rng.permutation(rows))
            keys = np.append(rng.permutation(rows)[: rows // 2 + 1], [0, 0])
            size = 10.0 ** rng.uniform(0 if dtype[0] == "i" else -reach, reach, (len(keys), cols))
            deltas = (size * rng.choice([-1.0, 1.0], size.shape)).astype(table.dtype)
            table.add(keys, deltas if cols > 1 else deltas[:, 0])
            table.read(keys)

    return worker


RUNS = [
    pytest.param(lambda: st.Threads(2), id="threads"),
    pytest.param(lambda: st.Simulated(nodes=3, seed=1), id="simulated"),
    pytest.param(lambda: st.Cluster("processes", nodes=2), id="cluster"),
]


@pytest.mark.parametrize("runtime", RUNS)
@pytest.mark.parametrize("sync", [st.tables.BSP(), st.tables.SSP(1), st.tables.ASP()], ids=str)
def test_no_false_alarm_on_any_runtime(runtime: Any, sync: Any) -> None:
    """All dtypes at once: a table each."""

    def worker(w: Any) -> None:
        for clock in w.clocks(4):
            for number, dtype in enumerate(MAGNITUDES):
                table, rng, reach = w.table(dtype), w.random(clock, number), MAGNITUDES[dtype]
                size = 10.0 ** rng.uniform(0 if dtype[0] == "i" else -reach, reach, (40, 3))
                table.add(rng.integers(0, 60, 40), (size * rng.choice([-1.0, 1.0], size.shape)).astype(table.dtype))
                table.read(np.arange(60))

    tables = {
        dtype: st.tables.Table(rows=60, cols=3, dtype=dtype, start=-3 if dtype[0] == "i" else 0.3)
        for dtype in MAGNITUDES
    }
    result = st.run(worker, workers=4, tables=tables, sync=sync, record="full", runtime=runtime())
    report = check_replay(result.recording)
    assert report.numbers["valued"] == 4 * 4 * 60 * len(MAGNITUDES)
    assert report.numbers["summed"] >= 60 * len(MAGNITUDES)


@pytest.mark.parametrize("dtype", MAGNITUDES)
@pytest.mark.parametrize(("rows", "cols"), [(1, 1), (7, 5), (500, 2)])
def test_no_false_alarm_for_any_shape(dtype: str, rows: int, cols: int) -> None:
    for seed, codec in enumerate((None, "f2")):
        for sync in (st.tables.BSP(), st.tables.SSP(1)):
            result = st.run(
                worker_of(rows, cols, dtype, 3, seed),
                workers=3,
                tables={"t": st.tables.Table(rows=rows, cols=cols, dtype=dtype)},
                sync=sync,
                comm=st.tables.Eager(codec),
                record="full",
                runtime=st.Simulated(nodes=2, seed=seed),
            )
            check_replay(result.recording)


@pytest.mark.parametrize("block", [*range(3), *(pytest.param(k, marks=pytest.mark.slow) for k in range(3, 20))])
def test_no_false_alarm_after_simulated_crashes(block: int) -> None:
    for seed in range(900_000 + 20 * block, 900_000 + 20 * (block + 1)):
        run_schedule(draw(seed, crashes=1 + seed % 3, clocks=6))


# --- processes that are killed ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("sync", [st.tables.BSP(), st.tables.SSP(2), st.tables.ASP()], ids=str)
@pytest.mark.parametrize("kills", [1, pytest.param(3, marks=pytest.mark.slow)])
def test_no_false_alarm_after_a_kill(sync: Any, kills: int, tmp_path: Path) -> None:
    """A process of a real cluster kills itself in the middle of a clock, with numbers that are rounded."""

    def worker(w: Any) -> None:
        for clock in w.clocks(6):
            for dtype in ("f4", "f8", "i8"):
                table, rng = w.table(dtype), w.random(clock)
                table.read(np.arange(30))
                deltas = rng.standard_normal((20, 2)) * 10.0 ** rng.uniform(-5, 5, (20, 2))
                table.add(rng.integers(0, 30, 20), deltas.astype(table.dtype))
            mark = tmp_path / f"killed at {clock}"
            if w.number == clock % w.workers and 3 <= clock < 3 + kills and not mark.exists():
                mark.touch()
                os.kill(os.getpid(), 9)
            table.read(np.arange(30))

    tables = {dtype: st.tables.Table(rows=30, cols=2, dtype=dtype) for dtype in ("f4", "f8", "i8")}
    with pytest.warns(RuntimeWarning, match="was lost"):
        result = st.run(
            worker,
            workers=4,
            tables=tables,
            sync=sync,
            record="full",
            runtime=st.Cluster("processes", nodes=2),
            checkpoint=tmp_path / "checkpoints",
            checkpoint_every=1,
        )
    report = check_replay(result.recording)
    assert report.numbers["restarts"] == len(result.recording.restarts) >= 1
    # Every add of a clock that survived was recorded, also those of lives that are over.
    adds = {(event.worker, event.clock, event.table) for event in result.recording.adds}
    assert adds >= {(worker, clock, table) for worker in range(4) for clock in range(6) for table in range(3)}


def test_an_add_that_a_recovery_lost_is_found(tmp_path: Path) -> None:
    """The cut that everybody goes back to misses what was added in it: the final tables do not hold every add."""

    def worker(w: Any) -> None:
        table = w.table("t")
        for clock in w.clocks(4):
            table.read(np.arange(10))
            table.add(np.arange(10), np.ones((10, 1)))
            if clock == 2 and w.number == 0 and not (tmp_path / "killed").exists():
                (tmp_path / "killed").touch()
                os.kill(os.getpid(), 9)

    with pytest.warns(RuntimeWarning, match="was lost"):
        recording = st.run(
            worker,
            workers=2,
            tables={"t": st.tables.Table(rows=10, cols=1)},
            sync=st.tables.SSP(0),
            record="full",
            runtime=st.Cluster("processes", nodes=2),
            checkpoint=tmp_path / "checkpoints",
            checkpoint_every=1,
        ).recording
    check_replay(recording)
    keys, witness = recording.final[0]
    lost = witness.copy()
    lost[3, 1] -= 1
    recording.final[0] = keys, lost
    recording.final_values[0][3] -= 1
    assert check_replay(recording, raises=False).broken == {"lost": 1}


# --- other ends and beginnings ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("runtime", RUNS)
@pytest.mark.parametrize("sync", [st.tables.BSP(), st.tables.SSP(1), st.tables.ASP()], ids=str)
def test_no_false_alarm_when_a_run_is_stopped(runtime: Any, sync: Any) -> None:
    result = st.run(
        worker_of(20, 2, "f8", 40),
        workers=4,
        tables={"t": st.tables.Table(rows=20, cols=2, dtype="f8")},
        sync=sync,
        record="full",
        runtime=runtime(),
        watch=lambda view: 0.0,
        until=lambda look: look.clock >= 3,
    )
    assert result.stopped == "until"
    report = check_replay(result.recording)
    assert "where the run was stopped" in str(report)


@pytest.mark.parametrize("codec", [None, pytest.param("f2", marks=pytest.mark.slow)])
@pytest.mark.parametrize("runtime", [RUNS[0], pytest.param(lambda: st.Cluster("processes", nodes=2), id="cluster")])
def test_no_false_alarm_when_a_run_goes_on(runtime: Any, codec: str | None, tmp_path: Path) -> None:
    """The second run begins with rows that hold adds which its recording does not have."""

    dtype = "f4" if codec is None else "f2"

    def run(folder: str, clocks: int, record: str | None, resume: bool) -> Any:
        return st.run(
            worker_of(20, 2, dtype, clocks),
            workers=4,
            tables={"t": st.tables.Table(rows=20, cols=2, dtype=dtype)},
            sync=st.tables.SSP(1),
            comm=st.tables.Eager(codec),
            record=record,
            runtime=runtime(),
            checkpoint=tmp_path / folder,
            checkpoint_every=2,
            resume=resume,
        )

    for first, then in (("full", "full"), (None, "full"), ("full", None)):
        run(f"{first} {then}", 4, first, resume=False)
        result = run(f"{first} {then}", 7, then, resume=True)
        assert set(result.clocks) == {7}
        if then == "full":
            report = check_replay(result.recording)
            assert result.recording.begin in (2, 4)
            assert report.numbers["adds"] > 0


def test_callers_may_reuse_their_arrays() -> None:
    """A recording has what was added, not what the caller's array holds later."""

    def worker(w: Any) -> None:
        flat, wide, cells = w.table("flat"), w.table("wide"), w.table("cells")
        keys, ones, pairs = np.arange(4), np.ones(4, np.float32), np.ones((4, 2), np.float32)
        for clock in w.clocks(3):
            keys[:] = (keys + clock) % 4
            ones[:] = clock + 1
            pairs[:] = clock + 2
            flat.add(keys, ones)
            wide.add(keys, pairs)
            cells.add_at(keys, keys % 2, ones)
            wide.add_at(keys, keys % 2, ones)
            keys += 1
            keys %= 4
            ones += 5
            pairs += 5

    tables = {
        "flat": st.tables.Table(rows=4),
        "wide": st.tables.Table(rows=4, cols=2),
        "cells": st.tables.Table(rows=4, cols=2, unit="element"),
    }
    check_replay(st.run(worker, workers=2, tables=tables, record="full").recording)


# --- putting recordings together --------------------------------------------------------------------------------------


def test_events_of_machines_whose_clocks_differ() -> None:
    """Node 1's clock is an hour behind: what it read must still come after what node 0 had sent it."""
    sends = [Send(k, 10.0 + k, 0, 1, "updates", "clock", 100, "Update", 0, None) for k in range(3)]
    taken = [Delivery(2 * k, 1.0 + k, 0, 1, 0, k + 1) for k in range(3)]
    reads = [
        Read(2 * k + 1, 1.5 + k, 1, 0, 0, np.array([0]), np.zeros((1, 2), np.int32), np.zeros((1, 1))) for k in range(3)
    ]
    here = [Event(send.now, 0, send.order, "sends", send) for send in sends]
    there = sorted(
        [Event(e.now - 3600, 1, e.order, "deliveries", e) for e in taken]
        + [Event(e.now - 3600, 1, e.order, "reads", e) for e in reads],
        key=lambda event: event.order,
    )
    found = [(event.place, event.order) for event in in_order([here, there])]
    assert found == [(0, 0), (1, 0), (1, 1), (0, 1), (1, 2), (1, 3), (0, 2), (1, 4), (1, 5)]


def test_a_message_that_nobody_sent_is_not_swallowed() -> None:
    taken = [Event(1.0, 1, k, "deliveries", Delivery(k, 1.0, 0, 1, 0, k + 1)) for k in range(2)]
    assert [event.order for event in in_order([[], taken])] == [0, 1]
