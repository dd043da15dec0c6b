"""Mirrored tables: changes go to every node, all-to-all or around a ring, under drawn orders, faults and crashes."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from stretto.comm.messages import NodeClock, Update
from stretto.comm.policy import Eager
from stretto.consistency.rules import ASP, BSP, SSP
from stretto.runtime.tables.job import TableJob
from stretto.store.layout import Layout, TableSpec
from stretto.store.node import StoreNode
from stretto.store.ring import Ring, others_of
from stretto.store.shard.functions import add
from stretto.testing.draws import draw
from stretto.testing.schedules import run_schedule

EXCHANGES = ("all-to-all", "ring")


def layout_of(*exchanges: str, nodes: int = 3, workers: int = 6, rule: Any = None, homes: Any = ()) -> Layout:
    tables = tuple(TableSpec(f"t{k}", add, 8, 2, "f8", exchange=how) for k, how in enumerate(exchanges))
    return Layout(tables, nodes, workers, rule or BSP(), Eager(), homes=homes)


# -- who sends to whom -------------------------------------------------------------------------------------------------


def test_who_gets_the_changes_of_a_node() -> None:
    layout = layout_of("all-to-all", "ring", nodes=4, workers=3, homes=(0, 2, 3))
    assert layout.mirrors == (0, 2, 3)  # node 1 has no worker
    assert others_of(layout, 0, 2) == (3, 0)
    assert [others_of(layout, 1, node) for node in range(4)] == [(2,), (), (3,), (0,)]


def test_an_update_goes_around_once_and_clocks_wait_for_it() -> None:
    layout = layout_of("ring")
    update = Update(0, 0, 1, 0, 0, np.array([3]), np.ones((1, 2)), 80, True)
    one, two = Ring(layout, 1), Ring(layout, 2)
    clock = NodeClock(0, 1, (), circulated=1)
    assert one.passes_to(update) == 2
    assert two.passes_to(update) is None  # the next node is the one that made it
    assert one.holds(clock)
    assert one.arrived(update) == [clock]
    assert two.arrived(update) == []
    assert not two.holds(clock)


# -- nodes by hand, messages in any order of links ---------------------------------------------------------------------


@settings(max_examples=80, deadline=None)
@given(data=some.data())
def test_all_nodes_have_the_same_bits_in_any_order_of_messages(data: Any) -> None:
    """Links deliver in order, but the order among links is drawn; BSP, so workers wait for what they need."""
    nodes = data.draw(some.integers(2, 4))
    workers = data.draw(some.integers(nodes, 6))
    exchanges = data.draw(some.lists(some.sampled_from((*EXCHANGES, "shards")), min_size=1, max_size=2))
    layout = layout_of(*exchanges, nodes=nodes, workers=workers)
    stores = [StoreNode(layout, number) for number in range(nodes)]
    seed = data.draw(some.integers(0, 2**16))
    draws = np.random.default_rng(seed)
    flying: dict[tuple[int, int], list[Any]] = {}
    at, clocks = dict.fromkeys(range(workers), 0), 3
    totals = [np.zeros((8, 2)) for _ in exchanges]
    every = np.arange(8)
    sent: Counter[tuple[int, int]] = Counter()

    def carry(store: StoreNode) -> None:
        for target, frame in store.frames:
            flying.setdefault((store.number, target), []).append(frame)
            sent[store.number, target] += type(frame.message) is Update
        store.frames.clear()
        store.woken.clear()

    while any(clock < clocks for clock in at.values()):
        links = [link for link, frames in flying.items() if frames]
        moves: list[Any] = [*links, *(worker for worker, clock in at.items() if clock < clocks)]
        move = moves[draws.integers(len(moves))]
        if isinstance(move, tuple):
            source, target = move
            stores[target].receive(0.0, source, flying[move].pop(0))
            carry(stores[target])
            continue
        store = stores[layout.node_of(move)]
        fresh = True
        for table in range(len(exchanges)):
            out = np.empty((8, 2))
            fresh = store.read(0.0, move, table, every, out) and fresh
            carry(store)
        if fresh:
            for table, total in enumerate(totals):
                keys = np.unique(draws.integers(0, 8, 3))
                change = draws.standard_normal((len(keys), 2)).astype("f4").astype("f8")
                store.add(0.0, move, table, keys, change)
                total[keys] += change
            store.tick(0.0, move)
            at[move] += 1
            carry(store)
    while any(flying.values()):
        link = next(link for link, frames in flying.items() if frames)
        stores[link[1]].receive(0.0, link[0], flying[link].pop(0))
        carry(stores[link[1]])
    for table, (how, total) in enumerate(zip(exchanges, totals, strict=True)):
        if how == "shards":
            continue
        found = []
        for store in stores:
            assert store.shard.clock == clocks
            keys, values = store.shard.table(table)
            found.append(values[np.argsort(keys)].tobytes() if len(keys) == 8 else b"")
            rows = np.zeros((8, 2))
            rows[keys] = values
            assert np.allclose(rows, total)
        assert len(set(found)) == 1
    if set(exchanges) == {"ring"}:
        assert {link for link, count in sent.items() if count} == {(n, (n + 1) % nodes) for n in range(nodes)}
        for node in range(nodes):  # the changes of all nodes but the next one pass each link
            assert sent[node, (node + 1) % nodes] == sum(
                3 * len(layout.workers_of(other)) * len(exchanges)
                for other in range(nodes)
                if other != (node + 1) % nodes
            )


# -- drawn fault schedules ---------------------------------------------------------------------------------------------


def mirrored(monkeypatch: pytest.MonkeyPatch, seen: Counter[str]) -> None:
    """Have every additive table with a number of rows mirrored, alternately in both ways."""
    plain = TableJob.layout

    def layout(self: TableJob, nodes: int, *, reserve: bool = False) -> Layout:
        found = plain(self, nodes, reserve=reserve)
        if nodes == 1:
            return found
        tables = [
            replace(table, exchange=EXCHANGES[(k + self.seed) % 2])
            if table.apply.additive and table.rows is not None
            else table
            for k, table in enumerate(found.tables)
        ]
        seen.update(table.exchange for table in tables)
        return replace(found, tables=tuple(tables))

    monkeypatch.setattr(TableJob, "layout", layout)


@pytest.mark.parametrize("rule", [BSP(), SSP(1), ASP()], ids=repr)
@pytest.mark.parametrize("crashes", [0, 1])
def test_fault_schedules(rule: Any, crashes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Delays, resets, stalls and crashes: the replay checker finds every update once; BSP has the serial bits."""
    seen: Counter[str] = Counter()
    mirrored(monkeypatch, seen)
    for seed in range(14):
        run_schedule(draw(seed, rule=rule, policy=Eager(), crashes=crashes, clocks=4))
    assert min(seen[how] for how in EXCHANGES) >= 5


def test_a_node_that_passes_nothing_on_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same schedules with a planted mistake fail: these tests can."""
    mirrored(monkeypatch, Counter())
    monkeypatch.setattr(Ring, "passes_to", lambda self, update: None)
    failed = 0
    for seed in range(14):
        try:
            run_schedule(draw(seed, rule=BSP(), policy=Eager(), crashes=0, clocks=4))
        except Exception:
            failed += 1
    assert failed > 1
