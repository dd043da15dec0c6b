"""The cache: early sends and rounding, versions, a bound on rows, changes on their way, threads."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from cache_made import add_to, asked, holding, keys_of, layout_of, read_of, rows_of, said, updates_in
from stretto.comm.messages import Dropped, NodeClock, Rows, Update
from stretto.comm.policy import Lazy, Managed
from stretto.consistency.rules import BSP, SSP
from stretto.store.cache.buffer import ChangeBatch
from stretto.store.cache.cache import Cache
from stretto.store.cache.in_flight import ChangesInFlight
from stretto.store.index import Index
from stretto.store.layout import Layout, TableSpec
from stretto.store.shard.functions import adagrad, adarevision, add

FAST = Managed("1Gbit", (2, 2), "absolute")
ROUNDED = Managed("1Gbit", (100, 100), "absolute", codec="f2")


# -- 3: early sends --------------------------------------------------------------------------------------------------


def test_the_weightiest_changes_go_first_and_leave_the_slip() -> None:
    cache = holding(layout_of(policy=FAST), [2], 0.0)
    add_to(cache, 0, [2, 4, 3, 5], [1.0, -7.0, 2.0, 5.0])
    assert cache.dirty
    assert sorted(said(list(cache.pick(2)))) == [(0, 0, -1, 1, {4: -7.0}), (1, 0, -1, 1, {5: 5.0})]
    assert said(list(cache.pick(1))) == [(1, 0, -1, 2, {3: 2.0})]
    add_to(cache, 1, [4], [1.0])
    cache.tick(0)
    assert said(cache.tick(1)) == [(0, 0, -1, 2, {2: 1.0, 4: 1.0}), (0, "clock", 1), (1, "clock", 1)]
    assert cache.pick(5) == []
    assert not cache.dirty


def test_ranks_look_at_the_rows_and_at_what_the_shard_makes_of_changes() -> None:
    relative = holding(layout_of(policy=Managed("1Gbit", rank="relative")), [2, 4], 1.0)
    relative.receive(rows_of(relative.layout, [2], [1000.0]))
    add_to(relative, 0, [2, 4], [5.0, 1.0])
    assert [list(row[4]) for row in said(list(relative.pick(1)))] == [[4]]
    effective = holding(layout_of(adagrad(0.1), policy=Managed("1Gbit", rank="effective")), [2, 4])
    effective.receive(rows_of(effective.layout, [2, 4], [0.0, 0.0], scale=np.array([0.01, 1.0], np.float32)))
    add_to(effective, 0, [2, 4], [5.0, 1.0])
    assert [list(row[4]) for row in said(list(effective.pick(1)))] == [[4]]


def test_a_ranking_does_not_outlive_its_clock() -> None:
    cache = holding(layout_of(policy=FAST), [])
    add_to(cache, 0, range(0, 40, 2), np.arange(20.0))
    assert said(list(cache.pick(1))) == [(0, 0, -1, 1, {38: 19.0})]
    cache.tick(0)
    cache.tick(1)
    assert cache.pick(5) == []


def test_leftovers_go_along_with_an_early_send_of_the_clock_that_ends_next() -> None:
    cache = holding(layout_of(policy=ROUNDED), [])
    add_to(cache, 0, [2], [2049.0])
    cache.tick(0)
    cache.tick(1)
    cache.tick(0)
    add_to(cache, 0, [2], [1.0])  # of clock 2; worker 1 is in clock 1
    assert said(list(cache.pick(1))) == [(0, 2, -1, 2, {2: 1.0})]
    add_to(cache, 1, [2], [1.0])
    assert said(list(cache.pick(1))) == [(0, 1, -1, 3, {2: 2.0})]


def test_shards_that_are_not_open_are_left_out() -> None:
    cache = holding(layout_of(policy=FAST), [])
    add_to(cache, 0, [2, 3], [9.0, 1.0])
    cache.open = np.array([False, True])
    assert said(list(cache.pick(5))) == [(1, 0, -1, 1, {3: 1.0})]
    assert cache.pick(5) == []
    assert cache.dirty
    cache.open = None
    assert said(list(cache.pick(5))) == [(0, 0, -1, 1, {2: 9.0})]


def test_exact_early_sends_are_repeated_at_the_end_only_if_the_row_changed_again() -> None:
    cache = holding(layout_of(rule=BSP(), policy=FAST), [2, 4], 10.0)
    add_to(cache, 0, [2, 4], [1.0, 2.0])
    assert said(list(cache.pick(2))) == [(0, 0, 0, 1, {2: 1.0, 4: 2.0})]
    assert cache.pick(2) == []
    add_to(cache, 0, [2], [1.0])
    assert read_of(cache, 0, [2, 4]) == [[12.0, 12.0], [12.0, 12.0]]
    cache.tick(0)
    assert said(cache.tick(1)) == [(0, 0, 0, 2, {2: 2.0}), (0, "clock", 1), (1, "clock", 1)]


def test_what_rounding_takes_from_an_early_send_goes_at_the_end_and_the_rest_with_the_next_change() -> None:
    cache = holding(layout_of(policy=ROUNDED), [2], 0.0)
    add_to(cache, 0, [2], [2049.0])
    assert said(list(cache.pick(5))) == [(0, 0, -1, 1, {2: 2048.0})]
    assert read_of(cache, 0, [2]) == [[2049.0, 2049.0]]
    cache.tick(0)
    assert updates_in(cache.tick(1)) == []  # a leftover does not travel by itself
    assert {name: array.tolist() for name, array in cache.residuals().items()} == {
        "w/-1/keys": [2],
        "w/-1/rows": [[1.0, 1.0]],
    }
    # The shard has 2048 only; what is left is still here, and stays in sight.
    cache.receive(rows_of(cache.layout, [2], [2048.0], through=1, seen=1))
    assert read_of(cache, 0, [2]) == [[2049.0, 2049.0]]
    add_to(cache, 0, [2], [4098.0])
    cache.tick(0)
    assert said(cache.tick(1))[0] == (0, 1, -1, 2, {2: 4100.0})
    assert cache.residuals()["w/-1/rows"].tolist() == [[-1.0, -1.0]]


def test_exact_rounding_gives_the_same_bits_with_and_without_early_sends() -> None:
    layout = layout_of(rule=BSP(), policy=ROUNDED, rows=20, cols=3)

    def run(early: int) -> tuple[dict[tuple[int, int, int], list[float]], list[list[float]]]:
        rng, cache = np.random.default_rng(5), Cache(layout, 0)
        final: dict[tuple[int, int, int], list[float]] = {}
        for _ in range(4):
            for _ in range(3):
                for worker in (0, 1):
                    keys = rng.integers(0, 20, 10)
                    cache.add(worker, 0, keys, rng.normal(size=(10, 3)).astype("f4"))
                    take(final, cache.pick(early) if early else [])
            take(final, [*cache.tick(0), *(cache.pick(early) if early else []), *cache.tick(1)])
        final = {at: row for at, row in final.items() if at[0] < 4}  # early sends may be of the next clock too
        return final, [cache.residuals()[f"w/{worker}/rows"].tolist() for worker in (0, 1)]

    def take(final: dict[tuple[int, int, int], list[float]], messages: Any) -> None:
        for update in updates_in(messages):
            for key, delta in zip(update.keys.tolist(), update.deltas.tolist(), strict=True):
                final[update.clock, update.worker, key] = delta

    plain = run(0)
    assert len(plain[0]) > 100
    assert plain == run(3) == run(50)


def test_leftovers_come_back_after_a_restart() -> None:
    for rule in (BSP(), SSP(1)):
        layout = layout_of(rule=rule, policy=ROUNDED)
        first, second = Cache(layout, 0), Cache(layout, 0)
        add_to(first, 1, [2], [2049.0])
        first.tick(0)
        first.tick(1)
        add_to(first, 1, [2], [77.0])  # of the clock that begins: not part of a checkpoint at clock 1
        second.restore(1, first.residuals())
        assert second.clocks == [1, 1]
        add_to(second, 1, [2], [1.0])
        second.tick(0)
        assert said(second.tick(1))[0][4] == {2: 2.0}


# -- 7: versions -----------------------------------------------------------------------------------------------------


def versions_of(*versions: int) -> NDArray[np.int32]:
    return np.array(versions, np.int32)


def test_changes_are_kept_apart_by_the_version_they_were_computed_from() -> None:
    layout = layout_of(adarevision(0.1))
    cache = holding(layout, [2], versions=versions_of(4))
    add_to(cache, 0, [2, 6], [1.0, 2.0])  # row 6 was never read
    cache.receive(rows_of(layout, [2], [0.0], versions=versions_of(5)))
    add_to(cache, 1, [2, 2], [10.0, 20.0])
    add_to(cache, 0, [2], [100.0])
    cache.tick(0)
    update = updates_in(cache.tick(1))[0]
    assert update.versions is not None
    assert list(zip(update.keys, update.versions, update.deltas[:, 0], strict=True)) == [
        (2, 4, 1.0),
        (2, 5, 130.0),
        (6, -1, 2.0),
    ]


def test_a_version_is_given_back_with_the_clock_after_the_last_that_may_refer_to_it() -> None:
    layout = layout_of(adarevision(0.1), rule=SSP(9))
    cache = holding(layout, [2], versions=versions_of(4))
    for _ in range(3):
        cache.tick(0)
    cache.receive(rows_of(layout, [2], [0.0], versions=versions_of(5)))
    cache.receive(rows_of(layout, [2], [0.0], versions=versions_of(5)))  # no news
    released = {}
    for _ in range(5):
        if cache.clocks[0] < 4:
            cache.tick(0)
        for shard, message in cache.tick(1) if cache.clocks[1] < 4 else cache.leave(1):
            if isinstance(message, NodeClock) and message.released:
                released[shard, message.clock] = [(t, k.tolist(), v.tolist()) for t, k, v in message.released]
    # Worker 0 was in clock 3 when version 5 came.
    assert released == {(0, 4): [(0, [2], [4])]}


def test_exact_runs_need_no_versions() -> None:
    cache = holding(layout_of(adarevision(0.1), rule=BSP()), [2])
    add_to(cache, 0, [2], [1.0])
    cache.tick(0)
    assert updates_in(cache.tick(1))[0].versions is None


# -- a bound on rows -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reserve", [False, True])
def test_rows_beyond_the_bound_are_let_go_the_longest_unused_first(reserve: bool) -> None:
    layout = layout_of(rule=SSP(9), reserve=reserve, cache_rows=8)
    cache = holding(layout, range(0, 16, 2), 1.0)
    assert cache.outgoing == []
    for _ in range(2):
        cache.tick(0)
        cache.tick(1)
    read_of(cache, 0, [0, 2, 4])
    cache.tick(0)
    read_of(cache, 0, [6, 8])
    add_to(cache, 0, [14], [5.0])
    asked_for = cache.want(1, 0, keys_of(16, 10))
    assert asked(asked_for) == [(0, 2 - 2, [16])]
    assert cache.receive(rows_of(layout, [16], [1.0], through=2, reply=True)) == [1]
    (dropped,) = [message for _, message in cache.outgoing if isinstance(message, Dropped)]
    # One of nine must go, and an eighth with it: 12 and 14, which were not used; 10 is waited for.
    assert dropped.keys.tolist() == [12, 14]
    assert read_of(cache, 1, [16, 10]) is not None
    assert read_of(cache, 0, [12]) is None
    # What was added to a row that was evicted is included when it is fetched anew.
    cache.want(0, 0, keys_of(14))
    cache.receive(rows_of(layout, [14], [1.0], through=2, reply=True))
    assert read_of(cache, 0, [14]) == [[6.0, 6.0]]


def test_a_row_that_was_asked_for_again_is_not_let_go() -> None:
    """Its answer makes the shard think that it is held; that it was dropped may reach the shard afterwards."""
    layout = layout_of(rule=SSP(1), policy=Lazy(), cache_rows=1)
    cache = holding(layout, [2])
    for _ in range(2):
        cache.tick(0)
    cache.want(0, 0, keys_of(2))
    cache.want(0, 0, keys_of(4))  # it waits for something else now
    cache.receive(rows_of(layout, [4], [1.0], through=1, reply=True))
    assert not any(isinstance(message, Dropped) for _, message in cache.outgoing)


def test_a_version_that_a_change_may_refer_to_is_not_let_go() -> None:
    layout = layout_of(adarevision(0.1), cache_rows=1)
    cache = holding(layout, [2, 4], versions=versions_of(1, 1))
    cache.outgoing.clear()
    add_to(cache, 0, [2], [1.0])
    cache.want(0, 0, keys_of(6))
    cache.receive(rows_of(layout, [6], [1.0], versions=versions_of(3), reply=True))
    assert not any(isinstance(message, Dropped) for _, message in cache.outgoing)
    cache.tick(0)
    assert [type(message) for _, message in cache.tick(1)] == [Update, NodeClock, NodeClock]
    read_of(cache, 0, [6])
    cache.tick(0)
    cache.tick(1)
    ((_, dropped),) = [m for m in cache.outgoing if isinstance(m[1], Dropped)]
    assert isinstance(dropped, Dropped)
    assert dropped.versions is not None
    assert dropped.keys.tolist() == [2, 4]
    assert dropped.versions.tolist() == [1, 1]


# -- changes on their way, and the index -----------------------------------------------------------------------------


def test_changes_on_their_way_are_added_until_they_are_seen() -> None:
    rng, layout = np.random.default_rng(7), layout_of(cols=1, dtype="f8")
    seen, sent = np.zeros(2, np.int64), np.zeros(2, np.int64)
    flight, model = ChangesInFlight(layout, 0, seen), list[tuple[int, int, float]]()  # key, number, change
    for _ in range(200):
        keys = np.sort(rng.choice(20, 5, replace=False))
        keys = keys[np.argsort(keys % 2, kind="stable")]
        sent += 1
        deltas = rng.integers(1, 100, (5, 1)).astype("f8")
        flight.append(ChangeBatch(keys, keys % 2, deltas, None, np.zeros((5, 0), np.int32)), sent[keys % 2])
        model += zip(keys.tolist(), sent[keys % 2].tolist(), deltas[:, 0].tolist(), strict=True)
        seen[:] = np.maximum(seen, sent - rng.integers(0, 40, 2))
        if rng.random() < 0.03:
            seen[:] = sent
        for shard in (0, 1):
            wanted = np.arange(shard, 20, 2)
            out = np.zeros((10, 1))
            flight.add_to(int(seen[shard]), wanted, out, np.zeros((10, 0), np.int32))
            expected = [sum(d for k, n, d in model if k == key and n > seen[shard]) for key in wanted.tolist()]
            assert out[:, 0].tolist() == expected
            assert flight.waits_for(shard) == any(expected)


@pytest.mark.parametrize("marked", [False, True])
def test_an_index_is_a_dictionary(marked: bool) -> None:
    rng = np.random.default_rng(3)
    index, model = Index(marked), dict[tuple[int, int], int]()
    pool = rng.integers(-(2**63), 2**63 - 1, 300)
    for turn in range(60):
        keys = rng.choice(pool[: 5 * turn + 5], 40)
        marks = rng.integers(-1, 3, 40).astype(np.int32)
        places = index.place(keys, marks if marked else None)
        for pair, place in zip(zip(keys.tolist(), marks.tolist(), strict=True), places.tolist(), strict=True):
            entry = pair if marked else (pair[0], 0)
            assert model.setdefault(entry, len(model)) == place
        if turn == 30:
            stay = np.sort(rng.choice(index.count, 50, replace=False))
            moved = {int(old): new for new, old in enumerate(stay)}
            model = {entry: moved[place] for entry, place in model.items() if place in moved}
            index.keep(stay)
        assert index.count == len(model)
    known = {key for key, _ in model}
    assert ((index.find(pool) >= 0) == [key in known for key in pool.tolist()]).all()


# -- threads ---------------------------------------------------------------------------------------------------------


def test_threads_share_a_cache_and_no_change_is_lost_and_no_row_is_torn() -> None:
    """Two threads add ones to the same few rows and read them; a third sends changes early and installs what the shard
    makes of them, all the time."""
    rows, cols, rounds, calls, n = 8, 128, 20, 10, 2000
    policy = Managed("1Gbit", (rows, rows), "random")
    layout = Layout((TableSpec("w", add, rows=rows, cols=cols),), 1, 2, SSP(50), policy, reserve=True)
    cache = Cache(layout, 0, locks=True)
    assert cache.needs_lock == [False]
    node, shard, every = threading.Lock(), np.zeros((rows, cols), "f4"), np.arange(rows)
    cache.want(0, 0, every)
    cache.receive(Rows(0, 0, every, shard.copy(), 0, 0, 0, reply=True))
    failures: set[str] = set()

    def deliver(messages: Any) -> None:
        for update in updates_in(messages):
            shard[update.keys] += update.deltas
            cache.receive(Rows(0, 0, every, shard.copy(), 0, update.number, 0))

    def work(worker: int) -> None:
        rng = np.random.default_rng(worker)
        ones, out, least = np.ones((n, cols), "f4"), np.empty((n, cols), "f4"), np.zeros(rows, "f4")
        for _ in range(rounds):
            for _ in range(calls):
                keys = rng.integers(0, rows, n)
                cache.add(worker, 0, keys, ones)
                if not cache.read(worker, 0, keys, out):
                    failures.add("a read was refused")
                if (out != out[:, :1]).any():
                    failures.add("a row was torn")
                if (out[:, 0] < least[keys]).any():
                    failures.add("a change was seen and then was not")
                np.maximum.at(least, keys, out[:, 0])
            with node:
                deliver(cache.tick(worker))

    threads = [threading.Thread(target=work, args=(worker,)) for worker in (0, 1)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        with node:
            deliver(cache.pick(rows // 2))
    assert failures == set()
    deliver(cache.tick(0))
    deliver(cache.tick(1))
    expected = np.zeros(rows)
    for rng in map(np.random.default_rng, (0, 1)):
        for _ in range(rounds * calls):
            expected += np.bincount(rng.integers(0, rows, n), minlength=rows)
    assert (shard == expected[:, None]).all()
    out = np.empty((rows, cols), "f4")
    assert cache.read(0, 0, every, out)
    assert (out == shard).all()
    assert cache.staleness.sum() == 2 * rounds * calls * n + rows


def test_tables_that_threads_must_take_turns_with() -> None:
    def needs(**options: Any) -> bool:
        return Cache(layout_of(reserve=True, **options), 0, locks=True).needs_lock[0]

    assert not needs()
    assert not needs(rule=BSP())
    assert needs(rows=None)
    assert needs(apply=adarevision(0.1))
    assert needs(rule=BSP(), policy=FAST)
    assert Cache(layout_of(), 0, locks=True).needs_lock == [True]
    assert Cache(layout_of(), 0).needs_lock == [False]
