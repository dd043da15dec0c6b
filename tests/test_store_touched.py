"""Columns that are kept from run to run: only what was used is reset."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as draws

from stretto.comm.messages import Fetch, NodeClock, Rows, Update
from stretto.consistency.rules import BSP
from stretto.store.cache.pool import Pool
from stretto.store.layout import Layout, TableSpec
from stretto.store.local.holdings import ChunkPartition
from stretto.store.shard.functions import add
from stretto.store.shard.shard import Shard
from stretto.store.shard.table import KeyedRows
from stretto.store.touched import TouchedRows

ROWS = 20_000


@given(draws.integers(1, 30_000), draws.data())
def test_a_reset_covers_all_marked_rows(rows: int, data: Any) -> None:
    marked = np.array(data.draw(draws.lists(draws.integers(0, rows - 1), max_size=20)), np.int64)
    columns = np.full(rows, -1), np.zeros((rows, 2), np.uint8)
    touched = TouchedRows(rows)
    for column in columns:
        column[marked] = 7
    touched.mark(marked)
    assert touched.reset((columns[0], -1), (columns[1], 0)) <= rows
    assert (columns[0] == -1).all()
    assert not columns[1].any()
    assert touched.reset((columns[0], 5)) == 0  # nothing is marked any more
    assert (columns[0] == -1).all()


def layout(shards: list[int], nodes: int = 3) -> Layout:
    partition = ChunkPartition(13, np.array(shards))
    table = TableSpec("w", add, rows=ROWS, dtype="f8", partition=partition)
    return Layout((table,), nodes=nodes, workers=nodes, rule=BSP(), reserve=True)


def test_a_pool_begins_again_as_new_under_another_partition() -> None:
    pool = Pool(layout([0, 1, 2]), 0)
    requested = np.array([3, 9000, ROWS - 1])
    pool.requested(requested, 4)
    pool.through[requested] = 4
    pool.held = 3
    for shards, nodes in (([0, 2, 2], 3), ([1, 2, 0], 3), ([1, 0, 0], 2)):
        assert pool.begin_again(layout(shards, nodes))
        new = Pool(layout(shards, nodes), 0)
        assert pool.held == 0
        for name in ("through", "pending", "shard"):
            np.testing.assert_array_equal(getattr(pool, name), getattr(new, name))


def test_a_shard_starts_without_the_holders_of_the_last_run() -> None:
    """A row that node 1 held in an earlier run, and that it has not read in this one, is not sent to it."""
    rows = KeyedRows(np.zeros((ROWS, 1)), np.arange(ROWS), {})
    keys = np.array([5, 12_000])
    for run in range(2):
        shard = Shard(layout([0, 0, 0]), 0, {0: rows})
        answers = shard.receive(Fetch(1, 0, keys, 0)) if not run else []
        assert len(answers) == (not run)
        shard.receive(Update(0, 0, 1, 0, 0, keys, np.ones((2, 1)), 0, running=True))
        sent = [message for node in range(3) for _, message in shard.receive(NodeClock(node, 1))]
        assert len([message for message in sent if isinstance(message, Rows)]) == (not run)
    np.testing.assert_array_equal(rows.values[keys, 0], [2.0, 2.0])
