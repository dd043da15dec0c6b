"""One way to compile: serial, without the GIL, strict or fast, stored on disk.

`@kernel` marks an entry point: a function that Python calls once per worker and pass. It holds two compiled forms of
the same source, `exact` (no fastmath, nothing is contracted or reordered unless the source says so) and `fast`
(fastmath). `@inner` marks a helper that kernels call; it must be free of floating-point arithmetic whose order the
profile could change, or be used by one profile only. `@merged` marks a helper that becomes part of its callers whatever
its size.

    @kernel                         may not allocate: what it needs comes from outside
    @kernel(allocates=True)         makes arrays of its own (`space`)

Kernels and helpers that do not allocate count no references to arrays. Counting costs an atomic operation, on words
that all threads share, whenever an array taken from a tuple is given a name, and half of the time that compiling takes.

How both are compiled is in `build.linking`, where compiled code
is stored in `build.storage`.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable
from typing import Any, overload

import numba
from llvmlite import binding

from stretto.cached import cached_property
from stretto.kernels.build.linking import entry, helper

from .profiles import PROFILES

# Fast may reorder and contract, but NaN and infinity stay visible: a failed visit must be noticed.
_FAST = frozenset({"nsz", "arcp", "contract", "afn", "reassoc"})


def _options(*, fast: bool = False, allocates: bool = False) -> dict[str, Any]:
    options = {"nogil": True, "fastmath": set(_FAST) if fast else False, "error_model": "numpy", "boundscheck": False}
    return options if allocates else options | {"_nrt": False}


def _stored(made: Any, fn: Callable[..., Any], stamp: str | None, *, helper: bool, fast: bool = False) -> Any:
    """Let a dispatcher look for its compiled forms on disk."""
    from stretto.kernels.build.storage import Stored  # here, not above: where code is stored does not change it

    if made is not fn:  # as it is where Numba is switched off
        options = made.targetoptions | {"fastmath": sorted(_FAST) if fast else False}
        made._cache = Stored(fn, stamp, options, helper=helper, exact=not fast)
    return made


class Kernel:
    """A compiled entry point in both profiles; `kernel.exact(...)`, `kernel.fast(...)`, or `kernel[profile](...)`."""

    def __init__(self, fn: Callable[..., Any], *, allocates: bool = False, stamp: str | None = None) -> None:
        self.py, self.allocates, self.stamp = fn, allocates, stamp
        functools.update_wrapper(self, fn)

    @cached_property
    def exact(self) -> Callable[..., Any]:
        return self._compiled(fast=False)

    @cached_property
    def fast(self) -> Callable[..., Any]:
        return self._compiled(fast=True)

    def _compiled(self, *, fast: bool) -> Callable[..., Any]:
        made = entry(self.py, _options(fast=fast, allocates=self.allocates))
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


@overload
def kernel(fn: Callable[..., Any]) -> Kernel: ...
@overload
def kernel(*, allocates: bool) -> Callable[[Callable[..., Any]], Kernel]: ...
def kernel(fn: Callable[..., Any] | None = None, *, allocates: bool = False) -> Any:
    """Mark an entry point that Python calls."""
    if fn is None:
        return functools.partial(Kernel, allocates=allocates)
    return Kernel(fn, allocates=allocates)


def inner(fn: Callable[..., Any] | None = None, *, allocates: bool = False, apart: bool = False) -> Any:
    """Mark a helper that only kernels call. apart: it is never made part of its callers, which it would make longer."""
    if fn is None:
        return functools.partial(inner, allocates=allocates, apart=apart)
    return _stored(helper(fn, _options(allocates=allocates), apart=apart), fn, None, helper=True)


def merged(fn: Callable[..., Any]) -> Any:
    """Mark a helper that becomes part of its callers whatever its size.

    A state of twenty arrays in a tuple is two hundred words; as arguments of a call all of them are copied.
    """
    return _stored(helper(fn, _options() | {"forceinline": True}), fn, None, helper=True)
