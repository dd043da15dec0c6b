"""Data for the topic browser: words, sizes and similarity of topics, their documents and coherence.

    view = browse(model, corpus)                  # corpus: documents in the model's words, or None
    write_topics("topics.html", view)

Memory and time are bounded. Topics stay sparse, and documents are read a chunk at a time. Of a large corpus only
`LOOKED` documents, evenly spaced, are read. Above `MOST_ALIKE` topics their similarity, which takes quadratic time, is
left out.
"""

from __future__ import annotations

import math
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from stretto.models import checks
from stretto.observe.topics import TopicView
from stretto.observe.topics_page import MAPPED
from stretto.runtime.runtimes import Runtime

from .analysis.names import relevant_words, topic_names
from .analysis.topic_map import places
from .coherence import coherence
from .input import Corpus
from .summary import affinities, similar_topics, top_words
from .topics import Topics


class FittedTopics(Protocol):
    """A fitted topic model, as far as the browser needs one."""

    topics_: Topics
    vocabulary_: list[str] | None
    seed_names_: list[str | None] | None
    history_: list[dict[str, float]]
    n_iter_: int
    fingerprint_: str
    runtime: Runtime | None
    n_jobs: Any

    def transform(self, X: Any) -> NDArray[np.float32]: ...


MOST_ALIKE = 2_000  # topics with similar ones and with words by relevance, at most: all pairs are compared
LOOKED = 50_000  # documents read, at most
_SHARES = 64 << 20  # bytes of topic shares computed at a time
_COHERENT = 10  # words of a topic whose coherence is measured


def browse(
    model: FittedTopics,
    corpus: Corpus | None = None,
    *,
    title: str = "Topics",
    words: int = 20,
    documents: int = 10,
    similar: int = 6,
) -> TopicView:
    """The view of a fitted model. words, documents, similar: number of each to show per topic.

    Without a corpus there are no documents and no coherence. Documents without names are numbered from 0.

        view = browse(model, as_corpus("docword.txt.gz", seed=0), title="News")
    """
    topics = model.topics_
    found, weights = _words(topics, words)
    names = model.vocabulary_
    lists = [[str(w) if names is None else names[w] for w in row[row >= 0].tolist()] for row in found]
    K = topics.n_topics
    alike = np.empty((K, 0), np.int32), np.empty((K, 0), np.float32)
    spots: NDArray[np.float64] | None = None
    most: tuple[list[list[str]], NDArray[np.float32]] = [[] for _ in range(K)], np.empty((K, 0), np.float32)
    score: NDArray[np.float32] | None = None
    facts = _facts(model, corpus)
    with checks.here(model.runtime, model.n_jobs).open() as crew:
        if K <= MOST_ALIKE:
            alike = similar_topics(topics.by_topic(), similar, crew)
        if K <= MAPPED:
            spots = places(affinities(topics.by_topic(), crew))
        if corpus is not None:
            some = _some(corpus.n_documents)
            X = _matrix(corpus)[some]
            if len(some) < corpus.n_documents:
                facts["documents evaluated"] = f"{len(some):,}, spread evenly"
            most = _most(model, X, documents, corpus.documents, some)
            if found.shape[1] > 1:
                score = coherence(found[:, :_COHERENT], X, crew=crew).astype(np.float32)
    if score is not None and np.isfinite(score).any():
        facts["mean coherence (NPMI)"] = f"{np.nanmean(score):.3f}"
    return TopicView(
        title=title,
        words=lists,
        weights=weights,
        tokens=np.rint(topics.tokens).astype(np.int64),
        similar=alike[0],
        similarity=alike[1],
        documents=most[0],
        shares=most[1],
        facts=facts,
        history=likelihoods(model),
        coherence=score,
        names=topic_names(topics, names, given=model.seed_names_),
        relevant=_relevant(topics, names, words) if K <= MOST_ALIKE else None,
        places=spots,
    )


def _relevant(topics: Topics, names: list[str] | None, n: int) -> list[list[tuple[str, float, float]]]:
    """The words from which the browser chooses by relevance, with their probabilities."""
    return [
        [
            (str(w) if names is None else names[w], p, share)
            for w, p, share in zip(index.tolist(), likely.tolist(), shares.tolist(), strict=True)
        ]
        for index, likely, shares in relevant_words(topics, n)
    ]


