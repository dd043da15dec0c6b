"""Compiled code of generated sources: files in a private folder, named by a hash of their content.

The hash covers the source (which contains the body of the loop with all its types), the user's functions that it calls,
Numba's version and every kernel source that it imports. So an edited user function gives another name, and a file is
never stale, only missing or damaged; damaged files are rewritten.
"""

from __future__ import annotations

import functools
import hashlib
import linecache
import os
import re
import sys
import tempfile
import types
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from stretto.kernels.build.stamps import stamp_of
from stretto.paths import cache_root

from .compile import Kernel

_ALLOCATION = re.compile(r"\b(empty|empty2|zeros)\(")


def folder() -> Path:
    """The folder of generated sources."""
    return cache_root() / "loops"


def name_of(source: str, digests: Sequence[str]) -> str:
    """Return the hash that names a source and everything that its machine code depends on."""
    found = hashlib.sha256(stamp_of(source).encode())
    for part in digests:
        found.update(b"\0" + part.encode())
    return found.hexdigest()[:32]


def load(source: str, users: Sequence[Any], digests: Sequence[str]) -> dict[str, Kernel]:
    """Return the functions of a source whose names end in `_worker`, as kernels. It calls users[k] as user{k}."""
    name = name_of(source, digests)
    return _load(name, source, tuple(users))


@functools.lru_cache(maxsize=256)
def _load(name: str, source: str, users: tuple[Any, ...]) -> dict[str, Kernel]:
    path = _kept(name, source)
    module = types.ModuleType(f"stretto_loop_{name}")
    module.__file__ = str(path)
    sys.modules[module.__name__] = module  # Numba's cache can only be read if the module is found
    vars(module).update({f"user{k}": target for k, target in enumerate(users)})
    linecache.cache[str(path)] = (len(source), None, source.splitlines(keepends=True), str(path))
    exec(compile(source, str(path), "exec"), vars(module))
    # Functions of users may do anything. Without allocations the arrays' references need no counting: an atomic
    # operation before and after every subscript that is checked, and half of the compile time.
    allocates = bool(users) or _ALLOCATION.search(source) is not None
    return {
        key: Kernel(value, allocates=allocates, stamp=name)
        for key, value in vars(module).items()
        if key.endswith("_worker")
    }


def _kept(name: str, source: str) -> Path:
    """Return the file of the source; the write is atomic."""
    path = folder() / f"{name}.py"
    try:
        if path.read_text(encoding="utf-8") == source:
            return path
    except (OSError, UnicodeDecodeError):
        pass
    try:
        folder().mkdir(mode=0o700, parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=folder(), prefix=".", suffix=".py")
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(source)
        os.replace(temporary, path)
    except OSError:
        pass  # a cache that cannot be written costs time, not correctness
    return path
