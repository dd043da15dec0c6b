"""What driver and hosts send each other about functions over parts: `HostCall`, and `Failed` where one raised."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, eq=False)
class HostCall:
    """One call for one host."""

    function: Callable[..., Any]
    own: Mapping[int, Any]  # by part: its own argument
    shared: tuple[Any, ...]  # arguments that all parts have in common; a host receives them once
    values: int  # the number of the values that the function takes
    into: int  # the number under which results are kept; −1: they are returned
    items: float  # entries that are read in all: the cost of the call in virtual time


@dataclass(frozen=True, eq=False)
class Failed:
    """A function raised an exception."""

    part: int  # −1 where values are created for all parts at once
    error: BaseException
