"""Whole plans: they fit, they cost what they say, and they are close to the best there is."""

from __future__ import annotations

import time
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from memory_brute import fastest
from memory_graphs import chain, cnn, gpt, random_graph, random_graphs
from stretto.errors import PlanError
from stretto.memory.planner.graph import Graph
from stretto.memory.planner.idle_intervals import find_idle_intervals
from stretto.memory.planner.instructions import OUT, RECOMPUTE, total
from stretto.memory.planner.order import updates_early
from stretto.memory.planner.planner import Infeasible, PlannedProgram, PlannerSettings, make, smallest_budget
from stretto.memory.planner.program import HostLink, account

LINK = HostLink(50_000, 50_000, 1e-4)
KINDS: dict[str, dict[str, object]] = {
    "all": {},
    "no swap": {"swap": False},
    "no recompute": {"recompute": False},
    "no place": {"place": False},
    "neither": {"swap": False, "recompute": False},
    "dissertation": {"policy": "dissertation", "partition": 3},
    "dissertation, no place": {"policy": "dissertation", "partition": 3, "place": False},
}


def plain(graph: Graph, link: HostLink = LINK) -> PlannedProgram:
    return make(graph, PlannerSettings(1 << 60, link, policy="keep"))


def between(graph: Graph, share: float, how: PlannerSettings) -> int:
    """A budget between the smallest possible (0) and what the plain order needs (1)."""
    low, high = smallest_budget(graph, how), plain(graph).costs.peak
    return low + int(share * max(0, high - low))


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=15)
@given(graph=random_graphs, share=st.sampled_from([0.0, 0.1, 0.4, 0.8, 1.0]))
def test_a_plan_fits_and_costs_what_it_says(kind: str, graph: Graph, share: float) -> None:
    how = PlannerSettings(0, LINK, **KINDS[kind])  # type: ignore[arg-type]
    budget = between(graph, share, how)
    planned = make(graph, PlannerSettings(budget, LINK, **KINDS[kind]))  # type: ignore[arg-type]
    assert planned.costs == account(planned.program, LINK)  # which also sees that the results are resident
    assert planned.costs.peak <= budget
    if kind in ("no swap", "neither"):
        assert planned.costs.bytes_out == 0
    if kind in ("no recompute", "neither") or kind.startswith("dissertation"):
        assert total(planned.program.instructions, RECOMPUTE) == 0
    if kind.endswith("no place"):
        assert not planned.program.on_host


@pytest.mark.parametrize("kind", ["all", "no swap", "no place", "dissertation"])
@settings(max_examples=10)
@given(graph=random_graphs)
def test_a_refusal_names_the_smallest_budget_and_what_is_there(kind: str, graph: Graph) -> None:
    how = KINDS[kind]
    small = smallest_budget(graph, PlannerSettings(0, LINK, **how))  # type: ignore[arg-type]
    # Without swaps the smallest is searched for, and some budget below it may still have a plan; below what the
    # hungriest node needs none has.
    below = (smallest_budget(graph, PlannerSettings(0, LINK)) if kind == "no swap" else small) - 1
    if below < 0:
        return
    with pytest.raises(Infeasible) as caught:
        make(graph, PlannerSettings(below, LINK, **how))  # type: ignore[arg-type]
    refusal = caught.value
    assert (refusal.smallest, refusal.side) == (small, "device")
    assert sum(refusal.resident.values()) <= small
    assert refusal.node in {node.name for node in graph.nodes} | {"the end of the step"}
    assert make(graph, PlannerSettings(small, LINK, **how)).costs.peak <= small  # type: ignore[arg-type]


def test_the_message_of_a_refusal_says_what_to_do() -> None:
    graph = gpt(2)
    with pytest.raises(
        PlanError, match=r"no plan fits budget=1\.0 GiB: the smallest that fits is .* GiB, because of dloss"
    ) as e:
        make(graph, PlannerSettings(1 << 30))
    assert "pass budget=" in str(e.value)


