"""Divide a program into segments that can be recorded once as CUDA graphs and replayed.

Updates run the optimizer's own Python, so a recording ends before each and a new one begins after it. A copy that
begins and ends in one segment is recorded with it. A copy that continues beyond its segment begins when the segment is
over, and the device waits for it before the segment that needs it. So recordings never wait for one another. Segments
are short, so that copies neither begin too late nor end too early.
"""

from __future__ import annotations

import math
from collections.abc import Container, Sequence
from dataclasses import dataclass, replace

from stretto.memory.planner.instructions import (
    ALLOCATE,
    COPY_IN,
    EVICT,
    FREE,
    IN,
    OUT,
    READY,
    RECOMPUTE,
    RUN,
    WAIT_OUT,
    DeviceProgram,
    Instruction,
)
from stretto.memory.planner.program import Costs, HostLink, account

_LENGTHS = (4e-3, 1e-3, 0.25e-3)  # seconds of segments to try
_START = 8e-6  # seconds that the device takes to start a segment
_STARTED, _COPIED = 40e-6, 15e-6  # seconds of Python to start a segment, and to begin a copy or wait for it


@dataclass(frozen=True, slots=True)
class Segment:
    """A part of a program."""

    before: tuple[Instruction, ...]  # copies to wait for
    inside: tuple[Instruction, ...]  # what can be recorded
    after: tuple[Instruction, ...]  # copies to begin
    update: int | None  # the node that follows, or None at the end of the step


def segments(
    program: DeviceProgram, apart: Container[int], longest: float = math.inf, *, at_copies: bool = False
) -> list[Segment]:
    """The program in segments.

        Parameters
    ----------
    program : DeviceProgram
        The plan.
    apart : container of int
        Nodes (updates) that run between segments.
    longest : float
        Seconds of a segment, about.
    at_copies : bool
        A segment also ends where a copy begins and where its result is needed.

    Examples
    --------
        >>> from stretto.memory.planner.graph import Graph, Node, Storage
    >>> graph = Graph((Storage(4, "parameter"), Storage(8, "activation")),
    ...               (Node("make", makes=(1,)), Node("update", reads=(1,), writes=(0,))), ())
    >>> one, last = segments(DeviceProgram(graph, ((RUN, 0), (RUN, 1), (FREE, 1))), {1})
    >>> one.inside, one.update, last.inside
    (((0, 0),), 1, ((4, 1),))
    """
    ends = _ends(program.instructions)
    where = _places(program, apart, longest, at_copies=at_copies)
    inside: list[list[Instruction]] = [[] for _ in range(where[-1] + 1 if where else 1)]
    before: list[list[Instruction]] = [[] for _ in inside]
    after: list[list[Instruction]] = [[] for _ in inside]
    updates: list[int | None] = [None] * len(inside)
    under_way: set[Instruction] = set()  # (OUT or IN, storage) of copies that continue beyond their segment
    for at, instruction in enumerate(program.instructions):
        (what, which), k = instruction, where[at]
        if what == RUN and which in apart:
            updates[k] = which
        elif what in (OUT, IN) and where[ends[at]] != k:
            under_way.add(instruction)
            if what == IN:
                inside[k].append((ALLOCATE, which))
            after[k].append((COPY_IN if what == IN else OUT, which))
        elif what == EVICT and (OUT, which) in under_way:
            under_way.discard((OUT, which))
            before[k].append((WAIT_OUT, which))
            inside[k].append((FREE, which))
        elif what == READY and (IN, which) in under_way:
            under_way.discard((IN, which))
            before[k].append(instruction)
        else:
            inside[k].append(instruction)
    return [Segment(tuple(b), tuple(i), tuple(a), u) for b, i, a, u in zip(before, inside, after, updates, strict=True)]


def cut(
    program: DeviceProgram, apart: Container[int], link: HostLink | None = None, updating: float = 0.0
) -> tuple[list[Segment], Costs]:
    """The segments that replay fastest, and their cost.

    Few segments wait for copies too early and begin them too late. Many must be started one by one, and a step takes at
    least as long as Python needs for that.

    Parameters
    ----------
    program : DeviceProgram
        The plan.
    apart : container of int
        Nodes (updates) that run between segments.
    link : HostLink, optional
        Speed of copies.
    updating : float
        Seconds that Python takes for updates.
    """
    ways: list[tuple[float, bool]] = [(math.inf, False)]
    if any(what in (OUT, IN) for what, _ in program.instructions):
        ways = [(longest, at_copies) for longest in _LENGTHS for at_copies in (False, True)]
    best: tuple[list[Segment], Costs] | None = None
    for longest, at_copies in ways:
        found = segments(program, apart, longest, at_copies=at_copies)
        costs = account(as_replayed(program, found), link)
        copies = sum(len(one.before) + len(one.after) for one in found)
        python = updating + len(found) * _STARTED + copies * _COPIED
        costs = replace(costs, seconds=max(costs.seconds + len(found) * _START, python))
        if best is None or costs.seconds < best[1].seconds:
            best = found, costs
    assert best is not None
    return best


def as_replayed(program: DeviceProgram, cut: Sequence[Segment]) -> DeviceProgram:
    """The instructions in the order in which segments run them: for the times of `account`.

    Memory for copies that begin late is allocated late here, so the bytes of this program mean nothing.
    """
    order: list[Instruction] = []
    for one in cut:
        left = {s for what, s in one.before if what == WAIT_OUT}
        order += [instruction for instruction in one.before if instruction[0] == READY]
        for what, which in one.inside:
            if what == FREE and which in left:
                left.discard(which)
                order.append((EVICT, which))
            elif what != ALLOCATE:
                order.append((what, which))
        order += [(IN if what == COPY_IN else OUT, which) for what, which in one.after]
        order += [] if one.update is None else [(RUN, one.update)]
    return replace(program, instructions=tuple(order))


def _places(program: DeviceProgram, apart: Container[int], longest: float, *, at_copies: bool) -> list[int]:
    """The segment of every instruction."""
    where: list[int] = []
    k, seconds = 0, 0.0
    over = False  # the segment ends before the next node
    for what, which in program.instructions:
        if what in (RUN, RECOMPUTE) and which not in apart:
            if over or seconds > longest:
                k, seconds, over = k + 1, 0.0, False
            seconds += program.graph.nodes[which].seconds
        elif at_copies and what in (EVICT, READY) and seconds:
            k, seconds, over = k + 1, 0.0, False
        where.append(k)
        if what == RUN and which in apart:
            k, seconds, over = k + 1, 0.0, False
        elif at_copies and what in (OUT, IN):
            over = True
    return where


def _ends(instructions: Sequence[Instruction]) -> dict[int, int]:
    """By instruction that begins a copy: the one that ends it."""
    ends: dict[int, int] = {}
    begun: dict[Instruction, int] = {}
    for at, (what, which) in enumerate(instructions):
        if what in (OUT, IN):
            begun[what, which] = at
        elif what in (EVICT, READY):
            ends[begun.pop((OUT if what == EVICT else IN, which))] = at
    return ends
