"""Side features that a user gives: tables, matrices, or ids with a matrix, as a sparse matrix with the ids of its rows.

A table has a column of ids; of the others, numbers are features, and text has one feature for each of its values, or
for each part between "|". `FeatureColumns` remembers this, so that tables of new rows give the same features.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.data.convert.convert import plain_array
from stretto.data.convert.frames import EagerFrame, as_frame, ids_of_column
from stretto.data.convert.roles import ITEM_NAMES, USER_NAMES, plain_name
from stretto.data.convert.sparse_structure import is_sparse, verified
from stretto.data.records.ids import IdMap
from stretto.errors import DataError
from stretto.solvers.factorization.features import FeatureMatrix

from .feature_map import FeatureColumns

_NAMES = {"user_features": USER_NAMES, "item_features": ITEM_NAMES}
_BETWEEN = "|"  # separates the values of one row in a column of text


@dataclass(frozen=True, eq=False)
class FeatureTable:
    """Features of some rows, as they were given."""

    matrix: FeatureMatrix
    ids: NDArray[Any] | None  # [m]; None: the rows are those of the data, in their order
    columns: FeatureColumns
    option: str  # "user_features" or "item_features"

    def aligned(self, ids: IdMap | None, size: int) -> FeatureMatrix:
        """The features in a model's numbering."""
        if self.ids is None:
            if len(self.matrix) != size:
                named = "" if ids is None else ", in the order of their ids"
                raise DataError(
                    f"{self.option} has {len(self.matrix)} rows without ids, and the data have {size} to be described"
                    f"{named}; give as many rows, or features with ids: a table with a column of ids, or (ids, matrix)"
                )
            return self.matrix
        index = _index_of(self.ids, ids, size, self.option)
        where = np.full(size, -1, np.int64)
        where[index[index >= 0]] = np.flatnonzero(index >= 0)
        return self.matrix.taken(where)

    def id_map(self) -> IdMap | None:
        """The ids of the rows, sorted."""
        return None if self.ids is None else IdMap.of(self.ids)


def _index_of(own: NDArray[Any], ids: IdMap | None, size: int, option: str) -> NDArray[Any]:
    if ids is not None:
        return ids.encode(own, unknown="mark")
    numbers = IdMap.of(own)
    if numbers.is_text or (len(numbers) and (int(numbers.ids[0]) < 0 or int(numbers.ids[-1]) >= size)):
        raise DataError(
            f"{option} has ids, such as {numbers.ids.tolist()[-1]!r}, and the ratings have none: they are numbered "
            f"from 0, here to {size - 1}; give a table of ratings with ids, or features in that order"
        )
    return np.asarray(own, np.int64)


def read_features(given: Any, option: str, columns: FeatureColumns | None = None) -> FeatureTable:
    """Features from what a user gave.

    Parameters
    ----------
    given : data frame, (ids, matrix), path, sparse or dense matrix
    option : str
        "user_features" or "item_features".
    columns : FeatureColumns or None
        Of the fit, for the features of new rows.
    """
    given = _from_file(given, option)
    ids, what = None, given
    if isinstance(given, tuple):
        if len(given) != 2:
            raise DataError(f"{option} is a tuple of {len(given)}; give (ids, matrix)")
        ids, what = plain_array(given[0], option), given[1]
    frame = as_frame(what, option)
    if frame is not None:
        at = None if ids is not None else _id_column(frame, option)
        ids = ids if at is None else ids_of_column(frame.column(at), option[:4], frame.names[at], option)
        matrix, columns = _from_frame(frame, at, option, columns)
    else:
        matrix = _from_sparse(what, option) if is_sparse(what) else _from_dense(what, option)
        if columns is not None and (columns.names or matrix.columns != columns.count):
            form = "a table" if columns.names else f"a matrix of {columns.count} columns"
            raise DataError(
                f"{option} is a matrix of {matrix.columns} columns, and fit had {form}; give the features in that form"
            )
        columns = columns or FeatureColumns(matrix.columns)
    if not columns.count:
        raise DataError(f"{option} has no features; give at least one column besides the ids, or leave it out")
    if ids is not None:
        ids = np.asarray(IdMap.of(ids).ids)[IdMap.of(ids).encode(ids)]  # of the types that ids have
        if len(ids) != len(matrix):
            raise DataError(f"{option} has {len(ids)} ids and {len(matrix)} rows; give one id for each row")
        if len(IdMap.of(ids)) < len(ids):
            names, counts = np.unique(ids, return_counts=True)
            twice = names[counts > 1].tolist()[0]
            raise DataError(f"{option} describes {twice!r} more than once; give each id one row")
    bad = np.flatnonzero(~np.isfinite(matrix.values))
    if len(bad):
        row = int(np.searchsorted(matrix.indptr, bad[0], side="right")) - 1
        raise DataError(
            f"{option} has a missing or infinite value in row {row}, feature "
            f"{columns.feature_names()[matrix.indices[bad[0]]]!r}; fill it, such as with the mean, or leave the row out"
        )
    return FeatureTable(matrix, ids, columns, option)


