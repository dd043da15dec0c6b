"""The cache, one point of the protocol after the other. Against a model of it: `test_store_cache_model`."""

from __future__ import annotations

import numpy as np
import pytest

from cache_made import add_to, asked, holding, keys_of, layout_of, read_of, rows_of, said, updates_in
from stretto.comm.messages import HEADER, Announce, Demand, Fetch, ShardClock
from stretto.comm.policy import Lazy, Managed
from stretto.comm.sizes import row_sizes, rows_nbytes
from stretto.consistency.clocks import FOREVER
from stretto.consistency.rules import BSP, SSP
from stretto.store.cache.cache import Cache
from stretto.store.shard.functions import adagrad

FAST = Managed("1Gbit", (2, 2), "absolute")


# -- 1: adding and reading -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reserve", [False, True])
def test_every_occurrence_of_a_key_is_added_and_all_workers_of_the_node_see_it(reserve: bool) -> None:
    cache = holding(layout_of(reserve=reserve), [1, 2, 3], 10.0, locks=reserve)
    add_to(cache, 0, [2, 3, 2], [1.0, 5.0, 2.0])
    add_to(cache, 0, [7], [1.0])  # a row that is not cached
    assert read_of(cache, 0, [3, 2]) == read_of(cache, 1, [3, 2]) == [[15.0, 15.0], [13.0, 13.0]]
    assert read_of(cache, 0, [2, 7]) is None


def test_exact_reads_find_the_readers_own_changes_and_nobody_elses() -> None:
    cache = holding(layout_of(rule=BSP()), [2, 4], 10.0)
    add_to(cache, 0, [2, 2], [1.0, 2.0])
    add_to(cache, 1, [2], [100.0])
    assert read_of(cache, 0, [4, 2, 2]) == [[10.0, 10.0], [13.0, 13.0], [13.0, 13.0]]
    assert read_of(cache, 1, [2]) == [[110.0, 110.0]]


def test_where_the_server_function_decides_changes_show_when_they_come_back() -> None:
    for rule in (BSP(), SSP(1)):
        cache = holding(layout_of(adagrad(0.1), rule=rule), [2], 10.0)
        add_to(cache, 0, [2], [1.0])
        assert read_of(cache, 0, [2]) == [[10.0, 10.0]]


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "i4", "i8"])
@pytest.mark.parametrize("cols", [1, 3])
def test_dtypes_and_widths(dtype: str, cols: int) -> None:
    cache = holding(layout_of(dtype=dtype, cols=cols), [2, 4], 3)
    add_to(cache, 0, [4], [4])
    assert read_of(cache, 0, [4, 2]) == [[7] * cols, [3] * cols]
    (update,) = updates_in([*cache.tick(0), *cache.tick(1)])
    assert update.deltas.dtype == layout_of(dtype=dtype).tables[0].kept
    assert update.deltas.tolist() == [[4] * cols]


# -- 2: the end of a clock -------------------------------------------------------------------------------------------


def test_when_the_last_worker_ticks_one_update_goes_to_each_shard_and_then_the_clock_to_all() -> None:
    cache = holding(layout_of(), [1, 2])
    add_to(cache, 0, [4, 2, 1], [1.0, 2.0, 3.0])
    add_to(cache, 1, [2], [0.5])
    assert cache.tick(0) == []
    add_to(cache, 0, [2], [64.0])  # belongs to clock 1
    assert said(cache.tick(1)) == [
        (0, 0, -1, 1, {2: 2.5, 4: 1.0}),
        (0, "clock", 1),
        (1, 0, -1, 1, {1: 3.0}),
        (1, "clock", 1),
    ]
    cache.tick(1)
    assert said(cache.tick(0)) == [(0, 1, -1, 2, {2: 64.0}), (0, "clock", 2), (1, "clock", 2)]
    assert said([*cache.tick(0), *cache.tick(1)]) == [(0, "clock", 3), (1, "clock", 3)]


def test_exact_runs_send_what_each_worker_added_in_the_order_of_workers() -> None:
    cache = holding(layout_of(rule=BSP(), policy=FAST), [])
    add_to(cache, 1, [2], [1.0])
    add_to(cache, 0, [8, 4, 6, 2, 2], [1.0, 2.0, 3.0, 4.0, 5.0])
    messages = [*cache.tick(1), *cache.tick(0)]
    assert said(messages) == [
        (0, 0, 0, 1, {2: 9.0, 4: 2.0}),  # at most two rows in a message
        (0, 0, 0, 2, {6: 3.0, 8: 1.0}),
        (0, 0, 1, 3, {2: 1.0}),
        (0, "clock", 1),
        (1, "clock", 1),
    ]
    assert all(update.running for update in updates_in(messages))


