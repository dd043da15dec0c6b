"""Search for a plan: several attempts with different settings, of which the fastest that fits is kept."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from .copy_delays import delays
from .decide import Decider
from .from_checkpoints import CheckpointPlan
from .hill_climb import SearchPoint, climb
from .host_budget import HostBudget, host_options
from .host_slots import places
from .idle_intervals import DROP, KEEP, SWAP, Gaps, Ints
from .local_moves import demote, exchange, promote, relax, repair
from .lower import LoweredProgram, lower
from .program import HostLink
from .recompute_cuts import cut
from .timeline import NEVER, Choices, Timeline, build_timeline

ROUNDS = 24
RECENT = 4  # rounds from which the gain of the next is predicted
SOON = 50  # a storage needed within this part of the step stays on the device, when memory is scarce
IMPROVEMENTS = 3
SMALL = 16  # intervals, up to which every single one can be tried
LARGE = 20_000  # nodes, from which on fewer settings are tried
CLIMBS = 16  # tries, where nodes are few: planning takes seconds, not minutes
FEW_NODES = 500  # up to which all other settings are tried, too
MANY_NODES = 4000  # from which on fewer plans are improved
WORK = 8e7  # tries times the square of the nodes
WORTH = 1.15  # times the best: a slower plan will not be the best after local moves either
NEAR = 1.005  # times the computation alone: no plan will be much faster

# Shares of the budget for copies in flight and for one run of recomputed storages; what comes first.
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

# For plans that start from checkpoints: shares of the budget that are recomputed together; the share of the free bytes
# for storages that would be copied, and the share of the budget for copies in flight.
TOGETHER = (0.06, 0.09, 0.12, 0.18, 0.25, 0.35, 0.5, 0.7, 0.9)
SHARES_FIRST = ((1.0, 1 / 16), (1.0, 0.0), (0.75, 1 / 16), (0.4, 1 / 16), (0.0, 1 / 16))


@dataclass(frozen=True, eq=False)
class SearchResult:
    """A plan that fits, and what is needed to adapt it to another budget."""

    lowered: LoweredProgram
    steps: Timeline
    choice: Choices
    notes: list[str] = field(default_factory=list)  # for the report
    decider: Decider | None = None  # the one that made it
    kept_until: Ints | None = None  # its storages that are kept after their last use (`timeline.build_timeline`)


def search(
    intervals: Gaps,
    budget: int,
    link: HostLink,
    *,
    swap: bool = True,
    recompute: bool = True,
    host: int | None = None,
    first_fit: bool = False,
) -> SearchResult | None:
    """The fastest plan that fits, or None.

    Parameters
    ----------
    intervals : Gaps
        Idle intervals of the step.
    budget : int
        Bytes on the device.
    link : HostLink
        Speed of copies.
    swap, recompute : bool
        Whether storages may be swapped, and recomputed.
    host : int, optional
        Bytes on the host; no bound unless given.
    first_fit : bool
        Return the first plan that fits.
    """
    keep = build_timeline(intervals, intervals.uniform(KEEP))
    if keep.peak <= budget:
        return SearchResult(
            lower(intervals.graph, keep, budget, link),
            keep,
            np.array(intervals.uniform(KEEP), np.int8),
            ["everything fits"],
        )
    tries = _Attempts(intervals, budget, link, keep, swap=swap, recompute=recompute, host=host, first_fit=first_fit)
    best: SearchResult | None = None
    uses = host_options(intervals, budget, host) if swap else [HostBudget(intervals, None)]
    count = len(intervals.graph.nodes)
    if swap and recompute and not first_fit and count <= LARGE:
        best = tries.from_checkpoints()
        best = tries.by_hill_climbing(uses, max(FEW, min(CLIMBS, int(WORK / max(1, count) ** 2))), best)
        if best is not None and count > FEW_NODES:
            return best
    patient = [NEVER, count // SOON] if swap else [NEVER]
    if count > LARGE // 10:  # the first use of the host with a plan is taken, and this one has one
        patient.reverse()
    for reuse_window in patient:
        for k, host_use in enumerate(uses):
            found = tries.best(host_use, reuse_window, ALL if k < 2 and reuse_window == NEVER else FEW)
            if found is not None and (best is None or found.lowered.seconds < best.lowered.seconds):
                best = found
            if best is not None and (first_fit or host_use.sufficient or count > LARGE // 10):
                return best
        if best is not None:
            return best
    if swap:
        choice = np.array(intervals.uniform(SWAP), np.int8)
        steps = build_timeline(intervals, choice.tolist())
        if steps.peak <= budget:
            best = tries.if_host_fits(
                SearchResult(lower(intervals.graph, steps, budget, link), steps, choice, ["everything is swapped"])
            )
    elif recompute and len(intervals) <= SMALL:
        best = _one_by_one(intervals, budget, link)
    return best


def adapt(found: SearchResult, budget: int, link: HostLink, host: int | None = None) -> SearchResult | None:
    """A plan changed so that it fits a smaller budget, or None: much faster than a search."""
    decider = found.decider
    if decider is None or found.kept_until is None:
        return None
    decider.choice[:] = found.choice
    decider.kept_until = found.kept_until.copy()
    decider.learn(found.steps)
    made = _refine(decider, budget, budget, float("inf"))
    if made is not None and host is not None and places(made.lowered.program)[1] > host:
        return None
    return made


def _one_by_one(intervals: Gaps, budget: int, link: HostLink) -> SearchResult | None:
    """Drop or keep one interval at a time, always the one with the lowest peak.

    A last attempt, for steps so small that single bytes decide.
    """
    choice = np.array(intervals.uniform(KEEP), np.int8)
    steps = build_timeline(intervals, choice.tolist())
    while steps.peak > budget:
        others = []
        for g in np.flatnonzero(intervals.droppable):
            other = choice.copy()
            other[g] = KEEP if choice[g] == DROP else DROP
            others.append((build_timeline(intervals, other.tolist()), other))
        better = min(others, key=lambda one: one[0].peak, default=None)
        if better is None or better[0].peak >= steps.peak:
            return None
        steps, choice = better
    notes = [f"{int((choice == DROP).sum())} idle intervals are recomputed, of {len(intervals)}"]
    return SearchResult(lower(intervals.graph, steps, budget, link), steps, choice, notes)


@dataclass(frozen=True)
class _Attempts:
    """Attempts at one budget. Parameters as for `search`."""

    intervals: Gaps
    budget: int
    link: HostLink
    keep: Timeline
    swap: bool
    recompute: bool
    host: int | None
    first_fit: bool

    def best(self, host_use: HostBudget, reuse_window: int, most: int) -> SearchResult | None:
        """The best of at most `most` settings for this use of the host."""
        intervals, budget = self.intervals, self.budget
        if not self.feasible(host_use):
            return None
        most = min(
            most, max(2 if len(intervals.graph.nodes) > LARGE else 3, 12_000 // max(len(intervals.graph.nodes), 1))
        )
        free = budget - host_use.resident_bytes
        shares = (TIGHT + LOOSE if free < (self.keep.peak - host_use.resident_bytes) / 4 else LOOSE + TIGHT)[:most]
        best: SearchResult | None = None
        for window, max_run, begin in shares:
            if best is not None and self.first_fit:
                break
            found = self.try_point(host_use, reuse_window, SearchPoint(window, max_run, begin))
            if found is not None and (best is None or found.lowered.seconds < best.lowered.seconds):
                best = found
        return best

    def from_checkpoints(self) -> SearchResult | None:
        """The best of the plans that start from checkpoints: about ten are tried, the best are improved."""
        found: list[tuple[float, int, tuple[float, bool], SearchResult]] = []  # seconds, number, base, plan
        bases: dict[tuple[float, bool], CheckpointPlan] = {}

        def price(share: float, first: float, window: float, *, move: bool = True) -> None:
            base = bases.get((share, move))
            if base is None:
                decider = self._decider(HostBudget(self.intervals, self.host), NEVER, 1.0, drop_first=False, hold=True)
                decider.learn(self.keep, copies=False)
                base = bases[share, move] = CheckpointPlan(decider, share * self.budget, self.budget, move=move)
            if base.steps.peak > self.budget:
                return
            steps = base.filled(int(self.budget * (1 - window)), first)
            if steps.peak <= self.budget:
                lowered = lower(self.intervals.graph, steps, self.budget, self.link, 1)
                one = SearchResult(
                    lowered, steps, base.decider.choice.copy(), kept_until=base.decider.kept_until.copy()
                )
                found.append((lowered.seconds, len(found), (share, move), one))

        many = len(self.intervals.graph.nodes) > MANY_NODES
        for share in TOGETHER[1 if many else 0 :: 3 if many else 2]:
            price(share, *SHARES_FIRST[0])
            price(share, 0.0, 0.0, move=False)
        if not found:
            return None
        share, move = min(found)[2]
        at = TOGETHER.index(share)
        for share in TOGETHER[max(0, at - 1) : at + 2 : 2]:
            price(share, *SHARES_FIRST[0] if move else (0.0, 0.0), move=move)
        share, move = min(found)[2]
        for first, window in (SHARES_FIRST[1:2] if many else SHARES_FIRST[1:]) if move else ():
            price(share, first, window)
        best: SearchResult | None = None
        for _, _, base, one in sorted(found)[: 1 if many else 2]:
            lowered = lower(self.intervals.graph, one.steps, self.budget, self.link)
            decider = bases[base].decider
            made = _improve(decider, lowered, one.steps, one.choice, self.budget, self.budget, one.kept_until)
            better = self.if_host_fits(SearchResult(*made[:3], _notes(made[2], self.intervals), decider, made[3]))
            if better is not None and (best is None or better.lowered.seconds < best.lowered.seconds):
                best = better
        return best

    def by_hill_climbing(self, uses: list[HostBudget], most: int, best: SearchResult | None) -> SearchResult | None:
        """The best of at most `most` settings, most of them near the best ones, and of the best plan known."""
        nodes = self.intervals.graph.nodes
        feasible = [host_use for host_use in uses if self.feasible(host_use)]

        def price(point: SearchPoint) -> float:
            nonlocal best
            max_seconds = WORTH * best.lowered.seconds if best is not None else float("inf")
            found = self.try_point(
                feasible[point.host_use], len(nodes) // SOON if point.keep_soon else NEVER, point, max_seconds
            )
            if found is not None and (best is None or found.lowered.seconds < best.lowered.seconds):
                best = found
            return found.lowered.seconds if found is not None else float("inf")

        if feasible:
            climb(price, len(feasible), most, NEAR * sum(node.seconds for node in nodes))
        return best

    def feasible(self, host_use: HostBudget) -> bool:
        """Whether there is a plan if everything that may leave the device does."""
        if not host_use.resident:
            return True
        return (
            build_timeline(
                self.intervals, np.where(host_use.resident_intervals(), KEEP, self.intervals.uniform(SWAP))
            ).peak
            <= self.budget
        )

    def try_point(
        self, host_use: HostBudget, reuse_window: int, point: SearchPoint, max_seconds: float = float("inf")
    ) -> SearchResult | None:
        """One attempt. A plan that takes more than `max_seconds` is not improved further."""
        budget = self.budget
        free = budget - host_use.resident_bytes
        decider = self._decider(
            host_use, reuse_window, point.max_run, drop_first=point.begin == "drop", hold=point.hold
        )
        share = 0.6 * point.max_run * free if point.begin == "cut" else 0.0
        max_seconds = 0.0 if self.first_fit else max_seconds
        found = attempt(decider, self.keep, budget, budget - int(point.window * free), share, max_seconds)
        return found and self.if_host_fits(found)

    def _decider(
        self, host_use: HostBudget, reuse_window: int, max_run: float, *, drop_first: bool, hold: bool
    ) -> Decider:
        budget, link = self.budget, self.link
        return Decider(
            self.intervals,
            link,
            swap=self.swap,
            recompute=self.recompute,
            host_use=host_use,
            max_run=max_run * (budget - host_use.resident_bytes),
            min_swap_bytes=min(budget // 5000, int(5 * link.latency * link.out)),
            drop_first=drop_first,
            reuse_window=reuse_window,
            hold=hold,
        )

    def if_host_fits(self, found: SearchResult) -> SearchResult | None:
        """The plan if it fits on the host, otherwise None."""
        if self.host is None or places(found.lowered.program)[1] <= self.host:
            return found
        return None


def attempt(
    decider: Decider, keep: Timeline, budget: int, target: int, share: float, max_seconds: float
) -> SearchResult | None:
    """Choose, build the timeline, and choose again where it takes more than estimated.

    Parameters
    ----------
    decider : Decider
        With no choices yet.
    keep : Timeline
        The timeline in which everything is kept.
    budget, target : int
        Bytes on the device, and bytes to aim for.
    share : float
        Bytes that are recomputed together, if the step is cut first (0: it is not).
    max_seconds : float
        Only a plan that takes no longer is improved.
    """
    decider.learn(keep)
    if share:
        cut(decider, int(decider.bytes.argmax()) - 1, share)
        decider.learn(decider.timeline())
    return _refine(decider, budget, target, max_seconds)


def _refine(decider: Decider, budget: int, target: int, max_seconds: float) -> SearchResult | None:
    """The plan of a decider that has learned a timeline, changed until it fits, and improved."""
    intervals = decider.intervals
    fits: Timeline | None = None
    chosen, kept_until = decider.choice.copy(), decider.kept_until.copy()
    peaks: list[int] = []
    for left in range(ROUNDS - 1, -1, -1):
        stuck = decider.reach(target)
        steps = decider.timeline()
        peak = steps.peak
        if peak <= budget:
            fits, chosen, kept_until = steps, decider.choice.copy(), decider.kept_until.copy()
        decider.learn(steps)
        peaks.append(peak)
        if peak <= target or (decider.swap and _too_slow(peaks, budget, left)):
            break
        if stuck is not None and not repair(decider, target):
            break
    if fits is None:
        return None
    best = lower(intervals.graph, fits, budget, decider.link)
    if best.seconds <= max_seconds:
        best, fits, chosen, kept_until = _improve(decider, best, fits, chosen, budget, target, kept_until)
    return SearchResult(best, fits, chosen, _notes(chosen, intervals), decider, kept_until)


def _notes(choice: Choices, intervals: Gaps) -> list[str]:
    dropped, swapped = int(((choice == DROP) & ~intervals.extended).sum()), int((choice == SWAP).sum())
    return [f"{dropped} idle intervals are recomputed, {swapped} are swapped, of {int((~intervals.extended).sum())}"]


def _too_slow(peaks: list[int], budget: int, left: int) -> bool:
    """Whether the remaining rounds will not reach the budget, if they gain as much as the last ones."""
    return len(peaks) > RECENT and left * (peaks[-1 - RECENT] - peaks[-1]) < RECENT * (peaks[-1] - budget)


def _improve(
    decider: Decider,
    best: LoweredProgram,
    fits: Timeline,
    chosen: Choices,
    budget: int,
    target: int,
    kept_until: Ints | None,
) -> tuple[LoweredProgram, Timeline, Choices, Ints]:
    """Apply local moves to a plan that fits; keep each if the plan is faster and still fits."""
    intervals, link = decider.intervals, decider.link
    assert kept_until is not None
    late = delays(intervals, fits, best, link)
    changes: tuple[Callable[[], bool], ...] = (
        lambda: relax(decider, target),
        lambda: promote(decider, target),
        lambda: demote(decider, target, decider.late),
        lambda: demote(decider, target, late),
        lambda: demote(decider, target, late, 0.3),
        lambda: exchange(decider, target, late, 0.2),
    )
    failed = 0
    many = len(intervals.graph.nodes) > MANY_NODES
    for turn in range(len(changes) * (1 if many else IMPROVEMENTS)):
        if failed == len(changes):
            break
        decider.choice[:] = chosen
        decider.kept_until = kept_until.copy()
        decider.learn(fits)
        failed += 1
        if not changes[turn % len(changes)]():
            continue
        steps = decider.timeline()
        if steps.peak > budget:
            decider.learn(steps)
            decider.reach(target)
            steps = decider.timeline()
        if steps.peak > budget:
            continue
        lowered = lower(intervals.graph, steps, budget, link)
        if lowered.seconds < best.seconds:
            best, fits, chosen, kept_until, failed = lowered, steps, decider.choice.copy(), decider.kept_until.copy(), 0
            late = delays(intervals, fits, best, link)
    return best, fits, chosen, kept_until
