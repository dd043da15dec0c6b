"""Settings of schedules, checked when a spec is made: which one is wrong, what it must be, what it is."""

from __future__ import annotations

from numbers import Real
from operator import index
from types import FunctionType
from typing import Any

from stretto.errors import PlanError

from .spec import Schedule


def whole(name: str, value: Any) -> None:
    """Refuse what is no whole number.

    >>> whole("width", 2.5)
    Traceback (most recent call last):
    stretto.errors.PlanError: width must be a whole number, got 2.5
    """
    try:
        index(value)
    except TypeError:
        raise PlanError(f"{name} must be a whole number, got {value!r}") from None


def number(name: str, value: Any) -> None:
    """Refuse what is no number."""
    if not isinstance(value, Real):
        raise PlanError(f"{name} must be a number, got {value!r}")


def function(name: str, value: Any, takes: str) -> None:
    """Refuse what cannot be called. takes: how it will be."""
    if not callable(value):
        raise PlanError(f"{name} must be a function {name}({takes}), got {value!r}")


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
