"""The topic model problem: its parameters, its plan, and the choice of grid and sampler."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from stretto.data.heavy_columns import cut_columns, heavy_columns
from stretto.data.partition import choose_blocks, cut
from stretto.plan.cost import Cost
from stretto.plan.plan import Logical, Physical, Plan, PlanSettings
from stretto.runtime.blocks.layout import index_type
from stretto.schedule.orders.order import Ints
from stretto.schedule.orders.rotation import panels

from .arrays import spec_lda
from .count_layout import Census, CountLayout

# Tokens of a panel: its documents are read once an epoch if they are on disk, and a block of them (a 32nd) stays
# in the second-level cache.
PANEL_TOKENS = 1 << 24
# Of an average visit: each reads all topics once, and prepares every word that it meets.
FEWEST_TOKENS = 4096
SAMPLERS = ("sparse", "mh")
FIRST_TOPICS = ("progressive", "random")
WARMEST = 10.0


@dataclass(frozen=True)
class TopicProblem:
    """The choices that define a topic model; all are part of the plan's fingerprint."""

    topics: int
    alpha: tuple[float, ...]  # prior of each topic in a document
    beta: float  # prior of each word in a topic
    sampler: str
    steps: int  # pairs of proposals of sampler "mh"
    optimise_every: int = 0
    burn_in: int = 0
    average_every: int = 0
    first_topics: str = "progressive"  # initial topics; or "random"
    warm_up: int = 30  # epochs in which beta falls to its final value
    start: str = ""  # digest of the topics that a fit continues from

    def warmth(self, epoch: int) -> float:
        """Factor of beta in an epoch: from 10 down to 1 over the warm-up, in equal ratios.

        A large prior weakens the influence of random early counts: topics converge later, and to a better state.
        """
        if epoch >= self.warm_up:
            return 1.0
        return float(round(WARMEST ** (1.0 - epoch / self.warm_up), 6))  # rounded: the same on every machine

    @property
    def settling(self) -> int:
        """Epochs before states are used for learning: draws under a warm-up prior say nothing about the prior."""
        return max(self.burn_in, self.warm_up)

    def parameters(self) -> tuple[tuple[str, Any], ...]:
        """Names and values for the plan."""
        same = len(set(self.alpha)) == 1
        shown: list[tuple[str, Any]] = [
            ("topics", self.topics),
            ("alpha", self.alpha[0] if same else list(self.alpha)),
            ("beta", self.beta),
            ("first_topics", self.first_topics),
            ("warm_up", self.warm_up),
        ]
        if self.sampler == "mh":
            shown.append(("steps", self.steps))
        if self.optimise_every:
            shown.append(("optimise_every", self.optimise_every))
        if self.average_every:
            shown.append(("average_every", self.average_every))
        if self.optimise_every or self.average_every:
            shown.append(("burn_in", self.burn_in))
        return tuple(shown + ([("start", self.start)] if self.start else []))


def choose_sampler(sampler: str) -> str:
    """Resolve "auto": the exact sampler, faster for each token and ahead after each epoch wherever both were measured.

    See bench/results/lda_samplers.md: 50 to 5,000 topics, documents of 100 and of 5,000 tokens.
    """
    return "sparse" if sampler == "auto" else sampler


def settled(problem: TopicProblem) -> TopicProblem:
    """The problem with "auto" resolved."""
    return replace(problem, sampler=choose_sampler(problem.sampler))


def logical_lda(problem: TopicProblem, census: Census, settings: PlanSettings) -> Logical:
    """Everything that decides the numbers of a run. The grid follows from the corpus and the width alone."""
    tokens, shape = census.tokens, (len(census.doc_tokens), len(census.word_tokens))
    blocks, seed = choose_blocks(tokens, shape, settings.width, FEWEST_TOKENS), settings.seed
    count = max(1, min(math.ceil(tokens / PANEL_TOKENS), shape[0] // blocks))
    split = len(heavy_columns(census.word_tokens, blocks))
    return Logical(
        program=f"lda/{problem.sampler}",
        parameters=problem.parameters() + ((("split_words", split),) if split else ()),
        data=census.digest,
        seed=seed,
        profile=settings.profile,
        width=settings.width,
        order=panels(blocks, count),
        rows=cut(census.doc_tokens, blocks * count, seed=seed, axis=0),
        cols=cut_columns(census.word_tokens, blocks, seed=seed),
    )


def token_bytes(logical: Logical, shape: CountLayout) -> int:
    """Bytes of one token: its document and its topic."""
    return int(np.dtype(index_type(logical.rows)).itemsize + np.dtype(shape.topic_dtype).itemsize)


def plan_lda(
    problem: TopicProblem, logical: Logical, shape: CountLayout, weight: Ints, runs: Ints, physical: Physical
) -> Plan:
    """The plan of a run whose visit v has weight[v] tokens in runs[v] runs of one word."""
    order, tokens = logical.order, int(weight.sum())
    entry = tokens * token_bytes(logical, shape)
    entry += int(runs.sum()) * (4 + np.dtype(index_type(logical.cols)).itemsize)
    carried = (order.rows + order.cols) * shape.totals * 4
    state = shape.doc_bytes + shape.word_bytes + carried
    return Plan(
        logical,
        (spec_lda(problem.sampler, logical, shape, weight, runs),),
        weight,
        Cost(tokens, entry, state, entry + 2 * (shape.doc_bytes * order.cols + shape.word_bytes * order.rows), 0),
        physical,
        axes=("document", "word"),
    )