def test_the_host_can_bind_too() -> None:
    graph = chain(30, 100, 1e-4)
    budget = smallest_budget(graph, PlannerSettings(0, LINK))
    assert make(graph, PlannerSettings(budget, LINK, recompute=False)).costs.host == 2900
    with pytest.raises(Infeasible, match="host_budget=1000 B") as caught:
        make(graph, PlannerSettings(budget, LINK, recompute=False, host_budget=1000))
    assert caught.value.side == "host"
    assert (
        make(graph, PlannerSettings(budget, LINK, recompute=False, host_budget=caught.value.smallest)).costs.peak
        <= budget
    )


def test_a_small_host_is_for_what_cannot_be_made_again() -> None:
    """Parameters and state take most of the memory; activations must be recomputed instead of swapped."""
    graph = gpt(12, 2048, 4096)
    persistent = sum(one.nbytes for one in graph.storages if one.persistent)
    budget = int(0.6 * persistent) + plain(graph, HostLink()).costs.peak // 6
    planned = make(graph, PlannerSettings(budget, host_budget=int(0.5 * persistent)))
    assert planned.costs.peak <= budget
    assert planned.costs.host <= 0.5 * persistent
    assert planned.costs.repeated > 0


@settings(max_examples=12)
@example(random_graph(3142, 7), 0)  # whose plan was found only when the host was ignored
@given(random_graphs, st.integers(0, 80))
def test_a_refusal_for_the_host_names_a_host_budget_that_is_enough(graph: Graph, host: int) -> None:
    budget = between(graph, 0.3, PlannerSettings(0, LINK))
    try:
        make(graph, PlannerSettings(budget, LINK, host_budget=host))
    except Infeasible as refusal:
        side, enough = refusal.side, refusal.smallest
    else:
        side, enough = "host", host
    assert side == "host"
    assert enough >= host
    planned = make(graph, PlannerSettings(budget, LINK, host_budget=enough))
    assert planned.costs.peak <= budget
    assert planned.costs.host <= enough


@given(st.integers(0, 10**6), st.integers(2, 8), st.sampled_from(["all", "no swap", "no recompute"]))
@settings(max_examples=25)
def test_small_graphs_against_every_choice(seed: int, count: int, kind: str) -> None:
    graph = random_graph(seed, count)
    _against_every_choice(graph, kind, 1.5)


def test_a_single_gap_that_must_be_made_again_is_found() -> None:
    _against_every_choice(random_graph(851, 5), "no swap", 1.5)  # making a second one again takes more than it gives


@pytest.mark.parametrize("kind", ["all", "no swap", "no recompute"])
@pytest.mark.parametrize("seconds", [1e-4, 1e-3, 1e-2])
def test_chains_against_every_choice(seconds: float, kind: str) -> None:
    for length in (1, 3, 6):
        _against_every_choice(chain(length, 100, seconds), kind, 1.5)


def _against_every_choice(graph: Graph, kind: str, factor: float) -> None:
    intervals = find_idle_intervals(graph.reordered(updates_early(graph)))
    if len(intervals) > 6:
        return
    low, high = smallest_budget(graph, PlannerSettings(0, LINK)), plain(graph).costs.peak
    budgets = [low + int(share * max(0, high - low)) for share in (0.0, 0.2, 0.5, 0.8)]
    for budget, best in zip(budgets, fastest(intervals, budgets, LINK, **KINDS[kind]), strict=True):  # type: ignore[arg-type]
        how = PlannerSettings(budget, LINK, **KINDS[kind])  # type: ignore[arg-type]
        if best is None:
            with pytest.raises(Infeasible):
                make(graph, how)
        else:
            assert make(graph, how).costs.seconds <= factor * best


def test_a_chain_without_swaps_needs_about_twice_the_root_of_its_length() -> None:
    for length in (25, 64):
        small = smallest_budget(chain(length, 100), PlannerSettings(0, swap=False))
        assert small <= 100 * (2.2 * np.sqrt(length) + 3)
        planned = make(chain(length, 100), PlannerSettings(small, swap=False))
        assert planned.costs.seconds <= 1.5 * plain(chain(length, 100)).costs.seconds  # every node twice at the most


def test_swaps_that_hide_cost_nothing() -> None:
    graph = chain(50, 100, 1e-2)  # a copy takes 2.1 ms
    planned = make(graph, PlannerSettings(1000, LINK))
    assert planned.costs.seconds == pytest.approx(plain(graph).costs.seconds)
    assert total(planned.program.instructions, OUT) > 30
    assert total(planned.program.instructions, RECOMPUTE) == 0


