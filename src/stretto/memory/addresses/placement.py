"""Choose addresses for all allocations of a program at once, so that little memory is lost between them.

Lifetimes are known in advance, so the largest allocations are placed first, each at the lowest address that is free
during its lifetime. A storage that is away for a part of the step has the same address before and after.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence, Set
from dataclasses import dataclass

import numpy as np

from stretto.kernels.memory_planner.place import packed
from stretto.memory.planner.idle_intervals import Ints

from .arena import ALIGNED, SMALL, rounded
from .lifetimes import PARTS, Lifetimes

_MANY = 20_000  # allocations, from which on nothing is placed: it would take minutes
_ROUNDS, _FEWEST, _WORK = (
    16,
    3,
    60_000_000,
)  # orders to try for each start, at most and at least; the square of the items times the orders

Rows = np.ndarray[tuple[int, int], np.dtype[np.int64]]


@dataclass(frozen=True, slots=True, eq=False)
class AddressGroup:
    """Allocations that share one address."""

    which: tuple[int, ...]  # their numbers
    rects: Rows  # [n, 4]: from when, until when, the first byte and the first beyond, relative to the address


def extents(lifetimes: Lifetimes) -> list[int]:
    """Bytes of the blocks for all allocations.

    No two allocations of one operation have the same size: the allocator would take the block with the lower address
    first, which may be meant for the later allocation.
    """
    found = [rounded(nbytes) for nbytes in lifetimes.nbytes]
    for events in lifetimes.requests.values():
        made = sorted((found[k], k) for k in events if k >= 0)
        for (_, before), (_, k) in itertools.pairwise(made):
            found[k] = max(found[k], found[before] + ALIGNED)
    return found


def place(lifetimes: Lifetimes, enough: int = 0, apart: Set[int] = frozenset()) -> tuple[dict[int, int], int] | None:
    """An address for every allocation, and the bytes that all take. None if there are too many to place.

    The order in which items are placed decides. Items that end up too high are placed earlier in the next round. Rounds
    end when all items take no more than `enough` bytes, or after a limit; the best round counts.

    Parameters
    ----------
    lifetimes : Lifetimes
        The allocations.
    enough : int
        Bytes that are small enough.
    apart : set of int
        Instructions whose allocations must not be next to each other.
    """
    if len(lifetimes.nbytes) > _MANY:
        return None
    items = _items(lifetimes, apart)
    if not items:
        return {}, 0
    packing = _Packing(items)
    aim = max(enough, peak(lifetimes))
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
    return {k: int(base[n]) for n, item in enumerate(items) for k in item.which}, best


class _Packing:
    """Items as arrays.

    Attributes
    ----------
    base : array [items]
        Their addresses, as last placed.
    tall, long, height : array [items]
        The bytes of the largest rectangle of each, the total lifetime of its rectangles, and where it ends.
    """

    def __init__(self, items: Sequence[AddressGroup]) -> None:
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


def peak(lifetimes: Lifetimes) -> int:
    """The most bytes that are allocated at once: no placement takes less."""
    sizes = np.array([rounded(n) for n in lifetimes.nbytes], np.int64)
    when = np.concatenate((lifetimes.until, lifetimes.since))  # at equal times, frees come first
    order = np.argsort(when, kind="stable")
    return int(np.cumsum(np.concatenate((-sizes, sizes))[order]).max(initial=0))


def _items(lifetimes: Lifetimes, apart: Set[int]) -> list[AddressGroup]:
    items: list[AddressGroup] = []
    sizes = extents(lifetimes)
    returning: dict[int, list[int]] = {lifetimes.storage[k]: [k] for k in lifetimes.first}
    for at, events in lifetimes.requests.items():
        for k in events:
            if k < 0:
                continue
            if lifetimes.storage[k] in returning:
                returning[lifetimes.storage[k]].append(k)
                continue
            # Adjacent free blocks are one block, of which the first allocation takes the beginning. Held bytes between
            # a workspace and a result keep them apart.
            if len(events) > 1 and (lifetimes.storage[k] < 0 or at in apart):
                sizes[k] += SMALL + ALIGNED
            rects = _rects(lifetimes, sizes, [k])
            if at in apart:  # no allocation reuses the address of one freed before
                rects[0, :2] = at * PARTS, max(lifetimes.until[k], (at + 1) * PARTS - 1)
            items.append(AddressGroup((k,), rects))
    return items + [AddressGroup(tuple(those), _rects(lifetimes, sizes, those)) for those in returning.values()]


def _rects(lifetimes: Lifetimes, sizes: Sequence[int], which: Sequence[int]) -> Rows:
    return np.array([(lifetimes.since[k], lifetimes.until[k], 0, sizes[k]) for k in which], np.int64)
