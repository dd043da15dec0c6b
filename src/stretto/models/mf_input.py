"""What users hand to the estimator: matrices of ratings, pairs, rows by name."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.data.convert import as_data
from stretto.data.data import INT32_MAX, Data
from stretto.data.ids import IdMap
from stretto.errors import DataError


def as_matrix(
    X: Any,
    *,
    duplicates: str = "error",
    shape: tuple[int, int] | None = None,
    ids: tuple[IdMap | None, IdMap | None] = (None, None),
) -> Data:
    """`Data` from anything `as_data` takes, and from a dense matrix, whose non-zero numbers are the ratings.

    An array of three columns is taken as triples when its first two hold whole numbers from 0 on, otherwise as a
    matrix. ids: names learned in training; data that come with names are put into their numbering, unknown rows and
    columns dropped.
    """
    if _is_array_like(X):
        X = np.asarray(X)
    if isinstance(X, np.ndarray) and X.ndim == 1 and X.dtype.names is None:
        raise DataError(
            f"a matrix has two dimensions, got shape {X.shape}. Reshape your data: X.reshape(1, -1) is one row"
        )
    if isinstance(X, np.ndarray) and X.ndim == 2 and X.dtype.names is None and not _is_triples(X):
        X = _from_dense(X)
    data = as_data(X, shape=shape if ids == (None, None) else None, duplicates=duplicates)
    return data if ids == (None, None) else _renumbered(data, ids)


def _is_array_like(X: Any) -> bool:
    """What NumPy can make a matrix of and `as_data` has no reading of its own for: nested lists, foreign arrays."""
    if isinstance(X, list):
        return bool(X) and not (len(X) == 3 and all(np.ndim(part) == 1 and len(part) != 3 for part in X))
    return hasattr(X, "__array__") and not any(hasattr(X, name) for name in ("iloc", "tocoo", "dtype"))


def _is_triples(X: NDArray[Any]) -> bool:
    if X.shape[1] != 3:
        return False
    if X.dtype.kind not in "biuf":
        return True
    pairs = X[:, :2]
    return bool(len(X)) and bool(np.all((pairs >= 0) & (pairs == np.floor(pairs))))


def _from_dense(X: NDArray[Any]) -> Data:
    if X.dtype.kind == "c":
        raise DataError("Complex data not supported: a matrix of ratings holds real numbers")
    if X.dtype.kind == "O":
        X = X.astype(np.float64)
    if X.dtype.kind not in "biuf":
        raise DataError(f"a dense matrix of ratings holds numbers, got dtype {X.dtype}")
    if 0 in X.shape:
        empty = "sample" if not len(X) else "feature"
        raise DataError(
            f"a matrix with 0 {empty}(s) (shape={X.shape}) while a minimum of 1 is required; there is nothing to learn"
        )
    rows, cols = np.nonzero(X)
    values = X[rows, cols]
    bad = np.flatnonzero(~np.isfinite(values))
    if len(bad):
        at = f"row {rows[bad[0]]}, column {cols[bad[0]]}"
        raise DataError(f"a rating is NaN or infinite (inf): {values[bad[0]]} at {at}; leave it out or give it a value")
    return Data.from_arrays(rows, cols, values, (X.shape[0], X.shape[1]), source="dense matrix")


def _renumbered(data: Data, ids: tuple[IdMap | None, IdMap | None]) -> Data:
    """The same entries in the numbering of `ids`."""
    sides = []
    for index, own, known in zip((data.rows, data.cols), (data.row_ids, data.col_ids), ids, strict=True):
        if own is None or known is None:
            sides.append(index)
        else:
            sides.append(known.encode(own.ids, unknown="mark")[index])
    keep = (sides[0] >= 0) & (sides[1] >= 0)
    shape = tuple(n if k is None else len(k) for n, k in zip(data.shape, ids, strict=True))
    return Data.from_arrays(sides[0][keep], sides[1][keep], data.values[keep], shape, source=data.source)  # type: ignore[arg-type]


def as_pairs(X: Any, row_ids: IdMap | None, col_ids: IdMap | None) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """(rows, columns) of (n, 2) pairs, as indices; −1 for an id that training never saw."""
    if hasattr(X, "iloc"):
        if X.shape[1] < 2:
            raise DataError(f"predict takes pairs: a row and a column each, got shape {X.shape}")
        left, right = np.asarray(X.iloc[:, 0]), np.asarray(X.iloc[:, 1])
    elif isinstance(X, tuple) and len(X) == 2 and np.ndim(X[0]) == 1:
        left, right = np.asarray(X[0]), np.asarray(X[1])
    else:
        pairs = np.asarray(X)
        if pairs.ndim != 2 or pairs.shape[1] != 2:
            raise DataError(
                f"predict takes pairs: an (n, 2) array of rows and columns, got shape {pairs.shape}. "
                "Reshape your data: one row, one column in each line"
            )
        left, right = pairs[:, 0], pairs[:, 1]
    return _indices(left, row_ids, "row"), _indices(right, col_ids, "column")


def _indices(names: NDArray[Any], ids: IdMap | None, what: str) -> NDArray[np.int32]:
    if ids is not None:
        return ids.encode(names, unknown="mark")
    whole = names.dtype.kind == "f" and bool(np.all(np.isfinite(names) & (names == np.floor(names))))
    if names.dtype.kind not in "iu" and not whole:
        raise DataError(f"a {what} is named by its index, a whole number; got dtype {names.dtype}")
    # A number too large for an index names nobody; it must not wrap around to somebody.
    return np.where((names >= 0) & (names <= INT32_MAX), names, -1).astype(np.int32)


def known_indices(names: Any, ids: IdMap | None, size: int, what: str) -> NDArray[np.int32]:
    """Indices of rows or columns that must have been in the training data."""
    asked = np.atleast_1d(np.asarray(names))
    found = ids.encode(asked) if ids is not None else _indices(asked, None, what)
    if len(found) and (found.min() < 0 or found.max() >= size):
        bad = found[(found < 0) | (found >= size)][0]
        raise DataError(f"there is no {what} {bad}; training saw {size}, numbered from 0")
    return found
