"""Parse rates and times: "100Mbit", "1.5GB", "100us".

>>> rate("100Mbit"), rate("2MB"), seconds("100us")
(12500000.0, 2000000.0, 0.0001)
"""

from __future__ import annotations

import re
from numbers import Real

from stretto.checks import shown
from stretto.errors import PlanError

_SCALE = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12}
_RATE = re.compile(r"\s*([0-9.]+)\s*([kmgt]?)(bit|b)(?:/s|ps)?\s*", re.IGNORECASE)
# (factor, divisor): dividing by an integer rounds once, so that "100us" is the float 0.0001. Unicode has two µ.
_MICRO = (1.0, 1e6)
_TIMES = {"ns": (1.0, 1e9), "us": _MICRO, "\u00b5s": _MICRO, "\u03bcs": _MICRO, "ms": (1.0, 1e3)}
_TIMES |= {"s": (1.0, 1.0), "min": (60.0, 1.0), "h": (3600.0, 1.0)}
_TIME = re.compile(r"\s*([0-9.]+)\s*([a-z\u00b5\u03bc]+)\s*")


def rate(value: str | float) -> float:
    """Bytes per second. A number is taken as it is; "bit" means bits and "B" bytes."""
    found, number = None, _real(value)
    if isinstance(value, str):
        match = _RATE.fullmatch(value)
        if match:
            found = _number(match[1]) * _SCALE[match[2].lower()] / (1 if match[3] == "B" else 8)
    elif number is not None:
        found = number
    if found is None or not found > 0 or found == float("inf"):
        raise PlanError(
            f"{shown(value)} is not a rate; write bytes per second as a number, or such as '100Mbit' or '2GB'"
        )
    return found


def seconds(value: str | float) -> float:
    """Seconds. A number is taken as it is."""
    found, number = None, _real(value)
    if isinstance(value, str):
        match = _TIME.fullmatch(value)
        if match and match[2] in _TIMES:
            times, by = _TIMES[match[2]]
            found = _number(match[1]) * times / by
    elif number is not None:
        found = number
    if found is None or not 0 <= found < float("inf"):
        raise PlanError(f"{shown(value)} is not a time; write seconds as a number, or such as '100us' or '2ms'")
    return found


def _real(value: object) -> float | None:
    try:
        return float(value) if type(value) is not bool and isinstance(value, Real) else None
    except OverflowError:  # of an integer
        return float("inf")


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return -1.0
