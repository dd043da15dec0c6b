"""Report the progress of a run over tables to listeners: evaluations, clocks, staleness, and bytes by link.

    monitor = TableMonitor(tell, rule, policy)
    monitor.evaluated(look)              # after an evaluation of the objective
    monitor.moved(measure)               # when the lowest clock has advanced; measures only now and then
    monitor.ended(outcome, names)        # once, at the end

Runtimes call `moved` once a clock. It measures when the last time is long enough ago that measuring takes at most a
fiftieth of the run, and less and less often in a run of many clocks, so that the record stays small.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from stretto.comm.policy import Managed, Policy
from stretto.comm.units import rate
from stretto.consistency.rules import ASP, BSP, Rule
from stretto.observe.events import ClocksMeasured, EpochDone, LinksMeasured, Listener

from .job import FAR, TableEvaluation, TableMeasure, TableOutcome

SHARE = 0.02  # of the time may go into measuring
_EACH = 200  # measurements, after which every second one is left out
_LINKS = 64  # links that are listed
_ROWS = 10  # rows that are listed as sent most
_SPREAD = 500  # points of the spread of clocks


class TableMonitor:
    """Reports one run. tell: where to."""

    def __init__(self, tell: Listener, rule: Rule, policy: Policy) -> None:
        self._tell, self._rule, self._policy = tell, rule, policy
        self._evaluations = 0
        self._last: TableEvaluation | None = None
        self._due = 0.0  # by the monotonic clock
        self._calls, self._every, self._made = 0, 1, 0

    def evaluated(self, look: TableEvaluation) -> None:
        """Report an evaluation: its number takes the place of an epoch's."""
        before, self._last = self._last, look
        if before is None:
            return  # of the start
        self._evaluations += 1
        seconds = max(0.0, look.seconds - before.seconds)
        clocks = max(0, look.clock - before.clock)
        number, sent = self._evaluations, {"megabytes_sent": look.bytes / 1e6} if look.bytes else {}
        self._tell(EpochDone(time.time(), number, number, seconds, clocks, look.objective, sent))

    def moved(self, measure: Callable[[], TableMeasure]) -> None:
        """The lowest clock has advanced: measure if that is due."""
        self._calls += 1
        if self._calls % self._every:
            return
        began = time.monotonic()
        if began < self._due:
            return
        self._made += 1
        if self._made % _EACH == 0:
            self._every *= 2
        found = measure()
        self._report(found, ())
        self._due = time.monotonic() + (time.monotonic() - began) / SHARE

    def ended(self, outcome: TableOutcome, names: Sequence[str]) -> None:
        """Report the whole run. names: of the tables."""
        recording = outcome.recording
        waits: Any = sum(recording.waits.values()) if recording is not None and recording.waits else ()
        staleness = () if outcome.staleness is None else outcome.staleness.sum(axis=0).tolist()
        found = TableMeasure(outcome.seconds, outcome.clocks, staleness, list(waits), outcome.traffic)
        spread = [] if recording is None else _thinned(recording.clocks)
        self._report(found, spread, [] if recording is None else _rows_sent(recording, names))

    def _report(self, found: TableMeasure, spread: Sequence[Any], first: Sequence[tuple[str, int, int]] = ()) -> None:
        rule, now = self._rule, time.time()
        bound = None if isinstance(rule, ASP) else 0 if isinstance(rule, BSP) else int(rule.s)
        clocks = [min(clock, FAR) for clock in found.clocks]
        end = max((clock for clock in clocks if clock < FAR), default=0)
        clocks = [clock if clock < FAR else end for clock in clocks]  # of workers that have ended
        waits = [round(float(one), 6) for one in found.waits]
        self._tell(ClocksMeasured(now, found.seconds, str(rule), bound, clocks, list(found.staleness), waits, spread))
        if links := self._links(now, found, first):
            self._tell(links)

    def _links(self, now: float, found: TableMeasure, first: Sequence[tuple[str, int, int]]) -> LinksMeasured | None:
        links: dict[tuple[int, int], int] = defaultdict(int)
        reasons: dict[str, int] = defaultdict(int)
        for one in found.traffic:
            if one.source != one.target:
                links[one.source, one.target] += one.nbytes
                if one.reason:  # a node that runs reports its sum alone
                    reasons[one.reason] += one.nbytes
        if not links:
            return None
        most = sorted(links.items(), key=lambda link: -link[1])
        listed = [(*link, nbytes) for link, nbytes in sorted(most[:_LINKS])]
        if rest := sum(nbytes for _, nbytes in most[_LINKS:]):
            listed.append((-1, -1, rest))
        policy, budget, limits, rank = self._policy, None, [], ""
        if isinstance(policy, Managed):
            budget = rate(policy.budget)
            limits = [(*link, rate(limit)) for link, limit in sorted(policy.links.items())]
            rank = getattr(policy.rank, "__name__", "a function") if callable(policy.rank) else str(policy.rank)
        return LinksMeasured(now, found.seconds, str(policy), budget, listed, dict(reasons), limits, rank, first)


def _thinned(points: Sequence[tuple[float, int, int]]) -> list[tuple[float, int, int]]:
    """At most `_SPREAD` of the points, evenly spread, with the last one."""
    if len(points) <= _SPREAD:
        return list(points)
    return [points[place] for place in np.linspace(0, len(points) - 1, _SPREAD).astype(int).tolist()]


def _rows_sent(recording: Any, names: Sequence[str]) -> list[tuple[str, int, int]]:
    """The rows that were sent most, if that was counted."""
    found: list[tuple[str, int, int]] = []
    if not recording.counts_rows:
        return found
    for table, name in enumerate(names):
        counts = recording.row_sends(table)
        most = np.argpartition(-counts, _ROWS)[:_ROWS] if len(counts) > _ROWS else np.arange(len(counts))
        found += [(name, row, int(counts[row])) for row in most.tolist()]
    return sorted((one for one in found if one[2]), key=lambda one: (-one[2], one))[:_ROWS]
