"""Events that runtimes report while they run.

A runtime calls one listener with one event after another, from one thread, between passes and never inside one.
Listeners do not change results. Times come with the events: `time` is in seconds since 1970, `seconds` is a duration
measured by the runtime, and `start_ns`/`end_ns` of visits are nanoseconds of one monotonic clock with any origin. No
module of this package reads a clock.

    def print_objective(event: Event) -> None:
        if isinstance(event, EpochDone):
            print(event.epoch, event.objective)

    with Bus(print_objective, Progress(), RunRecord("runs/first")) as tell:
        run(plan, tell)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

Status = Literal["done", "stopped", "failed", "early"]


@dataclass(frozen=True, slots=True)
class RunStarted:
    """A run starts or resumes."""

    time: float
    config: Mapping[str, Any]
    epoch: int = 0  # epochs already done; 0 unless resumed


@dataclass(frozen=True, slots=True, eq=False)
class PlanMade:
    """The plan is fixed."""

    fingerprint: str
    text: str  # the text of `explain()`
    profile: str = "exact"
    blocks: NDArray[np.integer[Any]] | None = None  # [V, 2] row block and column block of every visit


@dataclass(frozen=True, slots=True, eq=False)
class PassDone:
    """One pass over the blocks ended."""

    time: float
    epoch: int
    name: str
    seconds: float
    items: int
    visits: NDArray[np.integer[Any] | np.floating[Any]] | None = None  # [n, 4] visit, worker, start_ns, end_ns


@dataclass(frozen=True, slots=True)
class EpochDone:
    """An epoch ended."""

    time: float
    epoch: int  # counted from 1
    epochs: int  # of the run
    seconds: float
    items: int  # ratings visited in the epoch
    objective: float
    metrics: Mapping[str, float] = field(default_factory=dict)  # such as `test_rmse`


@dataclass(frozen=True, slots=True)
class WidthChosen:
    """With `n_jobs="auto"`, the number of threads was chosen or compared."""

    time: float
    epoch: int  # the epoch that starts, counted from 1
    width: int  # threads
    reason: str
    settled: bool  # the rest of the run stays at this width


@dataclass(frozen=True, slots=True)
class SettingTuned:
    """A loop with sync="adaptive" decided on one of its settings."""

    time: float
    loop: str  # the unit whose value is the objective
    window: int  # that it follows, counted from 1
    knob: str
    before: str  # the setting, in words
    after: str
    kind: str  # "try", "keep", "back" or "lower"
    reason: str


@dataclass(frozen=True, slots=True)
class CheckpointSaved:
    """A checkpoint is on disk; saving it took `seconds` and ended at `time`."""

    time: float
    path: str
    epoch: int
    bytes: int
    seconds: float


@dataclass(frozen=True, slots=True)
class ScheduleChosen:
    """`schedule="auto"` of a loop chose a schedule after a round."""

    time: float
    loop: str  # the function
    round: int
    schedule: str  # in words
    why: str


@dataclass(frozen=True, slots=True)
class ClocksMeasured:
    """How far the workers of a run over tables are, and how old the rows were that they have read so far."""

    time: float
    seconds: float  # of the run; virtual where time is
    rule: str  # such as "SSP(s=2)"
    bound: int | None  # clocks that a read may be behind; None: any number
    clocks: Sequence[int] = ()  # of each worker; on a cluster while it runs, the lowest of each node
    staleness: Sequence[int] = ()  # rows read that were 0, 1, … clocks behind their reader; the last: that or more
    waits: Sequence[float] = ()  # seconds that each worker has waited for others
    spread: Sequence[tuple[float, int, int]] = ()  # (seconds, lowest, highest clock) over the run; at its end


@dataclass(frozen=True, slots=True)
class LinksMeasured:
    """What a run over tables has sent so far between its nodes."""

    time: float
    seconds: float  # of the run; virtual where time is
    policy: str  # such as "Managed(budget='100Mbit', …)"
    budget: float | None  # bytes per second that a node may send between clocks; None: no limit
    # From node, to node, bytes; −1, −1 for all links that are not listed, node, −1 for all that leave a node.
    links: Sequence[tuple[int, int, int]]
    reasons: Mapping[str, int]  # bytes by what they were sent for
    limits: Sequence[tuple[int, int, float]] = ()  # from node, to node, bytes per second: budgets of single links
    rank: str = ""  # what is sent first between clocks
    first: Sequence[tuple[str, int, int]] = ()  # table, row, how often it was sent: the rows sent most; at the end


@dataclass(frozen=True, slots=True)
class StageDone:
    """A stage of a task ended."""

    time: float
    seconds: float  # of the task when it ended; virtual where time is
    unit: str
    width: int  # workers
    nodes: int
    took: float  # seconds of the stage itself
    iterations: int
    reason: str  # why it had this width
    value: float | None = None
    moved: int = 0  # bytes of states that changed their node
    sent: int = 0  # bytes of messages between its nodes
    staleness: Sequence[int] = ()  # rows read that were 0, 1, … clocks behind their reader


@dataclass(frozen=True, slots=True)
class MemoryPlanned:
    """A step of `st.memory` has a plan, or was planned again."""

    time: float
    budget: int  # bytes
    peak: int  # bytes on the device at most, predicted
    host: int  # bytes on the host at most
    step_seconds: float  # predicted
    at: Sequence[float]  # seconds in the step, ascending
    kinds: Mapping[str, Sequence[int]]  # by kind: bytes on the device at these seconds
    to_host: Sequence[tuple[float, float]] = ()  # copies: when they begin, and for how long
    from_host: Sequence[tuple[float, float]] = ()
    text: str = ""  # of `Report.explain()`


@dataclass(frozen=True, slots=True)
class MemoryMeasured:
    """The device reported how much memory a step took at most."""

    time: float
    peak: int  # bytes


@dataclass(frozen=True, slots=True)
class CheckpointRejected:
    """A damaged checkpoint was skipped."""

    path: str
    reason: str


@dataclass(frozen=True, slots=True)
class Warned:
    """A warning that does not stop the run."""

    message: str


@dataclass(frozen=True, slots=True)
class RunEnded:
    """The last event. early: a stopping rule was met. stopped: the user asked. failed: an error; see `message`."""

    time: float
    status: Status
    message: str = ""


Event = (
    RunStarted
    | PlanMade
    | PassDone
    | EpochDone
    | WidthChosen
    | SettingTuned
    | CheckpointSaved
    | ScheduleChosen
    | ClocksMeasured
    | LinksMeasured
    | StageDone
    | MemoryPlanned
    | MemoryMeasured
    | CheckpointRejected
    | Warned
    | RunEnded
)


class Listener(Protocol):
    """Anything that can be called with an event."""

    def __call__(self, event: Event, /) -> None: ...


class Bus:
    """Several listeners as one, called in the order given. As a context manager it closes them at the end."""

    def __init__(self, *listeners: Listener) -> None:
        self.listeners = listeners

    def __call__(self, event: Event, /) -> None:
        for listener in self.listeners:
            listener(event)

    @property
    def is_silent(self) -> bool:
        """Whether nobody listens, so that an event which costs something need not be made."""
        return not self.listeners

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
