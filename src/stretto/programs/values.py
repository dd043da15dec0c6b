"""Options, results and values of `st.run`: `RunOptions`, `Look` (an evaluation), `Round` and `ProgramResult`."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.runtime.runtimes import Runtime, Threads
from stretto.runtime.session import Session
from stretto.runtime.tables.job import CheckpointSettings
from stretto.schedule.automatic.trials import Decision
from stretto.schedule.spec import Floats
from stretto.text import html_table

from .error_context import short

_NEWEST = 10  # evaluations that a notebook shows


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

    round: int  # rounds so far
    seconds: float  # time spent in rounds, without evaluations and compiling
    samples: int  # data samples read so far; for sparse columns, their entries
    objective: float  # NaN if the program has none
    updates: int  # jobs so far


@dataclass(frozen=True, eq=False)
class RunOptions:
    """The arguments of `st.run`, checked. Only rounds, pipeline, seed and every can change a result."""

    rounds: int | None = None  # the most rounds; None: until the schedule has no jobs left or `until` returns True
    pipeline: int = 1  # round t reads the parameters after round t − pipeline
    seed: int = 0
    every: int = 1  # rounds between two evaluations
    until: Callable[[Look], bool] | None = None  # the run ends when it returns True
    seconds: float | None = None  # time limit
    runtime: Runtime = field(default_factory=Threads)  # where it runs
    record: bool = False  # keep the jobs of every round and what it read
    verbose: int = 0  # 0 quiet, 1 a progress bar, 2 a line for every evaluation
    check_every: int | None = None  # rounds between two checks of `update`; None: in the first round; 0: never
    schedulers_on: str = "driver"  # or "nodes": each scheduler on a node of its own
    keeping: CheckpointSettings | None = None  # where and how often checkpoints are saved; every: rounds
    session: Session | None = None  # run record and listeners
    fingerprint: str = ""  # of the program, for the record

    @property
    def reports_looks(self) -> bool:
        """Whether listeners receive every evaluation. A progress bar without a number of rounds needs none."""
        return self.rounds is not None or self.verbose > 1 or self.session is not None


@dataclass(frozen=True, eq=False)
class Round:
    """The record of one round."""

    number: int  # from 1
    jobs: tuple[Any, ...]  # chosen from, and run on, the parameters after round `read`
    read: int  # the version of the parameters that `update` read: that after this round; 0 is the start


@dataclass(frozen=True, eq=False)
class ProgramResult:
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
    stopped: str  # why it ended: "rounds", "until", "seconds", "schedule" (no jobs were left), "interrupted"
    history: tuple[Look, ...] = ()
    record: tuple[Round, ...] = ()
    schedule_seconds: float = 0.0  # thread time spent in choosing rounds
    busy_seconds: float = 0.0  # thread time spent in choosing, updating and aggregating
    choices: tuple[Decision, ...] = ()  # of schedule="auto": after which round, which schedule, why

    @property
    def objective(self) -> float:
        """The objective at the last evaluation."""
        return self.history[-1].objective if self.history else float(np.nan)

    def _repr_html_(self) -> str:
        """The newest evaluations, for notebooks."""
        rows = [
            [f"{one.round:,}", f"{one.updates:,}", f"{one.seconds:.3g}", f"{one.objective:.6g}"]
            for one in self.history[-_NEWEST:]
        ]
        shapes = ", ".join(f"{name} {list(array.shape)}" for name, array in self.params.items())
        note = f"{self.rounds:,} rounds in {self.seconds:.3g} s, ended by: {self.stopped}; {shapes}"
        return html_table(("round", "jobs", "seconds", "objective"), rows, note)


@dataclass(slots=True, eq=False)
class RoundInFlight:
    """A round in flight. Updates are numbered job · parts + part."""

    jobs: tuple[Any, ...]  # of the round
    results: list[Any]  # by update
    changes: list[Floats | None]  # how far each job moved; None while unknown
    reads: list[int] = field(default_factory=list)  # parameter versions that jobs read, if recorded

    @classmethod
    def of(cls, jobs: tuple[Any, ...], parts: int) -> RoundInFlight:
        """A round before its first update."""
        return cls(jobs, [None] * (len(jobs) * max(1, parts)), [None] * len(jobs))


@dataclass(frozen=True)
class ProgramIdentity:
    """Everything that decides the bits of a program."""

    values: dict[str, Any]  # by name

    @property
    def saved(self) -> dict[str, Any]:
        """The values that a checkpoint is compared with."""
        return {name: value for name, value in self.values.items() if name != "params digest"}

    @property
    def saved_as(self) -> str:
        """The hash of `saved`."""
        return hashlib.sha256(json.dumps(self.saved, sort_keys=True).encode()).hexdigest()


def number_of(value: Any) -> float:
    """The value of an objective as a float."""
    try:
        return float(value)
    except (TypeError, ValueError):
        raise TypeError(f"it returned {short(value)}; return one number") from None
