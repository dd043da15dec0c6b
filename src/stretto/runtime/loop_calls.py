"""Who watches the calls of decorated loops: the run of `st.epochs` that is under way in this thread, if any.

A loop reports each call before it begins. It says what it is in terms that need no knowledge of loops: a name, a
function that makes its plan, and, where a schedule keeps state between calls, functions that read and restore that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Protocol

from numpy.typing import NDArray

from stretto.plan.cost import Cost

Arrays = dict[str, NDArray[Any]]


class CallPlan(Protocol):
    """What is asked of the plan of a call."""

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
    """A call that is about to begin.

    name : of the function
    data : identities of the data that it runs over
    plan : makes its plan, which takes a pass over the data
    schedule : reads the state of its schedule; None where there is no schedule
    restore : puts such a state back
    """

    name: str
    data: tuple[int, ...]
    plan: Callable[[], CallPlan]
    schedule: Callable[[], Arrays] | None = None
    restore: Callable[[Mapping[str, NDArray[Any]]], None] | None = None


Watcher = Callable[[LoopCall], None]
watcher: ContextVar[Watcher | None] = ContextVar("watcher", default=None)
