"""Check the structure of SciPy sparse matrices before compiled code reads them.

SciPy's compiled code and ours trust index arrays: with one entry out of range, or with falling bounds, they read and
write memory outside of the arrays. SciPy does not check a matrix whose arrays were replaced or changed, or that was
built without checks. `verified` makes one pass over the indices and returns a matrix over the same arrays whose flags
(sorted, without duplicates) are right. The caller's matrix is never changed.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.errors import DataError

Array = NDArray[Any]

_REMEDY = "build the matrix anew, such as with scipy.sparse.coo_array((values, (rows, cols)), shape)"
_WHOLE = (np.dtype(np.int32), np.dtype(np.int64))


def is_sparse(X: Any) -> bool:
    """Whether X is a scipy sparse matrix or array; nothing is imported to find out."""
    kind = type(X)  # attributes of the matrix would compute, and raise where it is damaged
    return hasattr(kind, "tocoo") and hasattr(kind, "nnz") and hasattr(kind, "format")


def verified(X: Any, source: str) -> Any:
    """X as a CSR, CSC or COO array whose indices are in range, int32 or int64; DataError where X is damaged.

    Values and indices are shared with X where their types allow it. Other formats become COO.

    Parameters
    ----------
    X : sparse matrix or array
        Of any format.
    source : str
        What messages call it.

    >>> import scipy.sparse
    >>> X = scipy.sparse.csr_array(np.eye(3))
    >>> X.indices[1] = 7
    >>> verified(X, "X")
    Traceback (most recent call last):
    stretto.errors.DataError: X: this CSR matrix of shape (3, 3) is damaged: entry 1, in row 1, has column 7, outside \
