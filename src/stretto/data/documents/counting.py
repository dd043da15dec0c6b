"""From numbered words to counts: stop words, n-grams, and the choice of words that are kept."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from stretto.errors import DataError

from .options import TextOptions
from .tokens import Tokens

Ints = NDArray[np.int64]


def count_words(tokens: Tokens, options: TextOptions) -> tuple[Any, list[str]]:
    """(counts [documents, words], float32 in CSR form; the words in their order): which words are kept is decided here.

    The words are sorted; of words that are equally frequent the first are kept.
    """
    grams = Grams.of(tokens, options)
    X = grams.matrix()
    documents = np.bincount(X.indices, minlength=X.shape[1])
    kept = documents >= _number(options.min_df, len(tokens))
    kept &= documents <= _number(options.max_df, len(tokens))
    kept &= documents > 0
    if not len(tokens.codes):
        raise DataError("the documents hold no words; check the files, the encoding, and token_pattern=")
    if not kept.any():
        raise DataError(
            f"no word is left of {X.shape[1]:,}: all are stop words, or in fewer than min_df={options.min_df} or more "
            f"than max_df={options.max_df} of the {len(tokens):,} documents; allow more of them"
        )
    names = grams.names(np.flatnonzero(kept))
    order = np.array(sorted(range(len(names)), key=names.__getitem__), np.int64)
    chosen = np.flatnonzero(kept)[order]
    if options.max_features is not None and len(chosen) > options.max_features:
        often = np.bincount(X.indices, X.data, minlength=X.shape[1])[chosen]
        best = np.sort(np.argsort(-often, kind="stable")[: options.max_features])
        chosen, order = chosen[best], order[best]
    column = np.full(X.shape[1], -1, np.int64)
    column[chosen] = np.arange(len(chosen))
    return _columns(X, column, len(chosen)), [names[k] for k in order.tolist()]


def count_known(tokens: Tokens, options: TextOptions, vocabulary: list[str]) -> Any:
    """Counts [documents, words] of the words of a vocabulary, in its order; others are left out."""
    grams = Grams.of(tokens, options)
    X = grams.matrix()
    place = {word: k for k, word in enumerate(vocabulary)}
    if len(place) < len(vocabulary):
        twice = next(word for k, word in enumerate(vocabulary) if place[word] != k)
        raise DataError(f"the vocabulary has {twice!r} twice; give every word once")
    names = grams.names(np.arange(X.shape[1]))
    column = np.fromiter((place.get(name, -1) for name in names), np.int64, len(names))
    return _columns(X, column, len(vocabulary))


def in_order(tokens: Tokens, options: TextOptions, vocabulary: list[str]) -> Tokens:
    """The documents without stop words, in the numbers of a vocabulary; other words are -1 and keep their places."""
    if options.ngram_range != (1, 1):
        raise DataError(
            f"windows need single words, and the words have ngram_range={options.ngram_range}; count whole documents, "
            "with st.read_text(texts, like=model)"
        )
    tokens = _without(tokens, options.left_out)
    place = {word: k for k, word in enumerate(vocabulary)}
    to = np.fromiter((place.get(word, -1) for word in tokens.words), np.int32, len(tokens.words))
    return Tokens(tokens.ptr, to[tokens.codes], vocabulary)


@dataclass(frozen=True, eq=False)
class Grams:
    """The sequences of words of documents, numbered: single words first, then pairs, and so on."""

    words: list[str]
    low: int  # words of the shortest sequence that counts
    # For each length from 1 on: its tokens, and the distinct sequences as (number of the shorter one, last word).
    levels: list[tuple[Tokens, Ints]]

    @classmethod
    def of(cls, tokens: Tokens, options: TextOptions) -> Grams:
        """Sequences of the lengths of `ngram_range`, after the stop words were removed."""
        tokens = _without(tokens, options.left_out)
        low, high = options.ngram_range
        levels = [(tokens, np.empty((0, 2), np.int64))]
        for length in range(2, high + 1):
            levels.append(_longer(levels[-1][0], tokens, length))
        return cls(tokens.words, low, levels)

    @property
    def sizes(self) -> list[int]:
        """The number of distinct sequences of each length that counts."""
        return [len(self.words) if k == 0 else len(pairs) for k, (_, pairs) in enumerate(self.levels)][self.low - 1 :]

    def matrix(self) -> Any:
        """Counts [documents, sequences], as int32 in CSR form."""
        parts = []
        for (tokens, _), size in zip(self.levels[self.low - 1 :], self.sizes, strict=True):
            ones = np.ones(len(tokens.codes), np.int32)
            part = csr_array((ones, tokens.codes, tokens.ptr), shape=(len(tokens), size))
            part.sum_duplicates()
            parts.append(part)
        if len(parts) == 1:
            return parts[0]
        from scipy.sparse import hstack

        return hstack(parts, format="csr")

    def names(self, which: Ints) -> list[str]:
        """The text of some columns of `matrix`."""
        ends = np.cumsum(self.sizes)
        level = np.searchsorted(ends, which, side="right")
        inside = which - np.concatenate([[0], ends])[level]
        return [self._name(self.low - 1 + a, b) for a, b in zip(level.tolist(), inside.tolist(), strict=True)]

    def _name(self, level: int, number: int) -> str:
        last: list[str] = []
        while level > 0:
            number, word = self.levels[level][1][number].tolist()
            last.append(self.words[word])
            level -= 1
        return " ".join([self.words[number], *reversed(last)])


def _without(tokens: Tokens, left_out: frozenset[str]) -> Tokens:
    if not left_out:
        return tokens
    kept = np.array([word not in left_out for word in tokens.words], np.bool_)
    if kept.all():
        return tokens
    some = kept[tokens.codes]
    before = np.concatenate([[0], np.cumsum(some)])
    number = np.cumsum(kept) - 1
    words = [word for word in tokens.words if word not in left_out]
    return Tokens(before[tokens.ptr], number[tokens.codes[some]].astype(np.int32), words)


def _longer(shorter: Tokens, words: Tokens, length: int) -> tuple[Tokens, Ints]:
    """Sequences of `length` words, from those that are one word shorter, and the distinct ones among them."""
    sizes = np.maximum(np.diff(words.ptr) - (length - 1), 0)
    ptr = np.concatenate([[0], np.cumsum(sizes)])
    within = np.arange(ptr[-1]) - np.repeat(ptr[:-1], sizes)
    head = shorter.codes[np.repeat(shorter.ptr[:-1], sizes) + within].astype(np.int64)
    last = words.codes[np.repeat(words.ptr[:-1], sizes) + within + length - 1]
    distinct, codes = np.unique(head * len(words.words) + last, return_inverse=True)
    pairs = np.stack(np.divmod(distinct, max(1, len(words.words))), axis=1)
    return replace(words, ptr=ptr, codes=codes.astype(np.int32)), pairs


def _columns(X: Any, column: Ints, width: int) -> Any:
    """X with its columns moved to `column`, those at -1 left out, as float32."""
    to = column[X.indices]
    some = to >= 0
    before = np.concatenate([[0], np.cumsum(some)])
    found = csr_array((X.data[some].astype(np.float32), to[some].astype(np.int32), before[X.indptr]))
    found = csr_array((found.data, found.indices, found.indptr), shape=(X.shape[0], width))
    found.sort_indices()
    return found


def _number(value: float, documents: int) -> float:
    """A number of documents, from a number or a share."""
    return value if isinstance(value, int) else value * documents
