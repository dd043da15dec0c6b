"""`score` of `MatrixFactorization`: prediction error, or NDCG@10 of implicit feedback, for training rows or new rows.

New rows are folded in from part of their ratings and measured on the rest. A hash of the position of each rating in the
matrix decides which part, so the same matrix is always measured on the same ratings.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np

from stretto.data.records.data import Data, held_out
from stretto.errors import DataError
from stretto.kernels.factorization.loss_codes import CODES
from stretto.kernels.factorization.predict import cost_worker
from stretto.runtime.blocks.compressed import by_rows
from stretto.runtime.blocks.crew import Crew
from stretto.runtime.blocks.source import EntryArrays
from stretto.runtime.blocks.step import make_step, parts
from stretto.schedule.orders.rotation import independent
from stretto.solvers.factorization import factors
from stretto.solvers.factorization.factors import PaddedFactors, TopNIndex
from stretto.solvers.factorization.held_out import mean_cost, named
from stretto.solvers.factorization.ndcg import Ranking
from stretto.solvers.factorization.rated_items import RatedItems

from .align import Aligned, AxisIds, aligned, columns_of, entries_of, has_ids, is_matrix, refuse_other_columns, rows_of
from .fitted_problem import FittedProblem
from .fold_in import fold_in
from .row_identity import compare, refuse_unclear
from .side.feature_map import FeatureMap

# Share of the ratings of a new row that it is measured on.
HELD_SHARE = 0.2
_PARTS, _LEAST = 64, 4096


def score(model: Any, X: Any, y: Any) -> float:
    """Compute `MatrixFactorization.score` of X, for a fitted estimator."""
    data = entries_of(X, y, "keep", named=has_ids(model))
    if not len(data):
        raise DataError("score: there are no ratings to measure on")
    matrix, new = is_matrix(X, data), False
    served, learned = factors.served(model), model._learned
    if matrix:
        refuse_other_columns(model, data)
        found = compare((len(served.W), len(served.H)), model._values(), model.seen(), data)
        if found == "unclear":
            raise refuse_unclear("score")
        new = found == "other"
    with model._here().open() as crew:
        if new:
            return measure_new(served, data, columns_of(model), learned, crew, model.user_feature_map_)
        entries = aligned(data, rows_of(model), columns_of(model), positions=matrix)
        warn_unknown(entries)
        return measure(served, entries, learned, model.seen() if learned.problem.implicit else None, crew)


def error(model: PaddedFactors, data: EntryArrays, loss: str, crew: Crew) -> float:
    """RMSE, mean absolute error or log loss of the predictions; an index outside the factors contributes nothing."""
    entries = len(data.values)
    bounds = parts(entries, _PARTS, _LEAST)
    args = (bounds, data.rows, data.cols, data.values, model.W, model.H, model.b, model.c, np.float32(model.mean))
    step = make_step("measure", cost_worker, independent(len(bounds) - 1), np.diff(bounds), *args, CODES[loss])
    total = factors.run(crew, step).total()
    (value,) = named("test", mean_cost(total, entries, loss, 1.0), loss).values()
    return value


def measure(model: PaddedFactors, data: Aligned, learned: FittedProblem, seen: RatedItems | None, crew: Crew) -> float:
    """The score, higher is better: minus the error, or NDCG@10, in which rows unknown to the model count as 0.

    seen : items of the rows in training, for implicit feedback
    """
    if seen is None or not learned.problem.implicit:
        return -error(model, data, learned.problem.loss, crew)
    rows = len(np.unique(data.own[data.values > 0]))
    if not rows:
        raise DataError("score of implicit feedback ranks entries with positive values, and there are none")
    ranking = Ranking.of(data, seen, len(model.H))
    if not len(ranking):
        return 0.0
    return len(ranking) / rows * ranking.score(TopNIndex.over(model.H, model.c, crew), model.W, crew)


def warn_unknown(data: Aligned) -> None:
    """Warn if most pairs have a row or column that is not in the training data: only mean and biases predict them."""
    for what, index in (("rows", data.rows), ("columns", data.cols)):
        unknown = int(np.count_nonzero(index < 0))
        if 2 * unknown > len(index):
            warnings.warn(
                f"score: {unknown} of {len(index)} pairs have {what} that training never saw, so mean and biases are "
                "all that predicts them; if folds were cut from a sorted table, shuffle it: KFold(5, shuffle=True), or "
                "use st.cross_validate",
                UserWarning,
                stacklevel=4,
            )


@dataclass(frozen=True, eq=False)
class FoldInSplit:
    """Ratings of new rows: `known` is folded in, `held` is measured. Columns are in the model's numbering."""

    known: Aligned
    held: Aligned


def cut_rows(data: Data, cols: AxisIds) -> FoldInSplit:
    """Split the ratings of new rows in two, by position; columns unknown to the model are in `held` only."""
    sorted_ = by_rows(data)  # the same matrix in any format is split at the same positions
    rows = np.repeat(np.arange(data.shape[0], dtype=np.int32), sorted_.counts)
    index = cols.index(data.col_ids, sorted_.indices, positions=True)
    mask = held_out(0, len(rows), HELD_SHARE, seed=0)
    pieces = [
        Aligned(rows[m], index[m], sorted_.values[m], (data.shape[0], cols.size), rows[m])
        for m in (~mask & (index >= 0), mask)
    ]
    return FoldInSplit(*pieces)


def measure_new(
    model: PaddedFactors, data: Data, cols: AxisIds, learned: FittedProblem, crew: Crew, map_: FeatureMap | None
) -> float:
    """The score of new rows, each folded in from four fifths of its ratings."""
    cut = cut_rows(data, cols)
    if not len(cut.held):
        raise DataError(
            f"score: {len(data)} ratings of rows that training did not see are too few to fold in some and measure on "
            "the others; give more rows"
        )
    compressed = by_rows(cut.known)
    means = None if map_ is None else map_.average(len(compressed.counts))
    W, b = fold_in(model, compressed, learned, crew, means)
    new = PaddedFactors(factors.whole_lanes(W), model.H, b, model.c, model.mean)
    return measure(new, cut.held, learned, RatedItems(compressed.indptr, compressed.indices), crew)
