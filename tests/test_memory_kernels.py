"""The planner's compiled loops give what the same loops give in plain Python."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

import memory_plain_loops as plain
from memory_graphs import random_graph
from stretto.kernels.memory_planner.place import packed
from stretto.memory.planner.decide import Decider
from stretto.memory.planner.idle_intervals import DROP, KEEP, Gaps, Ints, find_idle_intervals
from stretto.memory.planner.instructions import FREE
from stretto.memory.planner.lower import lower
from stretto.memory.planner.program import HostLink, account
from stretto.memory.planner.timeline import NEVER, CannotRepeat, Choices, build_timeline, nothing_kept

LINK = HostLink(50_000, 50_000, 1e-4)


def drawn(seed: int) -> tuple[Gaps, Choices, np.random.Generator]:
    """The gaps of a random step, and choices that can be followed."""
    random = np.random.default_rng(seed)
    graph = random_graph(seed, int(random.integers(3, 30)))
    intervals = find_idle_intervals(graph, place=bool(seed % 3), extend=bool(seed % 2))
    choice = random.integers(0, 3, len(intervals))
    choice = np.where((choice == DROP) & ~intervals.droppable & ~intervals.extended, KEEP, choice)
    choice = np.where(intervals.extended & (random.random(len(intervals)) < 0.6), DROP, choice)
    return intervals, choice.astype(np.int8), random


def listed(*arrays: Ints) -> list[tuple[int, ...]]:
    return list(zip(*(array.tolist() for array in arrays), strict=True))


@pytest.mark.parametrize("first", range(0, 400, 100))
def test_walks_and_lowered_programs_are_those_of_the_plain_loops(first: int) -> None:
    refused = reordered = 0
    for seed in range(first, first + 100):
        intervals, choice, random = drawn(seed)
        reuse_window = int(random.choice([3, NEVER]))
        kept_until, kept = dict[int, int](), nothing_kept(intervals)
        try:
            expected = plain.build_timeline(intervals, choice.tolist(), kept_until, reuse_window)
        except CannotRepeat:
            with pytest.raises(CannotRepeat):
                build_timeline(intervals, choice, kept, reuse_window)
            refused += 1
            continue
        found = build_timeline(intervals, choice, kept, reuse_window)
        assert {s: at for s, at in enumerate(kept.tolist()) if at >= 0} == kept_until
        for name in ("kind", "node", "position", "required"):
            assert getattr(found, name).tolist() == getattr(expected, name), (seed, name)
        freed = Counter(listed(found.free_step, found.free))
        assert freed == Counter((k, s) for k, those in enumerate(expected.frees) for s in those)
        assert listed(found.swap_out, found.swap_out_ready, found.swap_out_free, found.swap_out_by) == [
            (one.storage, one.ready, one.free, one.by) for one in expected.leaves
        ]
        assert listed(found.swap_in, found.swap_in_since, found.swap_in_need) == [
            (one.storage, one.since, one.need) for one in expected.comes
        ]
        touched = [(intervals.interval_at(s, at), at) for s, at in expected.touched]
        assert listed(found.touched, found.touched_at) == [
            (g, at) for g, at in touched if g >= 0 and not intervals.wraps[g]
        ]
        recomputed = [(intervals.interval_at(s, at), at) for s, at in expected.recomputed]
        assert listed(found.recomputed, found.recomputed_at) == [(g, at) for g, at in recomputed if g >= 0]
        assert (found.on_host, found.start) == (expected.on_host, expected.start)
        for extra in (0, 30, 10**6):
            one = lower(intervals.graph, found, found.peak + extra, LINK)
            instructions, seconds = plain.lower(intervals.graph, expected, found.peak + extra, LINK)
            assert one.seconds == seconds
            assert Counter(one.program.instructions) == Counter(instructions)
            rest = [[x for x in each if x[0] != FREE] for each in (one.program.instructions, instructions)]
            assert rest[0] == rest[1]  # what is freed at the same time has no order
            reordered += one.program.instructions != tuple(instructions)
            account(one.program, LINK)
    assert refused < 40
    assert reordered < 150


def test_what_recomputing_takes_is_what_the_plain_loop_finds() -> None:
    asked = possible = 0
    for seed in range(200):
        intervals, choice, random = drawn(2 * seed + 1)
        for hold in (True, False):
            decider = Decider(intervals, LINK, hold=hold)
            decider.choice[:] = choice
            some = random.random(len(decider.kept_until)) < 0.1
            decider.kept_until[some] = random.integers(0, len(intervals.graph.nodes), int(some.sum()))
            which = np.flatnonzero(intervals.droppable)
            expected = [plain.recompute_cost(decider, g) for g in which.tolist()]
            assert [decider.recompute_cost(g) for g in which.tolist()] == expected
            decider.price_recompute(which)
            assert decider.recompute_seconds_of[which].tolist() == [
                np.inf if x is None else x.seconds for x in expected
            ]
            asked, possible = asked + len(which), possible + sum(x is not None for x in expected)
    assert 500 < possible < asked


@pytest.mark.parametrize("seed", range(20))
def test_items_are_placed_at_the_lowest_address_that_is_free(seed: int) -> None:
    random = np.random.default_rng(seed)
    sizes = random.integers(1, 4, 25)  # rectangles of each item
    bounds = np.concatenate(([0], np.cumsum(sizes)))
    since = random.integers(0, 30, bounds[-1])
    bottom = random.integers(0, 6, bounds[-1])
    until, top = since + random.integers(1, 12, bounds[-1]), bottom + random.integers(1, 9, bounds[-1])
    order, base = random.permutation(25), np.empty(25, np.int64)
    most = int(sizes.max()) * int(bounds[-1])
    space = np.empty((4, bounds[-1]), np.int64), np.empty(most, np.int64), np.empty(most, np.int64)
    height = packed(order, bounds, since, until, bottom, top, *space, base)
    taken = np.zeros((50, height), bool)  # [time, byte]
    for item in order.tolist():
        mine = range(bounds[item], bounds[item + 1])
        for address in range(base[item] + 1):
            free = all(not taken[since[r] : until[r], address + bottom[r] : address + top[r]].any() for r in mine)
            assert free == (address == base[item])
        for r in mine:
            taken[since[r] : until[r], base[item] + bottom[r] : base[item] + top[r]] = True
    assert np.flatnonzero(taken.any(axis=0)).max() + 1 == height
