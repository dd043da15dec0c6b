"""Conflict-free waves of iterations: group iterations that access common elements so that groups run in parallel.

The input is the elements that every iteration reads and writes. Two iterations *conflict* when they access an element
that one of them writes. The schedule is a sequence of waves; a wave has at most `width` visits, and no two visits of a
wave conflict. Conflicting iterations keep their order, so the result is that of the serial loop.

The algorithm cuts a sequence of the iterations into batches. In each batch it packs the connected components of the
conflict graph into visits of equal work; the batches follow one another. It tries two kinds of sequence:

    batches     the order of the data: few waves, good where conflicts are rare
    levels      sorted by level, which is one more than that of the last earlier conflicting iteration: a level has no
                conflicts, so it is a colour class. There are at least as many levels as iterations that share the
                hottest element; small levels (especially at the end) are merged until a batch is worth a wave

Both keep conflicting iterations in their order. Neither stores the pairs in conflict: their number is quadratic for a
hot element. Every step is linear in the number of accesses. A first-fit colouring would find fewer classes, but needs
the set of colours of every element and does not keep the order.

Of all cuts that are tried, the one that takes least time on `width` workers is used, where a wave costs STEP for
waiting; cuts of large data are evaluated on some of their batches.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from stretto.schedule.orders.order import Ints

LEAST = 1.5  # parallelism below which waves are not worthwhile
STEP = 30_000  # work that a worker does in the time one more wave costs: touches of an element
FEW_WAVES = 200  # up to this number of waves, the cost of waiting is negligible
_SAMPLE = 4_000_000  # work on which a cut is evaluated
_FACTOR = 4  # ratio of the batch sizes of two successive cuts


class ColouringKernels(Protocol):
    """The compiled functions of `stretto.kernels.rounds.colouring`, passed in by the caller."""

    @property
    def settle(self) -> Any: ...
    @property
    def sharers(self) -> Any: ...
    @property
    def levels(self) -> Any: ...
    @property
    def pack(self) -> Any: ...


@dataclass(frozen=True, eq=False)
class Touches:
    """Elements that each iteration accesses, each at most once (`touches` removes duplicates)."""

    ptr: Ints  # [N + 1] iteration s accesses keys[ptr[s]] to keys[ptr[s + 1]]
    keys: Ints  # [K] twice the element, plus one if it is written
    elements: int  # number of elements
    starts: Ints | None = None  # [A + 1] where elements of other sizes begin
    lengths: Ints | None = None  # [A] numbers in each element from there on; all 1 if it is None

    def __len__(self) -> int:
        return len(self.ptr) - 1

    @property
    def work(self) -> Ints:
        """[N] work of each iteration: 1, plus 1 for each number it accesses."""
        if self.starts is None or self.lengths is None or (self.lengths == 1).all():
            return np.diff(self.ptr) + 1
        array = np.searchsorted(self.starts, self.keys >> 1, side="right") - 1
        running = np.concatenate([[0], np.cumsum(self.lengths[array])])
        found: Ints = (running[self.ptr[1:]] - running[self.ptr[:-1]] + 1).astype(np.int64)
        return found


@dataclass(frozen=True, eq=False)
class HottestElement:
    """The written element that most iterations access; these iterations must follow one another."""

    element: int  # its index
    iterations: int  # number of iterations that access it


@dataclass(frozen=True, eq=False)
class Groups:
    """Iterations grouped into visits, and visits into waves."""

    picked: Ints  # [N] iterations; visit v runs picked[ptr[v]] to picked[ptr[v + 1]]
    ptr: Ints  # [V + 1] where each visit begins in `picked`
    waves: Ints  # [W + 1] wave k has visits waves[k] to waves[k + 1]
    weight: Ints  # [V] work of each visit
    parallelism: float  # all work over the sum of the heaviest visit of each wave
    waiting: float  # cost of the barriers between waves, as a multiple of all work
    kind: str  # 'batches' or 'levels'
    levels: int  # number of levels

    def __len__(self) -> int:
        return len(self.ptr) - 1

    @property
    def worthwhile(self) -> bool:
        """Whether the parallelism outweighs the cost of waiting."""
        few = len(self.waves) - 1 <= FEW_WAVES
        return self.parallelism >= LEAST and (few or self.waiting + 1 / self.parallelism < 1)


@dataclass(frozen=True, eq=False)
class _Batching:
    """A sequence of iterations cut into batches."""

    kind: str  # 'batches' or 'levels'
    order: Ints  # [N] the sequence
    bounds: Ints  # where each batch begins in it
    path: int  # work on the critical path, estimated from some batches if there are many

    @property
    def batches(self) -> int:
        return len(self.bounds) - 1

    @property
    def cost(self) -> int:
        return self.path + STEP * self.batches


def touches(ptr: Ints, keys: Ints, elements: int, colour: ColouringKernels) -> Touches:
    """Touches from keys that may repeat an element within an iteration. The input is not changed."""
    ptr, keys = ptr.copy(), keys.copy()
    kept = colour.settle(ptr, keys, np.full(elements, -1, np.int64))
    return Touches(ptr, keys[:kept], elements)


def hottest(given: Touches, colour: ColouringKernels) -> HottestElement | None:
    """The written element that most iterations share; None where no written element is shared."""
    count, written = np.zeros(given.elements, np.int64), np.zeros(given.elements, np.int64)
    colour.sharers(given.ptr, given.keys, count, written)
    count[written == 0] = 0
    if not count.size or count.max() < 2:
        return None
    return HottestElement(int(count.argmax()), int(count.max()))


def group(given: Touches, width: int, colour: ColouringKernels) -> Groups:
    """The best schedule found. Its parallelism may be as low as 1; the caller decides whether that is enough."""
    n, work = len(given), given.work
    if n == 0:
        none = np.zeros(0, np.int64)
        return Groups(none, np.zeros(2, np.int64), np.array([0, 1]), np.zeros(1, np.int64), 1.0, 0.0, "batches", 0)
    total = int(work.sum())
    level = np.zeros(n, np.int32)
    wrote, read = np.zeros(given.elements, np.int32), np.zeros(given.elements, np.int32)
    highest = colour.levels(given.ptr, given.keys, wrote, read, level)
    del wrote, read
    by_level = np.argsort(level, kind="stable").astype(np.int64)
    ends = np.cumsum(np.bincount(level, minlength=highest))
    as_they_come = np.arange(n, dtype=np.int64)

    best: _Batching | None = None
    most = 0.0

    def offer(kind: str, order: Ints, bounds: Ints) -> None:
        nonlocal best, most
        cut = _Batching(kind, order, bounds, _path(given, work, order, bounds, width, colour))
        found = total / cut.path
        enough, had = found >= min(LEAST, width), most >= min(LEAST, width)
        better = best is None or (enough and not had) or (enough == had and _rank(cut, enough) < _rank(best, enough))
        if better:
            best, most = cut, found

    for share in _shares(total, int(work.max()), width):
        offer("batches", as_they_come, _bounds(work, total // share))
        if best is not None and best.batches == 1 and most >= 0.75 * width:
            break  # one wave that keeps every worker busy is optimal
        if share > 1:
            offer("levels", by_level, _merged(work[by_level], ends, total // share))
    else:
        offer("levels", by_level, np.concatenate([[0], ends]))
    assert best is not None
    return _grouped(given, best, work, width, highest, colour)


def _rank(cut: _Batching, enough: bool) -> tuple[int, int]:
    """Sort key of cuts, smaller is better: the time of a worthwhile cut, else its critical path."""
    return (cut.cost, cut.path) if enough else (cut.path, cut.cost)


def _shares(total: int, heaviest: int, width: int) -> list[int]:
    """Numbers of batches to try: 1, 4, 16, … as long as the cost of waiting does not far outweigh the work."""
    smallest = max(heaviest, min(STEP // 8, total // 256))
    found = [1]
    while total // (found[-1] * _FACTOR) >= smallest:
        found.append(found[-1] * _FACTOR)
    return found


def _bounds(work: Ints, share: int) -> Ints:
    """Cut a sequence where its running work passes multiples of `share`."""
    before = np.cumsum(work) - work
    batch = before // max(1, share)
    inner = np.flatnonzero(np.diff(batch)) + 1
    return np.concatenate([[0], inner, [len(work)]]).astype(np.int64)


def _merged(work: Ints, ends: Ints, share: int) -> Ints:
    """Merge levels until their work is at least `share`; the rest at the end joins the last batch."""
    running = np.cumsum(work)[ends - 1]
    bounds, start = [0], 0
    for end, done in zip(ends.tolist(), running.tolist(), strict=True):
        if done - start >= share:
            bounds.append(end)
            start = done
    if bounds[-1] != len(work):
        bounds[max(1, len(bounds) - 1) :] = [len(work)]
    return np.array(bounds, np.int64)


def _path(given: Touches, work: Ints, order: Ints, bounds: Ints, width: int, colour: ColouringKernels) -> int:
    """Work on the critical path of a cut, from all batches or from a sample of them."""
    batches = len(bounds) - 1
    every = max(1, min(batches, int(work.sum()) // _SAMPLE))
    if every > 1:
        some = np.arange(0, batches, every)
        order = np.concatenate([order[bounds[b] : bounds[b + 1]] for b in some.tolist()])
        bounds = np.concatenate([[0], np.cumsum(np.diff(bounds)[some])]).astype(np.int64)
        total, seen = int(work.sum()), int(work[order].sum())
    path = _packed(given, work, order, bounds, width, colour)[1]
    return path if every == 1 else path * total // seen


def _packed(
    given: Touches, work: Ints, order: Ints, bounds: Ints, width: int, colour: ColouringKernels
) -> tuple[NDArray[np.int32], int]:
    """The visit of each position within its batch, and the work on the critical path."""
    n = len(order)
    place, path = np.empty(n, np.int32), np.zeros(len(bounds) - 1, np.int64)
    owner, parent, size = np.full(given.elements, -1, np.int32), np.empty(n, np.int32), np.empty(n, np.int64)
    colour.pack(order, bounds, given.ptr, given.keys, work, width, owner, parent, size, place, path)
    return place, int(path.sum())


def _grouped(given: Touches, cut: _Batching, work: Ints, width: int, highest: int, colour: ColouringKernels) -> Groups:
    """The visits of a cut, wave by wave; iterations inside a visit keep the order of the sequence."""
    batches, total = cut.batches, int(work.sum())
    place, path = _packed(given, work, cut.order, cut.bounds, width, colour)
    visit = np.repeat(np.arange(batches), np.diff(cut.bounds)) * width + place
    sizes = np.bincount(visit, minlength=batches * width)
    used = np.flatnonzero(sizes)
    waves = np.searchsorted(used, np.arange(batches + 1) * width).astype(np.int64)
    ptr = np.concatenate([[0], np.cumsum(sizes[used])]).astype(np.int64)
    picked = cut.order[np.argsort(visit, kind="stable")]
    weight = np.add.reduceat(work[picked], ptr[:-1])
    return Groups(picked, ptr, waves, weight, total / path, batches * STEP / total, cut.kind, highest)
