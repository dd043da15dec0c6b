"""Validate parameters: each error names the function, the parameter, the allowed values and the value given.

    >>> number("alpha", 0, above=0, why="use LinearRegression", owner="Lasso")
    Traceback (most recent call last):
    stretto.errors.PlanError: Lasso: alpha must be a number more than 0; got 0; use LinearRegression

An owner is the name of an estimator, function or runtime. `of(estimator)` gives the same checks with the owner set.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from numbers import Integral, Real
from operator import index
from typing import Any

import numpy as np

from stretto.errors import PlanError

_LARGEST = 2**63 - 1  # the largest integer of compiled code
_SHOWN = 120  # most characters of a wrong value in a message
_BYTES = re.compile(r"\s*([0-9]*\.?[0-9]+)\s*([A-Za-z]*)\s*")
_UNITS = {"": 1, "b": 1} | {
    f"{letter}{end}": base**power
    for power, letter in enumerate("kmgt", 1)
    for end, base in (("", 10**3), ("b", 10**3), ("ib", 2**10))
}


def shown(value: Any) -> str:
    """A wrong value for a message, on one line and not too long."""
    try:
        text = " ".join(repr(value).split())
    except Exception:  # of a class that is not ours
        text = f"a {type(value).__name__}"
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"


def wrong(owner: str, name: str, must: str, value: Any, why: str = "") -> PlanError:
    """The error to raise: `owner: name must be …; got …`."""
    text = f"{owner}: {name}" if owner else name
    return PlanError(f"{text} must be {must}; got {shown(value)}" + (f"; {why}" if why else ""))


def number(
    name: str,
    value: Any,
    *,
    least: float | None = None,
    above: float | None = None,
    most: float | None = None,
    below: float | None = None,
    whole: bool = False,
    why: str = "",
    owner: str = "",
) -> None:
    """Raise unless the value is a finite number within these bounds.

    Parameters
    ----------
    name, value
        The parameter and what was given.
    least, above, most, below : float or None
        Bounds, inclusive and exclusive.
    whole : bool
        Only whole numbers of up to 64 bits.
    why : str
        Advice, appended to the message.
    owner : str
        Name of the estimator, function or runtime that has the parameter.
    """
    bounds = [("at least", least), ("more than", above), ("at most", most), ("less than", below)]
    found = _plain(value, whole)
    if (
        found is not None
        and (least is None or found >= least)
        and (above is None or found > above)
        and (most is None or found <= most)
        and (below is None or found < below)
    ):
        return
    asked = " and ".join(f"{words} {_bound(bound)}" for words, bound in bounds if bound is not None)
    raise wrong(owner, name, f"a {'whole ' if whole else ''}number {asked}".rstrip(), value, why)


def _bound(bound: float) -> str:
    """A bound for a message: integers in full."""
    return f"{bound:,}" if isinstance(bound, int) else f"{bound:g}"


def whole(name: str, value: Any, least: int | None = None, who: str = "run", why: str = "") -> int:
    """An integer of at least `least`, as Python's own; without a bound, any that fits in 64 bits.

    >>> whole("workers", 8, 1)
    8
    """
    tail = f"; {why}" if why else ""
    try:
        found = index(value)
    except TypeError:
        words = "" if least is None else f" of at least {least}"
        raise PlanError(f"{who}: {name}={shown(value)} is not a whole number; give one{words}{tail}") from None
    if least is not None and found < least:
        raise PlanError(f"{who}: {name}={found} is less than {least}{tail}")
    if not -_LARGEST - 1 <= found <= _LARGEST:
        raise PlanError(f"{who}: {name}={found} does not fit in 64 bits; give one from −2⁶³ to 2⁶³ − 1")
    return found


def parse_bytes(text: str | int) -> int:
    """Bytes from a number or a text with a unit.

    >>> parse_bytes("2GiB"), parse_bytes("1.5 MB"), parse_bytes(10)
    (2147483648, 1500000, 10)
    """
    if isinstance(text, int) and not isinstance(text, bool):
        found: float | None = text
    else:
        match = _BYTES.fullmatch(text) if isinstance(text, str) else None
        unit = _UNITS.get(match[2].lower()) if match else None
        found = float(match[1]) * unit if match and unit else None
    if found is None or found <= 0:
        raise PlanError(f"cannot read {shown(text)} as an amount of memory; write for example '2GiB' or '500MB'")
    return int(found)


def _plain(value: Any, whole: bool) -> float | None:
    """The value as a Python number; None if it is not one."""
    if isinstance(value, bool | np.bool_):
        return None
    if whole:
        fits = isinstance(value, Integral) and -_LARGEST <= int(value) <= _LARGEST
        return int(value) if fits else None
    if not isinstance(value, Real):
        return None
    try:
        found = float(value)
    except (OverflowError, ValueError, TypeError):
        return None
    return found if math.isfinite(found) else None


def flags(*, owner: str = "", **values: Any) -> None:
    """Raise unless every value is True or False."""
    for name, value in values.items():
        if not isinstance(value, bool | np.bool_):
            raise wrong(owner, name, "True or False", value)


def choice(name: str, value: Any, allowed: Iterable[str | None], *, owner: str = "") -> None:
    """Raise unless the value is one of these words."""
    words = tuple(allowed)
    if not isinstance(value, str | None) or value not in words:
        raise wrong(owner, name, f"one of {', '.join(map(repr, words))}", value)


def level(value: Any, *, owner: str = "", name: str = "verbose") -> None:
    """Raise unless the value is a verbosity: 0, 1, 2, … or True and False."""
    if not isinstance(value, bool | np.bool_):
        number(name, value, least=0, whole=True, owner=owner)


def function(name: str, value: Any, takes: str, *, owner: str = "") -> None:
    """Raise unless the value can be called. takes: its arguments, for the message."""
    if not callable(value):
        raise wrong(owner, name, f"a function {name}({takes})", value)


@dataclass(frozen=True)
class Checks:
    """The checks above for one owner."""

    owner: str

    def number(self, name: str, value: Any, **bounds: Any) -> None:
        number(name, value, owner=self.owner, **bounds)

    def optional(self, name: str, value: Any, **bounds: Any) -> None:
        """A number, or None."""
        if value is not None:
            number(name, value, owner=self.owner, **bounds)

    def flags(self, **values: Any) -> None:
        flags(owner=self.owner, **values)

    def choice(self, name: str, value: Any, allowed: Iterable[str | None]) -> None:
        choice(name, value, allowed, owner=self.owner)

    def level(self, value: Any) -> None:
        level(value, owner=self.owner)

    def wrong(self, name: str, must: str, value: Any, why: str = "") -> PlanError:
        return wrong(self.owner, name, must, value, why)


def of(owner: Any) -> Checks:
    """The checks with the owner set to an estimator's class name, or to this name."""
    return Checks(owner if isinstance(owner, str) else type(owner).__name__)
