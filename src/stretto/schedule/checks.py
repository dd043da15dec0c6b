"""Validation of the settings of schedules."""

from __future__ import annotations

from types import FunctionType
from typing import Any

from stretto.checks import function, number

from .spec import Schedule

__all__ = ["function", "number", "uncalled", "whole"]


def whole(name: str, value: Any) -> None:
    """Refuse a value that is not an integer.

    >>> whole("width", 2.5)
    Traceback (most recent call last):
    stretto.errors.PlanError: width must be a whole number; got 2.5
    """
    number(name, value, whole=True)


def uncalled(value: Any) -> str | None:
    """What to write instead of a schedule function without parentheses; None if `value` is something else.

    >>> from stretto.schedule import cyclic
    >>> uncalled(cyclic)
    'st.schedule.cyclic(…)'
    """
    if isinstance(value, type) and issubclass(value, Schedule):
        return f"{value.__name__}(…)"
    made = getattr(value, "__func__", value)  # a function in the body of a class becomes a method
    if not isinstance(made, FunctionType) or "." in made.__qualname__:
        return None
    return f"st.schedule.{made.__name__}(…)" if made.__module__.startswith("stretto.schedule.") else None
