"""A set of monotonic clocks, and their minimum at any moment.

A cache has one clock for each of its workers, a shard one for each node. The lowest is the clock of the node or shard.

    >>> clocks = Clocks(3)
    >>> clocks.advance(0, 1), clocks.advance(1, 2), clocks.low
    (False, False, 0)
    >>> clocks.advance(2, 1), clocks.low
    (True, 1)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from stretto.errors import RunError

FOREVER = 2**62  # the clock of a worker or node that has ended, or that does not exist: no one waits for it


class Clocks:
    """`values[i]` is clock i, `low` the lowest. Without any clock `low` keeps its first value.

    Finding the lowest takes a pass over all clocks, but only when the last clock at the lowest value advances.
    """

    __slots__ = ("_at_low", "low", "values")

    def __init__(self, clocks: int | Iterable[int], start: int = 0) -> None:
        self.values: list[int] = [start] * clocks if isinstance(clocks, int) else list(clocks)
        self.low = min(self.values, default=start)
        self._at_low = self.values.count(self.low)  # how many clocks are at the lowest value

    def advance(self, i: int, clock: int) -> bool:
        """Set clock i to `clock`; True when that raises the lowest."""
        before = self.values[i]
        if clock <= before:
            if clock < before:
                raise RunError(f"clock {i} went back from {before} to {clock}: messages were delivered out of order")
            return False
        self.values[i] = clock
        if before != self.low:
            return False
        self._at_low -= 1
        if self._at_low:
            return False
        self.low = min(self.values)
        self._at_low = self.values.count(self.low)
        return True

    def tick(self, i: int) -> bool:
        """Advance clock i by one; True when that raises the lowest."""
        return self.advance(i, self.values[i] + 1)

    def retire(self, i: int) -> bool:
        """Take clock i out of the minimum; True when that raises the lowest."""
        return self.advance(i, FOREVER)

    @property
    def high(self) -> int:
        """The highest clock that is not retired; the lowest where all are."""
        return max((clock for clock in self.values if clock < FOREVER), default=self.low)

    def __getitem__(self, i: int) -> int:
        return self.values[i]

    def __len__(self) -> int:
        return len(self.values)

    def __iter__(self) -> Iterator[int]:
        return iter(self.values)
