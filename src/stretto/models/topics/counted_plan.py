"""The plan of a topic model, from counts of its corpus; tokens are laid out later.

counted = count_lda(problem, source, census, crew, PlanSettings(seed, profile, width, physical))
counted.plan                                             # its cost is known, and within the limits
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from stretto.kernels.topics.rows import GROUP
from stretto.plan.cost import refuse_if_over
from stretto.plan.plan import Plan, PlanSettings
from stretto.runtime.blocks.crew import Crew
from stretto.runtime.blocks.parted import in_parts
from stretto.runtime.blocks.source import EntrySource, InMemory
from stretto.runtime.blocks.split_source import split_source
from stretto.runtime.blocks.tiles import side_within
from stretto.runtime.cpus import available_memory
from stretto.schedule.orders.order import Ints

from .corpus_files import count_runs, most_runs, weigh, weigh_parts
from .count_layout import Census, CountLayout
from .problem import TopicProblem, averaged_bytes, logical_lda, plan_lda, settled
from .topics import Topics

_AT_ONCE = 1 << 22  # entries counted together: temporary arrays of some dozen bytes each
# Stored for every document and word: tokens, position and length of its row, position in the plan, block.
_PER_INDEX = 48
# Of K topics, a worker keeps about a dozen numbers each; with alias tables, twice as many.
_PER_TOPIC, _PER_TOKEN_OF_RUN, _PER_ENTRY = 128, 8, 8


@dataclass(frozen=True, eq=False)
class CountedCorpus:
    """A plan, and the storage layout of its topic counts."""

    problem: TopicProblem
    plan: Plan
    shape: CountLayout
    entries: Ints  # [V] entries of each visit
    parts: Ints | None = None  # [P, V] entries of each visit in each part of files that nodes read
    runs: Ints | None = None  # [V] words of each visit, if counted by parts

    @property
    def by_nodes(self) -> bool:
        """Whether the nodes of a cluster read the documents."""
        return self.parts is not None


def kept_bytes(plan: Plan, shape: CountLayout) -> int:
    """Bytes that stay in memory while a plan runs from disk."""
    order, tokens = plan.order, plan.weight
    longest_run = min(int(tokens.max(initial=0)), int(shape.word_tokens.max(initial=0)))
    own = _PER_TOPIC * (shape.topics + GROUP) + _PER_TOKEN_OF_RUN * longest_run + _PER_ENTRY * shape.longest
    totals = (order.rows + order.cols + 2) * shape.totals * 4
    indices = _PER_INDEX * (len(plan.logical.rows) + len(plan.logical.cols))
    return int(plan.physical.workers * own + totals + indices)


def count_lda(
    problem: TopicProblem,
    source: EntrySource,
    census: Census,
    crew: Crew,
    settings: PlanSettings,
    *,
    earlier: Topics | None = None,
    stream: bool = False,
    in_memory: bool = True,
    by_nodes: bool = False,
) -> CountedCorpus:
    """Plan a run from counts alone; NotEnoughMemory where it does not fit.

    Parameters
    ----------
    earlier : topics to go on from
    stream : what exceeds the budget is streamed from disk
    in_memory : whether the corpus is in memory; a file that is not is always streamed
    by_nodes : the nodes of a cluster read the file, each within the budget
    """
    problem, physical = settled(problem, census), settings.physical
    if isinstance(source, InMemory):
        source = InMemory(source.data, _AT_ONCE)
    # The grid follows from the census; the passes below count the contents of its blocks.
    logical = logical_lda(problem, census, settings)
    rows, cols, order = logical.rows, logical.cols, logical.order
    shape = CountLayout.of(problem.topics, problem.sampler, census, rows, cols, earlier)
    source = split_source(source, logical, shape.words, shape.heavy)
    parts = in_parts(source) if by_nodes else None
    if parts is not None:
        counts, tokens, runs = weigh_parts(parts, rows, cols, order, crew)
        plan = plan_lda(problem, logical, shape, tokens, runs, physical)
        return CountedCorpus(problem, plan, shape, counts.sum(axis=0), counts, runs)
    entries, tokens = weigh(source, rows, cols, order, zeros=not stream)
    found = count_runs(source, rows, cols, order)
    runs = most_runs(entries, tokens, logical) if found is None else found
    plan, averaged = plan_lda(problem, logical, shape, tokens, runs, physical), averaged_bytes(shape.words, problem)
    if stream and physical.memory is not None and (not in_memory or plan.cost.memory + averaged > physical.memory):
        remedy = "raise the budget, use fewer topics, or raise width= for smaller blocks"
        side = side_within(plan, physical.memory, kept_bytes(plan, shape), remedy)
        return CountedCorpus(problem, replace(plan, physical=replace(physical, tile=side)), shape, entries)
    refuse_in_memory(problem, plan, shape, going_on=earlier is not None)
    return CountedCorpus(problem, plan, shape, entries)


def refuse_in_memory(problem: TopicProblem, plan: Plan, shape: CountLayout, *, going_on: bool) -> None:
    """NotEnoughMemory if a plan does not fit. going_on: the fit continues from topics of an earlier one."""
    remedy = "stream it from disk with memory='2GiB', or use fewer topics"
    if going_on:
        remedy = "partial_fit works in memory: give it fewer documents at a time, or more memory="
    budget = plan.physical.memory or available_memory()
    refuse_if_over(plan.cost.memory + averaged_bytes(shape.words, problem), budget, remedy)
