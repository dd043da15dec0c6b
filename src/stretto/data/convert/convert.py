"""`as_data`: convert anything that holds ratings in memory to `Data`.

| given                                                   | taken as                                                  |
|---------------------------------------------------------|-----------------------------------------------------------|
| `Data`                                                  | itself                                                    |
| scipy sparse matrix or array, any format                | its stored entries; repeated pairs are summed, as scipy   |
|                                                         | does                                                      |
| tuple of three flat arrays                              | rows, columns, values                                     |
| frame (pandas, Polars, Arrow, whatever narwhals knows), | one record a row; columns by name: user, item, rating or  |
| structured array                                        | the like                                                  |
| array or list of records, with `columns=(0, 1, 2)`      | one record a row; columns by position                     |

Tables name users and items by ids, matrices by positions. The integer ids of a table are always mapped to 0, 1, 2, …
in sorted order through an `IdMap`, so that ids may be of any size. Positions, those of a sparse matrix and those in a
tuple of arrays, stay as they are. `map_ids` overrides either. Text is always mapped.

An array of two dimensions may be a matrix or a table: `columns=` declares a table. No dense matrix is ever made. Except
for scipy input, where a repeated pair has a meaning, a repeated pair is refused unless the caller chooses a policy:
summing or keeping it silently would bias the model.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.data.convert.frames import as_frame, ids_of_column, ratings_of_column, series_of, triple_columns
from stretto.data.convert.roles import ColumnChoice, column_choice, find_roles
from stretto.data.convert.scipy_entries import from_sparse, is_sparse
from stretto.data.reading.columns import mapped
from stretto.data.records.arrays import as_indices, as_values
from stretto.data.records.data import Data
from stretto.data.records.duplicates import check_policy, settle
from stretto.data.records.ids import IdMap
from stretto.errors import DataError

# Positions beyond these bounds (absolute, and per record) are probably ids: a model would have a row for each.
_MANY, _PER_RECORD = 1 << 20, 256


def as_data(
    X: Any,
    *,
    user: str | None = None,
    item: str | None = None,
    rating: str | None = None,
    columns: Sequence[int | str] | None = None,
    shape: tuple[int, int] | None = None,
    duplicates: str = "error",
    labels: Any = None,
    map_ids: bool | None = None,
    source: str = "input",
) -> Data:
    """Sparse records from a matrix, a table or arrays.

    Parameters
    ----------
    X : Data, sparse matrix, tuple of three arrays, frame, structured array, or array of records
        The ratings.
    user : str or None, default None
        Name of a table's column of users; None for a well-known name (userId, user_id, …).
    item : str or None, default None
        Name of a table's column of items; None for a well-known name (movieId, item, …).
    rating : str or None, default None
        Name of a table's column of values; None for a well-known name (rating, score, …).
    columns : sequence of names or positions, or None, default None
        All of a table's columns at once: user, item and rating, or the first two where every value is 1.
    shape : tuple of int or None, default None
        Size of the matrix, where it exceeds the largest position. Only for positions, not for ids.
    duplicates : {"error", "first", "last", "mean", "sum", "keep"}, default "error"
        What to do with a repeated pair.
    labels : array_like [rows] or None, default None
        A target for each row.
    map_ids : bool or None, default None
        Whether integers are ids to be mapped to 0, 1, 2, …; None: yes for tables, no for matrices.
    source : str, default "input"
        What messages call the data.

    Returns
    -------
    Data

    Examples
    --------
    >>> import numpy as np, stretto as st
    >>> st.as_data(([0, 1], [2, 0], [4.0, 5.0])).shape
    (2, 3)
    >>> ratings = st.as_data(np.array([[70, 9, 4.0], [80, 9, 5.0]]), columns=(0, 1, 2))
    >>> ratings.shape, ratings.row_ids.ids.tolist()
    ((2, 1), [70, 80])
    """
    check_policy(duplicates)
    choice = column_choice(columns, user, item, rating)
    if isinstance(X, Data):  # repeated pairs were settled when it was made; only an explicit merge changes them
        _only_for_tables(choice, "Data", source)
        return X if duplicates == "error" else settle(X, duplicates)
    if shape is not None:
        shape = _checked_shape(shape, source)
    if is_sparse(X):
        _only_for_tables(choice, "a sparse matrix", source)
        return from_sparse(X, shape, labels, source)
    table, rows, cols, values = _three_columns(X, choice, source)
    values = as_values(values, source)
    n = {len(rows), len(cols), len(values)}
    if len(n) > 1:
        raise DataError(
            f"{source}: {len(rows)} rows, {len(cols)} columns and {len(values)} values; give one of each per record"
        )
    mapping = map_ids if map_ids is not None else table and shape is None
    if mapping and shape is not None:
        raise DataError(f"{source}: shape={shape} is for positions, and ids are mapped; leave shape= or map_ids= out")
    rows, n_rows, row_ids = _indices(rows, "row", mapping, shape is None and map_ids is None, source)
    cols, n_cols, col_ids = _indices(cols, "column", mapping, shape is None and map_ids is None, source)
    size = shape or (n_rows, n_cols)
    data = Data.from_arrays(rows, cols, values, size, labels=labels, row_ids=row_ids, col_ids=col_ids, source=source)
    return settle(data, duplicates)


def _only_for_tables(choice: ColumnChoice, what: str, source: str) -> None:
    if choice != ColumnChoice():
        raise DataError(
            f"{source}: user=, item=, rating= and columns= are for tables, and this is {what}; leave them out"
        )


def _checked_shape(shape: Any, source: str) -> tuple[int, int]:
    try:
        rows, cols = (int(size) for size in shape)
        if rows >= 0 and cols >= 0 and (rows, cols) == tuple(shape):
            return rows, cols
    except (TypeError, ValueError):
        pass
    raise DataError(f"{source}: shape={shape!r}; give the numbers of rows and columns, such as shape=(100, 20)")


def _three_columns(X: Any, choice: ColumnChoice, source: str) -> tuple[bool, Any, Any, Any]:
    """Whether X is a table; then its ids or positions of rows and of columns, and its values, unconverted."""
    if isinstance(X, tuple) and len(X) == 3 and all(_is_flat(part) for part in X):
        _only_for_tables(choice, "a tuple of arrays", source)
        rows, cols = (_flat(part, what, source) for part, what in zip(X, ("row", "column"), strict=False))
        series = series_of(X[2])
        values = plain_array(X[2], source) if series is None else ratings_of_column(series, "values", source)
        return False, rows, cols, values
    frame = as_frame(X, source)
    if frame is not None:
        return True, *triple_columns(frame, choice, source)
    if isinstance(X, np.ndarray) and X.dtype.names is not None:
        return True, *_from_fields(X, choice, source)
    array = _records(X, source)
    if array is None or (choice.columns is None and array.shape[1] != 3):
        if isinstance(X, str):
            raise DataError(
                f"{source}: cannot read ratings from the text {X!r}; a share is a number, such as 0.1, and a file is "
                "read with st.read(path)"
            )
        shape = np.shape(array) if array is not None else getattr(X, "shape", "unknown")
        raise DataError(
            f"{source}: cannot read ratings from {type(X).__name__} of shape {shape}; give a scipy sparse matrix, a "
            "tuple of three arrays (rows, columns, values), a frame, or an array of records with columns=(0, 1, 2)"
        )
    return True, *_from_records(array, choice, source)


def _is_flat(part: Any) -> bool:
    try:
        return np.ndim(part) == 1 and as_frame(part, "") is None
    except ValueError:  # a ragged list
        return False


def _flat(part: Any, what: str, source: str) -> NDArray[Any]:
    series = series_of(part)
    if series is not None:
        return ids_of_column(series, what, what, source)
    return plain_array(part, source)


def plain_array(values: Any, source: str) -> NDArray[Any]:
    """The values as a NumPy array; masked entries are refused, since their values are undefined."""
    if isinstance(values, np.ma.MaskedArray) and np.any(values.mask):
        raise DataError(f"{source}: {np.count_nonzero(values.mask)} entries are masked; drop those records first")
    try:
        array = np.asarray(values)
        return np.array(values, dtype=object) if _mixed(values, array) else array
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise DataError(f"{source}: cannot make an array of {type(values).__name__} ({error})") from error


def _mixed(values: Any, array: NDArray[Any]) -> bool:
    """Whether NumPy may have converted numbers to text because the list also holds text."""
    return isinstance(values, list | tuple) and array.dtype.kind in "US"


def _records(X: Any, source: str) -> NDArray[Any] | None:
    """X as an array of two dimensions; None if it is not one."""
    if isinstance(X, str | bytes) or X is None:
        return None
    if isinstance(X, list) and X and isinstance(X[0], list | tuple):
        try:
            array = np.array(X, dtype=object)  # numbers stay numbers beside text
        except ValueError:
            return None
        kinds = {type(one) for one in array.ravel().tolist()}
        if array.ndim == 2 and str not in kinds:
            array = plain_array(X, source)
    else:
        array = plain_array(X, source)
    return array if array.ndim == 2 else None


def _from_records(array: NDArray[Any], choice: ColumnChoice, source: str) -> tuple[Any, Any, Any]:
    text = array.dtype.kind in "UTS" or (array.dtype.kind == "O" and any(isinstance(x, str) for x in array[:1].ravel()))
    if choice.columns is None and not text:
        raise DataError(
            f"{source}: an array of shape {array.shape} may be a matrix or a table of records; for records pass "
            "columns=(0, 1, 2), for positions a tuple of three arrays (rows, columns, values), for a matrix "
            "scipy.sparse.csr_array(X)"
        )
    if choice.columns is not None and not choice.positions:
        raise DataError(f"{source}: the columns of an array have no names; give positions, such as columns=(0, 1, 2)")
    try:
        user, item, rating = find_roles(range(array.shape[1]), choice)
    except DataError as error:
        raise DataError(f"{source}: {error}") from None
    values = np.ones(len(array)) if rating < 0 else _to_floats(array[:, rating], source)
    return array[:, user], array[:, item], values


def _from_fields(X: NDArray[Any], choice: ColumnChoice, source: str) -> tuple[Any, Any, Any]:
    names = list(X.dtype.names or ())
    X = X.ravel()
    try:
        user, item, rating = find_roles(names, choice)
    except DataError as error:
        raise DataError(f"{source}: {error}") from None
    values = np.ones(len(X)) if rating < 0 else _to_floats(X[names[rating]], source)
    return X[names[user]], X[names[item]], values


def _indices(ids: NDArray[Any], what: str, mapping: bool, guarded: bool, source: str) -> tuple[Any, int, IdMap | None]:
    """Indices, the number of rows or columns, and the id map unless the ids are positions."""
    if ids.ndim != 1:
        raise DataError(f"{source}: {what} ids must be one flat array, got shape {ids.shape}")
    if not mapping and (ids.dtype.kind in "iuf" or not len(ids)):
        positions = as_indices(ids, what, source)
        size = int(positions.max()) + 1 if len(positions) else 0
        if guarded and size > max(_MANY, _PER_RECORD * len(positions)):
            raise DataError(
                f"{source}: {len(positions)} records have {what} positions up to {size - 1:,}, which look like ids; "
                f"pass map_ids=True to have them mapped, or shape= to keep {size:,} {what}s"
            )
        return positions, size, None
    try:
        indices, id_map = mapped(ids)
    except DataError as error:
        raise DataError(f"{source}: {what} {error}") from None
    return indices, len(id_map), id_map


def _to_floats(column: NDArray[Any], source: str) -> NDArray[Any]:
    if column.dtype.kind in "biuf":
        return column
    if column.dtype.kind in "OUTS":
        try:
            return column.astype(np.float64)
        except (TypeError, ValueError) as error:
            raise DataError(f"{source}: the column of ratings must hold numbers ({error})") from error
    raise DataError(f"{source}: the column of ratings must hold numbers, got {column.dtype}")
