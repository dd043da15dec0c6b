"""Tables of one process: the rules of clocks, chunks that come later or are on disk, and who holds which chunk."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from stretto.consistency.rules import ASP, BSP, SSP
from stretto.runtime.stages.held_states import HeldState, StateShape
from stretto.store.layout import Layout
from stretto.store.local.changes import DenseChanges, HashedChanges
from stretto.store.local.grid import ChunkGrid
from stretto.store.local.holdings import DRIVER, ChunkPartition, Holdings
from stretto.store.local.node import LocalNode
from stretto.store.local.paged import PRESENT, REMOTE, STORED, PagedTable
from stretto.store.local.table import LocalTable
from stretto.tables.table import Table

RNG = np.random.default_rng(11)


def layout(rule: Any, workers: int, rows: int, cols: int = 2) -> Layout:
    return Layout((Table(rows=rows, cols=cols, dtype="f8").spec("x"),), 1, workers, rule)


def read(node: LocalNode, worker: int, keys: list[int], cols: int = 2) -> Any:
    """The rows, or None where the worker has to wait."""
    out = np.full((len(keys), cols), np.nan)
    return out if node.read(0.0, worker, 0, np.array(keys), out) else None


def add(node: LocalNode, worker: int, keys: list[int], deltas: Any) -> None:
    node.add(0.0, worker, 0, np.array(keys), np.broadcast_to(np.float64(deltas), (len(keys), 2)).copy())


# -- clocks ------------------------------------------------------------------------------------------------------------


def test_bsp_sees_own_changes_and_complete_clocks_only() -> None:
    values = np.zeros((10, 2))
    node = LocalNode(layout(BSP(), 2, 10), [LocalTable(values)])
    add(node, 0, [3, 3], 1.0)
    add(node, 1, [3], 10.0)
    assert read(node, 0, [3]).tolist() == [[2.0, 2.0]]
    assert read(node, 1, [3]).tolist() == [[10.0, 10.0]]
    assert values.any() == False  # noqa: E712
    node.tick(0.0, 0)
    assert read(node, 0, [3]) is None
    assert node.woken == []
    node.tick(0.0, 1)
    assert node.woken == [0]
    assert read(node, 0, [3]).tolist() == [[12.0, 12.0]]


def test_changes_are_applied_in_the_order_of_workers() -> None:
    rounded = np.float64(1e16)
    for first, second in ((0, 1), (1, 0)):  # whoever adds first
        values = np.zeros((1, 2))
        node = LocalNode(layout(BSP(), 3, 1), [LocalTable(values)])
        deltas = {0: rounded, 1: 1.0, 2: -rounded}
        for worker in (first, second, 2):
            add(node, worker, [0], deltas[worker])
        for worker in (second, 2, first):
            node.tick(0.0, worker)
        assert values[0, 0] == (rounded + 1.0) - rounded  # not 1.0


def test_no_thread_reads_while_a_clock_is_being_closed() -> None:
    """A read without the lock, in the middle of the application of the clock's changes, is refused."""
    values = np.zeros((4, 2))
    table = LocalTable(values)
    node = LocalNode(layout(BSP(), 2, 4), [table])
    add(node, 0, [1], 1.0)
    add(node, 1, [1], 2.0)
    node.tick(0.0, 0)
    found = []
    apply = table.apply

    def observed(changes: Any) -> None:
        out = np.empty((1, 2))
        found.append(node.direct.read(0, 0, np.array([1]), out))
        apply(changes)

    table.apply = observed  # type: ignore[method-assign]
    node.tick(0.0, 1)
    assert found == [False, False]
    assert read(node, 0, [1]).tolist() == [[3.0, 3.0]]


def test_a_clock_may_be_read_when_the_rule_allows_it() -> None:
    for rule, ahead in ((BSP(), 0), (SSP(2), 2), (ASP(), 1000)):
        node = LocalNode(layout(rule, 2, 4), [LocalTable(np.zeros((4, 2)))])
        assert node.may_read(ahead, 0)
        assert node.may_read(ahead + 1, 0) == (ahead == 1000)
        node.tick(0.0, 0)
        node.tick(0.0, 1)
        assert node.may_read(ahead + 1, 0)


def test_ssp_waits_for_slow_workers_and_shows_changes_at_once() -> None:
    values = np.zeros((4, 2))
    node = LocalNode(layout(SSP(1), 2, 4), [LocalTable(values)])
    add(node, 1, [2], 5.0)
    assert read(node, 0, [2]).tolist() == [[5.0, 5.0]]
    node.tick(0.0, 0)
    assert read(node, 0, [2]) is not None
    node.tick(0.0, 0)
    assert read(node, 0, [2]) is None
    node.tick(0.0, 1)
    assert node.woken == [0]
    free = LocalNode(layout(ASP(), 2, 4), [LocalTable(values)])
    for _ in range(5):
        free.tick(0.0, 0)
    assert read(free, 0, [2]) is not None


