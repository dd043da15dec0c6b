"""Simulate torch's caching allocator over one block of memory, and find how to make it use a given address.

The allocator takes the smallest free block that is large enough, of equal ones the one with the lowest address, and the
allocation is at the block's beginning. The rest of the block is split off if it is more than a megabyte. So an address
can be chosen: while other allocations *hold* all blocks that would be taken before the wanted one, the next allocation
gets the wanted address.

    arena = Arena()
    a, b, c = arena.allocate(8 << 20), arena.allocate(6 << 20), arena.allocate(2 << 20)
    arena.free(a)
    arena.holds(4 << 20, 16 << 20)     # (8388608,): hold the first block, and the next one is behind c
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence

SMALL = 1 << 20  # bytes: smaller allocations come from another pool, smaller rests are not split off
ENDLESS = 1 << 60
ALIGNED = 512  # bytes: allocations begin at multiples of it
_SEGMENT, _SEGMENTS = (
    20 << 20,
    2 << 20,
)  # bytes of the smallest segment that the allocator takes from the device, and the unit of others


def rounded(nbytes: int) -> int:
    """Bytes that an allocation takes."""
    return max(ALIGNED, -(-nbytes // ALIGNED) * ALIGNED)


def segment_bytes(nbytes: int) -> int:
    """Bytes of the segment that torch takes from the device for an allocation of `nbytes` or more."""
    return max(_SEGMENT, -(-nbytes // _SEGMENTS) * _SEGMENTS)


class ArenaFull(Exception):
    """No free block is large enough."""


class Arena:
    """The allocator's free blocks within one large block.

    Parameters
    ----------
    nbytes : int
        Bytes of the large block; unlimited unless given.

    Attributes
    ----------
    top : int
        One beyond the last byte that was ever allocated.
    nbytes : int
        Bytes of the large block.
    """

    def __init__(self, nbytes: int = ENDLESS) -> None:
        self.top, self.nbytes = 0, nbytes
        self._free = [(nbytes, 0)]  # (bytes, address), sorted
        self._starts = [0]  # addresses of free blocks, sorted
        self._begins: dict[int, int] = {0: nbytes}  # free blocks: bytes by address
        self._ends: dict[int, int] = {nbytes: 0}  # and addresses by end
        self._used: dict[int, int] = {}  # bytes by address

    def _best(self, nbytes: int) -> tuple[int, int]:
        """The free block that an allocation is taken from: bytes and address."""
        at = bisect.bisect_left(self._free, (nbytes, -1))
        if at == len(self._free):
            raise ArenaFull(f"no free block of {nbytes} bytes")
        return self._free[at]

    def hold(self, nbytes: int) -> int:
        """Allocate an unused block, possibly far beyond all others; its address."""
        top = self.top
        address = self.allocate(nbytes)
        self.top = top
        return address

    def allocate(self, nbytes: int) -> int:
        """Allocate a block; its address."""
        nbytes = rounded(nbytes)
        size, address = self._best(nbytes)
        self._remove(address, size)
        if size - nbytes > SMALL:
            self._add(address + nbytes, size - nbytes)
            size = nbytes
        self._used[address] = size
        self.top = max(self.top, address + size)
        return address

    def next(self, nbytes: int) -> tuple[int, int]:
        """The address that an allocation would get, and the end of its block."""
        nbytes = rounded(nbytes)
        size, address = self._best(nbytes)
        return address, address + (nbytes if size - nbytes > SMALL else size)

    def end(self, address: int) -> int:
        """The first byte beyond the block of an allocation, which may be a little larger than requested."""
        return address + self._used[address]

    def free(self, address: int) -> None:
        """Free an allocation; its block joins free neighbours."""
        size = self._used.pop(address)
        if (before := self._ends.get(address)) is not None:
            nbytes = self._begins[before]
            self._remove(before, nbytes)
            address, size = before, size + nbytes
        if (after := self._begins.get(address + size)) is not None:
            self._remove(address + size, after)
            size += after
        self._add(address, size)

    def last(self) -> int:
        """Bytes of the last block if it is free and an allocation of that size would take it; otherwise 0."""
        start = self._starts[-1] if self._starts else 0
        nbytes = self._begins.get(start, 0)
        last = start + nbytes == self.nbytes and nbytes > SMALL and self._best(nbytes)[1] == start
        return nbytes if last else 0

    def nearest(self, address: int, nbytes: int) -> int | None:
        """The nearest address at or below the wanted one at which `nbytes` can be allocated; None if it is not free.

        That is the address itself, or the beginning of its free block if that is less than a megabyte below.
        """
        at = bisect.bisect_right(self._starts, address) - 1
        if at < 0:
            return None
        start = self._starts[at]
        size = self._begins[start]
        if 0 < address - start <= SMALL:  # too little to be held by another allocation
            address = start
        return address if address + rounded(nbytes) <= start + size else None

    def holds(self, nbytes: int, address: int) -> tuple[int, ...]:
        """Bytes to hold, in this order, so that the next allocation of `nbytes` or more is at an address from
        `nearest`.

        Later allocations stay in the same block as long as they fit.
        """
        start = self._starts[bisect.bisect_right(self._starts, address) - 1]
        size, before, least = self._begins[start], address - start, rounded(nbytes)
        found: list[int] = []
        if before:  # bytes in front of the address; before them the blocks that they would be taken from
            found += [other for other, place in self._from(before) if (other, place) < (size, start)]
            found.append(before)
        left = size - before, address
        found += [n for n, place in self._from(least) if (n, place) < left and (not before or n < before)]
        return tuple(found)

    def carve(self, wanted: Sequence[tuple[int, int]]) -> tuple[list[int], list[int]] | None:
        """Holds that leave free blocks exactly where some allocations are wanted, each of its own size.

        Parameters
        ----------
        wanted : sequence of (address, bytes)
            They do not overlap.

        Returns
        -------
        tuple or None
            Bytes to hold, in this order, and which of the holds are freed before the wanted allocations are made.
            None if an address is not free.
        """
        inside: dict[int, list[tuple[int, int]]] = {}
        for address, nbytes in sorted(wanted):
            at = bisect.bisect_right(self._starts, address) - 1
            if at < 0 or address + nbytes > self._starts[at] + self._begins[self._starts[at]]:
                return None
            inside.setdefault(self._starts[at], []).append((address, rounded(nbytes)))
        least = min(rounded(nbytes) for _, nbytes in wanted)
        for start, those in inside.items():
            ends = [start, *(address + n for address, n in those)]
            gaps = [address - end for (address, _), end in zip(those, ends, strict=False)]
            least = min([least, *(gap for gap in gaps if gap > SMALL)])
        holds: list[int] = []
        freed: list[int] = []
        for size, start in self._from(least):  # the smallest first, as the allocator takes them
            if start not in inside:
                holds.append(size)
                continue
            cursor, end = start, start + size
            for address, nbytes in inside[start]:
                if address - cursor > SMALL:
                    holds.append(address - cursor)
                    cursor = address
                freed.append(len(holds))
                holds.append(nbytes)
                cursor += nbytes
                if cursor > end:
                    return None
            if end - cursor > SMALL:
                holds.append(end - cursor)
        return holds, freed

    def _from(self, nbytes: int) -> list[tuple[int, int]]:
        """Free blocks of at least `nbytes`, the smallest first."""
        return self._free[bisect.bisect_left(self._free, (nbytes, -1)) :]

    def _add(self, address: int, nbytes: int) -> None:
        bisect.insort(self._free, (nbytes, address))
        bisect.insort(self._starts, address)
        self._begins[address] = nbytes
        self._ends[address + nbytes] = address

    def _remove(self, address: int, nbytes: int) -> None:
        del self._free[bisect.bisect_left(self._free, (nbytes, address))]
        del self._starts[bisect.bisect_left(self._starts, address)]
        del self._begins[address], self._ends[address + nbytes]
