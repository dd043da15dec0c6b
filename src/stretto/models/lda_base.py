"""What training topic models is about: the choices, the plan, and how counts are laid out."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.cached import cached_property
from stretto.data.partition import Cut, choose_blocks, cut, cut_evenly
from stretto.errors import PlanError
from stretto.kernels.topic_dense import MOST_TOPICS
from stretto.kernels.topic_rows import GROUP
from stretto.plan.cost import Cost
from stretto.plan.plan import Binding, Logical, Physical, Plan
from stretto.runtime.layout import index_type
from stretto.schedule.order import Ints
from stretto.schedule.rotation import panels

from .lda_topics import Topics

# Tokens of a panel: its documents are read once an epoch when they come from disk, and a block of them (a 32nd) stays
# in the second-level cache.
PANEL_TOKENS = 1 << 24
# Of an average visit: each looks at all topics once, and opens every word it meets.
FEWEST_TOKENS = 4096
SAMPLERS = ("sparse", "mh")
FIRST_TOPICS = ("progressive", "random")
WARMEST = 10.0
_COUNT_BYTES = 4
_MOST_PLAIN = (1 << 16) - 1  # what a plain count of a document can hold
_LONG = 4096  # mean tokens of a document from which on collecting its topics costs more than proposing


@dataclass(frozen=True)
class Problem:
    """The choices that define a topic model; every one is part of the plan's fingerprint.

    alpha: prior of each topic in a document; beta: of each word in a topic. steps: pairs of proposals of sampler "mh".
    """

    topics: int
    alpha: tuple[float, ...]
    beta: float
    sampler: str
    steps: int
    optimise_every: int = 0
    burn_in: int = 0
    average_every: int = 0
    first_topics: str = "progressive"  # or "random": where tokens have none yet
    warm_up: int = 30  # epochs in which beta falls to its own value
    start: str = ""  # digest of the topics a fit goes on from

    def warmth(self, epoch: int) -> float:
        """What beta is multiplied with in an epoch: from 10 down to 1 over the warm-up, in equal ratios.

        Large priors keep topics apart from what they happen to have: they settle later, and better.
        """
        if epoch >= self.warm_up:
            return 1.0
        return float(round(WARMEST ** (1.0 - epoch / self.warm_up), 6))  # the same number whoever computes the power

    @property
    def settling(self) -> int:
        """Epochs before states are worth learning from: what a warm prior drew says nothing of the prior."""
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


def choose_sampler(sampler: str, topics: int, tokens: int, documents: int) -> str:
    """The sampler that is meant. "auto" draws exactly unless documents are very long and topics many."""
    if sampler != "auto":
        return sampler
    return "mh" if tokens > _LONG * max(1, documents) and topics > _LONG else "sparse"


def settled(problem: Problem, census: Census) -> Problem:
    """The problem with every "auto" decided by the corpus."""
    sampler = choose_sampler(problem.sampler, problem.topics, census.tokens, len(census.doc_tokens))
    return replace(problem, sampler=sampler)


@dataclass(frozen=True, eq=False)
class Census:
    """Tokens of each document [D] and word [V], and the digest of the corpus."""

    doc_tokens: Ints
    word_tokens: Ints
    entries: int
    digest: str

    @property
    def tokens(self) -> int:
        return int(self.doc_tokens.sum())


@dataclass(frozen=True, eq=False)
class Shape:
    """How counts are laid out: documents and words stand in the plan's order, each with room for what it can need."""

    topics: int
    plain: bool  # every document has K counts of two bytes; else packed rows
    doc_tokens: Ints  # [D] by position
    word_tokens: Ints  # [V] by position; with those of an earlier fit

    @classmethod
    def of(cls, problem: Problem, census: Census, rows: Cut, cols: Cut, earlier: Topics | None = None) -> Shape:
        """For the corpus of the census, and the counts of earlier topics that a fit goes on from."""
        docs, words = np.empty(len(rows), np.int64), np.empty(len(cols), np.int64)
        docs[rows.place], words[cols.place] = census.doc_tokens, census.word_tokens
        if earlier is not None:
            before = np.repeat(np.arange(earlier.n_words), np.diff(earlier.indptr))
            words[cols.place] += np.bincount(before, np.rint(earlier.count), earlier.n_words).astype(np.int64)
        longest = int(docs.max(initial=0))
        plain = problem.sampler != "mh" and problem.topics <= MOST_TOPICS and longest <= _MOST_PLAIN
        shape = cls(problem.topics, plain, docs, words)
        if not plain and longest >= 1 << shape.shift:
            where = int(census.doc_tokens.argmax())
            raise PlanError(
                f"document {where} has {longest:,} tokens; with {problem.topics:,} topics at most "
                f"{(1 << shape.shift) - 1:,} can be counted: split it into several documents"
            )
        return shape

    @property
    def shift(self) -> int:
        """Bits of a packed entry below the topic."""
        return 32 - self.topics.bit_length()

    @property
    def width(self) -> int:
        """Counts of a plain document row, in whole sixteens."""
        return -(-self.topics // 16) * 16

    @property
    def padding(self) -> int:
        """What packed rows hold where they hold nothing."""
        return self.topics << self.shift

    @cached_property
    def doc_at(self) -> Ints:
        """[D + 1] where each document's row begins."""
        room = np.full(len(self.doc_tokens), self.width)
        if not self.plain:
            # One entry more than tokens: a new topic is written before the old one goes.
            room = -(-np.minimum(self.doc_tokens + 1, self.topics) // 16) * 16
        return np.concatenate([[0], np.cumsum(room)]).astype(np.int64)

    @cached_property
    def word_plain(self) -> NDArray[np.bool_]:
        """[V] words with K plain counts: four times as frequent as there are topics, or more than an entry counts."""
        return self.word_tokens >= min(4 * self.topics, 1 << self.shift)

    @cached_property
    def word_at(self) -> Ints:
        """[V + 1] where each word's row begins."""
        room = np.where(self.word_plain, self.topics, np.minimum(self.word_tokens, self.topics))
        return np.concatenate([[0], np.cumsum(room)]).astype(np.int64)

    @property
    def doc_dtype(self) -> Any:
        return np.uint16 if self.plain else np.uint32

    @property
    def topic_dtype(self) -> Any:
        return np.uint16 if self.topics <= 1 << 16 else np.int32

    @property
    def longest(self) -> int:
        """Room of the longest document row."""
        return self.width if self.plain else int(np.diff(self.doc_at).max(initial=16))

    @property
    def doc_bytes(self) -> int:
        return int(self.doc_at[-1]) * int(np.dtype(self.doc_dtype).itemsize) + 12 * len(self.doc_tokens)

    @property
    def word_bytes(self) -> int:
        return int(self.word_at[-1]) * _COUNT_BYTES + 12 * len(self.word_tokens)

    def padded_alpha(self, alpha: NDArray[np.float64]) -> NDArray[np.float32]:
        """alpha for the kernels: zero beyond the last topic, in whole groups."""
        found = np.zeros((self.topics + GROUP) // GROUP * GROUP, np.float32)
        found[: self.topics] = alpha
        return found


def logical_lda(problem: Problem, census: Census, *, seed: int, profile: str, width: int) -> Logical:
    """Everything that decides the numbers of a run. The grid follows from the corpus and the width alone."""
    tokens, shape = census.tokens, (len(census.doc_tokens), len(census.word_tokens))
    blocks = choose_blocks(tokens, shape, width, FEWEST_TOKENS)
    count = max(1, min(math.ceil(tokens / PANEL_TOKENS), shape[0] // blocks))
    return Logical(
        program=f"lda/{problem.sampler}",
        parameters=problem.parameters(),
        data=census.digest,
        seed=seed,
        profile=profile,
        width=width,
        order=panels(blocks, count),
        rows=cut(census.doc_tokens, blocks * count, seed=seed, axis=0),
        cols=cut_evenly(census.word_tokens, blocks, seed=seed, axis=1),
    )


def token_bytes(logical: Logical, shape: Shape) -> int:
    """Bytes of one token: its document and its topic."""
    return int(np.dtype(index_type(logical.rows)).itemsize + np.dtype(shape.topic_dtype).itemsize)


def plan_lda(logical: Logical, shape: Shape, weight: Ints, runs: int, physical: Physical) -> Plan:
    """The plan of a run whose visit v has weight[v] tokens, in `runs` runs of one word altogether."""
    order, tokens = logical.order, int(weight.sum())
    entry = tokens * token_bytes(logical, shape) + runs * (4 + np.dtype(index_type(logical.cols)).itemsize)
    carried = (order.rows + order.cols) * shape.topics * 4
    state = shape.doc_bytes + shape.word_bytes + carried
    return Plan(
        logical,
        (
            Binding("document-topic counts", "owned", "rows", shape.doc_bytes),
            Binding("word-topic counts", "rotating", "cols", shape.word_bytes),
            Binding("topic totals, as of the epoch's start and both blocks", "replicated", "none", carried),
        ),
        weight,
        Cost(tokens, entry, state, entry + 2 * (shape.doc_bytes * order.cols + shape.word_bytes * order.rows), 0),
        physical,
        axes=("document", "word"),
    )
