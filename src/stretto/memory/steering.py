"""A program whose allocations go where a placement wants them.

Torch's allocator cannot be given an address, but it can be steered (`arena`): right before an allocation other ones
hold the blocks that would be taken first, and are freed right after. HOLD and RELEASE instructions do that. They cost
a few microseconds where Python calls operations, and nothing where a recording is replayed.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import numpy as np

from .arena import ENDLESS, SMALL, Arena, Full, rounded, whole
from .gaps import Bools
from .lifetimes import Lifetimes, find_lifetimes
from .placement import place
from .program import HOLD, RELEASE, ROOM, Instruction, Program

_LARGER = 1.004


def natural(program: Program) -> int:
    """Bytes of the block from which all large allocations of a program are cut, if the allocator chooses addresses."""
    return _followed(find_lifetimes(program), {}).bytes


def steered(program: Program, enough: int = 0) -> Program:
    """A program whose arena is planned: with instructions that steer its allocations, if it takes more than `enough`
    bytes without them and less with them, or if travelling storages would end up elsewhere than they began."""
    lifetimes = find_lifetimes(program)
    ways = [_followed(lifetimes, {})]
    if ways[0].bytes > enough or ways[0].moved():
        found = place(lifetimes, enough)
        if found is not None:
            ways.append(_followed(lifetimes, found[0]))
    best = min(ways, key=lambda one: (max(one.bytes, enough), one.moved(), one.bytes))
    instructions: list[Instruction] = []
    for at, instruction in enumerate(program.instructions):
        held = best.held.get(at, ())
        instructions += [(HOLD, nbytes) for nbytes in held]
        instructions.append(instruction)
        instructions += [(RELEASE, len(held))] if held else []
    return replace(program, instructions=tuple(instructions), opening=tuple(best.opening), arena=best.bytes)


def _followed(lifetimes: Lifetimes, wanted: dict[int, int]) -> _Follow:
    """A program followed in a block of the size that it needs. The last free block is small there, and may be chosen
    earlier than in one without end: then the block is a little larger."""
    follow = _Follow(lifetimes, wanted, ENDLESS)
    follow.go()
    nbytes = whole(follow.arena.top)
    while True:
        follow = _Follow(lifetimes, wanted, nbytes)
        with suppress(Full):
            follow.go()
            return follow
        nbytes = whole(int(nbytes * _LARGER))


class _Follow:
    """The allocator's state, instruction by instruction.

    bytes : of the block
    held : by instruction, the allocations that hold blocks for it
    opening : how travelling storages are allocated when a step begins
    """

    def __init__(self, lifetimes: Lifetimes, wanted: dict[int, int], nbytes: int) -> None:
        self.lifetimes, self.wanted, self.bytes = lifetimes, dict(wanted), nbytes
        self.arena = Arena(nbytes)
        self.planned = _Planned(lifetimes, wanted)
        self.address: dict[int, int] = {}
        self.held: dict[int, tuple[int, ...]] = {}
        self.opening: list[Instruction] = []
        self.seats: dict[int, int] = {}

    def go(self) -> None:
        """Follow all of the program; raises `Full` where the block is too small."""
        lifetimes = self.lifetimes
        self._begin()
        for at in range(lifetimes.count):
            for k in lifetimes.freed.get(at, ()):
                self.arena.give(self.address.pop(k))
            events = lifetimes.requests.get(at)
            if events:
                self._request(at, events)

    def moved(self) -> int:
        """How many travelling storages end up elsewhere than they began."""
        ends = {self.lifetimes.storage[k]: address for k, address in self.address.items()}
        return sum(ends.get(s) != address for s, address in self.seats.items())

    def _begin(self) -> None:
        """Travelling storages from the lowest address to the highest, with holds between."""
        arena, lifetimes = self.arena, self.lifetimes
        held = []
        for k in sorted(lifetimes.first, key=lambda k: self.wanted.get(k, 0)):
            before = self.wanted.get(k, arena.top) - arena.top
            if before > 0 and arena.near(self.wanted[k], lifetimes.nbytes[k]) == self.wanted[k]:
                held.append(arena.take(before))
                self.opening.append((HOLD, before))
            self.address[k] = arena.take(lifetimes.nbytes[k])
            self.opening.append((ROOM, lifetimes.storage[k]))
        self.seats = {lifetimes.storage[k]: self.address[k] for k in lifetimes.first}
        for k, s in enumerate(lifetimes.storage):
            if s in self.seats and self.wanted:  # it comes back to where it really was
                self.wanted[k] = self.planned.first[k] = self.seats[s]
                self.planned.beyond[k] = self.seats[s] + rounded(lifetimes.nbytes[k])
        for address in held:
            arena.give(address)
        if held:
            self.opening.append((RELEASE, len(held)))

    def _request(self, at: int, events: tuple[int, ...]) -> None:
        arena, sizes = self.arena, self.lifetimes.nbytes
        made = [k for k in events if k >= 0]
        held: list[int] = []
        if self.wanted and not self._fine(made):
            holds = arena.holds(min(sizes[k] for k in made), self._address(made))
            if holds:
                self.held[at] = holds
                held = [arena.take(nbytes) for nbytes in holds]
        for k in events:
            if k >= 0:
                self.address[k] = self.planned.first[k] = arena.take(sizes[k])
                self.planned.beyond[k] = arena.end(self.address[k])
            else:
                arena.give(self.address.pop(~k))
        for address in held:
            arena.give(address)

    def _fine(self, made: list[int]) -> bool:
        """Whether the allocator's own choice is the wanted one, or in nobody's way."""
        if len(made) > 1 or self.lifetimes.storage[made[0]] in self.planned.returning:
            return False
        (k,) = made
        return self.planned.free(made, *self.arena.next(self.lifetimes.nbytes[k]))

    def _address(self, made: list[int]) -> int:
        """Where to allocate: at the wanted address, or at another one that is in nobody's way. Raises `Full` if there
        is none."""
        base = min(self.wanted[k] for k in made)
        extent = max(self.wanted[k] + rounded(self.lifetimes.nbytes[k]) for k in made) - base
        near = self.arena.near(base, extent)
        if near == base or (near is not None and self.planned.free(made, near, near + extent)):
            return near
        for low, high in self.planned.gaps(made, extent):
            near = self.arena.near(low, extent)
            if near is not None and near != low:  # further away, so that what is in front of it can be held
                low = near + SMALL + 512
                near = self.arena.near(low, extent)
            if near is not None and near == low <= high:
                return near
        raise Full("every free address is wanted by others")


class _Planned:
    """Where allocations are, or want to be when their turn comes."""

    def __init__(self, lifetimes: Lifetimes, wanted: dict[int, int]) -> None:
        self.begin, self.end = np.array(lifetimes.begin), np.array(lifetimes.end)
        self.first = np.array([wanted.get(k, 0) for k in range(len(lifetimes.nbytes))], np.int64)
        self.beyond = self.first + np.array([rounded(n) for n in lifetimes.nbytes], np.int64)
        self.returning = {lifetimes.storage[k] for k in lifetimes.first}

    def _meets(self, made: list[int]) -> Bools:
        """Which allocations live at the same time as some that are made together."""
        found: Bools = (self.begin < max(self.end[made])) & (self.end > self.begin[made[0]])
        found[made] = False
        return found

    def free(self, made: list[int], first: int, beyond: int) -> bool:
        """Whether some addresses are nobody's as long as allocations live."""
        return not (self._meets(made) & (self.first < beyond) & (self.beyond > first)).any()

    def gaps(self, made: list[int], extent: int) -> list[tuple[int, int]]:
        """The lowest and the highest address of every gap that is large enough as long as allocations live."""
        there = self._meets(made)
        order = np.argsort(self.first[there], kind="stable")
        starts, ends = self.first[there][order], np.maximum.accumulate(self.beyond[there][order])
        low = np.concatenate(([0], ends))
        high = np.concatenate((starts, [ENDLESS])) - extent
        return [(int(a), int(b)) for a, b in zip(low, high, strict=True) if a <= b]
