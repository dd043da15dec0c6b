"""The best items of rows under filters: one search of the compiled kernel, or one for each batch of rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from stretto.runtime.blocks.crew import Crew
    from stretto.solvers.factorization.factors import PaddedFactors, TopNIndex
    from stretto.solvers.factorization.rated_items import RatedItems

    from .filters import ItemFilter

Lists = tuple[NDArray[np.int32], NDArray[np.float32]]


def best_items(
    model: PaddedFactors,
    index: TopNIndex,
    rows: NDArray[np.int32],
    n: int,
    crew: Crew,
    *,
    seen: RatedItems | None,
    chosen: ItemFilter,
    biased: bool,
) -> Lists:
    """(items, scores) [len(rows), n], best first; −1 and −inf where a row has fewer left.

    Parameters
    ----------
    model : PaddedFactors
        The factors of the rows, and the mean.
    index : TopNIndex
        The items, laid out for the search.
    rows : array of int32
        Rows of the model.
    n : int
        Items for each.
    crew : Crew
        Where to run.
    seen : RatedItems or None
        Items that rows have already, to leave out.
    chosen : ItemFilter
        Items that rows may get.
    biased : bool
        Whether the model has biases; without them a row without factors gets nothing.
    """
    base = model.b + np.float32(model.mean)
    if not chosen.by_row or not len(rows):
        return index.best(model.W, rows, n, crew, base=base, seen=seen, allowed=chosen.allowed, blank=not biased)
    return _row_by_row(model, index, rows, n, crew, base, seen, chosen, blank=not biased)


def _row_by_row(
    model: PaddedFactors,
    index: TopNIndex,
    rows: NDArray[np.int32],
    n: int,
    crew: Crew,
    base: NDArray[np.float32],
    seen: RatedItems | None,
    chosen: ItemFilter,
    *,
    blank: bool,
) -> Lists:
    """The search where single rows have lists, which are merged with what they have seen."""
    made: list[Any] = []
    for first in range(0, len(rows), chosen.rows_at_once):
        some = rows[first : first + chosen.rows_at_once]
        hidden, places = chosen.hidden(some, seen), np.arange(len(some), dtype=np.int32)
        made.append(
            index.best(
                model.W[some], places, n, crew, base=base[some], seen=hidden, allowed=chosen.allowed, blank=blank
            )
        )
    return np.concatenate([found for found, _ in made]), np.concatenate([scores for _, scores in made])
