"""Map rows and columns of new data to the indices of a fitted model.

Rows and columns are matched by id, or by index if data or model have no ids. Positions in a matrix are the model's
indices. A row or column that the model does not know gets the index −1. Predictions use the known part only, so `score`
measures exactly what `predict` returns.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.data.convert.convert import as_data, plain_array
from stretto.data.convert.frames import as_frame, pair_columns
from stretto.data.convert.scipy_entries import is_sparse
from stretto.data.records.data import Data
from stretto.data.records.ids import IdMap
from stretto.errors import DataError

from .arguments import as_matrix

Ints = NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class AxisIds:
    """Ids of a model along one axis."""

    ids: IdMap | None  # None if indices are used
    size: int  # number of rows or columns
    what: str  # "row" or "column"

    def index(self, own: IdMap | None, index: NDArray[Any], *, positions: bool = False) -> Ints:
        """Indices of the model for indices of data whose ids are `own`; −1 if the model does not know it.

        Without ids, indices are matched as ids, unless they are positions in a matrix.
        """
        if own is None and (self.ids is None or positions):
            found: Ints = np.where((index >= 0) & (index < self.size), index, -1).astype(np.int32)
            return found
        if own is None and self.ids is not None and not self.ids.is_text:
            return self.ids.encode(index, unknown="mark")
        if self.ids is not None and own is not None:
            known: Ints = self.ids.encode(own.ids, unknown="mark")[index]
            return known
        if own is None or own.is_text:
            by, given = ("index", "text") if self.ids is None else ("text ids", "number")
            raise DataError(
                f"the model knows {self.what}s by {by}, and these data name them by {given}; give them the names they "
                "had in training"
            )
        inside = (own.ids >= 0) & (own.ids < self.size)
        return np.asarray(np.where(inside, own.ids, -1).astype(np.int32)[index])


@dataclass(frozen=True, eq=False)
class Aligned:
    """Entries with the indices of a model; −1 for a row or column that it does not know."""

    rows: Ints
    cols: Ints
    values: NDArray[np.float32]
    shape: tuple[int, int]
    own: NDArray[Any]  # rows with the indices of the data

    def __len__(self) -> int:
        return len(self.values)


def aligned(data: Data, rows: AxisIds, cols: AxisIds, *, positions: bool = False) -> Aligned:
    """Data with a model's indices. positions: the data are a matrix with the rows and columns of the model."""
    own = (
        rows.index(data.row_ids, data.rows, positions=positions),
        cols.index(data.col_ids, data.cols, positions=positions),
    )
    return Aligned(*own, data.values, (rows.size, cols.size), data.rows)


def has_ids(model: Any) -> bool:
    """Whether a fitted estimator has ids of rows and columns."""
    return model.user_ids_ is not None or model.item_ids_ is not None


def rows_of(model: Any) -> AxisIds:
    """Row ids of a fitted estimator."""
    return AxisIds(model.user_ids_, len(model.user_factors_), "row")


def columns_of(model: Any) -> AxisIds:
    """Column ids of a fitted estimator."""
    return AxisIds(model.item_ids_, len(model.item_factors_), "column")


def refuse_other_columns(model: Any, data: Data) -> None:
    """DataError, with scikit-learn's message, for a matrix with more or fewer columns than in training."""
    if data.shape[1] != model.n_features_in_:
        expected = f"{type(model).__name__} is expecting {model.n_features_in_} features as input"
        raise DataError(f"X has {data.shape[1]} features, but {expected}")


def entries_of(X: Any, y: Any, duplicates: str, *, named: bool = False) -> Data:
    """`Data` of X alone, or of pairs X (users and items, two columns) and their ratings y.

    y without pairs is ignored, as by every transformer of scikit-learn, unless X cannot be a matrix of samples.

    named : a tuple of three arrays holds ids, because the model has ids
    """
    if y is not None and is_pairs(X):
        users, items = pair_arrays(X)
        ratings = plain_array(y, "pairs and ratings")
        if ratings.shape != (len(users),):
            raise DataError(f"{len(users)} pairs need as many ratings; y has shape {ratings.shape}")
        return as_data((users, items, ratings), duplicates=duplicates, map_ids=True, source="pairs and ratings")
    if y is not None and (isinstance(X, Data | str | tuple) or hasattr(X, "__fspath__")):
        raise DataError(
            f"X ({type(X).__name__}) holds the ratings already; leave y out, or give pairs as X: an array of two "
            "columns, user and item"
        )
    if named and isinstance(X, tuple):
        return as_data(X, duplicates=duplicates, map_ids=True)
    return as_matrix(X, duplicates=duplicates)


def is_matrix(X: Any, data: Data) -> bool:
    """Whether `data`, made from X, are a matrix, whose rows and columns have positions and no ids."""
    return data.row_ids is None and (is_sparse(X) or data.source == "dense matrix")


def is_pairs(X: Any) -> bool:
    """Whether X is a table of two columns of ids, text or integers, and not a matrix of two columns."""
    if is_sparse(X) or isinstance(X, Data | str | tuple):
        return False
    if as_frame(X, "pairs") is not None:
        return len(X.columns) == 2
    if isinstance(X, list):
        two = bool(X) and all(isinstance(line, list | tuple) and len(line) == 2 for line in X)
    else:
        two = len(getattr(X, "shape", ())) == 2 and X.shape[1] == 2
    return two and all(_may_be_ids(column) for column in pair_arrays(X))


def _may_be_ids(column: NDArray[Any]) -> bool:
    if column.dtype.kind != "f":
        return column.dtype.kind in "iuUTSO"
    return bool(np.all(np.isfinite(column) & (column == np.floor(column))))


def pair_arrays(X: Any) -> tuple[NDArray[Any], NDArray[Any]]:
    """(users, items) of a table of two columns."""
    frame = as_frame(X, "pairs")
    if frame is not None:
        return pair_columns(frame, "pairs")
    if isinstance(X, list):  # NumPy would convert numbers beside text to text
        return np.asarray([line[0] for line in X]), np.asarray([line[1] for line in X])
    return np.asarray(X[:, 0]), np.asarray(X[:, 1])
