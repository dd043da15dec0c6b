"""Make a plan: from a graph and a budget to the fastest program for the device that fits.

    planned = make(graph, Settings(budget=12 << 30))
    planned.costs.peak       # bytes, at most the budget; `account(planned.program)` gives the same
    planned.costs.seconds

The stages, in order: `order` (which node runs when), `idle_intervals` (where a storage is not needed), `decide` (keep,
swap or drop, by interval), `timeline` (the steps and the bytes they require), `lower` (when copies begin).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from stretto.errors import PlanError
from stretto.text import show_bytes

from .fixed_partitions import choose, load_steps
from .graph import Graph
from .idle_intervals import KEEP, SWAP, Gaps, find_idle_intervals
from .instructions import DeviceProgram
from .lower import LoweredProgram, lower
from .order import ORDERS
from .program import Costs, HostLink, account
from .residency import resident_at
from .search import SearchResult, search
from .timeline import Timeline, build_timeline

POLICIES = ("best", "dissertation", "keep")


@dataclass(frozen=True)
class PlannerSettings:
    """What to plan for."""

    budget: int  # bytes on the device
    link: HostLink = field(default_factory=HostLink)
    host_budget: int | None = None  # bytes on the host for storages; None: no bound
    policy: str = "best"  # "best": the fastest plan; "dissertation": chapter 6; "keep": nothing moves
    swap: bool = True  # storages may be copied to the host and back
    recompute: bool = True  # operations may run twice
    partition: int = 20  # operations in a partition ("dissertation" only)
    distance: int = 2  # partitions that must not need a storage for it to leave ("dissertation" only)
    order: str = "program"  # "program", "depth_first", "levels" or "deep_levels"
    place: bool = True  # persistent storages may be stored on the host

    def __post_init__(self) -> None:
        if self.policy not in POLICIES:
            raise PlanError(f"policy={self.policy!r} is not supported; choose one of {', '.join(POLICIES)}")
        if self.order not in ORDERS:
            raise PlanError(f"order={self.order!r} is not supported; choose one of {', '.join(ORDERS)}")
        if self.partition < 1 or self.distance < 1:
            raise PlanError(f"partition={self.partition} and distance={self.distance}: pass 1 or more for both")


@dataclass(frozen=True, eq=False)
class PlannedProgram:
    """A plan."""

    program: DeviceProgram
    costs: Costs  # as `account` computes them
    settings: PlannerSettings
    notes: list[str] = field(default_factory=list)  # for the report


class Infeasible(PlanError):
    """No plan fits the budget.

    Attributes
    ----------
    budget : int
        The budget that was asked for, in bytes.
    smallest : int
        The smallest budget for which a plan was found.
    side : str
        Which budget is too small: "device" or "host".
    node : str
        The operation that runs at the peak of the smallest plan.
    resident : dict
        Bytes at that peak, by kind.
    """

    def __init__(self, budget: int, smallest: int, side: str, node: str, resident: dict[str, int]) -> None:
        self.budget, self.smallest, self.side, self.node, self.resident = budget, smallest, side, node, resident
        held = ", ".join(f"{kind} {show_bytes(nbytes)}" for kind, nbytes in resident.items() if nbytes)
        what = "budget" if side == "device" else "host_budget"
        super().__init__(
            f"no plan fits {what}={show_bytes(budget)}: the smallest that fits is {show_bytes(smallest)}, because of "
            f"{node} ({held or 'nothing else is resident'}); pass {what}={smallest} or more, or a smaller batch"
        )

    def with_other_memory(self, held: Mapping[str, int], budget: int) -> Infeasible:
        """The same refusal for a budget that must also hold bytes, by kind, that the planner did not see."""
        if not held or self.side != "device":
            return self
        resident = {**self.resident, **held}
        return Infeasible(budget, self.smallest + sum(held.values()), self.side, self.node, resident)


def make(graph: Graph, settings: PlannerSettings) -> PlannedProgram:
    """Plan a step; raises `Infeasible` if no plan fits the budget.

    Parameters
    ----------
    graph : Graph
        The step.
    settings : PlannerSettings
        Budget, link and policy.

    Returns
    -------
    PlannedProgram
    """
    graph.check()
    if settings.policy == "keep":
        return _checked(_keep(graph, settings), settings, "nothing moves")
    if settings.policy == "dissertation":
        return _checked(_dissertation(graph, settings), settings, "")
    intervals = intervals_of(graph, settings)
    found = find_plan(intervals, settings, settings.budget) or retry_or_refuse(intervals, settings)
    costs = account(found.lowered.program, settings.link)
    return PlannedProgram(found.lowered.program, costs, settings, found.notes)


def smallest_budget(graph: Graph, settings: PlannerSettings) -> int:
    """The smallest budget for which `make` has a plan, in bytes."""
    if settings.policy == "keep":
        return account(_keep(graph, settings).program, settings.link).peak
    if settings.policy == "dissertation":
        steps = _partitioned(intervals_of(graph, settings), settings)
        return steps.peak
    return _smallest(intervals_of(graph, settings), settings)


def intervals_of(graph: Graph, settings: PlannerSettings) -> Gaps:
    """Idle intervals of a graph in the order of the settings."""
    order = settings.order
    if settings.policy == "dissertation" and order == "program":
        order = "depth_first"
    extend = settings.policy == "best" and settings.recompute
    return find_idle_intervals(graph.reordered(ORDERS[order](graph)), place=settings.place, extend=extend)


def _keep(graph: Graph, settings: PlannerSettings) -> LoweredProgram:
    intervals = find_idle_intervals(graph)
    steps = build_timeline(intervals, intervals.uniform(KEEP))
    return lower(graph, steps, steps.peak, settings.link)


def _partitioned(intervals: Gaps, settings: PlannerSettings) -> Timeline:
    return build_timeline(intervals, choose(intervals, settings.partition, settings.distance, swap=settings.swap))


def _dissertation(graph: Graph, settings: PlannerSettings) -> LoweredProgram:
    intervals = intervals_of(graph, settings)
    steps = _partitioned(intervals, settings)
    budget = max(settings.budget, steps.peak)
    return lower(intervals.graph, steps, budget, settings.link, first=load_steps(steps, settings.partition))


def _checked(lowered: LoweredProgram, settings: PlannerSettings, note: str) -> PlannedProgram:
    costs = account(lowered.program, settings.link)
    if costs.peak > settings.budget:
        node, resident = resident_at(lowered.program, costs.peak_at)
        raise Infeasible(settings.budget, costs.peak, "device", node, resident)
    if settings.host_budget is not None and costs.host > settings.host_budget:
        node, resident = resident_at(lowered.program, costs.peak_at)
        raise Infeasible(settings.host_budget, costs.host, "host", node, resident)
    return PlannedProgram(lowered.program, costs, settings, [note] if note else [])


def find_plan(
    intervals: Gaps, settings: PlannerSettings, budget: int, *, first_fit: bool = False
) -> SearchResult | None:
    """The fastest plan for a budget, or None (`search.search`)."""
    return search(
        intervals,
        budget,
        settings.link,
        swap=settings.swap,
        recompute=settings.recompute,
        host=settings.host_budget,
        first_fit=first_fit,
    )


def _smallest(intervals: Gaps, settings: PlannerSettings) -> int:
    steps = build_timeline(intervals, intervals.uniform(SWAP))
    low = steps.peak
    if settings.swap and settings.host_budget is None:
        return low
    steps = build_timeline(intervals, intervals.uniform(KEEP))
    high = steps.peak
    if find_plan(intervals, settings, low, first_fit=True) is not None:
        return low
    while high - low > max(1, high // 200):
        middle = (low + high) // 2
        if find_plan(intervals, settings, middle, first_fit=True) is None:
            low = middle
        else:
            high = middle
    return high


def retry_or_refuse(intervals: Gaps, settings: PlannerSettings) -> SearchResult:
    """A plan for a smaller budget if there is one after all; otherwise raise `Infeasible`."""
    if settings.host_budget is not None:
        free = find_plan(intervals, replace(settings, host_budget=None), settings.budget, first_fit=True)
        if free is not None:
            costs = account(free.lowered.program, settings.link)
            if costs.host <= settings.host_budget:  # found without the bound on the host
                return free
            raise Infeasible(
                settings.host_budget, costs.host, "host", *resident_at(free.lowered.program, costs.peak_at)
            )
    smallest = _smallest(intervals, settings)
    found = find_plan(intervals, settings, smallest, first_fit=smallest > settings.budget)
    assert found is not None
    if smallest <= settings.budget:
        return found
    costs = account(found.lowered.program, settings.link)
    raise Infeasible(settings.budget, smallest, "device", *resident_at(found.lowered.program, costs.peak_at))
