"""Write files atomically: a reader, or a crash, sees the old text or the new one."""

from __future__ import annotations

import os
from pathlib import Path


def replace(path: Path, content: bytes) -> None:
    """Replace the file at `path` by `content`."""
    fresh = path.with_name(f".{path.stem}.new{path.suffix}")
    try:
        fresh.write_bytes(content)
        os.replace(fresh, path)
    except BaseException:
        fresh.unlink(missing_ok=True)
        raise