def test_bytes_of_updates_are_counted() -> None:
    cache = holding(layout_of(cols=64), [])
    cache.add(0, 0, keys_of(2, 4), np.concatenate([np.ones((1, 64), "f4"), np.eye(1, 64, dtype="f4")]))
    (update,) = updates_in([*cache.tick(0), *cache.tick(1)])
    assert update.nbytes == HEADER + (8 + 64 * 4) + (8 + 2 + (2 + 4))
    assert rows_nbytes(update.deltas, True, 2) == HEADER + (12 + 64 * 2) + (12 + 2 + 2 + 2)


@pytest.mark.parametrize(("cols", "column"), [(1, 2), (5, 2), (65536, 2), (65537, 4)])
def test_sizes_of_rows(cols: int, column: int) -> None:
    rng = np.random.default_rng(cols)
    rows = rng.integers(-1, 2, (4, cols)) * (rng.random((4, cols)) < [[0.0], [0.1], [0.5], [1.0]])
    expected = 8 + np.minimum(cols * 4, 2 + (rows != 0).sum(axis=1) * (column + 4))
    assert row_sizes(rows.astype("i4"), False, 4).tolist() == expected.tolist()


def test_lazy_changes_wait_until_somebody_needs_them() -> None:
    cache = holding(layout_of(policy=Lazy(), rule=SSP(1)), [])
    sent = []
    for clock in range(3):
        add_to(cache, 0, [2, 3], [clock + 1.0, 1.0])
        cache.tick(0)
        sent.append(said(cache.tick(1)))
    # In clock 2 its own workers need what was added in clock 0.
    assert sent == [
        [],
        [(0, 0, -1, 1, {2: 1.0}), (0, "clock", 1), (1, 0, -1, 1, {3: 1.0}), (1, "clock", 1)],
        [(0, 1, -1, 2, {2: 2.0}), (0, "clock", 2), (1, 1, -1, 2, {3: 1.0}), (1, "clock", 2)],
    ]
    assert cache.receive(Demand(1, 4)) == []
    assert said(cache.outgoing) == [(1, 2, -1, 3, {3: 1.0}), (1, "clock", 3)]
    cache.outgoing = []
    # What is demanded and not over yet goes as soon as it is; the other shard has demanded nothing.
    add_to(cache, 0, [3], [5.0])
    cache.tick(0)
    assert said(cache.tick(1)) == [
        (0, 2, -1, 3, {2: 3.0}),
        (0, "clock", 3),
        (1, 3, -1, 4, {3: 5.0}),
        (1, "clock", 4),
    ]
    assert said(cache.flush()) == [(0, "clock", 4)]


def test_nobody_waits_for_workers_that_left_or_for_nodes_without_any() -> None:
    cache = holding(layout_of(rule=BSP()), [])
    add_to(cache, 1, [2], [1.0])
    assert cache.leave(1) == []
    assert said(cache.tick(0)) == [(0, 0, 1, 1, {2: 1.0}), (0, "clock", 1), (1, "clock", 1)]
    add_to(cache, 0, [3], [1.0])
    assert said(cache.leave(0)) == [(0, "clock", FOREVER), (1, 1, 0, 1, {3: 1.0}), (1, "clock", FOREVER)]
    assert said(Cache(layout_of(nodes=3, workers=2), 2).outgoing) == [(k, "clock", FOREVER) for k in (2, 0, 1)]


# -- 5: what a read needs, and who is asked --------------------------------------------------------------------------


def test_a_row_is_asked_for_once_and_everybody_who_waits_is_woken() -> None:
    layout = layout_of(rule=SSP(1))
    cache = Cache(layout, 0)
    assert read_of(cache, 0, [2, 3]) is None
    assert asked(cache.want(0, 0, keys_of(2, 3, 2))) == [(0, 0, [2]), (1, 0, [3])]
    assert asked(cache.want(1, 0, keys_of(4, 2))) == [(0, 0, [4])]
    assert cache.receive(rows_of(layout, [2], [1.0], reply=True)) == []
    assert cache.receive(rows_of(layout, [3], [1.0], reply=True)) == [0]
    assert cache.receive(rows_of(layout, [4], [1.0], reply=True)) == [1]
    assert not cache.waiting


def test_rows_that_are_held_and_too_old_are_waited_for_and_not_asked_for() -> None:
    layout = layout_of(rule=SSP(1))
    cache = holding(layout, [2, 3])
    for _ in range(2):
        cache.tick(0)
    assert read_of(cache, 0, [2, 3]) is None
    assert read_of(cache, 1, [2, 3]) is not None
    assert cache.want(0, 0, keys_of(2, 3)) == []
    assert cache.receive(ShardClock(0, 1, 0)) == []
    assert cache.receive(ShardClock(1, 1, 0)) == [0]
    assert read_of(cache, 0, [2, 3]) is not None
    assert cache.staleness[:, :3].tolist() == [[0, 2, 0], [2, 0, 0]]


