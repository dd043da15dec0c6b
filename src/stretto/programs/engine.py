"""Running a user's program: its three functions between a pipeline that decides and threads that act.

The engine keeps what is in flight (jobs, results, versions of the parameters), calls the user's code, and says in whose
round and job it failed. Nothing here depends on which thread does what.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from stretto.errors import Diverged, RunError
from stretto.runtime.interrupts import heeding_ctrl_c
from stretto.runtime.rounds import Rounds
from stretto.schedule.pipeline import WHOLE, Pipeline
from stretto.schedule.spec import Floats
from stretto.schedule.waiting import Turns

from .blame import blame
from .choosing import Last, Situation, moved, short, source_of
from .explain import check_pipeline, explain
from .params import Versions, arrays_of
from .program import Program, check
from .telling import Told, telling
from .values import Look, Options, Result, Round


@dataclass(slots=True, eq=False)
class _Flight:
    """A round under way. changes: how far each job moved, as far as it is known; reads: versions that jobs read."""

    jobs: tuple[Any, ...]
    results: list[Any]
    changes: list[Floats | None]
    reads: list[int] = field(default_factory=list)


class Run:
    """One run of a program: the `Work` of a `Rounds`."""

    def __init__(self, program: Program, options: Options, told: Told) -> None:
        self.program, self.options, self.told = program, options, told
        self.arrays = arrays_of(program.name, program.params)
        self.versions = Versions(self.arrays, options.pipeline)
        first = next(iter(self.arrays.values()))
        columns = program.data if program.columns is None else program.columns
        self.source = source_of(program.name, program.schedule, program.size, first, options.seed, columns)
        self.history: list[Look] = []
        self.record: list[Round] = []
        self.stopped: str | None = None  # why the run is to end, where a look says so
        self.ended: int | None = None  # the first round for which the schedule had nothing left
        self.updates = self.samples = 0
        self._first = next(iter(self.arrays))
        self._flights: dict[int, _Flight] = {}
        self._past: dict[int, Last] = {}
        self._memory: dict[str, Any] = {}
        self._looked = 0.0  # seconds spent in looking
        self._began = time.perf_counter()

    @property
    def seconds(self) -> float:
        """Time spent in rounds."""
        return time.perf_counter() - self._began - self._looked

    def choose(self, number: int) -> tuple[int, Turns | None]:
        """Choose a round from what was known `pipeline` rounds before it."""
        known = max(0, number - self.options.pipeline)
        params = self.versions.read(known)
        now = Situation(number, params, self.program.data, self.options.seed, self._memory, self._past.pop(known, None))
        jobs, turns = self._call("schedule", number, None, lambda: self.source.choose(now))
        self._flights[number] = _Flight(jobs, [None] * len(jobs), [None] * len(jobs))
        if not jobs:
            self.ended = number
        return len(jobs), turns

    def update(self, number: int, job: int) -> None:
        """One job, on the version its round reads."""
        flight, known = self._flights[number], max(0, number - self.options.pipeline)
        params, what = self.versions.read(known), flight.jobs[job]
        before = self.versions.stamp(known)
        flight.results[job] = self._call(
            "update", number, job, lambda: self.program.update(what, self.program.data, params)
        )
        if self.options.record:
            flight.reads.extend((before, self.versions.stamp(known)))

    def aggregate(self, number: int, job: int, last: bool) -> None:
        """Results into the next version, and what became of it."""
        flight = self._flights[number]
        which = slice(None) if job == WHOLE else slice(job, job + 1)
        params, jobs = self.versions.begin(number), flight.jobs[which]
        rows = self.source.rows(jobs)
        before = None if rows is None else params[self._first][rows]
        one = None if job == WHOLE else job
        told = self._call("aggregate", number, one, lambda: self.program.aggregate(flight.results[which], params))
        if told is not None:
            flight.changes[which] = self._changes(told, len(jobs), number)
        elif rows is not None and before is not None:
            after = params[self._first][rows]
            flight.changes[which] = self._call("aggregate", number, one, lambda: list(moved(before, after)))
        if job != WHOLE:
            flight.results[job] = None
        if last:
            self._close(number)

    def due(self, number: int) -> bool:
        """Whether a look is due after this round."""
        return number % self.options.every == 0

    def enough(self, number: int) -> bool:
        """Whether the run ends with this round."""
        if self.due(number):
            look = self.look(number)
            until = self.options.until
            if until is not None and self._call("until", number, None, lambda: bool(until(look))):
                self.stopped = "until"
                return True
        if self.options.seconds is not None and self.seconds >= self.options.seconds:
            self.stopped = "seconds"
            return True
        return False

    def look(self, number: int) -> Look:
        """The objective after a round; its time is not counted."""
        seconds, began = self.seconds, time.perf_counter()
        value, objective = float("nan"), self.program.objective
        if objective is not None:
            params = self.versions.read(number)
            value = self._call("objective", number, None, lambda: _number(objective(self.program.data, params)))
        look = Look(number, seconds, self.samples, value, self.updates)
        if self.history and (self.options.rounds is not None or self.options.verbose > 1):
            self.told.look(look, self.history[-1])
        self.history.append(look)
        self._looked += time.perf_counter() - began
        return look

    def _close(self, number: int) -> None:
        """A round is in the parameters."""
        flight = self._flights.pop(number)
        if name := self.versions.nan(number):
            raise Diverged(
                f"{self.program.name}: params[{name!r}] holds NaN after round {number}; take smaller steps, or fewer "
                "jobs at a time"
            )
        self.versions.end(number)
        self.updates += len(flight.jobs)
        self.samples += self._call("samples", number, None, lambda: int(self.program.samples(flight.jobs)))
        changes = None
        if all(change is not None for change in flight.changes):
            changes = np.array(flight.changes, dtype=np.float64)
        elif self.source.learns:
            raise RunError(
                f"{self.program.name}: {self.program.schedule!r} learns from how far each job moved; return that from "
                f"`aggregate`, an array with a number for each of the {len(flight.jobs)} results"
            )
        self._past[number] = Last(number, flight.jobs, changes)
        if self.options.record:
            rule = max(0, number - self.options.pipeline)
            read = max(flight.reads, key=lambda version: abs(version - rule))
            self.record.append(Round(number, flight.jobs, read))

    def _changes(self, told: Any, jobs: int, number: int) -> list[Any]:
        changes = np.asarray(told)
        if changes.shape != (jobs,) or changes.dtype.kind not in "fiub":
            raise RunError(
                f"{self.program.name}: `aggregate` returned {changes.dtype}, shape {changes.shape} in round "
                f"{number}; return how far each of the {jobs} jobs moved, one number each, or None"
            )
        return list(changes.astype(np.float64))

    def _call(self, part: str, number: int, job: int | None, function: Callable[[], Any]) -> Any:
        """Call the user's code; what it raises becomes a RunError that says where, and keeps its own traceback."""
        try:
            return function()
        except Exception as error:
            where = f"round {number}"
            if job is not None:
                jobs = self._flights[number].jobs
                where += f", job {job + 1} of {len(jobs)}: {short(jobs[job])}"
            blame(self.program.name, part, where, error)


