"""Seed words of topics: a prior for each topic that prefers some words.

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
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any

import numpy as np

from stretto.data.documents.options import is_whole
from stretto.errors import DataError

from .count_layout import Census
from .input import LARGEST, UnknownWordsWarning
from .problem import TopicProblem
from .topics import Topics

# Prior tokens of a seed word, as a share of the mean tokens of a topic.
SEED_WEIGHT = 0.01


@dataclass(frozen=True)
class Seeds:
    """Seed words by topic, checked. A word has its own prior tokens, or None: by the weight and its frequency."""

    words: tuple[tuple[int, tuple[tuple[str, float | None], ...]], ...]
    names: tuple[tuple[int, str], ...]  # of the topics that have one

    @classmethod
    def of(cls, given: Any, topics: int) -> Seeds:
        """From a mapping: name or number of a topic → words, or word → prior tokens.

        A key of digits is a number. Topics with a name take the numbers that are free, from 0 on, in their order.
        """
        if not isinstance(given, Mapping):
            raise DataError(
                f'seeds must be a mapping such as {{"sport": ["game", "team"]}}, got {type(given).__name__}'
            )
        numbers = {key: _number(key, topics) for key in given}
        taken = {number for number in numbers.values() if number is not None}
        if len(taken) < sum(number is not None for number in numbers.values()):
            raise DataError("seeds has a topic twice; give all of its words together")
        free = (k for k in range(topics) if k not in taken)
        words, names = {}, {}
        for key, listed in given.items():
            number = numbers[key]
            if number is None:
                number = next(free, None)
                if number is None:
                    raise DataError(
                        f"seeds has {len(given)} topics and the model {topics}; raise n_components=, or seed fewer"
                    )
                names[number] = str(key)
            words[number] = _words(key, listed)
        return cls(tuple(sorted(words.items())), tuple(sorted(names.items())))

    def named(self, topics: int) -> list[str | None]:
        """[topics] the name of each topic, None for one without."""
        names = dict(self.names)
        return [names.get(k) for k in range(topics)]

    def plain(self) -> dict[str, Any]:
        """As JSON holds them: what `of` takes."""
        names = dict(self.names)
        return {names.get(k, str(k)): dict(words) for k, words in self.words}


def _number(key: Any, topics: int) -> int | None:
    """The number of a topic that a key gives; None for a name."""
    if isinstance(key, str):
        if not key.strip():
            raise DataError("seeds has a topic without a name; give a name or a number")
        if not (key.isascii() and key.isdecimal()):
            return None
        key = int(key)
    if not is_whole(key):
        raise DataError(f"seeds has the topic {key!r}; give a name, or a number from 0 to {topics - 1}")
    if not 0 <= int(key) < topics:
        raise DataError(f"seeds has topic {key} and the model has topics 0 to {topics - 1}; raise n_components=")
    return int(key)


def _words(key: Any, listed: Any) -> tuple[tuple[str, float | None], ...]:
    """(word, prior tokens or None) of a topic."""
    if isinstance(listed, str) or not isinstance(listed, Iterable):
        raise DataError(f"seeds[{key!r}] must be a list of words, or a mapping of words to prior tokens")
    pairs = list(listed.items()) if isinstance(listed, Mapping) else [(word, None) for word in listed]
    if not pairs:
        raise DataError(f"seeds[{key!r}] has no words; name some, or leave the topic out")
    found: dict[str, float | None] = {}
    for word, weight in pairs:
        if not isinstance(word, str) and not is_whole(word):
            raise DataError(f"seeds[{key!r}] holds {word!r}; give words, or numbers of columns")
        real = type(weight) is not bool and isinstance(weight, Real)
        if weight is not None and not (real and 1 <= float(weight) <= LARGEST):
            raise DataError(f"seeds[{key!r}][{word!r}] is {weight!r}; give 1 to {LARGEST:,} prior tokens")
        found[str(word)] = None if weight is None else float(weight)
    return tuple(found.items())


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
