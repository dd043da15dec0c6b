"""Cuts of a cluster's tables: put together from parts, taken apart for any number of nodes."""

from __future__ import annotations

import numpy as np

from stretto.consistency.rules import BSP
from stretto.runtime.cluster.tables.array_parts import split, whole
from stretto.store.layout import Layout, TableSpec
from stretto.store.node import NodePart
from stretto.store.shard.functions import add


def layout(nodes: int) -> Layout:
    return Layout((TableSpec("a", add, rows=100, cols=2), TableSpec("b", add)), nodes=nodes, workers=4, rule=BSP())


def part_of(keys: list[int]) -> dict[str, np.ndarray]:
    column = np.array(keys, np.int64)
    arrays = {"clock": np.array(7)}
    for name, width in (("a", 2), ("b", 1)):
        arrays[f"{name}/keys"] = column
        arrays[f"{name}/values"] = np.repeat(column[:, None], width, axis=1).astype(np.float32)
    return arrays


def test_rows_go_to_the_shards_that_any_layout_gives_them() -> None:
    cut = whole(7, [part_of([3, 50, 99]), part_of([4, 20])], [{}, {}])
    for nodes in (1, 2, 3, 5):
        there = layout(nodes)
        parts = split(there, cut)
        assert sorted(parts) == list(range(nodes))
        for table, name in enumerate("ab"):
            keys = np.concatenate([parts[node].shard[f"{name}/keys"] for node in range(nodes)])
            assert sorted(keys) == [3, 4, 20, 50, 99]
            for node in range(nodes):
                mine = parts[node].shard
                assert (there.shard_of(table, mine[f"{name}/keys"]) == node).all()
                np.testing.assert_array_equal(mine[f"{name}/values"][:, 0], mine[f"{name}/keys"])


def test_leftovers_of_nodes_add_up_and_those_of_workers_follow_them() -> None:
    one = {"a/-1/keys": np.array([3, 5]), "a/-1/rows": np.array([[1.0, 2.0], [3.0, 4.0]], np.float32)}
    two = {"a/-1/keys": np.array([5]), "a/-1/rows": np.array([[10.0, 20.0]], np.float32)}
    three = {"b/3/keys": np.array([9]), "b/3/rows": np.array([[0.5]], np.float32)}
    cut = whole(7, [part_of([1])], [one, two, three])
    parts = split(layout(2), cut)
    np.testing.assert_array_equal(parts[0].residuals["a/-1/keys"], [3, 5])
    np.testing.assert_array_equal(parts[0].residuals["a/-1/rows"], [[1, 2], [13, 24]])
    assert "b/3/keys" in parts[1].residuals
    assert isinstance(parts[1], NodePart)
