"""Addresses for all allocations of a program at once, so that little memory is lost between them.

Lifetimes are known beforehand, so addresses can be chosen with the future in view: the largest allocations are placed
first, each at the lowest address that is free for as long as it lives. An operation that allocates several times is
placed as a whole, in the layout that the allocator gives it in free memory. A storage that is away for a part of the
step has the same address before and after.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from .arena import Arena, rounded
from .lifetimes import Lifetimes

_MANY = 20_000  # allocations from which on nothing is placed: it would take minutes
_ROUNDS, _FEWEST, _WORK = 15, 2, 20_000  # orders that are tried for either start; items times orders

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
    tall = np.array([int((one.rects[:, 3] - one.rects[:, 2]).max()) for one in items])
    long = np.array([int((one.rects[:, 1] - one.rects[:, 0]).sum()) for one in items])
    aim = max(enough, _peak(lifetimes))
    best: tuple[dict[int, int], int] | None = None
    for start in (np.lexsort((-long, -tall)), np.lexsort((-tall, -long))):
        order = start.astype(np.float64).argsort().astype(np.float64)  # by item: its place in the order
        for _ in range(max(_FEWEST, min(_ROUNDS, _WORK // len(items)))):
            address, top, late = _packed(items, np.argsort(order, kind="stable").tolist(), aim)
            if best is None or top < best[1]:
                best = address, top
            if best[1] <= aim:
                return best
            order[late] = order[late] / 2 - 1
            order = order.argsort(kind="stable").argsort(kind="stable").astype(np.float64)
    return best


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


def _packed(items: Sequence[Item], order: Iterable[int], aim: int) -> tuple[dict[int, int], int, list[int]]:
    """Addresses if items are placed in this order, the bytes that they take, and the items that end beyond `aim`."""
    total = sum(len(one.rects) for one in items)
    placed = np.empty((4, total), np.int64)  # from when, until when, the first byte, the first beyond
    count = top = 0
    address: dict[int, int] = {}
    late = []
    for n in order:
        item = items[n]
        base = _lowest(item, placed[:, :count])
        for k, offset in zip(item.which, item.offsets, strict=True):
            address[k] = base + offset
        rows = item.rects.T.copy()
        rows[2:] += base
        placed[:, count : count + rows.shape[1]] = rows
        count += rows.shape[1]
        end = int(rows[3].max())
        if end > aim:
            late.append(n)
        top = max(top, end)
    return address, top, late


def _lowest(item: Item, placed: Rows) -> int:
    """The lowest address at which nothing of an item overlaps what is placed."""
    begin, end, first, beyond = placed
    low, high = [], []
    for since, until, bottom, top in item.rects.tolist():
        there = (begin < until) & (end > since)
        low.append(first[there] - top)
        high.append(beyond[there] - bottom)
    lows, highs = np.concatenate(low), np.concatenate(high)
    order = np.argsort(lows, kind="stable")
    lows, highs = lows[order], np.maximum.accumulate(highs[order]) if len(order) else highs
    # Between the end of all that begins before and the beginning of the next.
    after = np.concatenate(([0], np.maximum(highs, 0)))
    before = np.concatenate((lows, [np.iinfo(np.int64).max]))
    return int(after[np.argmax(after <= before)])
