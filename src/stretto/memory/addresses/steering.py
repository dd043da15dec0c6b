"""Steer torch's allocator so that a program's allocations get their planned addresses.

Torch's allocator accepts no address, but it can be steered (`arena`): right before an allocation, others hold the
blocks that would be taken first, and are freed right after. HOLD and RELEASE instructions do that. They cost a few
microseconds where Python calls operations, and nothing where a recorded CUDA graph is replayed.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

import numpy as np

from stretto.memory.planner.idle_intervals import Bools
from stretto.memory.planner.instructions import ALLOCATE, HOLD, RELEASE, UNHOLD, DeviceProgram, Instruction

from .arena import ALIGNED, ENDLESS, SMALL, Arena, ArenaFull, segment_bytes
from .lifetimes import Lifetimes, find_lifetimes
from .placement import extents, place

_LARGER, _TIMES = 1.004, 200  # growth of the block for each new simulation, and how many of them


def unsteered_bytes(program: DeviceProgram) -> int:
    """Bytes of the block for all large allocations of a program, if the allocator chooses the addresses."""
    return _simulate(find_lifetimes(program), {}).bytes


def steered(program: DeviceProgram, enough: int = 0) -> DeviceProgram:
    """The program with a planned arena.

    It gets instructions that steer its allocations if it takes more than `enough` bytes without them and less with
    them, or if swapped persistent storages would not end at their first addresses.
    """
    lifetimes = find_lifetimes(program)
    ways = [_simulate(lifetimes, {})]
    if ways[0].bytes > enough or ways[0].moved():
        ways += _placed(lifetimes, enough)
    best = min(ways, key=lambda one: (max(one.bytes, enough), one.moved(), one.bytes))
    instructions: list[Instruction] = []
    for at, instruction in enumerate(program.instructions):
        held = best.held.get(at, [])
        instructions += [*held, instruction]
        instructions += [(RELEASE, sum(what == HOLD for what, _ in held))] if held else []
    return replace(program, instructions=tuple(instructions), opening=tuple(best.opening), arena=best.bytes)


def _placed(lifetimes: Lifetimes, enough: int) -> list[_AllocatorReplay]:
    """Simulations of the program steered to planned addresses.

    Operations that allocate several times do not reach all addresses. Their allocations are then planned further apart,
    and once more.
    """
    several = {at for at, events in lifetimes.requests.items() if len(events) > 1}
    ways: list[_AllocatorReplay] = []
    apart: set[int] = set()
    while True:
        found = place(lifetimes, enough, apart)
        if found is None:
            break
        ways.append(_simulate(lifetimes, found[0]))
        if ways[-1].bytes <= max(enough, _LARGER * segment_bytes(found[1])) or apart == several:
            break
        if 0 < enough < found[1]:  # it would be too much even if all addresses were reached
            break
        apart = several if apart or not ways[-1].missed else ways[-1].missed
    return ways


def _simulate(lifetimes: Lifetimes, wanted: dict[int, int]) -> _AllocatorReplay:
    """Simulate a program in a block of the size that it needs.

    In such a block the last free block is small and may be chosen earlier than in an unlimited one. So all addresses
    are those of the unlimited block, or the block is a little larger.
    """
    follow = _AllocatorReplay(lifetimes, wanted, ENDLESS)
    follow.run()
    nbytes, missed = segment_bytes(follow.arena.top), follow.missed
    found = dict(enumerate(follow.planned.first.tolist())) if wanted else {}
    for _ in range(_TIMES):
        follow = _AllocatorReplay(lifetimes, found, nbytes, strict=bool(found))
        with suppress(ArenaFull):
            follow.run()
            follow.missed = missed
            return follow
        nbytes = segment_bytes(int(nbytes * _LARGER))
    if wanted:  # the allocator's own choices need less
        return _simulate(lifetimes, {})
    raise ArenaFull(f"the program does not fit a block of {nbytes} bytes")


class _AllocatorReplay:
    """The allocator's state, instruction by instruction.

    Attributes
    ----------
    bytes : int
        Bytes of the block.
    strict : bool
        Whether every allocation goes to its wanted address, even if another address is free as well.
    held : dict
        By instruction: how blocks are held for it.
    opening : list
        How swapped persistent storages are allocated when a step begins.
    missed : set of int
        Instructions whose allocations did not get their wanted addresses.
    """

    def __init__(self, lifetimes: Lifetimes, wanted: dict[int, int], nbytes: int, *, strict: bool = False) -> None:
        self.lifetimes, self.wanted, self.bytes, self.strict = lifetimes, dict(wanted), nbytes, strict
        self.arena = Arena(nbytes)
        self.planned = _PlannedAddresses(lifetimes, wanted)
        self.address: dict[int, int] = {}
        self.held: dict[int, list[Instruction]] = {}
        self.opening: list[Instruction] = []
        self.start_addresses: dict[int, int] = {}
        self.missed: set[int] = set()

    def run(self) -> None:
        """Simulate the whole program; raises `ArenaFull` where the block is too small."""
        lifetimes = self.lifetimes
        self._begin()
        for at in range(lifetimes.count):
            for k in lifetimes.freed.get(at, ()):
                self.arena.free(self.address.pop(k))
            events = lifetimes.requests.get(at)
            if events:
                self._request(at, events)

    def moved(self) -> int:
        """The number of swapped persistent storages that do not end at their first address."""
        ends = {self.lifetimes.storage[k]: address for k, address in self.address.items()}
        return sum(ends.get(s) != address for s, address in self.start_addresses.items())

    def _begin(self) -> None:
        """Allocate swapped persistent storages from the lowest address to the highest, with holds between."""
        arena, lifetimes = self.arena, self.lifetimes
        held = []
        for k in sorted(lifetimes.first, key=lambda k: self.wanted.get(k, 0)):
            before = self.wanted.get(k, arena.top) - arena.top
            if before > 0 and arena.nearest(self.wanted[k], lifetimes.nbytes[k]) == self.wanted[k]:
                held.append(arena.hold(before))
                self.opening.append((HOLD, before))
            self.address[k] = arena.allocate(lifetimes.nbytes[k])
            self.opening.append((ALLOCATE, lifetimes.storage[k]))
        self.start_addresses = {lifetimes.storage[k]: self.address[k] for k in lifetimes.first}
        for k, s in enumerate(lifetimes.storage):
            if s in self.start_addresses and self.wanted:  # it comes back to its actual first address
                self.wanted[k] = self.planned.first[k] = self.start_addresses[s]
                self.planned.beyond[k] = self.start_addresses[s] + self.planned.extents[k]
        for address in held:
            arena.free(address)
        if held:
            self.opening.append((RELEASE, len(held)))

    def _request(self, at: int, events: tuple[int, ...]) -> None:
        """Allocate for one instruction."""
        held: list[int] = []
        if self.wanted and not self._acceptable(events):
            held = self._last_held(at, events) or self._held(at, events)
        for k in events:
            if k >= 0:
                self._take(k)
            else:
                self.arena.free(self.address.pop(~k))
        for address in held:
            self.arena.free(address)

    def _held(self, at: int, events: tuple[int, ...]) -> list[int]:
        """Hold blocks for the allocations of an instruction; the addresses of the holds."""
        made = [k for k in events if k >= 0]
        return self._held_alone(at, made[0]) if len(made) == 1 else self._held_together(at, events)

    def _take(self, k: int) -> None:
        self.address[k] = self.planned.first[k] = self.arena.allocate(self.lifetimes.nbytes[k])
        self.planned.beyond[k] = self.arena.end(self.address[k])

    def _acceptable(self, events: tuple[int, ...]) -> bool:
        """Whether the allocator's own choices are the wanted ones, or conflict with no other allocation."""
        tried = self._trial(events)
        if tried is None:
            return False
        if self.strict or any(self.lifetimes.storage[k] in self.planned.returning for k in tried):
            return all(first == self.wanted[k] for k, (first, _) in tried.items())
        return all(self.planned.free(k, *span) for k, span in tried.items())

    def _trial(self, events: tuple[int, ...]) -> dict[int, tuple[int, int]] | None:
        """Where the allocator would put the allocations of an instruction: the first byte of each and the one beyond.

        None if there is no memory for them. Nothing is changed.
        """
        arena, top = self.arena, self.arena.top
        live: dict[int, int] = {}
        found: dict[int, tuple[int, int]] = {}
        try:
            for k in events:
                if k >= 0:
                    live[k] = arena.allocate(self.lifetimes.nbytes[k])
                    found[k] = live[k], arena.end(live[k])
                else:
                    arena.free(live.pop(~k))
            return found
        except ArenaFull:
            return None
        finally:
            for address in live.values():
                arena.free(address)
            arena.top = top

    def _last_held(self, at: int, events: tuple[int, ...]) -> list[int]:
        """Hold the last free block if that is enough.

        Addresses were found in an unlimited block, where the last free block is chosen last.
        """
        last = self.arena.last() if self.strict else 0
        if not last:
            return []
        address = self.arena.hold(last)
        if self._acceptable(events):
            self.held[at] = [(HOLD, last)]
            return [address]
        self.arena.free(address)
        return []

    def _held_alone(self, at: int, k: int) -> list[int]:
        """Hold blocks so that an allocation goes to its wanted address; the addresses of the holds."""
        holds = self.arena.holds(self.lifetimes.nbytes[k], self._address(k))
        if holds:
            self.held[at] = [(HOLD, nbytes) for nbytes in holds]
        return [self.arena.hold(nbytes) for nbytes in holds]

    def _held_together(self, at: int, events: tuple[int, ...]) -> list[int]:
        """The same for several allocations: make free blocks exactly where they are wanted, each of its own size."""
        arena, planned = self.arena, self.planned
        made = [k for k in events if k >= 0]
        for k in made:
            planned.first[k] = self._address(k)
            planned.beyond[k] = planned.first[k] + planned.extents[k]
        spans = [(int(planned.first[k]), int(planned.beyond[k])) for k in made]
        carved = arena.carve([(first, beyond - first) for first, beyond in _joined(spans)])
        if carved is None:
            self.missed.add(at)
            return []
        holds, freed = carved
        held = dict(enumerate(arena.hold(nbytes) for nbytes in holds))
        for n in freed:
            arena.free(held.pop(n))
        tried = self._trial(events)
        if tried is None or any(first != planned.first[k] for k, (first, _) in tried.items()):
            self.missed.add(at)
        if tried is None:
            for address in held.values():
                arena.free(address)
            return []
        self.held[at] = [*((HOLD, nbytes) for nbytes in holds), *((UNHOLD, n) for n in freed)]
        return list(held.values())

    def _address(self, k: int) -> int:
        """The wanted address, or another one that conflicts with no allocation. Raises `ArenaFull` if there is none."""
        base, extent = self.wanted[k], int(self.planned.extents[k])
        near = self.arena.nearest(base, extent)
        if near == base or (near is not None and self.planned.free(k, near, near + extent)):
            return near
        for low, high in self.planned.gaps(k, extent):
            near = self.arena.nearest(low, extent)
            if near is not None and near != low:  # further away, so that the bytes in front of it can be held
                low = near + SMALL + ALIGNED
                near = self.arena.nearest(low, extent)
            if near is not None and near == low <= high:
                return near
        raise ArenaFull("other allocations need every free address")


