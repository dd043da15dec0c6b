"""Choose keep, swap or drop for each idle interval, so that the bytes in use stay below a target at the least cost.

Everything is kept at first. While the bytes in use exceed the target somewhere, the decider takes the highest position.
Of the storages that are idle there, it first swaps those whose copies overlap with computation. The ones that are most
expensive to recompute go first, because the link is scarce and cheap ones can be recomputed. Then it drops or swaps
the storages that cost the fewest seconds per byte. Recomputing a storage means running its maker and, before that, the
makers of everything that this reads and that is not resident. Storages dropped next to one another form a *run* that
is recomputed at once, and a run may not exceed `max_run` bytes.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np

from stretto.kernels.memory_planner.recompute import (
    BESIDE,
    COUNTS,
    HELD,
    LEAVES,
    NO_WAY,
    TEMPORARY_BYTES,
    recompute_cost,
    recompute_seconds,
)

from .host_budget import HostBudget
from .idle_intervals import DROP, KEEP, SWAP, Gaps, Ints, last_changes, recompute_space
from .link_schedule import LinkTimeline
from .lower import Floats
from .program import HostLink
from .timeline import NEVER, Timeline, build_timeline, nothing_kept

LAUNCH = 5e-6  # seconds that a recomputed node takes at least, and a copy even if it overlaps
MOST_NODES = 400  # in one run
_STUCK = 200  # parts of the step; a part that cannot be brought below the target is skipped as a whole


@dataclass(frozen=True, slots=True)
class Recomputation:
    """The cost of recomputing a storage at the end of an interval."""

    seconds: float
    temporary: int  # bytes that are needed only while it is recomputed
    held: tuple[int, ...]  # storages that must be kept for it after their last use
    beside: tuple[int, ...]  # intervals of dropped storages that it is recomputed with
    leaves: tuple[int, ...]  # intervals of storages that must be resident for it


class Decider:
    """Choices for the idle intervals of a step, and the bytes in use that follow from them.

    Parameters
    ----------
    intervals : Gaps
        Idle intervals of the step.
    link : HostLink
        Speed of copies.
    swap, recompute : bool
        Whether storages may be swapped, and recomputed.
    host_use : HostBudget, optional
        Host memory; unlimited unless given.
    max_run : float
        Bytes that are recomputed together at most.
    min_swap_bytes : int
        Smaller storages are not swapped.
    drop_first : bool
        Drop what can be dropped before swapping.
    reuse_window : int
        As for `timeline.build_timeline`.
    hold : bool
        Whether a storage may be kept after its last use to recompute others.

    Attributes
    ----------
    choice : array [intervals]
        KEEP, SWAP or DROP.
    bytes : array [positions + 2]
        Bytes in use by position, from the start of the step (index 0) to its end, as far as known.
    """

    def __init__(
        self,
        intervals: Gaps,
        link: HostLink,
        *,
        swap: bool = True,
        recompute: bool = True,
        host_use: HostBudget | None = None,
        max_run: float = float("inf"),
        min_swap_bytes: int = 0,
        drop_first: bool = False,
        reuse_window: int = NEVER,
        hold: bool = True,
    ) -> None:
        self.intervals, self.link, self.swap, self.recompute = intervals, link, swap, recompute
        self.host_use = host_use or HostBudget(intervals, None)
        self.max_run, self.min_swap_bytes, self.drop_first, self.reuse_window = (
            max_run,
            min_swap_bytes,
            drop_first,
            reuse_window,
        )
        self.hold = hold
        self.choice = np.array(intervals.uniform(KEEP), np.int8)
        self.droppable = intervals.droppable & recompute
        self.fixed = np.zeros(len(intervals), bool)  # intervals whose choice `reach` does not change
        self.kept_until = nothing_kept(intervals)
        self._space = recompute_space(intervals)
        self._counts = np.zeros(COUNTS, np.int64)
        self.until_touch = intervals.end.copy()  # where an interval ends early, because others are recomputed from it
        self.recompute_seconds_of = np.full(len(intervals), -1.0)  # as last estimated; -1: not yet, inf: not possible
        count = len(intervals.graph.nodes)
        self.bytes = np.zeros(count + 2, np.int64)
        self.began = np.zeros(count + 2)
        self.run_of: dict[int, int] = {}  # union-find over dropped intervals
        self.run_bytes: dict[int, int] = {}
        self.run_temporary: dict[int, int] = {}
        self.run_first: dict[int, int] = {}  # the position where a run is recomputed
        self.leaf_of: dict[int, list[int]] = {}
        self.changed, self.clean = last_changes(intervals)

    # -- timelines

    def learn(self, steps: Timeline, *, copies: bool = True) -> None:
        """Take over bytes in use, times and touches from a timeline of the present choices.

        Parameters
        ----------
        steps : Timeline
            The timeline.
        copies : bool
            False if nothing will be swapped before the next timeline.
        """
        intervals, count = self.intervals, len(self.intervals.graph.nodes)
        place = np.append(steps.position, count)
        self.bytes[:] = 0
        np.maximum.at(self.bytes, place + 1, steps.required)
        self.bytes[0] = steps.start
        began = np.concatenate(([0.0], np.cumsum(intervals.arrays.seconds[steps.node])))
        self.began[place[::-1] + 1] = began[::-1]  # the first step that serves a position comes last
        self.until_touch = intervals.end.copy()
        np.minimum.at(self.until_touch, steps.touched, steps.touched_at)
        self.recompute_at = intervals.end.copy()  # where the storage of a dropped interval is recomputed
        np.minimum.at(self.recompute_at, steps.recomputed, steps.recomputed_at)
        self._find_runs()
        if copies:
            self.schedule_copies()
        self.host_use.recount(self.choice)

    def timeline(self) -> Timeline:
        """The timeline under the present choices."""
        return build_timeline(self.intervals, self.choice, self.kept_until, self.reuse_window)

    def _find_runs(self) -> None:
        """Group dropped storages that are recomputed at the same position into runs."""
        self.run_of, self.run_bytes, self.run_temporary, self.run_first = {}, {}, {}, {}
        first: dict[int, int] = {}
        for g in np.flatnonzero((self.choice == DROP) & ~self.intervals.extended).tolist():
            place = int(self.recompute_at[g])
            run = first.setdefault(place, g)
            self.run_of[g] = run
            self.run_bytes[run] = self.run_bytes.get(run, 0) + int(self.intervals.nbytes[g])
            self.run_temporary[run], self.run_first[run] = 0, place

    def schedule_copies(self) -> None:
        """Find times on the link for the copies of the present choices."""
        total = float(self.began[-1])
        self.out, self.into = LinkTimeline(total), LinkTimeline(total)
        # Seconds of an interval's copies that do not overlap with computation.
        self.late = np.zeros(len(self.intervals))
        for g in np.flatnonzero(self.choice == SWAP).tolist():
            self.late[g] = self.take_link_time(g, None)

    # -- swapping

    def _copy_needed(self, g: int) -> bool:
        intervals = self.intervals
        s = int(intervals.storage[g])
        if self.clean[g]:
            home = intervals.initial[s]
            if intervals.wraps[g] or (home >= 0 and intervals.wraps[home] and self.choice[home] == SWAP):
                return False
        for other in intervals.interval_of[s]:
            if other == g or (other >= 0 and intervals.start[other] >= intervals.start[g]):
                break
            if other >= 0 and self.choice[other] == SWAP and self.changed[other] == self.changed[g]:
                return False
        return True

    def _windows(
        self, g: int, t: int | None, until: int | None = None
    ) -> tuple[tuple[float, float], tuple[float, float]]:
        """When the copies of an interval can run so that its storage is away from position t to position `until`."""
        intervals, began = self.intervals, self.began
        start, end = int(intervals.start[g]), int(intervals.end[g])
        made = float(began[self.changed[g] + 2]) if self.changed[g] + 2 < len(began) else float(began[-1])
        last, want = float(began[-1]), float(began[end + 1])
        if t is None:
            t_time = 0.5 * (float(began[min(start + 2, len(began) - 1)]) + (last if intervals.wraps[g] else want))
            return ((made, last if intervals.wraps[g] else want), (0.0 if intervals.wraps[g] else t_time, want))
        here = float(began[t + 1])
        if not intervals.wraps[g]:
            return ((made, here), (here if until is None else float(began[until + 1]), want))
        return ((made, here if t > start else last), (0.0 if t > start else here, want))

    def exposed(self, g: int, t: int, until: int | None = None) -> float:
        """Seconds of the copies of an interval that would not overlap with computation."""
        size = int(self.intervals.nbytes[g])
        out, into = self._windows(g, t, until)
        late = max(0.0, self.link.in_seconds(size) - self.into.idle(*into))
        if self._copy_needed(g):
            late += max(0.0, self.link.out_seconds(size) - self.out.idle(*out))
        return late

    def take_link_time(self, g: int, t: int | None, until: int | None = None) -> float:
        """Reserve link time for the copies of an interval; the seconds that do not overlap with computation."""
        size = int(self.intervals.nbytes[g])
        out, into = self._windows(g, t, until)
        late = self.into.take(*into, self.link.in_seconds(size), late=True)
        if self._copy_needed(g):
            late += self.out.take(*out, self.link.out_seconds(size), late=False)
        return late

    def may_swap(self, g: int) -> bool:
        """Whether the storage of an interval can be swapped."""
        return self.swap and self.host_use.fits(g, droppable=bool(self.droppable[g]))

    def set_swap(self, g: int, t: int | None = None) -> None:
        """Swap the storage of an interval."""
        s = int(self.intervals.storage[g])
        self.take_link_time(g, t)
        self.choice[g] = SWAP
        self.host_use.reserve(g)
        self.add(
            int(self.intervals.start[g]),
            int(self.until_touch[g]),
            bool(self.intervals.wraps[g]),
            -self.intervals.sizes[s],
        )

    def add(self, start: int, end: int, wraps: bool, nbytes: int) -> None:
        """Add bytes to the bytes in use within an interval."""
        if wraps:
            self.bytes[start + 2 :] += nbytes
            self.bytes[: end + 1] += nbytes
        else:
            self.bytes[start + 2 : end + 1] += nbytes

    def highest(self, g: int) -> int:
        """The most bytes in use while the storage of an interval is away."""
        start, end = int(self.intervals.start[g]), int(self.until_touch[g])
        if self.intervals.wraps[g]:
            return int(max(self.bytes[start + 2 :].max(initial=0), self.bytes[: end + 1].max(initial=0)))
        return int(self.bytes[start + 2 : end + 1].max(initial=0))

    # -- dropping

    def recompute_cost(self, g: int) -> Recomputation | None:
        """The cost of recomputing the storage of an interval at its end; None if not possible or too expensive.

        Everything that the maker reads and that is gone by then must be recomputed first, or kept after its last use.
        Makers are visited latest first. After each of them the search could stop and keep everything that is still
        needed (the input of a block of a network, for example). It takes the stop that costs the fewest seconds per
        byte. Without `hold`, only storages that cannot be recomputed are kept.
        """
        space, counts = self._space, self._counts
        given = self.intervals.arrays, self.choice, self.kept_until, g, self.hold, LAUNCH, MOST_NODES
        seconds = recompute_cost(*given, space, counts)
        if seconds < 0:
            return None
        return Recomputation(
            seconds,
            int(counts[TEMPORARY_BYTES]),
            tuple(space.held[: counts[HELD]].tolist()),
            tuple(space.beside[: counts[BESIDE]].tolist()),
            tuple(space.leaves[: counts[LEAVES]].tolist()),
        )

    def _find(self, g: int) -> int:
        run_of = self.run_of
        while run_of[g] != g:
            run_of[g] = run_of[run_of[g]]
            g = run_of[g]
        return g

    def _joins(self, g: int, found: Recomputation) -> tuple[set[int], int, int]:
        """The runs that dropping an interval would join, the bytes of all, and those that are needed only meanwhile."""
        near = [h for h in (*found.beside, *self.leaf_of.get(g, ())) if h in self.run_of]
        runs = {self._find(h) for h in near}
        # Each run frees its temporary bytes before the next one begins.
        temporary = max([found.temporary, *(self.run_temporary[r] for r in runs)])
        return runs, int(self.intervals.nbytes[g]) + sum(self.run_bytes[r] for r in runs), temporary

    def may_drop(self, g: int, found: Recomputation) -> bool:
        """Whether the run with this interval would stay within `max_run` bytes."""
        _, total, temporary = self._joins(g, found)
        return total + temporary <= self.max_run

    def set_drop(self, g: int, found: Recomputation) -> None:
        """Drop the storage of an interval."""
        intervals = self.intervals
        if intervals.extended[g]:
            self.choice[g] = DROP
            self.add(
                int(intervals.start[g]), int(self.until_touch[g]), False, -intervals.sizes[int(intervals.storage[g])]
            )
            return
        start, end = int(intervals.start[g]), int(intervals.end[g])
        runs, total, temporary = self._joins(g, found)
        first = min([end, *(self.run_first[r] for r in runs if self.run_first[r] > start)])
        self.choice[g] = DROP
        self.run_of[g] = g
        for r in runs:
            self.run_of[r] = g
        self.run_bytes[g], self.run_temporary[g], self.run_first[g] = total, temporary, first
        for h in found.leaves:
            self.leaf_of.setdefault(h, []).append(g)
        size = int(intervals.nbytes[g])
        self.add(start, min(int(self.until_touch[g]), first), False, -size)
        self.bytes[first + 1] += found.temporary
        for r in found.held:
            at = intervals.interval_at(r, end)
            if at >= 0:  # a checkpoint
                self.choice[at] = KEEP
                self.add(int(intervals.start[at]), int(intervals.end[at]), False, intervals.sizes[r])
                continue
            last = intervals.touches[r][-1] if intervals.touches[r] else -1
            self.add(max(last, int(self.kept_until[r])), end + 1, False, intervals.sizes[r])
            self.kept_until[r] = max(end, int(self.kept_until[r]))

    # -- the loop

    def reach(self, target: int) -> int | None:
        """Choose until the bytes in use stay below the target everywhere, as far as known without a new timeline.

        Returns
        -------
        int or None
            The first position that cannot be brought below the target, if there is one.
        """
        stuck: int | None = None
        target = max(0, target)
        # Positions that cannot be brought below the target, and those near them.
        skipped = np.zeros(len(self.bytes), bool)
        apart = len(self.bytes) // _STUCK
        while True:
            known = self.bytes if stuck is None else np.where(skipped, 0, self.bytes)
            t = int(known.argmax()) - 1
            if int(known[t + 1]) <= target:
                return stuck
            idle = (self.choice == KEEP) & self.intervals.covering(t) & (self.intervals.wraps | (t < self.until_touch))
            idle &= (self.intervals.nbytes > 0) & ~self.fixed
            which = np.flatnonzero(idle)
            if self.drop_first and self._choose_cheapest(which, t, target, swap=False):
                continue
            if not self._swap_hidden(which, t, target):
                self._choose_cheapest(which, t, target, swap=self.swap)
            if int(self.bytes[t + 1]) > target:
                if not self.swap:
                    return t  # recomputing moves bytes elsewhere: a new timeline is needed first
                stuck = t if stuck is None else stuck
                skipped[max(0, t + 1 - apart) : t + 2 + apart] = True

    def _known_recompute_seconds(self, which: Ints) -> Floats:
        unknown = which[self.recompute_seconds_of[which] < 0]
        self.recompute_seconds_of[unknown[~self.droppable[unknown]]] = np.inf
        self.price_recompute(unknown[self.droppable[unknown]])
        found: Floats = self.recompute_seconds_of[which]
        return found

    def price_recompute(self, which: Ints) -> None:
        """Estimate again what it takes to recompute the storages of some intervals."""
        seconds = np.empty(len(which))
        given = self.intervals.arrays, self.choice, self.kept_until, np.ascontiguousarray(which, np.int64)
        recompute_seconds(*given, self.hold, LAUNCH, MOST_NODES, self._space, self._counts, seconds)
        self.recompute_seconds_of[which] = np.where(seconds < NO_WAY, seconds, np.inf)

    def _swap_hidden(self, which: Ints, t: int, target: int) -> bool:
        """Swap storages whose copies overlap with computation, most expensive to recompute first; True if enough."""
        if not self.swap:
            return False
        seconds_per_byte = self._known_recompute_seconds(which) / self.intervals.nbytes[which]
        for g in which[np.lexsort((-self.intervals.nbytes[which], -seconds_per_byte))].tolist():
            if (
                self.choice[g] == KEEP
                and self.intervals.nbytes[g] >= self.min_swap_bytes
                and self.may_swap(g)
                and self.exposed(g, t) <= 0.0
            ):
                self.set_swap(g, t)
                if self.bytes[t + 1] <= target:
                    return True
        return False

    def _price(self, g: int, t: int, swap: bool) -> tuple[float, Recomputation | None]:
        """Seconds per byte of the cheaper choice, and the recomputation if that is the one."""
        size = float(self.intervals.nbytes[g])
        swapped = self.exposed(g, t) + 2 * LAUNCH if swap and self.may_swap(g) else np.inf
        found = self.recompute_cost(g) if self.droppable[g] else None
        if found is not None and not self.may_drop(g, found):
            found = None
        self.recompute_seconds_of[g] = found.seconds if found else np.inf
        if found is not None and found.seconds <= swapped:
            return found.seconds / (size - sum(self.intervals.sizes[r] for r in found.held)), found
        return swapped / size, None

    def _choose_cheapest(self, which: Ints, t: int, target: int, *, swap: bool) -> bool:
        """Swap or drop the storages that are cheapest per byte; True if the target is met.

        The price of an interval is computed again when its turn comes, since earlier choices change it.
        """
        open_ = which[self.choice[which] == KEEP]
        known = self._known_recompute_seconds(open_)
        speed = 1.0 / self.link.out + 1.0 / self.link.into
        guess = np.minimum(known / self.intervals.nbytes[open_], speed if swap else np.inf)
        heap = list(zip(guess.tolist(), (-self.intervals.nbytes[open_]).tolist(), open_.tolist(), strict=True))
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
