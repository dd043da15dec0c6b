"""Compiled code from source that the program wrote: kept as files in a private folder, named by what they hold.

The name is a hash of the source (which holds the body of the loop with all its types), of the user's functions it
calls, of Numba's version and of every kernel source it imports. So an edited function of the user's gives another
name, and a file is never wrong, only absent or damaged; damaged ones are written again.
"""

from __future__ import annotations

import functools
import hashlib
import linecache
import os
import sys
import tempfile
import types
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from stretto.kernels.build.stamps import stamp_of
from stretto.paths import cache_root

from .compile import Kernel


def folder() -> Path:
    """Where generated sources are kept."""
    return cache_root() / "loops"


def name_of(source: str, digests: Sequence[str]) -> str:
    """The hash that names a source and everything that goes into its machine code."""
    found = hashlib.sha256(stamp_of(source).encode())
    for part in digests:
        found.update(b"\0" + part.encode())
    return found.hexdigest()[:32]


def load(source: str, users: Sequence[Any], digests: Sequence[str]) -> dict[str, Kernel]:
    """The functions of a source whose names end in `_worker`, as kernels. users[k] is known in it as user{k}."""
    name = name_of(source, digests)
    return _load(name, source, tuple(users))


@functools.lru_cache(maxsize=256)
def _load(name: str, source: str, users: tuple[Any, ...]) -> dict[str, Kernel]:
    path = _kept(name, source)
    module = types.ModuleType(f"stretto_loop_{name}")
    module.__file__ = str(path)
    sys.modules[module.__name__] = module  # Numba cannot read back what it kept of a module it does not find
    vars(module).update({f"user{k}": target for k, target in enumerate(users)})
    linecache.cache[str(path)] = (len(source), None, source.splitlines(keepends=True), str(path))
    exec(compile(source, str(path), "exec"), vars(module))
    return {
        key: Kernel(value, allocates=True, stamp=name) for key, value in vars(module).items() if key.endswith("_worker")
    }


def _kept(name: str, source: str) -> Path:
    """The file that holds the source, written whole or not at all."""
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
