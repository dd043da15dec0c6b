"""Write files atomically: a reader, or a crash, sees the old file or the new one."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A file to write to, in the same folder and with the same ending; at the end of the block it replaces `path`.

    After an error it is removed, and `path` is unchanged.

    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with replacing(f"{folder}/numbers.csv") as fresh:
    ...         _ = fresh.write_text("1,2")
    ...     os.listdir(folder)
    ['numbers.csv']
    """
    target = Path(path)
    handle, name = tempfile.mkstemp(prefix=f".{target.stem}-", suffix=target.suffix, dir=target.parent)
    fresh = Path(name)
    try:
        os.close(handle)
        yield fresh
        mask = os.umask(0)
        os.umask(mask)
        fresh.chmod(0o666 & ~mask)  # the temporary file is private; the file has the usual permissions
        os.replace(fresh, target)
    finally:
        fresh.unlink(missing_ok=True)
