"""Addresses for all allocations of a program at once, so that little memory is lost between them.

Lifetimes are known beforehand, so addresses can be chosen with the future in view: the largest allocations are placed
first, each at the lowest address that is free for as long as it lives. An operation that allocates several times is
placed as a whole, in the layout that the allocator gives it in free memory. A storage that is away for a part of the
step has the same address before and after.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from stretto.kernels.plan_place import packed

from .arena import Arena, rounded
from .gaps import Ints
from .lifetimes import Lifetimes

_MANY = 20_000  # allocations from which on nothing is placed: it would take minutes
_ROUNDS, _FEWEST, _WORK = 60, 3, 300_000_000  # orders that are tried for either start; the square of items times these

Rows = np.ndarray[tuple[int, int], np.dtype[np.int64]]


@dataclass(frozen=True, slots=True, eq=False)
class Item:
    """Allocations that are placed together.

    which : their numbers
    offsets : by allocation, its address beyond that of the item
    rects : [n, 4]: from when, until when, the first byte and the first beyond, relative to the item
    """

    which: tuple[int, ...]
    offsets: tuple[int, ...]
    rects: Rows


def place(lifetimes: Lifetimes, enough: int = 0) -> tuple[dict[int, int], int] | None:
    """An address for every allocation, and the bytes that all take. None if there are too many to be placed.

    The order in which items are placed decides. Those that end up too high are placed earlier the next time, until all
    take no more than `enough` bytes, or for some rounds; the best round counts.
    """
    if len(lifetimes.nbytes) > _MANY:
        return None
    items = _items(lifetimes)
    if not items:
        return {}, 0
    packing = _Packing(items)
    aim = max(enough, _peak(lifetimes))
    best, base = -1, np.empty(0, np.int64)
    for start in (np.lexsort((-packing.long, -packing.tall)), np.lexsort((-packing.tall, -packing.long))):
        rank = np.empty(len(items))
        rank[start] = np.arange(len(items))
        for _ in range(max(_FEWEST, min(_ROUNDS, _WORK // len(items) ** 2))):
            top = packing.packed(np.argsort(rank, kind="stable"))
            if best < 0 or top < best:
                best, base = top, packing.base.copy()
            if best <= aim:
                break
            late = packing.base + packing.height > aim
            rank[late] = rank[late] / 2 - 1
            rank = rank.argsort(kind="stable").argsort(kind="stable").astype(np.float64)
        if best <= aim:
            break
    address = {
        k: int(base[n]) + offset
        for n, item in enumerate(items)
        for k, offset in zip(item.which, item.offsets, strict=True)
    }
    return address, best


class _Packing:
    """Items as arrays.

    base : array [items]
        Their addresses, as they were last placed.
    tall, long, height : array [items]
        The bytes of the largest rectangle of each, how long its rectangles live together, and where it ends.
    """

    def __init__(self, items: Sequence[Item]) -> None:
        rects = np.vstack([one.rects for one in items])
        self.bounds = np.zeros(len(items) + 1, np.int64)
        np.cumsum([len(one.rects) for one in items], out=self.bounds[1:])
        self.rects = [np.ascontiguousarray(rects[:, k]) for k in range(4)]
        since, until, bottom, top = self.rects
        self.tall = np.maximum.reduceat(top - bottom, self.bounds[:-1])
        self.long = np.add.reduceat(until - since, self.bounds[:-1])
        self.height = np.maximum.reduceat(top, self.bounds[:-1])
        most = int(np.diff(self.bounds).max()) * len(rects)
        self._space = np.empty((4, len(rects)), np.int64), np.empty(most, np.int64), np.empty(most, np.int64)
        self.base = np.empty(len(items), np.int64)

    def packed(self, order: Ints) -> int:
        """Place the items in this order; the bytes that they take."""
        return int(packed(order, self.bounds, *self.rects, *self._space, self.base))


def _peak(lifetimes: Lifetimes) -> int:
    """The most bytes that are allocated at once: no placement takes less."""
    change = np.zeros(lifetimes.count + 3, np.int64)
    sizes = np.array([rounded(n) for n in lifetimes.nbytes], np.int64)
    once = np.array(
        [s >= 0 or e > b + 1 for s, b, e in zip(lifetimes.storage, lifetimes.begin, lifetimes.end, strict=True)]
    )
    np.add.at(
        change, np.array(lifetimes.begin)[once] + 1, sizes[once]
    )  # parts of workspaces need not be there together
    np.add.at(change, np.array(lifetimes.end)[once] + 1, -sizes[once])
    return int(np.cumsum(change).max())


def _items(lifetimes: Lifetimes) -> list[Item]:
    items: list[Item] = []
    returning: dict[int, list[int]] = {lifetimes.storage[k]: [k] for k in lifetimes.first}
    for at, events in lifetimes.requests.items():
        made = [k for k in events if k >= 0]
        if len(made) == 1 and lifetimes.storage[made[0]] in returning:
            returning[lifetimes.storage[made[0]]].append(made[0])
        elif len(made) == 1:
            items.append(Item((made[0],), (0,), _rects(lifetimes, made, (0,))))
        else:
            arena = Arena()
            offsets: dict[int, int] = {}
            for k in events:
                if k >= 0:
                    offsets[k] = arena.take(lifetimes.nbytes[k])
                else:
                    arena.give(offsets[~k])
            places = tuple(offsets.values())
            rects = _rects(lifetimes, made, places)
            items.append(Item(tuple(made), places, np.vstack((rects, [[at, at + 1, 0, arena.top]]))))
    for those in returning.values():
        items.append(Item(tuple(those), (0,) * len(those), _rects(lifetimes, those, (0,) * len(those))))
    return items


def _rects(lifetimes: Lifetimes, which: Sequence[int], offsets: Sequence[int]) -> Rows:
    rows = [
        (lifetimes.begin[k], lifetimes.end[k], y, y + rounded(lifetimes.nbytes[k]))
        for k, y in zip(which, offsets, strict=True)
    ]
    return np.array(rows, np.int64)
