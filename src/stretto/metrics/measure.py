"""Measure ranked lists: every metric of every user in one pass of a compiled kernel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.kernels.ranking.measures import MEASURES, fill_information, measure_worker
from stretto.runtime.blocks.compressed import by_rows
from stretto.runtime.blocks.crew import Crew
from stretto.runtime.blocks.source import EntryArrays
from stretto.runtime.blocks.step import make_step, parts
from stretto.schedule.orders.rotation import independent

from .names import Metric

Floats = NDArray[np.float64]
_PARTS, _LEAST = 64, 1024
_NO_SEEN = (np.zeros(1, np.int64), np.zeros(0, np.int32))


@dataclass(frozen=True, eq=False)
class Relevant:
    """Held-out items of each row, as compressed rows.

    Attributes
    ----------
    indptr : ndarray of int64 [rows + 1]
        Where each row begins.
    indices : ndarray of int32 [n]
        Items, ascending and unique in each row.
    gains : ndarray of float64 [n] or [0]
        Gain of each item, for NDCG; of length 0 if every gain is 1.
    """

    indptr: NDArray[np.int64]
    indices: NDArray[np.int32]
    gains: Floats

    @classmethod
    def of(cls, data: EntryArrays, *, graded: bool = False) -> Relevant:
        """Group entries by row. graded: gains are the values; of a pair that occurs twice the larger one counts."""
        found = by_rows(data)
        indptr, indices, values = found.indptr, found.indices, found.values
        if found.repeats:
            row = np.repeat(np.arange(len(indptr) - 1), found.counts)
            last = np.append((np.diff(row) != 0) | (np.diff(indices) != 0), True)
            indptr = np.searchsorted(row[last], np.arange(len(indptr))).astype(np.int64)
            indices, values = indices[last], values[last]
        return cls(indptr, indices, values.astype(np.float64) if graded else np.zeros(0))

    def __len__(self) -> int:
        return len(self.indptr) - 1


def information_of(counts: NDArray[Any], users: int) -> Floats:
    """[items] information of each item in bits: −log₂ of its share of the users, counted with one user more."""
    made = np.empty(len(counts))
    fill_information(np.ascontiguousarray(counts, np.int64), int(users), made)
    return made


def measure(
    found: NDArray[np.int32],
    relevant: Relevant,
    metrics: Sequence[Metric],
    crew: Crew,
    *,
    items: int,
    rows: NDArray[Any] | None = None,
    seen: Any = None,
    information: Floats | None = None,
) -> Floats:
    """[m, metrics] values of every user; NaN where a metric is not defined, as without relevant items.

    Parameters
    ----------
    found : ndarray of int32 [m, n]
        Ranked items, best first, −1 for none.
    relevant : Relevant
        Held-out items.
    metrics : sequence of Metric
        Metrics of single users.
    crew : Crew
        Makes the visits; the number of threads changes no bit.
    items : int
        How many items there are, for auc.
    rows : ndarray of int32 [m] or None
        Rows of `relevant` and `seen` that `found` is about; None for 0, 1, …
    seen : RatedItems or None
        Items of training, which are left out of the relevant ones.
    information : ndarray [items] or None
        See `information_of`; for novelty and popularity bias.
    """
    values = np.empty((len(found), len(metrics)))
    users = np.arange(len(found), dtype=np.int32) if rows is None else np.ascontiguousarray(rows, np.int32)
    places = np.unique([metric.k for metric in metrics]).astype(np.int64)
    columns = np.full((len(places), len(MEASURES)), -1, np.int64)
    for at, metric in enumerate(metrics):
        columns[np.searchsorted(places, metric.k), MEASURES.index(metric.name)] = at
    bounds = parts(len(found), _PARTS, _LEAST)
    args: tuple[Any, ...] = (bounds, users, np.ascontiguousarray(found, np.int32))
    args += (relevant.indptr, relevant.indices, relevant.gains)
    args += _NO_SEEN if seen is None else (seen.indptr, seen.indices)
    args += (int(items), np.zeros(0) if information is None else information, places, columns, values)
    order = independent(len(bounds) - 1)
    crew.run(make_step("measure lists", measure_worker, order, np.diff(bounds), *args), "exact")
    return values


def mean(values: Floats) -> float:
    """Mean of the values that are defined; NaN if none is."""
    kept = values[~np.isnan(values)]
    return float(kept.mean()) if len(kept) else float("nan")
