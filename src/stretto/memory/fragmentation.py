"""How large one piece of memory must be so that a program's temporary tensors can be cut from it, gaps included.

Torch's allocator takes the smallest free block that is large enough, and splits off what is left over. Tensors of many
sizes that come and go leave gaps between one another, so a piece of the size of the peak is not enough. The program
says who comes and goes in which order, so the gaps can be found beforehand.

    arena_bytes(program)    # at least the peak of temporary storages
    footprint(program)      # with all that stays on the device: what must be within the budget
"""

from __future__ import annotations

import bisect
from dataclasses import replace

from .program import AGAIN, FREE, GONE, IN, RUN, Program, account

SMALL = 1 << 20  # bytes up to which torch's allocator takes memory from elsewhere, and what it does not split off
_ROUND = 512
_ENDLESS = 1 << 60


class BestFit:
    """An allocator that takes the smallest free block, of those the one with the lowest address.

    Attributes
    ----------
    top : int
        One beyond the last byte that was ever in use.

    Examples
    --------
    >>> memory = BestFit()
    >>> first, second = memory.take(4 << 20), memory.take(8 << 20)
    >>> memory.give(first)
    >>> memory.take(6 << 20) >> 20, memory.top >> 20
    (12, 18)
    """

    def __init__(self) -> None:
        self.top = 0
        self._free = [(_ENDLESS, 0)]  # (bytes, address), sorted
        self._used: dict[int, int] = {}  # bytes by address
        self._begins: dict[int, int] = {0: _ENDLESS}  # free blocks: bytes by address
        self._ends: dict[int, int] = {_ENDLESS: 0}  # and addresses by end

    def take(self, nbytes: int) -> int:
        """The address of a new block."""
        nbytes = max(_ROUND, -(-nbytes // _ROUND) * _ROUND)
        size, address = self._free[bisect.bisect_left(self._free, (nbytes, -1))]
        self._remove(address, size)
        if size - nbytes > SMALL:
            self._add(address + nbytes, size - nbytes)
            size = nbytes
        self._used[address] = size
        self.top = max(self.top, address + size)
        return address

    def give(self, address: int) -> None:
        """Free a block; it joins free neighbours."""
        size = self._used.pop(address)
        if (before := self._ends.get(address)) is not None:
            nbytes = self._begins[before]
            self._remove(before, nbytes)
            address, size = before, size + nbytes
        if (nbytes_after := self._begins.get(address + size)) is not None:
            self._remove(address + size, nbytes_after)
            size += nbytes_after
        self._add(address, size)

    def _add(self, address: int, nbytes: int) -> None:
        bisect.insort(self._free, (nbytes, address))
        self._begins[address] = nbytes
        self._ends[address + nbytes] = address

    def _remove(self, address: int, nbytes: int) -> None:
        del self._free[bisect.bisect_left(self._free, (nbytes, address))]
        del self._begins[address], self._ends[address + nbytes]


def travelling(program: Program) -> set[int]:
    """Persistent storages that are at home on the device and away in a part of the step."""
    lasting = {s for s, one in enumerate(program.graph.storages) if one.lasting}
    moved = {which for what, which in program.instructions if what in (GONE, FREE)}
    return (lasting & moved) - program.on_host


def arena_bytes(program: Program) -> int:
    """Bytes of one piece from which all temporary storages of a program can be cut, small ones aside. Persistent
    storages that travel are cut from it, too."""
    storages, nodes = program.graph.storages, program.graph.nodes
    away = travelling(program)
    memory = BestFit()
    place: dict[int, int] = {}

    def take(s: int) -> None:
        one = storages[s]
        temporary = not one.lasting or s in program.on_host or s in away
        if s not in place and one.nbytes > SMALL and one.kind != "input" and temporary:
            place[s] = memory.take(one.nbytes)

    for s in sorted(away):
        take(s)
    for what, which in program.instructions:
        if what in (RUN, AGAIN):
            for s in nodes[which].makes:
                take(s)
            if nodes[which].workspace > SMALL:
                memory.give(memory.take(nodes[which].workspace))
        elif what == IN:
            take(which)
        elif what in (FREE, GONE) and which in place:
            memory.give(place.pop(which))
    return memory.top


def small_bytes(program: Program) -> int:
    """The peak of small temporary storages."""
    graph = program.graph
    storages = tuple(
        one if one.nbytes <= SMALL and not one.lasting else replace(one, nbytes=0) for one in graph.storages
    )
    nodes = tuple(replace(node, workspace=min(node.workspace, SMALL)) for node in graph.nodes)
    return account(replace(program, graph=replace(graph, storages=storages, nodes=nodes))).peak


def footprint(program: Program) -> int:
    """Bytes that a program takes on the device: what stays there, the arena, and small tensors beside it."""
    elsewhere = program.on_host | travelling(program)
    storages = program.graph.storages
    always = sum(one.nbytes for s, one in enumerate(storages) if one.lasting and s not in elsewhere)
    inputs = sum(one.nbytes for one in storages if one.kind == "input" and one.nbytes > SMALL)
    return always + inputs + arena_bytes(program) + small_bytes(program)
