"""`TextOptions`: how documents of text are cut into words, and which words are kept.

The options and their meaning are those of scikit-learn's `CountVectorizer`, and so are the words and counts.

    >>> TextOptions.of(ngram_range=(1, 2), min_df=2).plain()["ngram_range"]
    [1, 2]
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from numbers import Integral, Real
from typing import Any

from stretto.errors import DataError

TOKEN_PATTERN = r"(?u)\b\w\w+\b"
ENGLISH = "english"
MOST_WORDS = 5  # of an n-gram


@dataclass(frozen=True, slots=True)
class TextOptions:
    """How text becomes words. Make one with `of`, which checks the values."""

    lowercase: bool = True
    token_pattern: str = TOKEN_PATTERN
    stop_words: str | tuple[str, ...] | None = None  # "english", or the words that are left out
    ngram_range: tuple[int, int] = (1, 1)  # the shortest and the longest sequence of words that counts as one
    min_df: float = 1  # documents that a word must be in: a number (int) or a share of all (float)
    max_df: float = 1.0  # documents that a word may be in, likewise
    max_features: int | None = None  # number of words kept, the most frequent ones

    @classmethod
    def of(cls, **given: Any) -> TextOptions:
        """The options, checked; those that are missing have their defaults."""
        unknown = sorted(set(given) - set(cls.__dataclass_fields__))
        if unknown:
            raise DataError(f"no option {unknown[0]} of text; there are {', '.join(cls.__dataclass_fields__)}")
        found = {name: _CHECKS[name](value) for name, value in given.items()}
        options = cls(**found)
        if options.lowercase and isinstance(options.stop_words, tuple):
            words = tuple(sorted({word.lower() for word in options.stop_words}))
            options = cls(**found | {"stop_words": words})
        return options

    def plain(self) -> dict[str, Any]:
        """The options as JSON holds them."""
        found = asdict(self)
        return {name: list(value) if isinstance(value, tuple) else value for name, value in found.items()}

    @property
    def left_out(self) -> frozenset[str]:
        """The stop words."""
        if self.stop_words == ENGLISH:
            from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

            return frozenset(ENGLISH_STOP_WORDS)
        return frozenset(self.stop_words or ())


def is_whole(value: Any) -> bool:
    """Whether a value is an integer of Python or NumPy."""
    return type(value) is not bool and isinstance(value, Integral)


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise DataError(f"lowercase must be True or False, got {value!r}")
    return value


def _pattern(value: Any) -> str:
    if not isinstance(value, str):
        raise DataError(f"token_pattern must be a regular expression as text, got {type(value).__name__}")
    try:
        found = re.compile(value)
    except re.error as error:
        raise DataError(f"token_pattern={value!r} is not a regular expression ({error}); correct it") from None
    if found.groups > 1:
        raise DataError(
            f"token_pattern={value!r} has {found.groups} groups; use one at most, and (?:…) for groups that only "
            "hold parts together"
        )
    if found.fullmatch(""):
        raise DataError(f"token_pattern={value!r} matches an empty text; require a character, with + instead of *")
    return value


def _stop_words(value: Any) -> str | tuple[str, ...] | None:
    if value is None or value == ENGLISH:
        return ENGLISH if value == ENGLISH else None
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise DataError(f'stop_words must be "english", a list of words, or None, got {value!r}')
    words = list(value)
    wrong = next((word for word in words if not isinstance(word, str)), None)
    if wrong is not None:
        raise DataError(f"stop_words holds {wrong!r}, which is not text; give words")
    return tuple(sorted(set(words)))


def _range(value: Any) -> tuple[int, int]:
    numbers = list(value) if isinstance(value, (tuple, list)) else []
    if len(numbers) != 2 or not all(map(is_whole, numbers)):
        raise DataError(f"ngram_range must be two whole numbers, such as (1, 2), got {value!r}")
    low, high = (int(n) for n in numbers)
    if not 1 <= low <= high <= MOST_WORDS:
        raise DataError(f"ngram_range={low, high}: the first is at least 1, and the second from there to {MOST_WORDS}")
    return low, high


def _documents(name: str) -> Any:
    def check(value: Any) -> float:
        if is_whole(value) and int(value) >= 1:
            return int(value)
        if isinstance(value, Real) and not isinstance(value, Integral) and 0.0 <= float(value) <= 1.0:
            return float(value)
        raise DataError(
            f"{name} must be a number of documents (a whole number from 1 up) or a share of them (from 0.0 to 1.0), "
            f"got {value!r}"
        )

    return check


def _most(value: Any) -> int | None:
    if value is None:
        return None
    if not is_whole(value) or int(value) < 1:
        raise DataError(f"max_features must be a whole number from 1 up, or None, got {value!r}")
    return int(value)


_CHECKS: Mapping[str, Any] = {
    "lowercase": _flag,
    "token_pattern": _pattern,
    "stop_words": _stop_words,
    "ngram_range": _range,
    "min_df": _documents("min_df"),
    "max_df": _documents("max_df"),
    "max_features": _most,
}
