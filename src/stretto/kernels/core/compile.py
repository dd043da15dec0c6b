"""The `@kernel`, `@inner` and `@merged` decorators: compile without the GIL, exact or fast, cached on disk.

`@kernel` marks an entry point: a function that Python calls once per worker and pass. It holds two compiled forms of
the same source: `exact` (no fastmath; only an explicit `fma` is contracted) and `fast` (fastmath). `@inner`
marks a helper that kernels call. A helper must contain no floating-point arithmetic whose order the profile could
change, or only one profile may use it. `@merged` marks a helper that is always inlined.

    @kernel                         may not allocate; the caller passes its arrays
    @kernel(allocates=True)         allocates arrays itself (`scratch`)

Kernels and helpers that do not allocate have no reference counting of arrays. Counting costs an atomic operation on
shared words whenever an array from a tuple gets a name, and half of the compile time.

`build.linking` compiles both; `build.storage` stores the compiled code.
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

# Fast may reorder and contract, but keeps NaN and infinity: a failed visit must be detected.
_FAST = frozenset({"nsz", "arcp", "contract", "afn", "reassoc"})


def _options(*, fast: bool = False, allocates: bool = False) -> dict[str, Any]:
    options = {"nogil": True, "fastmath": set(_FAST) if fast else False, "error_model": "numpy", "boundscheck": False}
    return options if allocates else options | {"_nrt": False}


def _stored(made: Any, fn: Callable[..., Any], stamp: str | None, *, helper: bool, fast: bool = False) -> Any:
    """Make a dispatcher search for its compiled forms on disk."""
    from stretto.kernels.build.storage import Stored  # local import: the storage must not be part of the stamp

    if made is not fn:  # they are the same where Numba is disabled
        options = made.targetoptions | {"fastmath": sorted(_FAST) if fast else False}
        made._cache = Stored(fn, stamp, options, helper=helper, exact=not fast)
    return made


class Kernel:
    """A compiled entry point in both profiles: `kernel.exact(...)`, `kernel.fast(...)`, or `kernel[profile](...)`."""

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
        """Call the exact form, the default profile."""
        return self.exact(*args)


def target() -> str:
    """Return the scope in which profile `fast` gives the same bits: Numba's version and the target processor."""
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
    """Mark a helper that only kernels call. apart: never inline it, where inlining would make its callers longer."""
    if fn is None:
        return functools.partial(inner, allocates=allocates, apart=apart)
    return _stored(helper(fn, _options(allocates=allocates), apart=apart), fn, None, helper=True)


def merged(fn: Callable[..., Any]) -> Any:
    """Mark a helper that is always inlined into its callers.

    A tuple of twenty arrays is two hundred words, and a call would copy all of them as arguments.
    """
    return _stored(helper(fn, _options() | {"forceinline": True}), fn, None, helper=True)
