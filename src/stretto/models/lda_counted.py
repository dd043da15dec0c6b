"""The plan of a topic model from counts of its corpus; tokens are laid out later.

counted = count_lda(problem, source, census, seed=…, profile=…, width=…, physical=…)
counted.plan                                             # its cost is known, and was refused if it is too much
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from stretto.plan.cost import refuse_if_over
from stretto.plan.plan import Physical, Plan
from stretto.runtime.cpus import available_memory
from stretto.runtime.source import InMemory, Source

from .lda_base import Problem, logical_lda, plan_lda
from .lda_cut import count_runs, weigh
from .lda_job import Summed
from .lda_shape import Census, Shape
from .lda_tiles import choose_side, most_runs
from .lda_topics import Topics

_AT_ONCE = 1 << 22  # entries counted together: temporaries of some dozen bytes each


@dataclass(frozen=True, eq=False)
class Counted:
    """A plan, and how the counts of topics will be laid out."""

    problem: Problem
    plan: Plan
    shape: Shape


def count_lda(
    problem: Problem,
    source: Source,
    census: Census,
    *,
    seed: int,
    profile: str,
    width: int,
    physical: Physical,
    earlier: Topics | None = None,
    stream: bool = False,
    in_memory: bool = True,
) -> Counted:
    """Plan a run from counts alone; NotEnoughMemory where it does not fit.

    Parameters
    ----------
    earlier : topics to go on from
    stream : what exceeds the budget is streamed from disk
    in_memory : whether the corpus is in memory; a file that is not is always streamed
    """
    if isinstance(source, InMemory):
        source = InMemory(source.data, _AT_ONCE)
    logical = logical_lda(problem, census, seed=seed, profile=profile, width=width)
    rows, cols, order = logical.rows, logical.cols, logical.order
    shape = Shape.of(problem, census, rows, cols, earlier)
    entries, tokens = weigh(source, rows, cols, order, zeros=not stream)
    runs = count_runs(source, rows, cols, order)
    if runs is None:
        runs = most_runs(entries, tokens, logical)
    plan, averaged = plan_lda(problem, logical, shape, tokens, runs, physical), Summed.nbytes(shape, problem)
    budget = physical.memory or available_memory()
    if stream:
        # The decision to stream is made from the most runs there can be, as `build_streamed` makes it.
        at_most = plan_lda(problem, logical, shape, tokens, most_runs(entries, tokens, logical), physical)
        if not in_memory or (budget is not None and at_most.cost.memory + averaged > budget):
            within = replace(physical, memory=budget or 1 << 62)
            side = choose_side(logical, shape, entries, tokens, within, averaged)
            return Counted(problem, replace(plan, physical=replace(within, tile=side)), shape)
    remedy = "stream it from disk with memory='2GiB', or use fewer topics"
    if earlier is not None:
        remedy = "partial_fit works in memory: give it fewer documents at a time, or more memory="
    refuse_if_over(plan.cost.memory + averaged, budget, remedy)
    return Counted(problem, plan, shape)
