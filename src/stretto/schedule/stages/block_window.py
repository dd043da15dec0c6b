"""`BlockWindow`: which block of a data set is read next, while others are used.

    window = BlockWindow(counts=[3, 3], ahead=2)
    window.expect(0, 0)                     part 0 begins with its block 0
    window.next()                           BlockRead(part=0, block=0)
    window.arrived(0, 0, nbytes=1000)
    window.want(0, 0), window.taken(0, 0)   part 0 uses it; its window is now blocks 1 and 2

The rules:

1. Blocks that a part waits for are read first, in the order in which they were asked for.
2. Then come the next blocks of all parts, `ahead` of each at most: the one needed soonest, then the lowest part.
3. With a limit of memory, a block is read ahead only if it fits. Space is made by blocks outside all windows; those
   needed last go first. Parts use their blocks in turn, so these are the ones that were used just now.
4. A block that a part waits for is read in any case, and stays until the part has taken it.

So what a part sees never depends on time: it asks for a block by number, and waits. Pure: no threads, no clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

Block = tuple[int, int]  # part, and number among the blocks of the part


@dataclass(frozen=True)
class BlockRead:
    """A block to read now, and blocks to drop first."""

    part: int
    block: int
    drops: tuple[Block, ...] = ()

    @property
    def key(self) -> Block:
        """Part and block."""
        return self.part, self.block


class BlockWindow:
    """Which blocks are present, which are being read, which come next.

    Parameters
    ----------
    counts : sequence of int
        Blocks of each part.
    ahead : int
        Blocks of a part that are read before the part asks for them, at most.
    memory : int or None, default None
        Bytes of all blocks that are present; None for no limit.
    """

    def __init__(self, counts: Sequence[int], ahead: int, memory: int | None = None) -> None:
        self.counts, self.ahead, self.memory = tuple(counts), ahead, memory
        self._next: dict[int, int] = {}  # by part: the block that it uses next
        self._wanted: dict[Block, int] = {}  # by block: how many wait for it; in the order of their requests
        self._reading: set[Block] = set()
        self._sizes: dict[Block, int] = {}  # of blocks that are present
        self._largest = 0

    # -- what happens -------------------------------------------------------------------------------------------------

    def expect(self, part: int, block: int) -> None:
        """A part begins with this block soon."""
        self._next[part] = block

    def want(self, part: int, block: int) -> None:
        """A part waits for this block."""
        self._wanted[part, block] = self._wanted.get((part, block), 0) + 1
        self._next[part] = block

    def taken(self, part: int, block: int) -> tuple[Block, ...]:
        """A part has got its block, or has given up; returns blocks to drop."""
        left = self._wanted[part, block] - 1
        if left:
            self._wanted[part, block] = left
        else:
            del self._wanted[part, block]
        self._next[part] = (block + 1) % self.counts[part]
        return self._trim()

    def arrived(self, part: int, block: int, nbytes: int) -> tuple[Block, ...]:
        """A block was read; returns blocks to drop, of which it may be one."""
        self._reading.discard((part, block))
        self._sizes[part, block] = nbytes
        self._largest = max(self._largest, nbytes)
        return self._trim()

    def failed(self, part: int, block: int) -> None:
        """A block could not be read. It is read again only when a part asks for it."""
        self._reading.discard((part, block))
        self._next.pop(part, None)

    def stop(self) -> None:
        """Read nothing ahead until parts ask for blocks again."""
        self._next.clear()

    # -- what is decided ----------------------------------------------------------------------------------------------

    def next(self) -> BlockRead | None:
        """The next block to read; None: nothing for now. It counts as being read from now on."""
        for key in self._wanted:
            if not self._known(key):
                return self._read(key, self._space())
        soonest = min(
            (
                (distance, part)
                for part, first in self._next.items()
                for distance in range(min(self.ahead, self.counts[part]))
                if not self._known((part, (first + distance) % self.counts[part]))
            ),
            default=None,
        )
        if soonest is None or (self.memory is not None and self._largest == 0 and self._reading):
            return None  # nothing is missing, or how large a block is shows when the first has arrived
        distance, part = soonest
        drops = self._space()
        if self.memory is not None and self._need(drops) > self.memory:
            return None
        return self._read((part, (self._next[part] + distance) % self.counts[part]), drops)

    @property
    def present(self) -> frozenset[Block]:
        """Blocks that are present."""
        return frozenset(self._sizes)

    @property
    def nbytes(self) -> int:
        """Bytes of the blocks that are present."""
        return sum(self._sizes.values())

    def _known(self, key: Block) -> bool:
        return key in self._sizes or key in self._reading

    def _read(self, key: Block, drops: tuple[Block, ...]) -> BlockRead:
        for gone in drops:
            del self._sizes[gone]
        self._reading.add(key)
        return BlockRead(*key, drops)

    def _need(self, drops: tuple[Block, ...]) -> int:
        """Bytes with one more block of the largest size, and with those that are being read."""
        return self.nbytes - sum(self._sizes[gone] for gone in drops) + (len(self._reading) + 1) * self._largest

    def _space(self) -> tuple[Block, ...]:
        """Blocks outside all windows to drop before one more is read: no more than necessary."""
        drops: tuple[Block, ...] = ()
        if self.memory is None:
            return drops
        for key in self._unneeded(self.ahead):
            if self._need(drops) <= self.memory:
                break
            drops = (*drops, key)
        return drops

    def _trim(self) -> tuple[Block, ...]:
        """Drop what is more than the memory."""
        if self.memory is None:
            return ()
        drops = []
        for key in self._unneeded(0):
            if self.nbytes <= self.memory:
                break
            del self._sizes[key]
            drops.append(key)
        return tuple(drops)

    def _unneeded(self, distance: int) -> list[Block]:
        """Present blocks for which nobody waits and that are needed after this many others; the last needed first."""
        found = [
            (self._distance(key), key)
            for key in self._sizes
            if key not in self._wanted and self._distance(key) >= distance
        ]
        return [key for _, key in sorted(found, reverse=True)]

    def _distance(self, key: Block) -> int:
        """Blocks that the part uses before this one; of a part that is not expected: more than any."""
        part, block = key
        if part not in self._next:
            return max(self.counts)
        return (block - self._next[part]) % self.counts[part]
