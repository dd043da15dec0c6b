"""When the objective of a job over tables is evaluated, and which evaluations count.

By clock: at every multiple of `every` once all updates of the clocks before it have arrived. By time: at every multiple
of a period, or at given seconds of the run. The tables before the first clock and those at the end are evaluated too.

Under an exact rule (BSP) an evaluation shows the tables at a clock. One that is due at a second therefore takes place
at the next clock that no shard has reached; shards keep the tables of that clock. Under other rules it shows the tables
as they are at that second, whatever the slowest worker does.

    >>> from stretto.runtime.tables.run.times import Period
    >>> due = Evaluations(every=2, exact=True, seconds=Period(10.0))
    >>> due.begin(0, 0.0), due.closed(1, 3), due.closed(5, 5)
    ([Evaluate(clock=0, past=False)], [], [Evaluate(clock=2, past=True), Evaluate(clock=4, past=True)])
    >>> due.time(11.0, low=5, high=6)
    [KeepClock(clock=7)]
    >>> due.closed(7, 8)
    [Evaluate(clock=6, past=True), Evaluate(clock=7, past=True)]
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from stretto.runtime.tables.job import FAR, TableEvaluation, TableJob

from .times import Times


@dataclass(frozen=True, slots=True)
class Evaluate:
    """Evaluate the tables."""

    clock: int
    past: bool = False  # as they were at this clock, where shards may be ahead of it; otherwise the current ones


@dataclass(frozen=True, slots=True)
class KeepClock:
    """The tables at this clock will be evaluated: have shards keep them, or take a cut at it."""

    clock: int


class Evaluations:
    """The evaluations of a run.

    Parameters
    ----------
    every : int or None
        Clocks between two evaluations; None for none by clock.
    exact : bool
        Evaluations use the tables at a clock exactly.
    seconds : Times or None
        When evaluations by time are due; None for never.
    history : iterable of TableEvaluation
        Evaluations of the run that is resumed.

    Attributes
    ----------
    history : list of TableEvaluation
        Evaluations that count, in order.
    due_at : float
        The second at which the next evaluation by time is due.
    """

    def __init__(
        self,
        *,
        every: int | None = 1,
        exact: bool = False,
        seconds: Times | None = None,
        history: Iterable[TableEvaluation] = (),
    ) -> None:
        self.history: list[TableEvaluation] = list(history)
        self.due_at = math.inf
        self._every, self._exact, self._seconds = every, exact, seconds
        self._closed = 0  # clocks up to this one need no evaluation any more
        self._kept: set[int] = set()  # clocks that are evaluated because a second was due
        self._timed = False  # the current evaluation is by time, not by clock
        self._between = False  # the last evaluation was by time

    @classmethod
    def of(cls, job: TableJob, history: Iterable[TableEvaluation] = (), *, exact: bool = False) -> Evaluations | None:
        """The evaluations of a job; None if it has no objective. `exact`: they are exact under any rule."""
        if job.watch is None:
            return None
        return cls(every=job.every, exact=exact or job.rule.exact, seconds=job.seconds, history=history)

    def begin(self, clock: int, now: float, history: Iterable[TableEvaluation] | None = None) -> list[Evaluate]:
        """Begin an incarnation with the tables at this clock.

        Parameters
        ----------
        history : iterable of TableEvaluation or None
            Earlier evaluations that count; those of later clocks do not, because their clocks are recomputed.
        """
        if history is not None:
            self.history[:] = [look for look in history if look.clock <= clock]
        wanted = not self.history or (self._at(clock) and self.history[-1].clock < clock)
        self._closed, self._timed, self._between = clock, False, False
        if self._seconds is not None:
            self.due_at = now if any(kept > clock for kept in self._kept) else self._seconds.after(now)
        self._kept.clear()
        return [Evaluate(clock)] if wanted else []

    def closed(self, clock: int, most: int) -> list[Evaluate]:
        """The tables contain all updates of clocks below this one. `most`: the highest clock of any worker."""
        before = self._closed
        if not self._exact:
            if self._every is None or clock >= FAR or clock // self._every <= before // self._every:
                return []
            self._closed = clock
            return [Evaluate(clock)]
        # includes clocks that were completed together because a worker ended
        self._closed = upto = max(before, min(clock, most))
        every = self._every
        found = set() if every is None else set(range((before // every + 1) * every, upto + 1, every))
        found |= {kept for kept in self._kept if kept <= upto}
        self._kept -= found
        return [Evaluate(at, past=True) for at in sorted(found) if at > before]

    def at_cut(self, clock: int) -> list[Evaluate]:
        """All parts of a cut have arrived, so the tables at its clock can be evaluated."""
        if not self._at(clock) or clock <= self._closed:
            return []
        self._kept = {kept for kept in self._kept if kept > clock}
        self._closed = clock
        return [Evaluate(clock, past=True)]

    def missed(self, clock: int) -> bool:
        """Whether an evaluation of a clock before this one is due and was not made."""
        every = self._every
        return any(kept < clock for kept in self._kept) or (
            every is not None and (clock - 1) // every > self._closed // every
        )

    def time(self, now: float, low: int, high: int) -> list[Evaluate | KeepClock]:
        """What is due at this second. `low`: the lowest clock of any worker; `high`: the highest that a shard
        reached.
        """
        if now < self.due_at or self._seconds is None:
            return []
        self.due_at = self._seconds.after(now)
        if low >= FAR:  # the end is evaluated in any case
            return []
        if self._exact:
            self._kept.add(high + 1)
            return [KeepClock(high + 1)]
        self._timed = True
        return [Evaluate(low)]

    def refused(self, clock: int) -> None:
        """The tables at this clock cannot be kept: evaluations that wait for it are due again."""
        if clock in self._kept:
            self._kept.remove(clock)
            self.due_at = -math.inf

    def last(self, clock: int) -> list[Evaluate]:
        """The run has ended; workers are at this clock at most."""
        known = self.history[-1].clock if self.history else -1
        return [Evaluate(clock)] if known < clock or self._between else []

    def made(self, look: TableEvaluation) -> None:
        """Record an evaluation."""
        self._between, self._timed = self._timed, False
        self.history.append(look)

    def _at(self, clock: int) -> bool:
        """Whether an evaluation is due at a clock."""
        return clock in self._kept or (self._every is not None and clock % self._every == 0)
