"""Where what lasts sits when a step ends: at the same addresses as when it began.

A storage at home on the device may be away for a while and comes back to wherever there is room then. A recording reads
it at fixed addresses when it begins, so at its end everything goes back to its *seat*, a quick copy on the device.
Seats may be taken by others that have come back: who sits in nobody's way moves first, and where everybody is in
somebody's way, one is put aside.
"""

from __future__ import annotations

from collections.abc import Sequence

STRAIGHT, ASIDE, BACK = range(3)  # to the seat; to a place aside; from there to the seat

Span = tuple[int, int]  # first byte, and the first beyond


def orderly(places: Sequence[Span], seats: Sequence[Span]) -> list[tuple[int, int]]:
    """Moves (what, which) that bring everybody from place to seat. Places do not overlap, nor do seats.

    >>> orderly([(0, 8), (8, 16)], [(8, 16), (16, 24)])
    [(0, 1), (0, 0)]
    >>> orderly([(0, 8), (8, 16)], [(8, 16), (0, 8)])  # each in the other's seat
    [(1, 0), (0, 1), (2, 0)]
    """
    left = [k for k, (place, seat) in enumerate(zip(places, seats, strict=True)) if place != seat]
    standing = set(left)  # whose place is still taken by them
    moves: list[tuple[int, int]] = []
    while left:
        free = [k for k in left if not any(j != k and _overlap(places[j], seats[k]) for j in standing)]
        free = [k for k in free if k not in standing or not _overlap(places[k], seats[k])]
        if free:
            for k in free:
                moves.append((STRAIGHT if k in standing else BACK, k))
                standing.discard(k)
            left = [k for k in left if k not in set(free)]
        else:
            smallest = min(standing, key=lambda k: (places[k][1] - places[k][0], k))
            moves.append((ASIDE, smallest))
            standing.discard(smallest)
    return moves


def _overlap(one: Span, other: Span) -> bool:
    return one[0] < other[1] and other[0] < one[1]