def _from_file(given: Any, option: str) -> Any:
    """A table from a CSV file; anything else unchanged."""
    if not (isinstance(given, str) or hasattr(given, "__fspath__")):
        return given
    try:
        import pandas
    except ImportError:
        raise DataError(f"{option} is a file, which pandas reads; install pandas, or give a table") from None
    try:
        return pandas.read_csv(given, sep=None, engine="python")
    except (OSError, ValueError) as error:
        raise DataError(f"{option}: cannot read {str(given)!r} ({error}); give a CSV file with a header") from error


def _id_column(frame: EagerFrame, option: str) -> int | None:
    """The column of ids: named id or like those of ratings. None: the rows are in order."""
    plain = [plain_name(name) for name in frame.names]
    for wanted in (_NAMES[option], frozenset({"id"})):
        found = [k for k, name in enumerate(plain) if name in wanted]
        if len(found) > 1:
            names = " and ".join(repr(str(frame.names[k])) for k in found)
            raise DataError(f"{option}: {names} may each be the ids; rename one, or give (ids, table of the others)")
        if found:
            return found[0]
    return None


def _from_frame(
    frame: EagerFrame, at: int | None, option: str, columns: FeatureColumns | None
) -> tuple[FeatureMatrix, FeatureColumns]:
    others = {str(name): frame.column(k) for k, name in enumerate(frame.names) if k != at}
    if columns is not None:
        lacking = [name for name, _ in columns.names if name not in others]
        if lacking or not columns.names:
            what = f"lacks the column {lacking[0]!r} that" if lacking else "is a table, and a matrix is what"
            raise DataError(f"{option} {what} fit had; give the same features")
    known = dict(columns.names) if columns is not None else dict.fromkeys(others)
    parts: list[tuple[NDArray[Any], NDArray[Any], NDArray[Any]]] = []
    names, first = [], 0
    for name in known:
        rows, places, values, words = _column(others[name], name, option, known[name] if columns is not None else None)
        parts.append((rows, places + first, values))
        names.append((name, words))
        first += 1 if words is None else len(words)
    made = FeatureColumns(first, tuple(names)) if columns is None else columns
    size = len(frame)
    if not parts:
        parts = [(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0))]
    rows, places, values = (np.concatenate(each) for each in zip(*parts, strict=True))
    return _compressed(rows, places, values, size, made.count), made


def _column(
    series: Any, name: str, option: str, words: tuple[str, ...] | None
) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any], tuple[str, ...] | None]:
    """(row, feature, value) of the entries of a column, and the values of text."""
    import narwhals.stable.v2 as nw

    kind = series.dtype
    if words is None and (kind.is_numeric() or isinstance(kind, nw.Boolean)):
        values = np.asarray(series.cast(nw.Float64).to_numpy(), np.float64)
        rows = np.flatnonzero(values)
        return rows, np.zeros(len(rows), np.int64), values[rows], None
    if not isinstance(kind, nw.String | nw.Categorical | nw.Enum | nw.Object | nw.Unknown):
        raise DataError(f"{option}: column {name!r} holds {kind}, which is no feature; give numbers or text")
    missing = series.is_null().to_list()
    each = [() if gone else str(one).split(_BETWEEN) for one, gone in zip(series.to_list(), missing, strict=True)]
    found = [(row, part) for row, parts in enumerate(each) for part in sorted(set(parts)) if part]
    if words is None:
        words = tuple(sorted({part for _, part in found}))
    place = {word: k for k, word in enumerate(words)}
    pairs = np.array([(row, place[part]) for row, part in found if part in place], np.int64).reshape(-1, 2)
    return pairs[:, 0], pairs[:, 1], np.ones(len(pairs)), words


def _compressed(rows: Any, columns: Any, values: Any, size: int, count: int) -> FeatureMatrix:
    order = np.lexsort((columns, rows))
    indptr = np.concatenate([[0], np.cumsum(np.bincount(rows.astype(np.int64), minlength=size))]).astype(np.int64)
    known = np.ones(size, np.bool_)
    return FeatureMatrix(indptr, columns[order].astype(np.int32), values[order].astype(np.float64), count, known)


def _from_sparse(X: Any, option: str) -> FeatureMatrix:
    X = verified(X, option).tocsr()
    if not X.has_canonical_format:
        X = X.copy()
        X.sum_duplicates()
    if X.dtype.kind not in "biuf":
        raise DataError(f"{option} holds {X.dtype}, which are no numbers; convert it to float")
    known = np.ones(X.shape[0], np.bool_)
    indptr, indices = X.indptr.astype(np.int64), X.indices.astype(np.int32)
    return FeatureMatrix(indptr, indices, X.data.astype(np.float64), int(X.shape[1]), known)


def _from_dense(X: Any, option: str) -> FeatureMatrix:
    array = plain_array(X, option)
    if array.ndim != 2:
        raise DataError(f"{option} is a matrix of rows and features, got shape {array.shape}; reshape it")
    if array.dtype.kind not in "biuf":
        raise DataError(f"{option} holds {array.dtype}, which are no numbers; give text in a table of named columns")
    rows, columns = np.nonzero(array)
    return _compressed(rows, columns, array[rows, columns], *array.shape)
