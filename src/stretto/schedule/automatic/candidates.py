"""Candidates of `schedule="auto"`: a few schedules with the estimated cost of a round, and why others are left out.

Work is counted in entries: one entry of a column takes one unit. A round costs the entries of its columns, a constant
for each job, a constant for the round (synchronisation and, between machines, latency) and the cost of choosing it.
Candidates depend neither on measured time nor on the number of workers, so the same data give the same candidates.

Measured of the columns:

- the spectral radius, which gives the width that is safe without checking for conflicts;
- the share of pairs that correlate above the threshold of `prioritised`, which predicts how many of its candidates
  fit into one round, and with it what choosing costs for each job.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from stretto.schedule.columns import Columns, columns_of, sampled_rows, table
from stretto.schedule.cyclic import cyclic
from stretto.schedule.prioritised import Prioritised, prioritised
from stretto.schedule.spec import Schedule
from stretto.schedule.width import safe_width, spectral_radius

NARROWER = 8  # ratio of the widths of the first and the second cyclic candidate
WIDTHS = (16, 64, 256)  # of prioritised candidates
WORTH = 2.5  # prioritised is left out if a job costs more than this many times a job of a cyclic round
FIRST = 1.25  # prioritised is tried first if it costs less than this
_PAIRED = 64  # columns whose pairs are compared
_ROWS, _ITERATIONS, _TOLERANCE = 512, 5, 0.02  # of the spectral radius: rows of dense columns, passes, precision
_MARGIN = 1.15  # an estimate by few iterations is up to 15 % below the true radius
# Entries that choosing costs for one candidate of a prioritised round; a dense pair is compared on up to 256 rows.
_SPARSE_CANDIDATE, _DENSE_CANDIDATE, _DENSE_ROWS = 100.0, 2.0, 256
_CYCLIC_JOB = 5.0


@dataclass(frozen=True)
class RoundCost:
    """Work, in entries, that does not depend on the schedule.

    Parameters
    ----------
    round : float
        Of a round: synchronisation, and latency between machines.
    job : float
        Of a job, besides the entries of its column.
    """

    round: float = 1_000.0
    job: float = 0.0


COMPILED = RoundCost()
PYTHON = RoundCost(20_000.0, 10_000.0)  # `update` and `aggregate` are Python functions


@dataclass(frozen=True)
class Candidate:
    """A schedule to try.

    Parameters
    ----------
    schedule : Schedule
    choosing : float
        Work of choosing a round.
    learns : bool
        Whether it goes by how far jobs moved, so that its progress counts from the second sweep on.
    after : int or None
        Tried only while this candidate is the best so far; None: always.
    why : str
        Why it is a candidate.
    """

    schedule: Schedule
    choosing: float
    learns: bool
    after: int | None
    why: str


@dataclass(frozen=True)
class Candidates:
    """The schedules to try."""

    tried: tuple[Candidate, ...]  # the run begins with the first one
    left_out: tuple[str, ...]  # schedules that are not tried, and why, in words
    measured: str  # what was measured of the columns, in words

    def lines(self) -> list[str]:
        """In words, a line each."""
        found = [f"measured: {self.measured}"]
        found += [f"candidate {k + 1}: {one.schedule.explain()} ({one.why})" for k, one in enumerate(self.tried)]
        return [*found, *(f"left out: {text}" for text in self.left_out)]


def candidates(
    size: int,
    data: Any,
    cost: RoundCost = COMPILED,
    *,
    widest: int = 256,
    depth: int = 1,
    objective: bool = True,
    learns: bool = True,
    free: bool = False,
) -> Candidates:
    """The candidates for `size` jobs.

    Parameters
    ----------
    size : int
        Number of jobs.
    data : matrix or None
        A column for each job; None: correlations are unknown.
    cost : RoundCost
        Cost of a round and of a job.
    widest : int
        The most jobs of a round.
    depth : int
        Rounds in flight, which share the safe width.
    objective : bool
        Whether progress can be measured; if not, there is one candidate, a safe one.
    learns : bool
        Whether it is known how far each job moves.
    free : bool
        Whether the jobs of a round never conflict, for any data.
    """
    columns = columns_or_none(data, size)
    if columns is None or free:
        return _without_columns(size, widest, objective=objective, learns=learns, free=free)
    rho, safe = measured_width(columns, widest, depth)
    share = conflicting_share(columns)
    measured = f"spectral radius {rho:,.3g}, {share:.1%} of the pairs of columns correlate above the threshold"
    flight = f" over {depth} rounds in flight" if depth > 1 else ""
    limit = f"{safe:,} together are safe{flight}" if safe < widest else f"as wide as allowed, {safe:,} are safe{flight}"
    plain = [Candidate(cyclic(safe, shuffle=True), _CYCLIC_JOB * safe, False, None, limit)]
    if safe > 1:
        narrow = cyclic(max(1, safe // NARROWER), shuffle=True)
        plain.append(Candidate(narrow, _CYCLIC_JOB * narrow.width, False, None, "fewer conflicts"))
    entries = float(columns.length.mean()) + cost.job
    spec, each, jobs = _best_prioritised(columns, entries, cost, share, widest)
    ratio = each / (entries + _CYCLIC_JOB + cost.round / safe)
    predicted = f"a round would hold about {jobs:,.0f} jobs, and a job cost {ratio:,.1f} times a cyclic one"
    left_out: list[str] = []
    tried = plain
    if not learns:
        left_out.append("prioritised: how far each job moves is not known")
    elif ratio > (WORTH if objective else FIRST):
        left_out.append(f"prioritised: {predicted}")
    else:
        by_priority = Candidate(spec, choosing_cost(spec, columns), True, None, predicted)
        at = 0 if ratio <= FIRST else len(plain)
        tried = [*plain[:at], by_priority, *plain[at:]]
        if 4 * spec.width <= widest:
            wider, why = prioritised(4 * spec.width), f"if candidate {at + 1} is the best"
            tried.append(Candidate(wider, choosing_cost(wider, columns), True, at, why))
    if not objective:
        return Candidates((tried[0],), (*left_out, "others: there is no objective to compare them by"), measured)
    return Candidates(tuple(tried), tuple(left_out), measured)


def measured_width(columns: Columns, widest: int, depth: int = 1) -> tuple[float, int]:
    """An upper estimate of the spectral radius, and the width that is safe with `depth` rounds in flight."""
    rho = _MARGIN * spectral_radius(_some_rows(columns), iterations=_ITERATIONS, tolerance=_TOLERANCE)
    return rho, max(1, min(widest, safe_width(rho, columns.size) // depth))


def _some_rows(columns: Columns) -> Columns:
    """Dense columns on a sample of the rows, which tends to increase the radius; sparse columns unchanged."""
    return sampled_rows(columns, np.zeros(columns.size, bool), 0, _ROWS)[0] if columns.dense else columns


def columns_or_none(data: Any, size: int) -> Columns | None:
    """The columns of the jobs; None if the data are not a matrix with a column for each job."""
    if isinstance(data, Columns):
        return data if data.size == size else None
    shape: tuple[int, ...] = getattr(data, "shape", ())
    if len(shape) != 2 or shape[1] != size or getattr(getattr(data, "dtype", None), "kind", "f") not in "biuf":
        return None
    return columns_of(data)


def _without_columns(size: int, widest: int, *, objective: bool, learns: bool, free: bool) -> Candidates:
    """Candidates for unknown correlations: one job at a time, then wider step by step while the objective falls."""
    top = min(widest, size)
    if free:
        one = Candidate(cyclic(top), _CYCLIC_JOB * top, False, None, "no job reads an outdated value")
        return Candidates((one,), (), "nothing; jobs of a round are independent, or run one after the other")
    tried = [Candidate(cyclic(1, shuffle=True), _CYCLIC_JOB, False, None, "one at a time is safe")]
    unknown = "nothing; there is no matrix with a column for each job"
    if not objective:
        return Candidates(tuple(tried), ("wider rounds: there is no objective to check them by",), unknown)
    if learns:
        spec = prioritised(1, conflicts=None)
        tried.append(Candidate(spec, _SPARSE_CANDIDATE, True, None, "one at a time, those that move most"))
    width, last = 2, 0
    while width <= top:
        why = f"twice as wide, while width {width // 2} is the best"
        tried.append(Candidate(cyclic(width, shuffle=True), _CYCLIC_JOB * width, False, last, why))
        width, last = 2 * width, len(tried) - 1
    return Candidates(tuple(tried), (), unknown)


def conflicting_share(columns: Columns) -> float:
    """The share of pairs of columns that `prioritised` would not run together, estimated on some of the columns."""
    from stretto.kernels.rounds.correlation import correlations

    count = min(_PAIRED, columns.size)
    if count < 2:
        return 0.0
    some = columns.pick(np.linspace(0, columns.size - 1, count).astype(np.int64))
    tools = table(some, 0, sample=None, schedulers=1, width=1)
    found = np.empty((count, count))
    correlations(tools, np.arange(count, dtype=np.int64), 1.0, found)
    pairs = np.abs(found[np.triu_indices(count, 1)])
    return float(np.count_nonzero(pairs >= prioritised().threshold) / len(pairs))


def expected_jobs(drawn: int, width: int, share: float) -> float:
    """How many of `drawn` candidates a greedy choice takes if a share of the pairs conflict.

    >>> round(expected_jobs(128, 64, 0.0)), round(expected_jobs(128, 64, 0.5), 1)
    (64, 6.0)
    """
    if share <= 0.0:
        return float(width)
    if share >= 1.0:
        return 1.0
    return max(1.0, min(width, math.log1p(drawn * share) / -math.log1p(-share)))


def choosing_cost(spec: Schedule, columns: Columns) -> float:
    """Estimated work of choosing a round."""
    if not isinstance(spec, Prioritised):
        return _CYCLIC_JOB * float(getattr(spec, "width", 1))
    each = _DENSE_CANDIDATE * min(columns.rows, _DENSE_ROWS) if columns.dense else _SPARSE_CANDIDATE
    return each * min(spec.drawn, 2 * columns.size)


def _best_prioritised(
    columns: Columns, entries: float, cost: RoundCost, share: float, widest: int
) -> tuple[Prioritised, float, float]:
    """The prioritised schedule with the lowest cost of a job: its spec, the work of a job, jobs of a round."""
    found = []
    for width in sorted({min(width, widest, columns.size) for width in WIDTHS}):
        spec = prioritised(width)
        jobs = expected_jobs(spec.drawn, width, share)
        found.append((spec, entries + (cost.round + choosing_cost(spec, columns)) / jobs, jobs))
    return min(found, key=lambda one: one[1])
