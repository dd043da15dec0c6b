"""Ratings of new users as people write them: {item: rating}, {user: {item: rating}}, or {user: [items]}."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from stretto.data.convert.convert import as_data
from stretto.data.records.data import Data
from stretto.errors import DataError


def from_mapping(given: Mapping[Any, Any], owner: str) -> Data:
    """The entries of a mapping, with ids. One user alone has the id 0; an item without a rating has the value 1."""
    several = bool(given) and all(_has_items(own) for own in given.values())
    users: list[Any] = []
    items: list[Any] = []
    values: list[float] = []
    for user, own in given.items() if several else [(0, given)]:
        names = list(own)
        users += [user] * len(names)
        items += names
        rated = isinstance(own, Mapping)
        values += [_number(own[name], name, owner) if rated else 1.0 for name in names]
    if not items:
        raise DataError(f"{owner}: there are no ratings; give some, such as {{item: rating}}")
    return as_data((users, items, np.asarray(values)), duplicates="keep", map_ids=True, source="ratings")


def _has_items(own: Any) -> bool:
    return isinstance(own, Mapping | list | tuple | set | frozenset) or (isinstance(own, np.ndarray) and own.ndim > 0)


def _number(value: Any, item: Any, owner: str) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        raise DataError(
            f"{owner}: the rating of {item!r} is {value!r}; give {{item: rating}} for one user, or "
            "{user: {item: rating}} for several"
        ) from None
