"""Joint log-likelihood of topics and words, and optimisation of the Dirichlet priors (Minka's fixed point).

With D documents, V words, K topics, counts n_dk and n_wk, lengths n_d and totals n_k, priors α [K] and β, the joint
log-likelihood (Griffiths and Steyvers 2004; natural logarithms, topics and their weights integrated out) is

    Σ_d [lnΓ(Σα) − lnΓ(Σα + n_d) + Σ_k (lnΓ(n_dk + α_k) − lnΓ(α_k))]
  + Σ_k [lnΓ(Vβ) − lnΓ(Vβ + n_k) + Σ_w (lnΓ(n_wk + β) − lnΓ(β))]

One document of two tokens, both of the same word and of the only topic, V = 2, α = β = 1: the document
contributes 0, and the topic ln 1/(2·3) + ln (1·2) = ln 1/3. The probability that the first token is this word is 1/2,
that the second is the same word 2/3.

Both lines need only the number of documents, or of words, with each count of topic k. So does the fixed point (Minka
2000, *Estimating a Dirichlet distribution*) that maximises the likelihood of the counts over the priors:

    α_k ← α_k Σ_d [ψ(n_dk + α_k) − ψ(α_k)] / Σ_d [ψ(n_d + Σα) − ψ(Σα)]

One pass over the counts makes a `Histogram` (Wallach 2008, section 2.4). The cost of likelihood and steps then does not
depend on the number of documents, and each step increases the likelihood. Histograms hold integers, so results do not
depend on threads or chunks.

A topic without tokens would get α_k = 0. No token could enter it again, and its lnΓ is infinite. A single token makes
the numerator at least 1. So an empty topic gets the numerator ½, or keeps a smaller prior. ½ is half the numerator of
one token in one document: its prior is below that of any topic in use, falls as documents are added, and is never 0.
All priors are clipped to 1e-6 … 1000: documents with identical shares would drive them to infinity.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.errors import DataError
from stretto.kernels.core.compile import Kernel
from stretto.kernels.topics import scores
from stretto.models import checks
from stretto.runtime.blocks.crew import Crew
from stretto.runtime.blocks.step import equal_work, make_step
from stretto.schedule.orders.rotation import independent

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

LOW, HIGH = 1e-6, 1e3  # bounds of every prior
EMPTY = 0.5  # the numerator of a topic without tokens
_COUNTERS = 1 << 17  # counters of one worker: 1 MiB, which stays in the cache
_LEAST, _MOST = 32, 1024  # counts from 0 on that have counters, for any number of topics
_SPREAD = 16  # counters for each count if topics are not distinguished
_ENTRIES = 1 << 16  # entries of a visit: about a tenth of a millisecond
_VISITS = 256


class Priors:
    """alpha [K] and beta, in one array [K + 1] that is saved and restored in place."""

    def __init__(self, alpha: Sequence[float], beta: float) -> None:
        self.array = np.array([*alpha, beta], np.float64)

    @property
    def alpha(self) -> NDArray[np.float64]:
        return self.array[:-1]

    @property
    def beta(self) -> float:
        return float(self.array[-1])

    def put(self, alpha: NDArray[np.float64], beta: float) -> None:
        self.array[:-1] = alpha
        self.array[-1] = beta


@dataclass(frozen=True, eq=False)
class CountRows:
    """Topic counts, one row for each document or for each word.

    Row r has packed entries topic << shift | count or, if length[r] is −1, one count for each topic.

        >>> two = CountRows.dense(np.array([3, 0, 1, 2], np.uint16), n_topics=2, width=2)   # two rows of two counts
        >>> len(two)
        2
    """

    at: Ints  # first element of each row
    length: NDArray[np.int32]  # entries of each row, or −1
    rows: NDArray[Any]  # uint32 or uint16, all rows concatenated
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
        """Bounds that divide the rows into visits with about equal numbers of entries; they follow from the rows."""
        if not len(self):
            return np.zeros(2, np.int64)
        entries = np.where(self.length < 0, self.n_topics, self.length)
        return equal_work(entries + np.int64(1), _VISITS, _ENTRIES)  # a row takes time even if it is empty

    def run(self, name: str, kernel: Kernel, crew: Crew, bounds: Ints, *args: Any) -> Floats:
        """Run one pass of a kernel over the visits; return the result of each visit."""
        own = (self.at, self.length, self.rows, self.shift, self.n_topics)
        step = make_step(name, kernel, independent(len(bounds) - 1), np.diff(bounds), bounds, *own, *args)
        crew.run(step, "exact")
        return step.out


@dataclass(frozen=True, eq=False)
class Histogram:
    """Sufficient statistics of counts for a Dirichlet prior: numbers of rows with each count, and row lengths.

    The sum of the histograms of a corpus's chunks, added in order, is the histogram of the corpus. A draw from the
    prior is a document, or a topic. The width is the number of topics, or 1 if topics are not distinguished.
    """

    above: Ints  # [C − 1, width] above[i, k]: counts of topic k that are more than i and less than C
    topic: Ints  # [m] topics of the counts from C up, one by one
    count: Ints  # [m] these counts
    size: Ints  # [l] numbers of tokens of a draw
    number: Ints  # [l] number of draws with size[i] tokens
    parameters: int  # parameters of the prior: K for documents, V for words

    def __add__(self, other: Histogram) -> Histogram:
        if self.above.shape != other.above.shape or self.parameters != other.parameters:
            mine, its = (f"{h.parameters} parameters, {h.above.shape[1]} columns" for h in (self, other))
            raise DataError(f"these histograms are not of one corpus ({mine}; {its}); count both in the same way")
        # Merge equal lengths, so that the sum is bit for bit the histogram of the whole corpus.
        size, which = np.unique(np.concatenate([self.size, other.size]), return_inverse=True)
        number = np.zeros(len(size), np.int64)
        np.add.at(number, which, np.concatenate([self.number, other.number]))
        topic, count = (np.concatenate(pair) for pair in ((self.topic, other.topic), (self.count, other.count)))
        return Histogram(self.above + other.above, topic, count, size, number, self.parameters)

    def together(self) -> Histogram:
        """The same counts without distinguishing topics."""
        above = self.above.sum(axis=1, keepdims=True)
        return Histogram(above, self.topic, self.count, self.size, self.number, self.parameters)

    def likelihood(self, prior: Any) -> float:
        """ln p(counts | prior). prior: one number, or [K] if topics are distinguished.

        >>> once = np.array([1])   # one document with one token of the first of two topics
        >>> h = Histogram(np.array([[1, 0]]), once[:0], once[:0], once, once, parameters=2)
        >>> round(math.exp(h.likelihood([3.0, 1.0])), 6)
        0.75
        """
        prior = self.checked(prior)
        mass = math.fsum(prior) if len(prior) > 1 else self.parameters * float(prior[0])
        own = self
        if (prior == prior[0]).all():  # then one value is enough
            prior, own = prior[:1], self.together()
        self.refuse_unless_told_apart(len(prior))
        start, rise = np.empty((2, len(prior)))
        scores.rises(own.above, own.topic, own.count, prior, start, rise)
        return math.fsum([*rise, scores.length_fall(self.size, self.number, mass)])

    def checked(self, prior: Any) -> Floats:
        """The prior as an array of one number or one for each parameter; other shapes and values raise an error."""
        found = np.array(prior, np.float64, ndmin=1)
        if found.shape not in ((1,), (self.parameters,)):
            raise DataError(f"a prior has one number or {self.parameters}, this one has {found.size}; give it as many")
        for value in (found.min(), found.max()):  # both are NaN if one value is
            checks.number("a prior", float(value), above=0)
        return found

    def refuse_unless_told_apart(self, topics: int) -> None:
        """Raise an error if a per-topic result is requested but topics are not distinguished."""
        if topics > 1 and self.above.shape[1] != topics:
            raise DataError(
                f"a prior for each of {topics} topics needs a histogram with {topics} columns, this one has "
                f"{self.above.shape[1]}; count the documents with by_topic=True"
            )


def count_documents(documents: CountRows, tokens: NDArray[Any], crew: Crew, *, by_topic: bool = True) -> Histogram:
    """Histogram of the documents, for α. tokens [D]: their lengths; by_topic: distinguish topics, for one α each.

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
    """Histogram of the words, for β. totals [K]: tokens of each topic; n_words: V, if these are not all words.

    With several chunks, one has the totals and the others an empty array.
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
    """The distinct lengths, and the number of rows with each."""
    tokens = np.asarray(tokens).astype(np.int64)
    if tokens.max(initial=0) < 2 * len(tokens) + 65536:  # counting is faster than sorting
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
    For several priors, or a corpus in chunks, keep the histograms and call their `likelihood`.

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
    """[K] priors that increase the likelihood of the documents' histogram, starting from alpha, [K] or one number.

    symmetric : one value for all topics, starting from their mean

    If no document has tokens, alpha does not change.
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


