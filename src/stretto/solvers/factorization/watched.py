"""A ranking metric of held-out ratings, measured after each epoch: for early stopping."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from stretto.data.partition import BlockPartition
from stretto.errors import DataError, PlanError
from stretto.metrics.measure import Relevant, mean, measure
from stretto.metrics.names import RANKED, Metric, parse
from stretto.runtime.blocks.crew import Crew
from stretto.runtime.blocks.source import EntryArrays

from .factors import TopNIndex
from .ndcg import METRIC, HeldRanking
from .problem import Factors
from .rated_items import RatedItems

# Rows measured after each epoch; more would hardly change the mean.
_ROWS = 10_000
_NEED_POPULARITY = ("novelty", "popularity_bias")


class Held(Protocol):
    """Held-out ratings that a job measures after each epoch."""

    def metrics(self, factors: Factors, loss: str, crew: Crew) -> dict[str, float]: ...


def metric_of(early_stopping: Any) -> Metric:
    """The metric that `early_stopping` names."""
    found = parse(early_stopping, "early_stopping")
    if found.name not in RANKED or found.name in _NEED_POPULARITY:
        raise PlanError(
            f"early_stopping={early_stopping!r}: it watches precision, recall, ndcg, map, mrr, hit_rate or auc, such "
            "as 'ndcg@10'; True watches the error"
        )
    return found


def key_of(metric: Metric) -> str:
    """Name of the metric in `history_` and in run records.

    >>> key_of(parse("ndcg@10"))
    'test_ndcg@10'
    """
    return f"test_{metric}"


@dataclass(frozen=True, eq=False)
class WatchedRanking:
    """Held-out ratings whose ranking is measured besides what the job measures by itself."""

    first: Held
    metric: Metric
    users: NDArray[np.int32]  # rows that are measured, in the user's numbering
    relevant: Relevant
    seen: RatedItems
    rows: BlockPartition  # order of the factors
    cols: BlockPartition
    biased: bool

    @classmethod
    def of(
        cls,
        first: Held,
        metric: Metric,
        test: EntryArrays,
        seen: RatedItems,
        cuts: tuple[BlockPartition, BlockPartition],
        *,
        biased: bool,
    ) -> Held:
        """Measure `metric` as well; the same object if it measures that already."""
        if isinstance(first, HeldRanking) and key_of(metric) == METRIC:
            return first
        items, known = len(cuts[1]), (test.rows >= 0) & (test.rows < len(cuts[0])) & (test.values > 0)
        cols = test.cols[known].astype(np.int64)
        strange = np.flatnonzero((cols < 0) | (cols >= items))
        cols[strange] = items + np.arange(len(strange))
        shape = (len(cuts[0]), items + len(strange))
        kept = _Entries(test.rows[known].astype(np.int32), cols.astype(np.int32), test.values[known], shape)
        relevant = Relevant.of(kept)
        users = np.flatnonzero(np.diff(relevant.indptr)).astype(np.int32)
        if not len(users):
            raise DataError(f"early_stopping={str(metric)!r} ranks positive held-out values, and there are none")
        if len(users) > _ROWS:
            users = users[np.linspace(0, len(users) - 1, _ROWS).astype(np.int64)]
        return cls(first, metric, users, relevant, seen, *cuts, biased)

    def metrics(self, factors: Factors, loss: str, crew: Crew) -> dict[str, float]:
        """What the job measures, and the ranking of at most 10,000 rows."""
        found = self.first.metrics(factors, loss, crew)
        W = np.ascontiguousarray(factors.W.array[self.rows.place[self.users]])
        c = factors.c.array
        search = TopNIndex.over(factors.H.array[self.cols.place], c[self.cols.place] if len(c) else c, crew)
        own = self._of_users(self.seen)
        every = np.arange(len(W), dtype=np.int32)
        lists = search.best(W, every, self.metric.k, crew, seen=own, blank=not self.biased)
        values = measure(
            lists[0], self.relevant, [self.metric], crew, items=len(self.cols), rows=self.users, seen=self.seen
        )
        return found | {key_of(self.metric): mean(values[:, 0])}

    def _of_users(self, seen: RatedItems) -> RatedItems:
        """The items of the measured rows, in their order."""
        counts = np.diff(seen.indptr)[self.users]
        indptr = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        at = np.repeat(seen.indptr[self.users] - indptr[:-1], counts) + np.arange(int(indptr[-1]))
        return RatedItems(indptr, seen.indices[at])


@dataclass(frozen=True, eq=False)
class _Entries:
    rows: NDArray[Any]
    cols: NDArray[Any]
    values: NDArray[np.float32]
    shape: tuple[int, int]
