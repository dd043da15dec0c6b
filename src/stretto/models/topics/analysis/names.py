"""Names of topics: their most relevant words, no word in two names.

The relevance of word w for topic k (Sievert and Shirley 2014) weighs its probability against its lift,

    relevance(w, k) = λ ln p(w | k) + (1 − λ) ln (p(w | k) / p(w)),    p(w) the share of w among all tokens.

A word can only be in the name of one topic, the one that has most of the word's tokens.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.models.topics.topics import Topics

Floats = NDArray[np.float64]

WEIGHT = 0.6  # λ
_MANY = 8  # times the words of a name: the candidates, so that a word of few tokens names no topic


def topic_names(
    topics: Topics,
    vocabulary: list[str] | None,
    n: int = 3,
    weight: float = WEIGHT,
    *,
    given: Sequence[str | None] | None = None,
) -> list[str]:
    """[K] the n most relevant words of each topic that no other topic has more of, joined by ", ".

    Candidates are a topic's 8 n most probable words. A topic with no such word is named by its number: "topic 7".

    given : [K] names that topics have already, by their seeds; None for a topic without one
    """
    owner = _owners(topics)
    found: list[list[str]] = []
    for k, (index, p, share) in enumerate(_probable(topics, _MANY * n)):
        own = owner[index] == k
        chosen = [int(index[i]) for i in _by_relevance(p, share, weight) if own[i]][:n]
        found.append([str(w) if vocabulary is None else vocabulary[w] for w in chosen])
    own_names = given or [None] * topics.n_topics
    return [own_names[k] or ", ".join(row) or f"topic {k}" for k, row in enumerate(found)]


def relevant_words(topics: Topics, n: int) -> list[tuple[NDArray[np.int64], Floats, Floats]]:
    """[K] (words, p(w | k), p(w)) of the words that are among the n most relevant for some λ = 0, 0.1, …, 1.

    Candidates are a topic's 8 n most probable words. The most probable word is first.
    """
    found = []
    for index, p, share in _probable(topics, _MANY * n):
        ranked = [_by_relevance(p, share, step / 10)[:n] for step in range(11)]
        kept = np.unique(np.concatenate(ranked))
        found.append((index[kept].astype(np.int64), p[kept], share[kept]))
    return found


def _probable(topics: Topics, n: int) -> Iterator[tuple[NDArray[Any], Floats, Floats]]:
    """(words, p(w | k), p(w)) of the n most probable words of each topic, most probable first."""
    by_topic = topics.by_topic()
    words = np.bincount(np.repeat(np.arange(topics.n_words), np.diff(topics.indptr)), topics.count, topics.n_words)
    shares = words / max(float(words.sum()), 1.0)
    for k in range(topics.n_topics):
        some = slice(by_topic.indptr[k], by_topic.indptr[k + 1])
        index, count = by_topic.indices[some], by_topic.data[some].astype(np.float64)
        best = np.lexsort((index, -count))[:n]
        best = best[count[best] > 0]
        yield index[best], count[best] / max(float(count.sum()), 1.0), shares[index[best]]


def _by_relevance(p: Floats, share: Floats, weight: float) -> NDArray[np.int64]:
    """Positions of words, the most relevant first; of equal ones the more probable."""
    return np.argsort((1 - weight) * np.log(share) - np.log(p), kind="stable")


def _owners(topics: Topics) -> NDArray[np.int64]:
    """[V] the topic with most tokens of each word, the first of several; −1 of a word without tokens."""
    words = np.repeat(np.arange(topics.n_words), np.diff(topics.indptr))
    order = np.lexsort((topics.topic, -topics.count.astype(np.float64), words))
    first, at = np.unique(words, return_index=True)
    owner = np.full(topics.n_words, -1, np.int64)
    owner[first] = topics.topic[order][at]
    return owner
