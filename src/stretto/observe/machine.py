"""Versions and processor of this machine, for the run record."""

from __future__ import annotations

import os
import platform
from functools import cache
from importlib import metadata
from typing import Any


def versions() -> dict[str, str]:
    """Versions of Stretto and of packages that can change its results, read without importing them."""
    names = ("stretto", "numpy", "numba", "llvmlite", "scipy")
    return {"python": platform.python_version()} | {name: _version(name) for name in names}


@cache  # looking for one takes 5 ms, as much as many epochs of a small run
def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "not installed"


def machine() -> dict[str, Any]:
    """Name and number of processors, how many this process may use, and the operating system."""
    count = os.cpu_count() or 1
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else count
    return {"cpu": _cpu_name(), "cpus": count, "usable": usable, "system": f"{platform.system()} {platform.machine()}"}


@cache
def _cpu_name() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as lines:
            for line in lines:
                if line.startswith("model name"):
                    return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or "unknown"
