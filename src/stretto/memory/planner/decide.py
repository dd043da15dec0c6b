"""What to do in each gap, so that the bytes in use stay under a target at the least cost in seconds.

Everything is kept at first. While the bytes in use pass the target somewhere, look at the highest point: of the
storages that are idle there, first swap those whose copies hide behind the computation (dearest to make again first,
because the link is scarce and the cheap ones have another way), then drop or swap what costs the fewest seconds a byte.
Making a storage again means running its maker and, before that, whatever its maker reads and is not there; storages
dropped next to one another form a *run* that is gone through at once, and a run may not grow beyond `longest` bytes.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np

from stretto.kernels.memory_planner.recompute import (
    BESIDE,
    COUNTS,
    LEAVES,
    LONGER,
    NO_WAY,
    PASSING,
    AgainSpace,
    again,
    again_seconds,
)

from .host_budget import Rooms
from .idle_intervals import DROP, KEEP, SWAP, Gaps, Ints
from .link_schedule import Lane
from .lower import Floats
from .program import Link
from .timeline import NEVER, Steps, nothing_longer, walk

LAUNCH = 5e-6  # seconds that a node takes at least when it is run again, and a copy even if it hides
MOST_NODES = 400  # in one run
_STUCK = 200  # parts of the step, of which each is given up as a whole


@dataclass(frozen=True, slots=True)
class Again:
    """Making a storage again at the end of a gap: seconds, bytes of what is there for a moment only, the storages that
    must be kept for it beyond their last use, the dropped storages next to it and those that must be there."""

    seconds: float
    passing: int
    longer: tuple[int, ...]
    beside: tuple[int, ...]
    leaves: tuple[int, ...]


class Decider:
    """choice: by gap. bytes: in use by position, from the start of the step (index 0) to its end, as far as known."""

    def __init__(
        self,
        gaps: Gaps,
        link: Link,
        *,
        swap: bool = True,
        recompute: bool = True,
        rooms: Rooms | None = None,
        longest: float = float("inf"),
        least: int = 0,
        drop_first: bool = False,
        patience: int = NEVER,
        hold: bool = True,
    ) -> None:
        self.gaps, self.link, self.swap, self.recompute = gaps, link, swap, recompute
        self.rooms = rooms or Rooms(gaps, None)
        self.longest, self.least, self.drop_first, self.patience = longest, least, drop_first, patience
        self.hold = hold
        self.choice = np.array(gaps.everywhere(KEEP), np.int8)
        self.droppable = gaps.droppable & recompute
        self.fixed = np.zeros(len(gaps), bool)  # gaps that `reach` leaves as they are
        self.longer = nothing_longer(gaps)
        self._space = _space(gaps)
        self._counts = np.zeros(COUNTS, np.int64)
        self.until_touch = gaps.end.copy()  # where a gap is cut short, because others are made again from it
        self.seconds_again = np.full(len(gaps), -1.0)  # as last worked out; -1: not yet, inf: it cannot be
        count = len(gaps.graph.nodes)
        self.bytes = np.zeros(count + 2, np.int64)
        self.began = np.zeros(count + 2)
        self.run_of: dict[int, int] = {}  # union-find over dropped gaps
        self.run_bytes: dict[int, int] = {}
        self.run_passing: dict[int, int] = {}
        self.run_first: dict[int, int] = {}  # the position where a run is made again
        self.leaf_of: dict[int, list[int]] = {}
        self._changes()

    def _changes(self) -> None:
        """By gap: the position after which its storage had its value (-1: before the step)."""
        gaps, graph = self.gaps, self.gaps.graph
        writes: dict[int, list[int]] = {}
        for n, node in enumerate(graph.nodes):
            for s in node.writes:
                writes.setdefault(s, []).append(n)
        self.changed = np.array([max(graph.maker[s], -1) for s in gaps.storage], np.int64)
        self.clean = np.zeros(len(gaps), bool)  # the host has its value if its home is there
        for g in np.flatnonzero(np.isin(gaps.storage, [s for s, one in enumerate(graph.storages) if one.lasting])):
            before = [n for n in writes.get(int(gaps.storage[g]), ()) if n <= gaps.start[g]]
            self.changed[g] = before[-1] if before else -1
            self.clean[g] = not before

    # What is known from a walk.

    def learn(self, steps: Steps, *, lanes: bool = True) -> None:
        """Takes over the bytes in use, the times and the touches of a walk under the present choices. lanes: False if
        nothing will be swapped before the next walk."""
        gaps, count = self.gaps, len(self.gaps.graph.nodes)
        place = np.append(steps.place, count)
        self.bytes[:] = 0
        np.maximum.at(self.bytes, place + 1, steps.must)
        self.bytes[0] = steps.start
        began = np.concatenate(([0.0], np.cumsum(gaps.arrays.seconds[steps.node])))
        self.began[place[::-1] + 1] = began[::-1]  # the first step that serves a position comes last
        self.until_touch = gaps.end.copy()
        np.minimum.at(self.until_touch, steps.touched, steps.touched_at)
        self.again_at = gaps.end.copy()  # where the storage of a dropped gap is recomputed
        np.minimum.at(self.again_at, steps.remade, steps.remade_at)
        self._find_runs()
        if lanes:
            self.lay_lanes()
        self.rooms.recount(self.choice)

    def walked(self) -> Steps:
        """The steps under the present choices."""
        return walk(self.gaps, self.choice, self.longer, self.patience)

    def _find_runs(self) -> None:
        """What is made again at the same place is one run."""
        self.run_of, self.run_bytes, self.run_passing, self.run_first = {}, {}, {}, {}
        first: dict[int, int] = {}
        for g in np.flatnonzero((self.choice == DROP) & ~self.gaps.beyond).tolist():
            place = int(self.again_at[g])
            run = first.setdefault(place, g)
            self.run_of[g] = run
            self.run_bytes[run] = self.run_bytes.get(run, 0) + int(self.gaps.nbytes[g])
            self.run_passing[run], self.run_first[run] = 0, place

    def lay_lanes(self) -> None:
        """Finds times on the link for the copies of the present choices."""
        total = float(self.began[-1])
        self.out, self.into = Lane(total), Lane(total)
        self.late = np.zeros(len(self.gaps))  # seconds of a gap's copies that do not hide
        for g in np.flatnonzero(self.choice == SWAP).tolist():
            self.late[g] = self.take(g, None)

    # Swapping.

    def _copy_needed(self, g: int) -> bool:
        gaps = self.gaps
        s = int(gaps.storage[g])
        if self.clean[g]:
            home = gaps.first[s]
            if gaps.wraps[g] or (home >= 0 and gaps.wraps[home] and self.choice[home] == SWAP):
                return False
        for other in gaps.gap_of[s]:
            if other == g or (other >= 0 and gaps.start[other] >= gaps.start[g]):
                break
            if other >= 0 and self.choice[other] == SWAP and self.changed[other] == self.changed[g]:
                return False
        return True

    def _windows(
        self, g: int, t: int | None, until: int | None = None
    ) -> tuple[tuple[float, float], tuple[float, float]]:
        """When the copies of a gap can be made so that the storage is away from position t to position `until`."""
        gaps, began = self.gaps, self.began
        start, end = int(gaps.start[g]), int(gaps.end[g])
        made = float(began[self.changed[g] + 2]) if self.changed[g] + 2 < len(began) else float(began[-1])
        last, want = float(began[-1]), float(began[end + 1])
        if t is None:
            t_time = 0.5 * (float(began[min(start + 2, len(began) - 1)]) + (last if gaps.wraps[g] else want))
            return ((made, last if gaps.wraps[g] else want), (0.0 if gaps.wraps[g] else t_time, want))
        here = float(began[t + 1])
        if not gaps.wraps[g]:
            return ((made, here), (here if until is None else float(began[until + 1]), want))
        return ((made, here if t > start else last), (0.0 if t > start else here, want))

    def exposed(self, g: int, t: int, until: int | None = None) -> float:
        """Seconds of the copies of a gap that would not hide."""
        size = int(self.gaps.nbytes[g])
        out, into = self._windows(g, t, until)
        late = max(0.0, self.link.in_seconds(size) - self.into.idle(*into))
        if self._copy_needed(g):
            late += max(0.0, self.link.out_seconds(size) - self.out.idle(*out))
        return late

    def take(self, g: int, t: int | None, until: int | None = None) -> float:
        size = int(self.gaps.nbytes[g])
        out, into = self._windows(g, t, until)
        late = self.into.take(*into, self.link.in_seconds(size), late=True)
        if self._copy_needed(g):
            late += self.out.take(*out, self.link.out_seconds(size), late=False)
        return late

    def may_swap(self, g: int) -> bool:
        return self.swap and self.rooms.may(g, droppable=bool(self.droppable[g]))

    def set_swap(self, g: int, t: int | None = None) -> None:
        s = int(self.gaps.storage[g])
        self.take(g, t)
        self.choice[g] = SWAP
        self.rooms.take(g)
        self.add(int(self.gaps.start[g]), int(self.until_touch[g]), bool(self.gaps.wraps[g]), -self.gaps.sizes[s])

    def add(self, start: int, end: int, wraps: bool, nbytes: int) -> None:
        if wraps:
            self.bytes[start + 2 :] += nbytes
            self.bytes[: end + 1] += nbytes
        else:
            self.bytes[start + 2 : end + 1] += nbytes

    def highest(self, g: int) -> int:
        """The most bytes in use while the storage of a gap is away."""
        start, end = int(self.gaps.start[g]), int(self.until_touch[g])
        if self.gaps.wraps[g]:
            return int(max(self.bytes[start + 2 :].max(initial=0), self.bytes[: end + 1].max(initial=0)))
        return int(self.bytes[start + 2 : end + 1].max(initial=0))

    # Dropping.

    def again(self, g: int) -> Again | None:
        """What it takes to recompute the storage of a gap at its end; None if that is not possible or too much.

        Whatever the maker reads and is gone by then has to be recomputed before it, or be kept beyond its last use.
        The makers are visited latest first. After each of them one could stop and keep all that is still wanted
        (the input of a block of a network, say); the stop that costs the fewest seconds a byte is taken. Without
        `hold`, only what cannot be recomputed is kept.
        """
        space, counts = self._space, self._counts
        given = self.gaps.arrays, self.choice, self.longer, g, self.hold, LAUNCH, MOST_NODES
        seconds = again(*given, space, counts)
        if seconds < 0:
            return None
        return Again(
            seconds,
            int(counts[PASSING]),
            tuple(space.longer[: counts[LONGER]].tolist()),
            tuple(space.beside[: counts[BESIDE]].tolist()),
            tuple(space.leaves[: counts[LEAVES]].tolist()),
        )

    def _find(self, g: int) -> int:
        run_of = self.run_of
        while run_of[g] != g:
            run_of[g] = run_of[run_of[g]]
            g = run_of[g]
        return g

    def _joins(self, g: int, found: Again) -> tuple[set[int], int, int]:
        """The runs that dropping a gap would join, the bytes of all, and those that are there for a moment."""
        near = [h for h in (*found.beside, *self.leaf_of.get(g, ())) if h in self.run_of]
        runs = {self._find(h) for h in near}
        passing = max([found.passing, *(self.run_passing[r] for r in runs)])  # gone again before the next is there
        return runs, int(self.gaps.nbytes[g]) + sum(self.run_bytes[r] for r in runs), passing

    def may_drop(self, g: int, found: Again) -> bool:
        _, total, passing = self._joins(g, found)
        return total + passing <= self.longest

    def set_drop(self, g: int, found: Again) -> None:
        gaps = self.gaps
        if gaps.beyond[g]:
            self.choice[g] = DROP
            self.add(int(gaps.start[g]), int(self.until_touch[g]), False, -gaps.sizes[int(gaps.storage[g])])
            return
        start, end = int(gaps.start[g]), int(gaps.end[g])
        runs, total, passing = self._joins(g, found)
        first = min([end, *(self.run_first[r] for r in runs if self.run_first[r] > start)])
        self.choice[g] = DROP
        self.run_of[g] = g
        for r in runs:
            self.run_of[r] = g
        self.run_bytes[g], self.run_passing[g], self.run_first[g] = total, passing, first
        for h in found.leaves:
            self.leaf_of.setdefault(h, []).append(g)
        size = int(gaps.nbytes[g])
        self.add(start, min(int(self.until_touch[g]), first), False, -size)
        self.bytes[first + 1] += found.passing
        for r in found.longer:
            at = gaps.at(r, end)
            if at >= 0:  # a checkpoint
                self.choice[at] = KEEP
                self.add(int(gaps.start[at]), int(gaps.end[at]), False, gaps.sizes[r])
                continue
            last = gaps.touches[r][-1] if gaps.touches[r] else -1
            self.add(max(last, int(self.longer[r])), end + 1, False, gaps.sizes[r])
            self.longer[r] = max(end, int(self.longer[r]))

    # The loop.

    def reach(self, target: int) -> int | None:
        """Chooses until the bytes in use stay under the target everywhere, as far as is known without a walk. Gives
        the first position that it cannot bring under the target, if there is one."""
        stuck: int | None = None
        target = max(0, target)
        hopeless = np.zeros(len(self.bytes), bool)  # and positions near such ones
        apart = len(self.bytes) // _STUCK
        while True:
            known = self.bytes if stuck is None else np.where(hopeless, 0, self.bytes)
            t = int(known.argmax()) - 1
            if int(known[t + 1]) <= target:
                return stuck
            idle = (self.choice == KEEP) & self.gaps.covering(t) & (self.gaps.wraps | (t < self.until_touch))
            idle &= (self.gaps.nbytes > 0) & ~self.fixed
            which = np.flatnonzero(idle)
            if self.drop_first and self._cheapest(which, t, target, swap=False):
                continue
            if not self._hidden(which, t, target):
                self._cheapest(which, t, target, swap=self.swap)
            if int(self.bytes[t + 1]) > target:
                if not self.swap:
                    return t  # what is made again moves bytes elsewhere: look again before going on
                stuck = t if stuck is None else stuck
                hopeless[max(0, t + 1 - apart) : t + 2 + apart] = True

    def _seconds_again(self, which: Ints) -> Floats:
        unknown = which[self.seconds_again[which] < 0]
        self.seconds_again[unknown[~self.droppable[unknown]]] = np.inf
        self.price_again(unknown[self.droppable[unknown]])
        found: Floats = self.seconds_again[which]
        return found

    def price_again(self, which: Ints) -> None:
        """Work out anew what it takes to recompute the storages of some gaps."""
        seconds = np.empty(len(which))
        given = self.gaps.arrays, self.choice, self.longer, np.ascontiguousarray(which, np.int64)
        again_seconds(*given, self.hold, LAUNCH, MOST_NODES, self._space, self._counts, seconds)
        self.seconds_again[which] = np.where(seconds < NO_WAY, seconds, np.inf)

    def _hidden(self, which: Ints, t: int, target: int) -> bool:
        """Swaps what hides, dearest to make again first; whether that is enough."""
        if not self.swap:
            return False
        dear = self._seconds_again(which) / self.gaps.nbytes[which]
        for g in which[np.lexsort((-self.gaps.nbytes[which], -dear))].tolist():
            if (
                self.choice[g] == KEEP
                and self.gaps.nbytes[g] >= self.least
                and self.may_swap(g)
                and self.exposed(g, t) <= 0.0
            ):
                self.set_swap(g, t)
                if self.bytes[t + 1] <= target:
                    return True
        return False

    def _price(self, g: int, t: int, swap: bool) -> tuple[float, Again | None]:
        """Seconds a byte of the cheaper way, and how to make it again if that is the way."""
        size = float(self.gaps.nbytes[g])
        swapped = self.exposed(g, t) + 2 * LAUNCH if swap and self.may_swap(g) else np.inf
        found = self.again(g) if self.droppable[g] else None
        if found is not None and not self.may_drop(g, found):
            found = None
        self.seconds_again[g] = found.seconds if found else np.inf
        if found is not None and found.seconds <= swapped:
            return found.seconds / (size - sum(self.gaps.sizes[r] for r in found.longer)), found
        return swapped / size, None

    def _cheapest(self, which: Ints, t: int, target: int, *, swap: bool) -> bool:
        """Swaps or drops what is cheapest a byte until the target is met or nothing is left; whether it is met.
        Prices are worked out anew when a gap's turn comes, since what was chosen before it changes them."""
        open_ = which[self.choice[which] == KEEP]
        known = self._seconds_again(open_)
        speed = 1.0 / self.link.out + 1.0 / self.link.into
        guess = np.minimum(known / self.gaps.nbytes[open_], speed if swap else np.inf)
        heap = list(zip(guess.tolist(), (-self.gaps.nbytes[open_]).tolist(), open_.tolist(), strict=True))
        heapq.heapify(heap)
        while heap and self.bytes[t + 1] > target:
            asked, negative, g = heapq.heappop(heap)
            price, found = self._price(g, t, swap)
            if price == np.inf:
                continue
            if heap and price > 1.05 * asked and price > heap[0][0]:
                heapq.heappush(heap, (price, negative, g))
            elif found is not None:
                self.set_drop(g, found)
            else:
                self.set_swap(g, t)
        return int(self.bytes[t + 1]) <= target


def _space(gaps: Gaps) -> AgainSpace:
    nodes, storages, reads = len(gaps.graph.nodes), len(gaps.sizes), len(gaps.arrays.reads)
    return AgainSpace(
        longer=np.empty(storages + 1, np.int64),
        beside=np.empty(reads + 1, np.int64),
        leaves=np.empty(reads + 1, np.int64),
        seen=np.zeros(nodes, np.int64),
        wanted=np.full(storages, -1, np.int64),
        list=np.empty(storages + 1, np.int64),
        heap=np.empty(nodes + 1, np.int64),
    )
