"""One way to compile: serial, without the GIL, strict or fast, kept in a folder of our own.

`@kernel` marks an entry point: a function that Python calls once per worker and pass. It holds two compiled forms of
the same source, `exact` (no fastmath, nothing is contracted or reordered unless the source says so) and `fast`
(fastmath). `@inner` marks a helper that kernels call; it must be free of floating-point arithmetic whose order the
profile could change, or be used by one profile only.

Numba's own cache notices an edited file but not an edited callee in another file. Ours is stamped with a hash of every
source file in this folder, so that any edit recompiles, and entries of other versions are left alone.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
from llvmlite import binding
from numba.core.caching import CompileResultCacheImpl, FunctionCache, _CacheLocator

from stretto.paths import cache_root

PROFILES = ("exact", "fast")


def cache_folder() -> Path:
    """Where compiled kernels are kept."""
    return cache_root() / "kernels"


@functools.cache
def stamp() -> str:
    """A hash of Numba's version and of every source file in this folder."""
    digest = hashlib.sha256(numba.__version__.encode())
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


class _Locator(_CacheLocator):  # type: ignore[misc]
    """Tells Numba to keep a function's machine code in our folder, under our stamp."""

    def __init__(self, py_func: Callable[..., Any], py_file: str) -> None:
        self._path = str(cache_folder() / stamp()[:16])

    def ensure_cache_path(self) -> None:
        os.makedirs(self._path, mode=0o700, exist_ok=True)

    def get_cache_path(self) -> str:
        return self._path

    def get_source_stamp(self) -> str:
        return stamp()

    def get_disambiguator(self) -> str:
        return stamp()[:10]

    @classmethod
    def from_function(cls, py_func: Callable[..., Any], py_file: str) -> _Locator:
        return cls(py_func, py_file)


class _Impl(CompileResultCacheImpl):  # type: ignore[misc]
    _locator_classes = (_Locator,)


class _FastImpl(_Impl):
    def get_filename_base(self, fullname: str, abiflags: str) -> str:
        return f"fast-{super().get_filename_base(fullname, abiflags)}"


class _Cache(FunctionCache):  # type: ignore[misc]
    _impl_class = _Impl

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """What is kept for these types, or None: also where a file is damaged, which is then written again."""
        try:
            return super().load_overload(sig, target_context)
        except Exception:
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep it. Numba adds to the index that is there, so a damaged one is emptied first; a failure costs time."""
        try:
            super().save_overload(sig, data)
        except Exception:
            with contextlib.suppress(Exception):
                self.flush()
                super().save_overload(sig, data)


class _FastCache(_Cache):
    _impl_class = _FastImpl


def _usable(folder: Path) -> bool:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError:
        return False
    return os.access(folder, os.W_OK)


def _compile(fn: Callable[..., Any], *, fast: bool = False, inline: bool = False, lean: bool = False) -> Any:
    # Fast may reorder and contract, but NaN and infinity stay visible: a failed visit must be noticed.
    flags = {"nsz", "arcp", "contract", "afn", "reassoc"}
    options = {"nogil": True, "fastmath": flags if fast else False, "error_model": "numpy", "boundscheck": False}
    if lean:
        options |= {"_nrt": False, "forceinline": inline}
    dispatcher = numba.njit(**options)(fn)
    if not inline and _usable(cache_folder()):
        dispatcher._cache = (_FastCache if fast else _Cache)(fn)
    return dispatcher


class Kernel:
    """A compiled entry point in both profiles; `kernel.exact(...)`, `kernel.fast(...)`, or `kernel[profile](...)`."""

    def __init__(self, fn: Callable[..., Any], *, lean: bool = False) -> None:
        self.py, self.lean = fn, lean
        functools.update_wrapper(self, fn)

    @functools.cached_property
    def exact(self) -> Callable[..., Any]:
        return _compile(self.py, lean=self.lean)  # type: ignore[no-any-return]

    @functools.cached_property
    def fast(self) -> Callable[..., Any]:
        return _compile(self.py, fast=True, lean=self.lean)  # type: ignore[no-any-return]

    def __getitem__(self, profile: str) -> Callable[..., Any]:
        if profile not in PROFILES:
            raise KeyError(f"no numeric profile {profile!r}; there are {', '.join(PROFILES)}")
        return self.exact if profile == "exact" else self.fast

    def __call__(self, *args: Any) -> Any:
        """The exact form: what a caller without a profile means."""
        return self.exact(*args)


def target() -> str:
    """What profile `fast` gives the same bits for: this Numba and this processor, or the one named in its settings."""
    from numba.core.registry import cpu_target

    features = cpu_target.target_context.codegen()._customize_tm_features()
    name = numba.config.CPU_NAME or binding.get_host_cpu_name()
    return f"numba {numba.__version__}, {name}, features {hashlib.sha256(features.encode()).hexdigest()[:12]}"


def kernel(fn: Callable[..., Any]) -> Kernel:
    """Mark an entry point that Python calls."""
    return Kernel(fn)


def inner(fn: Callable[..., Any]) -> Any:
    """Mark a helper that only kernels call; it is compiled into them."""
    return _compile(fn, inline=True)


def lean_kernel(fn: Callable[..., Any]) -> Kernel:
    """Mark an entry point that allocates nothing and hands arrays around in tuples: no references are counted.

    Counting costs an atomic operation whenever a tuple's array is given a name, here several for each token.
    """
    return Kernel(fn, lean=True)


def lean_inner(fn: Callable[..., Any]) -> Any:
    """Mark a helper of lean kernels; it becomes part of its caller whatever its size."""
    return _compile(fn, inline=True, lean=True)
