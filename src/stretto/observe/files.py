"""Write files atomically: a reader, or a crash, sees the old text or the new one."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path


def replace(path: Path, content: bytes | Callable[[Path], None]) -> None:
    """Replace the file at `path` by `content`; a function is called with a path of the same ending to write to."""
    fresh = path.with_name(f".{path.stem}.new{path.suffix}")
    try:
        if isinstance(content, bytes):
            fresh.write_bytes(content)
        else:
            content(fresh)
        os.replace(fresh, path)
    except BaseException:
        fresh.unlink(missing_ok=True)
        raise
