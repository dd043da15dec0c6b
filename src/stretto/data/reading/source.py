"""Open local or remote files, decompress them, and read chunks of bytes that end at a line end.

A path is a local file or, with `://` in it, anything fsspec can open. Compression is detected from the first bytes, not
from the name.
"""

from __future__ import annotations

import os
import stat
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, BinaryIO, cast

import numpy as np
from numpy.typing import NDArray

from stretto.data.reading.file_part import FilePart, cut, wrong
from stretto.errors import DataError, FormatError

CHUNK = 4 << 20  # bytes of text parsed at a time: large enough to amortise the call, small enough to stay in cache
LONGEST_LINE = 1 << 30
MAGIC = {b"\x1f\x8b": "gzip", b"\xfd7zXZ\x00": "xz", b"BZh": "bzip2", b"\x28\xb5\x2f\xfd": "zstandard"}


def as_path(path: Any) -> str:
    """The path as text. Other types are refused: bytes would fail later, and an int would open a file descriptor."""
    if isinstance(path, str):
        return path
    if isinstance(path, os.PathLike):
        found = os.fspath(path)
        if isinstance(found, str):
            return found
    more = "; os.fsdecode(path) makes text of bytes" if isinstance(path, bytes | os.PathLike) else ""
    raise DataError(f"a path must be text or a pathlib.Path, got {type(path).__name__}{more}")


def is_url(path: str) -> bool:
    return "://" in path


def local_path(path: str) -> str | None:
    """Where a file is on this machine; None for one that is elsewhere."""
    scheme, there, rest = path.partition("://")
    if not there:
        return path
    return rest if scheme in {"file", "local"} else None


def compression_of(head: bytes) -> str | None:
    """The compression whose mark `head` begins with."""
    return next((name for mark, name in MAGIC.items() if head.startswith(mark)), None)


def open_raw(path: str) -> BinaryIO:
    """The file's own bytes, buffered and seekable where the place allows it."""
    try:
        local = local_path(path)
        if local is not None:
            _refuse_special(path, os.stat(local).st_mode)
        if is_url(path):
            import fsspec

            return cast("BinaryIO", fsspec.open(path, "rb").open())
        return open(path, "rb")
    except FileNotFoundError as error:
        raise DataError(f"{path}: no such file; check the path") from error
    except IsADirectoryError as error:
        raise DataError(f"{path}: is a folder; name a file in it") from error
    except PermissionError as error:
        raise DataError(f"{path}: no permission to read it; change its mode or run as its owner") from error
    except DataError:
        raise
    except (OSError, ValueError, ImportError) as error:
        raise DataError(f"{path!r}: cannot be opened ({error})") from error


def _refuse_special(path: str, mode: int) -> None:
    """Raise for pipes and devices: opening a pipe waits for a writer, and it cannot be read twice."""
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(path)
    if not stat.S_ISREG(mode):
        kind = "a pipe" if stat.S_ISFIFO(mode) else "a socket" if stat.S_ISSOCK(mode) else "a device"
        raise DataError(f"{path}: is {kind}, and only regular files can be read; write it to a file first (cat > FILE)")


@contextmanager
def open_plain(path: str) -> Iterator[tuple[BinaryIO, str | None]]:
    """The file's unpacked bytes, and the compression that was found."""
    with open_raw(path) as raw:
        try:
            kind = compression_of(raw.read(8))
            raw.seek(0)
        except (OSError, ValueError) as error:
            raise DataError(f"{path}: cannot be read ({error})") from error
        if kind is None:
            yield raw, None
            return
        with _unpacked(path, raw, kind) as stream:
            yield stream, kind


def _unpacked(path: str, raw: BinaryIO, kind: str) -> BinaryIO:
    if kind == "gzip":
        import gzip

        return cast("BinaryIO", gzip.open(raw))
    if kind == "xz":
        import lzma

        return cast("BinaryIO", lzma.open(raw))
    if kind == "bzip2":
        import bz2

        return cast("BinaryIO", bz2.open(raw))
    raise DataError(f"{path}: is packed with {kind}, which is not supported; unpack it or repack it with gzip or xz")


def size_of(path: str) -> int | None:
    """Bytes on disk, or None where that is not known."""
    local = local_path(path)
    try:
        return None if local is None else os.path.getsize(local)
    except (OSError, ValueError):
        return None


