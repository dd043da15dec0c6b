"""The time stamp counter for Python, to align the log times of compiled code with Python's clock."""

from __future__ import annotations

from .atomics import cycles
from .compile import kernel


@kernel
def read_cycles():
    """Return the present value of the counter."""
    return cycles()
