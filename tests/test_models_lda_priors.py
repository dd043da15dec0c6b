"""The joint log-likelihood against its definition and against an urn; priors that were planted are found again."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.special import digamma, gammaln

from stretto.errors import DataError, PlanError
from stretto.models.topics import priors as room
from stretto.models.topics.priors import (
    CountRows,
    Histogram,
    count_documents,
    count_words,
    optimise_alpha,
    optimise_beta,
)
from stretto.runtime.runtimes import Runtime, Serial, Threads

Array = NDArray[Any]
RUNTIMES: list[Runtime] = [Serial(), Threads(1), Threads(2), Threads(3)]


def pack(counts: Array, dense_from: int | None = None, padded: bool = False) -> CountRows:
    """Rows [n, K] packed as in training, padded to a multiple of 16 entries, which is counted in when `padded`.

    Rows with more topics than dense_from stay dense.
    """
    topics = counts.shape[1]
    shift = 32 - topics.bit_length()
    at, length, pieces, end = [], [], [np.zeros(0, np.uint32)], 0
    for row in counts:
        present = np.flatnonzero(row)
        if dense_from is not None and len(present) > dense_from:
            piece, entries = row.astype(np.uint32), -1
        else:
            piece = np.full(-(-len(present) // 16) * 16, topics << shift, np.uint32)
            piece[: len(present)] = (present << shift) | row[present]
            entries = len(piece) if padded else len(present)
        at.append(end)
        length.append(entries)
        pieces.append(piece)
        end += len(piece)
    return CountRows(np.array(at, np.int64), np.array(length, np.int32), np.concatenate(pieces), shift, topics)


def dense(counts: Array, kind: Any = np.uint16) -> CountRows:
    """Rows [n, K] padded to a multiple of 16 counts; what is in the padding must not matter."""
    width = -(-counts.shape[1] // 16) * 16
    rows = np.full((len(counts), width), 7, kind)
    rows[:, : counts.shape[1]] = counts
    return CountRows.dense(rows.ravel(), counts.shape[1], width)


def state(seed: int, documents: int, words: int, topics: int, tokens: int, often: int = 1) -> tuple[Array, Array]:
    """n_dk [D, K] and n_wk [V, K] of random tokens; those of the first document come `often` times."""
    rng = np.random.default_rng(seed)
    d, w = rng.integers(0, documents, tokens), (words * rng.random(tokens) ** 3).astype(int)
    k = (topics * rng.random(tokens) ** 2).astype(int)
    by_document, by_word = np.zeros((documents, topics), np.int64), np.zeros((words, topics), np.int64)
    times = np.where(d == 0, often, 1)
    np.add.at(by_document, (d, k), times)
    np.add.at(by_word, (w, k), times)
    return by_document, by_word


def expected(documents: Array, words: Array, alpha: Any, beta: float) -> float:
    """The definition, with SciPy's lnΓ."""
    alpha = np.broadcast_to(np.asarray(alpha, float), documents.shape[1])
    total, V = alpha.sum(), len(words)
    first = (
        gammaln(total)
        - gammaln(total + documents.sum(axis=1))
        + (gammaln(documents + alpha) - gammaln(alpha)).sum(axis=1)
    )
    second = (
        gammaln(V * beta) - gammaln(V * beta + words.sum(axis=0)) + (gammaln(words + beta) - gammaln(beta)).sum(axis=0)
    )
    return float(first.sum() + second.sum())


def joint(documents: CountRows, words: CountRows, counts: tuple[Array, Array], alpha: Any, beta: float) -> float:
    tokens, totals = counts[0].sum(axis=1).astype(np.int32), counts[1].sum(axis=0)
    with Serial().open() as crew:
        return room.joint_likelihood(documents, tokens, words, totals, alpha, beta, crew)


def seen(counts: Array, runtime: Runtime | None = None, *, by_topic: bool = True) -> Histogram:
    """The histogram of documents [D, K]."""
    with (runtime or Serial()).open() as crew:
        return count_documents(pack(counts), counts.sum(axis=1), crew, by_topic=by_topic)


def seen_words(counts: Array) -> Histogram:
    with Serial().open() as crew:
        return count_words(pack(counts), counts.sum(axis=0), crew)


