"""A few clocks that only go forward, and the lowest of them at any moment.

A cache has one for each of its workers, a shard one for each node; the lowest is the node's clock, or the shard's.

    >>> clocks = Clocks(3)
    >>> clocks.advance(0, 1), clocks.advance(1, 2), clocks.low
    (False, False, 0)
    >>> clocks.advance(2, 1), clocks.low
    (True, 1)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from stretto.errors import RunError

FOREVER = 2**62  # the clock of one that nobody has to wait for: it has ended, or there is none


class Clocks:
    """`values[i]` is clock i, `low` the lowest. Without any clock `low` stays where it started.

    Looking for the lowest costs a pass over all, but only when the last one that stood there leaves: once a clock.
    """

    __slots__ = ("_there", "low", "values")

    def __init__(self, clocks: int | Iterable[int], start: int = 0) -> None:
        self.values: list[int] = [start] * clocks if isinstance(clocks, int) else list(clocks)
        self.low = min(self.values, default=start)
        self._there = self.values.count(self.low)  # how many stand at the lowest

    def advance(self, i: int, clock: int) -> bool:
        """Clock i has come to `clock`; True when the lowest has moved by it."""
        before = self.values[i]
        if clock <= before:
            if clock < before:
                raise RunError(f"clock {i} went back from {before} to {clock}: messages were delivered out of order")
            return False
        self.values[i] = clock
        if before != self.low:
            return False
        self._there -= 1
        if self._there:
            return False
        self.low = min(self.values)
        self._there = self.values.count(self.low)
        return True

    def tick(self, i: int) -> bool:
        """Clock i goes on by one; True when the lowest has moved by it."""
        return self.advance(i, self.values[i] + 1)

    def retire(self, i: int) -> bool:
        """Nobody waits for clock i any more; True when the lowest has moved by it."""
        return self.advance(i, FOREVER)

    @property
    def high(self) -> int:
        """The highest of those that still run; the lowest where none does."""
        return max((clock for clock in self.values if clock < FOREVER), default=self.low)

    def __getitem__(self, i: int) -> int:
        return self.values[i]

    def __len__(self) -> int:
        return len(self.values)

    def __iter__(self) -> Iterator[int]:
        return iter(self.values)
