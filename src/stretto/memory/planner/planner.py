"""From a graph and a budget to a program for the device: the fastest one found that fits.

    planned = make(graph, Settings(budget=12 << 30))
    planned.costs.peak       # bytes, at most the budget; `account(planned.program)` says the same
    planned.costs.seconds

The parts, in the order in which they work: `order` (which node runs when), `gaps` (where a storage is not wanted),
`decide` (keep, swap or drop, by gap), `walk` (the steps and the bytes that must be there), `lower` (when copies begin).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from stretto.errors import PlanError
from stretto.memory.addresses.fragmentation import beside_arena
from stretto.memory.addresses.steering import steered
from stretto.plan.cost import show_bytes

from .fixed_partitions import choose, load_steps
from .graph import Graph
from .idle_intervals import KEEP, SWAP, Gaps, find_gaps
from .lower import Lowered, lower
from .order import ORDERS
from .program import Costs, Link, Program, account
from .residency import there_at
from .search import Found, adapt, search
from .timeline import Steps, walk

POLICIES = ("best", "dissertation", "keep")
_TARGETS = 10  # plans for less that are tried at most, if allocations leave gaps
_MARGIN, _MORE = 1.1, 0.002  # by how much less: a multiple of what was too much, and a share of the budget
_UNUSED, _FITTING = 0.02, 3  # of the budget: so much may be left; plans that fit of which the fastest is taken


@dataclass(frozen=True)
class Settings:
    """budget: bytes on the device. host_budget: bytes on the host that may be given to storages; None: no bound.

    policy: "best" looks for the fastest plan, "dissertation" follows chapter 6, "keep" moves nothing. partition and
    distance: operations in a partition and how many partitions a storage must be unwanted to leave (dissertation only).
    order: "program", "depth_first", "levels" or "deep_levels". place: what lasts may live on the host.
    """

    budget: int
    link: Link = field(default_factory=Link)
    host_budget: int | None = None
    policy: str = "best"
    swap: bool = True
    recompute: bool = True
    partition: int = 20
    distance: int = 2
    order: str = "program"
    place: bool = True

    def __post_init__(self) -> None:
        if self.policy not in POLICIES:
            raise PlanError(f"policy={self.policy!r} is not known; choose one of {', '.join(POLICIES)}")
        if self.order not in ORDERS:
            raise PlanError(f"order={self.order!r} is not known; choose one of {', '.join(ORDERS)}")
        if self.partition < 1 or self.distance < 1:
            raise PlanError(f"partition={self.partition} and distance={self.distance}: both must be 1 or more")


@dataclass(frozen=True, eq=False)
class Planned:
    """A program, what it costs (as `account` says), the settings, and what is worth telling."""

    program: Program
    costs: Costs
    settings: Settings
    notes: list[str] = field(default_factory=list)


class Infeasible(PlanError):
    """No plan fits. smallest: the smallest budget for which there is one. side: "device" or "host", where it binds.
    node: what runs when most is in use in the smallest plan. there: bytes then, by kind."""

    def __init__(self, budget: int, smallest: int, side: str, node: str, there: dict[str, int]) -> None:
        self.budget, self.smallest, self.side, self.node, self.there = budget, smallest, side, node, there
        held = ", ".join(f"{kind} {show_bytes(nbytes)}" for kind, nbytes in there.items() if nbytes)
        what = "budget" if side == "device" else "host_budget"
        super().__init__(
            f"no plan fits {what}={show_bytes(budget)}: {show_bytes(smallest)} is the smallest for which one was found,"
            f" and {node} binds there ({held or 'nothing else is held'}); pass {what}={smallest} or more, "
            "or a smaller batch"
        )

    def beside(self, held: Mapping[str, int], budget: int) -> Infeasible:
        """The same in terms of a budget that must hold bytes besides, by kind, which the planner did not see."""
        if not held or self.side != "device":
            return self
        there = {**self.there, **held}
        return Infeasible(budget, self.smallest + sum(held.values()), self.side, self.node, there)


def make(graph: Graph, settings: Settings) -> Planned:
    """The plan; raises `Infeasible` if there is none for this budget."""
    graph.check()
    if settings.policy == "keep":
        return _checked(_keep(graph, settings), settings, "nothing moves")
    if settings.policy == "dissertation":
        return _checked(_dissertation(graph, settings), settings, "")
    gaps = _gaps(graph, settings)
    found = _search(gaps, settings, settings.budget) or _second_look(gaps, settings)
    costs = account(found.lowered.program, settings.link)
    return Planned(found.lowered.program, costs, settings, found.notes)


def make_placed(graph: Graph, settings: Settings) -> Planned:
    """A plan whose allocations have places in the budget, the gaps between them included (`steering`). If the plan for
    the whole budget does not, plans for less are tried, and the fastest that fits is taken. Raises `Infeasible` if
    none does."""
    graph.check()
    if settings.policy != "best":
        made = make(graph, settings)
        return replace(made, program=steered(made.program, settings.budget - beside_arena(made.program)))
    gaps = _gaps(graph, settings)
    found = _search(gaps, settings, settings.budget) or _second_look(gaps, settings)
    over = _Bracket(settings.budget)
    best: Planned | None = None
    for _ in range(_TARGETS):
        program = found.lowered.program
        beside = beside_arena(program)
        program = steered(program, settings.budget - beside)
        made = Planned(program, account(program, settings.link), settings, found.notes)
        more = beside + (program.arena or 0) - settings.budget
        if more <= 0 and (best is None or made.costs.seconds < best.costs.seconds):
            best = made
        target = over.next(made.costs.peak, more, found)
        if target is None:
            break
        try:
            found = _for_less(gaps, settings, target, over.found)
        except Infeasible as error:
            if best is not None:
                break
            if error.side != "device":
                raise
            more = settings.budget - target
            raise Infeasible(settings.budget, error.smallest + more, error.side, error.node, error.there) from None
    if best is None:
        node, there = there_at(made.program, made.costs.peak_at)
        raise Infeasible(settings.budget, settings.budget + more, "device", node, there)
    return best


class _Bracket:
    """Budgets that plans are made for, when their gaps between allocations must fit too: between one that was too
    large and one that was small enough.

    found : the plan for the smallest budget that was too large, which others are adapted from
    """

    def __init__(self, budget: int) -> None:
        self.budget, self.target = budget, budget
        self.found: Found | None = None
        self._fitting = 0
        self._high: tuple[int, int] | None = None  # a budget, and how many bytes its plan took beyond all that is given
        self._low: tuple[int, int] | None = None

    def next(self, peak: int, over: int, found: Found) -> int | None:
        """The next budget, after a plan with this peak took so many bytes too many (less than 0: they are left). None
        if that is close enough."""
        if over <= 0:
            if self.target == self.budget or -over <= _UNUSED * self.budget:
                return None
            self._low = self.target, over
            self._fitting += 1
            if self._fitting == _FITTING:
                return None
        else:
            self._high, self.found = (min(self.target, peak), over), found
        assert self._high is not None  # the first plan fitted otherwise
        high, more = self._high
        if self._low is None:
            self.target = max(1, high - int(_MARGIN * more + _MORE * self.budget))
        else:
            low, less = self._low
            if high - low <= _UNUSED * self.budget / 2:
                return None
            share = min(0.8, max(0.2, -less / (more - less)))
            self.target = low + int(share * (high - low))
        return self.target


def _for_less(gaps: Gaps, settings: Settings, budget: int, known: Found | None) -> Found:
    """A plan for a smaller budget, adapted from a known one if it can be."""
    smaller = replace(settings, budget=budget)
    return (
        (None if known is None else adapt(known, budget, settings.link, settings.host_budget))
        or _search(gaps, smaller, budget)
        or _second_look(gaps, smaller)
    )


def smallest_budget(graph: Graph, settings: Settings) -> int:
    """The smallest budget for which `make` has a plan, in bytes."""
    if settings.policy == "keep":
        return account(_keep(graph, settings).program, settings.link).peak
    if settings.policy == "dissertation":
        steps = _partitioned(_gaps(graph, settings), settings)
        return steps.peak
    return _smallest(_gaps(graph, settings), settings)


def _gaps(graph: Graph, settings: Settings) -> Gaps:
    order = settings.order
    if settings.policy == "dissertation" and order == "program":
        order = "depth_first"
    extend = settings.policy == "best" and settings.recompute
    return find_gaps(graph.reordered(ORDERS[order](graph)), place=settings.place, extend=extend)


def _keep(graph: Graph, settings: Settings) -> Lowered:
    gaps = find_gaps(graph)
    steps = walk(gaps, gaps.everywhere(KEEP))
    return lower(graph, steps, steps.peak, settings.link)


def _partitioned(gaps: Gaps, settings: Settings) -> Steps:
    return walk(gaps, choose(gaps, settings.partition, settings.distance, swap=settings.swap))


def _dissertation(graph: Graph, settings: Settings) -> Lowered:
    gaps = _gaps(graph, settings)
    steps = _partitioned(gaps, settings)
    budget = max(settings.budget, steps.peak)
    return lower(gaps.graph, steps, budget, settings.link, first=load_steps(steps, settings.partition))


def _checked(lowered: Lowered, settings: Settings, note: str) -> Planned:
    costs = account(lowered.program, settings.link)
    if costs.peak > settings.budget:
        node, there = there_at(lowered.program, costs.peak_at)
        raise Infeasible(settings.budget, costs.peak, "device", node, there)
    if settings.host_budget is not None and costs.host > settings.host_budget:
        node, there = there_at(lowered.program, costs.peak_at)
        raise Infeasible(settings.host_budget, costs.host, "host", node, there)
    return Planned(lowered.program, costs, settings, [note] if note else [])


def _search(gaps: Gaps, settings: Settings, budget: int, *, any_will_do: bool = False) -> Found | None:
    return search(
        gaps,
        budget,
        settings.link,
        swap=settings.swap,
        recompute=settings.recompute,
        host=settings.host_budget,
        any_will_do=any_will_do,
    )


def _smallest(gaps: Gaps, settings: Settings) -> int:
    steps = walk(gaps, gaps.everywhere(SWAP))
    low = steps.peak
    if settings.swap and settings.host_budget is None:
        return low
    steps = walk(gaps, gaps.everywhere(KEEP))
    high = steps.peak
    if _search(gaps, settings, low, any_will_do=True) is not None:
        return low
    while high - low > max(1, high // 200):
        middle = (low + high) // 2
        if _search(gaps, settings, middle, any_will_do=True) is None:
            low = middle
        else:
            high = middle
    return high


def _second_look(gaps: Gaps, settings: Settings) -> Found:
    """A plan for a smaller budget if there is one after all; otherwise says what binds."""
    if settings.host_budget is not None:
        free = _search(gaps, replace(settings, host_budget=None), settings.budget, any_will_do=True)
        if free is not None:
            costs = account(free.lowered.program, settings.link)
            if costs.host <= settings.host_budget:  # found when nobody looked at the host
                return free
            raise Infeasible(settings.host_budget, costs.host, "host", *there_at(free.lowered.program, costs.peak_at))
    smallest = _smallest(gaps, settings)
    found = _search(gaps, settings, smallest, any_will_do=smallest > settings.budget)
    assert found is not None
    if smallest <= settings.budget:
        return found
    costs = account(found.lowered.program, settings.link)
    raise Infeasible(settings.budget, smallest, "device", *there_at(found.lowered.program, costs.peak_at))
