"""One way to compile: serial, without the GIL, strict or fast, stored on disk.

`@kernel` marks an entry point: a function that Python calls once per worker and pass. It holds two compiled forms of
the same source, `exact` (no fastmath, nothing is contracted or reordered unless the source says so) and `fast`
(fastmath). `@inner` marks a helper that kernels call; it must be free of floating-point arithmetic whose order the
profile could change, or be used by one profile only. How both are compiled is in `build.linking`, where compiled code
is stored in `build.storage`.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable
from typing import Any

import numba
from llvmlite import binding

from .build.linking import entry, helper

PROFILES = ("exact", "fast")
# Fast may reorder and contract, but NaN and infinity stay visible: a failed visit must be noticed.
_FAST = frozenset({"nsz", "arcp", "contract", "afn", "reassoc"})


def _options(*, fast: bool = False, lean: bool = False) -> dict[str, Any]:
    options = {"nogil": True, "fastmath": set(_FAST) if fast else False, "error_model": "numpy", "boundscheck": False}
    return options | {"_nrt": False} if lean else options


def _stored(made: Any, fn: Callable[..., Any], stamp: str | None, *, helper: bool, fast: bool = False) -> Any:
    """Let a dispatcher look for its compiled forms on disk."""
    from .build.storage import Stored  # here, not above: where code is stored does not change it

    if made is not fn:  # as it is where Numba is switched off
        options = made.targetoptions | {"fastmath": sorted(_FAST) if fast else False}
        made._cache = Stored(fn, stamp, options, helper=helper, exact=not fast)
    return made


class Kernel:
    """A compiled entry point in both profiles; `kernel.exact(...)`, `kernel.fast(...)`, or `kernel[profile](...)`."""

    def __init__(self, fn: Callable[..., Any], *, lean: bool = False, stamp: str | None = None) -> None:
        self.py, self.lean, self.stamp = fn, lean, stamp
        functools.update_wrapper(self, fn)

    @functools.cached_property
    def exact(self) -> Callable[..., Any]:
        return self._compiled(fast=False)

    @functools.cached_property
    def fast(self) -> Callable[..., Any]:
        return self._compiled(fast=True)

    def _compiled(self, *, fast: bool) -> Callable[..., Any]:
        made = entry(self.py, _options(fast=fast, lean=self.lean))
        return _stored(made, self.py, self.stamp, helper=False, fast=fast)  # type: ignore[no-any-return]

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


def inner(fn: Callable[..., Any], *, forced: bool = False, lean: bool = False) -> Any:
    """Mark a helper that only kernels call. forced: it becomes part of its caller whatever its size."""
    options = _options(lean=lean) | ({"forceinline": True} if forced else {})
    return _stored(helper(fn, options), fn, None, helper=True)


def lean_kernel(fn: Callable[..., Any]) -> Kernel:
    """Mark an entry point that allocates nothing and hands arrays around in tuples: no references are counted.

    Counting costs an atomic operation whenever a tuple's array is given a name, here several for each token.
    """
    return Kernel(fn, lean=True)


def lean_inner(fn: Callable[..., Any]) -> Any:
    """Mark a helper of lean kernels; it becomes part of its caller whatever its size."""
    return inner(fn, forced=True, lean=True)
