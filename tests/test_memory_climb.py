"""Ways of planning: which are tried, in which order, and how many."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import pytest

from stretto.memory.planner import search
from stretto.memory.planner.graph import Graph, Node, Storage
from stretto.memory.planner.hill_climb import BEGINS, MAX_RUNS, STARTS, WINDOWS, SearchPoint, climb
from stretto.memory.planner.host_budget import HostBudget
from stretto.memory.planner.idle_intervals import find_idle_intervals
from stretto.memory.planner.planner import PlannerSettings, make
from stretto.memory.planner.program import HostLink
from stretto.memory.planner.search import _Attempts
from stretto.memory.planner.timeline import NEVER, build_timeline


def bowl(best: SearchPoint) -> dict[SearchPoint, float]:
    """Prices that grow with every step away from one point."""
    prices = {}
    for window in WINDOWS:
        for max_run in MAX_RUNS:
            for begin in BEGINS:
                for host_use in range(3):
                    for keep_soon, hold in product((False, True), repeat=2):
                        steps = abs(WINDOWS.index(window) - WINDOWS.index(best.window))
                        steps += abs(MAX_RUNS.index(max_run) - MAX_RUNS.index(best.max_run))
                        steps += (begin != best.begin) + (host_use != best.host_use)
                        steps += (keep_soon != best.keep_soon) + (hold != best.hold)
                        prices[SearchPoint(window, max_run, begin, host_use, keep_soon, hold)] = 1.0 + steps
    return prices


@pytest.mark.parametrize(
    "best",
    [SearchPoint(0.0, 0.8, "drop", 2, keep_soon=True, hold=True), SearchPoint(1 / 4, 0.15, "cut"), SearchPoint()],
)
def test_the_best_way_is_found_without_trying_all(best: SearchPoint) -> None:
    prices = bowl(best)
    asked: list[SearchPoint] = []

    def price(point: SearchPoint) -> float:
        asked.append(point)
        return prices[point]

    climb(price, 3, 60, 0.0)
    assert best in asked
    assert len(asked) == len(set(asked)) <= 60
    asked.clear()
    climb(price, 3, 60, 1.0)
    assert asked[-1] == best  # it was enough
    asked.clear()
    climb(price, 3, 4, 0.0)
    assert asked == list(STARTS[:4])


def test_nothing_more_is_tried_when_no_way_has_a_plan() -> None:
    asked: list[SearchPoint] = []

    def price(point: SearchPoint) -> float:
        asked.append(point)
        return float("inf")

    climb(price, 1, 100, 0.0)
    assert len(asked) == len(set(asked)) == len({(p.window, p.max_run, p.begin, p.hold) for p in STARTS})
    assert {point.host_use for point in asked} == {0}


def ladder(layers: int) -> Graph:
    """Layers forward, each with a small result that its backward reads and a large one that can be made from it."""
    storages = [Storage(1, "input")]
    nodes = []
    last = 0
    kept = []
    for k in range(layers):
        small, large = len(storages), len(storages) + 1
        storages += [Storage(40 + 7 * (k % 3), "activation"), Storage(160, "activation")]
        nodes.append(Node(f"f{k}", reads=(last,), makes=(small,), seconds=1.0 + k % 2))
        nodes.append(Node(f"g{k}", reads=(small,), makes=(large,), seconds=0.2))
        kept.append((small, large))
        last = large
    for k, (small, large) in reversed(list(enumerate(kept))):
        storages.append(Storage(50, "gradient"))
        nodes.append(Node(f"b{k}", reads=(last, small, large), makes=(len(storages) - 1,), seconds=2.0))
        last = len(storages) - 1
    return Graph(tuple(storages), tuple(nodes), (last,))


def test_a_plan_is_as_fast_as_that_of_any_way_to_start() -> None:
    graph, link = ladder(24), HostLink(out=60.0, into=60.0, latency=0.0)
    intervals = find_idle_intervals(graph)
    keep = build_timeline(intervals, [0] * len(intervals))
    budget = keep.peak // 5
    tries = _Attempts(intervals, budget, link, keep, swap=True, recompute=True, host=None, first_fit=False)
    alone = [tries.try_point(HostBudget(intervals, None), NEVER, point) for point in STARTS]
    planned = make(graph, PlannerSettings(budget, link=link))
    assert planned.costs.peak <= budget
    fastest = min(one.lowered.seconds for one in alone if one is not None)
    assert planned.costs.seconds <= fastest + 1e-9
    assert len({round(one.lowered.seconds, 6) for one in alone if one is not None}) > 1  # they do differ


def test_larger_steps_have_the_best_plan_that_was_climbed_to(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, asked = ladder(170), dict[SearchPoint, float]()
    assert len(graph.nodes) > search.FEW_NODES

    def few(price: Callable[[SearchPoint], float], host_use: int, max_tries: int, enough: float) -> None:
        for point in (SearchPoint(1 / 4, 0.15, "cut"), SearchPoint(1 / 4, 0.8)):
            asked[point] = price(point)

    intervals = find_idle_intervals(graph)
    how = PlannerSettings(
        build_timeline(intervals, [0] * len(intervals)).peak // 10, link=HostLink(out=60.0, into=60.0, latency=0.0)
    )
    usual = make(graph, how).costs.seconds
    monkeypatch.setattr(search, "TOGETHER", ())  # no plans that start from checkpoints
    monkeypatch.setattr(search, "climb", few)
    planned = make(graph, how).costs.seconds
    assert planned == pytest.approx(min(asked.values()))
    assert planned != pytest.approx(usual)  # which climbs elsewhere
