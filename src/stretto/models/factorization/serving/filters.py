"""Filter lists of `recommend`: items that may be recommended, to everyone or to single users."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.data.records.ids import IdMap
from stretto.models.factorization.arguments import known_indices
from stretto.solvers.factorization.rated_items import RatedItems

Ints = NDArray[np.int32]
_MASK_BYTES = 1 << 26  # of the mask of rows and items that lists of single users are merged in


@dataclass(frozen=True, eq=False)
class ItemFilter:
    """Which items each of the rows asked for may get."""

    allowed: NDArray[np.bool_] | None  # [items] for every row; None: all
    only: Mapping[int, Ints]  # row → the items that it may get, for rows that have such a list
    without: Mapping[int, Ints]  # row → items that it may not get
    items: int

    @property
    def by_row(self) -> bool:
        """Whether single rows have lists of their own."""
        return bool(self.only or self.without)

    @property
    def rows_at_once(self) -> int:
        """Rows whose lists are merged at a time."""
        return max(1, _MASK_BYTES // max(1, self.items))

    def hidden(self, rows: NDArray[Any], seen: RatedItems | None) -> RatedItems:
        """Items that each of some rows may not get: those seen, and those of its own lists."""
        mask = np.zeros((len(rows), self.items), bool)
        for at, row in enumerate(rows.tolist()):
            if row in self.only:
                mask[at] = True
                mask[at, self.only[row]] = False
            if row in self.without:
                mask[at, self.without[row]] = True
            if seen is not None:
                mask[at, seen.indices[seen.indptr[row] : seen.indptr[row + 1]]] = True
        indptr = np.concatenate([[0], np.cumsum(mask.sum(axis=1))]).astype(np.int64)
        return RatedItems(indptr, np.nonzero(mask)[1].astype(np.int32))


def item_filter(
    items: Any, exclude: Any, columns: tuple[IdMap | None, int], rows: tuple[IdMap | None, int]
) -> ItemFilter:
    """The filter of `recommend(items=…, exclude=…)`: a list for everyone, or a mapping from user to list.

    columns, rows : ids and number of the items, and of the users
    """
    only, each_only = _lists(items, columns, rows)
    without, each_without = _lists(exclude, columns, rows)
    allowed = None
    if only is not None or without is not None:
        allowed = np.full(columns[1], only is None)
        if only is not None:
            allowed[only] = True
        if without is not None:
            allowed[without] = False
    return ItemFilter(allowed, each_only, each_without, columns[1])


def _lists(
    given: Any, columns: tuple[IdMap | None, int], rows: tuple[IdMap | None, int]
) -> tuple[Ints | None, dict[int, Ints]]:
    """(items for everyone, or None; row → its items)."""
    if given is None:
        return None, {}
    if not isinstance(given, Mapping):
        return known_indices(_listed(given), *columns, "column"), {}
    if not given:
        return None, {}
    at = known_indices(list(given), *rows, "row")
    lists = (known_indices(_listed(one), *columns, "column") for one in given.values())
    return None, dict(zip(at.tolist(), lists, strict=True))


def _listed(items: Any) -> Any:
    """A set as a list; anything else as it is."""
    return list(items) if isinstance(items, set | frozenset) else items
