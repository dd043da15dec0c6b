"""Calls and their results as words of 64 bits: a header in JSON, then the arrays. Nothing is unpickled.

>>> import numpy as np
>>> words = encode([(3, [np.arange(2), np.array([0.5, 1.5])])])
>>> [(number, [array.tolist() for array in arrays]) for number, arrays in decode(words)]
[(3, [[0, 1], [0.5, 1.5]])]
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.errors import RunError

Words = NDArray[np.int64]
Entry = tuple[int, Sequence[NDArray[Any]]]


def encode(entries: Sequence[Entry]) -> Words:
    """Entries (number, arrays) as words; none for no entries."""
    if not entries:
        return np.empty(0, np.int64)
    header = json.dumps([[n, [[a.dtype.str, list(a.shape)] for a in arrays]] for n, arrays in entries]).encode()
    bodies = [np.ascontiguousarray(array).tobytes() for _, arrays in entries for array in arrays]
    size = len(header).to_bytes(8, "little")
    whole = b"".join([size, header, *bodies])
    return np.frombuffer(whole + b"\0" * (-len(whole) % 8), np.int64)


def decode(words: Words) -> list[tuple[int, list[NDArray[Any]]]]:
    """The entries of words."""
    if not len(words):
        return []
    whole = words.tobytes()
    at = 8 + int.from_bytes(whole[:8], "little")
    found = []
    for number, arrays in json.loads(whole[8:at].decode()):
        read = []
        for kind, shape in arrays:
            dtype, count = np.dtype(kind), int(np.prod(shape, dtype=np.int64))
            read.append(np.frombuffer(whole, dtype, count, at).reshape(shape).copy())
            at += count * dtype.itemsize
        found.append((int(number), read))
    return found


def as_array(what: str, value: Any) -> NDArray[Any]:
    """A value that is sent, as an array of numbers; RunError for anything else."""
    found = np.asarray(value)
    if found.dtype.kind not in "fiub":
        raise RunError(f"{what} is {type(value).__name__} ({found.dtype}); send numbers or arrays of numbers")
    return found
