"""Extract the entries of a SciPy sparse matrix after checking its structure; the matrix is never changed."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.data.convert.sparse_structure import is_sparse, verified
from stretto.data.records.arrays import INT32_MAX
from stretto.data.records.data import Data
from stretto.data.records.repeated_pairs import find_duplicates
from stretto.errors import DataError

__all__ = ["from_sparse", "is_sparse"]


def from_sparse(X: Any, shape: tuple[int, int] | None, labels: Any, source: str) -> Data:
    """The stored entries as `Data`; repeated pairs are summed, as scipy itself does."""
    rows, cols, values = _entries(verified(X, source), source)
    return Data.from_arrays(
        _narrow(rows), _narrow(cols), values, shape or (int(X.shape[0]), int(X.shape[1])), labels=labels, source=source
    )


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
        raise DataError(f"{source}: cannot read this {X.format.upper()} matrix ({error})") from error
    return coo.row, coo.col, coo.data


def _copy(X: Any) -> Any:
    """A copy whose sums cannot wrap around, as those of small integers would."""
    return X.astype(np.float64) if X.data.dtype.kind in "biu" else X.copy()


def _narrow(index: NDArray[Any]) -> NDArray[Any]:
    fits = index.dtype != np.int32 and (not len(index) or int(index.max()) <= INT32_MAX)
    return index.astype(np.int32) if fits else index
