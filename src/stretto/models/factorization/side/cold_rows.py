"""Rows and columns that were not in training: from ratings, from features, or from both."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.data.records.ids import IdMap
from stretto.errors import DataError
from stretto.models.factorization.align import Aligned, columns_of, entries_of, has_ids, is_matrix, refuse_other_columns
from stretto.models.factorization.continue_fit import RatingBatches
from stretto.models.factorization.fold_in import Means
from stretto.runtime.blocks.compressed import Compressed, by_rows
from stretto.runtime.blocks.crew import Crew

from .feature_map import FeatureMap
from .tables import FeatureTable, read_features

_NOTHING = np.zeros(0, np.int32)


@dataclass(frozen=True, eq=False)
class NewRatings:
    """Ratings of new rows, of columns that the model knows."""

    rows: NDArray[np.int32]
    cols: NDArray[np.int32]
    values: NDArray[np.float32]
    size: int  # rows
    ids: IdMap | None

    @classmethod
    def of(cls, model: Any, X: Any, y: Any) -> NewRatings:
        """From what a user gave; ratings of other columns are left out with a warning."""
        data = entries_of(X, y, "keep", named=has_ids(model))
        matrix = is_matrix(X, data)
        if matrix:
            refuse_other_columns(model, data)
        cols = columns_of(model).index(data.col_ids, data.cols, positions=matrix)
        known = cols >= 0
        if len(known) and not known.any():
            raise DataError(
                f"fold_in: the model knows none of the columns of these {len(known)} ratings; give columns the ids "
                "that they had in training"
            )
        if not known.all():
            warnings.warn(
                f"fold_in: {int((~known).sum())} of {len(known)} ratings are of columns that training never saw; they "
                "are left out",
                UserWarning,
                stacklevel=5,
            )
        rows = data.rows[known].astype(np.int32)
        return cls(rows, cols[known], data.values[known], data.shape[0], data.row_ids)


def compressed(ratings: NewRatings | None, ids: IdMap | None, shape: tuple[int, int]) -> Compressed:
    """Ratings by row, with rows numbered by `ids`."""
    if ratings is None:
        return by_rows(Aligned(_NOTHING, _NOTHING, np.zeros(0, np.float32), shape, _NOTHING))
    rows = ratings.rows
    if ids is not None and ratings.ids is not None and ids is not ratings.ids:
        rows = ids.encode(ratings.ids.ids)[rows]
    return by_rows(Aligned(rows, ratings.cols, ratings.values, shape, rows))


def rows_of(ratings: NewRatings | None, table: FeatureTable | None) -> tuple[IdMap | None, int]:
    """Ids and number of the rows that have ratings or features."""
    if table is None:
        assert ratings is not None
        return ratings.ids, ratings.size
    own = table.id_map()
    if ratings is None:
        return own, len(table.matrix)
    if own is not None and ratings.ids is not None:
        if own.is_text != ratings.ids.is_text:
            raise DataError("fold_in: of ratings and user_features, one has ids that are text; give both the same ids")
        ids = IdMap.of(np.concatenate([own.ids, ratings.ids.ids]))
        return ids, len(ids)
    return ratings.ids, ratings.size


def read_new(map_: FeatureMap | None, given: Any, option: str) -> FeatureTable:
    """Features of new rows or columns, which are those of the fit."""
    if map_ is None:
        raise DataError(f"the model was fitted without {option}; give them to fit too: fit(X, {option}=…)")
    return read_features(given, option, map_.columns)


def expected(
    map_: FeatureMap | None, table: FeatureTable | None, ids: IdMap | None, size: int, crew: Crew
) -> Means | None:
    """Factors and biases that are expected of rows; None for a model without features of rows."""
    if map_ is None:
        return None
    return map_.average(size) if table is None else map_.means(table.aligned(ids, size), crew)


def expected_of(model: Any, rows: NDArray[Any]) -> Means | None:
    """`expected` of rows by their index in a model that may have their features; −1 for others."""
    map_: FeatureMap | None = model.user_feature_map_
    if map_ is None:
        return None
    W, b = map_.average(len(rows))
    known = rows >= 0
    W[known], b[known] = model.user_factors_[rows[known]], model.user_bias_[rows[known]] if len(model.user_bias_) else 0
    return W, b


def add_items(model: Any, item_features: Any) -> None:
    """Add columns to a fitted model, with the factors and biases that their features stand for."""
    table = read_new(model.item_feature_map_, item_features, "item_features")
    old, n = model.item_ids_, len(model.item_factors_)
    own = table.id_map()
    if (own is None) != (old is None):
        has = ("are numbered from 0", "with ids") if old is None else ("have ids", "without")
        raise DataError(f"add_items: the items of the model {has[0]}, and these features are {has[1]}; give them alike")
    ids: IdMap | None = None
    place: NDArray[Any] = np.arange(n)
    new: NDArray[Any] = np.arange(n, n + len(table.matrix))
    if table.ids is not None and own is not None and old is not None:
        if own.is_text != old.is_text:
            raise DataError("add_items: of the ids of the model and of these items, one is text; give them alike")
        known = np.flatnonzero(old.encode(own.ids, unknown="mark") >= 0)
        if len(known):
            raise DataError(f"add_items: the model has item {own.ids.tolist()[known[0]]!r} already; give new ones only")
        ids = IdMap.of(np.concatenate([old.ids, own.ids]))
        place, new = ids.encode(old.ids), ids.encode(table.ids)
    with model._here().open() as crew:
        H, c = model.item_feature_map_.means(table.matrix, crew)
    seen, source = model.seen(), model._trained_on
    factors, bias = np.empty((n + len(H), H.shape[1]), np.float32), np.empty(n + len(H), np.float32)
    factors[place], bias[place] = model.item_factors_, model.item_bias_ if len(model.item_bias_) else 0.0
    factors[new], bias[new] = H, c
    model.item_factors_, model.item_ids_, model.n_features_in_ = factors, ids, len(factors)
    model.item_bias_ = bias if len(model.item_bias_) else model.item_bias_
    model._seen = replace(seen, indices=place[seen.indices].astype(np.int32))
    if source is not None:
        batches = RatingBatches.of(source, None)
        moved = tuple((rows, place[cols].astype(np.int32), values) for rows, cols, values in batches.parts)
        model._trained_on = RatingBatches(moved, (batches.shape[0], len(factors)), batches.whole)
