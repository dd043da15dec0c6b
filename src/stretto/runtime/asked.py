"""Numbers that callers pass, checked; an error names the option and says what would do.

>>> whole("workers", 8, 1)
8
"""

from __future__ import annotations

from operator import index
from typing import Any

from stretto.checks import shown
from stretto.errors import PlanError


def whole(name: str, value: Any, least: int | None, who: str = "run") -> int:
    """A whole number of at least `least`; without one, any that compiled code can keep in 64 bits."""
    try:
        number = index(value)
    except TypeError:
        words = "" if least is None else f" of at least {least}"
        raise PlanError(f"{who}: {name}={shown(value)} is not a whole number; give one{words}") from None
    if least is not None and number < least:
        raise PlanError(f"{who}: {name}={number} is less than {least}")
    if not -(2**63) <= number < 2**63:
        raise PlanError(f"{who}: {name}={number} does not fit in 64 bits; give one from −2⁶³ to 2⁶³ − 1")
    return number
