"""Checkpoints beyond a storage's last use, plans that start from them, and which copies a plan waits for."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memory_graphs import Builder, gpt, random_graphs
from stretto.memory.planner.copy_delays import delays
from stretto.memory.planner.from_checkpoints import _spread
from stretto.memory.planner.graph import Graph, Node, Storage
from stretto.memory.planner.idle_intervals import DROP, KEEP, SWAP, find_idle_intervals
from stretto.memory.planner.instructions import IN, OUT, total
from stretto.memory.planner.lower import lower
from stretto.memory.planner.planner import PlannerSettings, make, smallest_budget
from stretto.memory.planner.program import HostLink, account
from stretto.memory.planner.timeline import build_timeline

LINK = HostLink(50_000, 50_000, 1e-4)


def blocks(count: int, *, small: int = 100, large: int = 300) -> Graph:
    """Blocks x → a → b → x whose gradients want a and b, but not x: the input of a block is wanted only to recompute
    what is inside of it."""
    build = Builder()
    x = build.store(small, "input")
    inside = []
    for k in range(count):
        a, b, after = build.store(large), build.store(large), build.store(small)
        build.node(f"a{k}", (x,), (a,))
        build.node(f"b{k}", (a,), (b,))
        build.node(f"x{k}", (x, b), (after,))
        inside.append((a, b))
        x = after
    for k in range(count - 1, -1, -1):
        grad = build.store(small, "gradient")
        build.node(f"g{k}", (x, *inside[k]), (grad,), 2e-3, phase="backward")
        x = grad
    return build.graph((x,))


def per_block(graph: Graph, count: int) -> tuple[int, float]:
    """Bytes and seconds when the inputs of blocks are kept and everything in a block is recomputed."""
    intervals = find_idle_intervals(graph, extend=True)
    names = [graph.nodes[graph.maker[s]].name if graph.maker[s] >= 0 else "" for s in intervals.storage]
    first_gradient = next(n for n, node in enumerate(graph.nodes) if node.phase == "backward")
    inside = intervals.covering(first_gradient) & np.array([name[:1] in ("a", "b") for name in names])
    checkpoint = intervals.extended & np.array([name[:1] == "x" for name in names])
    choice = np.where(inside, DROP, np.where(checkpoint, KEEP, intervals.uniform(KEEP)))
    steps = build_timeline(intervals, choice.tolist())
    return steps.peak, lower(graph, steps, 1 << 60, LINK).seconds


def test_the_input_of_a_block_has_a_gap_up_to_the_last_recomputation() -> None:
    graph = blocks(4)
    intervals = find_idle_intervals(graph, extend=True)
    ends = {
        graph.nodes[graph.maker[intervals.storage[g]]].name: int(intervals.end[g])
        for g in np.flatnonzero(intervals.extended)
    }
    # x0 is the input of block 1, whose gradient is the third of four, after twelve operations forward.
    assert ends["x0"] == 14
    assert ends["x1"] == 13
    assert not find_idle_intervals(graph).extended.any()


@pytest.mark.parametrize("slow", [1.0, 1e3])
def test_no_plan_is_slower_than_checkpoints_around_blocks(slow: float) -> None:
    for count in (6, 24):
        graph = blocks(count)
        budget, seconds = per_block(graph, count)
        whole = make(graph, PlannerSettings(1 << 60, policy="keep")).costs
        assert budget < 0.7 * whole.peak
        planned = make(graph, PlannerSettings(budget, HostLink(50_000 / slow, 50_000 / slow, 1e-4)))
        assert planned.costs.peak <= budget
        assert planned.costs.seconds <= 1.001 * seconds


@settings(max_examples=60)
@given(graph=random_graphs, seed=st.integers(0, 10**6))
def test_any_choice_with_checkpoints_can_be_followed(graph: Graph, seed: int) -> None:
    intervals = find_idle_intervals(graph, extend=True)
    rng = np.random.default_rng(seed)
    choice = rng.choice([KEEP, SWAP, DROP], len(intervals))
    choice = np.where((choice == DROP) & ~intervals.droppable & ~intervals.extended, KEEP, choice)
    steps = build_timeline(intervals, choice.tolist())
    least = steps.peak
    assert account(lower(graph, steps, least, LINK).program, LINK).peak <= least


def test_a_checkpoint_can_wait_on_the_host() -> None:
    graph = blocks(4)
    intervals = find_idle_intervals(graph, extend=True)
    inside = intervals.droppable & ~intervals.extended
    for there, copies in ((KEEP, 0), (SWAP, 3)):
        choice = np.where(inside, DROP, np.where(intervals.extended, DROP, KEEP))
        inputs = [
            g
            for g in np.flatnonzero(intervals.extended)
            if graph.nodes[graph.maker[intervals.storage[g]]].name[0] == "x"
        ]
        choice[inputs] = there
        program = lower(graph, build_timeline(intervals, choice.tolist()), 1 << 60, LINK).program
        assert account(program, LINK)
        assert total(program.instructions, OUT) == total(program.instructions, IN) == copies


def test_seconds_waited_belong_to_the_copies_before() -> None:
    """Two storages leave while one operation runs, and come back for the next two: the second waits for both."""
    storages = (Storage(10, "input"), Storage(100, "activation"), Storage(100, "activation"), Storage(1, "activation"))
    nodes = (
        Node("make", (0,), (1, 2), seconds=1.0),
        Node("other", (0,), (3,), seconds=1.0),
        Node("late", (1, 3), seconds=1.0),
        Node("later", (2, 3), seconds=1.0),
    )
    graph, link = Graph(storages, nodes), HostLink(out=1000.0, into=100.0, latency=0.0)
    intervals = find_idle_intervals(graph)
    away = np.isin(intervals.storage, [1, 2])
    steps = build_timeline(intervals, np.where(away, SWAP, KEEP).tolist())
    least = steps.peak
    found = delays(intervals, steps, lower(graph, steps, least, link), link)
    waited = account(lower(graph, steps, least, link).program, link).waited
    assert waited > 0
    assert found[away].max() <= waited + 1e-9
    assert found[away].sum() >= waited - 1e-9
    assert not found[~away].any()
    easy = lower(graph, steps, 1 << 40, HostLink(1e9, 1e9, 0.0))
    assert delays(intervals, steps, easy, HostLink(1e9, 1e9, 0.0)).sum() == pytest.approx(0.0, abs=1e-6)


def test_numbers_are_spread() -> None:
    assert _spread(4).tolist() == [0, 2, 1, 3]
    assert sorted(_spread(11).tolist()) == list(range(11))


def test_a_transformer_at_a_small_budget_does_not_wait_for_the_link() -> None:
    graph = gpt(12, 1024, 16384)
    whole = make(graph, PlannerSettings(1 << 60, policy="keep")).costs
    low = smallest_budget(graph, PlannerSettings(0))
    costs = make(graph, PlannerSettings(max(int(0.2 * whole.peak), int(1.3 * low)))).costs
    assert costs.waited < 0.25 * whole.seconds
    assert costs.seconds < 1.6 * whole.seconds