def optimise_beta(histogram: Histogram, beta: float, *, given: Histogram | None = None, iterations: int = 20) -> float:
    """The symmetric prior that increases the likelihood of the words' histogram, starting from beta.

    given : histogram of the counts that are prior tokens of seed words and part of `histogram`; the likelihood is that
        of the other tokens
    """
    checks.number("a prior", beta, above=0)
    return _one_for_all(histogram, float(beta), iterations, given)


def _one_for_all(histogram: Histogram, value: float, iterations: int, given: Histogram | None = None) -> float:
    """The fixed point of a symmetric prior."""
    for _ in range(iterations):
        pull, whole = _slopes(histogram.together(), value)
        if given is not None:
            pull, whole = (a - b for a, b in zip((pull, whole), _slopes(given.together(), value), strict=True))
        if not whole > 0.0:
            break
        value = min(max(value * pull / whole, LOW), HIGH)
    return value


def _slopes(seen: Histogram, value: float) -> tuple[float, float]:
    """The two parts of the derivative of the likelihood with respect to a symmetric prior: their difference."""
    start, pull = np.empty((2, 1))
    scores.pulls(seen.above, seen.topic, seen.count, np.array([value]), start, pull)
    return float(pull[0]), seen.parameters * scores.length_pull(seen.size, seen.number, seen.parameters * value)