def _number(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        raise TypeError(f"it returned {short(value)}; return one number") from None


def launch(program: Program, options: Options) -> Result:
    """Run a user's program."""
    check(program)
    check_pipeline(program, options.pipeline)
    with telling(program.name, options, lambda: explain(program, options.pipeline, options.runtime)) as told:
        result = _launch(program, options, told)
        told.ended(result.stopped)
    return result


def _launch(program: Program, options: Options, told: Told) -> Result:
    run = Run(program, options, told)
    run.look(0)
    rounds = Rounds(Pipeline(options.pipeline, options.rounds), run)
    try:
        with heeding_ctrl_c(rounds) as ctrl_c:
            rounds.run(options.runtime)
            interrupted = ctrl_c.heard()
    finally:
        run.versions.put_back()
    done, seconds = run.versions.newest, run.seconds
    if run.history[-1].round != done:
        run.look(done)
    if (
        options.rounds is None and options.verbose == 1 and done
    ):  # without a goal there is no bar; the last line says how far it got
        told.look(run.history[-1], run.history[0])
    stopped = run.stopped or ("rounds" if done == options.rounds else "interrupted")
    if run.stopped is None and run.ended == done + 1:
        stopped = "schedule"
    if interrupted:  # also when it came too late to stop anything
        stopped = "interrupted"
    return Result(
        params={name: array.copy() for name, array in run.arrays.items()},
        rounds=done,
        updates=run.updates,
        seconds=seconds,
        stopped=stopped,
        history=tuple(run.history),
        record=tuple(run.record),
        schedule_seconds=rounds.spent["choose"],
        busy_seconds=sum(rounds.spent.values()),
    )
