"""Choose which planning settings to try: a few that differ much, then neighbours of the best (hill climbing).

Under a tight budget the fastest plan of one setting may take half as long again as that of another, and no setting is
best for all models. Neighbours of a good setting are often better still.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

BEGINS = ("cut", "drop", "swap")
WINDOWS = (0.0, 1 / 32, 1 / 16, 1 / 8, 1 / 4)
MAX_RUNS = (0.15, 0.3, 0.5, 0.8)


@dataclass(frozen=True)
class SearchPoint:
    """Settings of one attempt at a plan."""

    window: float = 1 / 16  # share of the budget for copies in flight
    max_run: float = 0.3  # share of the budget for storages that are recomputed together
    begin: str = "swap"  # what the attempt does first: "cut", "drop" or "swap"
    host_use: int = 0  # how the host is used, by number (`host_budget.host_options`)
    keep_soon: bool = False  # storages that are needed soon stay on the device
    hold: bool = False  # a storage may be kept after its last use to recompute others from it

    def neighbours(self, host_use: int) -> Iterator[list[SearchPoint]]:
        """Neighbours in each direction, of which host_use has this number of values."""
        yield [replace(self, window=x) for x in _adjacent(WINDOWS, self.window)]
        yield [replace(self, max_run=x) for x in _adjacent(MAX_RUNS, self.max_run)]
        yield [replace(self, host_use=k) for k in range(host_use) if k != self.host_use]
        yield [replace(self, begin=begin) for begin in BEGINS if begin != self.begin]
        yield [replace(self, keep_soon=not self.keep_soon)]
        yield [replace(self, hold=not self.hold)]


STARTS = (
    SearchPoint(),
    SearchPoint(max_run=0.8, begin="drop", hold=True),
    SearchPoint(max_run=0.5, begin="cut", host_use=1),
    SearchPoint(max_run=0.8, host_use=1, hold=True),
    SearchPoint(max_run=0.5, begin="cut", hold=True),
    SearchPoint(max_run=0.5, begin="drop", host_use=1),
)


def climb(price: Callable[[SearchPoint], float], host_use: int, max_tries: int, enough: float) -> None:
    """Evaluate points: first the starts, then neighbours of the cheapest points.

    Ends early when a point is cheap enough, or when no neighbour is left.

    Parameters
    ----------
    price : callable
        Seconds of the plan for a point; infinite if there is none.
    host_use : int
        Number of ways to use the host.
    max_tries : int
        Points to evaluate at most.
    enough : float
        A price at which the search ends.
    """
    known: dict[SearchPoint, float] = {}

    def evaluate(points: list[SearchPoint]) -> float:
        """The lowest price of these points, as far as they are new and tries are left."""
        found = float("inf")
        for point in points:
            if point not in known and len(known) < max_tries and min(known.values(), default=found) > enough:
                known[point] = price(point)
                found = min(found, known[point])
        return found

    evaluate([replace(point, host_use=min(point.host_use, host_use - 1)) for point in STARTS])
    left = dict(known)
    while left:
        point = min(left, key=lambda one: left[one])
        if left.pop(point) == float("inf"):
            return
        before = set(known)
        for points in point.neighbours(host_use):
            if evaluate(points) < known[point]:
                break  # continue from that point
        left.update((one, known[one]) for one in known if one not in before)
        if len(known) >= max_tries or min(known.values()) <= enough:
            return


def _adjacent(values: tuple[float, ...], value: float) -> list[float]:
    at = values.index(value)
    return [values[k] for k in (at - 1, at + 1) if 0 <= k < len(values)]
