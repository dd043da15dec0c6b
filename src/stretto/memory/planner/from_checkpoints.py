"""Plans that start from checkpoints: recompute everything between cuts, swap the rest, then use the free bytes.

Choosing interval after interval until the budget is met gives, at small budgets, plans that wait for the link. This
module works in the other direction. At first as little as possible is on the device: activations between two cuts of
the forward pass are recomputed; storages alive at a cut and all persistent storages are on the host. Then the free
bytes go to two lists in turn: storages that *stay* (those with the most copying) and storages that are *kept* (those
that take longest to recompute). The share of the first list decides whether the plan waits for the link or computes
more, so several shares are tried.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .decide import Decider
from .idle_intervals import DROP, KEEP, SWAP, Bools, Ints
from .local_moves import relax, repair
from .recompute_cuts import cut
from .timeline import Timeline

_REPAIRS = 8  # rounds that split a run of recomputed storages where it takes too many bytes


@dataclass(frozen=True, slots=True)
class GapGroup:
    """Idle intervals in which a storage stays on the device together."""

    intervals: tuple[int, ...]
    copied: int  # bytes that cross the link less in a step, for each byte that stays
    length: int  # positions in the intervals


class CheckpointPlan:
    """The plan with the least on the device, for one distance between cuts.

    Parameters
    ----------
    decider : Decider
        Holds no choices yet; it has learned the timeline in which everything is kept.
    share : float
        Bytes that are recomputed together, about.
    budget : int
        Where recomputing takes more bytes than this, more storages go to the host.
    move : bool
        False: nothing goes to the host, as with the checkpoints of a framework.
    """

    def __init__(self, decider: Decider, share: float, budget: int, *, move: bool = True) -> None:
        self.decider = decider
        intervals = decider.intervals
        peak = int(decider.bytes.argmax()) - 1
        cut(decider, peak, share, checkpoints=True)
        persistent = np.array([one.persistent for one in intervals.graph.storages], bool)[intervals.storage]
        if move:
            self._away(intervals.covering(peak) | persistent)
        self.steps = decider.timeline()
        for _ in range(_REPAIRS if move else 0):
            if self.steps.peak <= budget:
                break
            decider.learn(self.steps, copies=False)
            before = decider.choice.copy()
            repair(decider, budget)
            self._away((before == DROP) | intervals.covering(int(decider.bytes.argmax()) - 1))
            if np.array_equal(before, decider.choice):
                break
            self.steps = decider.timeline()
        self.items = _items(decider, persistent)
        self.choice, self.kept_until = decider.choice.copy(), decider.kept_until.copy()

    def _away(self, which: Bools) -> None:
        """Swap the storages that are kept in these intervals."""
        decider = self.decider
        which = which & (decider.choice == KEEP) & (decider.intervals.nbytes >= decider.min_swap_bytes)
        for g in np.flatnonzero(which).tolist():
            if decider.may_swap(g):
                decider.choice[g] = SWAP
                decider.host_use.reserve(g)

    def filled(self, target: int, first: float) -> Timeline:
        """The timeline when the free bytes below `target` are used.

        Parameters
        ----------
        target : int
            Bytes that the plan may use.
        first : float
            Share of the free bytes for storages that would be copied most.
        """
        decider = self.decider
        decider.choice[:] = self.choice
        decider.kept_until = self.kept_until.copy()
        decider.learn(self.steps, copies=False)
        free = max(0, target - int(decider.bytes.max()))
        left = _stay(decider, self.items, target, int(first * free))
        relax(decider, target)
        _stay(decider, left, target, free)
        return decider.timeline()


def _items(decider: Decider, persistent: Bools) -> list[GapGroup]:
    """Storages that could stay: those with most copies for a byte first, then those that are away for a shorter time.

    Equal persistent storages are spread over the step, so that each part of it has some copies to hide.
    """
    intervals, count = decider.intervals, len(decider.intervals.graph.nodes)
    written = {s for node in intervals.graph.nodes for s in node.writes}
    moved = np.flatnonzero(decider.choice == SWAP)
    length = np.where(intervals.wraps, count - intervals.start + intervals.end, intervals.end - intervals.start)
    items: list[GapGroup] = []
    by_storage: dict[int, list[int]] = {}
    for g in moved.tolist():
        if persistent[g]:
            by_storage.setdefault(int(intervals.storage[g]), []).append(g)
        else:
            items.append(GapGroup((g,), 2, int(length[g])))
    alike: dict[tuple[int, int], list[GapGroup]] = {}
    for s, those in by_storage.items():
        one = GapGroup(tuple(those), len(those) + (s in written), int(length[those].sum()))
        alike.setdefault((one.copied, intervals.sizes[s]), []).append(one)
        if len(those) > 1:
            items += [GapGroup((g,), 1, int(length[g])) for g in those if not intervals.wraps[g]]
    for group in alike.values():
        items += [group[k] for k in _spread(len(group))]
    items.sort(key=lambda one: (-one.copied, -(-one.length * 8 // (count + 1))))
    return items


def _spread(count: int) -> Ints:
    """The numbers below `count` in bit-reversed order, whose prefixes are spread evenly."""
    bits = max(1, (count - 1).bit_length())
    back = [int(format(k, f"0{bits}b")[::-1], 2) for k in range(count)]
    return np.argsort(np.array(back), kind="stable")


def _stay(decider: Decider, items: list[GapGroup], target: int, most: int) -> list[GapGroup]:
    """Keep items on the device while they take at most `most` bytes and the target holds; the other items."""
    intervals, left = decider.intervals, []
    for item in items:
        size = int(intervals.nbytes[item.intervals[0]])
        these = [g for g in item.intervals if decider.choice[g] == SWAP]
        if size > most or any(decider.highest(g) + size > target for g in these):
            left.append(item)
            continue
        for g in these:
            decider.choice[g] = KEEP
            decider.add(int(intervals.start[g]), int(decider.until_touch[g]), bool(intervals.wraps[g]), size)
        most -= size if these else 0
    return left
