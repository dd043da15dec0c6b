"""A plan of a factorization, and what was counted to make it: laying out the ratings needs both."""

from __future__ import annotations

from dataclasses import dataclass

from stretto.plan.plan import Plan
from stretto.runtime.blocks.layout import Tally
from stretto.runtime.blocks.survey import Survey
from stretto.schedule.orders.order import Ints


@dataclass(frozen=True, eq=False)
class CountedRatings:
    """What the counting passes over the ratings found. Nothing is allocated yet but the counts.

    plan : the plan that follows from the counts
    seen : counts of rows and columns, mean, spread, digest
    parts : [P, V] entries of each visit in each part of files that nodes read
    tallied : entries of each visit in each part of the input, for a layout in memory by SGD
    """

    plan: Plan
    seen: Survey
    tallied: Tally | None = None
    parts: Ints | None = None