@settings(max_examples=60)
@given(
    st.integers(0, 10**6),
    st.integers(1, 30),
    st.integers(1, 40),
    st.integers(1, 20),
    st.integers(0, 400),
    st.sampled_from([1, 1500]),
    st.sampled_from(["packed", "padded", "dense", "mixed"]),
    st.booleans(),
)
def test_the_joint_likelihood_is_its_definition(
    seed: int, D: int, V: int, K: int, tokens: int, often: int, form: str, symmetric: bool
) -> None:
    counts = state(seed, D, V, K, tokens, often)
    rng = np.random.default_rng(seed)
    alpha = 0.3 if symmetric else np.exp(rng.uniform(-6, 2, K))
    beta = float(np.exp(rng.uniform(-6, 1)))
    if form == "dense":
        counts = np.minimum(counts[0], 65535), counts[1]
        documents, words = dense(counts[0]), dense(counts[1], np.uint32)
    else:
        few = 3 if form == "mixed" else None
        documents, words = (pack(each, few, padded=form == "padded") for each in counts)
    found = joint(documents, words, counts, alpha, beta)
    assert found == pytest.approx(expected(*counts, alpha, beta), rel=1e-11, abs=1e-9)


def test_it_is_the_probability_of_drawing_the_tokens_one_by_one() -> None:
    """By the chain rule and whole fractions, with no lnΓ anywhere: a topic from the document, a word from the topic."""
    tokens = [(0, 0, 1), (0, 0, 1), (1, 2, 0), (0, 1, 2), (1, 0, 1), (1, 2, 0), (0, 3, 1), (1, 2, 2)]  # d, w, k
    alpha, beta = [Fraction(1, 2), Fraction(3, 4), Fraction(1, 8)], Fraction(1, 4)
    by_document, by_word = np.zeros((3, 3), np.int64), np.zeros((5, 3), np.int64)  # one of each is never met
    chance = Fraction(1)
    for d, w, k in tokens:
        chance *= (alpha[k] + int(by_document[d, k])) / (sum(alpha) + int(by_document[d].sum()))
        chance *= (beta + int(by_word[w, k])) / (len(by_word) * beta + int(by_word[:, k].sum()))
        by_document[d, k] += 1
        by_word[w, k] += 1
    priors = [float(a) for a in alpha], float(beta)
    wanted = math.log(chance.numerator) - math.log(chance.denominator)
    for documents in (pack(by_document), dense(by_document)):
        assert joint(documents, pack(by_word, 1), (by_document, by_word), *priors) == pytest.approx(wanted, rel=1e-14)


def test_a_case_by_hand() -> None:
    """One document of two tokens, the same word twice: 1/2 for the first, 2/3 for the second."""
    counts = np.array([[2]]), np.array([[2], [0]])
    assert joint(dense(counts[0]), pack(counts[1]), counts, 1.0, 1.0) == pytest.approx(math.log(1 / 3), rel=1e-14)


@pytest.mark.parametrize("by_topic", [True, False])
@pytest.mark.parametrize("topics", [3, 5000])
def test_a_histogram_counts(topics: int, by_topic: bool) -> None:
    """5000 topics leave 32 counts with counters of their own, 3 leave 1024; both kinds of counts are met."""
    rng = np.random.default_rng(4)
    counts = np.zeros((50, topics), np.int64)
    counts[rng.integers(0, 50, 300), rng.integers(0, topics, 300)] = rng.integers(1, 1100, 300)
    counts[7, 0], counts[7, 1], counts[8, 1], counts[9, 2] = 31, 32, 1023, 1024
    found = seen(counts, by_topic=by_topic)
    high = len(found.above) + 1
    assert high == (1024 if topics == 3 or not by_topic else 32)
    d, k = np.nonzero(counts >= high)
    assert len(d) > 0
    assert (found.topic == k).all()
    assert (found.count == counts[d, k]).all()
    small = np.where(counts < high, counts, 0)
    for i in (0, 1, 5, 30, high - 2):
        wanted = (small > i).sum(axis=0) if by_topic else (small > i).sum(keepdims=True).ravel()
        assert (found.above[i] == wanted).all()
    assert (np.repeat(found.size, found.number) == np.sort(counts.sum(axis=1))).all()


