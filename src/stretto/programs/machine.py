"""The compiled engine of rounds, as Python drives it: arrays to begin with, and so many rounds further.

Between two calls everything that is under way stays in the arrays, so where a call ends changes no number.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.kernels import coordinate, rounds
from stretto.kernels.clock import read_cycles
from stretto.kernels.losses import CODES, LOGISTIC
from stretto.kernels.measured import cut_columns, times
from stretto.runtime.team import Team
from stretto.schedule.chooser import Compiled
from stretto.schedule.columns import Columns
from stretto.schedule.spec import Floats, Ints
from stretto.schedule.trials import Decision

from .values import Round

ENDLESS = 1 << 60  # the last round of a run without a last round


@dataclass(frozen=True)
class Cut:
    """How a round is cut, constants of the plan. blocks: of rows. tasks: that gather; by rows one a block."""

    by_rows: bool
    blocks: int
    tasks: int


def curvature(columns: Columns, loss: str) -> Floats:
    """[p] how fast the slope along a column changes: ‖x‖² for the squared loss, at most a quarter for the logistic."""
    square = columns.measured["norm"] ** 2
    return square / 4 if loss == "logistic" else square


class Machine:
    """One run of a sparse regression by the compiled engine."""

    def __init__(
        self,
        columns: Columns,
        y: Floats,
        chooser: Compiled,
        cut: Cut,
        start: dict[str, NDArray[Any]],
        *,
        loss: str,
        penalty: tuple[float, float],
        depth: int,
        last: int | None,
        team: Team,
        workers: int,
        record: bool,
        width: int | None = None,
    ) -> None:
        """width: of the widest round of any chooser that will be used; None: of this one."""
        self._team, self._workers, self._depth, self._recording = team, workers, depth, record
        self._columns, self._logistic = columns, CODES[loss] == LOGISTIC
        self._chooser = chooser
        self._width, self._base = width or chooser.width, 0  # rounds made when the engine was last restarted
        self.problem = _problem(columns, y, len(chooser.choice.place), self._width, cut, start, loss, penalty, depth)
        queues = len(chooser.choice.place)
        plan = np.zeros(rounds.PLAN, np.int64)
        plan[:] = (depth, cut.by_rows, cut.tasks, cut.blocks, queues)
        line = rounds.LINE
        self._engine = rounds.Engine(
            plan,
            np.array([0, 0, ENDLESS if last is None else last]),
            np.zeros(rounds.CONTROL, np.int64),
            np.zeros(line * queues, np.int64),
            np.zeros(line * len(self.problem.count), np.int64),
            np.zeros(line * cut.blocks, np.int64),
            np.zeros((workers, line), np.int64),
            *_room(0, cut, self._width),
        )
        self._cut = cut
        self._step = 0  # the next step of the sequence
        self._read: list[tuple[int, Ints, Ints, Ints]] = []
        self.schedule_seconds = self.busy_seconds = 0.0
        self._call()  # of no steps: if it has to be compiled, that happens here and not in the time that is measured

    def advance(self, to: int) -> float:
        """Make rounds until `to` of them are applied; the seconds it took."""
        span, own = self._engine.span, to - self._base
        span[rounds.FIRST], span[rounds.END] = self._step, own + self._depth
        self._step = own + self._depth
        if self._recording:
            first, end = max(1, int(span[rounds.FIRST])), min(int(span[rounds.END]), int(span[rounds.LAST]) + 1)
            fresh = _room(max(0, end - first), self._cut, self._width)
            self._engine = self._engine._replace(read_jobs=fresh[0], read_count=fresh[1], read_from=fresh[2])
            self._read.append((self._base, *fresh))
        return self._call()

    def restart(self, chooser: Compiled, done: int, last: int | None) -> None:
        """Go on with another chooser when all rounds up to `done` are applied and no further one was chosen.

        last: the last round before the next restart. A chooser has one scheduler. The first rounds all read the
        parameters as they are now, as at the start of a run.
        """
        engine, problem, own = self._engine, self.problem, done - self._base
        at = own % len(problem.count)
        problem.level[0], problem.pulls[0] = problem.level[at], problem.pulls[at]
        for array in (problem.moved, problem.touched, problem.count):
            array[:] = 0
        for counter in (engine.control, engine.chosen, engine.gathered, engine.applied):
            counter[:] = 0
        self._base, self._chooser, self._step = done, chooser, 0
        engine.span[:] = (0, 0, ENDLESS if last is None else last - done)
        self._call()  # of no steps, as at the start

    def _call(self) -> float:
        engine = self._engine
        engine.control[rounds.NEXT] = 0
        engine.cycles[:] = 0
        shares = [
            (engine, self._chooser.choice, self._chooser.table, self.problem, worker) for worker in range(self._workers)
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
        """The round that `advance` may not go beyond: none."""
        return ENDLESS

    @property
    def choices(self) -> tuple[Decision, ...]:
        """Choices of `schedule="auto"`: none was made."""
        return ()

    @property
    def counts(self) -> tuple[int, int, int]:
        """Entries of the columns updated, updates, and the first round with a number that is not finite (0: none)."""
        samples, updates, failed = self.problem.counts.tolist()
        return samples, updates, failed + self._base if failed else 0

    def _level(self, done: int) -> float:
        return float(self.problem.level[(done - self._base) % len(self.problem.level)])

    def objective(self, done: int) -> float:
        """The objective over n after round `done`, from β alone."""
        problem, rows = self.problem, self._columns.rows
        out = np.empty((self._cut.blocks, 2))
        support = np.flatnonzero(problem.beta)
        coordinate.losses(problem, support, np.empty(rows), self._level(done), out)
        loss = _sum(out[:, 0])
        if self._columns.centred and not self._logistic:  # with the best intercept, which `level` is but for rounding
            pull = _sum(out[:, 1])
            loss -= pull * pull / (2 * rows)
        l1, l2 = problem.penalty
        beta = problem.beta[support]
        with np.errstate(over="ignore"):  # rounds that disturb each other; `Diverged` says so when they are over
            squares = _sum(beta * beta) if l2 else 0.0
            return float((loss + l1 * _sum(np.abs(beta)) + 0.5 * l2 * squares) / rows)

    def progress(self, done: int) -> float:
        """The objective over n after round `done` from what is fitted, in one pass over the rows.

        Rounding of many rounds adds up in what is fitted, so this is for comparing schedules and not for results.
        """
        problem, rows = self.problem, self._columns.rows
        with np.errstate(over="ignore", invalid="ignore"):
            if self._logistic:
                loss = float(np.logaddexp(0.0, -problem.y * (problem.z + self._level(done))).sum())
            else:
                v = problem.v - (problem.v.mean() if self._columns.centred else 0.0)
                loss = 0.5 * float((v * v).sum())
            l1, l2 = problem.penalty
            beta = problem.beta[problem.beta != 0]
            return float((loss + l1 * np.abs(beta).sum() + 0.5 * l2 * (beta * beta).sum()) / rows)

    def params(self, done: int) -> dict[str, NDArray[Any]]:
        """What is learned after round `done`."""
        problem = self.problem
        fitted = problem.z.copy() if self._logistic else problem.y - problem.v
        return {"coef": problem.beta.copy(), "intercept": np.array([self._level(done)]), "fitted": fitted}

    def record(self, done: int) -> tuple[Round, ...]:
        """The rounds up to `done` as they were made. Where tasks have seen several states, the one furthest off."""
        found: list[Round] = []
        for base, jobs, count, seen in self._read:
            for k in range(len(count)):
                number = len(found) + 1
                rule = max(0, number - base - self._depth)
                read = max(seen[k].ravel().tolist(), key=lambda version: abs(version - rule))
                found.append(Round(number, tuple(jobs[k, : count[k]].tolist()), base + read))
        return tuple(found[:done])


def _sum(values: Floats) -> float:
    """The exact sum; infinity where it is too large for a number."""
    try:
        return math.fsum(values)
    except (OverflowError, ValueError):
        return math.inf


def _room(count: int, cut: Cut, width: int) -> tuple[Ints, Ints, Ints]:
    return (
        np.zeros((count, width), np.int64),
        np.zeros(count, np.int64),
        np.full((count, cut.tasks, 2), -1, np.int64),
    )


def _problem(
    columns: Columns,
    y: Floats,
    queues: int,
    width: int,
    cut: Cut,
    start: dict[str, NDArray[Any]],
    loss: str,
    penalty: tuple[float, float],
    depth: int,
) -> Any:
    """The arrays before the first round."""
    rows, size = columns.rows, columns.size
    # Long enough that nobody writes over what a slower task still reads; see `kernels/rounds` for who reads what.
    ring = depth + queues * -(-depth // queues) + 1
    logistic = CODES[loss] == LOGISTIC
    bounds = np.linspace(0, rows, cut.blocks + 1).astype(np.int64)
    if columns.dense:
        bounds[1:-1] -= bounds[1:-1] % 16  # whole cache lines
    cuts = np.zeros((0 if columns.dense else size, cut.blocks + 1), np.int32)
    if not columns.dense:
        cut_columns(columns.indices, columns.indptr, bounds, cuts)
    facts = np.zeros(coordinate.FACTS, np.int64)
    facts[:] = (rows, columns.dense, CODES[loss], columns.centred, cut.blocks)
    beta = np.ascontiguousarray(start["coef"], np.float64).copy()
    fitted = np.zeros(rows)
    times(columns.values, columns.indices, columns.indptr, rows, np.ones(size), beta, fitted)
    level = np.zeros(ring)
    if columns.centred:
        level[0] = float(start["intercept"][0]) if logistic else math.fsum(y - fitted) / rows
    problem = coordinate.Problem(
        facts, np.array(penalty), columns.values, columns.indices, columns.indptr, cuts, bounds,
        y, curvature(columns, loss),
        columns.measured["total"] / rows if columns.centred else np.zeros(size),
        beta, np.zeros(size, np.int64), fitted if logistic else np.empty(0), y - fitted,
        np.zeros(rows if logistic else 0, np.int64),
        np.zeros((ring, width), np.int64), np.zeros(ring, np.int64),
        np.zeros((ring, cut.blocks if cut.by_rows else 1, width)), np.zeros((ring, width)), np.zeros((ring, width)),
        level, np.zeros((ring, cut.blocks)), np.zeros(coordinate.COUNTS, np.int64),
    )  # fmt: skip
    if logistic:
        coordinate.pull_rows(problem)
    return problem
