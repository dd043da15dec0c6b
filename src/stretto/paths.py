"""Root folder of Stretto's caches, chosen by the environment; this module never creates it."""

from __future__ import annotations

import os
from pathlib import Path


def cache_root() -> Path:
    """`$STRETTO_CACHE`, else `stretto` under `$XDG_CACHE_HOME`, else `~/.cache/stretto`."""
    root = os.environ.get("STRETTO_CACHE")
    if root:
        return Path(root)
    return Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")) / "stretto"
