"""Events: what a runtime tells while it runs.

A runtime calls one listener with one event after another, from one thread, between passes and never inside one.
Listeners watch; nothing they do changes a number. Times come with the events: `time` is in seconds since 1970,
`seconds` is a duration measured by the runtime, and `start_ns`/`end_ns` of visits are nanoseconds of one steady clock
with any origin. Nothing in this room looks at a clock.

    def print_objective(event: Event) -> None:
        if isinstance(event, EpochDone):
            print(event.epoch, event.objective)

    with Bus(print_objective, Progress(), RunRecord("runs/first")) as tell:
        run(plan, tell)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

Status = Literal["done", "stopped", "failed", "early"]


@dataclass(frozen=True, slots=True)
class RunStarted:
    """A run begins, or goes on. `epoch` epochs are already behind it (0 unless resumed)."""

    time: float
    config: Mapping[str, Any]
    epoch: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class PlanMade:
    """The plan is fixed. text: what `explain()` says. blocks [V, 2]: row block and column block of every visit."""

    fingerprint: str
    text: str
    profile: str = "exact"
    blocks: NDArray[np.integer[Any]] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class PassDone:
    """One pass over the blocks ended. visits [n, 4]: visit, worker, start_ns, end_ns, as the workers logged them."""

    time: float
    epoch: int
    name: str
    seconds: float
    items: int
    visits: NDArray[np.integer[Any] | np.floating[Any]] | None = None


@dataclass(frozen=True, slots=True)
class EpochDone:
    """Epoch `epoch` (counted from 1) of `epochs` ended. items: ratings visited in it. metrics: such as `test_rmse`."""

    time: float
    epoch: int
    epochs: int
    seconds: float
    items: int
    objective: float
    metrics: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CheckpointSaved:
    """A checkpoint is on disk; saving it took `seconds` and ended at `time`."""

    time: float
    path: str
    epoch: int
    bytes: int
    seconds: float


@dataclass(frozen=True, slots=True)
class CheckpointRejected:
    """A checkpoint was found damaged and passed over."""

    path: str
    reason: str


@dataclass(frozen=True, slots=True)
class Warned:
    """Something the user should know and that does not stop the run."""

    message: str


@dataclass(frozen=True, slots=True)
class RunEnded:
    """The last event. early: a stopping rule was met. stopped: the user asked. failed: an error; see `message`."""

    time: float
    status: Status
    message: str = ""


Event = RunStarted | PlanMade | PassDone | EpochDone | CheckpointSaved | CheckpointRejected | Warned | RunEnded


class Listener(Protocol):
    """Anything that can be called with an event."""

    def __call__(self, event: Event, /) -> None: ...


class Bus:
    """Several listeners as one, told in the order given. Leaving it closes those that can be closed."""

    def __init__(self, *listeners: Listener) -> None:
        self.listeners = listeners

    def __call__(self, event: Event, /) -> None:
        for listener in self.listeners:
            listener(event)

    def close(self) -> None:
        for listener in self.listeners:
            close = getattr(listener, "close", None)
            if close is not None:
                close()

    def __enter__(self) -> Bus:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
