"""Cache of parsed text files: a file is parsed once, afterwards its arrays are memory-mapped.

An entry is a folder of `.npy` files and a `meta.json`, named by a hash of everything that could change the result:
the file's path, size and time of change, the options, and our version. It is created by one rename, so that a reader
sees all of it or nothing, and two processes that write one entry do not conflict. A damaged entry is parsed again. A
cache that cannot be written causes a warning only. The folder may be deleted at any time.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
import warnings
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.data.records.data import Data
from stretto.data.records.ids import IdMap
from stretto.errors import DataError
from stretto.paths import cache_root

LAYOUT = 2  # raise it when parsing or this format changes


class CacheWarning(UserWarning):
    """Parsed data could not be cached; reading continues without."""


def entry(path: str, options: dict[str, Any]) -> Path | None:
    """The folder for this file and these options, whether or not it exists; None when the file cannot be read."""
    try:
        about = os.stat(path)
    except (OSError, ValueError):
        return None
    # Times of change have the resolution of the kernel's clock; inode and status change distinguish the rest.
    changed = (about.st_size, about.st_mtime_ns, about.st_ctime_ns, about.st_ino)
    said = [os.path.abspath(path), changed, sorted(options.items()), LAYOUT, _version()]
    key = hashlib.sha256(json.dumps(said, default=str).encode()).hexdigest()
    return cache_root() / "data" / key[:40]


def load(folder: Path, source: str) -> Data | None:
    """The data kept in `folder`, arrays mapped from disk; None when there is none or it is damaged."""
    try:
        meta = json.loads((folder / "meta.json").read_text())
        arrays = {name: _checked(folder / f"{name}.npy", crc) for name, crc in meta["arrays"].items()}
        return Data.from_arrays(
            arrays["rows"], arrays["cols"], arrays["values"], (int(meta["shape"][0]), int(meta["shape"][1])),
            labels=arrays.get("labels"), row_ids=_ids(arrays, "row"), col_ids=_ids(arrays, "col"), source=source,
        )  # fmt: skip
    except (OSError, ValueError, KeyError, TypeError, EOFError, DataError):
        return None


def store(folder: Path, data: Data) -> None:
    """Keep `data` in `folder`; warns and leaves nothing behind when that fails."""
    arrays = {"rows": data.rows, "cols": data.cols, "values": data.values, **id_arrays(data)}
    if data.labels is not None:
        arrays["labels"] = data.labels
    work: str | None = None
    try:
        folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        work = tempfile.mkdtemp(prefix=".new-", dir=folder.parent)
        for name, array in arrays.items():
            np.save(os.path.join(work, f"{name}.npy"), array, allow_pickle=False)
        meta = {"shape": data.shape, "source": data.source, "arrays": {name: _crc(a) for name, a in arrays.items()}}
        Path(work, "meta.json").write_text(json.dumps(meta))
        if folder.exists() and load(folder, data.source) is None:
            shutil.rmtree(folder, ignore_errors=True)  # remove a damaged entry
        if not folder.exists():
            os.rename(work, folder)
    except OSError as error:
        if not folder.exists():  # otherwise another process has written the same entry
            warnings.warn(
                f"parsed data is not kept ({error}); set STRETTO_CACHE to a writeable folder or pass cache=False",
                CacheWarning,
                stacklevel=3,
            )
    finally:
        if work is not None:
            shutil.rmtree(work, ignore_errors=True)


def id_arrays(data: Data) -> dict[str, NDArray[Any]]:
    """The id maps as plain arrays named `row_ids.*` and `col_ids.*`."""
    maps = {"row": data.row_ids, "col": data.col_ids}
    return {f"{axis}_ids.{k}": a for axis, m in maps.items() if m is not None for k, a in m.to_arrays().items()}


def _ids(arrays: dict[str, NDArray[Any]], axis: str) -> IdMap | None:
    start = f"{axis}_ids."
    parts = {name.removeprefix(start): array for name, array in arrays.items() if name.startswith(start)}
    return IdMap.from_arrays(parts) if parts else None


def _crc(array: NDArray[Any]) -> int:
    return zlib.crc32(np.ascontiguousarray(array).view(np.uint8).data) if array.size else 0


def _checked(path: Path, crc: int) -> NDArray[Any]:
    array: NDArray[Any] = (
        np.load(path, mmap_mode="r", allow_pickle=False) if path.stat().st_size > 128 else np.load(path)
    )
    if _crc(array) != crc:
        raise ValueError(f"{path} is damaged")
    return np.asarray(array)


def _version() -> str:
    from importlib import metadata

    try:
        return metadata.version("stretto")
    except metadata.PackageNotFoundError:  # run from a checkout that was never installed
        return "source"
