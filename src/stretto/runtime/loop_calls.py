"""Observe calls of decorated loops: a loop reports each call to the `st.epochs` run of its thread, if there is one.

A loop reports each call before it begins, in terms that need no knowledge of loops: a name, a function that makes its
plan, and, where a schedule keeps state between calls, functions that read and restore that state.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Protocol

from numpy.typing import NDArray

from stretto.plan.cost import Cost

Arrays = dict[str, NDArray[Any]]


class CallPlan(Protocol):
    """The attributes of a call's plan that are used."""

    @property
    def fingerprint(self) -> str: ...
    @property
    def settings(self) -> Mapping[str, Any]: ...
    @property
    def cost(self) -> Cost: ...
    def explain(self) -> str:
        """The plan in words."""


@dataclass(frozen=True, eq=False)
class LoopCall:
    """A call that is about to begin."""

    name: str  # of the function
    data: tuple[int, ...]  # identities of the data that it runs over
    plan: Callable[[], CallPlan]  # makes its plan, which takes a pass over the data
    schedule: Callable[[], Arrays] | None = None  # reads the state of its schedule; None without one
    restore: Callable[[Mapping[str, NDArray[Any]]], None] | None = None  # restores that state
    listeners: list[Callable[[Any], None]] = field(default_factory=list)  # receive each choice of `schedule="auto"`


Watcher = Callable[[LoopCall], None]
watcher: ContextVar[Watcher | None] = ContextVar("watcher", default=None)
