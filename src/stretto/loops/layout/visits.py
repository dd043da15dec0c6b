"""Visits of a loop: cut its iterations into blocks, order the blocks, and lay out the records by visit.

    visits = lay(analysis, crew)
    visits.order, visits.weight         order of the visits, and number of iterations of each
    visits.form, visits.arrays          how compiled code iterates over a visit, and the arrays that it reads

The result does not depend on the number of workers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stretto.loops.analyse.analysis import Analysis
from stretto.loops.front.bind import BoundValues
from stretto.runtime.blocks.crew import Crew

from .cut_visits import cut_by_strategy
from .inspector import lay_inspected
from .loop_visits import LoopVisits
from .round_visits import lay_round


def lay(
    analysis: Analysis, crew: Crew, held: BoundValues | None = None, known: Mapping[str, Any] | None = None
) -> LoopVisits:
    """Cut the iterations of a loop by its strategy. held, known: values, which only an inspected loop reads."""
    if analysis.options.schedule is not None:
        return lay_round(analysis)
    if analysis.strategy.name == "inspected":
        assert held is not None
        return lay_inspected(analysis, held, known or {}, crew)
    return cut_by_strategy(analysis, crew)
