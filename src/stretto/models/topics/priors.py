"""How likely topics and words are together under the priors, and better priors for the topics that were found.

With D documents, V words, K topics, counts n_dk and n_wk, lengths n_d and totals n_k, priors α [K] and β, the joint
log-likelihood (Griffiths and Steyvers 2004; natural logarithms, topics and their weights integrated out) is

    Σ_d [lnΓ(Σα) − lnΓ(Σα + n_d) + Σ_k (lnΓ(n_dk + α_k) − lnΓ(α_k))]
  + Σ_k [lnΓ(Vβ) − lnΓ(Vβ + n_k) + Σ_w (lnΓ(n_wk + β) − lnΓ(β))]

One document of two tokens, both of the same word and of the only topic, V = 2, α = β = 1: the document is certain of
its topic (0), and the topic has ln 1/(2·3) + ln (1·2) = ln 1/3. It was 1/2 that the first token is this word, and 2/3
that the second is it again.

Either line asks only how many documents hold topic k so many times, or how many words do. So does the fixed point
(Minka 2000, *Estimating a Dirichlet distribution*) that leads to the priors under which the counts are likeliest:

    α_k ← α_k Σ_d [ψ(n_dk + α_k) − ψ(α_k)] / Σ_d [ψ(n_d + Σα) − ψ(Σα)]

One pass over the counts makes a `Histogram` (Wallach 2008, section 2.4); likelihood and steps then cost next to
nothing, whatever the number of documents, and each step makes the counts likelier. Histograms hold whole numbers, so
that neither threads nor pieces show in a result.

A topic without tokens would get α_k = 0, which no token could enter again, and whose lnΓ is infinite. A single token
makes the numerator at least 1; so an empty topic falls no further than to a numerator of ½, half of what one token in
one document would earn: less than that of any topic in use, ever smaller as documents are added, never 0. All priors
are kept within 1e-6 and 1000: documents that are all alike would drive them to infinity.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.errors import DataError
from stretto.kernels.core.compile import Kernel
from stretto.kernels.topics import scores
from stretto.models import checks
from stretto.runtime.blocks.crew import Crew
from stretto.runtime.blocks.step import make_step
from stretto.schedule.orders.rotation import independent

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

LOW, HIGH = 1e-6, 1e3  # of every prior
EMPTY = 0.5  # the numerator of a topic without tokens
_COUNTERS = 1 << 17  # of one worker: 1 MiB, which stays in a cache
_LEAST, _MOST = 32, 1024  # counts from 0 on that have counters, however many topics there are
_SPREAD = 16  # counters for each count where topics are not told apart
_ENTRIES = 1 << 16  # entries of a visit: about a tenth of a millisecond
_VISITS = 256


@dataclass(frozen=True, eq=False)
class CountRows:
    """Counts of topics in documents, or of topics among the tokens of words, one row for each.

    rows uint32 or uint16, flat. Row r begins at[r] (int64) and has length[r] (int32) packed entries, topic << shift |
    count, or, where length[r] is −1, one count for each of the n_topics topics.

        >>> two = CountRows.dense(np.array([3, 0, 1, 2], np.uint16), n_topics=2, width=2)   # two rows of two counts
        >>> len(two)
        2
    """

    at: Ints
    length: NDArray[np.int32]
    rows: NDArray[Any]
    shift: int
    n_topics: int

    def __len__(self) -> int:
        return len(self.at)

    @classmethod
    def dense(cls, rows: NDArray[Any], n_topics: int, width: int) -> CountRows:
        """Rows of n_topics counts each, one every `width` numbers."""
        count = len(rows) // width
        return cls(np.arange(count, dtype=np.int64) * width, np.full(count, -1, np.int32), rows, 0, n_topics)

    def visits(self) -> Ints:
        """Bounds that cut the rows into visits of about as many entries each; they follow from the rows alone."""
        entries = np.where(self.length < 0, self.n_topics, self.length)
        # A row takes time even if it is empty.
        before = np.concatenate([[0], np.cumsum(entries + np.int64(1))])
        count = max(1, min(_VISITS, int(before[-1]) // _ENTRIES))
        inside = np.searchsorted(before, np.linspace(0, before[-1], count + 1)[1:-1])
        # One row may take as long as many visits: what is cut twice in a place is cut once.
        return np.concatenate([[0], np.setdiff1d(inside, [0, len(self)]), [len(self)]]).astype(np.int64)

    def run(self, name: str, kernel: Kernel, crew: Crew, bounds: Ints, *args: Any) -> Floats:
        """One pass of a kernel over the visits; what each visit said."""
        own = (self.at, self.length, self.rows, self.shift, self.n_topics)
        step = make_step(name, kernel, independent(len(bounds) - 1), np.diff(bounds), bounds, *own, *args)
        crew.run(step, "exact")
        return step.out


@dataclass(frozen=True, eq=False)
class Histogram:
    """All that counts say of a Dirichlet prior: how often each parameter was met so many times, and row lengths.

    above [C − 1, width] int64: above[i, k] counts of topic k are more than i, of those that are less than C; topic,
    count [m] int64: the larger ones, one by one. width is the number of topics, or 1 where they are taken for one.
    size, number [l] int64: number[i] draws from the prior have size[i] tokens; a draw is a document, or a topic.
    parameters: of the prior; K for documents, V for words. Those of the pieces of a corpus, added in their order, are
    that of the whole.
    """

    above: Ints
    topic: Ints
    count: Ints
    size: Ints
    number: Ints
    parameters: int

    def __add__(self, other: Histogram) -> Histogram:
        if self.above.shape != other.above.shape or self.parameters != other.parameters:
            mine, its = (f"{h.parameters} parameters, {h.above.shape[1]} columns" for h in (self, other))
            raise DataError(f"these histograms are not of one corpus ({mine}; {its}); count both in the same way")
        # Lengths are told apart again, so that the sum is the histogram of the whole to the last bit of what it says.
        size, which = np.unique(np.concatenate([self.size, other.size]), return_inverse=True)
        number = np.zeros(len(size), np.int64)
        np.add.at(number, which, np.concatenate([self.number, other.number]))
        topic, count = (np.concatenate(pair) for pair in ((self.topic, other.topic), (self.count, other.count)))
        return Histogram(self.above + other.above, topic, count, size, number, self.parameters)

    def together(self) -> Histogram:
        """The same counts with all topics taken for one."""
        above = self.above.sum(axis=1, keepdims=True)
        return Histogram(above, self.topic, self.count, self.size, self.number, self.parameters)

    def likelihood(self, prior: Any) -> float:
        """ln p(counts | prior). prior: one number, or [K] where topics were told apart.

        >>> once = np.array([1])   # one document with one token of the first of two topics
        >>> h = Histogram(np.array([[1, 0]]), once[:0], once[:0], once, once, parameters=2)
        >>> round(math.exp(h.likelihood([3.0, 1.0])), 6)
        0.75
        """
        prior = self.checked(prior)
        mass = math.fsum(prior) if len(prior) > 1 else self.parameters * float(prior[0])
        own = self
        if (prior == prior[0]).all():  # then nobody needs K of everything
            prior, own = prior[:1], self.together()
        self.refuse_unless_told_apart(len(prior))
        start, rise = np.empty((2, len(prior)))
        scores.rises(own.above, own.topic, own.count, prior, start, rise)
        return math.fsum([*rise, scores.length_fall(self.size, self.number, mass)])

    def checked(self, prior: Any) -> Floats:
        """The prior as an array of one number or one for each parameter; anything else is refused."""
        found = np.array(prior, np.float64, ndmin=1)
        if found.shape not in ((1,), (self.parameters,)):
            raise DataError(f"a prior has one number or {self.parameters}, this one has {found.size}; give it as many")
        for value in (found.min(), found.max()):  # NaN is both
            checks.number("a prior", float(value), above=0)
        return found

    def refuse_unless_told_apart(self, topics: int) -> None:
        """Refuse to say something of each topic where they were taken for one."""
        if topics > 1 and self.above.shape[1] != topics:
            raise DataError(
                f"a prior for each of {topics} topics needs a histogram with {topics} columns, this one has "
                f"{self.above.shape[1]}; count the documents with by_topic=True"
            )


def count_documents(documents: CountRows, tokens: NDArray[Any], crew: Crew, *, by_topic: bool = True) -> Histogram:
    """What the documents say of α; tokens [D]: their lengths. by_topic: for an α of each topic; one for all needs none.

    >>> from stretto.runtime.runtimes import Serial
    >>> rows = CountRows.dense(np.array([3, 0, 1, 2], np.uint16), n_topics=2, width=2)
    >>> with Serial().open() as crew:
    ...     count_documents(rows, np.array([3, 3]), crew).above[:4]
    array([[2, 1],
           [1, 1],
           [1, 0],
           [0, 0]])
    """
    return Histogram(*_count(documents, crew, by_topic), *_lengths(tokens), documents.n_topics)


def count_words(words: CountRows, totals: NDArray[Any], crew: Crew, *, n_words: int | None = None) -> Histogram:
    """What the words say of β; totals [K]: tokens of each topic. n_words: V, where these are not all the words.

    Of several pieces one has the totals and the others an empty array.
    """
    return Histogram(*_count(words, crew, False), *_lengths(totals), len(words) if n_words is None else n_words)


def _count(rows: CountRows, crew: Crew, by_topic: bool) -> tuple[Ints, Ints, Ints]:
    width = rows.n_topics + 1 if by_topic else _SPREAD
    high = max(_LEAST, min(_MOST, _COUNTERS // width))
    tally = np.zeros((crew.workers, high, width), np.int64)
    bounds = rows.visits()
    mask = -1 if by_topic else _SPREAD - 1
    left = rows.run("histogram", scores.histogram_worker, crew, bounds, mask, tally)
    counts = tally.sum(axis=0)
    counts = counts[:, : rows.n_topics] if by_topic else counts.sum(axis=1, keepdims=True)
    above = np.ascontiguousarray(np.cumsum(counts[:0:-1], axis=0)[::-1])
    into = np.concatenate([[0], np.cumsum(left)]).astype(np.int64)
    topic, count = np.zeros((2, into[-1]), np.int64)
    if into[-1]:
        rows.run("large counts", scores.large_worker, crew, bounds, high, into, topic, count)
    return above, topic, count


def _lengths(tokens: NDArray[Any]) -> tuple[Ints, Ints]:
    """The different lengths, and how many have each."""
    tokens = np.asarray(tokens).astype(np.int64)
    if tokens.max(initial=0) < 2 * len(tokens) + 65536:  # counting beats sorting
        number = np.bincount(tokens)
        size = np.flatnonzero(number)
        return size.astype(np.int64), number[size].astype(np.int64)
    size, number = np.unique(tokens, return_counts=True)
    return size, number.astype(np.int64)


def joint_likelihood(
    documents: CountRows,
    tokens: NDArray[Any],
    words: CountRows,
    totals: NDArray[Any],
    alpha: Any,
    beta: float,
    crew: Crew,
) -> float:
    """The joint log-likelihood of all tokens and their topics; divide it by their number to compare corpora.

    documents: D rows, tokens [D] their lengths; words: V rows; totals [K]; alpha [K] or one number, beta: the priors.
    Who wants other priors too, or has a corpus in pieces, keeps the histograms and asks them for their `likelihood`.

        >>> from stretto.runtime.runtimes import Serial
        >>> rows = CountRows.dense(np.array([2], np.uint16), n_topics=1, width=1)
        >>> words = CountRows.dense(np.array([2, 0], np.uint32), n_topics=1, width=1)
        >>> with Serial().open() as crew:
        ...     round(joint_likelihood(rows, np.array([2]), words, np.array([2]), 1.0, 1.0, crew), 6)   # ln 1/3
        -1.098612
    """
    alike = np.unique(alpha).size == 1
    seen = count_documents(documents, tokens, crew, by_topic=not alike)
    return seen.likelihood(alpha) + count_words(words, totals, crew).likelihood(beta)


def optimise_alpha(histogram: Histogram, alpha: Any, *, symmetric: bool = False, iterations: int = 20) -> Floats:
    """[K] priors under which the documents of the histogram are likelier than under alpha, [K] or one number.

    symmetric: one value for all, beginning with their mean. Where no document has tokens nothing changes.
    """
    topics = histogram.parameters
    now: Floats = np.broadcast_to(histogram.checked(alpha), topics).copy()
    if symmetric:
        return np.full(topics, _one_for_all(histogram, math.fsum(now) / topics, iterations))
    histogram.refuse_unless_told_apart(topics)
    start, pull = np.empty((2, topics))
    for _ in range(iterations):
        whole = scores.length_pull(histogram.size, histogram.number, math.fsum(now))
        if not whole > 0.0:
            break
        scores.pulls(histogram.above, histogram.topic, histogram.count, now, start, pull)
        used, empty = now * pull / whole, np.minimum(now, EMPTY / whole)
        now = np.clip(np.where(pull > 0.0, used, empty), LOW, HIGH)
    return now


def optimise_beta(histogram: Histogram, beta: float, *, iterations: int = 20) -> float:
    """The one prior under which the words of the histogram are likelier than under beta."""
    checks.number("a prior", beta, above=0)
    return _one_for_all(histogram, float(beta), iterations)


def _one_for_all(histogram: Histogram, value: float, iterations: int) -> float:
    """The fixed point of a prior whose parameters are all the same."""
    seen = histogram.together()
    start, pull = np.empty((2, 1))
    for _ in range(iterations):
        whole = seen.parameters * scores.length_pull(seen.size, seen.number, seen.parameters * value)
        if not whole > 0.0:
            break
        scores.pulls(seen.above, seen.topic, seen.count, np.array([value]), start, pull)
        value = min(max(value * float(pull[0]) / whole, LOW), HIGH)
    return value