def _joined(spans: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Spans of addresses, overlapping ones joined: one allocation may reuse what another has freed."""
    found: list[tuple[int, int]] = []
    for first, beyond in sorted(spans):
        if found and first < found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], beyond)
        else:
            found.append((first, beyond))
    return found


class _PlannedAddresses:
    """Addresses of allocations: actual ones, and planned ones of those that are not made yet."""

    def __init__(self, lifetimes: Lifetimes, wanted: dict[int, int]) -> None:
        self.since, self.until = np.array(lifetimes.since, np.int64), np.array(lifetimes.until, np.int64)
        self.first = np.array([wanted.get(k, 0) for k in range(len(lifetimes.nbytes))], np.int64)
        self.extents = np.array(extents(lifetimes), np.int64)
        self.beyond = self.first + self.extents
        self.returning = {lifetimes.storage[k] for k in lifetimes.first}

    def _meets(self, k: int) -> Bools:
        """Which allocations live at the same time as one."""
        found: Bools = (self.since < self.until[k]) & (self.until > self.since[k])
        found[k] = False
        return found

    def free(self, k: int, first: int, beyond: int) -> bool:
        """Whether no other allocation uses some addresses during the lifetime of one."""
        return not (self._meets(k) & (self.first < beyond) & (self.beyond > first)).any()

    def gaps(self, k: int, extent: int) -> list[tuple[int, int]]:
        """The lowest and the highest address in every gap that is large enough during the lifetime of an allocation."""
        there = self._meets(k)
        order = np.argsort(self.first[there], kind="stable")
        starts, ends = self.first[there][order], np.maximum.accumulate(self.beyond[there][order])
        low = np.concatenate(([0], ends))
        high = np.concatenate((starts, [ENDLESS])) - extent
        return [(int(a), int(b)) for a, b in zip(low, high, strict=True) if a <= b]
