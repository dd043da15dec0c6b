"""The orders in which the nodes of a graph may run."""

from __future__ import annotations

import pytest
from hypothesis import given

from memory_graphs import Builder, chain, cnn, random_graphs
from stretto.memory.planner.graph import Graph
from stretto.memory.planner.order import ORDERS, deep_levels, depth_first, heights, levels, updates_early


@pytest.mark.parametrize("name", sorted(ORDERS))
@given(graph=random_graphs)
def test_every_order_keeps_what_must_come_before(name: str, graph: Graph) -> None:
    order = ORDERS[name](graph)
    assert sorted(order) == list(range(len(graph.nodes)))
    place = {n: i for i, n in enumerate(order)}
    for n, before in enumerate(graph.dependencies()):
        assert all(place[m] < place[n] for m in before)
    graph.reordered(order).check()


def test_an_update_comes_right_after_the_last_that_it_waits_for() -> None:
    graph = cnn(3)
    ordered = graph.reordered(updates_early(graph))
    names = [node.name for node in ordered.nodes]
    assert names.count("sgd") == 6
    assert all(names[i - 1] == "dconv" for i, name in enumerate(names) if name == "sgd")
    assert [name for name in names if name != "sgd"] == [node.name for node in graph.nodes if node.name != "sgd"]


def two_branches(length: int) -> Graph:
    """A source, two chains written in turns, and a node that joins them."""
    build = Builder()
    source = build.store(1, "input")
    ends = [source, source]
    for n in range(length):
        for branch in range(2):
            new = build.store(1)
            build.node(f"{'ab'[branch]}{n}", (ends[branch],), (new,))
            ends[branch] = new
    joined = build.store(1)
    build.node("join", tuple(ends), (joined,))
    return build.graph((joined,))


def names_of(graph: Graph, order: list[int]) -> list[str]:
    return [graph.nodes[n].name for n in order]


def test_depth_first_runs_a_branch_to_its_end_and_levels_run_all_at_once() -> None:
    graph = two_branches(3)
    assert names_of(graph, depth_first(graph)) == ["a0", "a1", "a2", "b0", "b1", "b2", "join"]
    assert names_of(graph, levels(graph)) == ["a0", "b0", "a1", "b1", "a2", "b2", "join"]
    assert heights(graph.dependencies())[:2] == [4, 4]


def test_deep_levels_prefer_the_longer_branch() -> None:
    build = Builder()
    source, root, short, long, last, end = (build.store(1, "input" if not n else "activation") for n in range(6))
    build.node("root", (source,), (root,))
    build.node("short", (root,), (short,))
    build.node("long", (root,), (long,))
    build.node("last", (long,), (last,))
    build.node("end", (short, last), (end,))
    graph = build.graph((end,))
    assert names_of(graph, deep_levels(graph)) == ["root", "long", "last", "short", "end"]
    assert names_of(graph, depth_first(graph)) == ["root", "short", "long", "last", "end"]


def test_a_chain_has_one_order() -> None:
    graph = chain(5)
    assert all(make(graph) == list(range(10)) for make in ORDERS.values())
