"""Cut documents into words, and number the words.

    >>> found = Tokenizer(TextOptions())
    >>> found.add(["The cat saw a cat.", "", "A dog!"])
    >>> tokens = found.finish()
    >>> tokens.words, tokens.codes.tolist(), tokens.ptr.tolist()
    (['the', 'cat', 'saw', 'dog'], [0, 1, 2, 1, 3], [0, 4, 4, 5])

A token pattern of the form `\\b\\w\\w+\\b` (whole words of at least so many letters, digits and underscores) is
searched for in compiled code; any other by `re`, which takes several times as long and gives the same.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.data.reading.columns import Interner

from .options import TextOptions

CHARACTERS = 1 << 22  # of documents that are cut into words together

# Patterns of whole words, with the number of characters that a word has at least.
_WHOLE = re.compile(r"(?:\(\?u\))?\\b((?:\\w)*)\\w\+\\b")


@dataclass(frozen=True, eq=False)
class Tokens:
    """The words of documents, one after another, as numbers."""

    ptr: NDArray[np.int64]  # [documents + 1] first token of each document
    codes: NDArray[np.int32]  # [tokens] the word of each, by its number
    words: list[str]  # the words, by number

    def __len__(self) -> int:
        return len(self.ptr) - 1


class Tokenizer:
    """Numbers the words of documents as they are added."""

    def __init__(self, options: TextOptions) -> None:
        self.options = options
        self._least = least_characters(options.token_pattern)
        self._find = re.compile(options.token_pattern).findall
        self._interner = Interner()
        self._numbers: defaultdict[str, int] = defaultdict()
        self._numbers.default_factory = self._numbers.__len__
        self._codes: list[NDArray[np.int32]] = []
        self._counts: list[NDArray[np.int64]] = []

    def add(self, texts: Sequence[str]) -> None:
        """More documents, in their order."""
        first, size = 0, 0
        for k, text in enumerate(texts):
            size += len(text)
            if size >= CHARACTERS:
                self._add(texts[first : k + 1])
                first, size = k + 1, 0
        if first < len(texts):
            self._add(texts[first:])

    def _add(self, texts: Sequence[str]) -> None:
        lower = [text.lower() for text in texts] if self.options.lowercase else texts
        codes, counts = self._search(lower) if self._least is None else self._scan(lower)
        self._codes.append(codes)
        self._counts.append(counts)

    def _search(self, texts: Sequence[str]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """By `re`."""
        found = [self._find(text) for text in texts]
        number = self._numbers
        codes = [number[word] for word in chain.from_iterable(found)]
        return np.array(codes, np.int32), np.array([len(words) for words in found], np.int64)

    def _scan(self, texts: Sequence[str]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """By compiled code."""
        from stretto.kernels.text.words import find_words

        parts = [text.encode("utf-8", "replace") for text in texts]  # halves of characters become "?"
        bounds = np.zeros(len(parts) + 1, np.int64)
        np.cumsum([len(part) for part in parts], out=bounds[1:])
        buf = np.frombuffer(b"".join(parts) or b" ", np.uint8)
        most = int(bounds[-1]) // 2 + len(parts)  # between two words is a character that belongs to none
        starts, lengths = np.empty(most, np.int64), np.empty(most, np.int32)
        counts = np.empty(len(parts), np.int64)
        n = find_words(buf, bounds, _letters(), self._least, starts, lengths, counts)
        return self._interner.codes(buf, starts[:n], lengths[:n]), counts

    def finish(self) -> Tokens:
        """All tokens. Nothing can be added afterwards."""
        counts: NDArray[np.int64] = np.concatenate([np.zeros(1, np.int64), *self._counts])
        codes = np.concatenate([np.empty(0, np.int32), *self._codes])
        self._codes.clear()
        words = list(self._numbers) if self._least is None else self._interner.texts(0, "documents")
        return Tokens(np.cumsum(counts), codes, words)


def least_characters(pattern: str) -> int | None:
    r"""The characters that a word has at least, of a pattern that asks for whole words; None for any other.

    >>> least_characters(r"(?u)\b\w\w+\b"), least_characters(r"\b[a-z]+\b")
    (2, None)
    """
    found = _WHOLE.fullmatch(pattern)
    return None if found is None else 1 + len(found[1]) // 2


@lru_cache(maxsize=1)
def _letters() -> Any:
    r"""[0x110000] whether `\w` matches each character."""
    letters = np.zeros(0x110000, np.bool_)
    for run in re.finditer(r"\w+", "".join(map(chr, range(0x110000)))):
        letters[run.start() : run.end()] = True
    letters.flags.writeable = False
    return letters