def test_under_a_lazy_policy_a_row_is_through_what_it_was_when_it_came() -> None:
    layout = layout_of(rule=SSP(1), policy=Lazy())
    cache = holding(layout, [2])
    for _ in range(2):
        cache.tick(0)
    cache.receive(ShardClock(0, 2, 0))
    assert read_of(cache, 0, [2]) is None
    assert asked(cache.want(0, 0, keys_of(2))) == [(0, 1, [2])]
    cache.tick(1)
    cache.tick(1)
    cache.tick(1)
    assert cache.want(1, 0, keys_of(2)) == []  # it needs more: noted, and asked for after the answer
    assert cache.receive(rows_of(layout, [2], [1.0], through=1, reply=True)) == [0]
    assert asked([m for m in cache.outgoing if isinstance(m[1], Fetch)]) == [(0, 2, [2])]  # type: ignore[misc]
    assert cache.receive(rows_of(layout, [2], [1.0], through=2, reply=True)) == [1]


def test_a_fast_worker_does_not_make_a_slow_one_wait_for_a_clock_it_must_end_itself() -> None:
    layout = layout_of(rule=SSP(1))
    cache = Cache(layout, 0)
    for _ in range(5):
        cache.tick(0)
    assert asked(cache.want(0, 0, keys_of(2))) == [(0, 0, [2])]  # not 4, which worker 1 could not wait for
    assert cache.want(1, 0, keys_of(2)) == []
    assert cache.receive(rows_of(layout, [2], [1.0], reply=True)) == [1]
    lazy = Cache(layout_of(rule=SSP(1), policy=Lazy()), 0)
    for _ in range(5):
        lazy.tick(0)
    assert asked(lazy.want(0, 0, keys_of(2))) == [(0, 4, [2])]
    assert asked(lazy.want(1, 0, keys_of(2))) == [(0, 0, [2])]


def test_speculation_asks_for_rows_that_are_too_old_and_announces_when_all_have() -> None:
    layout = layout_of(rule=SSP(0, speculate=True))
    cache = holding(layout, [2, 4])
    cache.tick(0)
    assert asked(cache.want(0, 0, keys_of(2, 6))) == [(0, 0, [6]), (0, 1, [2])]
    assert cache.receive(rows_of(layout, [2], [1.0], through=1, reply=True)) == []
    assert cache.receive(rows_of(layout, [6], [1.0], through=0, reply=True)) == []
    assert asked([m for m in cache.outgoing if isinstance(m[1], Fetch)]) == [(0, 1, [6])]  # type: ignore[misc]
    assert cache.receive(rows_of(layout, [6], [1.0], through=1, reply=True)) == [0]
    assert cache.announce(0, 0, 3, keys_of(2, 5)) == []
    announced = cache.announce(1, 0, 3, keys_of(2, 4))
    assert [(shard, a.clock, a.keys.tolist()) for shard, a in announced] == [(0, 3, [2, 4]), (1, 3, [5])]
    assert all(isinstance(message, Announce) for _, message in announced)


# -- 6: rows that come back ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reserve", [False, True])
def test_rows_come_with_what_is_still_on_its_way_and_what_was_not_sent(reserve: bool) -> None:
    layout = layout_of(rule=SSP(3), reserve=reserve, witness=True)
    cache = holding(layout, [2], witness=np.zeros((1, 3), np.int32))
    for clock in range(3):  # Updates 1, 2, 3
        add_to(cache, 0, [2], [10.0**clock])
        cache.tick(0)
        cache.tick(1)
    add_to(cache, 1, [2, 2], [1000.0, 1000.0])
    fresh = np.array([[1, 0, 9]], np.int32)
    cache.receive(rows_of(layout, [2], [0.5 + 1.0], seen=1, witness=fresh))
    out, seen = np.empty((1, 2), "f4"), np.empty((1, 3), np.int32)
    assert cache.read(0, 0, keys_of(2), out, seen)
    assert out.tolist() == [[2111.5, 2111.5]]
    assert seen.tolist() == [[3, 2, 9]]
    cache.receive(ShardClock(0, 1, 3))
    cache.receive(rows_of(layout, [2], [0.5 + 111.0], seen=3, witness=np.array([[3, 0, 9]], np.int32)))
    assert read_of(cache, 0, [2]) == [[2111.5, 2111.5]]


def test_a_push_of_a_row_that_is_not_held_is_left_alone() -> None:
    cache = holding(layout_of(), [2])
    cache.receive(rows_of(cache.layout, [4, 2], [1.0, 2.0]))
    assert read_of(cache, 0, [2]) == [[2.0, 2.0]]
    assert read_of(cache, 0, [4]) is None
