"""How many threads and how much memory this process may use, from CPU affinity and cgroup limits."""

from __future__ import annotations

import math
import os
from functools import cache
from pathlib import Path

from stretto.checks import number
from stretto.errors import PlanError


def available_cpus(cgroup: Path = Path("/sys/fs/cgroup")) -> int:
    """Cores this process may run on, at least 1."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, int(min(count, _quota(cgroup))))


@cache
def _quota(cgroup: Path) -> int | float:
    """Cores that the cgroup's limit allows, read once: a fit asks several times, and each read takes 20 µs."""
    try:
        quota, period = (cgroup / "cpu.max").read_text().split()
        return math.inf if quota == "max" else math.ceil(int(quota) / int(period))
    except (OSError, ValueError):
        return math.inf


AUTO = "auto"  # the number of threads is found while running

# More threads per core than this only wait for each other. Tests and plans for larger machines use some.
_THREADS_A_CORE, _ALWAYS_ALLOWED = 32, 256


def is_auto(n_jobs: object) -> bool:
    """Whether the number of threads is to be found while running. Any object may be given."""
    return isinstance(n_jobs, str) and n_jobs == AUTO


def workers_from(n_jobs: int | str | None) -> int:
    """The number of threads that `n_jobs` means: None is every core, −1 too, −2 all but one, and so on. "auto" is every
    core, as the most that may be used.
    """
    if n_jobs is None or is_auto(n_jobs):
        return available_cpus()
    number("n_jobs", n_jobs, whole=True, why="None takes every core, 'auto' finds a number while running")
    count = int(n_jobs)
    if count == 0:
        raise PlanError("n_jobs=0, or st.Threads(0), has no meaning; give a positive number, or None for every core")
    if 0 < count <= _ALWAYS_ALLOWED:
        return count  # without reading the limits of this process, which takes 50 µs
    cores = available_cpus()
    if count > max(_ALWAYS_ALLOWED, _THREADS_A_CORE * cores):
        raise PlanError(
            f"n_jobs={count} threads on {cores} cores would only wait for each other; use at most "
            f"{max(_ALWAYS_ALLOWED, _THREADS_A_CORE * cores)}, or None for one a core"
        )
    return count if count > 0 else max(1, cores + 1 + count)


def available_memory(meminfo: Path = Path("/proc/meminfo"), cgroup: Path = Path("/sys/fs/cgroup")) -> int | None:
    """Bytes that can be allocated without swapping, or None where the system does not report it."""
    found = None
    try:
        for line in meminfo.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                found = int(line.split()[1]) * 1024
    except (OSError, ValueError):
        pass
    try:
        limit = (cgroup / "memory.max").read_text().strip()
        used = int((cgroup / "memory.current").read_text())
        if limit != "max":
            left = max(0, int(limit) - used)
            found = left if found is None else min(found, left)
    except (OSError, ValueError):
        pass
    return found
