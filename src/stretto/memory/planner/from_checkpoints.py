"""Plans that start from checkpoints: recompute everything between cuts, move the rest, then use the free bytes.

Choosing gap after gap until the budget is met ends, at small budgets, in plans that wait for the link. This goes the
other way. At first as little as possible is on the device: activations between two cuts of the forward pass are
recomputed, what is alive at a cut and all persistent storages are on the host. Then the bytes that are left are given
to two lists in turn, to *stay* (what would be copied most) and to *keep* (what takes longest to recompute). Which share
of them the first list gets decides whether the plan waits for the link or computes more, so several are tried.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .decide import Decider
from .idle_intervals import DROP, KEEP, SWAP, Bools, Ints
from .local_moves import relax, repair
from .recompute_cuts import cut
from .timeline import Steps

_REPAIRS = 8  # rounds in which what is recomputed together is cut in two where it takes too many bytes


@dataclass(frozen=True, slots=True)
class Item:
    """Gaps in which a storage stays on the device together.

    gaps : the gaps
    copied : bytes that cross the link less in a step, for each byte that stays
    length : positions in the gaps
    """

    gaps: tuple[int, ...]
    copied: int
    length: int


class Base:
    """The plan that has the least on the device, for one distance between cuts.

    Parameters
    ----------
    decider : Decider
        Nothing is decided in it yet; it has learned the steps in which everything is kept.
    share : float
        Bytes that are recomputed together, about.
    budget : int
        Where recomputing takes more bytes than this, more is on the host.
    move : bool
        False: nothing is on the host, as with checkpoints of a framework.
    """

    def __init__(self, decider: Decider, share: float, budget: int, *, move: bool = True) -> None:
        self.decider = decider
        gaps = decider.gaps
        peak = int(decider.bytes.argmax()) - 1
        cut(decider, peak, share, checkpoints=True)
        lasting = np.array([one.lasting for one in gaps.graph.storages], bool)[gaps.storage]
        if move:
            self._away(gaps.covering(peak) | lasting)
        self.steps = decider.walked()
        for _ in range(_REPAIRS if move else 0):
            if self.steps.peak <= budget:
                break
            decider.learn(self.steps, lanes=False)
            before = decider.choice.copy()
            repair(decider, budget)
            self._away((before == DROP) | gaps.covering(int(decider.bytes.argmax()) - 1))
            if np.array_equal(before, decider.choice):
                break
            self.steps = decider.walked()
        self.items = _items(decider, lasting)
        self.choice, self.longer = decider.choice.copy(), decider.longer.copy()

    def _away(self, which: Bools) -> None:
        """What is kept in these gaps is on the host instead."""
        decider = self.decider
        which = which & (decider.choice == KEEP) & (decider.gaps.nbytes >= decider.least)
        for g in np.flatnonzero(which).tolist():
            if decider.may_swap(g):
                decider.choice[g] = SWAP
                decider.rooms.take(g)

    def filled(self, target: int, first: float) -> Steps:
        """The steps when the bytes below `target` are used, a share `first` of them for what would be copied."""
        decider = self.decider
        decider.choice[:] = self.choice
        decider.longer = self.longer.copy()
        decider.learn(self.steps, lanes=False)
        free = max(0, target - int(decider.bytes.max()))
        left = _stay(decider, self.items, target, int(first * free))
        relax(decider, target)
        _stay(decider, left, target, free)
        return decider.walked()


def _items(decider: Decider, lasting: Bools) -> list[Item]:
    """What could stay: first what is copied most for a byte, then what is away for a shorter time. Persistent
    storages that are alike are spread over the step, so that each part of it has some copies to hide."""
    gaps, count = decider.gaps, len(decider.gaps.graph.nodes)
    written = {s for node in gaps.graph.nodes for s in node.writes}
    moved = np.flatnonzero(decider.choice == SWAP)
    length = np.where(gaps.wraps, count - gaps.start + gaps.end, gaps.end - gaps.start)
    items: list[Item] = []
    by_storage: dict[int, list[int]] = {}
    for g in moved.tolist():
        if lasting[g]:
            by_storage.setdefault(int(gaps.storage[g]), []).append(g)
        else:
            items.append(Item((g,), 2, int(length[g])))
    alike: dict[tuple[int, int], list[Item]] = {}
    for s, those in by_storage.items():
        one = Item(tuple(those), len(those) + (s in written), int(length[those].sum()))
        alike.setdefault((one.copied, gaps.sizes[s]), []).append(one)
        if len(those) > 1:
            items += [Item((g,), 1, int(length[g])) for g in those if not gaps.wraps[g]]
    for group in alike.values():
        items += [group[k] for k in _spread(len(group))]
    items.sort(key=lambda one: (-one.copied, -(-one.length * 8 // (count + 1))))
    return items


def _spread(count: int) -> Ints:
    """The numbers below `count` in an order whose beginnings are spread evenly: bits reversed."""
    bits = max(1, (count - 1).bit_length())
    back = [int(format(k, f"0{bits}b")[::-1], 2) for k in range(count)]
    return np.argsort(np.array(back), kind="stable")


def _stay(decider: Decider, items: list[Item], target: int, most: int) -> list[Item]:
    """Lets items stay while their bytes are at most `most` and everything is below the target; gives the others."""
    gaps, left = decider.gaps, []
    for item in items:
        size = int(gaps.nbytes[item.gaps[0]])
        these = [g for g in item.gaps if decider.choice[g] == SWAP]
        if size > most or any(decider.highest(g) + size > target for g in these):
            left.append(item)
            continue
        for g in these:
            decider.choice[g] = KEEP
            decider.add(int(gaps.start[g]), int(decider.until_touch[g]), bool(gaps.wraps[g]), size)
        most -= size if these else 0
    return left
