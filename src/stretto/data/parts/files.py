"""List the files of a data set, and check whether one of them has changed since.

    >>> expand("ratings/*.csv")                     # doctest: +SKIP
    ['/data/ratings/2023.csv', '/data/ratings/2024.csv']

A path is a file, a folder, a glob, an fsspec URL of one of these, or a list of them. A folder's files are taken in the
order of their names, without those that begin with "." or "_", which tools write beside the data (`_SUCCESS`).
"""

from __future__ import annotations

import glob
import os
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from stretto.data.reading.source import as_path, is_url, local_path, open_raw
from stretto.errors import DataError

SAMPLE = 4096  # bytes of each end of a file that its fingerprint covers
# What file systems call a property that changes with the contents, the most reliable first.
_STAMPS = ("ETag", "etag", "checksum", "md5", "mtime", "LastModified", "last_modified", "updated", "created")
_PLAN_AGAIN = "plan the parts again with open_parts, and leave the files alone until they have been read"


@dataclass(frozen=True, slots=True)
class FileState:
    """The state of a file, to notice a change without reading it.

    Parameters
    ----------
    size : int or None
        Bytes; None where the file system does not say.
    stamp : str
        Time of modification or entity tag; empty where it is not compared.
    sample : int
        Checksum of the first and last bytes, 0 where there is an entity tag instead.
    """

    size: int | None
    stamp: str
    sample: int


def state_of(path: str, copies: bool = False) -> FileState:
    """The state of a file now. copies: leave out the time of modification, in which copies of a file differ."""
    local = local_path(path)
    if local is not None:
        with open_raw(path) as stream:
            about = os.stat(local)
            sample = zlib.crc32(stream.read(SAMPLE))
            stream.seek(max(0, about.st_size - SAMPLE))
            return FileState(
                about.st_size, "" if copies else str(about.st_mtime_ns), zlib.crc32(stream.read(SAMPLE), sample)
            )
    files, inside = file_system(path)
    try:
        about = files.info(inside)
    except FileNotFoundError as error:
        raise DataError(f"{path}: no such file; check the path") from error
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: cannot be read ({error})") from error
    size = about.get("size")
    stamp = next((f"{name} {about[name]}" for name in _STAMPS if about.get(name)), "")
    sample = 0
    if not stamp and size is not None:
        sample = zlib.crc32(files.cat_file(inside, 0, SAMPLE))
        sample = zlib.crc32(files.cat_file(inside, max(0, size - SAMPLE), size), sample)
    return FileState(size, stamp, sample)


def refuse_change(path: str, planned: FileState) -> None:
    """DataError unless the file is as it was when the parts were planned."""
    try:
        now = state_of(path, copies=not planned.stamp)
    except DataError as error:
        raise DataError(
            f"{path}: cannot be read although it could when the parts were planned ({error}); restore it, or make it "
            "available under this path on every node"
        ) from error
    if now == planned:
        return
    if now.size != planned.size:
        what = f"it had {planned.size} bytes and has {now.size}"
    elif now.sample != planned.sample:
        what = "its contents are different"
    else:
        what = "it was modified, or this is a copy with another time of modification (copies=True allows those)"
    raise DataError(f"{path}: the file changed since its parts were planned: {what}; {_PLAN_AGAIN}")


def is_several(path: Any) -> bool:
    """Whether a path stands for several files: a list, a folder or a glob. URLs are not asked."""
    if isinstance(path, list | tuple):
        return True
    if not isinstance(path, str | os.PathLike):
        return False
    name = as_path(path)
    return _is_glob(name) or name.endswith("://") or (is_url(name) and name.endswith("/")) or os.path.isdir(name)


def expand(paths: Any) -> list[str]:
    """The files that a path, or a list of paths, stands for; local ones as absolute paths, so that nodes find them."""
    given: Sequence[Any] = paths if isinstance(paths, list | tuple) else [paths]
    if not given:
        raise DataError("the list of files is empty; name at least one")
    found = [file for one in given for file in _expand_one(as_path(one))]
    seen: set[str] = set()
    for file in found:
        if file in seen:
            raise DataError(f"{file} is named twice, so that its records would count twice; name every file once")
        seen.add(file)
    return found


def _expand_one(path: str) -> list[str]:
    if is_url(path):
        return _expand_url(path)
    if _is_glob(path):
        found = sorted(file for file in glob.glob(path, recursive=True) if os.path.isfile(file))
        found = [os.path.abspath(file) for file in found if not _is_hidden(file)]
        return _some(found, path, "no file matches; check the pattern")
    if os.path.isdir(path):
        names = sorted(name for name in os.listdir(path) if not _is_hidden(name))
        files = [os.path.abspath(os.path.join(path, name)) for name in names]
        return _some([file for file in files if os.path.isfile(file)], path, _empty(path))
    return [os.path.abspath(path)]


def _expand_url(path: str) -> list[str]:
    files, inside = file_system(path)
    try:
        if _is_glob(path):
            found, why = sorted(files.glob(inside)), "no file matches; check the pattern"
        elif path.endswith("/") or files.isdir(inside):
            found, why = sorted(files.ls(inside, detail=False)), _empty(path)
        else:
            return [path]
        found = [one for one in found if not _is_hidden(one) and not files.isdir(one)]
    except FileNotFoundError as error:
        raise DataError(f"{path}: no such folder; check the path") from error
    except (OSError, ValueError, NotImplementedError) as error:
        raise DataError(f"{path}: its files cannot be listed ({error}); give a list of files") from error
    return _some([str(files.unstrip_protocol(one)) for one in found], path, why)


def _empty(path: str) -> str:
    return f"is a folder without data files; those in its folders need a glob, such as {path.rstrip('/')}/**/*.parquet"


def _some(found: list[str], path: str, why: str) -> list[str]:
    if not found:
        raise DataError(f"{path}: {why}")
    return found


def _is_glob(path: str) -> bool:
    if is_url(path):  # "?" begins the query of a web address
        return "*" in path or (not path.startswith("http") and glob.has_magic(path))
    return glob.has_magic(path) and not os.path.exists(path)


def _is_hidden(path: str) -> bool:
    return os.path.basename(path.rstrip("/")).startswith((".", "_"))


def file_system(path: str) -> tuple[Any, str]:
    """The fsspec file system of a URL, and what the file is called there."""
    import fsspec

    try:
        files, inside = fsspec.core.url_to_fs(path)
    except (OSError, ValueError, ImportError) as error:
        raise DataError(f"{path!r}: cannot be opened ({error})") from error
    return files, inside
