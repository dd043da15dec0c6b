"""`as_data`: anything that holds ratings in memory becomes `Data`.

| given                                       | taken as                                                          |
|---------------------------------------------|-------------------------------------------------------------------|
| `Data`                                      | itself                                                            |
| scipy sparse matrix or array, any format    | its stored entries; duplicates are summed, as scipy itself does   |
| tuple or list of three equal-length arrays  | rows, columns, values                                             |
| array of shape (n, 3)                       | one record per line: row, column, value                           |
| structured array, DataFrame                 | columns named user/item/rating or the like, else the first three  |

Integer indices are used as they are; text ids get an `IdMap`. No path makes a dense matrix. Apart from scipy input,
where a repeated pair has a meaning, a repeated pair is refused unless the caller says what to do with it: summing or
keeping it in silence would bias what is learned.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.data.data import INT32_MAX, Data, as_indices, as_values
from stretto.data.duplicates import check_policy, settle
from stretto.data.ids import IdMap
from stretto.errors import DataError

ROW_NAMES = (
    "user",
    "userid",
    "user_id",
    "uid",
    "row",
    "row_id",
    "rowid",
    "doc",
    "docid",
    "doc_id",
    "customer",
    "customer_id",
)
COL_NAMES: tuple[str, ...] = (
    "item",
    "itemid",
    "item_id",
    "iid",
    "movie",
    "movieid",
    "movie_id",
    "col",
    "column",
    "col_id",
    "colid",
)
COL_NAMES += ("product", "product_id", "book", "bookid", "book_id", "word", "wordid", "word_id")
VALUE_NAMES = ("rating", "ratings", "value", "val", "score", "stars", "count", "weight", "data")


def as_data(
    X: Any,
    *,
    shape: tuple[int, int] | None = None,
    duplicates: str = "error",
    labels: Any = None,
    map_ids: bool = False,
    source: str = "input",
) -> Data:
    """`Data` from what a user holds; see the table above.

    `shape` widens the matrix beyond the largest index. `duplicates` is one of "error", "first", "last", "mean", "sum",
    "keep". With `map_ids=True` integer ids are also mapped to 0..n-1 through an `IdMap` (1-based or gappy ids).

    >>> as_data(([0, 1], [2, 0], [4.0, 5.0])).shape
    (2, 3)
    """
    check_policy(duplicates)
    if isinstance(X, Data):  # whoever made it decided about its repeated pairs; only an explicit merge changes it
        return X if duplicates == "error" else settle(X, duplicates)
    if _is_scipy(X):
        return _from_scipy(X, shape, labels, source)
    rows, cols, values = three_columns(X, source)
    values = as_values(values, source)
    n = {len(rows), len(cols), len(values)}
    if len(n) > 1:
        raise DataError(
            f"{source}: {len(rows)} rows, {len(cols)} columns and {len(values)} values; give one of each per record"
        )
    rows, n_rows, row_ids = _indices(rows, "row", map_ids, source)
    cols, n_cols, col_ids = _indices(cols, "column", map_ids, source)
    shape = shape or (n_rows, n_cols)
    data = Data.from_arrays(rows, cols, values, shape, labels=labels, row_ids=row_ids, col_ids=col_ids, source=source)
    return settle(data, duplicates)


def choose_columns(names: Sequence[str]) -> tuple[int, int, int]:
    """Which columns are row, column and value: by well-known names when all three are there, else the first three."""
    plain = [str(n).strip().strip('"').lower() for n in names]

    def position(known: tuple[str, ...]) -> int:
        return next((plain.index(k) for k in known if k in plain), -1)

    found = position(ROW_NAMES), position(COL_NAMES), position(VALUE_NAMES)
    return found if min(found) >= 0 else (0, 1, 2)


def three_columns(X: Any, source: str) -> tuple[Any, Any, Any]:
    """Rows, columns and values of a table-like thing, as they are."""
    if hasattr(X, "columns") and hasattr(X, "iloc"):  # a pandas DataFrame, recognised without importing pandas
        if X.shape[1] < 3:
            raise DataError(
                f"{source}: a table of ratings needs three columns (row, column, value), got {list(X.columns)}"
            )
        r, c, v = (X.iloc[:, k] for k in choose_columns(list(X.columns)))
        for name, ids in (("row", r), ("column", c)):
            if ids.isna().any():
                raise DataError(f"{source}: the {name} id at position {int(ids.isna().to_numpy().argmax())} is missing")
        return r.to_numpy(), c.to_numpy(), v.to_numpy(dtype=np.float64, na_value=np.nan)
    if isinstance(X, np.ndarray) and X.dtype.names is not None:
        if len(X.dtype.names) < 3:
            raise DataError(
                f"{source}: a table of ratings needs three fields (row, column, value), got {X.dtype.names}"
            )
        r, c, v = (X[X.dtype.names[k]] for k in choose_columns(X.dtype.names))
        return r, c, v
    if isinstance(X, (tuple, list)) and len(X) == 3 and all(np.ndim(part) == 1 for part in X):
        return np.asarray(X[0]), np.asarray(X[1]), np.asarray(X[2])
    array = np.asarray(X)
    if array.ndim == 2 and array.shape[1] == 3:
        if array.dtype.kind in "UTSO":
            return array[:, 0], array[:, 1], _to_floats(array[:, 2], source)
        return array[:, 0], array[:, 1], array[:, 2]
    raise DataError(
        f"{source}: cannot read ratings from {type(X).__name__} of shape {array.shape}; give a scipy sparse matrix, "
        "three arrays (rows, columns, values), an (n, 3) array of triples or a DataFrame"
    )


def _is_scipy(X: Any) -> bool:
    return hasattr(X, "tocoo") and hasattr(X, "nnz")


def _from_scipy(X: Any, shape: tuple[int, int] | None, labels: Any, source: str) -> Data:
    if len(X.shape) != 2:
        raise DataError(f"{source}: a sparse array must have two dimensions, got shape {X.shape}")
    if getattr(X, "format", "") not in {"csr", "csc", "coo"}:
        X = X.tocoo()
    if X.format == "coo":
        coo = X
        if not X.has_canonical_format and X.nnz > 1:  # sum duplicates on our copy, never on the caller's matrix
            coo = _summed(X, source)
    else:
        if not X.has_canonical_format:
            X = X.copy()
            X.sum_duplicates()
        coo = X.tocoo(copy=False)
    rows, cols = _narrow(coo.row), _narrow(coo.col)
    return Data.from_arrays(rows, cols, coo.data, shape or tuple(X.shape), labels=labels, source=source)


def _summed(X: Any, source: str) -> Any:
    """A coo matrix without repeated pairs; the same object when there are none, so that the common case copies
    nothing.
    """
    from stretto.data.duplicates import find_duplicates

    for name, index, size in (("row", X.row, X.shape[0]), ("column", X.col, X.shape[1])):
        if len(index) and not 0 <= int(index.min()) <= int(index.max()) < size:
            raise DataError(f"{source}: a {name} index lies outside the shape {X.shape}")
    if not len(find_duplicates(X.row, X.col, X.shape[1])[0]):
        return X
    X = X.copy()
    X.sum_duplicates()
    return X


def _narrow(index: NDArray[Any]) -> NDArray[Any]:
    fits = index.dtype != np.int32 and (not len(index) or int(index.max()) <= INT32_MAX)
    return index.astype(np.int32) if fits else index


def _indices(ids: Any, what: str, map_ids: bool, source: str) -> tuple[Any, int, IdMap | None]:
    """Indices, how many rows or columns they span, and the map when the ids are not indices themselves."""
    array = np.asarray(ids)
    if not map_ids and (array.dtype.kind in "iuf" or not len(array)):
        indices = as_indices(array, what, source)
        return indices, int(indices.max()) + 1 if len(indices) else 0, None
    id_map = IdMap.of(array)
    return id_map.encode(array), len(id_map), id_map


def _to_floats(column: NDArray[Any], source: str) -> NDArray[np.float64]:
    try:
        return column.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise DataError(f"{source}: the third column must hold numbers ({error})") from error
