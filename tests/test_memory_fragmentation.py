"""Addresses of allocations: the allocator followed, steered, and planned for."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from bench.memory_addresses import expected
from hypothesis import given
from hypothesis import strategies as st

from memory_graphs import random_graph
from stretto.memory.addresses.arena import SMALL, Arena, ArenaFull, rounded, segment_bytes
from stretto.memory.addresses.fragmentation import arena_bytes, footprint
from stretto.memory.addresses.lifetimes import PARTS, find_lifetimes, swapped_persistent
from stretto.memory.addresses.place_plan import make_placed
from stretto.memory.addresses.placement import place
from stretto.memory.addresses.steering import steered, unsteered_bytes
from stretto.memory.planner.graph import FREED, TEMPORARY, Graph, Node, Storage
from stretto.memory.planner.instructions import ALLOCATE, FREE, HOLD, IN, RECOMPUTE, RELEASE, RUN, UNHOLD, DeviceProgram
from stretto.memory.planner.planner import Infeasible, PlannerSettings, make, smallest_budget
from stretto.memory.planner.program import account

MIB = 1 << 20
ACTS = st.lists(st.tuples(st.booleans(), st.integers(5, 64), st.integers(0, 200)), max_size=80)


class Watched(Arena):
    """An arena that checks that no two allocations overlap."""

    def __init__(self, *args: int) -> None:
        super().__init__(*args)
        self.live: dict[int, int] = {}

    def allocate(self, nbytes: int) -> int:
        address = super().allocate(nbytes)
        assert all(address + nbytes <= a or a + n <= address for a, n in self.live.items())
        self.live[address] = nbytes
        assert address + nbytes <= self.top
        return address

    def free(self, address: int) -> None:
        super().free(address)
        del self.live[address]


@given(ACTS)
def test_blocks_do_not_overlap_and_free_ones_join(acts: list[tuple[bool, int, int]]) -> None:
    memory = Watched()
    for take, number, _ in acts:
        if take or not memory.live:
            memory.allocate(number * MIB // 4)
        else:
            memory.free(sorted(memory.live)[number % len(memory.live)])
    for address in list(memory.live):
        memory.free(address)
    assert len(memory._free) == 1  # all of it is one block again


@given(ACTS)
def test_held_blocks_send_the_next_allocation_to_any_free_address(acts: list[tuple[bool, int, int]]) -> None:
    memory = Watched()
    for take, number, wanted in acts:
        nbytes = number * MIB // 4
        if take or not memory.live:
            near = memory.nearest(wanted * MIB, nbytes)
            if near is None:
                assert any(a < wanted * MIB + nbytes and wanted * MIB < a + n + SMALL for a, n in memory.live.items())
                continue
            held = [memory.allocate(n) for n in memory.holds(nbytes, near)]
            assert memory.next(nbytes)[0] == near
            assert memory.allocate(nbytes) == near
            assert wanted * MIB - SMALL <= near <= wanted * MIB
            for address in held:
                memory.free(address)
        else:
            memory.free(sorted(memory.live)[number % len(memory.live)])


def test_the_smallest_block_is_taken_and_what_is_left_over_is_split_off() -> None:
    memory = Arena()
    blocks = [memory.allocate(n * MIB) for n in (8, 1, 4, 1)]
    memory.free(blocks[0])
    memory.free(blocks[2])
    assert memory.allocate(3 * MIB + MIB // 2) == blocks[2]  # of 4 MiB; half a MiB is not split off
    assert memory.allocate(2 * MIB) == blocks[0]
    assert memory.allocate(5 * MIB) == blocks[0] + 2 * MIB
    assert memory.top == 14 * MIB
    with pytest.raises(ArenaFull):
        Arena(20 * MIB).allocate(21 * MIB)
    assert (segment_bytes(3 * MIB), segment_bytes(21 * MIB)) == (20 * MIB, 22 * MIB)


def step(*nodes: Node, sizes: tuple[int, ...], extra: tuple[Any, ...] = ()) -> DeviceProgram:
    """Nodes one after another, every storage freed after its last use."""
    graph = Graph(tuple(Storage(n * MIB, "activation") for n in sizes), nodes)
    last = {s: n for n, node in enumerate(nodes) for s in (*node.makes, *node.reads)}
    instructions: list[tuple[int, int]] = []
    for n in range(len(nodes)):
        instructions += [(RUN, n), *((FREE, s) for s, at in last.items() if at == n)]
    return DeviceProgram(graph, (*instructions, *extra))


def test_an_operation_allocates_in_its_own_order() -> None:
    workspace_first = ((TEMPORARY, 6 * MIB), (0, 4 * MIB), (FREED, 0))
    plain = step(Node("a", makes=(0,), workspace=6 * MIB), Node("b", (0,), (1,)), sizes=(4, 5))
    odd = step(
        Node("a", makes=(0,), workspace=6 * MIB, allocations=workspace_first), Node("b", (0,), (1,)), sizes=(4, 5)
    )
    for program, events in ((plain, (0, 1, ~1)), (odd, (0, 1, ~0))):
        found = find_lifetimes(program)
        assert found.requests[0] == events
        assert found.freed == {2: (found.storage.index(0),), 3: (2,)} or found.freed[2] == (found.storage.index(0),)
    assert (unsteered_bytes(plain), unsteered_bytes(odd)) == (20 * MIB, 20 * MIB)  # the smallest block that torch takes
    # The result is behind the workspace, so what comes next fits in front of it.
    assert find_lifetimes(odd).storage == [-1, 0, 1]


def test_results_that_are_there_already_are_dropped_once_more() -> None:
    graph = Graph(
        (Storage(4 * MIB, "activation"), Storage(5 * MIB, "activation"), Storage(3 * MIB, "activation")),
        (Node("two", makes=(0, 1)), Node("use", (0, 1), (2,))),
        (2,),
    )
    found = find_lifetimes(DeviceProgram(graph, ((RUN, 0), (FREE, 0), (RECOMPUTE, 0), (RUN, 1), (FREE, 0), (FREE, 1))))
    assert found.requests[2] == (2, 3, ~3)  # the second result is still there
    assert (found.storage[2], found.storage[3], found.until[3] // PARTS) == (0, -1, 2)


def random_program(seed: int, count: int = 60) -> DeviceProgram:
    """Many allocations of many sizes and lifetimes; some are persistent, and away for a while."""
    random = np.random.default_rng(seed)
    sizes = [int(n) for n in random.choice([2, 3, 5, 8, 13, 40], count + 3)]
    storages = tuple(
        Storage(n * MIB + 512 * (k % 7), "activation" if k < count else "parameter") for k, n in enumerate(sizes)
    )
    nodes = tuple(Node(f"n{k}", makes=(k,), workspace=int(random.choice([0, 0, 4])) * MIB) for k in range(count))
    instructions: list[tuple[int, int]] = []
    live: list[int] = []
    away: set[int] = set()
    for k in range(count):
        instructions.append((RUN, k))
        live.append(k)
        while len(live) > 8 or (live and random.random() < 0.4):
            instructions.append((FREE, live.pop(int(random.integers(len(live))))))
        for s in range(count, count + 3):
            if k == 10 + s - count:
                instructions.append((FREE, s))
                away.add(s)
            elif k == count - 10 + s - count:
                instructions.append((IN, s))
    return DeviceProgram(Graph(storages, nodes), tuple(instructions + [(FREE, s) for s in live]))


@pytest.mark.parametrize("seed", range(12))
def test_placed_allocations_do_not_overlap_and_a_steered_program_takes_what_was_planned(seed: int) -> None:
    program = random_program(seed)
    lifetimes = find_lifetimes(program)
    found = place(lifetimes)
    assert found is not None
    address, top = found
    spans = [
        (lifetimes.since[k], lifetimes.until[k], address[k], address[k] + rounded(lifetimes.nbytes[k])) for k in address
    ]
    for i, a in enumerate(spans):
        for b in spans[:i]:
            assert a[1] <= b[0] or b[1] <= a[0] or a[3] <= b[2] or b[3] <= a[2]
    best = steered(program)
    assert min(top, unsteered_bytes(program)) <= (best.arena or 0) <= segment_bytes(unsteered_bytes(program))
    followed(best)


def test_swapped_storages_come_back_to_where_they_were() -> None:
    programs = [random_program(seed) for seed in range(12)]
    returned = [followed(steered(one, int(1.1 * unsteered_bytes(one)))) for one in programs]
    assert sum(returned) >= 11


def several_at_once(seed: int, count: int = 50) -> DeviceProgram:
    """Operations with three results, two of one size, and a workspace between them that they give back at once."""
    random = np.random.default_rng(seed)
    sizes = [int(n) * MIB for n in random.choice([20, 30, 50, 80, 130], (count, 2)).ravel()]
    storages = tuple(Storage(sizes[k // 3 * 2 + (k % 3 == 1)], "activation") for k in range(3 * count))
    nodes = []
    for n in range(count):
        makes = (3 * n, 3 * n + 1, 3 * n + 2)
        workspace = int(random.choice([40, 60])) * MIB
        order = [(k, storages[s].nbytes) for k, s in enumerate(makes)]
        order[1:1] = [(TEMPORARY, workspace)]
        order.insert(int(random.integers(2, 5)), (FREED, 1))
        nodes.append(Node(f"n{n}", makes=makes, workspace=workspace, allocations=tuple(order)))
    instructions: list[tuple[int, int]] = []
    live: list[int] = []
    for n in range(count):
        instructions.append((RUN, n))
        live += nodes[n].makes
        while len(live) > 12:
            instructions.append((FREE, live.pop(int(random.integers(len(live))))))
    return DeviceProgram(Graph(storages, tuple(nodes)), tuple(instructions + [(FREE, s) for s in live]))


@pytest.mark.parametrize("seed", range(8))
def test_several_allocations_of_an_operation_go_where_they_are_wanted(seed: int) -> None:
    program = several_at_once(seed)
    best = steered(program)
    assert any(what == UNHOLD for what, _ in best.instructions)
    assert (best.arena or 0) < unsteered_bytes(program)
    followed(best)


def followed(program: DeviceProgram) -> bool:
    """Run the allocations of a program, with what is held, on the model of the allocator, in a block of the planned
    size. Whether swapped storages end up where they began."""
    memory = Watched(program.arena or 0)
    held: list[int] = []
    at: dict[int, int] = {}
    storages, nodes = program.graph.storages, program.graph.nodes
    for what, which in program.opening:
        if what == HOLD:
            held.append(memory.allocate(which))
        elif what == ALLOCATE:
            at[which] = memory.allocate(storages[which].nbytes)
    for address in held:
        memory.free(address)
    held, start_addresses = [], dict(at)
    for what, which in program.instructions:
        if what == RUN and nodes[which].allocations:
            made: list[int] = []
            for result, nbytes in nodes[which].allocations:
                if result == FREED:
                    memory.free(made[nbytes])
                    continue
                made.append(memory.allocate(nbytes))
                if result >= 0:
                    at[nodes[which].makes[result]] = made[-1]
        elif what == RUN:
            at[which] = memory.allocate(storages[which].nbytes)
            if nodes[which].workspace:
                memory.free(memory.allocate(nodes[which].workspace))
        elif what == IN:
            at[which] = memory.allocate(storages[which].nbytes)
        elif what == FREE:
            memory.free(at.pop(which))
        elif what == HOLD:
            held.append(memory.allocate(which))
        elif what == UNHOLD:
            memory.free(held[which])
            held[which] = -1
        elif what == RELEASE:
            assert which == len(held)
            for address in held:
                if address >= 0:
                    memory.free(address)
            held = []
    assert swapped_persistent(program) == set(start_addresses)
    return at == start_addresses


def test_the_addresses_of_a_steered_program_are_those_of_its_placement() -> None:
    """What `bench/memory_addresses.py` compares a GPU with."""
    for program in (random_program(1), several_at_once(1)):
        best = steered(program)
        found = expected(best)
        made = {s for at in found.values() for s in at}
        assert made >= {s for s, one in enumerate(program.graph.storages) if one.kind == "activation"}
        assert max(address for at in found.values() for address in at.values()) < (best.arena or 0)
        with pytest.raises(ArenaFull):
            expected(replace(best, arena=(best.arena or 0) // 2))


def test_steering_saves_memory() -> None:
    plain = sum(unsteered_bytes(random_program(seed)) for seed in range(12))
    better = sum(steered(random_program(seed)).arena or 0 for seed in range(12))
    assert better < 0.95 * plain
    assert any(what == HOLD for what, _ in steered(random_program(1)).instructions)


def test_held_memory_counts_as_free() -> None:
    program = step(*(Node(f"n{k}", makes=(k,)) for k in range(5)), sizes=(3, 9, 4, 30, 2))
    held = replace(
        program, instructions=((HOLD, 5 * MIB), *program.instructions[:1], (RELEASE, 1), *program.instructions[1:])
    )
    assert account(held) == replace(account(program), peak_at=account(program).peak_at + 2)


def large(seed: int) -> Any:
    """A random step whose storages are large enough to be cut from an arena."""
    graph = random_graph(seed, 12)
    return replace(graph, storages=tuple(replace(one, nbytes=one.nbytes * MIB) for one in graph.storages))


def test_a_footprint_is_at_least_the_peak_and_placed_plans_fit() -> None:
    fitting = over = 0
    for seed in range(4):
        graph = large(seed)
        most = account(make(graph, PlannerSettings(1 << 50)).program).peak
        least = smallest_budget(graph, PlannerSettings(1 << 50))
        for share in (0.3, 0.7, 1.0):
            settings = PlannerSettings(least + int(share * (most - least)))
            plain = make(graph, settings)
            assert footprint(plain.program) >= 0.99 * account(plain.program).peak - 2 * SMALL
            over += footprint(plain.program) > settings.budget
            with contextlib.suppress(Infeasible):
                placed = make_placed(graph, settings)
                assert account(placed.program).peak <= settings.budget
                assert arena_bytes(placed.program) == placed.program.arena
                fitting += footprint(placed.program) <= settings.budget
    assert over >= 3  # there is something to do
    assert fitting >= 12 - over + 1