def test_nobody_waits_for_a_worker_that_has_left() -> None:
    values = np.zeros((4, 2))
    node = LocalNode(layout(BSP(), 2, 4), [LocalTable(values)])
    add(node, 1, [0], 2.0)
    node.leave(0.0, 1)
    node.tick(0.0, 0)
    assert read(node, 0, [0]).tolist() == [[2.0, 2.0]]
    add(node, 0, [0], 1.0)
    node.leave(0.0, 0)
    assert values[0].tolist() == [3.0, 3.0]


@pytest.mark.parametrize("kind", ["dense", "hashed"])
def test_changes_of_a_worker_sum_up_and_are_forgotten(kind: str) -> None:
    changes: Any = DenseChanges(50, 2, np.dtype("f8")) if kind == "dense" else HashedChanges(2, np.dtype("f8"))
    for turn in range(3):
        expected: dict[int, float] = {}
        for _ in range(4):
            keys = RNG.integers(50, size=40)
            deltas = RNG.normal(size=(40, 2))
            changes.add(keys, deltas)
            for key, delta in zip(keys.tolist(), deltas[:, 0].tolist(), strict=True):
                expected[key] = expected[key] + delta if key in expected else delta
        keys, rows = changes.rows()
        assert dict(zip(keys.tolist(), rows[:, 0].tolist(), strict=True)) == expected, turn
        out = np.zeros((50, 2))
        changes.add_to(np.arange(50), out)
        assert out[:, 0].tolist() == [expected.get(key, 0.0) for key in range(50)]
        changes.clear()


# -- chunks ------------------------------------------------------------------------------------------------------------


class Disk:
    """A pager: chunks that were stored, and requests for remote ones."""

    def __init__(self, stored: dict[int, Any]) -> None:
        self.stored, self.asked = stored, list[int]()

    def fetch(self, chunks: list[int]) -> None:
        self.asked += chunks

    def load(self, chunk: int) -> Any:
        return self.stored[chunk].copy()

    def store(self, chunk: int, rows: Any) -> None:
        self.stored[chunk] = rows.copy()


@settings(max_examples=150, deadline=None)
@given(some.data())
def test_a_paged_table_has_the_rows_of_one_in_memory(data: Any) -> None:
    bits, rows = data.draw(some.integers(0, 3)), data.draw(some.integers(1, 40))
    grid, workers = ChunkGrid(rows, bits), 3
    start = RNG.normal(size=(rows, 2))
    remote = np.array(data.draw(some.lists(some.booleans(), min_size=grid.chunks, max_size=grid.chunks)))
    there = {chunk: start[slice(*grid.bounds(chunk))].copy() for chunk in range(grid.chunks)}
    disk = Disk({chunk: there[chunk].copy() for chunk in np.flatnonzero(~remote).tolist()})
    most = data.draw(some.integers(1, grid.chunks))
    paged = PagedTable(grid, 2, np.dtype("f8"), disk, np.where(remote, REMOTE, STORED).astype(np.uint8), None, most)
    plain = LocalTable(start.copy(), grid)
    rule = data.draw(some.sampled_from([BSP(), ASP()]))
    nodes = [LocalNode(layout(rule, workers, rows), [table]) for table in (plain, paged)]
    waiting: dict[int, tuple[Any, Any, Any]] = {}  # reads of the paged table, and what they must give
    for _ in range(data.draw(some.integers(1, 25))):
        what = data.draw(some.sampled_from(["read", "add", "tick", "arrive"]))
        worker = data.draw(some.integers(0, workers - 1))
        if what == "arrive":
            if disk.asked:
                chunk = disk.asked.pop(data.draw(some.integers(0, len(disk.asked) - 1)))
                paged.arrived(chunk, there[chunk])
            for done in [done for done in nodes[1].woken if done in waiting]:
                keys, out, wanted = waiting.pop(done)
                assert nodes[1].read(0.0, done, 0, keys, out)
                assert not rule.exact or np.array_equal(out, wanted)
            nodes[1].woken.clear()
            continue
        if worker in waiting:
            continue
        keys = np.array(data.draw(some.lists(some.integers(0, rows - 1), min_size=1, max_size=6)))
        if what == "read":
            wanted, out = np.empty((len(keys), 2)), np.empty((len(keys), 2))
            allowed = nodes[0].read(0.0, worker, 0, keys, wanted)
            if not allowed:
                assert not nodes[1].read(0.0, worker, 0, keys, out)
            elif nodes[1].read(0.0, worker, 0, keys, out):
                assert np.array_equal(out, wanted)
            else:
                waiting[worker] = keys, out, wanted
        elif what == "add":
            deltas = RNG.normal(size=(len(keys), 2))
            for node in nodes:
                node.add(0.0, worker, 0, keys, deltas)
        elif all(nodes[0].clocks[worker] - other < 1 for other in nodes[0].clocks):
            for node in nodes:
                node.tick(0.0, worker)
    for worker in range(workers):
        for node in nodes:
            node.leave(0.0, worker)
    while disk.asked:
        chunk = disk.asked.pop()
        paged.arrived(chunk, there[chunk])
    assert paged.settled
    assert (paged.where == PRESENT).sum() <= most
    paged.flush()
    for chunk in range(grid.chunks):
        first, end = grid.bounds(chunk)
        found = there[chunk] if paged.where[chunk] == REMOTE else disk.stored[chunk]
        assert np.array_equal(found, plain.values[first:end])
    assert (paged.dirty == plain.dirty).all()


