"""Which ways of planning to try: some that differ much, then the neighbours of whichever was best.

Under a tight budget the fastest plan of one way may take half as long again as that of another, and no way is best for
all models; neighbours of a good one are often better still.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

BEGINS = ("cut", "drop", "swap")
WINDOWS = (0.0, 1 / 32, 1 / 16, 1 / 8, 1 / 4)
LONGEST = (0.15, 0.3, 0.5, 0.8)


@dataclass(frozen=True)
class Point:
    """A way of planning. window, longest: shares of the budget for copies under way and for one run of what is made
    again. begin: what comes first. rooms: how the host is used, by number. soon: what is wanted soon stays. hold: a
    storage may be kept beyond its last use to recompute others from it."""

    window: float = 1 / 16
    longest: float = 0.3
    begin: str = "swap"
    rooms: int = 0
    soon: bool = False
    hold: bool = False

    def near(self, rooms: int) -> Iterator[list[Point]]:
        """Neighbours in each direction; rooms: how many ways there are to use the host."""
        yield [replace(self, window=x) for x in _beside(WINDOWS, self.window)]
        yield [replace(self, longest=x) for x in _beside(LONGEST, self.longest)]
        yield [replace(self, rooms=k) for k in range(rooms) if k != self.rooms]
        yield [replace(self, begin=begin) for begin in BEGINS if begin != self.begin]
        yield [replace(self, soon=not self.soon)]
        yield [replace(self, hold=not self.hold)]


STARTS = (
    Point(),
    Point(longest=0.8, begin="drop", hold=True),
    Point(longest=0.5, begin="cut", rooms=1),
    Point(longest=0.8, rooms=1, hold=True),
    Point(longest=0.5, begin="cut", hold=True),
    Point(longest=0.5, begin="drop", rooms=1),
)


def climb(price: Callable[[Point], float], rooms: int, most: int, enough: float) -> None:
    """Ask for prices of so many points at most: first of those to start from, then of neighbours of the cheapest whose
    neighbours were not asked for yet. Ends early when one is cheap enough, or when nothing is left."""
    known: dict[Point, float] = {}

    def ask(points: list[Point]) -> float:
        """The cheapest of them, as far as they are new and there are tries left."""
        found = float("inf")
        for point in points:
            if point not in known and len(known) < most and min(known.values(), default=found) > enough:
                known[point] = price(point)
                found = min(found, known[point])
        return found

    ask([replace(point, rooms=min(point.rooms, rooms - 1)) for point in STARTS])
    left = dict(known)
    while left:
        point = min(left, key=lambda one: left[one])
        if left.pop(point) == float("inf"):
            return
        before = set(known)
        for points in point.near(rooms):
            if ask(points) < known[point]:
                break  # go on from there
        left.update((one, known[one]) for one in known if one not in before)
        if len(known) >= most or min(known.values()) <= enough:
            return


def _beside(values: tuple[float, ...], value: float) -> list[float]:
    at = values.index(value)
    return [values[k] for k in (at - 1, at + 1) if 0 <= k < len(values)]
