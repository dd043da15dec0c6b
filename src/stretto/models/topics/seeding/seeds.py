"""`Seeds`: seed words of topics as the user gives them, checked.

>>> seeds = Seeds.of({"sport": ["game", "team"], 0: {"gene": 20}}, 3)
>>> seeds.words, seeds.named(3)
(((0, (('gene', 20.0),)), (1, (('game', None), ('team', None)))), [None, 'sport', None])
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Any

from stretto.data.documents.options import is_whole
from stretto.errors import DataError

from ..input import LARGEST

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
