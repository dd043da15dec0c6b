"""Measure a fitted factor model on held-out ratings: values of every metric for every user.

Users whom training knows are ranked all items that they do not have in training. Users without ratings in training are
folded in from four fifths of their held-out ratings, and measured on the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.data.records.data import Data
from stretto.errors import DataError
from stretto.metrics.measure import Relevant, information_of, measure
from stretto.metrics.names import ERRORS, TOGETHER, Metric
from stretto.models.factorization import scoring
from stretto.models.factorization.align import (
    Aligned,
    aligned,
    columns_of,
    entries_of,
    has_ids,
    is_matrix,
    refuse_other_columns,
    rows_of,
)
from stretto.models.factorization.fold_in import fold_in
from stretto.models.factorization.row_identity import compare, refuse_unclear
from stretto.models.factorization.side.cold_rows import expected_of
from stretto.runtime.blocks.compressed import by_rows
from stretto.runtime.blocks.crew import Crew
from stretto.solvers.factorization import factors
from stretto.solvers.factorization.factors import PaddedFactors, TopNIndex
from stretto.solvers.factorization.rated_items import RatedItems

Floats = NDArray[np.float64]
_AT_ONCE = 1 << 17  # users whose lists are in memory together


@dataclass(frozen=True)
class Rules:
    """How held-out ratings are judged.

    Attributes
    ----------
    threshold : float or None
        Ratings from here on are relevant; None: positive ones.
    graded : bool
        Gains of NDCG are the ratings.
    filter_seen : bool
        Leave out what users have in training.
    new_users : str
        "fold_in" or "skip".
    """

    threshold: float | None = None
    graded: bool = False
    filter_seen: bool = True
    new_users: str = "fold_in"


@dataclass(eq=False)
class Judged:
    """Values of every user, in groups: those that training knows, then new ones."""

    users: list[NDArray[Any]] = field(default_factory=list)  # rows of the held-out data
    values: list[Floats] = field(default_factory=list)  # [users, ranked metrics]
    covered: dict[int, NDArray[np.bool_]] = field(default_factory=dict)  # by k: which items are in some list
    errors: list[tuple[NDArray[Any], Floats]] = field(default_factory=list)  # (user, prediction − rating)
    new_users: int = 0


def judge(
    model: Any, X: Any, y: Any, metrics: Sequence[Metric], rules: Rules, crew: Crew, *, popular: bool = False
) -> Judged:
    """Measure a fitted `MatrixFactorization` on held-out ratings X. popular: rank by the users of each item instead."""
    learned = model._learned
    if any(metric.name in ERRORS for metric in metrics) and (
        learned.problem.loss == "logistic" or learned.problem.implicit
    ):
        why = "implicit=True" if learned.problem.implicit else 'loss="logistic"'
        raise DataError(
            f"evaluate: rmse and mae are errors of ratings, and this model predicts none ({why}); leave them out of "
            "metrics=, and measure them by a call of their own, of the models that predict ratings"
        )
    data = entries_of(X, y, "keep", named=has_ids(model))
    if not len(data):
        raise DataError("evaluate: there are no ratings to measure on")
    matrix, others = is_matrix(X, data), False
    served, seen = factors.served(model), model.seen()
    if matrix:
        refuse_other_columns(model, data)
        found = compare((len(served.W), len(served.H)), model._values(), seen, data)
        if found == "unclear":
            raise refuse_unclear("evaluate")
        others = found == "other"
    counts = np.bincount(seen.indices, minlength=len(served.H))
    trained = int(np.count_nonzero(np.diff(seen.indptr)))
    if popular:
        served = PaddedFactors(
            np.zeros((len(served.W), served.W.shape[1]), np.float32),
            np.zeros_like(served.H),
            np.zeros(len(served.W), np.float32),
            counts.astype(np.float32),
            0.0,
        )
    task = _Task(served, metrics, rules, information_of(counts, trained), learned.problem.biases or popular, crew,
                 TopNIndex.over(served.H, served.c, crew))  # fmt: skip
    if others:
        entries = None
        new = np.ones(len(data), bool)
    else:
        entries = aligned(data, rows_of(model), columns_of(model), positions=matrix)
        has_some = np.append(np.diff(seen.indptr) > 0, False)
        new = ~has_some[entries.rows]  # −1 is the last entry: nobody
    judged = Judged(covered={metric.k: np.zeros(len(served.H), bool) for metric in metrics if metric.name in TOGETHER})
    if entries is not None and not new.all():
        task.add(judged, _some(entries, ~new), served, seen)
    if new.any() and rules.new_users == "fold_in":
        cut = scoring.cut_rows(_compact(data, new), columns_of(model))
        if len(cut.held):
            known = by_rows(cut.known)
            if popular:
                W, b = np.zeros((cut.known.shape[0], 1), np.float32), np.zeros(cut.known.shape[0], np.float32)
            else:
                index = np.full(len(known.counts), -1, np.int64)
                if entries is not None:
                    index[np.unique(data.rows[new], return_inverse=True)[1]] = entries.rows[new]
                W, b = fold_in(served, known, learned, crew, expected_of(model, index))
            folded = PaddedFactors(_padded_like(W, served.H), served.H, b, served.c, served.mean)
            held = replace(cut.held, own=np.unique(data.rows[new])[cut.held.rows])
            judged.new_users = len(np.unique(held.rows))
            task.add(judged, held, folded, RatedItems(known.indptr, known.indices))
    return judged


@dataclass(frozen=True, eq=False)
class _Task:
    """What is measured, for one group of users after another."""

    served: PaddedFactors
    metrics: Sequence[Metric]
    rules: Rules
    information: Floats
    biased: bool
    crew: Crew
    search: TopNIndex  # over the items of `served`

    def add(self, judged: Judged, data: Aligned, model: PaddedFactors, seen: RatedItems) -> None:
        """Measure users with factors model.W, whose held-out ratings are `data`."""
        ranked = [metric for metric in self.metrics if metric.name not in (*ERRORS, *TOGETHER)]
        if ranked or judged.covered:
            self._rank(judged, data, model, seen, ranked)
        if any(metric.name in ERRORS for metric in self.metrics):
            guess = factors.predict(model, data.rows, data.cols, self.crew)
            judged.errors.append((data.own, guess.astype(np.float64) - data.values))

    def _rank(
        self, judged: Judged, data: Aligned, model: PaddedFactors, seen: RatedItems, ranked: list[Metric]
    ) -> None:
        relevant = relevant_of(data, len(model.H), self.rules, len(model.W))
        rows = np.flatnonzero(np.diff(relevant.indptr)).astype(np.int32)
        if not len(rows):
            return
        deepest = max(metric.k for metric in self.metrics)
        left_out = seen if self.rules.filter_seen else None
        values = np.empty((len(rows), len(ranked)))
        for first in range(0, len(rows), _AT_ONCE):
            some = rows[first : first + _AT_ONCE]
            lists = self.search.best(model.W, some, deepest, self.crew, seen=left_out, blank=not self.biased)
            for k, items in judged.covered.items():
                shown = lists[0][:, :k]
                items[shown[shown >= 0]] = True
            if ranked:
                values[first : first + _AT_ONCE] = measure(
                    lists[0], relevant, ranked, self.crew,
                    items=len(model.H), rows=some, seen=left_out, information=self.information,
                )  # fmt: skip
        own = np.empty(len(model.W), np.int64)
        own[data.rows] = data.own
        judged.users.append(own[rows])
        judged.values.append(values)


def relevant_of(data: Aligned, items: int, rules: Rules, rows: int) -> Relevant:
    """The relevant ratings by row; items that the model does not know have numbers from `items` on."""
    wanted = data.values > 0 if rules.threshold is None else data.values >= rules.threshold
    cols = data.cols[wanted]
    unknown = np.flatnonzero(cols < 0)
    cols = cols.copy()
    cols[unknown] = items + np.arange(len(unknown))
    kept = Aligned(data.rows[wanted], cols, data.values[wanted], (rows, items + len(unknown)), data.own[wanted])
    if rules.graded and bool(np.any(kept.values <= 0)):
        raise DataError("evaluate: graded=True takes ratings as gains, and a relevant one is not positive")
    return Relevant.of(kept, graded=rules.graded)


def _some(data: Aligned, which: NDArray[np.bool_]) -> Aligned:
    return Aligned(data.rows[which], data.cols[which], data.values[which], data.shape, data.own[which])


def _compact(data: Data, which: NDArray[np.bool_]) -> Data:
    """Some records, whose rows are numbered anew and lose their ids."""
    part = data.take(which)
    own, rows = np.unique(part.rows, return_inverse=True)
    return Data(
        rows.astype(np.int32), part.cols, part.values, (len(own), data.shape[1]), None, None, data.col_ids, data.source
    )


def _padded_like(W: NDArray[np.float32], H: NDArray[np.float32]) -> NDArray[np.float32]:
    wide = np.zeros((len(W), H.shape[1]), np.float32)
    wide[:, : W.shape[1]] = W
    return wide
