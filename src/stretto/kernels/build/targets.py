"""Target processors of compiled code: this one, or a level of x86-64 that many processors support.

In profile `exact` a kernel gives the same bits with any instruction set, so code for a level may replace code for this
very processor. Code in profile `fast` may not.
"""

from __future__ import annotations

import functools
import sys
from typing import Any

import numba
from llvmlite import binding

# LLVM's names of the features that each level adds to the one below, the highest level first.
LEVELS = ("x86-64-v4", "x86-64-v3")
_NEEDS = {
    "x86-64-v3": {
        *("cx16", "sahf", "popcnt", "sse3", "sse4.1", "sse4.2", "ssse3"),
        *("avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe", "xsave"),
    },
    "x86-64-v4": {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"},
}


def settings(level: str) -> dict[str, str]:
    """Return the environment in which Numba compiles for a level, on any processor."""
    return {"NUMBA_CPU_NAME": level, "NUMBA_CPU_FEATURES": ""}


def this(codegen: Any) -> str:
    """Return Numba's present target as text; two processors have the same text only if they may share code."""
    return ", ".join(map(str, codegen.magic_tuple()))


@functools.cache
def levels() -> tuple[str, ...]:
    """Return the levels that this processor supports, the highest first; none if Numba has another target set."""
    asked = numba.config.CPU_NAME is not None or numba.config.CPU_FEATURES is not None or not numba.config.ENABLE_AVX
    if asked or sys.platform != "linux" or not binding.get_process_triple().startswith("x86_64"):
        return ()
    try:
        has = {name for name, there in binding.get_host_cpu_features().items() if there}
    except RuntimeError:
        return ()
    return supported(has)


def supported(features: set[str]) -> tuple[str, ...]:
    """Return the levels that a processor with these features supports, the highest first."""
    found: list[str] = []
    for level in reversed(LEVELS):
        if not _NEEDS[level] <= features:
            break
        found.insert(0, level)
    return tuple(found)


def named(level: str, codegen: Any) -> str:
    """Return what `this` returns in a process that compiles for a level."""
    triple = codegen.magic_tuple()[0]
    return ", ".join([triple, level, settings(level)["NUMBA_CPU_FEATURES"]])
