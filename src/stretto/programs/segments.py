"""The compiled engine in segments: another chooser may take over where one ends.

The last round of a segment is known before it begins, so no round beyond it is chosen, and the chooser can be replaced
while nothing is in flight. `AutoMachine` ends segments where the trials of `schedule="auto"` need the objective, which
depends on the data and the schedule alone.
"""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod

from stretto.schedule.auto import AutoChooser
from stretto.schedule.chooser import Compiled
from stretto.schedule.trials import Decision

from .coordinate_state import CoordinateState
from .machine import Machine
from .values import Round


class SegmentMachine(ABC):
    """A machine whose chooser is replaced at the ends of segments.

    Parameters
    ----------
    machine : Machine
        Before its first round.
    last : int or None
        The last round of the run.
    """

    def __init__(self, machine: Machine, last: int | None) -> None:
        self._machine, self._last = machine, last
        self._seconds = 0.0  # spent between segments
        self.limit = 0  # the last round of the segment

    @abstractmethod
    def _end_segment(self, done: int) -> None:
        """Decide what comes after round `done`, and `_restart` with it."""

    @property
    @abstractmethod
    def choices(self) -> tuple[Decision, ...]:
        """The choices made so far."""

    def _restart(self, chooser: Compiled, done: int, rounds: int) -> None:
        """Begin a segment of so many rounds."""
        if self._last is None or done < self._last:
            self.limit = done + rounds if self._last is None else min(done + rounds, self._last)
            self._machine.restart(chooser, done, self.limit)

    def advance(self, to: int) -> float:
        """Make rounds until `to` of them are applied, at most `limit`; the seconds it took."""
        seconds = self._machine.advance(to)
        if to == self.limit and not self.state.counts[2]:
            began = time.perf_counter()
            self._end_segment(to)
            between = time.perf_counter() - began
            self.spent(between)
            seconds += between
        return seconds

    def spent(self, seconds: float) -> None:
        """Count time spent between segments."""
        self._seconds += seconds

    @property
    def state(self) -> CoordinateState:
        """The regression between two rounds."""
        return self._machine.state

    @property
    def schedule_seconds(self) -> float:
        """Thread time spent in choosing, between segments too."""
        return self._machine.schedule_seconds + self._seconds

    @property
    def busy_seconds(self) -> float:
        """Thread time spent in rounds and between segments."""
        return self._machine.busy_seconds + self._seconds

    def record(self, done: int) -> tuple[Round, ...]:
        """See `Machine.record`."""
        return self._machine.record(done)


class AutoMachine(SegmentMachine):
    """A machine under `schedule="auto"`. entries: of a column, on average."""

    def __init__(self, machine: Machine, chooser: AutoChooser, entries: float, last: int | None) -> None:
        super().__init__(machine, last)
        self._chooser, self._each = chooser, max(1.0, entries)
        self._counted, self._begun = (0, 0), 0  # entries and updates at the start of the segment, and its first round
        chooser.observe(0, machine.state.progress(0))
        self._begin(0, self._predicted())

    @property
    def choices(self) -> tuple[Decision, ...]:
        return self._chooser.decisions

    def _predicted(self) -> float:
        """The work of a full round of the candidate in use."""
        trials, width = self._chooser.trials, compiled(self._chooser).width
        return trials.work_of(self._each * width, width, 1, trials.current)

    def _begin(self, done: int, each: float) -> None:
        """Begin a segment. each: the work of a round, as far as that is known."""
        trials = self._chooser.trials
        rounds = max(trials.rounds_left, math.ceil(trials.work_left / max(1.0, each)))
        self._restart(compiled(self._chooser), done, rounds)

    def _end_segment(self, done: int) -> None:
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


def compiled(chooser: AutoChooser) -> Compiled:
    """The chooser in use; those of all candidates are compiled."""
    found = chooser.chooser(chooser.trials.current)
    assert isinstance(found, Compiled)
    return found


def width_of(chooser: AutoChooser) -> int:
    """The widest round of any candidate."""
    return max(int(getattr(one.schedule, "width", 1)) for one in chooser.trials.candidates)
