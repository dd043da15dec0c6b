"""`st.run` of a task: walk its tree, run each unit as a stage, keep the states between stages."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.checks import whole
from stretto.plan.planned import refuse_changed
from stretto.runtime.chosen import TABLES, chosen, name_of, one_memory
from stretto.runtime.files.run_checkpoints import Saving
from stretto.runtime.runtimes import Serial, Threads
from stretto.runtime.stages.data_store import release
from stretto.runtime.stages.sessions import LocalStages, StagePlace, Stages, open_stages
from stretto.runtime.stages.stage_clock import StageClock, stopping, unique_name

from .logical import arguments_of
from .placing import Placing, moved_bytes
from .plan import TaskPlan, make_plan
from .result import StageRecord, TaskResult
from .saving import TaskCheckpoints
from .stage import StageInput, stage_job, take_states, value_of
from .tree import Task, Unit
from .walk import StartUnit, TaskWalk
from .widths import StagePiece, StageWidths

Tell = Callable[[StageRecord], None]


def run(
    task: Task,
    *,
    runtime: Any = None,
    seed: int = 0,
    on_stage: Tell | None = None,
    checkpoint: str | Path | Saving | None = None,
    checkpoint_every: int | None = None,
    resume: bool = False,
) -> TaskResult:
    """Run a task to its end. Its states hold what was learned.

    Ctrl-C ends it after the stage that runs, and saves a checkpoint if there is a folder; a second one ends it at once.

    Parameters
    ----------
    task : Task
        A unit, or a tree of `st.seq`, `st.loop`, `st.branch` and `st.parallel_units`.
    runtime : runtime or None, default None
        `st.Threads(n)`, `st.Serial()`, `st.Simulated(…)` or `st.Cluster(…)`; None for all cores of this machine.
    seed : int, default 0
        Seed of `worker.random`.
    on_stage : callable or None, default None
        Called with the StageRecord of every stage that has ended.
    checkpoint : str, path, Saving or None, default None
        Folder for checkpoints, which hold states, progress and widths.
    checkpoint_every : int or None, default None
        Stages between two checkpoints; None chooses an interval that costs little.
    resume : bool, default False
        Continue from the newest checkpoint.

    Returns
    -------
    TaskResult
    """
    where = _where(runtime)
    return _run(task, where, None, seed, on_stage, checkpoint, checkpoint_every, resume)


def plan_for(task: Task, runtime: Any = None) -> TaskPlan:
    """The plan of a task for a runtime; its `run` runs it."""
    where = _where(runtime)
    nodes = 1 if one_memory(where) else int(where.nodes)
    made = make_plan(task, int(where.workers), nodes, None)
    return replace(made, runner=partial(_run_plan, task, made, where))


def _where(runtime: Any) -> Any:
    return chosen(runtime, owner="run", give=TABLES, default=Threads(), does="serve", work="tasks")


def _run_plan(task: Task, made: TaskPlan, where: Any, runtime: Any = None, **how: Any) -> TaskResult:
    return _run(task, where if runtime is None else _where(runtime), made, **how)


def _run(
    task: Task,
    where: Any,
    made: TaskPlan | None = None,
    seed: int = 0,
    on_stage: Tell | None = None,
    checkpoint: Any = None,
    checkpoint_every: int | None = None,
    resume: bool = False,
) -> TaskResult:
    plan = plan_for(task, where)
    if made is not None:
        refuse_changed(made, plan, "task.plan(…)")
    seed = whole("seed", seed, None)
    saving = TaskCheckpoints.of(plan, seed, checkpoint, checkpoint_every, resume)
    owner = unique_name("task")
    try:
        with stopping() as asked, open_stages(where) as stages:
            running = TaskRun(plan, stages, where, owner, seed, on_stage, saving)
            while not running.walk.done and not asked.asked:
                running.step()
            if saving is not None:
                running.save()
            stopped = "interrupted" if asked.asked and not running.walk.done else "done"
            return TaskResult(running.value, tuple(running.records), stopped, plan, running.widths.memory.to_dict())
    finally:
        release(owner)


class TaskRun:
    """A task that runs: its walk, the places of its states, its widths."""

    def __init__(
        self,
        plan: TaskPlan,
        stages: Stages,
        runtime: Any,
        owner: str,
        seed: int,
        tell: Tell | None,
        saving: TaskCheckpoints | None,
    ) -> None:
        self.stages, self.runtime, self.owner, self.seed = stages, runtime, owner, seed
        self.placing = Placing(stages.nodes, stages.threads)
        self.widths = StageWidths(self.placing.widest)
        self.records: list[StageRecord] = []
        self.value: Any = None
        self._tell, self._saving = tell, saving
        self._clock = StageClock()
        arguments = arguments_of(plan.task)
        self._numbers = {id(argument.value): number for number, argument in enumerate(arguments)}
        self._states = {n: a.value for n, a in enumerate(arguments) if a.kind == "state"}
        self._first = _first_values(plan.task)
        self._at: dict[int, StagePlace] = {}  # by state: where it was used last
        self._made: dict[tuple[int, ...], int] = {}  # by path: iterations so far
        self._local: dict[tuple[int, ...], tuple[dict[str, Any], ...]] = {}  # by path: what the parts kept
        position = None
        if saving is not None and saving.resume:
            position, self._made, self._local = saving.restore(self._states, self.widths)
        self.walk = TaskWalk(plan.task, position)
        self._todo = deque(self.walk.begin())

    def step(self) -> None:
        """Run the next unit to its end."""
        start = self._todo.popleft()
        self.value = self._unit(start)
        self._todo.extend(self.walk.finished(start.path, self.value))
        if self._saving is not None and self._saving.due(len(self.records)):
            self.save()

    def save(self) -> None:
        """Write a checkpoint."""
        assert self._saving is not None
        self._saving.save(self.walk.position(), self._states, self._made, self._local, self.widths)

    # -- one unit -----------------------------------------------------------------------------------------------------

    def _unit(self, start: StartUnit) -> Any:
        unit, value = start.unit, None
        stay: StagePlace | None = None
        for piece in self.widths.pieces(unit, f"{unit.name} at {start.path}"):
            stay = self._place(unit, piece, stay)
            value, record = self._stage(start, piece, stay)
            piece.seconds = record.seconds
            self.records.append(record)
            if self._tell is not None:
                self._tell(record)
            self._clock.ended()
        return value

    def _place(self, unit: Unit, piece: StagePiece, stay: StagePlace | None) -> StagePlace:
        """Where a piece of a stage runs; a change of width on one node moves nothing."""
        if unit.workers != "auto" or unit.placement:
            return self.placing.first(unit)
        if stay is not None and stay.single is not None and piece.width <= self.stages.threads:
            return StagePlace(((stay.single, piece.width),))
        return self.placing.at(unit, piece.width, stay)

    def _stage(self, start: StartUnit, piece: StagePiece, place: StagePlace) -> tuple[Any, StageRecord]:
        unit, path = start.unit, start.path
        moved = self._move(unit, place)
        first = self._made.get(path, 0)
        if hasattr(unit.function, "run_plan"):
            transition = self._clock.between()
            value, seconds = None, self._call_loop(unit, piece, place)
        else:
            given = StageInput(
                self.owner,
                tuple(self._numbers[id(argument.value)] for argument in unit.arguments),
                first,
                piece.iterations,
                self._local.get(path, ()),
                self._starts(unit, piece),
                self.seed * 1_000_003 + hash(path) % 1_000_003,
            )
            where = Serial() if unit.mode == "sequential" else self.runtime
            job = stage_job(unit, given, place, where, self.stages.nodes)
            transition = 0.0 if self.stages.virtual else self._clock.between()
            stages = LocalStages(where) if unit.mode == "sequential" else self.stages
            outcome, around = stages.run(job, place, moved)
            transition += around
            seconds, value = outcome.seconds, value_of(unit, outcome)
            take_states(unit, outcome)
            self._local[path] = outcome.local
        self._made[path] = first + piece.iterations
        return value, StageRecord(
            unit.name,
            path,
            start.turn,
            place.workers,
            tuple(node for node, _ in place.workers_by_node),
            piece.iterations,
            seconds,
            transition,
            moved,
            piece.reason,
            float(value) if isinstance(value, bool | int | float | np.generic) else None,
        )

    def _starts(self, unit: Unit, piece: StagePiece) -> dict[int, NDArray[Any]]:
        """First values of the states that begin anew, in its first piece."""
        return {k: self._first[id(unit.arguments[k].value)] for k in unit.fresh} if piece.first else {}

    def _move(self, unit: Unit, place: StagePlace) -> int:
        moved = 0
        for argument in unit.arguments:
            if argument.kind == "state":
                key = id(argument.value)
                moved += moved_bytes(argument.nbytes, self._at.get(key), place, self.stages.nodes)
                self._at[key] = place
        return moved

    def _call_loop(self, unit: Unit, piece: StagePiece, place: StagePlace) -> float:
        """Call a loop of `@st.parallel` once for every iteration; return the seconds of its passes."""
        runtime = replace(self.runtime, n=place.workers) if name_of(self.runtime) == "threads" else self.runtime
        loop: Any = self.widths.loop(unit, place.workers, lambda: unit.function.using(runtime=runtime))  # type: ignore[attr-defined]
        seconds = 0.0
        for _ in range(piece.iterations):
            loop(*(argument.value for argument in unit.arguments))
            seconds += loop.seconds
        return seconds


def _first_values(task: Task) -> dict[int, NDArray[Any]]:
    """Copies of the states that some unit starts anew, as they are before the task runs."""
    found: dict[int, NDArray[Any]] = {}
    for unit in task.units():
        for k in unit.fresh:
            state = unit.arguments[k].value
            found.setdefault(id(state), state.array.copy())
    return found
