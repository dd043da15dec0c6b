"""Settings of schedules, checked when a spec is made: which one is wrong, what it must be, what it is."""

from __future__ import annotations

from types import FunctionType
from typing import Any

from stretto.checks import function, number

from .spec import Schedule

__all__ = ["function", "number", "uncalled", "whole"]


def whole(name: str, value: Any) -> None:
    """Refuse what is no whole number.

    >>> whole("width", 2.5)
    Traceback (most recent call last):
    stretto.errors.PlanError: width must be a whole number; got 2.5
    """
    number(name, value, whole=True)


def uncalled(value: Any) -> str | None:
    """What to write instead of a ready schedule without its parentheses; None if that is not what `value` is.

    >>> from stretto.schedule import cyclic
    >>> uncalled(cyclic)
    'st.schedule.cyclic(…)'
    """
    if isinstance(value, type) and issubclass(value, Schedule):
        return f"{value.__name__}(…)"
    made = getattr(value, "__func__", value)  # a function in the body of a class comes out as a method
    if not isinstance(made, FunctionType) or "." in made.__qualname__:
        return None
    return f"st.schedule.{made.__name__}(…)" if made.__module__.startswith("stretto.schedule.") else None
