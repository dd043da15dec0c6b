"""Segments of rounds: the schedule may be replaced between two segments, as `schedule="auto"` does.

The last round of a segment is known before the segment begins. So no later round is chosen, and the chooser is replaced
while nothing is in flight. `Segments` decides what comes next, independent of the engine: `CoordinateEngine` runs the
rounds in one memory, `coordinates.driver` on several nodes. `AutoSegments` ends segments where the trials of
`schedule="auto"` need the objective. That depends on the data and the schedule alone.
"""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from stretto.programs.values import Round
from stretto.schedule.automatic.auto import AutoChooser
from stretto.schedule.automatic.trials import Decision
from stretto.schedule.chooser import CompiledChooser

from .engine import CoordinateEngine
from .state import CoordinateState


class Restarted(Protocol):
    """An engine that runs the rounds of segments."""

    @property
    def state(self) -> CoordinateState:
        """The regression between two rounds; v and z are current at the end of a segment."""
        ...

    def restart(self, chooser: CompiledChooser, done: int, last: int | None) -> None:
        """Continue after round `done`, up to round `last`, with another chooser."""
        ...


class Segments(ABC):
    """Which chooser makes the rounds of each segment.

    Parameters
    ----------
    engine : Restarted
        Before its first round.
    last : int or None
        The last round of the run.

    Attributes
    ----------
    goal : int
        The last round of the segment, where the run does not end before.
    """

    def __init__(self, engine: Restarted, last: int | None) -> None:
        self._engine, self._last = engine, last
        self.goal = 0

    @property
    def limit(self) -> int:
        """The last round of the segment in this run."""
        return self.goal if self._last is None else min(self.goal, self._last)

    @abstractmethod
    def end(self, done: int) -> None:
        """Decide what comes after round `done`, the last of a segment, and `_restart` with it."""

    @property
    @abstractmethod
    def choices(self) -> tuple[Decision, ...]:
        """The choices made so far."""

    @abstractmethod
    def saved(self) -> dict[str, Any]:
        """Everything that decides the segments to come, for a checkpoint."""

    @abstractmethod
    def restore(self, saved: dict[str, Any]) -> CompiledChooser:
        """Continue from what `saved` gave; the chooser of the segment, before its state is restored."""

    @property
    def state(self) -> CoordinateState:
        """The regression between two rounds."""
        return self._engine.state

    def _restart(self, chooser: CompiledChooser, done: int, rounds: int) -> None:
        """Begin a segment of `rounds` rounds."""
        if self._last is None or done < self._last:
            self.goal = done + rounds
            self._engine.restart(chooser, done, self.limit)


class Start(NamedTuple):
    """The start of a sparse regression whose schedule has segments."""

    chooser: CompiledChooser  # of the first segment
    width: int  # the most coordinates of a round of any segment
    cut: int  # the width that decides how a round is cut into tasks
    begin: Callable[[Restarted], Segments]


class SegmentEngine:
    """The compiled engine in segments, in one memory."""

    def __init__(self, machine: CoordinateEngine, begin: Callable[[Restarted], Segments]) -> None:
        began = time.perf_counter()
        self._machine, self._segments = machine, begin(machine)
        self._seconds = time.perf_counter() - began  # spent between segments

    @property
    def limit(self) -> int:
        """The last round that `advance` may reach."""
        return self._segments.limit

    @property
    def choices(self) -> tuple[Decision, ...]:
        """The choices made so far."""
        return self._segments.choices

    def advance(self, to: int) -> float:
        """Run rounds until `to` of them are applied, at most `limit`; return the seconds it took."""
        seconds = self._machine.advance(to)
        if to == self.limit and not self.state.counts[2]:
            began = time.perf_counter()
            self._segments.end(to)
            between = time.perf_counter() - began
            self._seconds += between
            seconds += between
        return seconds

    @property
    def state(self) -> CoordinateState:
        """The regression between two rounds."""
        return self._machine.state

    @property
    def schedule_seconds(self) -> float:
        """Thread time spent in choosing, including between segments."""
        return self._machine.schedule_seconds + self._seconds

    @property
    def busy_seconds(self) -> float:
        """Thread time spent in rounds and between segments."""
        return self._machine.busy_seconds + self._seconds

    def record(self, done: int) -> tuple[Round, ...]:
        """See `CoordinateEngine.record`."""
        return self._machine.record(done)


class AutoSegments(Segments):
    """Segments of `schedule="auto"`. entries: mean number of entries of a column."""

    def __init__(self, engine: Restarted, chooser: AutoChooser, entries: float, last: int | None) -> None:
        super().__init__(engine, last)
        self._chooser, self._each = chooser, max(1.0, entries)
        self._counted, self._begun = (0, 0), 0  # entries and updates at the start of the segment, and its first round
        chooser.observe(0, engine.state.progress(0))
        self._begin(0, self._predicted())

    @property
    def choices(self) -> tuple[Decision, ...]:
        return self._chooser.decisions

    def _predicted(self) -> float:
        """The work of a full round of the candidate in use."""
        trials, width = self._chooser.trials, compiled(self._chooser).width
        return trials.work_of(self._each * width, width, 1, trials.current)

    def _begin(self, done: int, each: float) -> None:
        """Begin a segment. each: estimated work of a round."""
        trials = self._chooser.trials
        rounds = max(trials.rounds_left, math.ceil(trials.work_left / max(1.0, each)))
        self._restart(compiled(self._chooser), done, rounds)

    def end(self, done: int) -> None:
        trials, (samples, updates, _), rounds = self._chooser.trials, self.state.counts, done - self._begun
        entries, jobs = samples - self._counted[0], updates - self._counted[1]
        before = trials.work
        trials.account(float(entries), jobs, rounds, trials.current)
        self._counted, self._begun = (samples, updates), done
        each = (trials.work - before) / rounds
        if trials.due:
            self._chooser.observe(done, self.state.progress(done))
            each = self._predicted()
        self._begin(done, each)

    def saved(self) -> dict[str, Any]:
        return {"auto": self._chooser.arrays(), "counted": self._counted, "begun": self._begun, "goal": self.goal}

    def restore(self, saved: dict[str, Any]) -> CompiledChooser:
        self._chooser.restore(saved["auto"])
        self._counted, self._begun, self.goal = saved["counted"], saved["begun"], saved["goal"]
        return compiled(self._chooser)


def compiled(chooser: AutoChooser) -> CompiledChooser:
    """The chooser in use; those of all candidates are compiled."""
    found = chooser.chooser(chooser.trials.current)
    assert isinstance(found, CompiledChooser)
    return found


def width_of(chooser: AutoChooser) -> int:
    """The widest round of any candidate."""
    return max(int(getattr(one.schedule, "width", 1)) for one in chooser.trials.candidates)