def likelihoods(model: FittedTopics) -> list[tuple[int, float]]:
    """(epoch, log-likelihood per token) of the epochs in which it was computed."""
    key = "log_likelihood"
    return [(k + 1, float(epoch[key])) for k, epoch in enumerate(model.history_) if key in epoch]


def _words(topics: Topics, n: int) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """(words [K, m], −1 after a topic's last word; their p(word | topic) [K, m]), most probable first."""
    index, share = top_words(topics.by_topic(), n)
    V, totals = topics.n_words, topics.totals[:, None]
    weights = (share * totals + topics.beta) / (totals + V * topics.beta)
    return np.where(share > 0, index, -1).astype(np.int64), weights.astype(np.float32)


def _facts(model: FittedTopics, corpus: Corpus | None) -> dict[str, str]:
    topics = model.topics_
    facts = {} if corpus is None else {"documents": f"{corpus.n_documents:,}"}
    facts |= {
        "words": f"{topics.n_words:,}",
        "tokens": f"{topics.tokens.sum():,.0f}",
        "topics": f"{topics.n_topics:,}",
        "epochs": f"{model.n_iter_:,}",
    }
    seen = likelihoods(model)
    if seen:
        facts["log-likelihood per token"] = f"{seen[-1][1]:.4f}"
    low, high = float(topics.alpha.min()), float(topics.alpha.max())
    facts["prior of topics"] = f"{low:.3g}" if low == high else f"{low:.3g} to {high:.3g}"
    return facts | {"prior of words": f"{topics.beta:.3g}", "plan": model.fingerprint_}


def _some(documents: int) -> NDArray[np.int64]:
    """The documents that are read: all, or LOOKED of them."""
    return np.linspace(0, documents, min(documents, LOOKED), endpoint=False).astype(np.int64)


def _matrix(corpus: Corpus) -> Any:
    data = corpus.data  # sorted by document and then by word
    indptr = np.searchsorted(data.rows, np.arange(corpus.n_documents + 1))
    return csr_array((data.values, data.cols, indptr), shape=data.shape)


def _most(
    model: FittedTopics, X: Any, n: int, names: list[str] | None, numbers: NDArray[np.int64]
) -> tuple[list[list[str]], NDArray[np.float32]]:
    """The documents with the largest share of each topic: names [K][n] and shares [K, n], largest first.

    Documents are ranked by share, not by length; the prior keeps the shares of very short ones small.

    numbers : [documents] the rows of X in the corpus
    """
    K, n = model.topics_.n_topics, min(n, X.shape[0])
    best, where = np.full((K, n), -math.inf, np.float32), np.zeros((K, n), np.int64)
    step = max(1, _SHARES // (4 * K))
    for first in range(0, X.shape[0], step):
        shares = model.transform(X[first : first + step]).T
        # The best so far come first, so that the earlier document wins a tie.
        both = np.concatenate([best, shares], axis=1)
        at = np.concatenate([where, np.broadcast_to(np.arange(first, first + shares.shape[1]), shares.shape)], axis=1)
        order = _largest(both, n)
        best, where = np.take_along_axis(both, order, 1), np.take_along_axis(at, order, 1)

    def name(row: int) -> str:
        number = int(numbers[row])
        return f"document {number}" if names is None else names[number]

    return [[name(row) for row in rows] for rows in where.tolist()], best


def _largest(values: NDArray[np.float32], n: int) -> NDArray[np.int64]:
    """[rows, n] positions of the n largest of each row, largest first; ties by lower position."""
    if n == 0:
        return np.empty((len(values), 0), np.int64)
    edge = np.partition(values, values.shape[1] - n, axis=1)[:, values.shape[1] - n]
    found = np.empty((len(values), n), np.int64)
    for k, row in enumerate(values):
        above = np.flatnonzero(row > edge[k])
        level = np.flatnonzero(row == edge[k])[: n - len(above)]
        found[k] = np.concatenate([above[np.argsort(-row[above], kind="stable")], level])
    return found
