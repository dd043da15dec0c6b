"""Several attempts at a plan, of which the fastest that fits is kept."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from .copy_delays import delays
from .decide import Decider
from .from_checkpoints import Base
from .hill_climb import Point, climb
from .host_budget import Rooms, ways
from .host_slots import places
from .idle_intervals import DROP, KEEP, SWAP, Gaps, Ints
from .local_moves import demote, exchange, promote, relax, repair
from .lower import Lowered, lower
from .program import Link
from .recompute_cuts import cut
from .timeline import NEVER, Choices, Steps, walk

ROUNDS = 24
RECENT = 4  # rounds that tell what the next will bring
SOON = 50  # what is wanted within this part of the step stays there, when room is scarce
IMPROVEMENTS = 3
SMALL = 16  # gaps, up to which every single one can be tried
LARGE = 20_000  # nodes, from which on fewer things are tried
CLIMBS = 16  # tries, where nodes are few: planning takes seconds, not minutes
FEW_NODES = 500  # up to which all else is tried too
MANY_NODES = 4000  # from which on fewer plans are improved
WORK = 8e7  # tries times the square of the nodes
WORTH = 1.15  # times the best: what is slower will not be the best one after small changes either
NEAR = 1.005  # times the computing alone: no plan will be much faster

# Shares of the budget for copies under way and for one run of what is made again; what comes first.
LOOSE = (
    (1 / 16, 0.3, "swap"),
    (1 / 32, 0.15, "cut"),
    (1 / 32, 0.15, "drop"),
    (1 / 32, 0.15, "swap"),
    (1 / 8, 0.3, "swap"),
    (1 / 4, 0.3, "swap"),
)
TIGHT = (
    (1 / 16, 0.3, "cut"),
    (1 / 16, 0.3, "drop"),
    (0.0, 0.5, "cut"),
    (1 / 8, 0.15, "cut"),
    (1 / 4, 0.3, "cut"),
)

ALL, FEW = len(LOOSE + TIGHT), 3  # of them

# Of plans that start from checkpoints. Shares of the budget that are recomputed together; the share of the free bytes
# that goes to what would be copied, and the share of the budget for copies under way.
TOGETHER = (0.06, 0.09, 0.12, 0.18, 0.25, 0.35, 0.5, 0.7, 0.9)
FIRST = ((1.0, 1 / 16), (1.0, 0.0), (0.75, 1 / 16), (0.4, 1 / 16), (0.0, 1 / 16))


@dataclass(frozen=True, eq=False)
class Found:
    """A lowered plan and notes for people. decider: the one that made it, with which it can be adapted to another
    budget; longer: what it held beyond its last use then."""

    lowered: Lowered
    steps: Steps
    choice: Choices
    notes: list[str] = field(default_factory=list)
    decider: Decider | None = None
    longer: Ints | None = None


def search(
    gaps: Gaps,
    budget: int,
    link: Link,
    *,
    swap: bool = True,
    recompute: bool = True,
    host: int | None = None,
    any_will_do: bool = False,
) -> Found | None:
    """The fastest plan found that fits, or None. any_will_do: the first one that fits is enough."""
    keep = walk(gaps, gaps.everywhere(KEEP))
    if keep.peak <= budget:
        return Found(
            lower(gaps.graph, keep, budget, link), keep, np.array(gaps.everywhere(KEEP), np.int8), ["everything fits"]
        )
    tries = _Tries(gaps, budget, link, keep, swap=swap, recompute=recompute, host=host, any_will_do=any_will_do)
    best: Found | None = None
    uses = ways(gaps, budget, host) if swap else [Rooms(gaps, None)]
    count = len(gaps.graph.nodes)
    if swap and recompute and not any_will_do and count <= LARGE:
        best = tries.checkpointed()
        best = tries.climbed(uses, max(FEW, min(CLIMBS, int(WORK / max(1, count) ** 2))), best)
        if best is not None and count > FEW_NODES:
            return best
    patient = [NEVER, count // SOON] if swap else [NEVER]
    if count > LARGE // 10:  # the first that has a plan must do, and this one has
        patient.reverse()
    for patience in patient:
        for k, rooms in enumerate(uses):
            found = tries.best(rooms, patience, ALL if k < 2 and patience == NEVER else FEW)
            if found is not None and (best is None or found.lowered.seconds < best.lowered.seconds):
                best = found
            if best is not None and (any_will_do or rooms.enough or count > LARGE // 10):
                return best
        if best is not None:
            return best
    if swap:
        choice = np.array(gaps.everywhere(SWAP), np.int8)
        steps = walk(gaps, choice.tolist())
        if steps.peak <= budget:
            best = tries.fitting(Found(lower(gaps.graph, steps, budget, link), steps, choice, ["everything moves"]))
    elif recompute and len(gaps) <= SMALL:
        best = _one_by_one(gaps, budget, link)
    return best


def adapt(found: Found, budget: int, link: Link, host: int | None = None) -> Found | None:
    """A plan changed so that it fits a smaller budget, or None: much quicker than a search."""
    decider = found.decider
    if decider is None or found.longer is None:
        return None
    decider.choice[:] = found.choice
    decider.longer = found.longer.copy()
    decider.learn(found.steps)
    made = _reached(decider, budget, budget, float("inf"))
    if made is not None and host is not None and places(made.lowered.program)[1] > host:
        return None
    return made


def _one_by_one(gaps: Gaps, budget: int, link: Link) -> Found | None:
    """What is made again is added or taken away gap by gap, always the one that brings most: a last try, for steps so
    small that single bytes decide."""
    choice = np.array(gaps.everywhere(KEEP), np.int8)
    steps = walk(gaps, choice.tolist())
    while steps.peak > budget:
        others = []
        for g in np.flatnonzero(gaps.droppable):
            other = choice.copy()
            other[g] = KEEP if choice[g] == DROP else DROP
            others.append((walk(gaps, other.tolist()), other))
        better = min(others, key=lambda one: one[0].peak, default=None)
        if better is None or better[0].peak >= steps.peak:
            return None
        steps, choice = better
    notes = [f"{int((choice == DROP).sum())} gaps are recomputed, of {len(gaps)}"]
    return Found(lower(gaps.graph, steps, budget, link), steps, choice, notes)


@dataclass(frozen=True)
class _Tries:
    """Attempts at one budget. See `search`."""

    gaps: Gaps
    budget: int
    link: Link
    keep: Steps
    swap: bool
    recompute: bool
    host: int | None
    any_will_do: bool

    def best(self, rooms: Rooms, patience: int, most: int) -> Found | None:
        """The best of so many ways that are tried when the host is used like this."""
        gaps, budget = self.gaps, self.budget
        if not self.hopeful(rooms):
            return None
        most = min(most, max(2 if len(gaps.graph.nodes) > LARGE else 3, 12_000 // max(len(gaps.graph.nodes), 1)))
        free = budget - rooms.staying_bytes
        shares = (TIGHT + LOOSE if free < (self.keep.peak - rooms.staying_bytes) / 4 else LOOSE + TIGHT)[:most]
        best: Found | None = None
        for window, longest, begin in shares:
            if best is not None and self.any_will_do:
                break
            found = self.once(rooms, patience, Point(window, longest, begin))
            if found is not None and (best is None or found.lowered.seconds < best.lowered.seconds):
                best = found
        return best

    def checkpointed(self) -> Found | None:
        """The best of the plans that start from checkpoints: about ten are tried, the best are improved."""
        found: list[tuple[float, int, tuple[float, bool], Found]] = []  # seconds, number, base, plan
        bases: dict[tuple[float, bool], Base] = {}

        def price(share: float, first: float, window: float, *, move: bool = True) -> None:
            base = bases.get((share, move))
            if base is None:
                decider = self._decider(Rooms(self.gaps, self.host), NEVER, 1.0, drop_first=False, hold=True)
                decider.learn(self.keep, lanes=False)
                base = bases[share, move] = Base(decider, share * self.budget, self.budget, move=move)
            if base.steps.peak > self.budget:
                return
            steps = base.filled(int(self.budget * (1 - window)), first)
            if steps.peak <= self.budget:
                lowered = lower(self.gaps.graph, steps, self.budget, self.link, 1)
                one = Found(lowered, steps, base.decider.choice.copy(), longer=base.decider.longer.copy())
                found.append((lowered.seconds, len(found), (share, move), one))

        many = len(self.gaps.graph.nodes) > MANY_NODES
        for share in TOGETHER[1 if many else 0 :: 3 if many else 2]:
            price(share, *FIRST[0])
            price(share, 0.0, 0.0, move=False)
        if not found:
            return None
        share, move = min(found)[2]
        at = TOGETHER.index(share)
        for share in TOGETHER[max(0, at - 1) : at + 2 : 2]:
            price(share, *FIRST[0] if move else (0.0, 0.0), move=move)
        share, move = min(found)[2]
        for first, window in (FIRST[1:2] if many else FIRST[1:]) if move else ():
            price(share, first, window)
        best: Found | None = None
        for _, _, base, one in sorted(found)[: 1 if many else 2]:
            lowered = lower(self.gaps.graph, one.steps, self.budget, self.link)
            decider = bases[base].decider
            made = _improve(decider, lowered, one.steps, one.choice, self.budget, self.budget, one.longer)
            better = self.fitting(Found(*made[:3], _notes(made[2], self.gaps), decider, made[3]))
            if better is not None and (best is None or better.lowered.seconds < best.lowered.seconds):
                best = better
        return best

    def climbed(self, uses: list[Rooms], most: int, best: Found | None) -> Found | None:
        """The best of so many ways, most of them near the best ones, and of the best one known."""
        nodes = self.gaps.graph.nodes
        hopeful = [rooms for rooms in uses if self.hopeful(rooms)]

        def price(point: Point) -> float:
            nonlocal best
            worth = WORTH * best.lowered.seconds if best is not None else float("inf")
            found = self.once(hopeful[point.rooms], len(nodes) // SOON if point.soon else NEVER, point, worth)
            if found is not None and (best is None or found.lowered.seconds < best.lowered.seconds):
                best = found
            return found.lowered.seconds if found is not None else float("inf")

        if hopeful:
            climb(price, len(hopeful), most, NEAR * sum(node.seconds for node in nodes))
        return best

    def hopeful(self, rooms: Rooms) -> bool:
        """Whether there would be a plan if all that may leave did."""
        if not rooms.stays:
            return True
        return walk(self.gaps, np.where(rooms.staying(), KEEP, self.gaps.everywhere(SWAP))).peak <= self.budget

    def once(self, rooms: Rooms, patience: int, point: Point, worth: float = float("inf")) -> Found | None:
        """One try; what takes more seconds than it is worth is left as it is found."""
        budget = self.budget
        free = budget - rooms.staying_bytes
        decider = self._decider(rooms, patience, point.longest, drop_first=point.begin == "drop", hold=point.hold)
        share = 0.6 * point.longest * free if point.begin == "cut" else 0.0
        worth = 0.0 if self.any_will_do else worth
        found = attempt(decider, self.keep, budget, budget - int(point.window * free), share, worth)
        return found and self.fitting(found)

    def _decider(self, rooms: Rooms, patience: int, longest: float, *, drop_first: bool, hold: bool) -> Decider:
        budget, link = self.budget, self.link
        return Decider(
            self.gaps,
            link,
            swap=self.swap,
            recompute=self.recompute,
            rooms=rooms,
            longest=longest * (budget - rooms.staying_bytes),
            least=min(budget // 5000, int(5 * link.latency * link.out)),
            drop_first=drop_first,
            patience=patience,
            hold=hold,
        )

    def fitting(self, found: Found) -> Found | None:
        """A plan if the host has room for it."""
        if self.host is None or places(found.lowered.program)[1] <= self.host:
            return found
        return None


def attempt(decider: Decider, keep: Steps, budget: int, target: int, share: float, worth: float) -> Found | None:
    """Decide, walk, and decide again where the walk shows more than was thought. share: bytes that are made again
    together, if the step is cut first (0: it is not). worth: seconds up to which a plan is improved."""
    decider.learn(keep)
    if share:
        cut(decider, int(decider.bytes.argmax()) - 1, share)
        decider.learn(decider.walked())
    return _reached(decider, budget, target, worth)


def _reached(decider: Decider, budget: int, target: int, worth: float) -> Found | None:
    """The plan of a decider that has learned from a walk, changed until it fits, and improved."""
    gaps = decider.gaps
    fits: Steps | None = None
    chosen, longer = decider.choice.copy(), decider.longer.copy()
    peaks: list[int] = []
    for left in range(ROUNDS - 1, -1, -1):
        stuck = decider.reach(target)
        steps = decider.walked()
        peak = steps.peak
        if peak <= budget:
            fits, chosen, longer = steps, decider.choice.copy(), decider.longer.copy()
        decider.learn(steps)
        peaks.append(peak)
        if peak <= target or (decider.swap and _hopeless(peaks, budget, left)):
            break
        if stuck is not None and not repair(decider, target):
            break
    if fits is None:
        return None
    best = lower(gaps.graph, fits, budget, decider.link)
    if best.seconds <= worth:
        best, fits, chosen, longer = _improve(decider, best, fits, chosen, budget, target, longer)
    return Found(best, fits, chosen, _notes(chosen, gaps), decider, longer)


def _notes(choice: Choices, gaps: Gaps) -> list[str]:
    dropped, swapped = int(((choice == DROP) & ~gaps.beyond).sum()), int((choice == SWAP).sum())
    return [f"{dropped} gaps are recomputed, {swapped} are swapped, of {int((~gaps.beyond).sum())}"]


def _hopeless(peaks: list[int], budget: int, left: int) -> bool:
    """Whether the rounds that are left will not do, if they bring as much as the last ones."""
    return len(peaks) > RECENT and left * (peaks[-1 - RECENT] - peaks[-1]) < RECENT * (peaks[-1] - budget)


def _improve(
    decider: Decider,
    best: Lowered,
    fits: Steps,
    chosen: Choices,
    budget: int,
    target: int,
    longer: Ints | None,
) -> tuple[Lowered, Steps, Choices, Ints]:
    """Small changes to a plan that fits, each kept if it is faster and still fits."""
    gaps, link = decider.gaps, decider.link
    assert longer is not None
    late = delays(gaps, fits, best, link)
    changes: tuple[Callable[[], bool], ...] = (
        lambda: relax(decider, target),
        lambda: promote(decider, target),
        lambda: demote(decider, target, decider.late),
        lambda: demote(decider, target, late),
        lambda: demote(decider, target, late, 0.3),
        lambda: exchange(decider, target, late, 0.2),
    )
    failed = 0
    many = len(gaps.graph.nodes) > MANY_NODES
    for turn in range(len(changes) * (1 if many else IMPROVEMENTS)):
        if failed == len(changes):
            break
        decider.choice[:] = chosen
        decider.longer = longer.copy()
        decider.learn(fits)
        failed += 1
        if not changes[turn % len(changes)]():
            continue
        steps = decider.walked()
        if steps.peak > budget:
            decider.learn(steps)
            decider.reach(target)
            steps = decider.walked()
        if steps.peak > budget:
            continue
        lowered = lower(gaps.graph, steps, budget, link)
        if lowered.seconds < best.seconds:
            best, fits, chosen, longer, failed = lowered, steps, decider.choice.copy(), decider.longer.copy(), 0
            late = delays(gaps, fits, best, link)
    return best, fits, chosen, longer
