"""Working sets in `SparseRegression`: rounds over a set of columns, and a new set between two segments.

A set is chosen by the distance of each column to its constraint, (l1 − |pull|)/norm, after columns that the duality gap
proves zero have left the pool permanently (gap-safe spheres). Sweeps update the columns of the set, as many together as
their spectral radius allows, until a sweep lowers the objective by less than a tenth of what the first one did.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from stretto.kernels.linear.columns import times_transposed_worker
from stretto.kernels.rounds.chooser_state import PARTS
from stretto.programs.values import RunOptions
from stretto.schedule.automatic.candidates import measured_width
from stretto.schedule.automatic.trials import Decision
from stretto.schedule.chooser import CompiledChooser, new_choice
from stretto.schedule.set_chooser import MOST_SWEEPS, SOLVED
from stretto.schedule.spec import Floats, Ints
from stretto.schedule.working_sets import WIDEST, WorkingSets

from .segments import Restarted, Segments, Start

if TYPE_CHECKING:
    from .problem import CoordinateProgramBase

_LEAST_ROUNDS = 8  # of a segment, for each round in flight


class SetSegments(Segments):
    """Segments that sweep over working sets."""

    def __init__(
        self, engine: Restarted, program: CoordinateProgramBase, spec: WorkingSets, options: RunOptions
    ) -> None:
        super().__init__(engine, options.rounds)
        self._program, self._spec, self._depth, self._seed = program, spec, options.pipeline, options.seed
        self._pool = np.ones(program.columns.size, bool)
        self._widest = spec.width or WIDEST
        self._decisions: list[Decision] = []
        self._set: Ints = np.empty(0, np.int64)
        self._width = 1
        self._objective, self._first, self._sweeps = engine.state.progress(0), 0.0, 0
        self._choose(0)
        self._begin(0)

    @property
    def choices(self) -> tuple[Decision, ...]:
        """The sets chosen so far."""
        return tuple(self._decisions)

    def end(self, done: int) -> None:
        objective = self.state.progress(done)
        fallen, self._objective = self._objective - objective, objective
        self._first = max(self._first, fallen)
        self._sweeps += 1
        if fallen < -1e-10 * abs(objective):  # too many disturb each other
            self._widest = max(1, self._width // 2)
            self._width = min(self._width, self._widest)
        if fallen <= SOLVED * self._first or self._sweeps >= MOST_SWEEPS:
            self._choose(done)
        self._begin(done)

    def _begin(self, done: int) -> None:
        """Begin a segment: one sweep over the set, or a few."""
        sweep = -(-len(self._set) // min(self._width, len(self._set)))
        self._restart(self._chooser(), done, sweep * math.ceil(_LEAST_ROUNDS * self._depth / sweep))

    def _chooser(self) -> CompiledChooser:
        """Rounds over the set, each `width` columns wide."""
        width = min(self._width, len(self._set))
        bounds = np.linspace(0, len(self._set), width + 1).astype(np.int64)
        return CompiledChooser(
            new_choice(PARTS, self._program.columns.size, self._seed, width, order=self._set, bounds=bounds)
        )

    _SAVED = ("goal", "_pool", "_widest", "_set", "_width", "_objective", "_first", "_sweeps")

    def saved(self) -> dict[str, Any]:
        decisions = [(one.round, one.schedule, one.why) for one in self._decisions]
        return {"decisions": decisions, **{name: getattr(self, name) for name in self._SAVED}}

    def restore(self, saved: dict[str, Any]) -> CompiledChooser:
        for name in self._SAVED:
            setattr(self, name, saved[name])
        self._decisions = [Decision(*one) for one in saved["decisions"]]
        return self._chooser()

    def _choose(self, done: int) -> None:
        """Screen the columns, and choose a set."""
        columns, problem = self._program.columns, self.state.problem
        pull, norm = self._pulls(done)
        l1, support = float(problem.penalty[0]), np.flatnonzero(problem.beta)
        if self._spec.screen:
            self._screen(pull, norm, l1, done)
        # A column without a norm never moves.
        distance = np.divide(l1 - np.abs(pull), norm, out=np.full(len(norm), np.inf), where=norm > 0)
        distance[~self._pool] = np.inf
        chosen = self._spec.choose(support, distance, columns.rows, sparse=not columns.dense)
        self._set = chosen if len(chosen) else np.zeros(1, np.int64)
        self._width = (
            self._spec.width
            or measured_width(columns.pick(self._set), min(self._widest, len(self._set)), self._depth)[1]
        )
        self._width = max(1, min(self._width, self._widest, len(self._set)))
        self._first, self._sweeps = 0.0, 0
        proven = int(np.count_nonzero(~self._pool))
        words = f"working set: {len(self._set):,} of {columns.size:,} columns, {self._width:,} together"
        self._decisions.append(Decision(done, words, f"nearest to their constraints; {proven:,} proven zero"))

    def _pulls(self, done: int) -> tuple[Floats, Floats]:
        """[p] pull of the loss and of the l2 penalty on each coefficient, and norm of each column with l2."""
        columns, problem = self._program.columns, self.state.problem
        v, pull = self._residual(done), np.empty(columns.size)
        matrix = (columns.values, columns.indices, columns.indptr, columns.rows)
        times_transposed_worker(
            np.zeros(1, np.int64), *matrix, np.ones(columns.size), columns.mean * math.fsum(v), v, pull
        )  # fmt: skip
        l2 = float(problem.penalty[1])
        return pull - l2 * problem.beta, np.sqrt(columns.statistics.norm**2 + l2)

    def _residual(self, done: int) -> Floats:
        """[n] minus the derivative of each row's loss."""
        v: Floats = self.state.problem.v
        squared = self._program.loss == "squared"
        return v - self.state.params(done)["intercept"][0] if squared and self._program.intercept else v

    def _screen(self, pull: Floats, norm: Floats, l1: float, done: int) -> None:
        """Remove the columns that the duality gap proves zero from the pool.

        With a free intercept a dual point needs pulls that add up to zero; only the squared loss provides them.
        """
        logistic = self._program.loss == "logistic"
        if l1 <= 0.0 or (logistic and self._program.intercept):
            return
        problem, v, rows = self.state.problem, self._residual(done), self._program.columns.rows
        scale = min(1.0, l1 / max(float(np.abs(pull).max(initial=0.0)), 1e-300))
        l2, beta = float(problem.penalty[1]), problem.beta
        primal = rows * self.state.objective(done)
        if logistic:
            u = np.clip(scale * np.abs(v), 1e-300, 1.0)
            rest = np.maximum(1.0 - u, 1e-300)
            dual, smooth = -float(np.sum(u * np.log(u) + rest * np.log(rest))), 1.0 if l2 else 0.25
        else:
            y = self._program.y - (self._program.y.mean() if self._program.intercept else 0.0)
            dual, smooth = scale * float(v @ y) - 0.5 * scale * scale * float(v @ v), 1.0
        dual -= 0.5 * scale * scale * l2 * float(beta @ beta)
        radius = math.sqrt(2.0 * smooth * max(primal - dual, 1e-12 * abs(primal)))
        self._pool &= ~self._spec.safe(scale * np.abs(pull), norm, np.full(len(norm), l1), radius)


def sets_start(program: CoordinateProgramBase, options: RunOptions) -> Start:
    """How a sparse regression by working sets begins."""
    spec: Any = program.schedule
    size = program.columns.size
    width = min(size, spec.width or WIDEST)
    first = CompiledChooser(new_choice(PARTS, size, 0, 1, order=np.arange(size), bounds=np.array([0, size])))
    return Start(first, width, width, lambda engine: SetSegments(engine, program, spec, options))
