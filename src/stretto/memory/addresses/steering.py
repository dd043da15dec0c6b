"""A program whose allocations go where a placement wants them.

Torch's allocator cannot be given an address, but it can be steered (`arena`): right before an allocation other ones
hold the blocks that would be taken first, and are freed right after. HOLD and RELEASE instructions do that. They cost
a few microseconds where Python calls operations, and nothing where a recording is replayed.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

import numpy as np

from stretto.memory.planner.idle_intervals import Bools
from stretto.memory.planner.program import HOLD, RELEASE, ROOM, UNHOLD, Instruction, Program

from .arena import ALIGNED, ENDLESS, SMALL, Arena, Full, whole
from .lifetimes import Lifetimes, find_lifetimes
from .placement import extents, place

_LARGER, _TIMES = 1.004, 200  # how much larger a block is the next time, and how often


def natural(program: Program) -> int:
    """Bytes of the block from which all large allocations of a program are cut, if the allocator chooses addresses."""
    return _followed(find_lifetimes(program), {}).bytes


def steered(program: Program, enough: int = 0) -> Program:
    """A program whose arena is planned: with instructions that steer its allocations, if it takes more than `enough`
    bytes without them and less with them, or if travelling storages would end up elsewhere than they began."""
    lifetimes = find_lifetimes(program)
    ways = [_followed(lifetimes, {})]
    if ways[0].bytes > enough or ways[0].moved():
        ways += _placed(lifetimes, enough)
    best = min(ways, key=lambda one: (max(one.bytes, enough), one.moved(), one.bytes))
    instructions: list[Instruction] = []
    for at, instruction in enumerate(program.instructions):
        held = best.held.get(at, [])
        instructions += [*held, instruction]
        instructions += [(RELEASE, sum(what == HOLD for what, _ in held))] if held else []
    return replace(program, instructions=tuple(instructions), opening=tuple(best.opening), arena=best.bytes)


def _placed(lifetimes: Lifetimes, enough: int) -> list[_Follow]:
    """Programs that are steered to planned addresses. Operations that allocate several times do not reach all of them:
    what they allocate is planned further apart then, and once more."""
    several = {at for at, events in lifetimes.requests.items() if len(events) > 1}
    ways: list[_Follow] = []
    apart: set[int] = set()
    while True:
        found = place(lifetimes, enough, apart)
        if found is None:
            break
        ways.append(_followed(lifetimes, found[0]))
        if ways[-1].bytes <= max(enough, _LARGER * whole(found[1])) or apart == several:
            break
        if 0 < enough < found[1]:  # it would not be enough if all of them were reached
            break
        apart = several if apart or not ways[-1].missed else ways[-1].missed
    return ways


def _followed(lifetimes: Lifetimes, wanted: dict[int, int]) -> _Follow:
    """A program followed in a block of the size that it needs. The last free block is small there, and may be chosen
    earlier than in one without end: so all addresses are those of the one without end, or the block is a little larger.
    """
    follow = _Follow(lifetimes, wanted, ENDLESS)
    follow.go()
    nbytes, missed = whole(follow.arena.top), follow.missed
    found = dict(enumerate(follow.planned.first.tolist())) if wanted else {}
    for _ in range(_TIMES):
        follow = _Follow(lifetimes, found, nbytes, strict=bool(found))
        with suppress(Full):
            follow.go()
            follow.missed = missed
            return follow
        nbytes = whole(int(nbytes * _LARGER))
    if wanted:  # its own choices need less
        return _followed(lifetimes, {})
    raise Full(f"{nbytes} bytes are not enough")


class _Follow:
    """The allocator's state, instruction by instruction.

    bytes : of the block
    strict : whether every allocation goes where it is wanted, even if another address would be in nobody's way
    held : by instruction, how blocks are held for it
    opening : how travelling storages are allocated when a step begins
    missed : instructions whose allocations were in the way of others, and are not where they were wanted
    """

    def __init__(self, lifetimes: Lifetimes, wanted: dict[int, int], nbytes: int, *, strict: bool = False) -> None:
        self.lifetimes, self.wanted, self.bytes, self.strict = lifetimes, dict(wanted), nbytes, strict
        self.arena = Arena(nbytes)
        self.planned = _Planned(lifetimes, wanted)
        self.address: dict[int, int] = {}
        self.held: dict[int, list[Instruction]] = {}
        self.opening: list[Instruction] = []
        self.seats: dict[int, int] = {}
        self.missed: set[int] = set()

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
                held.append(arena.hold(before))
                self.opening.append((HOLD, before))
            self.address[k] = arena.take(lifetimes.nbytes[k])
            self.opening.append((ROOM, lifetimes.storage[k]))
        self.seats = {lifetimes.storage[k]: self.address[k] for k in lifetimes.first}
        for k, s in enumerate(lifetimes.storage):
            if s in self.seats and self.wanted:  # it comes back to where it really was
                self.wanted[k] = self.planned.first[k] = self.seats[s]
                self.planned.beyond[k] = self.seats[s] + self.planned.extents[k]
        for address in held:
            arena.give(address)
        if held:
            self.opening.append((RELEASE, len(held)))

    def _request(self, at: int, events: tuple[int, ...]) -> None:
        """What one instruction allocates."""
        held: list[int] = []
        if self.wanted and not self._fine(events):
            held = self._last_held(at, events) or self._held(at, events)
        for k in events:
            if k >= 0:
                self._take(k)
            else:
                self.arena.give(self.address.pop(~k))
        for address in held:
            self.arena.give(address)

    def _held(self, at: int, events: tuple[int, ...]) -> list[int]:
        """Hold blocks for what an instruction allocates; the addresses of what is held."""
        made = [k for k in events if k >= 0]
        return self._held_alone(at, made[0]) if len(made) == 1 else self._held_together(at, events)

    def _take(self, k: int) -> None:
        self.address[k] = self.planned.first[k] = self.arena.take(self.lifetimes.nbytes[k])
        self.planned.beyond[k] = self.arena.end(self.address[k])

    def _fine(self, events: tuple[int, ...]) -> bool:
        """Whether the allocator's own choices are the wanted ones, or in nobody's way."""
        tried = self._tried(events)
        if tried is None:
            return False
        if self.strict or any(self.lifetimes.storage[k] in self.planned.returning for k in tried):
            return all(first == self.wanted[k] for k, (first, _) in tried.items())
        return all(self.planned.free(k, *span) for k, span in tried.items())

    def _tried(self, events: tuple[int, ...]) -> dict[int, tuple[int, int]] | None:
        """Where the allocator would put what an instruction allocates: the first byte of each and the one beyond. None
        if there is no memory for it. Nothing is changed."""
        arena, top = self.arena, self.arena.top
        live: dict[int, int] = {}
        found: dict[int, tuple[int, int]] = {}
        try:
            for k in events:
                if k >= 0:
                    live[k] = arena.take(self.lifetimes.nbytes[k])
                    found[k] = live[k], arena.end(live[k])
                else:
                    arena.give(live.pop(~k))
            return found
        except Full:
            return None
        finally:
            for address in live.values():
                arena.give(address)
            arena.top = top

    def _last_held(self, at: int, events: tuple[int, ...]) -> list[int]:
        """Hold the last free block if that is enough: addresses were found in a block without end, and there it is
        chosen last."""
        last = self.arena.last() if self.strict else 0
        if not last:
            return []
        address = self.arena.hold(last)
        if self._fine(events):
            self.held[at] = [(HOLD, last)]
            return [address]
        self.arena.give(address)
        return []

    def _held_alone(self, at: int, k: int) -> list[int]:
        """Hold blocks so that an allocation goes where it is wanted; the addresses of what is held."""
        holds = self.arena.holds(self.lifetimes.nbytes[k], self._address(k))
        if holds:
            self.held[at] = [(HOLD, nbytes) for nbytes in holds]
        return [self.arena.hold(nbytes) for nbytes in holds]

    def _held_together(self, at: int, events: tuple[int, ...]) -> list[int]:
        """The same for several allocations: free blocks are made just where they are wanted, each of its own size."""
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
            arena.give(held.pop(n))
        tried = self._tried(events)
        if tried is None or any(first != planned.first[k] for k, (first, _) in tried.items()):
            self.missed.add(at)
        if tried is None:
            for address in held.values():
                arena.give(address)
            return []
        self.held[at] = [*((HOLD, nbytes) for nbytes in holds), *((UNHOLD, n) for n in freed)]
        return list(held.values())

    def _address(self, k: int) -> int:
        """Where to allocate: at the wanted address, or at another one that is in nobody's way. Raises `Full` if there
        is none."""
        base, extent = self.wanted[k], int(self.planned.extents[k])
        near = self.arena.near(base, extent)
        if near == base or (near is not None and self.planned.free(k, near, near + extent)):
            return near
        for low, high in self.planned.gaps(k, extent):
            near = self.arena.near(low, extent)
            if near is not None and near != low:  # further away, so that what is in front of it can be held
                low = near + SMALL + ALIGNED
                near = self.arena.near(low, extent)
            if near is not None and near == low <= high:
                return near
        raise Full("every free address is wanted by others")


def _joined(spans: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Spans of addresses, those that overlap as one: what one allocation has given back another one takes."""
    found: list[tuple[int, int]] = []
    for first, beyond in sorted(spans):
        if found and first < found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], beyond)
        else:
            found.append((first, beyond))
    return found


class _Planned:
    """Where allocations are, or want to be when their turn comes."""

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
        """Whether some addresses are nobody's as long as an allocation lives."""
        return not (self._meets(k) & (self.first < beyond) & (self.beyond > first)).any()

    def gaps(self, k: int, extent: int) -> list[tuple[int, int]]:
        """The lowest and the highest address of every gap that is large enough as long as an allocation lives."""
        there = self._meets(k)
        order = np.argsort(self.first[there], kind="stable")
        starts, ends = self.first[there][order], np.maximum.accumulate(self.beyond[there][order])
        low = np.concatenate(([0], ends))
        high = np.concatenate((starts, [ENDLESS])) - extent
        return [(int(a), int(b)) for a, b in zip(low, high, strict=True) if a <= b]
