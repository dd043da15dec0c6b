"""The engine of `st.run`: state of a run (rounds in flight, parameter versions), and calls of the program's functions.

The pipeline decides what runs next, and workers run it. If the user's code fails, the engine reports the round, job and
part. Nothing depends on which worker runs a task: on threads `update` calls the program; for nodes, `assignment`
describes the update and `returned` takes its result.
"""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from stretto.errors import Diverged, RunError
from stretto.runtime.cluster.rounds.remote_choices import RemoteChoices
from stretto.schedule.pipeline import WHOLE, Pipeline
from stretto.schedule.scheduler_share import SchedulerShare
from stretto.schedule.spec import Schedule
from stretto.schedule.waiting import JobOrder

from .base import ProgramBase
from .choosing import Last, RemoteRoundSource, Situation, changes_of, moved
from .error_context import blame, short
from .node import WHOLE_DATA, NodeProgram, local_state, node_program, packed_state, update_of
from .params import Params, Versions, arrays_of
from .part_sources import read_all
from .parts import WrongShape, merged, packed, parts_of
from .progress import ProgressReporter
from .repeatable import NOTHING
from .round_sources import shares_of, source_of
from .saving import Saver
from .values import Look, Round, RoundInFlight, RunOptions, number_of

if TYPE_CHECKING:
    from stretto.runtime.cluster.rounds.node import UpdateOutcome


