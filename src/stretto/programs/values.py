"""What goes into a run of a program and what comes out of it, whichever engine runs it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.runtime.runtimes import Runtime, Threads
from stretto.runtime.session import Session
from stretto.runtime.tables.job import Keeping
from stretto.schedule.automatic.trials import Decision

from .choosing import short


@dataclass(frozen=True)
class Look:
    """An evaluation between two rounds.

    Attributes
    ----------
    round : int
        Rounds so far.
    seconds : float
        Seconds spent in rounds, without evaluations and compiling.
    samples : int
        Data samples read so far; for sparse columns, their entries.
    objective : float
        The objective; NaN if the program has none.
    updates : int
        Jobs so far.
    """

    round: int  # rounds made so far
    seconds: float  # time spent in rounds, looking and compiling apart
    samples: int  # data samples touched so far; for sparse columns, their entries
    objective: float  # NaN where the program has none
    updates: int  # jobs made so far


@dataclass(frozen=True, eq=False)
class Options:
    """How a program is run. Only rounds, pipeline, seed and every can change a number."""

    rounds: int | None = None  # at most so many; None: until the schedule has nothing left or `until` says so
    pipeline: int = 1  # round t reads the parameters after round t − pipeline
    seed: int = 0
    every: int = 1  # rounds between two looks
    until: Callable[[Look], bool] | None = None
    seconds: float | None = None
    runtime: Runtime = field(default_factory=Threads)
    record: bool = False  # keep the jobs of every round and what it read
    verbose: int = 0
    check_every: int | None = None  # rounds between two checks of `update`; None: in the first round; 0: never
    schedulers_on: str = "driver"  # or "nodes": each scheduler on a node of its own
    keeping: Keeping | None = None  # where and how often checkpoints are saved; every: rounds
    session: Session | None = None  # where the run is recorded, and who listens
    fingerprint: str = ""  # of the program, for the record

    @property
    def reports_looks(self) -> bool:
        """Whether listeners receive every look; without a goal a progress bar has no use for them."""
        return self.rounds is not None or self.verbose > 1 or self.session is not None


@dataclass(frozen=True, eq=False)
class Round:
    """One round as it was made: what it did, which parameters its jobs read and what they were chosen from."""

    number: int  # from 1
    jobs: tuple[Any, ...]
    read: int  # the round after which the parameters that `update` read were current; 0 is the start


@dataclass(frozen=True, eq=False)
class Result:
    """The result of a run of a program.

    Attributes
    ----------
    params : mapping of ndarray
        The arrays that were learned.
    rounds : int
        Rounds made.
    updates : int
        Jobs made.
    seconds : float
        Seconds spent in rounds, without evaluations and compiling.
    stopped : str
        Why it ended: "rounds", "until", "seconds", "schedule" (no jobs were left) or "interrupted".
    history : tuple of Look
        The evaluations.
    record : tuple of Round
        The jobs of every round and what they read, with record=True.
    schedule_seconds : float
        Thread time spent in choosing rounds.
    busy_seconds : float
        Thread time spent in choosing, updating and aggregating.
    choices : tuple of Decision
        With schedule="auto": after which round, which schedule, and why.
    objective : float
        The objective at the last evaluation.
    """

    params: Mapping[str, NDArray[Any]]
    rounds: int
    updates: int
    seconds: float
    stopped: str  # why it ended: "rounds", "until", "seconds", "schedule" (nothing was left to do), "interrupted"
    history: tuple[Look, ...] = ()
    record: tuple[Round, ...] = ()
    schedule_seconds: float = 0.0  # thread time spent in choosing rounds
    busy_seconds: float = 0.0  # thread time spent in choosing, updating and aggregating
    choices: tuple[Decision, ...] = ()  # of schedule="auto": after which round, which schedule, why

    @property
    def objective(self) -> float:
        """The objective at the last evaluation."""
        return self.history[-1].objective if self.history else float(np.nan)


def number_of(value: Any) -> float:
    """What an objective returned, as a number."""
    try:
        return float(value)
    except (TypeError, ValueError):
        raise TypeError(f"it returned {short(value)}; return one number") from None
