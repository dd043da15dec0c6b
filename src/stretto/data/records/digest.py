"""Hash arrays: their values, shapes and types.

Short arrays by SHA-256. Long ones by a compiled hash, much faster, whose result goes into the SHA-256: a fit then
spends little on the digest of its data. The digest distinguishes data; it does not resist forgery.
"""

from __future__ import annotations

import hashlib
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.data.convert.sparse_structure import is_sparse

_CHUNK = 1 << 24  # bytes hashed together; fixed, so that the digest does not depend on the threads
_LONG = 1 << 16  # bytes from which on the compiled hash is used
_TILE = 256  # columns copied together
_STRIPE = 128  # bytes that the compiled hash takes at a time
_FROM = np.arange(1, 17, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)  # its lanes at the start


def digest_of(*values: Any, threads: int = 1, floats: bool = False) -> str:
    """32 hexadecimal digits for arrays, dense or sparse, and what else can be printed.

    The same numbers in C or Fortran order, strided, or in another byte order have the same digest. Another dtype,
    another sparse format and another order of the entries of a sparse matrix give another one.

    Parameters
    ----------
    values : arrays, sparse matrices and others
        What is hashed, in this order.
    threads : int, default 1
        Threads to hash long arrays with. The digest does not depend on it.
    floats : bool, default False
        Matrices are hashed as solvers read them: float32 as it is, other numbers as float64. The width of the indices
        of a sparse matrix makes no difference.

    >>> digest_of(np.arange(3)) == digest_of(np.arange(3)), digest_of(np.arange(3)) == digest_of(np.arange(4))
    (True, False)
    """
    whole = hashlib.sha256()
    for value in values:
        if is_sparse(value):
            whole.update(f"{value.format}{value.shape}".encode())
            names = ("indptr", "indices", "row", "col", "offsets", "data")
            for name in (name for name in names if hasattr(value, name)):
                array = np.asarray(getattr(value, name))
                kind = array.dtype if not floats else _float(array) if name == "data" else _index(value)
                _add(whole, array, kind, threads)
        else:
            array = np.asarray(value)
            _add(whole, array, _float(array) if floats and array.ndim == 2 else array.dtype, threads)
    return whole.hexdigest()[:32]


def _float(array: NDArray[Any]) -> np.dtype[Any]:
    return np.dtype(np.float32 if array.dtype == np.float32 else np.float64)


def _index(X: Any) -> np.dtype[Any]:
    """The narrowest dtype of the indices of a sparse matrix."""
    return np.dtype(np.int32 if max(*X.shape, X.nnz) <= np.iinfo(np.int32).max else np.int64)


def _add(whole: Any, array: NDArray[Any], dtype: np.dtype[Any], threads: int) -> None:
    """Hash the values of the array as this dtype, little-endian, in C order."""
    dtype = dtype.newbyteorder("<")
    whole.update(f"{dtype.str}{array.shape}C".encode())
    if dtype.kind == "O":
        whole.update(repr(array.tolist()).encode())
        return
    width = max(1, _CHUNK // max(1, dtype.itemsize))

    def hashed(first: int) -> bytes:
        return _hashed(_values(array, first, min(first + width, array.size)).astype(dtype, copy=False))

    places = range(0, array.size, width)
    if threads > 1 and len(places) > 1:
        with ThreadPoolExecutor(threads) as pool:
            for part in pool.map(hashed, places):
                whole.update(part)
    else:
        for first in places:
            whole.update(hashed(first))


def _values(array: NDArray[Any], first: int, last: int) -> NDArray[Any]:
    """Values first to last in C order, contiguous; copied only where they are stored otherwise."""
    if array.ndim < 2:
        return np.ascontiguousarray(array.reshape(-1)[first:last])
    if array.flags.c_contiguous:
        return array.reshape(-1)[first:last]
    row = array.size // len(array)
    top, bottom = first // row, -(-last // row)
    if bottom - top > 2:
        stored = array[top:bottom].reshape(bottom - top, row)
        made = np.empty(stored.shape, array.dtype)
        for column in range(0, row, _TILE):  # several times as fast as one copy, if stored is in Fortran order
            made[:, column : column + _TILE] = stored[:, column : column + _TILE]
        return made.reshape(-1)[first - top * row : last - top * row]
    return np.concatenate(
        [_values(array[at], max(0, first - at * row), min(row, last - at * row)) for at in range(top, bottom)]
    )


def _hashed(values: NDArray[Any]) -> bytes:
    chunk = values.view(np.uint8)
    if chunk.nbytes < _LONG:
        return hashlib.sha256(chunk.data).digest()
    from stretto.kernels.core.word_hash import hash_words  # here, not above: it imports Numba

    whole = chunk.nbytes // _STRIPE * _STRIPE
    words = chunk[:whole].view(np.uint64)
    words = words if words.flags.aligned else words.copy()
    words.flags.writeable = False  # one type for all arrays, compiled once
    lanes = _FROM.copy()
    hash_words.exact(words, lanes)
    return hashlib.sha256(lanes.tobytes() + chunk[whole:].tobytes()).digest()
