"""Save one state (`State.save`) in one file: written atomically and verified when it is read.

The file is in the safetensors format, so that other programs can read it: the array as `state` (or one array for each
field of a structured one, `state.x`, with their order in `fields`) and the SHA-256 digest of type, shape and bytes as
`sha256`. Of a state with sparse rows it holds the existing rows, with their numbers as `rows` and the full shape as
`shape`.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stretto.atomic import replacing
from stretto.errors import CheckpointError
from stretto.runtime.files import array_file
from stretto.text import show_mib

_WHOLE, _FIELDS, _DIGEST, _ROWS, _SHAPE = "state", "fields", "sha256", "rows", "shape"


class StoredState(NamedTuple):
    """The content of a file."""

    array: NDArray[Any]  # the state, or its existing rows
    rows: NDArray[np.int64] | None  # [n] the numbers of these rows; None for all
    shape: tuple[int, ...]  # of the whole state


def save(
    path: str | os.PathLike[str],
    array: NDArray[Any],
    rows: NDArray[np.int64] | None = None,
    shape: tuple[int, ...] = (),
) -> None:
    """Write `array`, or its rows [n] of a state of this shape.

    An existing file is replaced atomically, after the new one is on disk.
    """
    target = Path(path)
    arrays = split(array)
    if rows is not None:
        arrays |= {_ROWS: rows, _SHAPE: np.array(shape, np.int64)}
    try:
        arrays[_DIGEST] = _digest(arrays)
        with replacing(target) as fresh, fresh.open("wb") as file:
            array_file.write(file.write, arrays)
            file.flush()
            os.fsync(file.fileno())
    except TypeError as error:
        raise CheckpointError(f"{target}: the state cannot be kept: {error}") from error
    except OSError as error:
        raise CheckpointError(
            f"{target}: could not save {show_mib(array.nbytes)}: {error.strerror or error}; check the folder, "
            "its permissions and the free space. An existing file is unchanged"
        ) from error


def load(path: str | os.PathLike[str]) -> StoredState:
    """Read what `save` wrote."""
    try:
        with open(path, "rb") as file:
            arrays = array_file.read(file, os.fstat(file.fileno()).st_size, lambda piece: None)
    except OSError as error:
        raise CheckpointError(
            f"{path}: cannot be read: {error.strerror or error}; name a file State.save wrote"
        ) from error
    except array_file.DamagedFile as error:
        raise CheckpointError(f"{path} is damaged: {error}; restore it from a copy") from error
    wanted = arrays.pop(_DIGEST, None)
    if wanted is None or not (_WHOLE in arrays or _FIELDS in arrays):
        raise CheckpointError(
            f"{path}: holds {', '.join(arrays) or 'nothing'}, not a state; name a file State.save wrote"
        )
    if not np.array_equal(wanted, _digest(arrays)):
        raise CheckpointError(f"{path} is damaged: its bytes are not those that were written; restore it from a copy")
    array, rows = joined(arrays), arrays.get(_ROWS)
    return StoredState(array, rows, array.shape if rows is None else tuple(arrays[_SHAPE].tolist()))


def joined(arrays: dict[str, NDArray[Any]]) -> NDArray[Any]:
    """The array that `split` divided."""
    if _WHOLE in arrays:
        return arrays[_WHOLE]
    names = arrays[_FIELDS].tolist()
    fields = [arrays[f"{_WHOLE}.{name}"] for name in names]
    whole = np.empty(fields[0].shape, dtype=[(name, field.dtype) for name, field in zip(names, fields, strict=True)])
    for name, field in zip(names, fields, strict=True):
        whole[name] = field
    return whole


def split(array: NDArray[Any]) -> dict[str, NDArray[Any]]:
    """An array by names, one for each field of a structured one."""
    names = array.dtype.names
    if names is None:
        return {_WHOLE: array}
    return {_FIELDS: np.array(names), **{f"{_WHOLE}.{name}": array[name] for name in names}}


def _digest(arrays: dict[str, NDArray[Any]]) -> NDArray[np.uint8]:
    digest = hashlib.sha256()
    for name in sorted(arrays):
        little = np.ascontiguousarray(arrays[name].astype(arrays[name].dtype.newbyteorder("<"), copy=False))
        digest.update(f"{name} {little.dtype.str} {arrays[name].shape} ".encode())
        raw: Any = little.reshape(-1).view(np.uint8)
        digest.update(raw)
    return np.frombuffer(digest.digest(), dtype=np.uint8)
