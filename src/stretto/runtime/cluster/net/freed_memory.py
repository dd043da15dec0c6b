"""Memory of messages that were freed stays with the process, up to a bound.

ZeroMQ takes memory for every message that arrives and gives it back. By default the C library hands pieces of that size
back to the system, which then has to clear them for the next message: on loopback that took half the speed of 1 MB
messages (0.9 instead of 1.8 GB/s, unencrypted).
"""

from __future__ import annotations

import ctypes
import sys

_TRIM, _MMAP = -1, -3  # parameters of mallopt(3)
_KEEP = 64 << 20  # bytes that are kept where they were freed
_LARGE = 32 << 20  # from this size on the system is asked every time; the most that glibc takes


def keep_freed() -> bool:
    """Tell the C library, for the whole process; False where it is not glibc and cannot be told."""
    if not sys.platform.startswith("linux"):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    return mallopt is not None and mallopt(_TRIM, _KEEP) == 1 and mallopt(_MMAP, _LARGE) == 1
