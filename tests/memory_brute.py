"""The best plan of a small graph by trying every choice for every gap."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from stretto.memory.planner.idle_intervals import DROP, KEEP, SWAP, Gaps
from stretto.memory.planner.lower import lower
from stretto.memory.planner.program import HostLink
from stretto.memory.planner.timeline import build_timeline


def fastest(
    intervals: Gaps, budgets: Sequence[int], link: HostLink, *, swap: bool = True, recompute: bool = True
) -> list[float | None]:
    """Seconds of the fastest plan that fits each budget, None if no choice does."""
    best = [math.inf] * len(budgets)
    host_options = [
        (KEEP, *((SWAP,) if swap else ()), *((DROP,) if recompute and droppable else ()))
        for droppable in intervals.droppable
    ]
    nodes = intervals.graph.nodes
    for choice in itertools.product(*host_options):
        steps = build_timeline(intervals, choice)
        least, busy = steps.peak, sum(nodes[n].seconds for n in steps.node)
        for k, budget in enumerate(budgets):
            if least <= budget and busy < best[k]:  # copies only add to the computing
                best[k] = min(best[k], lower(intervals.graph, steps, budget, link).seconds)
    return [None if seconds == math.inf else seconds for seconds in best]