class ProgramRun:
    """One run of a program: the `Work` of threads and the `RemoteWork` of nodes."""

    def __init__(self, program: ProgramBase, options: RunOptions, progress: ProgressReporter) -> None:
        self.program, self.options, self.progress = program, options, progress
        self.arrays = arrays_of(program.name, program.params)
        self.versions = Versions(self.arrays, options.pipeline)
        first = next(iter(self.arrays.values()))
        columns = program.data if program.columns is None else program.columns
        self.source = source_of(program, options, first, columns)
        self.pieces = parts_of(program.name, program.parts, program.data)
        self.parts = 0 if self.pieces is None else len(self.pieces)
        self.shares = self._shares(first, columns)
        self.schedulers = len(self.shares)
        self.choices = RemoteChoices(self.schedulers)
        self.stateful = program.local is not None or bool(self.shares)
        self.locals: list[Any] | None = None  # by part, where updates run in this process
        self.history: list[Look] = []
        self.record: list[Round] = []
        self.stopped: str | None = None  # why the run ends, if an evaluation ends it
        self.ended: int | None = None  # the first round for which the schedule had no jobs
        self.updates = self.samples = 0
        self.clock: Callable[[], float] = lambda: 0.0
        self.flights: dict[int, RoundInFlight] = {}
        self.past: dict[int, Last] = {}
        self.memory: dict[str, Any] = {}
        self.choosing = threading.Lock()  # held while a round is chosen, and while the state of the run is captured
        self.saver = Saver(self, options.keeping)
        self._first = next(iter(self.arrays))
        self._hold: Callable[[], None] | None = None
        self._before = 0.0  # seconds of the run that this one resumes
        self._excluded = 0.0  # seconds spent in evaluating and saving
        self._began = 0.0

    def _shares(self, first: Any, data: Any) -> list[SchedulerShare]:
        """The shares of schedulers on nodes."""
        return shares_of(self.program, self.options, first, data)

    def begins(self, clock: Callable[[], float], *, here: bool) -> None:
        """Prepare for the first round. here: updates run in this process."""
        self.clock = clock
        if here and self.pieces is not None:
            self.pieces = read_all(self.program.name, self.pieces, packed)
        self._began = clock()
        if here and self.program.local is not None and self.pieces is not None:
            pieces = enumerate(self.pieces)
            self.locals = self.saver.restored() or [local_state(self.program, part, data) for part, data in pieces]

    def resumed(self, state: Mapping[str, Any]) -> None:
        """Continue from the part of a checkpoint that is not arrays."""
        self.flights = {number: RoundInFlight.of(jobs, self.parts) for number, jobs in state["flights"].items()}
        self.ended = min((number for number, flight in self.flights.items() if not flight.jobs), default=None)
        self.past, self.memory, self.history = state["past"], state["memory"], list(state["history"])
        self.updates, self.samples = state["counts"]
        self._before = state["seconds"]
        self.source.restore(state["schedule"])

    @property
    def seconds(self) -> float:
        """Time spent in rounds."""
        return self._before + self.clock() - self._began - self._excluded

    def choose(self, number: int) -> tuple[int, JobOrder | None]:
        """Choose a round from the state `pipeline` rounds before it."""
        before = max(0, number - self.options.pipeline)
        params = self.versions.read(max(self.source.base, before))
        with self.choosing:
            last = self.past.pop(before, None)
            now = Situation(number, params, self.program.data, self.options.seed, self.memory, last)
            jobs, turns = self._call("schedule", number, None, lambda: self.source.choose(now))
            flight = self.flights[number] = RoundInFlight.of(jobs, self.parts)
        if not jobs:
            self.ended = number
        if self._hold is not None:
            self._hold()
        return len(flight.results), turns

    def known(self, number: int) -> int:
        """The version of the parameters that a round reads: that after which round."""
        return max(self.source.base, number - self.options.pipeline)

    def hold(self, pipeline: Pipeline) -> None:
        """From now on, choose the first round of a segment only after the segment before it has ended."""

        def hold() -> None:
            if self.source.last is not None:
                pipeline.hold_after(self.source.last)

        self._hold = hold
        hold()

    # -- updates -----------------------------------------------------------------------------------------------------

    def update(self, number: int, job: int) -> None:
        """Run one update, on the version that its round reads."""
        flight, known = self.flights[number], self.known(number)
        params, (what, part) = self.versions.read(known), self.assignment(number, job)
        before = self.versions.stamp(known)
        data = self.program.data if self.pieces is None else self.pieces[part]
        state, check = NOTHING if self.locals is None else self.locals[part], self.checks(number, job)
        flight.results[job] = self._call(
            "update", number, job, lambda: update_of(self.program, what, data, params, state, check)
        )
        if self.options.record:
            flight.reads.extend((before, self.versions.stamp(known)))

    def checks(self, number: int, update: int) -> str:
        """Whether to run an update twice and compare its bits (see `update_of`): one job of a round on every part."""
        every = self.options.check_every
        schedule = self.program.schedule
        alone = isinstance(schedule, Schedule) and schedule.waiting is not None  # others write to params meanwhile
        if every == 0 or alone or update >= max(1, self.parts):
            return ""
        if every is None:
            return "cheap" if number == 1 else ""
        return "always" if number % every == 1 % every else ""

    def assignment(self, number: int, update: int) -> tuple[Any, int]:
        """(job, part) of an update."""
        jobs = self.flights[number].jobs
        return (jobs[update // self.parts], update % self.parts) if self.parts else (jobs[update], WHOLE_DATA)

    def params(self, number: int) -> Params:
        """The parameters that a round reads, for nodes."""
        known = self.known(number)
        if self.options.record and number in self.flights:
            self.flights[number].reads.append(self.versions.stamp(known))
        return self.versions.read(known)

    def node_work(self, parts: Sequence[int], updates: bool) -> NodeProgram:
        """The program for a node with these parts, including its schedulers. updates: whether it runs updates."""
        shares = {part: self.shares[part - self.parts] for part in parts if part >= self.parts}
        if not updates:  # schedulers alone
            return node_program(self.program, (), (), shares)
        return node_program(self.program, self.pieces, [part for part in parts if part < self.parts], shares)

    # -- schedulers on nodes -----------------------------------------------------------------------------------------

    def request(self, number: int) -> bytes | None:
        """What the scheduler of a round receives before it chooses the round; None: there is no such round."""
        if self.options.rounds is not None and number > self.options.rounds:
            return None
        source, last = self.source, self.past.pop(max(0, number - self.options.pipeline), None)
        assert isinstance(source, RemoteRoundSource)
        return pickle.dumps(self._call("schedule", number, None, lambda: source.request(number, last)), protocol=5)

    def received(self, number: int, outcome: UpdateOutcome) -> None:
        """Store a round that a scheduler has chosen."""
        if outcome.error is not None:
            blame(self.program.name, "schedule", f"round {number}", outcome.error, remote=True)
        assert outcome.result is not None
        assert isinstance(self.source, RemoteRoundSource)
        self.source.receive(number, pickle.loads(outcome.result))

    def returned(self, number: int, update: int, outcome: UpdateOutcome) -> None:
        """Store the result of an update from a node."""
        if outcome.error is not None:
            blame(self.program.name, "update", self._where(number, update), outcome.error, remote=True)
        assert outcome.result is not None
        packed = outcome.result
        self.flights[number].results[update] = self._call("update", number, update, lambda: pickle.loads(packed))

    # -- the state of parts ------------------------------------------------------------------------------------------

    def saves(self, number: int) -> bool:
        """Whether the state of parts is saved after this round."""
        return self.stateful and self.saver.at(number)

    def saved(self, number: int, states: dict[int, UpdateOutcome]) -> None:
        """Store the states of all parts after a round, from nodes."""
        for part, outcome in sorted(states.items()):
            if outcome.error is not None:
                blame(self.program.name, "local", f"round {number}, part {part + 1}", outcome.error, remote=True)
        chosen = self.choices.chosen(number) if self.schedulers else None
        self.saver.states_came(number, {part: outcome.result or b"" for part, outcome in states.items()}, chosen)

    def states(self) -> tuple[int, Mapping[int, bytes] | None]:
        """The round after which states were saved last, and the states, which nodes start from."""
        return self.saver.states

    def local_states(self, number: int) -> dict[int, bytes] | None:
        """The states of parts in this process; None if it has none."""
        if self.locals is None:
            return None
        try:
            return {part: packed_state(state) for part, state in enumerate(self.locals)}
        except RunError as error:
            blame(self.program.name, "local", f"round {number}", error, remote=True)

    # -- aggregating -------------------------------------------------------------------------------------------------

    def aggregate(self, number: int, job: int, last: bool) -> None:
        """Aggregate results into the next version of the parameters, and record how far jobs moved."""
        flight = self.flights[number]
        which = slice(None) if job == WHOLE else slice(job, job + 1)
        params, jobs = self.versions.begin(number), flight.jobs[which]
        rows = self.source.rows(jobs)
        before = None if rows is None else params[self._first][rows]
        one = None if job == WHOLE else job
        results = self._merge(number, flight) if self.parts else flight.results[which]
        returned = self._call("aggregate", number, one, lambda: self.program.aggregate(results, params))
        if returned is not None:
            flight.changes[which] = changes_of(self.program.name, returned, len(jobs), number)
        elif rows is not None and before is not None:
            after = params[self._first][rows]
            flight.changes[which] = self._call("aggregate", number, one, lambda: list(moved(before, after)))
        if job != WHOLE:
            flight.results[job] = None
        if last:
            self._close(number)

    def _merge(self, number: int, flight: RoundInFlight) -> list[Any]:
        """Merge the results of each job on all parts."""
        parts, merge, found = self.parts, self.program.merge, []
        for job in range(len(flight.jobs)):
            results = flight.results[job * parts : (job + 1) * parts]
            try:
                found.append(merged(results, merge))
            except WrongShape as error:
                blame(self.program.name, "update", self._where(number, job * parts + error.part), error)
            except Exception as error:
                part = "merge" if merge is not None else "update"
                blame(self.program.name, part, self._where(number, job * parts, all_parts=True), error, remote=True)
        return found

    def due(self, number: int) -> bool:
        """Whether something is evaluated or saved after this round."""
        return number % self.options.every == 0 or self.saver.at(number)

    def enough(self, number: int) -> bool:
        """Evaluate and save if due; return whether the run ends with this round."""
        if number % self.options.every == 0:
            look = self.look(number)
            until = self.options.until
            if until is not None and self._call("until", number, None, lambda: bool(until(look))):
                self.stopped = "until"
        if self.stopped is None and self.options.seconds is not None and self.seconds >= self.options.seconds:
            self.stopped = "seconds"
        if self.saver.due(number):
            self.save(number)
        return self.stopped is not None

    def save(self, number: int) -> None:
        """Save a checkpoint after the last aggregated round; its time is not counted."""
        began = self.clock()
        self.saver.save(number)
        self._excluded += self.clock() - began

    def look(self, number: int) -> Look:
        """Evaluate the objective after a round; its time is not counted."""
        seconds, began = self.seconds, self.clock()
        value, objective = float("nan"), self.program.objective
        if objective is not None:
            params = self.versions.read(number)
            value = self._call("objective", number, None, lambda: number_of(objective(self.program.data, params)))
        look = Look(number, seconds, self.samples, value, self.updates)
        if self.history and self.options.reports_looks:
            self.progress.look(look, self.history[-1])
        self.history.append(look)
        self._excluded += self.clock() - began
        return look

    def _close(self, number: int) -> None:
        """Finish a round that was aggregated."""
        flight = self.flights.pop(number)
        if name := self.versions.nan(number):
            raise Diverged(
                f"{self.program.name}: params[{name!r}] holds NaN after round {number}; take smaller steps, or fewer "
                "jobs at a time"
            )
        self.versions.end(number)
        listed = self.source.listed(flight.jobs)
        self.updates += len(listed)
        self.samples += self._call("samples", number, None, lambda: int(self.program.samples(flight.jobs)))
        changes = None
        if all(change is not None for change in flight.changes):
            changes = np.array(flight.changes, dtype=np.float64)
        elif self.source.learns:
            raise RunError(
                f"{self.program.name}: {self.program.schedule!r} learns from how far each job moved; return that from "
                f"`aggregate`, an array with a number for each of the {len(flight.jobs)} results"
            )
        self.past[number] = Last(number, flight.jobs, changes)
        if self.options.record:
            rule = self.known(number)
            read = max(flight.reads, key=lambda version: abs(version - rule))
            self.record.append(Round(number, listed, read))

    def _call(self, part: str, number: int, update: int | None, function: Callable[[], Any]) -> Any:
        """Call the user's code; turn an exception into a RunError with round, job, part and the user's traceback."""
        try:
            return function()
        except Exception as error:
            blame(self.program.name, part, self._where(number, update), error)

    def _where(self, number: int, update: int | None, *, all_parts: bool = False) -> str:
        """A round, and the job and part of an update, for messages."""
        if update is None:
            return f"round {number}"
        flight = self.flights[number]
        job, part = divmod(update, max(1, self.parts))
        at = f", part {part + 1} of {self.parts}" if self.parts and not all_parts else ""
        return f"round {number}, job {job + 1} of {len(flight.jobs)}: {short(flight.jobs[job])}{at}"