of 0 to 2; build the matrix anew, such as with scipy.sparse.coo_array((values, (rows, cols)), shape)
    """
    try:
        if len(X.shape) != 2:
            raise DataError(f"{source}: a sparse array must have two dimensions, got shape {X.shape}")
        if X.format in {"csr", "csc"}:
            return _compressed(X, source)
        if X.format == "bsr":
            _check_compressed(X, source)
        return _coordinates(X if X.format == "coo" else X.tocoo(), X, source)
    except (AttributeError, TypeError, ValueError, IndexError, OverflowError) as error:
        if isinstance(error, DataError):
            raise
        raise _damaged(X, source, str(error)) from error


def _damaged(X: Any, source: str, why: str, remedy: str = _REMEDY) -> DataError:
    shape = tuple(map(int, X.shape))
    return DataError(f"{source}: this {X.format.upper()} matrix of shape {shape} is damaged: {why}; {remedy}")


def _compressed(X: Any, source: str) -> Any:
    """CSR or CSC over the same arrays."""
    import scipy.sparse

    values = _values(X, X.data, source)
    indptr, indices, rising = _check_compressed(X, source)
    kind = scipy.sparse.csr_array if X.format == "csr" else scipy.sparse.csc_array
    made = kind((values, indices, indptr), shape=X.shape, copy=False)
    made.has_canonical_format = rising  # X's own flag may be older than its indices
    return made


def _check_compressed(X: Any, source: str) -> tuple[Array, Array, bool]:
    """(indptr, indices) as kernels take them, and whether indices rise within each row or column."""
    from stretto.kernels.core import sparse_structure

    block = X.blocksize if X.format == "bsr" else (1, 1)
    axes = (X.shape[0] // block[0], X.shape[1] // block[1])
    major, minor = axes if X.format != "csc" else axes[::-1]
    indptr, indices = _integers(X, source, indptr=X.indptr, indices=X.indices)
    if len(indptr) != major + 1:
        raise _damaged(X, source, f"indptr has {len(indptr)} bounds, {major + 1} are needed")
    if len(indices) != len(X.data):
        raise _damaged(X, source, f"it has {len(indices)} indices and {len(X.data)} values")
    top = indices.dtype.type(min(int(minor) - 1, np.iinfo(indices.dtype).max))
    what, at, rising = _found(sparse_structure.compressed, _frozen(indptr), _frozen(indices), top)
    of, to = ("column", "row") if X.format == "csc" else ("row", "column")
    if X.format == "bsr":
        of, to = f"block {of}", f"block {to}"
    if what == sparse_structure.BEGINS:
        raise _damaged(X, source, f"indptr starts at {int(indptr[0])} instead of 0")
    if what == sparse_structure.FALLS:
        raise _damaged(X, source, f"indptr falls from {int(indptr[at])} to {int(indptr[at + 1])} at {of} {at}")
    if what == sparse_structure.ENDS:
        raise _damaged(X, source, f"indptr ends at {int(indptr[-1])}, and there are {len(indices)} entries")
    if what == sparse_structure.OUTSIDE:
        where = int(np.searchsorted(indptr, at, side="right")) - 1
        place = f"entry {at}, in {of} {where}, has {to} {int(indices[at])}"
        raise _damaged(X, source, f"{place}, outside of 0 to {int(minor) - 1}")
    if int(indptr[-1]) != len(indices):
        counts = f"indptr ends at {int(indptr[-1])}, and there are {len(indices)} entries"
        raise _damaged(X, source, counts, f"X.prune() drops the others if they are spare; otherwise {_REMEDY}")
    return indptr, indices, bool(rising)


def _coordinates(X: Any, given: Any, source: str) -> Any:
    """COO over the same arrays. given: the matrix it was made from."""
    import scipy.sparse

    from stretto.kernels.core import sparse_structure

    values = _values(given, X.data, source)
    rows, cols = _integers(given, source, row=X.row, col=X.col)
    if not len(rows) == len(cols) == len(values):
        counts = f"{len(rows)} rows, {len(cols)} columns and {len(values)} values"
        raise _damaged(given, source, f"its entries have {counts}")
    size = int(X.shape[0]), int(X.shape[1])
    what, at, rising = _found(sparse_structure.coordinates, _frozen(rows), _frozen(cols), *size)
    if what != sparse_structure.SOUND:
        axis = 0 if what == sparse_structure.OUTSIDE else 1
        index = int((rows, cols)[axis][at])
        where = f"entry {at} has {('row', 'column')[axis]} {index}, outside of 0 to {int(X.shape[axis]) - 1}"
        raise _damaged(given, source, where)
    made = scipy.sparse.coo_array((values, (rows, cols)), shape=X.shape, copy=False)
    made.has_canonical_format = bool(rising)
    return made


def _found(kernel: Any, *args: Any) -> tuple[int, int, int]:
    found = np.zeros(3, np.int64)
    kernel.exact(*args, found)
    return int(found[0]), int(found[1]), int(found[2])


def _integers(X: Any, source: str, **arrays: Any) -> list[Array]:
    """Flat contiguous arrays, all int32 or all int64."""
    found = []
    for name, given in arrays.items():
        array = np.asarray(given)
        if array.ndim != 1 or array.dtype.kind not in "iu":
            raise _damaged(X, source, f"{name} must be a flat array of integers, got {array.dtype} {array.shape}")
        if array.dtype == np.uint64 and len(array) and int(array.max()) > np.iinfo(np.int64).max:
            raise _damaged(X, source, f"{name} holds {int(array.max())}")
        found.append(array)
    wide = any(array.dtype not in _WHOLE or array.dtype.itemsize > 4 for array in found)
    return [np.ascontiguousarray(array, np.int64 if wide else np.int32) for array in found]


def _frozen(array: Array) -> Array:
    """A read-only view: one type for all arrays, compiled once."""
    seen = array.view()
    seen.flags.writeable = False
    return seen


def _values(X: Any, data: Any, source: str) -> Array:
    """Contiguous values of a type that SciPy computes with; small integers are not converted."""
    if isinstance(data, np.ma.MaskedArray) and np.any(data.mask):
        raise DataError(f"{source}: {np.count_nonzero(data.mask)} values are masked; drop those entries first")
    values = np.asarray(data)
    if values.ndim != 1:
        raise _damaged(X, source, f"its values have shape {values.shape}")
    if values.dtype.kind == "O":
        try:
            values = values.astype(np.float64)
        except (TypeError, ValueError) as error:
            raise DataError(f"{source}: a sparse matrix holds numbers ({error})") from error
    if values.dtype.kind not in "biufc":
        raise DataError(f"{source}: a sparse matrix holds numbers, got {values.dtype}")
    if values.dtype.kind == "f" and values.dtype.itemsize not in {4, 8}:
        with np.errstate(over="ignore"):  # infinity is refused later, with its place
            values = values.astype(np.float64)
    return np.ascontiguousarray(values, values.dtype.newbyteorder("="))