def test_more_memory_is_not_slower() -> None:
    for graph in (chain(30, 100, 1e-3), random_graph(3, 25), cnn(4, 1000, 10, conv=1e-3)):
        low, whole = smallest_budget(graph, PlannerSettings(0, LINK)), plain(graph).costs
        budgets = [low + int(share * (whole.peak - low)) for share in np.linspace(0, 1, 6)]
        times = [make(graph, PlannerSettings(budget, LINK)).costs.seconds for budget in budgets]
        assert all(more <= 1.03 * less for less, more in pairwise(times)), times
        assert times[-1] == pytest.approx(whole.seconds)


@pytest.mark.parametrize(
    ("make_graph", "share", "most"),
    [
        (lambda: gpt(12), 0.35, 1.30),
        (lambda: gpt(12, 4096, 65536), 0.35, 1.10),
        (lambda: cnn(16, 100 << 20, conv=1.5e-3), 0.35, 1.10),
        (lambda: cnn(16, 100 << 20, conv=1.5e-3), 0.15, 1.25),
        (lambda: cnn(24, 100 << 20, conv=0.5e-3), 0.35, 1.20),
    ],
    ids=["gpt", "wide gpt", "cnn", "cnn, small", "fast cnn"],
)
def test_training_steps_at_a_third_of_the_memory(make_graph, share: float, most: float) -> None:  # type: ignore[no-untyped-def]
    graph = make_graph()
    whole = plain(graph, HostLink())
    planned = make(graph, PlannerSettings(int(share * whole.costs.peak)))
    assert planned.costs.peak <= share * whole.costs.peak
    assert planned.costs.seconds <= most * whole.costs.seconds
    assert planned.costs.seconds < 0.8 * make(graph, PlannerSettings(1 << 50, policy="dissertation")).costs.seconds


def test_the_dissertation_loads_a_parameter_for_every_use_and_keeps_none() -> None:
    graph = cnn(8, 1000, 100)
    planned = make(graph, PlannerSettings(1 << 40, LINK, policy="dissertation", partition=5))
    persistent = {s for s, one in enumerate(graph.storages) if one.persistent}
    assert planned.program.on_host == persistent
    parameters = [s for s in persistent if graph.storages[s].kind == "parameter"]
    loads = [which for what, which in planned.program.instructions if what == 5]
    assert all(loads.count(s) == 2 for s in parameters)  # forward; backward and update, which are neighbours
    whole = plain(graph).costs.peak
    staying = make(graph, PlannerSettings(1 << 40, LINK, policy="dissertation", partition=5, place=False))
    assert staying.costs.host < planned.costs.host
    assert not staying.program.on_host
    assert smallest_budget(graph, PlannerSettings(0, LINK, policy="dissertation", partition=5)) < 0.4 * whole


def test_a_smaller_partition_needs_less() -> None:
    graph = gpt(8)
    small, large = (smallest_budget(graph, PlannerSettings(0, policy="dissertation", partition=p)) for p in (5, 60))
    assert small < large


def test_settings_that_make_no_sense_are_refused() -> None:
    for wrong in ({"policy": "worst"}, {"order": "random"}, {"partition": 0}):
        with pytest.raises(PlanError):
            PlannerSettings(1, **wrong)


def _seconds(graph: Graph, share: float) -> float:
    whole = plain(graph, HostLink()).costs
    began = time.process_time()
    planned = make(graph, PlannerSettings(int(share * whole.peak)))
    took = time.process_time() - began
    assert planned.costs.seconds < 1.4 * whole.seconds
    return took


def test_five_thousand_nodes_take_seconds() -> None:
    graph = gpt(166)
    assert 4900 < len(graph.nodes) < 5100
    assert _seconds(graph, 0.35) < 10


@pytest.mark.slow
def test_a_hundred_thousand_nodes_take_two_minutes_at_most() -> None:
    graph = cnn(5600)
    assert len(graph.nodes) > 100_000
    assert _seconds(graph, 0.35) < 120
