"""Hash arrays: their values, shapes and order.

Short arrays by SHA-256. Long ones by a compiled hash, much faster, whose result goes into the SHA-256: a fit then
spends little on the digest of its data. The digest distinguishes data; it does not resist forgery.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.data.convert.sparse_structure import is_sparse

_CHUNK = 1 << 24  # bytes hashed together; fixed, so that the digest does not depend on the threads
_LONG = 1 << 16  # bytes from which on the compiled hash is used
_STRIPE = 128  # bytes that the compiled hash takes at a time
_FROM = np.arange(1, 17, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)  # its lanes at the start


def digest_of(*values: Any, threads: int = 1) -> str:
    """32 hexadecimal digits for arrays, dense or sparse, and what else can be printed.

    The same numbers stored in another format or order have another digest.

    >>> digest_of(np.arange(3)) == digest_of(np.arange(3)), digest_of(np.arange(3)) == digest_of(np.arange(4))
    (True, False)
    """
    whole = hashlib.sha256()
    for value in values:
        if is_sparse(value):
            whole.update(f"{value.format}{value.shape}".encode())
            names = ("indptr", "indices", "row", "col", "offsets", "data")
            arrays = [getattr(value, name) for name in names if hasattr(value, name)]
        else:
            arrays = [np.asarray(value)]
        for array in arrays:
            _add(whole, np.asarray(array), threads)
    return whole.hexdigest()[:32]


def _add(whole: Any, array: NDArray[Any], threads: int) -> None:
    order = "F" if array.flags.f_contiguous and not array.flags.c_contiguous else "C"
    whole.update(f"{array.dtype.str}{array.shape}{order}".encode())
    if array.dtype.kind == "O":
        whole.update(repr(array.tolist()).encode())
        return
    flat = np.ravel(array, order="F" if order == "F" else "C")  # a copy only where it is not contiguous
    chunks = _chunks(flat.view(np.uint8) if flat.size else flat)
    if threads > 1 and flat.nbytes > _CHUNK:
        with ThreadPoolExecutor(threads) as pool:
            for part in pool.map(_hashed, chunks):
                whole.update(part)
    else:
        for chunk in chunks:
            whole.update(_hashed(chunk))


def _chunks(flat: NDArray[Any]) -> Iterator[NDArray[Any]]:
    for first in range(0, len(flat), _CHUNK):
        yield flat[first : first + _CHUNK]


def _hashed(chunk: NDArray[Any]) -> bytes:
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
