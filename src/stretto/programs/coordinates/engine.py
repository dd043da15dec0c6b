"""The compiled engine of `SparseRegression` in one memory: advance a run by n rounds, restart it with another chooser.

Rounds in flight stay in the arrays between two calls, so the length of a call changes no result.
"""

from __future__ import annotations

import time

import numpy as np

from stretto.kernels.core.clock import read_cycles
from stretto.kernels.rounds import engine as rounds
from stretto.programs.values import Round
from stretto.runtime.blocks.team import Team
from stretto.schedule.automatic.trials import Decision
from stretto.schedule.chooser import CompiledChooser
from stretto.schedule.spec import Ints

from .state import CoordinateState, Cut

ENDLESS = 1 << 60  # the last round of a run without a last round


class CoordinateEngine:
    """One run of a sparse regression by the compiled engine."""

    def __init__(
        self,
        state: CoordinateState,
        chooser: CompiledChooser,
        *,
        depth: int,
        last: int | None,
        team: Team,
        workers: int,
        record: bool,
    ) -> None:
        self._team, self._workers, self._depth, self._recording = team, workers, depth, record
        self.state, self._chooser = state, chooser
        cut = state.cut
        queues = len(chooser.choice.place)
        plan = np.zeros(rounds.PLAN, np.int64)
        plan[:] = (depth, cut.by_rows, cut.tasks, cut.blocks, queues)
        line = rounds.LINE
        self._engine = rounds.Engine(
            plan,
            np.array([0, 0, ENDLESS if last is None else last]),
            np.zeros(rounds.CONTROL, np.int64),
            np.zeros(line * queues, np.int64),
            np.zeros(line * len(state.problem.count), np.int64),
            np.zeros(line * cut.blocks, np.int64),
            np.zeros((workers, line), np.int64),
            *_empty_record(0, cut, self.state.width),
        )
        self._step = 0  # the next step of the sequence
        self._read: list[tuple[int, Ints, Ints, Ints]] = []
        self.schedule_seconds = self.busy_seconds = 0.0
        self._call()  # of no steps: compiles the engine before time is measured

    def advance(self, to: int) -> float:
        """Run rounds until `to` of them are applied; return the seconds it took."""
        span, own = self._engine.span, to - self.state.base
        span[rounds.FIRST], span[rounds.END] = self._step, own + self._depth
        self._step = own + self._depth
        if self._recording:
            first, end = max(1, int(span[rounds.FIRST])), min(int(span[rounds.END]), int(span[rounds.LAST]) + 1)
            fresh = _empty_record(max(0, end - first), self.state.cut, self.state.width)
            self._engine = self._engine._replace(read_jobs=fresh[0], read_count=fresh[1], read_from=fresh[2])
            self._read.append((self.state.base, *fresh))
        return self._call()

    def restart(self, chooser: CompiledChooser, done: int, last: int | None) -> None:
        """Continue with another chooser, once all rounds up to `done` are applied and no later one was chosen.

        The first rounds all read the current parameters, as at the start of a run.

        Parameters
        ----------
        chooser : CompiledChooser
            The new chooser; it has one scheduler.
        done : int
            Rounds applied so far.
        last : int or None
            The last round before the next restart.
        """
        engine = self._engine
        self.state.restart(done)
        for counter in (engine.control, engine.chosen, engine.gathered, engine.applied):
            counter[:] = 0
        self._chooser, self._step = chooser, 0
        engine.span[:] = (0, 0, ENDLESS if last is None else last - done)
        self._call()  # of no steps, as at the start

    def _call(self) -> float:
        engine = self._engine
        engine.control[rounds.NEXT] = 0
        engine.cycles[:] = 0
        shares = [
            (engine, self._chooser.choice, self._chooser.table, self.state.problem, worker)
            for worker in range(self._workers)
        ]
        began, cycles = time.perf_counter(), read_cycles()
        call = self._team.call(rounds.rounds_worker.exact, shares)
        call.wait()
        seconds, gone = time.perf_counter() - began, read_cycles() - cycles
        call.check()
        spent = engine.cycles.sum(axis=0) * (seconds / max(1, gone))
        self.schedule_seconds += float(spent[rounds.CHOOSING])
        self.busy_seconds += float(spent[rounds.ALL])
        return seconds

    @property
    def limit(self) -> int:
        """The last round that `advance` may reach: no limit."""
        return ENDLESS

    @property
    def choices(self) -> tuple[Decision, ...]:
        """Choices of `schedule="auto"`: always empty."""
        return ()

    def record(self, done: int) -> tuple[Round, ...]:
        """The rounds up to `done`. Of several versions that a round's tasks read, the most unexpected is recorded."""
        found: list[Round] = []
        for base, jobs, count, seen in self._read:
            for k in range(len(count)):
                number = len(found) + 1
                rule = max(0, number - base - self._depth)
                read = max(seen[k].ravel().tolist(), key=lambda version: abs(version - rule))
                found.append(Round(number, tuple(jobs[k, : count[k]].tolist()), base + read))
        return tuple(found[:done])


def _empty_record(count: int, cut: Cut, width: int) -> tuple[Ints, Ints, Ints]:
    return (
        np.zeros((count, width), np.int64),
        np.zeros(count, np.int64),
        np.full((count, cut.tasks, 2), -1, np.int64),
    )