@pytest.mark.parametrize("large", [1, 3000])
def test_the_same_bits_for_any_crew_and_any_pieces(large: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "_ENTRIES", 64)  # many visits, though there is little to do
    counts = state(1, 200, 150, 24, 4000, large)
    alpha = np.linspace(0.01, 2.0, 24)
    told = set()
    for runtime in RUNTIMES:
        with runtime.open() as crew:
            documents, tokens = pack(counts[0], 12), counts[0].sum(axis=1)
            words, totals = pack(counts[1], 12), counts[1].sum(axis=0)
            assert len(documents.visits()) > 20
            likelihood = room.joint_likelihood(documents, tokens, words, totals, alpha, 0.1, crew)
            by_topic, by_word = count_documents(documents, tokens, crew), count_words(words, totals, crew)
            pieces = [
                count_documents(pack(counts[0][a:b], 12), tokens[a:b], crew) for a, b in pairwise((0, 1, 70, 200))
            ]
            slices = [
                count_words(pack(counts[1][a:b], 12), totals if a == 0 else totals[:0], crew, n_words=150)
                for a, b in pairwise((0, 40, 150))
            ]
        for documents_seen, words_seen in (
            (by_topic, by_word),
            (pieces[0] + pieces[1] + pieces[2], slices[0] + slices[1]),
        ):
            better = optimise_alpha(documents_seen, alpha)
            told.add((
                likelihood,
                documents_seen.likelihood(alpha) + words_seen.likelihood(0.1),
                better.tobytes(),
                optimise_alpha(documents_seen, alpha, symmetric=True).tobytes(),
                optimise_beta(words_seen, 0.1),
            ))  # fmt: skip
    assert len(told) == 1
    assert (by_topic.count.size > 0) == (large > 1)
    only = next(iter(told))
    assert only[0] == only[1] == pytest.approx(expected(*counts, alpha, 0.1), rel=1e-12)


def test_visits_cover_all_rows_however_uneven(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "_ENTRIES", 16)
    for length in ([], [0], [0, 0, 0], [500, 1, 1], [1, 1, 500], [1, 500, 0, 500, 1], [-1] * 9, [3] * 1000):
        rows = CountRows(np.zeros(len(length), np.int64), np.array(length, np.int32), np.zeros(0, np.uint32), 28, 10)
        bounds = rows.visits()
        assert (bounds[0], bounds[-1]) == (0, len(length))
        assert (np.diff(bounds) > 0).all() or len(length) == 0
        assert 2 <= len(bounds) <= 257


def drawn(alpha: Array, documents: int, seed: int, longest: int = 200) -> Array:
    """Counts [documents, K] of multinomials whose parameters come from Dirichlet(alpha)."""
    rng = np.random.default_rng(seed)
    return rng.multinomial(rng.integers(1, longest, documents), rng.dirichlet(alpha, documents))


def test_a_planted_alpha_is_found() -> None:
    alpha = np.array([0.05, 0.2, 0.6, 1.5])
    histogram = seen(drawn(alpha, 4000, seed=3))
    found = optimise_alpha(histogram, np.ones(4), iterations=500)
    assert found == pytest.approx(alpha, rel=0.08)
    # No neighbour is likelier.
    best = histogram.likelihood(found)
    for k in range(4):
        for factor in (0.98, 1.02):
            moved = found.copy()
            moved[k] *= factor
            assert histogram.likelihood(moved) < best


def test_one_value_for_all_is_found() -> None:
    histogram = seen(drawn(np.full(6, 0.25), 3000, seed=4))
    found = optimise_alpha(histogram, np.linspace(0.5, 2.0, 6), symmetric=True, iterations=300)
    assert (found == found[0]).all()
    assert found[0] == pytest.approx(0.25, rel=0.05)
    for factor in (0.98, 1.02):
        assert histogram.likelihood(factor * found) < histogram.likelihood(found[0])


def test_a_planted_beta_is_found() -> None:
    words = drawn(np.full(300, 0.08), 40, seed=5, longest=5000).T
    assert optimise_beta(seen_words(words), 1.0, iterations=300) == pytest.approx(0.08, rel=0.05)


def test_a_step_is_minkas() -> None:
    counts = state(7, 30, 20, 6, 900, 40)
    alpha, beta = np.linspace(0.1, 1.0, 6), 0.2
    n_d, total = counts[0].sum(axis=1), alpha.sum()
    up = (digamma(counts[0] + alpha) - digamma(alpha)).sum(axis=0)
    wanted = alpha * up / (digamma(n_d + total) - digamma(total)).sum()
    assert optimise_alpha(seen(counts[0]), alpha, iterations=1) == pytest.approx(wanted, rel=1e-12)
    up, n_k = (digamma(counts[1] + beta) - digamma(beta)).sum(), counts[1].sum(axis=0)
    wanted = beta * up / (20 * (digamma(n_k + 20 * beta) - digamma(20 * beta)).sum())
    assert optimise_beta(seen_words(counts[1]), beta, iterations=1) == pytest.approx(wanted, rel=1e-12)


@settings(max_examples=40)
@given(st.integers(0, 10**6), st.integers(1, 25), st.integers(1, 9), st.integers(1, 300), st.booleans())
def test_every_step_makes_the_counts_likelier(seed: int, D: int, K: int, tokens: int, symmetric: bool) -> None:
    counts = state(seed, D, 5, K, tokens)[0]
    alpha = np.exp(np.random.default_rng(seed).uniform(-3, 2, K))
    if symmetric:
        alpha[:] = alpha[0]
    histogram = seen(counts)
    last = histogram.likelihood(alpha)
    for _ in range(8):
        alpha = optimise_alpha(histogram, alpha, symmetric=symmetric, iterations=1)
        now = histogram.likelihood(alpha)
        assert now >= last - 1e-12 * (1 + abs(last))
        last = now
        assert ((alpha >= room.LOW) & (alpha <= room.HIGH)).all()


