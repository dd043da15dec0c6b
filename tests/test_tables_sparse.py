"""Sparse tables: memory for what is touched, the same numbers as tables that hold every row."""

from __future__ import annotations

import threading
import tracemalloc
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import stretto as st
from stretto.comm.policy import Eager
from stretto.consistency.rules import BSP, SSP
from stretto.runtime.tables import job as serving
from stretto.runtime.tables.job import TableJob
from stretto.store.cache.cache import Cache
from stretto.store.index import Index
from stretto.store.layout import Layout, TableSpec

MB = 10**6
WIDE: dict[str, Any] = {"rows": 20_000, "cols": 500, "dtype": "i4"}
RUNTIMES = [st.Serial(), st.Threads(2), st.Simulated(nodes=2)]


def one_element(w: Any) -> None:
    x = w.table("x")
    for _ in w.clocks(3):
        x.add_at([7], [3], [1])
        x.read_at([7], [3])


def peak_of(worker: Any, table: st.tables.Table, **options: Any) -> tuple[int, Any]:
    """Bytes a run allocates at most, and its result."""
    options = {"workers": 2, **options}
    st.run(one_element, tables={"x": replace(table, rows=50)}, **options)  # compiling and importing are not counted
    tracemalloc.start()
    try:
        result = st.run(worker, tables={"x": table}, **options)
        return tracemalloc.get_traced_memory()[1], result
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("sync", [st.tables.BSP(), st.tables.SSP(1)], ids=repr)
@pytest.mark.parametrize("runtime", RUNTIMES, ids=lambda r: type(r).__name__)
def test_one_element_takes_little_memory(runtime: Any, sync: Any) -> None:
    peak, result = peak_of(one_element, st.tables.Table(**WIDE, unit="element"), runtime=runtime, sync=sync)
    assert peak < 2 * MB
    assert [part.tolist() for part in result.entries("x")] == [[7], [3], [6]]


def test_all_rows_may_still_have_their_place_from_the_start() -> None:
    peak, result = peak_of(one_element, st.tables.Table(**WIDE, unit="element", sparse=False), runtime=st.Threads(2))
    assert peak > 200 * MB
    assert result.entries("x").values.tolist() == [6]


def test_rows_may_be_sparse_too() -> None:
    table = st.tables.Table(rows=3_000_000, cols=4, dtype="f4")
    dense, _ = peak_of(one_element, table, runtime=st.Threads(2))
    sparse, result = peak_of(one_element, replace(table, sparse=True), runtime=st.Threads(2))
    assert sparse < 2 * MB < 100 * MB < dense
    assert result.entries("x").keys.tolist() == [7]


