"""Gaps, steps and instructions: whatever is chosen for a gap, the program can be followed and costs what was said."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_graphs import Builder, chain, cnn, random_graphs
from stretto.memory.planner.graph import Graph
from stretto.memory.planner.idle_intervals import DROP, KEEP, SWAP, find_idle_intervals
from stretto.memory.planner.instructions import EVICT, FREE, IN, OUT, READY, RECOMPUTE, RUN, total
from stretto.memory.planner.lower import lower
from stretto.memory.planner.program import HostLink, account
from stretto.memory.planner.residency import resident_at
from stretto.memory.planner.timeline import build_timeline, nothing_kept

LINK = HostLink(50_000, 50_000, 1e-4)


@given(random_graphs, st.integers(0, 2**32 - 1), st.sampled_from(["any", "swap", "drop"]), st.booleans())
def test_any_choice_gives_a_program_that_can_be_followed(graph: Graph, seed: int, kind: str, place: bool) -> None:
    intervals = find_idle_intervals(graph, place=place)
    if kind == "any":
        choice = np.random.default_rng(seed).integers(0, 3, len(intervals))
    else:
        choice = np.full(len(intervals), SWAP if kind == "swap" else DROP)
    choice = np.where((choice == DROP) & ~intervals.droppable, KEEP, choice)
    steps = build_timeline(intervals, choice.tolist())
    for extra in (0, 30, 10**6):
        lowered = lower(graph, steps, steps.peak + extra, LINK)
        costs = account(lowered.program, LINK)  # raises where it cannot be followed
        assert costs.peak <= steps.peak + extra
        assert costs.seconds == pytest.approx(lowered.seconds)
        away = {*lowered.program.on_host, *(which for what, which in lowered.program.instructions if what == OUT)}
        assert max((intervals.sizes[s] for s in away), default=0) <= costs.host <= sum(intervals.sizes[s] for s in away)
        if extra == 0:
            assert costs.peak == steps.peak


@given(random_graphs)
def test_nothing_needs_less_than_having_everything_away(graph: Graph) -> None:
    intervals = find_idle_intervals(graph)
    steps = build_timeline(intervals, [SWAP] * len(intervals))
    least = [
        sum(intervals.sizes[s] for s in {*node.reads, *node.writes, *node.makes}) + node.workspace
        for node in graph.nodes
    ]
    assert steps.required[:-1].tolist() == least


def test_a_chain_is_gone_through_once_and_its_storages_stay() -> None:
    intervals = find_idle_intervals(chain(6))
    steps = build_timeline(intervals, [DROP if d else KEEP for d in intervals.droppable])
    again = [n for kind, n in zip(steps.kind, steps.node, strict=True) if kind == RECOMPUTE]
    assert again == [0, 1, 2, 3]  # what f4 and f5 made is wanted again at once


def test_a_chain_of_ten_thousand_is_no_deeper_for_python() -> None:
    intervals = find_idle_intervals(chain(10_000))
    steps = build_timeline(intervals, [DROP if d else KEEP for d in intervals.droppable])
    assert (steps.kind == RECOMPUTE).sum() == 9_998


def test_what_does_not_fit_beside_the_steps_waits() -> None:
    """Free space for the copies makes them hide; none makes the device wait, and nothing else changes."""
    graph = chain(8, nbytes=100, seconds=1e-2)
    intervals = find_idle_intervals(graph)
    steps = build_timeline(intervals, [SWAP] * len(intervals))
    tight = account(lower(graph, steps, steps.peak, LINK).program, LINK)
    roomy = account(lower(graph, steps, steps.peak + 300, LINK).program, LINK)
    assert tight.waited > 0.01
    assert roomy.waited < 0.2 * tight.waited
    assert roomy.bytes_out == tight.bytes_out


def test_a_parameter_on_the_host_is_copied_back_only_if_it_changed() -> None:
    build = Builder()
    w, v, x = build.store(10, "parameter"), build.store(10, "parameter"), build.store(1, "input")
    y, z = build.store(1), build.store(1)
    build.node("first", (x,), (y,))
    build.node("uses w", (y, w), (z,))
    build.node("writes v", (z, v), (), writes=(v,))
    graph = build.graph()
    intervals = find_idle_intervals(graph)
    steps = build_timeline(intervals, [SWAP] * len(intervals))
    program = lower(graph, steps, 100, LINK).program
    assert program.on_host == {w, v}
    moves = [(what, which) for what, which in program.instructions if which in (w, v) and what not in (RUN, RECOMPUTE)]
    assert sorted(moves) == sorted([(IN, w), (READY, w), (FREE, w), (IN, v), (READY, v), (OUT, v), (EVICT, v)])


def test_what_an_update_has_changed_is_not_read_to_make_anything_again() -> None:
    build = Builder()
    w, x, y, z, end = (build.store(8, kind) for kind in ("parameter", "input", "activation", "activation", "result"))
    build.node("mm", (x, w), (y,))
    build.node("use", (y,), (z,))
    build.node("update", (z, w), (), writes=(w,), phase="update")
    build.node("late", (y, z), (end,))
    intervals = find_idle_intervals(build.graph((end,)))
    interval = {int(s): bool(d) for s, d in zip(intervals.storage, intervals.droppable, strict=True)}
    assert interval[y] is False  # its gap ends after the update


def test_an_output_nobody_wants_is_given_up_at_once() -> None:
    build = Builder()
    x, a, b, c, d = (build.store(8, "input" if not n else "activation") for n in range(5))
    build.node("two", (x,), (a, b))
    build.node("use a and b", (a, b), (c,))
    build.node("other", (c,), (d,))
    build.node("late", (a, d, x), ())
    graph = build.graph()
    intervals = find_idle_intervals(graph)
    steps = build_timeline(intervals, [DROP if drop else KEEP for drop in intervals.droppable])
    program = lower(graph, steps, 1000, LINK).program
    at = program.instructions.index((RECOMPUTE, 0))
    assert program.instructions[at + 1] == (FREE, b)
    assert total(program.instructions, RECOMPUTE) == 1


def test_an_input_is_kept_for_what_is_made_again_from_it() -> None:
    build = Builder()
    x, a, b, c = build.store(1, "input"), build.store(50), build.store(1), build.store(1)
    build.node("big", (x,), (a,))
    build.node("small", (a,), (b,))
    build.node("other", (b,), (c,))
    build.node("late", (a, c), ())
    intervals = find_idle_intervals(build.graph())
    kept_until = nothing_kept(intervals)
    steps = build_timeline(intervals, [DROP if drop else KEEP for drop in intervals.droppable], kept_until)
    assert {s: at for s, at in enumerate(kept_until.tolist()) if at >= 0} == {x: 3}
    assert steps.required[2] == 1 + 1 + 1  # x, b and c


def test_what_is_there_is_told_by_kind() -> None:
    graph = cnn(2, nbytes=1000, weight=10)
    intervals = find_idle_intervals(graph)
    program = lower(graph, build_timeline(intervals, [KEEP] * len(intervals)), 10**9, LINK).program
    costs = account(program, LINK)
    node, there = resident_at(program, costs.peak_at)
    assert sum(there.values()) == costs.peak
    assert node in {one.name for one in graph.nodes}
    assert there["parameter"] == 40
    assert sum(resident_at(program, -1)[1].values()) == 1000 + 4 * (10 + 10 + 4096)
