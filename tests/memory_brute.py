"""The best plan of a small graph by trying every choice for every gap."""

from __future__ import annotations

import itertools

from stretto.memory.gaps import DROP, KEEP, SWAP, Gaps
from stretto.memory.lower import lower
from stretto.memory.program import Link
from stretto.memory.walk import walk


def fastest(gaps: Gaps, budget: int, link: Link, *, swap: bool = True, recompute: bool = True) -> float | None:
    """Seconds of the fastest plan that fits, None if no choice does."""
    best: float | None = None
    ways = [
        (KEEP, *((SWAP,) if swap else ()), *((DROP,) if recompute and droppable else ()))
        for droppable in gaps.droppable
    ]
    for choice in itertools.product(*ways):
        steps = walk(gaps, choice)
        if max(steps.start, *steps.must) <= budget:
            seconds = lower(gaps.graph, steps, budget, link).seconds
            best = seconds if best is None else min(best, seconds)
    return best
