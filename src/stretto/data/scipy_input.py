"""Entries of a scipy sparse matrix, its structure checked first.

scipy's compiled code trusts index arrays: one entry out of range, or bounds that fall, and it reads and writes outside
of its arrays. A matrix whose arrays were replaced, loaded from a file or built without checks is therefore looked
through once, in NumPy, before anything of scipy's runs over it. The caller's matrix is never changed.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.data.data import INT32_MAX, Data
from stretto.data.duplicates import find_duplicates
from stretto.errors import DataError

_REMEDY = "build the matrix anew, such as with scipy.sparse.coo_array((values, (rows, cols)), shape)"


def is_sparse(X: Any) -> bool:
    """Whether X is a scipy sparse matrix or array; nothing is imported to find out."""
    kind = type(X)  # asking the matrix itself would compute, and raise where it is damaged
    return all(hasattr(kind, name) for name in ("tocoo", "nnz", "format"))


def from_sparse(X: Any, shape: tuple[int, int] | None, labels: Any, source: str) -> Data:
    """The stored entries as `Data`; repeated pairs are summed, as scipy itself does."""
    if len(X.shape) != 2:
        raise DataError(f"{source}: a sparse array must have two dimensions, got shape {X.shape}")
    check_structure(X, source)
    rows, cols, values = _entries(X, source)
    return Data.from_arrays(
        _narrow(rows), _narrow(cols), values, shape or (int(X.shape[0]), int(X.shape[1])), labels=labels, source=source
    )


def check_structure(X: Any, source: str) -> None:
    """Raise DataError unless every index of a sparse matrix lies inside its shape and its bounds make sense."""
    form = X.format
    try:
        if form in {"csr", "csc", "bsr"}:
            _check_compressed(X, source)
        elif form == "coo":
            _check_coordinates(X, source)
    except (AttributeError, TypeError, ValueError, IndexError) as error:
        if isinstance(error, DataError):
            raise
        raise _damaged(X, source, str(error)) from error


def _damaged(X: Any, source: str, why: str) -> DataError:
    return DataError(f"{source}: this {X.format.upper()} matrix of shape {tuple(X.shape)} is damaged: {why}; {_REMEDY}")


def _check_compressed(X: Any, source: str) -> None:
    block = X.blocksize if X.format == "bsr" else (1, 1)
    axes = (X.shape[0] // block[0], X.shape[1] // block[1])
    major, minor = axes if X.format != "csc" else axes[::-1]
    indptr, indices = np.asarray(X.indptr), np.asarray(X.indices)
    for name, array in (("indptr", indptr), ("indices", indices)):
        if array.ndim != 1 or array.dtype.kind not in "iu":
            raise _damaged(X, source, f"{name} is no flat array of integers")
    if len(indptr) != major + 1:
        raise _damaged(X, source, f"indptr has {len(indptr)} bounds, {major + 1} are needed")
    if int(indptr[0]) != 0 or bool((indptr[1:] < indptr[:-1]).any()):
        raise _damaged(X, source, "indptr must start at 0 and never fall")
    stored = int(indptr[-1])
    if stored > len(indices) or stored > len(X.data):
        have = min(len(indices), len(X.data))
        raise _damaged(X, source, f"indptr ends at {stored}, and there are {have} entries")
    _check_range(X, indices[:stored], minor, "an index", source)


def _check_coordinates(X: Any, source: str) -> None:
    rows, cols, values = np.asarray(X.row), np.asarray(X.col), np.asarray(X.data)
    if rows.ndim != 1 or not rows.shape == cols.shape == values.shape:
        raise _damaged(X, source, f"rows, columns and values have shapes {rows.shape}, {cols.shape}, {values.shape}")
    _check_range(X, rows, X.shape[0], "a row", source)
    _check_range(X, cols, X.shape[1], "a column", source)


def _check_range(X: Any, index: NDArray[Any], size: int, what: str, source: str) -> None:
    if index.dtype.kind not in "iu":
        raise _damaged(X, source, f"indices are {index.dtype}")
    if not len(index):
        return
    low, high = int(index.min()), int(index.max())
    if low < 0 or high >= size:
        raise _damaged(X, source, f"{what} is {low if low < 0 else high}, outside of 0 to {size - 1}")


def _entries(X: Any, source: str) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    try:
        if X.format in {"csr", "csc"}:
            if not X.has_canonical_format:
                X = _copy(X)
                X.sum_duplicates()
            coo = X.tocoo(copy=False)
        else:
            coo = X if X.format == "coo" else X.tocoo()
            repeated = not coo.has_canonical_format and coo.nnz > 1
            if repeated and len(find_duplicates(coo.row, coo.col, coo.shape[1])[0]):
                coo = _copy(coo)
                coo.sum_duplicates()
    except (TypeError, ValueError, IndexError, AttributeError) as error:
        raise _damaged(X, source, str(error)) from error
    return coo.row, coo.col, coo.data


def _copy(X: Any) -> Any:
    """A copy whose sums cannot wrap around, as those of small integers would."""
    return X.astype(np.float64) if X.data.dtype.kind in "biu" else X.copy()


def _narrow(index: NDArray[Any]) -> NDArray[Any]:
    fits = index.dtype != np.int32 and (not len(index) or int(index.max()) <= INT32_MAX)
    return index.astype(np.int32) if fits else index