def test_a_held_state_on_disk_keeps_few_chunks_in_memory() -> None:
    shape = StateShape(1000, 1, "f8", 5)  # chunks of 256 bytes
    held = HeldState(shape, most_bytes=1024)
    values = RNG.normal(size=(1000, 1))
    for chunk in range(shape.grid.chunks):
        held.put(chunk, values[slice(*shape.grid.bounds(chunk))])
    table = held.table()
    assert isinstance(table, PagedTable)
    assert table.values.nbytes == 1024
    keys = RNG.integers(1000, size=300)
    table.add(keys, np.ones((300, 1)))
    expected = values.copy()
    np.add.at(expected, keys, 1.0)
    assert table.replaced > 10
    changed = held.ended(table, shared=False)
    assert changed.tolist() == np.unique(keys >> 5).tolist()
    found = np.concatenate([held.rows(chunk) for chunk in range(shape.grid.chunks)])
    assert np.array_equal(found, expected)
    held.close()


# -- who holds what ----------------------------------------------------------------------------------------------------


@settings(max_examples=200, deadline=None)
@given(some.data())
def test_moves_bring_every_chunk_to_its_holder(data: Any) -> None:
    nodes = list(range(data.draw(some.integers(1, 5))))
    holdings, worlds, fresh = Holdings(), dict[int, dict[tuple[int, int], int]](), dict[tuple[int, int], int]()
    for state in range(data.draw(some.integers(1, 3))):
        grid = ChunkGrid(data.draw(some.integers(1, 30)), data.draw(some.integers(0, 3)))
        holdings.add(state, grid)
        fresh.update({(state, chunk): 0 for chunk in range(grid.chunks)})
    worlds[DRIVER] = dict(fresh)

    def carry(moves: Any) -> None:
        for move in moves:
            assert move.source != move.target
            for chunk in move.chunks.tolist():
                key = move.state, chunk
                assert worlds[move.source][key] == fresh[key]  # the source has the newest rows
                worlds.setdefault(move.target, {})[key] = fresh[key]

    for step in range(1, data.draw(some.integers(1, 12))):
        state = data.draw(some.sampled_from(sorted({key[0] for key in fresh})))
        chunks = sum(key[0] == state for key in fresh)
        what = data.draw(some.sampled_from(["spread", "gather", "upload", "vacate", "collect"]))
        if what == "spread":
            some_nodes = sorted(data.draw(some.sets(some.sampled_from(nodes), min_size=1)))
            before = holdings.holders(state)
            moves = holdings.spread(state, some_nodes)
            carry(moves)
            shares = [(holdings.holders(state) == node).sum() for node in some_nodes]
            assert sum(shares) == chunks
            assert max(shares) - min(shares) <= 1
            kept = sum(min((before == node).sum(), share) for node, share in zip(some_nodes, shares, strict=True))
            assert sum(len(move.chunks) for move in moves) == chunks - kept
        elif what == "vacate" and len(nodes) > 1:
            gone = data.draw(some.sampled_from(nodes))
            nodes = [node for node in nodes if node != gone]
            carry(holdings.vacate(gone, nodes))
            assert not any((holdings.holders(s) == gone).any() for s in {key[0] for key in fresh})
        elif what == "collect":
            carry(holdings.gather(state, DRIVER))
            assert holdings.at_driver(state)
        else:
            node = data.draw(some.sampled_from(nodes))
            carry(holdings.gather(state, node) if what == "gather" else holdings.upload(state, node))
            assert not (holdings.holders(state) == DRIVER).any()
            changed = data.draw(some.sets(some.integers(0, chunks - 1)))
            for chunk in changed:  # a stage on that node changes them
                fresh[state, chunk] = step
                worlds.setdefault(node, {})[state, chunk] = step
            holdings.changed(state, node, sorted(changed))
    for (state, chunk), version in fresh.items():
        assert worlds[int(holdings.holders(state)[chunk])][state, chunk] == version


def test_states_of_lost_nodes_are_named() -> None:
    holdings = Holdings()
    for state in range(3):
        holdings.add(state, ChunkGrid(8, 0))
    holdings.gather(0, 1)
    holdings.spread(1, [0, 2])
    assert holdings.lost([1]) == [0]
    assert holdings.lost([2]) == [1]
    holdings.reset(1)
    assert holdings.lost([0, 1, 2]) == [0]


def test_a_partition_of_chunks_names_the_shard_of_a_key() -> None:
    partition = ChunkPartition(2, np.array([1, 0, 1]))
    assert partition(np.array([0, 3, 4, 7, 8, 11]), 2).tolist() == [1, 1, 0, 0, 1, 1]
