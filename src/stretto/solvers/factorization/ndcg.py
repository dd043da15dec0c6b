"""Ranking quality: normalised discounted cumulative gain of the first ten items (NDCG@10).

A row's relevant items are those it has in the held-out part with a positive value. Every other item that it has in
training is left out of the ranking. The gain of a relevant item in place k = 1, 2, … is 1 / log₂(k + 1); a row's NDCG
is the gain of its first ten items, divided by the largest gain that ten places can have. The score is the mean over the
rows that have a relevant item.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from stretto.data.partition import BlockPartition
from stretto.errors import DataError
from stretto.runtime.blocks.crew import Crew
from stretto.runtime.blocks.source import EntryArrays

from .factors import TopNIndex
from .problem import Factors
from .rated_items import RatedItems

PLACES = 10
METRIC = f"test_ndcg@{PLACES}"
# Rows measured after each epoch; more would hardly change the mean.
_ROWS = 10_000

Longs = NDArray[np.int64]


def ndcg(found: NDArray[np.int32], relevant: RatedItems) -> float:
    """Mean NDCG over rows.

    found : [m, places] items, best first, −1 for none
    relevant : row k has the relevant items of row k of `found`, at least one
    """
    places = found.shape[1]
    counts = np.diff(relevant.indptr)
    size = int(max(found.max(initial=0), relevant.indices.max(initial=0))) + 1
    keys = np.repeat(np.arange(len(counts)), counts) * size + relevant.indices
    asked = np.arange(len(found))[:, None] * size + found
    at = np.minimum(np.searchsorted(keys, asked), len(keys) - 1)
    hit = (keys[at] == asked) & (found >= 0)
    gain = 1.0 / np.log2(np.arange(2, places + 2))
    best = np.cumsum(gain)[np.minimum(counts, places) - 1]
    return float(np.mean((hit @ gain) / best))


@dataclass(frozen=True, eq=False)
class Ranking:
    """Rows to rank items for."""

    rows: NDArray[np.int32]  # [r] rows of the factors; each has a relevant item
    relevant: RatedItems  # relevant items of rows[k] in row k; items unknown to the model have indices too
    left_out: RatedItems  # items of rows[k] that are left out of the ranking, in row k

    def __len__(self) -> int:
        return len(self.rows)

    @classmethod
    def of(cls, test: EntryArrays, seen: RatedItems, items: int, *, at_most: int | None = None) -> Ranking:
        """From held-out entries, whose rows are those of `seen` and whose columns are below `items`.

        Other indices, such as −1, are unknown to the model: such an item is never found, such a row is not counted.

        at_most : number of rows taken, evenly spaced; None takes all
        """
        known = (test.rows >= 0) & (test.rows < len(seen.indptr) - 1)
        wanted = known & (test.values > 0)
        rows = np.unique(test.rows[wanted])
        if at_most is not None and len(rows) > at_most:
            rows = rows[np.linspace(0, len(rows) - 1, at_most).astype(np.int64)]
        place = np.full(len(seen.indptr) - 1, -1, np.int64)
        place[rows] = np.arange(len(rows))
        relevant = _grouped(test, wanted, place, len(rows), items)
        tested = _grouped(test, known & (test.cols >= 0) & (test.cols < items), place, len(rows), items)
        counts = np.diff(seen.indptr)[rows]
        starts = np.repeat(seen.indptr[:-1][rows] - np.concatenate([[0], np.cumsum(counts)[:-1]]), counts)
        trained = seen.indices[starts + np.arange(len(starts))].astype(np.int64)
        at = np.repeat(np.arange(len(rows)), counts)
        keep = ~np.isin(at * items + trained, _keys(tested, items))
        indptr = np.concatenate([[0], np.cumsum(np.bincount(at[keep], minlength=len(rows)))]).astype(np.int64)
        return cls(rows.astype(np.int32), relevant, RatedItems(indptr, trained[keep].astype(np.int32)))

    def score(self, search: TopNIndex, W: NDArray[np.float32], crew: Crew) -> float:
        """NDCG@10 of rows with factors W [m, padded]."""
        mine = np.ascontiguousarray(W[self.rows])
        every = np.arange(len(mine), dtype=np.int32)
        found = search.best(mine, every, PLACES, crew, seen=self.left_out, blank=True)
        return ndcg(found[0], self.relevant)


def _keys(seen: RatedItems, items: int) -> Longs:
    return np.repeat(np.arange(len(seen.indptr) - 1), np.diff(seen.indptr)) * items + seen.indices


def _grouped(test: EntryArrays, which: NDArray[np.bool_], place: Longs, rows: int, items: int) -> RatedItems:
    """Group the chosen entries by row, columns ascending and unique; unknown columns are numbered from `items` on."""
    at = np.flatnonzero(which)
    at = at[place[test.rows[at]] >= 0]
    cols = test.cols[at].astype(np.int64)
    strange = (cols < 0) | (cols >= items)
    cols[strange] = items + np.arange(int(strange.sum()))
    size = items + len(at)
    keys = np.unique(place[test.rows[at]] * size + cols)
    indptr = np.concatenate([[0], np.cumsum(np.bincount(keys // size, minlength=rows))]).astype(np.int64)
    return RatedItems(indptr, (keys % size).astype(np.int32))


@dataclass(frozen=True, eq=False)
class HeldRanking:
    """Held-out entries of implicit feedback, measured after each epoch."""

    ranking: Ranking
    cols: BlockPartition | None = None  # order of the column factors; None: the user's

    @classmethod
    def of(cls, test: EntryArrays, seen: RatedItems, rows: BlockPartition, cols: BlockPartition) -> HeldRanking:
        """Prepare held-out data for a plan with these partitions."""
        found = cls.out(test, seen, cols).ranking
        return cls(replace(found, rows=rows.place[found.rows]), cols)

    @classmethod
    def out(cls, test: EntryArrays, seen: RatedItems, cols: BlockPartition) -> HeldRanking:
        """Prepare held-out data for a plan that keeps rows and columns in their own order."""
        found = Ranking.of(test, seen, len(cols), at_most=_ROWS)
        if not len(found):
            raise DataError(
                "validation: implicit feedback is measured on positive values, and none are held out; hold out more"
            )
        return cls(found)

    def metrics(self, factors: Factors, loss: str, crew: Crew) -> dict[str, float]:
        """NDCG@10, of at most 10,000 rows."""
        H, c = factors.H.array, factors.c.array
        if self.cols is not None:
            H, c = H[self.cols.place], c[self.cols.place] if len(c) else c
        search = TopNIndex.over(H, c, crew)
        return {METRIC: self.ranking.score(search, factors.W.array, crew)}
