"""The growth of a process's peak of resident memory during a call, measured in a copy of the process.

In the process itself the allocator keeps space of earlier calls, and a later call that takes it again grows by nothing.
The copy first gives such space back to the system, and asks the system for every larger array anew.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from pathlib import Path

from .process_copy import in_copy

PATIENCE = 30.0  # seconds for the call
_MMAP_THRESHOLD = -3  # mallopt's number for the size from which on an array gets pages of its own
_OWN_PAGES = 32 * 1024


def growth_of_a_call(call: Callable[[], object]) -> float | None:
    """MiB by which the peak of resident memory grows during `call`; None where the system does not tell, or it fails.

    >>> import numpy as np
    >>> grown = growth_of_a_call(lambda: np.ones(1_000_000))
    >>> grown is None or 7.0 < grown < 9.0
    True
    """
    if not hasattr(os, "fork") or not Path("/proc/self/clear_refs").exists():
        return None
    return in_copy(lambda: _growth(call), PATIENCE)


def _growth(call: Callable[[], object]) -> float:
    system = ctypes.CDLL(None)
    system.mallopt(_MMAP_THRESHOLD, _OWN_PAGES)
    system.malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")
    before = _status("VmRSS")
    kept = call()
    grown = _status("VmHWM") - before
    del kept
    return max(0.0, grown)


def _status(name: str) -> float:
    """A size in MiB from what the system says of this process."""
    [line] = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(name)]
    return int(line.split()[1]) / 1024
