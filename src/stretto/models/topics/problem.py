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
SETTLING = 30  # epochs before priors are learned and early stopping counts
AVERAGES = 32  # a fit averages after every 32nd of its epochs in its last quarter: eight states, more of a short fit
WARM_BETA = 0.07  # beta during the warm-up, less for corpora with few tokens or long documents, see `warm_prior`
WARM_LENGTH = 200  # mean tokens of a document up to which it is not lowered
# Sums for averaging by default take at most this many bytes for a token, or in all.
AVERAGE_PER_TOKEN, AVERAGE_BYTES = 8, 1 << 27


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
    warm_up: int = 30  # epochs with a larger beta
    start: str = ""  # digest of the topics that a fit continues from
    seeds: str = ""  # digest of the prior tokens of seed words
    average_from: int | None = None  # epochs before states are averaged, if not `burn_in`
    average_if_small: bool = False  # averaging was not asked for: only where its sums take little memory
    warm_beta: float = 0.0  # beta of the warm-up if larger than beta; `settled` derives it from the corpus

    def warmth(self, epoch: int) -> float:
        """Factor of beta in an epoch: more than 1 during the warm-up, 1 after it.

        A large prior weakens the pull of a word's earlier assignments, so tokens change topics more easily.
        """
        return max(1.0, self.warm_beta / self.beta) if epoch < self.warm_up else 1.0

    @property
    def settling(self) -> int:
        """Epochs before states are used for learning: draws under a warm-up prior say nothing about the prior."""
        return max(self.burn_in, self.warm_up)

    @property
    def averaging(self) -> int:
        """Epochs before states are averaged."""
        return self.settling if self.average_from is None else max(self.average_from, self.warm_up)

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
        if self.warm_up:
            shown.append(("warm_beta", self.warm_beta))
        if self.average_every:
            shown.append(("average_every", self.average_every))
            if self.average_from is not None:
                shown.append(("average_from", self.average_from))
        if self.optimise_every or self.average_every:
            shown.append(("burn_in", self.burn_in))
        begun = [(name, found) for name, found in (("start", self.start), ("seeds", self.seeds)) if found]
        return tuple(shown + begun)


def choose_sampler(sampler: str) -> str:
    """Resolve "auto": the exact sampler, faster for each token and ahead after each epoch wherever both were measured.

    See bench/results/lda_samplers.md: four corpora, 50 to 20,000 topics, documents of 80 to 50,000 tokens. Proposals
    cost less for a token from about 2,000 different topics in a document on, and are behind after each epoch there too.
    """
    return "sparse" if sampler == "auto" else sampler


def warm_prior(topics: int, census: Census) -> float:
    """The prior of words in topics during the warm-up, by the mean count of a word in a topic and the mean document.

    docs/decisions/2026-11-18-topics-warm-up.md and 2026-11-19-topics-long-documents.md say how it was chosen.
    """
    words = max(1, int((census.word_tokens > 0).sum()))
    mean = min(1.0, census.tokens / (topics * words))
    length = census.tokens / max(1, int((census.doc_tokens > 0).sum()))
    prior = WARM_BETA * math.sqrt(mean) * math.sqrt(min(1.0, WARM_LENGTH / length))
    return float(f"{prior:.6g}")  # rounded: the same on every machine


def averaged_bytes(words: int, problem: TopicProblem) -> int:
    """Bytes of the sums for averaging states."""
    return words * problem.topics * 8 if problem.average_every else 0


def schedule(
    epochs: int,
    *,
    warm_up: int | None,
    burn_in: int | None,
    average_every: int | None,
    learning: bool,
    stopping: bool,
) -> dict[str, Any]:
    """The fields of a problem that say when a fit warms up, learns priors and averages, from options left open (None).

    The warm-up takes three quarters of the epochs, the last quarter is averaged. With learned priors and early stopping
    it takes 30 epochs at most: priors need time to settle, and the end of a fit that may stop is not known.

    Parameters
    ----------
    epochs : int
        Epochs of the fit.
    warm_up, burn_in, average_every : int or None
        As the user gave them.
    learning : bool
        Whether priors are learned.
    stopping : bool
        Whether the fit may stop early.
    """
    late = 3 * epochs // 4
    first = burn_in if burn_in is not None else min(SETTLING, late) if learning or stopping else late
    warm = first if warm_up is None else warm_up
    if learning or average_every:  # states under a warm-up prior are not used for learning
        warm = min(warm, first)
    every = (0 if stopping else max(1, epochs // AVERAGES)) if average_every is None else average_every
    begin = late if burn_in is None and not stopping else first
    return {
        "warm_up": warm,
        "burn_in": first,
        "average_every": every,
        "average_from": begin if every else None,
        "average_if_small": average_every is None,
    }


def settled(problem: TopicProblem, census: Census) -> TopicProblem:
    """The problem with everything resolved that depends on the corpus."""
    most = max(AVERAGE_BYTES, AVERAGE_PER_TOKEN * census.tokens)
    if problem.average_if_small and averaged_bytes(len(census.word_tokens), problem) > most:
        problem = replace(problem, average_every=0, average_from=None)
    warm_beta = warm_prior(problem.topics, census)
    return replace(problem, sampler=choose_sampler(problem.sampler), average_if_small=False, warm_beta=warm_beta)


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
