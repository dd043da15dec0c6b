"""Arguments of `MatrixFactorization` methods: convert rating matrices, pairs, and row or column ids."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.data.convert.convert import as_data, plain_array
from stretto.data.convert.frames import as_frame, pair_columns
from stretto.data.convert.scipy_entries import is_sparse
from stretto.data.records.arrays import INT32_MAX
from stretto.data.records.data import Data
from stretto.data.records.ids import IdMap
from stretto.errors import DataError

# Advice in errors of `as_data` that does not apply to an estimator.
_ARGUMENT = re.compile(r"\b(user|item|rating|columns|map_ids|shape)=")
_TIME = 100_000_000  # a time stamp: seconds since 1970, in 1973


def as_matrix(X: Any, *, duplicates: str = "error") -> Data:
    """`Data` from anything `as_data` takes, and from a dense matrix, whose non-zero numbers are the ratings.

    An array that may be either a matrix or records (user, item, rating) is refused.
    """
    source = "matrix factorisation"
    if _is_dense(X, source):
        X = plain_array(X, source)
        if X.ndim == 1:
            raise DataError(
                f"a matrix has two dimensions, got shape {X.shape}. Reshape your data: X.reshape(1, -1) is one row"
            )
        if X.ndim == 2 and not _is_text(X):
            _refuse_records(X)
            X = _from_dense(X)
    try:
        return as_data(X, duplicates=duplicates)
    except DataError as error:
        if _ARGUMENT.search(str(error)):
            raise DataError(f"{error} (arguments of st.as_data, whose result estimators take)") from None
        raise


def _is_dense(X: Any, source: str) -> bool:
    """Whether X is an array without names, or NumPy converts it to one: nested lists, other array types."""
    if isinstance(X, np.ndarray):
        return X.dtype.names is None
    if isinstance(X, list):
        return bool(X)
    return hasattr(X, "__array__") and not is_sparse(X) and as_frame(X, source) is None


def _is_text(X: NDArray[Any]) -> bool:
    return X.dtype.kind in "UTS" or (X.dtype.kind == "O" and any(isinstance(x, str) for x in X[:1].ravel()))


def _refuse_records(X: NDArray[Any]) -> None:
    """Refuse what may be a table of records instead of a matrix: user, item, rating and possibly a time stamp."""
    if X.dtype.kind not in "iuf" or X.shape[1] not in {3, 4} or not len(X):
        return
    pairs = X[:, :2]
    whole = bool(np.all((pairs >= 0) & (pairs == np.floor(pairs))))
    if whole and (X.shape[1] == 3 or bool(np.all(X[:, 3] >= _TIME))):
        raise DataError(
            f"an array of shape {X.shape} whose first two columns hold integers may be a matrix of ratings or records "
            "(user, item, rating); for records pass st.as_data(X, columns=(0, 1, 2)), for a matrix "
            "scipy.sparse.csr_array(X)"
        )


def _from_dense(X: NDArray[Any]) -> Data:
    if X.dtype.kind == "c":
        raise DataError("Complex data not supported: a matrix of ratings holds real numbers")
    if X.dtype.kind == "O":
        try:
            X = X.astype(np.float64)
        except ValueError as error:  # scikit-learn expects a TypeError for what is neither text nor number
            raise DataError(f"a dense matrix of ratings holds numbers ({error})") from error
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


def as_pairs(X: Any, row_ids: IdMap | None, col_ids: IdMap | None) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """(rows, columns) of (n, 2) pairs, as indices; −1 for an id that is not in the training data."""
    frame = as_frame(X, "predict")
    if frame is not None:
        left, right = pair_columns(frame, "predict")
    elif isinstance(X, tuple) and len(X) == 2 and np.ndim(X[0]) == 1:
        left, right = plain_array(X[0], "predict"), plain_array(X[1], "predict")
    else:
        pairs = np.array(X, dtype=object) if _lists_of_text(X) else plain_array(X, "predict")
        if pairs.ndim != 2 or pairs.shape[1] != 2:
            raise DataError(
                f"predict takes pairs: an (n, 2) array of rows and columns, got shape {pairs.shape}. "
                "Reshape your data: one row, one column in each line"
            )
        left, right = pairs[:, 0], pairs[:, 1]
    return _indices(left, row_ids, "row"), _indices(right, col_ids, "column")


def _lists_of_text(X: Any) -> bool:
    """Whether NumPy would convert numbers beside text to text."""
    return isinstance(X, list) and bool(X) and any(isinstance(one, str) for one in np.ravel(X[0]).tolist())


def _indices(names: NDArray[Any], ids: IdMap | None, what: str) -> NDArray[np.int32]:
    if ids is not None:
        return ids.encode(names, unknown="mark")
    whole = names.dtype.kind == "f" and bool(np.all(np.isfinite(names) & (names == np.floor(names))))
    if names.dtype.kind not in "iu" and not whole:
        raise DataError(f"a {what} is named by its index, a whole number; got dtype {names.dtype}")
    # A number too large for an index is unknown; it must not wrap around to another index.
    return np.where((names >= 0) & (names <= INT32_MAX), names, -1).astype(np.int32)


def known_indices(names: Any, ids: IdMap | None, size: int, what: str) -> NDArray[np.int32]:
    """Indices of rows or columns that must have been in the training data."""
    asked = np.atleast_1d(plain_array(names, f"{what}s"))
    if asked.ndim != 1:
        raise DataError(f"{what}s are given as a flat list, got shape {asked.shape}")
    found = _indices(asked, ids, what)
    unknown = np.flatnonzero((found < 0) | (found >= size))
    if len(unknown):
        bad = asked.ravel().tolist()[int(unknown[0])]
        known = "numbered from 0" if ids is None else f"such as {', '.join(map(repr, ids.ids[:3].tolist()))}"
        raise DataError(f"there is no {what} {bad!r} in the training data; it has {size:,}, {known}")
    return found
