"""Benches that share a GPU take turns: while one measures, the others prepare."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator


@contextlib.contextmanager
def turn() -> Iterator[None]:
    """Nobody else measures meanwhile. STRETTO_TURNS names a file that all benches on a machine share; unset: no one
    else is there."""
    path = os.environ.get("STRETTO_TURNS")
    if not path:
        yield
        return
    with open(path, "a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
