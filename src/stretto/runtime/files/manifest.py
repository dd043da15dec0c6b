"""The manifest of a checkpoint: a JSON file with its own digest, so that changes are detected.

    {"sha256": "9f2c…",
    "manifest": {"format": 1, "arrays": …, "shapes": …, "meta": …}}

The digest in the first line is that of the second value's bytes. The manifest contains the digest of the arrays, so
every byte of a checkpoint is verified.

JSON has neither infinity nor NaN, and early stopping starts from infinity: `pack` writes them as {"$float": "inf"}.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

FORMAT = 1
_FLOAT = "$float"


class BadManifest(Exception):
    """Changed bytes, or written by another version; for callers of this module only."""


def dump(contents: Mapping[str, Any]) -> bytes:
    """The file's bytes for `contents`, which must be JSON values."""
    return _sealed(json.dumps({"format": FORMAT, **contents}, indent=1, allow_nan=False).encode())


def parse(raw: bytes) -> dict[str, Any]:
    """Parse what `dump` wrote; raises BadManifest."""
    body = raw[len(_sealed(b"")) - 2 : -2]
    if _sealed(body) != raw:
        raise BadManifest("its bytes are not those that were written")
    contents: dict[str, Any] = json.loads(body)
    if contents["format"] != FORMAT:
        raise BadManifest(
            f"it has format {contents['format']}, this version reads {FORMAT}; use the version that wrote it"
        )
    return contents


def pack(value: Any) -> Any:
    """Convert a value to JSON types. Tuples become lists, NumPy scalars Python's; other types raise TypeError.

    >>> pack({"best": float("inf"), "shape": (3, 2)})
    {'best': {'$float': 'inf'}, 'shape': [3, 2]}
    """
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return {_FLOAT: repr(value)}
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str) or key == _FLOAT:
                raise TypeError(f"meta: key {key!r} cannot be kept; use text other than {_FLOAT!r}")
        return {key: pack(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [pack(entry) for entry in value]
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise TypeError(f"meta: a value of type {type(value).__name__} cannot be kept; pass arrays among the arrays")


def unpack(value: Any) -> Any:
    """The inverse of `pack`, up to tuples and NumPy scalars."""
    if isinstance(value, dict):
        if value.keys() == {_FLOAT}:
            return float(value[_FLOAT])
        return {key: unpack(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [unpack(entry) for entry in value]
    return value


def _sealed(body: bytes) -> bytes:
    return b'{"sha256": "' + hashlib.sha256(body).hexdigest().encode() + b'",\n"manifest": ' + body + b"}\n"
