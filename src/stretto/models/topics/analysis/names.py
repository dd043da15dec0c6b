"""Names of topics: their most relevant words, no word in two names.

The relevance of word w for topic k (Sievert and Shirley 2014) weighs its probability against its lift,

    relevance(w, k) = λ ln p(w | k) + (1 − λ) ln (p(w | k) / p(w)),    p(w) the share of w among all tokens.

A word can only be in the name of one topic, the one that has most of the word's tokens.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from stretto.models.topics.topics import Topics

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
    by_topic = topics.by_topic()
    owner = _owners(topics)
    words = np.bincount(np.repeat(np.arange(topics.n_words), np.diff(topics.indptr)), topics.count, topics.n_words)
    everything = float(words.sum())
    found: list[list[str]] = []
    for k in range(topics.n_topics):
        some = slice(by_topic.indptr[k], by_topic.indptr[k + 1])
        index, count = by_topic.indices[some], by_topic.data[some].astype(np.float64)
        best = np.lexsort((index, -count))[: _MANY * n]
        best = best[count[best] > 0]
        index, count = index[best], count[best]
        own = owner[index] == k
        score = np.log(count) - (1 - weight) * np.log(words[index] / everything)
        order = np.lexsort((index, -score))
        chosen = [int(index[i]) for i in order if own[i]][:n]
        found.append([str(w) if vocabulary is None else vocabulary[w] for w in chosen])
    own_names = given or [None] * topics.n_topics
    return [own_names[k] or ", ".join(row) or f"topic {k}" for k, row in enumerate(found)]


def _owners(topics: Topics) -> NDArray[np.int64]:
    """[V] the topic with most tokens of each word, the first of several; −1 of a word without tokens."""
    words = np.repeat(np.arange(topics.n_words), np.diff(topics.indptr))
    order = np.lexsort((topics.topic, -topics.count.astype(np.float64), words))
    first, at = np.unique(words, return_index=True)
    owner = np.full(topics.n_words, -1, np.int64)
    owner[first] = topics.topic[order][at]
    return owner