@pytest.mark.parametrize("sync", [st.tables.BSP(), st.tables.SSP(1)], ids=repr)
@pytest.mark.parametrize("n", [2_000, 20_000, 200_000])
def test_memory_grows_with_what_is_touched(sync: Any, n: int) -> None:
    keys = np.arange(n) * 7919 % (20_000 * 500)

    def worker(w: Any) -> None:
        x = w.table("x")
        for _ in w.clocks(2):
            for some in np.array_split(keys, 20):  # the columns grow several times
                x.add_at(some // 500, some % 500, np.ones(len(some), np.int32))

    peak, result = peak_of(worker, st.tables.Table(**WIDE, unit="element"), runtime=st.Threads(2), sync=sync)
    assert peak < MB + 700 * n
    found = result.entries("x")
    assert len(found.values) == n
    assert (found.values == 4).all()


@pytest.mark.parametrize("runtime", RUNTIMES, ids=lambda r: type(r).__name__)
@pytest.mark.parametrize("unit", ["row", "element"])
@pytest.mark.parametrize("apply", [st.tables.add, st.tables.adarevision(0.1)], ids=lambda f: f.name)
def test_sparse_and_dense_give_the_same_bits(
    runtime: Any, unit: str, apply: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "RESERVED_SPARSE", 0)

    def worker(w: Any) -> None:
        x = w.table("x")
        for clock in w.clocks(4):
            draw = w.random(clock)
            keys = draw.integers(0, 300, 40)
            x.add(keys, 0.1 * x.read(keys) + draw.standard_normal((40, 5)).astype("f4"))
            x.add_at(keys, keys % 5, draw.standard_normal(40).astype("f4"))

    def start(keys: Any) -> Any:
        return np.outer(keys, np.arange(5)).astype("f4") / 7

    found = [
        st.run(
            worker,
            workers=3,
            tables={"x": st.tables.Table(rows=300, cols=5, unit=unit, apply=apply, start=start, sparse=sparse)},
            runtime=runtime,
        )
        for sparse in (False, True)
    ]
    assert found[0].tables["x"].tobytes() == found[1].tables["x"].tobytes()
    assert np.array_equal(found[0].entries("x")[0], found[1].entries("x")[0])


def test_threads_that_share_sparse_rows_lose_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "RESERVED_SPARSE", 0)

    def worker(w: Any) -> None:
        x, every = w.table("x"), w.random(0)
        for _ in w.clocks(5):
            for _ in range(40):
                keys = every.integers(0, 3000, 50)
                x.read_at(keys // 10, keys % 10)
                x.add_at(keys // 10, keys % 10, np.ones(50, np.int64))

    table = st.tables.Table(rows=300, cols=10, dtype="i8", unit="element")
    result = st.run(worker, workers=4, tables={"x": table}, runtime=st.Threads(4), sync=st.tables.SSP(1))
    assert result.tables["x"].sum() == 4 * 5 * 40 * 50


@pytest.mark.parametrize("cols", [1, 3])
def test_threads_read_while_sparse_rows_come_in(cols: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """BSP without a lock: every number that any worker reads is that of a serial run."""
    monkeypatch.setattr(serving, "RESERVED_SPARSE", 0)

    def worker(w: Any) -> None:
        x = w.table("x")
        read = []
        for clock in w.clocks(6):
            draw = w.random(clock)
            for _ in range(12):
                keys = draw.integers(0, 400 * (clock + 1) ** 2, 150)  # new rows in every clock, and columns that grow
                read.append(int(x.read(keys).sum()))
                x.add(keys, draw.integers(1, 9, (150, cols)))
        w.local["read"] = np.array(read)

    table = st.tables.Table(rows=15_000, cols=cols, dtype="i8", sparse=True)
    expected = st.run(worker, workers=6, tables={"x": table}, runtime=st.Serial())
    for _ in range(3):
        found = st.run(worker, workers=6, tables={"x": table}, runtime=st.Threads(6))
        assert (found.tables["x"] == expected.tables["x"]).all()
        for mine, theirs in zip(found.local, expected.local, strict=True):
            assert (mine["read"] == theirs["read"]).all()


def test_an_index_is_searched_while_it_grows() -> None:
    index, failures, count = Index(), [], 60_000
    keys = np.random.default_rng(0).permutation(count * 3)[:count].astype(np.int64)

    def search() -> None:
        while index.count < count:
            known = index.count
            found = index.find(keys)
            if (found[:known] != np.arange(known)).any() or not np.isin(
                found[known:], [-1, *range(known, count)]
            ).all():
                failures.append(known)

    threads = [threading.Thread(target=search) for _ in range(2)]
    for thread in threads:
        thread.start()
    for some in np.array_split(keys, 600):
        index.place(some)
    for thread in threads:
        thread.join()
    assert failures == []


def test_caches_of_a_cluster_hold_no_slots_of_untouched_rows() -> None:
    spec = st.tables.Table(**WIDE, unit="element", partition="range").spec("x")
    job = TableJob((spec,), 4, SSP(1), Eager(), work=lambda client: None, blame=_blame)
    layout = job.layout(2, reserve=True)
    tracemalloc.start()
    try:
        cache = Cache(layout, 0, locks=True)
        assert tracemalloc.get_traced_memory()[1] < MB
    finally:
        tracemalloc.stop()
    assert cache.needs_lock == [True]
    assert Cache(replace(layout, rule=BSP()), 0, locks=True).needs_lock == [False]  # they are found without a lock
    # Rows stay in their range: that was lost where the number of rows was forgotten.
    assert layout.shard_of(0, np.array([0, 4_999_999, 5_000_000, 9_999_999])).tolist() == [0, 0, 1, 1]


def test_small_sparse_tables_hold_every_row() -> None:
    small = st.tables.Table(rows=1000, cols=20, unit="element").spec("x")
    layout = TableJob((small,), 2, BSP(), Eager(), work=lambda client: None, blame=_blame).layout(1, reserve=True)
    assert layout.reserved(0) == 20_000
    assert Cache(layout, 0, locks=True).needs_lock == [False]


def test_ranges_of_very_large_tables() -> None:
    spec = TableSpec("x", st.tables.add, rows=2**62, partition="range")
    keys = np.array([0, 2**60, 2**61, 2**62 - 1])
    assert Layout((spec,), nodes=4).shard_of(0, keys).tolist() == [0, 1, 2, 3]


def _blame(worker: int, clock: int, error: Exception) -> Any:
    raise error