def test_a_topic_without_tokens_keeps_a_chance() -> None:
    counts = drawn(np.full(5, 0.3), 400, seed=6)
    counts[:, 2] = 0
    counts[:, 4] = np.arange(400) == 9  # one token in one document
    histogram = seen(counts)
    found = optimise_alpha(histogram, np.full(5, 0.3), iterations=200)
    used = np.delete(found, 2)
    n_d, total = counts.sum(axis=1), found.sum()
    assert found[2] == pytest.approx(room.EMPTY / (digamma(n_d + total) - digamma(total)).sum(), rel=1e-6)
    assert room.LOW < found[2] < used.min() == found[4]
    assert math.isfinite(histogram.likelihood(found))


def test_an_empty_topic_gains_nothing_from_documents_that_say_nothing() -> None:
    """Where there is one token the numerator of ½ would be half of all priors together, for every empty topic."""
    found = optimise_alpha(seen(np.array([[1, 0, 0]])), [0.5, 0.1, 0.2], iterations=50)
    assert (found[1:] <= [0.1, 0.2]).all()


def test_documents_all_alike_end_at_the_ceiling() -> None:
    found = optimise_alpha(seen(np.full((40, 3), 50)), np.ones(3), iterations=8000)
    assert (found == room.HIGH).all()
    assert optimise_beta(seen_words(np.full((3, 40), 50)), 1.0, iterations=8000) == room.HIGH


@pytest.mark.parametrize("form", ["packed", "dense"])
@pytest.mark.parametrize(
    ("D", "V", "K", "tokens"), [(1, 1, 1, 1), (1, 3, 4, 20), (5, 1, 1, 9), (4, 6, 1, 0), (3, 50, 256, 30), (0, 3, 2, 0)]
)
def test_edges(D: int, V: int, K: int, tokens: int, form: str) -> None:
    """One document, one word, one topic, no token, none of each; the last topic that a dense row can hold."""
    counts = state(0, max(D, 1), V, K, tokens)
    counts = counts[0][:D], counts[1]
    make = dense if form == "dense" else pack
    alpha = np.linspace(0.1, 0.5, K)
    for prior in (alpha, alpha[0]):
        found = joint(make(counts[0]), make(counts[1]), counts, prior, 0.1)
        assert found == pytest.approx(expected(*counts, prior, 0.1), rel=1e-12, abs=1e-12)
    better = optimise_alpha(seen(counts[0]), alpha)
    assert np.isfinite(better).all()
    if tokens == 0:
        assert (better == alpha).all()
        assert found == 0.0
        assert optimise_beta(seen_words(counts[1]), 0.1) == 0.1
    if K == 1:
        assert better == pytest.approx(alpha)  # nothing can be learned of a single topic


def test_what_is_refused() -> None:
    counts = state(0, 4, 5, 3, 50)[0]
    apart, together = seen(counts), seen(counts, by_topic=False)
    for wrong in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(PlanError, match="a prior must be a number more than 0"):
            apart.likelihood([0.1, wrong, 0.1])
        with pytest.raises(PlanError, match="a prior must be a number more than 0"):
            optimise_alpha(apart, [0.1, wrong, 0.1])
        with pytest.raises(PlanError, match="a prior must be a number more than 0"):
            optimise_beta(together, wrong)
    with pytest.raises(DataError, match="a prior has one number or 3, this one has 2"):
        apart.likelihood([0.1, 0.1])
    with pytest.raises(DataError, match="a prior has one number or 3, this one has 4"):
        optimise_alpha(apart, np.ones(4), symmetric=True)
    with pytest.raises(DataError, match="count the documents with by_topic=True"):
        together.likelihood([0.1, 0.2, 0.3])
    with pytest.raises(DataError, match="count the documents with by_topic=True"):
        optimise_alpha(together, [0.1, 0.2, 0.3])
    with pytest.raises(DataError, match="not of one corpus"):
        apart + together
    assert (optimise_alpha(apart, 0.2) == optimise_alpha(apart, [0.2, 0.2, 0.2])).all()
    # What needs no topics does without.
    assert together.likelihood(0.2) == apart.likelihood([0.2, 0.2, 0.2])
    assert optimise_alpha(together, [0.1, 0.2, 0.3], symmetric=True).shape == (3,)
