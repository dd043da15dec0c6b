"""The prior of topics with seed words, as prior tokens among the counts.

A seed word w of topic k has s_kw prior tokens, so the prior of w in k is β + s_kw instead of β. That is the same as
s_kw tokens that have topic k and never move: the samplers find them among the counts n_wk and n_k, like those of an
earlier fit, and draw from the exact conditional distribution

    p(k) ∝ (n_dk + α_k) (n_wk + s_kw + β) / (n_k + Σ_w s_kw + V β)

Everything that reads the counts (topics, inference, perplexity, averages) has the prior included; the likelihood and
the learned β are those of the tokens of documents, given the seeds.
"""

from __future__ import annotations

import hashlib
import math
import warnings
from dataclasses import replace

import numpy as np

from stretto.errors import DataError

from ..count_layout import Census
from ..input import UnknownWordsWarning
from ..problem import TopicProblem
from ..topics import Topics
from .seeds import Seeds


def with_seeds(
    problem: TopicProblem, seeds: Seeds, weight: float, vocabulary: list[str] | None, census: Census
) -> tuple[TopicProblem, Topics]:
    """The problem with the seeds in its plan, and the prior tokens as topics from which the fit starts.

    weight : prior tokens of a seed word, as a share of the mean tokens of a topic; rounded, at least 1, and at most as
        many as the word has in the documents
    """
    V, mean = len(census.word_tokens), weight * census.tokens / problem.topics
    place = None if vocabulary is None else {word: w for w, word in enumerate(vocabulary)}
    words, topics, counts, unknown = [], [], [], []
    for k, listed in seeds.words:
        known = 0
        for word, own in listed:
            w = _column(word, place, V)
            if w is None:
                unknown.append(word)
                continue
            known += 1
            tokens = min(mean, int(census.word_tokens[w])) if own is None else own
            words.append(w)
            topics.append(k)
            counts.append(max(1, math.floor(tokens + 0.5)))
        if not known:
            name = dict(seeds.names).get(k, k)
            shown = ", ".join(word for word, _ in listed[:5])
            raise DataError(
                f"seeds[{name!r}]: none of its words is in the documents ({shown}); check their spelling and how the "
                "documents were cut into words"
                + ("" if vocabulary else "; the words have no names here, so give numbers of columns or vocabulary=")
            )
    if unknown:
        shown = ", ".join(unknown[:5]) + (", …" if len(unknown) > 5 else "")
        said = f"seed words that are not in the documents were left out: {len(unknown)} ({shown})"
        warnings.warn(said, UnknownWordsWarning, stacklevel=2)
    order = np.lexsort((topics, words))
    column, topic, count = (np.array(numbers, np.int64)[order] for numbers in (words, topics, counts))
    totals = np.bincount(topic, count, problem.topics).astype(np.float64)
    indptr = np.concatenate([[0], np.cumsum(np.bincount(column, minlength=V))]).astype(np.int64)
    found = Topics(
        indptr, topic.astype(np.int32), count.astype(np.int32), totals, np.array(problem.alpha), problem.beta, totals
    )
    digest = hashlib.blake2b(digest_size=8)
    for array in (column, topic, count):
        digest.update(np.ascontiguousarray(array).tobytes())
    return replace(problem, seeds=digest.hexdigest()), found


def _column(word: str, place: dict[str, int] | None, words: int) -> int | None:
    if place is not None:
        return place.get(word)
    return int(word) if word.isascii() and word.isdecimal() and int(word) < words else None
