"""The plan of a factorisation together with the counts that it was made from; laying out the ratings needs both."""

from __future__ import annotations

from dataclasses import dataclass

from stretto.plan.plan import Plan
from stretto.runtime.blocks.layout import Tally
from stretto.runtime.blocks.survey import Survey
from stretto.schedule.orders.order import Ints


@dataclass(frozen=True, eq=False)
class CountedRatings:
    """Results of the counting passes over the ratings. Only the counts are allocated."""

    plan: Plan  # the plan that follows from the counts
    seen: Survey  # counts of rows and columns, mean, spread, digest
    tallied: Tally | None = None  # entries of each visit in each part of the input, for SGD in memory
    parts: Ints | None = None  # [P, V] entries of each visit in each part of files that nodes read
