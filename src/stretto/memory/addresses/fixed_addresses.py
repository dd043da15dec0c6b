"""Order the copies that bring persistent storages back to the addresses they had when the step began.

A persistent storage may be away for a part of a step and comes back to any free address. A recorded CUDA graph reads it
at a fixed address when it begins, so at its end each storage is copied to its fixed address. Another storage may occupy
that address. So storages that block no target move first, and where they block one another in a cycle, one of them goes
through a buffer.
"""

from __future__ import annotations

from collections.abc import Sequence

DIRECT, TO_BUFFER, FROM_BUFFER = range(3)  # to the fixed address; to a buffer; from there to the fixed address

Span = tuple[int, int]  # first byte, and the first beyond


def order_moves(current: Sequence[Span], start_addresses: Sequence[Span]) -> list[tuple[int, int]]:
    """Moves (kind, which) that bring every storage from its current to its fixed addresses.

    Neither the current spans overlap one another, nor the fixed ones.

    >>> order_moves([(0, 8), (8, 16)], [(8, 16), (16, 24)])
    [(0, 1), (0, 0)]
    >>> order_moves([(0, 8), (8, 16)], [(8, 16), (0, 8)])  # each at the other's fixed address
    [(1, 0), (0, 1), (2, 0)]
    """
    left = [k for k, (where, target) in enumerate(zip(current, start_addresses, strict=True)) if where != target]
    occupied = set(left)  # storages that are still at their current address
    moves: list[tuple[int, int]] = []
    while left:
        free = [k for k in left if not any(j != k and _overlap(current[j], start_addresses[k]) for j in occupied)]
        free = [k for k in free if k not in occupied or not _overlap(current[k], start_addresses[k])]
        if free:
            for k in free:
                moves.append((DIRECT if k in occupied else FROM_BUFFER, k))
                occupied.discard(k)
            left = [k for k in left if k not in set(free)]
        else:
            smallest = min(occupied, key=lambda k: (current[k][1] - current[k][0], k))
            moves.append((TO_BUFFER, smallest))
            occupied.discard(smallest)
    return moves


def _overlap(one: Span, other: Span) -> bool:
    return one[0] < other[1] and other[0] < one[1]
