"""Host memory: what is given out is what is taken, and what stays on the device is chosen well."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memory_graphs import Builder, cnn, gpt, random_graphs
from stretto.memory.planner.graph import Graph
from stretto.memory.planner.host_budget import HostBudget, choose_resident, host_options
from stretto.memory.planner.host_slots import places
from stretto.memory.planner.idle_intervals import DROP, KEEP, SWAP, Gaps, find_idle_intervals
from stretto.memory.planner.instructions import IN, OUT, READY, DeviceProgram
from stretto.memory.planner.lower import lower
from stretto.memory.planner.planner import Infeasible, PlannerSettings, make, smallest_budget
from stretto.memory.planner.program import HostLink, account
from stretto.memory.planner.timeline import build_timeline

LINK = HostLink(50_000, 50_000, 1e-4)


def persistent(graph: Graph) -> int:
    return sum(one.nbytes for one in graph.storages if one.persistent)


def movable(intervals: Gaps) -> list[int]:
    return [s for s, one in enumerate(intervals.graph.storages) if one.persistent and intervals.initial[s] >= 0]


def any_program(graph: Graph, seed: int, reuse_window: int) -> DeviceProgram:
    intervals = find_idle_intervals(graph)
    choice = np.random.default_rng(seed).integers(0, 3, len(intervals))
    choice = np.where((choice == DROP) & ~intervals.droppable, KEEP, choice)
    steps = build_timeline(intervals, choice.tolist(), reuse_window=reuse_window)
    peak = steps.peak
    program = lower(graph, steps, peak, LINK).program
    assert account(program, LINK).peak == peak
    return program


@given(random_graphs, st.integers(0, 2**32 - 1), st.sampled_from([0, 3, 1 << 60]))
def test_no_place_is_given_out_twice_at_a_time(graph: Graph, seed: int, reuse_window: int) -> None:
    program = any_program(graph, seed, reuse_window)
    offset, size = places(program)
    count = len(program.instructions)
    spans: list[tuple[int, int, int, int]] = []  # from byte to byte, from instruction to instruction
    for s, at in offset.items():
        one = graph.storages[s]
        mine = [k for k, (what, which) in enumerate(program.instructions) if which == s and what in (OUT, READY)]
        first, last = (-1, count) if one.persistent else (mine[0], mine[-1])
        spans.append((at, at + one.nbytes, first, last))
        assert at + one.nbytes <= size
    for k, (a, b, first, last) in enumerate(spans):
        for c, d, other_first, other_last in spans[:k]:
            assert b <= c or d <= a or last <= other_first or other_last <= first
    assert account(program, LINK).host == size


def test_what_comes_only_for_others_goes_again_if_it_is_wanted_late() -> None:
    build = Builder()
    w = build.store(100, "parameter", "w")
    x = build.store(10, "input", "x")
    h, loss = build.store(50), build.store(1)
    build.node("make", (x, w), (h,))
    build.node("loss", (h,), (loss,))
    others = [build.store(1) for _ in range(10)]
    for k, s in enumerate(others):
        build.node(f"other {k}", (loss,), (s,))
    build.node("want h", (h, loss), ())
    for k in range(10):
        build.node(f"later {k}", (loss,), ())
    build.node("want w", (w, loss), ())
    graph = build.graph((loss,))
    intervals = find_idle_intervals(graph)
    choice = [
        DROP if intervals.storage[g] == h else SWAP if intervals.storage[g] == w else KEEP
        for g in range(len(intervals))
    ]
    loads = []
    for reuse_window in (1 << 60, 3):
        steps = build_timeline(intervals, choice, reuse_window=reuse_window)
        program = lower(graph, steps, steps.peak, LINK).program
        account(program, LINK)
        loads.append(sum(1 for what, which in program.instructions if (what, which) == (IN, w)))
    assert loads == [2, 3]  # at first; to make h again; and once more for itself


def test_what_travels_most_stays_and_equal_ones_are_spread() -> None:
    intervals = find_idle_intervals(gpt(16, 1024, 2048))
    storages, everything = intervals.graph.storages, movable(intervals)
    parameters = sum(intervals.sizes[s] for s in everything if storages[s].kind == "parameter")
    few = choose_resident(intervals, everything, parameters // 2)
    assert parameters // 2 <= sum(intervals.sizes[s] for s in few) <= 0.7 * parameters
    assert all(storages[s].kind == "parameter" for s in few)  # they travel twice a step, state once
    kinds: dict[int, list[int]] = {}
    for s in everything:
        if storages[s].kind == "parameter":
            kinds.setdefault(intervals.sizes[s], []).append(s)
    cut = [(all_of, [s in few for s in all_of]) for all_of in kinds.values() if 0 < sum(s in few for s in all_of) < 16]
    for all_of, stays in cut:  # of a size that is shared out, no half of the step has most of it
        half = len(all_of) // 2
        assert abs(sum(stays[:half]) - sum(stays[half:])) <= 1
    assert choose_resident(intervals, everything, 1 << 60) == frozenset(everything)
    assert choose_resident(intervals, everything, 0) == frozenset()


@pytest.mark.parametrize("share", [0.3, 0.8])
def test_a_host_that_cannot_hold_all_that_lasts(share: float) -> None:
    """Both sides together suffice: what stays on the device, and little more than the least that a step takes."""
    graph = gpt(5, 2048, 2048)
    whole = persistent(graph)
    host = int(share * whole)
    least = smallest_budget(graph, PlannerSettings(0))
    budget = whole - host + int(1.6 * least)
    planned = make(graph, PlannerSettings(budget, host_budget=host))
    assert planned.costs.peak <= budget
    assert planned.costs.host == places(planned.program)[1] <= host
    # Half of a parameter's bytes more on the device than without a bound: it is not slower for that.
    free = make(graph, PlannerSettings(budget))
    assert planned.costs.seconds <= 1.25 * free.costs.seconds


@pytest.mark.slow
def test_a_host_and_a_device_that_are_too_small_together_are_refused() -> None:
    graph = gpt(4, 2048, 2048)
    with pytest.raises(Infeasible) as caught:
        make(graph, PlannerSettings(persistent(graph) // 2, host_budget=persistent(graph) // 3))
    assert caught.value.side == "host"
    enough = caught.value.smallest
    assert make(graph, PlannerSettings(persistent(graph) // 2, host_budget=enough)).costs.host <= enough


@settings(max_examples=20)
@given(random_graphs, st.integers(0, 400), st.integers(0, 400))
def test_rooms_never_promise_more_than_there_is(graph: Graph, budget: int, limit: int) -> None:
    intervals = find_idle_intervals(graph)
    for rooms in host_options(intervals, budget, limit):
        if rooms.limit is None:
            continue
        choice = np.zeros(len(intervals), np.int8)
        for g in range(len(intervals)):
            if rooms.fits(g, droppable=bool(intervals.droppable[g])):
                rooms.reserve(g)
                choice[g] = SWAP
        most = rooms.host_copy_bytes + int(rooms.used.max())
        assert most <= limit
        assert not any(choice[rooms.resident_intervals()])
        rooms.recount(choice)
        assert rooms.host_copy_bytes + int(rooms.used.max()) == most


def test_small_things_stay_where_large_ones_can_go() -> None:
    """Thousands of copies of a few bytes would each take as long as a large one."""
    graph = cnn(12, 100 << 20, 512, conv=1e-3)
    whole = make(graph, PlannerSettings(1 << 60, policy="keep")).costs
    planned = make(graph, PlannerSettings(int(0.35 * whole.peak)))
    copied = [graph.storages[which].nbytes for what, which in planned.program.instructions if what == OUT]
    assert copied
    assert min(copied) > 1 << 20


def test_rooms_without_a_bound_have_room() -> None:
    intervals = find_idle_intervals(cnn(2))
    assert all(HostBudget(intervals, None).fits(g, droppable=True) for g in range(len(intervals)))
