"""Distributed sparse regression: rounds of coordinates as a program over parts of the data.

    result = run_in_parts(program, arrays, chooser, options)

A round is one job for every part. The parts compute partial sums with the compiled code of the engine in one memory,
and the driver adds them up in the same order as that engine. So the bits are the same.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from stretto.kernels.factorization.loss_codes import CODES, LOGISTIC
from stretto.kernels.linear.coordinate import pull_rows
from stretto.kernels.linear.coordinate_parts import apply_round, columns_round, rows_round
from stretto.programs.engine import ProgramRun
from stretto.programs.launch import launched
from stretto.programs.node import unpacked
from stretto.programs.program import Program
from stretto.programs.values import ProgramResult, RunOptions
from stretto.schedule.scheduler_share import SchedulerShare, scheduler_share
from stretto.schedule.spec import Chooser, Floats

from .driver import Coordinates
from .parts import BlockState, CoordinatePart, PartSettings, RoundJob, column_parts, row_parts
from .segments import Segments
from .state import CoordinateState

if TYPE_CHECKING:
    from stretto.runtime.cluster.rounds.node import UpdateOutcome

    from .problem import CoordinateProgramBase


class _InParts(Program, ABC):
    """Rounds of coordinates. `schedule` stays on the driver and is not sent to nodes."""

    schedule: Coordinates

    def __init__(self, name: str, driver: Coordinates, shape: PartSettings) -> None:
        self._name, self.schedule, self.shape = name, driver, shape

    @property
    def name(self) -> str:
        return self._name

    def samples(self, jobs: Sequence[RoundJob]) -> int:
        return sum(job.samples for job in jobs)

    def merge(self, a: tuple[Any, ...], b: tuple[Any, ...]) -> tuple[Any, ...]:
        """Concatenate the partial sums, in part order."""
        return a + b

    def objective(self, data: Any, params: Any) -> float:
        driver = self.schedule
        return driver.arrays.objective(driver.done)

    @abstractmethod
    def finish(self, run: ProgramRun) -> None:
        """Bring v and z of the driver to the end of a run."""


class _ByRows(_InParts):
    """Parts are blocks of rows; the state of a part is its residual."""

    def __init__(self, name: str, driver: Coordinates, shape: PartSettings) -> None:
        super().__init__(name, driver, shape)
        problem = driver.arrays.problem
        self.parts = row_parts(driver.arrays.columns, problem)
        self.params = {"level": problem.level[:1].copy()}
        self.start = float(problem.level[0])

    def local(self, part: CoordinatePart) -> BlockState:
        """The state of a part before the first round."""
        state = BlockState(part.v.copy(), part.z.copy(), 0.0)
        if self.shape.loss == LOGISTIC:
            problem = state.problem(part, self.shape)
            problem.level[0] = self.start
            pull_rows(problem)
            state.pull = float(problem.pulls[0, 0])
        return state

    def update(
        self, job: RoundJob, part: CoordinatePart, params: Any, local: BlockState
    ) -> tuple[tuple[Floats, float], ...]:
        """Apply changes to a block, then compute partial inner products and the sum of v."""
        problem = local.problem(part, self.shape)
        ring, count = len(problem.count), len(job.coordinates)
        for number, moved, change, level in job.moved:
            then = number % ring
            problem.jobs[then, : len(moved)], problem.change[then, : len(moved)] = moved, change
            problem.count[then], problem.level[then] = len(moved), level
            apply_round(problem, number, 0, 1)
            local.applied, local.pull = number, float(problem.pulls[then, 0])
        slot = job.round % ring
        problem.jobs[slot, :count], problem.count[slot] = job.coordinates, count
        rows_round(problem, slot)
        return ((problem.partial[slot, 0, :count].copy(), local.pull),)

    def aggregate(self, results: Any, params: Any) -> None:
        """Add up the partial sums of the blocks, and update β."""
        driver = self.schedule
        problem, own = driver.arrays.problem, driver.done + 1 - driver.base
        ring = len(problem.count)
        for block, (partial, pull) in enumerate(results[0]):
            problem.partial[own % ring, block, : len(partial)] = partial
            problem.pulls[max(0, own - driver.depth) % ring, block] = pull
        driver.remember(driver.renew())
        if driver.segments is not None:
            apply_round(problem, own, 0, driver.arrays.cut.blocks)
        params["level"][0] = problem.level[own % ring]

    def finish(self, run: ProgramRun) -> None:
        driver = self.schedule
        if driver.segments is not None:
            return
        problem, saved = driver.arrays.problem, run.states()[1]
        states = run.locals
        if states is None and saved is not None:
            states = [unpacked(saved[part]) for part in range(len(self.parts))]
        applied = [0] * len(self.parts)
        if states is not None:
            problem.v[:] = np.concatenate([state.v for state in states])
            problem.z[:] = np.concatenate([state.z for state in states])
            applied = [state.applied for state in states]
        for number in range(min(applied) + 1, driver.done + 1):
            _, moved, change, level = driver.moved[number]
            one = problem._replace(
                jobs=moved[None], change=change[None], count=np.array([len(moved)]), level=np.array([level])
            )
            for block, last in enumerate(applied):
                if number > last:
                    apply_round(one, number, block, block + 1)


class _ByColumns(_InParts):
    """Parts are columns. The driver updates the parameter v; nodes receive its changed elements."""

    def __init__(self, name: str, driver: Coordinates, shape: PartSettings, parts: int) -> None:
        super().__init__(name, driver, shape)
        self.parts = column_parts(driver.arrays.columns, parts)
        self.count = parts
        self.params = {"v": driver.arrays.problem.v.copy()}

    def update(self, job: RoundJob, part: CoordinatePart, params: Any) -> tuple[Floats, ...]:
        """Inner products of the columns of a part."""
        mine = job.coordinates[job.coordinates % self.count == part.number] // self.count
        problem = self.shape.problem(part, params["v"], part.z)
        problem.jobs[0, : len(mine)], problem.count[0] = mine, len(mine)
        columns_round(problem, 0)
        return (problem.partial[0, 0, : len(mine)].copy(),)

    def aggregate(self, results: Any, params: Any) -> None:
        """Change β, and apply the changes."""
        driver = self.schedule
        problem, own = driver.arrays.problem, driver.done + 1 - driver.base
        slot = own % len(problem.count)
        part_of = problem.jobs[slot, : problem.count[slot]] % self.count
        for part, sums in enumerate(results[0]):
            problem.partial[slot, 0, np.flatnonzero(part_of == part)] = sums
        driver.renew()
        apply_round(problem._replace(v=params["v"]), own, 0, driver.arrays.cut.blocks)
        if driver.segments is not None:
            problem.v[:] = params["v"]

    def finish(self, run: ProgramRun) -> None:
        self.schedule.arrays.problem.v[:] = self.params["v"]


class _CoordinateRun(ProgramRun):
    """A run that drops changes once no block of rows can need them again."""

    program: _InParts

    def _shares(self, first: Any, data: Any) -> list[SchedulerShare]:
        driver, options = self.program.schedule, self.options
        if options.schedulers_on != "nodes":
            return []
        columns, spec = driver.arrays.columns, driver.spec
        return [scheduler_share(spec, columns.size, options.seed, columns, q) for q in range(spec.schedulers)]

    def checks(self, number: int, update: int) -> str:
        """Never run an update twice: its code is ours, and tests compare its bits."""
        return ""

    def saved(self, number: int, states: dict[int, UpdateOutcome]) -> None:
        super().saved(number, states)
        self.program.schedule.forget(number - self.options.pipeline)

    def enough(self, number: int) -> bool:
        if self.locals is not None:
            self.program.schedule.forget(number - self.options.pipeline)
        return super().enough(number)


def run_in_parts(
    program: CoordinateProgramBase,
    arrays: CoordinateState,
    chooser: Chooser,
    options: RunOptions,
    begin: Callable[[Coordinates], Segments] | None = None,
) -> ProgramResult:
    """Run a sparse regression on parts of its data, on any runtime. begin: makes the segments of the schedule."""
    driver = Coordinates(program.name, arrays, chooser, options.pipeline, begin)
    shape = PartSettings(CODES[program.loss], program.intercept, arrays.width, options.pipeline)
    made: _InParts
    if arrays.cut.by_rows:
        made = _ByRows(program.name, driver, shape)
    else:
        made = _ByColumns(program.name, driver, shape, min(arrays.columns.size, options.runtime.workers))
    driver.spec = program.schedule
    words = program.explain
    run, result = launched(
        _CoordinateRun, made, options, lambda: words(pipeline=options.pipeline, runtime=options.runtime)
    )
    made.finish(run)
    params = arrays.params(result.rounds)
    driver.finish()
    return replace(result, params=params, choices=driver.choices)
