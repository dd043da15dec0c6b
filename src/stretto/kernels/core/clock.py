"""The time stamp counter, for Python to line up what compiled code has logged."""

from __future__ import annotations

from .atomics import cycles
from .compile import kernel


@kernel
def read_cycles():
    """The counter now."""
    return cycles()
