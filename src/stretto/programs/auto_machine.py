"""The compiled engine under `schedule="auto"`: rounds in segments, and another chooser between two of them.

A segment ends where the trials want to know the objective. Its last round is known before it begins, so no round beyond
it is chosen, and the chooser can be replaced while nothing is in flight. Where segments end depends on the data and the
schedule alone.
"""

from __future__ import annotations

import math
import time
from typing import Any

from numpy.typing import NDArray

from stretto.schedule.auto import AutoChooser
from stretto.schedule.chooser import Compiled
from stretto.schedule.trials import Decision

from .machine import Machine
from .values import Round


class AutoMachine:
    """A machine whose chooser is replaced at the ends of segments.

    Parameters
    ----------
    machine : Machine
        Before its first round, started with the chooser of the first candidate.
    chooser : AutoChooser
    entries : float
        Of a column, on average.
    last : int or None
        The last round of the run.
    """

    def __init__(self, machine: Machine, chooser: AutoChooser, entries: float, last: int | None) -> None:
        self._machine, self._chooser, self._each, self._last = machine, chooser, max(1.0, entries), last
        self._counted, self._begun = (0, 0), 0  # entries and updates at the start of the segment, and its first round
        self._seconds = 0.0  # spent in evaluating
        chooser.observe(0, machine.objective(0))
        self.limit = self._restart(0, self._each * compiled(chooser).width)

    def _restart(self, done: int, entries: float) -> int:
        """Begin a segment; its last round. entries: of a round, as far as that is known."""
        trials, chooser = self._chooser.trials, compiled(self._chooser)
        rounds = max(trials.rounds_left, math.ceil(trials.entries_left / max(1.0, entries)))
        limit = done + rounds if self._last is None else min(done + rounds, max(self._last, done))
        self._machine.restart(chooser, done, limit)
        return limit

    def advance(self, to: int) -> float:
        """Make rounds until `to` of them are applied, at most `limit`; the seconds it took."""
        seconds = self._machine.advance(to)
        if to == self.limit:
            began = time.perf_counter()
            self._end_segment(to)
            spent = time.perf_counter() - began
            seconds, self._seconds = seconds + spent, self._seconds + spent
        return seconds

    def _end_segment(self, done: int) -> None:
        trials, (samples, updates, failed) = self._chooser.trials, self.counts
        entries, jobs = samples - self._counted[0], updates - self._counted[1]
        rounds = done - self._begun
        trials.account(float(entries), jobs, rounds, trials.current)
        self._counted, self._begun = (samples, updates), done
        if failed:
            return
        each = entries / rounds
        if trials.due:
            self._chooser.observe(done, self._machine.objective(done))
            each = self._each * compiled(self._chooser).width
        if self._last is None or done < self._last:
            self.limit = self._restart(done, each)

    @property
    def choices(self) -> tuple[Decision, ...]:
        """The choices made so far."""
        return self._chooser.decisions

    @property
    def counts(self) -> tuple[int, int, int]:
        """See `Machine.counts`."""
        return self._machine.counts

    @property
    def schedule_seconds(self) -> float:
        """Thread time spent in choosing, the evaluations of trials included."""
        return self._machine.schedule_seconds + self._seconds

    @property
    def busy_seconds(self) -> float:
        """Thread time spent in rounds and in evaluations of trials."""
        return self._machine.busy_seconds + self._seconds

    def objective(self, done: int) -> float:
        """See `Machine.objective`."""
        return self._machine.objective(done)

    def params(self, done: int) -> dict[str, NDArray[Any]]:
        """See `Machine.params`."""
        return self._machine.params(done)

    def record(self, done: int) -> tuple[Round, ...]:
        """See `Machine.record`."""
        return self._machine.record(done)


def compiled(chooser: AutoChooser) -> Compiled:
    """The chooser in use; those of all candidates are compiled."""
    found = chooser.chooser(chooser.trials.current)
    assert isinstance(found, Compiled)
    return found


def width_of(chooser: AutoChooser) -> int:
    """The widest round of any candidate."""
    return max(int(getattr(one.schedule, "width", 1)) for one in chooser.trials.candidates)