class LineReader:
    """The text of a file as arrays of whole lines.

    Iterating yields (n,) uint8 arrays that end with a newline; each is a view that is overwritten by the next. A
    missing newline at the end of the file is added. The parser counts lines in `walked`, so that errors of a broken
    stream name a line. `part` is the part of the file that is read, None for all of it.
    """

    def __init__(self, path: str, chunk: int = CHUNK) -> None:
        self.path = path
        self._open = ExitStack()
        self.stream, self.compression = self._open.enter_context(open_plain(path))
        self.walked = 0
        self.bytes = 0
        self.part: FilePart | None = None
        self._buffer = np.empty(chunk + 1, dtype=np.uint8)

    def __enter__(self) -> LineReader:
        return self

    def __exit__(self, *exc: Any) -> None:
        self.close()

    def close(self) -> None:
        self._open.close()

    def head(self, size: int = 1 << 16) -> tuple[bytes, bool]:
        """The first bytes, and whether they are all; reading starts over afterwards."""
        parts: list[bytes] = []
        while size > 0 and (part := self._guard(partial(self.stream.read, size))):
            parts.append(part)
            size -= len(part)
        self.stream.seek(0)
        return b"".join(parts), size > 0

    def narrow(self, number: int, parts: int, skip: int) -> FilePart:
        """From here on read one part only, without the file's first `skip` lines."""
        if self.compression is not None:
            raise DataError(
                f"{self.path}: is packed ({self.compression}), so no part of it can be read alone; unpack it, or read "
                "it whole"
            )
        try:
            part = cut(self.stream, number, parts, skip)
            self.stream.seek(part.begin)
        except (OSError, ValueError) as error:
            raise DataError(
                f"{self.path}: cannot be read from the middle ({error}); copy it to where it can, or read it whole"
            ) from error
        self.part, self.walked = part, part.walked or 0
        return part

    @property
    def at_start(self) -> bool:
        """Whether nothing of the file lies before the next line; a byte order mark elsewhere is text."""
        return self.walked == 0 and (self.part is None or self.part.begin == 0)

    def __iter__(self) -> Iterator[NDArray[np.uint8]]:
        fill = 0
        while True:
            room = len(self._buffer) - 1 - fill  # one byte is kept for a missing last newline
            if self.part is not None:
                room = min(room, self.part.end - self.part.begin - self.bytes)
            target = memoryview(self._buffer)[fill : fill + room]  # type: ignore[arg-type]
            got = self._guard(partial(cast("Any", self.stream).readinto, target))
            if not got:
                break
            self.bytes += got
            cut = self._last_newline(fill, fill + got)
            fill += got
            if cut < 0:
                if fill == len(self._buffer) - 1:
                    self._enlarge()
                continue
            yield self._buffer[: cut + 1]
            rest = fill - cut - 1
            self._buffer[:rest] = self._buffer[cut + 1 : fill].copy()
            fill = rest
        if fill:
            self._buffer[fill] = 10
            yield self._buffer[: fill + 1]

    def _last_newline(self, lo: int, hi: int) -> int:
        step = 1 << 16
        while hi > lo:
            start = max(lo, hi - step)
            at = self._buffer[start:hi].tobytes().rfind(b"\n")
            if at >= 0:
                return start + at
            hi = start
        return -1

    def _enlarge(self) -> None:
        if len(self._buffer) > LONGEST_LINE:
            raise wrong(self.part, self.path, self.walked + 1, "a line is longer than 1 GiB", "is this a text file?")
        larger = np.empty(2 * len(self._buffer), dtype=np.uint8)
        larger[: len(self._buffer)] = self._buffer
        self._buffer = larger

    def _guard(self, read: Any) -> Any:
        """Call `read`; an exception of a broken stream becomes an error with file and line."""
        from lzma import LZMAError

        try:
            return read()
        except EOFError as error:
            problem = f"the {self.compression} stream ends too early, so the file is incomplete"
            raise FormatError(self.path, self.walked + 1, problem, "copy or download it again") from error
        except (zlib.error, LZMAError, OSError) as error:
            packed = f"the {self.compression} stream is damaged" if self.compression else "reading failed"
            remedy = "copy or download it again"
            raise wrong(self.part, self.path, self.walked + 1, f"{packed} ({error})", remedy) from error
