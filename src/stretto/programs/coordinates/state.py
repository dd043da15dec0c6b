"""State of a sparse regression between rounds: coefficients, residuals, rounds in flight, and the objective."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.errors import Diverged
from stretto.kernels.factorization.loss_codes import CODES, LOGISTIC
from stretto.kernels.linear import coordinate
from stretto.kernels.linear.columns import cut_columns, times
from stretto.schedule.columns import Columns
from stretto.schedule.spec import Floats


@dataclass(frozen=True)
class Cut:
    """How a round is cut into tasks; constants of the plan."""

    by_rows: bool  # whether sums are computed by blocks of rows, else by columns
    blocks: int  # blocks of rows
    tasks: int  # tasks that compute sums; by rows, one for each block


def curvature(columns: Columns, loss: str) -> Floats:
    """[p] bound of the second derivative along a column: ‖x‖² for the squared loss, ‖x‖²/4 for the logistic."""
    square = columns.statistics.norm**2
    return square / 4 if loss == "logistic" else square


def diverged(name: str, number: int) -> Diverged:
    """The error of a program whose coefficients are not finite after a round."""
    return Diverged(
        f"{name}: a coefficient is not finite after round {number}; too many correlated coordinates were updated "
        "together: take a smaller width, or schedule=st.schedule.prioritised()"
    )


class CoordinateState:
    """A sparse regression between two rounds.

    Attributes
    ----------
    problem : coordinate.Problem
        All arrays: the data, what is learned, and the rounds in flight.
    logistic : bool
        Whether the loss is the logistic one.
    width : int
        The most coordinates of a round.
    base : int
        Rounds made when the engine was last restarted; the rounds of `problem` count from there.
    """

    def __init__(
        self,
        columns: Columns,
        y: Floats,
        cut: Cut,
        start: dict[str, NDArray[Any]],
        *,
        loss: str,
        penalty: tuple[float, float],
        depth: int,
        width: int,
        queues: int = 1,
    ) -> None:
        """queues: schedulers that choose in turn."""
        self.columns, self.cut, self.logistic = columns, cut, CODES[loss] == LOGISTIC
        self.width, self.base = width, 0
        self.problem = _problem(columns, y, queues, self.width, cut, start, loss, penalty, depth)

    def restart(self, done: int) -> None:
        """Count rounds from `done` on, when all rounds up to it are applied and no further one was chosen.

        The first rounds then all read the parameters as they are now, as at the start of a run.
        """
        problem = self.problem
        at = (done - self.base) % len(problem.count)
        problem.level[0], problem.pulls[0] = problem.level[at], problem.pulls[at]
        for array in (problem.moved, problem.touched, problem.count):
            array[:] = 0
        self.base = done

    @property
    def counts(self) -> tuple[int, int, int]:
        """Entries of the columns updated, updates, and the first round with a number that is not finite (0: none)."""
        samples, updates, failed = self.problem.counts.tolist()
        return samples, updates, failed + self.base if failed else 0

    def _level(self, done: int) -> float:
        return float(self.problem.level[(done - self.base) % len(self.problem.level)])

    def objective(self, done: int) -> float:
        """The objective over n after round `done`, from β alone."""
        problem, rows = self.problem, self.columns.rows
        out = np.empty((self.cut.blocks, 2))
        support = np.flatnonzero(problem.beta)
        coordinate.losses(problem, support, np.empty(rows), self._level(done), out)
        loss = _sum(out[:, 0])
        if self.columns.centred and not self.logistic:  # with the best intercept, which `level` is but for rounding
            pull = _sum(out[:, 1])
            loss -= pull * pull / (2 * rows)
        l1, l2 = problem.penalty
        beta = problem.beta[support]
        with np.errstate(over="ignore"):  # a diverging run overflows; `Diverged` is raised after the round
            squares = _sum(beta * beta) if l2 else 0.0
            return float((loss + l1 * _sum(np.abs(beta)) + 0.5 * l2 * squares) / rows)

    def progress(self, done: int) -> float:
        """The objective over n after round `done`, from the fitted values, in one pass over the rows.

        Rounding errors accumulate in the fitted values, so this is for comparing schedules and not for results.
        """
        problem, rows = self.problem, self.columns.rows
        with np.errstate(over="ignore", invalid="ignore"):
            if self.logistic:
                loss = float(np.logaddexp(0.0, -problem.y * (problem.z + self._level(done))).sum())
            else:
                v = problem.v - (problem.v.mean() if self.columns.centred else 0.0)
                loss = 0.5 * float((v * v).sum())
            l1, l2 = problem.penalty
            beta = problem.beta[problem.beta != 0]
            return float((loss + l1 * np.abs(beta).sum() + 0.5 * l2 * (beta * beta).sum()) / rows)

    def params(self, done: int) -> dict[str, NDArray[Any]]:
        """What is learned after round `done`."""
        problem = self.problem
        fitted = problem.z.copy() if self.logistic else problem.y - problem.v
        return {"coef": problem.beta.copy(), "intercept": np.array([self._level(done)]), "fitted": fitted}


def _sum(values: Floats) -> float:
    """The exact sum; infinity where it is too large for a number."""
    try:
        return math.fsum(values)
    except (OverflowError, ValueError):
        return math.inf


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
    # Long enough that no task overwrites what a slower one still reads; see `stretto.kernels.rounds.engine`.
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
    problem = coordinate.CoordinateProblem(
        facts, np.array(penalty), columns.values, columns.indices, columns.indptr, cuts, bounds,
        y, curvature(columns, loss),
        columns.mean,
        beta, np.zeros(size, np.int64), fitted if logistic else np.empty(0), y - fitted,
        np.zeros(rows if logistic else 0, np.int64),
        np.zeros((ring, width), np.int64), np.zeros(ring, np.int64),
        np.zeros((ring, cut.blocks if cut.by_rows else 1, width)), np.zeros((ring, width)), np.zeros((ring, width)),
        level, np.zeros((ring, cut.blocks)), np.zeros(coordinate.COUNTS, np.int64),
    )  # fmt: skip
    if logistic:
        coordinate.pull_rows(problem)
    return problem
