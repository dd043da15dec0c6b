"""Plans whose allocations fit the budget with the gaps between their addresses.

If the plan for the whole budget does not fit once its allocations have addresses (`steering`), plans for smaller
budgets are tried, and the fastest that fits is taken.
"""

from __future__ import annotations

from dataclasses import replace

from stretto.memory.planner.graph import Graph
from stretto.memory.planner.idle_intervals import Gaps
from stretto.memory.planner.planner import (
    Infeasible,
    PlannedProgram,
    PlannerSettings,
    find_plan,
    intervals_of,
    make,
    retry_or_refuse,
)
from stretto.memory.planner.program import account
from stretto.memory.planner.residency import resident_at
from stretto.memory.planner.search import SearchResult, adapt

from .fragmentation import bytes_outside_arena
from .steering import steered

_TARGETS = 10  # plans for smaller budgets that are tried at most, if allocations leave gaps
_MARGIN, _MORE = 1.1, 0.002  # how much less: a multiple of the excess, and a share of the budget
_UNUSED, _FITTING = 0.02, 3  # share of the budget that may be left; plans that fit, of which the fastest is taken


def make_placed(graph: Graph, settings: PlannerSettings) -> PlannedProgram:
    """A plan whose allocations fit the budget, with the gaps between them (`steering`).

    Raises `Infeasible` if no plan does. Parameters as for `planner.make`.
    """
    graph.check()
    if settings.policy != "best":
        made = make(graph, settings)
        return replace(made, program=steered(made.program, settings.budget - bytes_outside_arena(made.program)))
    intervals = intervals_of(graph, settings)
    found = find_plan(intervals, settings, settings.budget) or retry_or_refuse(intervals, settings)
    over = _Bracket(settings.budget)
    best: PlannedProgram | None = None
    for _ in range(_TARGETS):
        program = found.lowered.program
        with_other_memory = bytes_outside_arena(program)
        program = steered(program, settings.budget - with_other_memory)
        made = PlannedProgram(program, account(program, settings.link), settings, found.notes)
        more = with_other_memory + (program.arena or 0) - settings.budget
        if more <= 0 and (best is None or made.costs.seconds < best.costs.seconds):
            best = made
        target = over.next(made.costs.peak, more, found)
        if target is None:
            break
        try:
            found = _for_less(intervals, settings, target, over.found)
        except Infeasible as error:
            if best is not None:
                break
            if error.side != "device":
                raise
            more = settings.budget - target
            raise Infeasible(settings.budget, error.smallest + more, error.side, error.node, error.resident) from None
    if best is None:
        node, resident = resident_at(made.program, made.costs.peak_at)
        raise Infeasible(settings.budget, settings.budget + more, "device", node, resident)
    return best


class _Bracket:
    """Bisect the budget to plan for, when the gaps between allocations must fit, too.

    Attributes
    ----------
    found : SearchResult or None
        The plan for the smallest budget that was too large, from which others are adapted.
    """

    def __init__(self, budget: int) -> None:
        self.budget, self.target = budget, budget
        self.found: SearchResult | None = None
        self._fitting = 0
        self._high: tuple[int, int] | None = None  # a budget, and the bytes that its plan took beyond the whole budget
        self._low: tuple[int, int] | None = None

    def next(self, peak: int, over: int, found: SearchResult) -> int | None:
        """The next budget to plan for, or None if the last plan is close enough.

        Parameters
        ----------
        peak : int
            Peak of the last plan, in bytes.
        over : int
            Bytes that it took beyond the budget; below 0: bytes left.
        found : SearchResult
            The last plan.
        """
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


def _for_less(intervals: Gaps, settings: PlannerSettings, budget: int, known: SearchResult | None) -> SearchResult:
    """A plan for a smaller budget, adapted from a known one if possible."""
    smaller = replace(settings, budget=budget)
    return (
        (None if known is None else adapt(known, budget, settings.link, settings.host_budget))
        or find_plan(intervals, smaller, budget)
        or retry_or_refuse(intervals, smaller)
    )
