"""Gaps between tensors in one piece of memory: found beforehand, and planned for."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from memory_graphs import random_graph
from stretto.memory.fragmentation import SMALL, BestFit, footprint
from stretto.memory.planner import Infeasible, Settings, make, make_with_gaps, smallest_budget
from stretto.memory.program import account

MIB = 1 << 20


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 64)), max_size=80))
def test_blocks_do_not_overlap_and_free_ones_join(acts: list[tuple[bool, int]]) -> None:
    memory, used = BestFit(), dict[int, int]()
    for take, number in acts:
        if take or not used:
            nbytes = number * MIB // 4
            address = memory.take(nbytes)
            assert all(address + nbytes <= a or a + n <= address for a, n in used.items())
            used[address] = nbytes
            assert address + nbytes <= memory.top
        else:
            address = sorted(used)[number % len(used)]
            memory.give(address)
            del used[address]
    for address in list(used):
        memory.give(address)
    assert len(memory._free) == 1  # all of it is one block again


def test_the_smallest_block_is_taken_and_what_is_left_over_is_split_off() -> None:
    memory = BestFit()
    blocks = [memory.take(n * MIB) for n in (8, 1, 4, 1)]
    memory.give(blocks[0])
    memory.give(blocks[2])
    assert memory.take(3 * MIB + MIB // 2) == blocks[2]  # of 4 MiB; half a MiB is not split off
    assert memory.take(2 * MIB) == blocks[0]
    assert memory.take(5 * MIB) == blocks[0] + 2 * MIB
    assert memory.top == 14 * MIB


def large(seed: int) -> Any:
    """A random step whose storages are large enough to be cut from an arena."""
    graph = random_graph(seed, 12)
    return replace(graph, storages=tuple(replace(one, nbytes=one.nbytes * MIB // 8) for one in graph.storages))


def test_a_footprint_is_at_least_the_peak_and_plans_with_gaps_fit() -> None:
    fitting = over = 0
    for seed in range(4):
        graph = large(seed)
        most = account(make(graph, Settings(1 << 50)).program).peak
        least = smallest_budget(graph, Settings(1 << 50))
        for share in (0.3, 0.7, 1.0):
            settings = Settings(least + int(share * (most - least)))
            plain = make(graph, settings)
            assert footprint(plain.program) >= 0.99 * account(plain.program).peak - 2 * SMALL
            over += footprint(plain.program) > settings.budget
            with contextlib.suppress(Infeasible):
                fitting += footprint(make_with_gaps(graph, settings).program) <= settings.budget
    assert over >= 3  # there is something to do
    assert fitting >= 12 - over + 1
