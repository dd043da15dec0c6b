"""`TaskRun`: one task that runs. It walks the tree, asks for workers, runs stages and keeps what they leave behind."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.runtime.chosen import name_of
from stretto.runtime.runtimes import Serial
from stretto.runtime.stages.data_store import release
from stretto.runtime.stages.gate import StageGate
from stretto.runtime.stages.sessions import LocalStages, StagePlace, StageSession
from stretto.runtime.stages.stage_clock import StageClock
from stretto.runtime.stages.together import Together

from .logical import arguments_of
from .placing import moved_bytes, place_of, request_of, width_of
from .plan import TaskPlan
from .result import StageRecord, TaskResult
from .saving import TaskCheckpoints
from .stage import StageInput, stage_job, take_states, value_of
from .tree import Task, Unit
from .walk import StartUnit, TaskWalk
from .widths import StageWidths, SubStageRun

OnStage = Callable[[StageRecord], None]
Path = tuple[int, ...]


class DataNames:
    """Numbers for the data sets of all tasks of a session; the same object has the same number in every task."""

    def __init__(self, owner: str) -> None:
        self.owner = owner
        self._known: dict[int, tuple[int, Any]] = {}  # the object is kept: its identity must stay its own
        self._next = count()

    def number(self, value: Any) -> int:
        """The number of a data set or state."""
        if id(value) not in self._known:
            self._known[id(value)] = next(self._next), value
        return self._known[id(value)][0]

    def release(self, number: int | None = None) -> None:
        """Forget a data set; None: all."""
        release(self.owner, number)
        self._known = {} if number is None else {k: v for k, v in self._known.items() if v[0] != number}


@dataclass(frozen=True, eq=False)
class TaskEnvironment:
    """What tasks that run at the same time share: the open runtime, the gate, the data."""

    stages: StageSession
    runtime: Any
    gate: StageGate
    names: DataNames

    @property
    def widest(self) -> int:
        """Workers of all nodes."""
        return self.stages.nodes * self.stages.threads


class TaskRun:
    """A task that runs: its walk, the places of its states, its widths."""

    def __init__(
        self,
        plan: TaskPlan,
        environment: TaskEnvironment,
        *,
        name: str = "task",
        priority: float = 0.0,
        seed: int = 0,
        tell: OnStage | None = None,
        record: str | None = None,
        saving: TaskCheckpoints | None = None,
    ) -> None:
        self.plan, self.environment, self.name, self.priority, self.seed = plan, environment, name, priority, seed
        self.widths = StageWidths(environment.widest)
        self.records: list[StageRecord] = []
        self._record = record
        self._value: Any = None
        self._tell, self._saving = tell, saving
        self._clock = StageClock()
        self._stage_numbers = count()
        arguments = arguments_of(plan.task)
        self._numbers = {id(a.value): environment.names.number(a.value) for a in arguments}
        self._states = {number: a.value for number, a in enumerate(arguments) if a.kind == "state"}
        self._first = _first_values(plan.task)
        self._at: dict[int, StagePlace] = {}  # by state: where it was used last
        self._made: dict[Path, int] = {}  # by path: iterations so far
        self._local: dict[Path, tuple[dict[str, Any], ...]] = {}  # by path: what the parts kept
        position = None
        if saving is not None and saving.resume:
            position, self._made, self._local = saving.restore(self._states, self.widths)
        self.walk = TaskWalk(plan.task, position)

    def run(self, asked: Callable[[], bool]) -> TaskResult:
        """Run to the end, or until it is asked to stop, which it does when the stages that run have ended."""
        together = Together()
        for start in self.walk.begin():
            together.start(start, partial(self._unit, start))
        while together.running:
            start, self._value = together.next()
            follow = self.walk.finished(start.path, self._value)
            quiet = not together.running  # no other unit is in the middle of its stages
            if quiet and self._saving is not None and self._saving.due(len(self.records)):
                self._save()
            if not asked():
                for start in follow:
                    together.start(start, partial(self._unit, start))
        if self._saving is not None:
            self._save()
        stopped = "done" if self.walk.done else "interrupted"
        return TaskResult(self._value, tuple(self.records), stopped, self.plan, self.widths.memory.to_dict())

    def _save(self) -> None:
        assert self._saving is not None
        self._saving.save(self.walk.position(), self._states, self._made, self._local, self.widths)

    # -- one unit -----------------------------------------------------------------------------------------------------

    def _unit(self, start: StartUnit) -> Any:
        unit, value = start.unit, None
        for sub in self.widths.sub_stages(unit, f"{unit.name} at {start.path}"):
            with self._workers(unit, sub) as place:
                value, record = self._stage(start, sub, place)
            sub.seconds = record.seconds
            self.records.append(record)
            if self._tell is not None:
                self._tell(record)
            self._clock.ended()
        return value

    @contextmanager
    def _workers(self, unit: Unit, sub: SubStageRun) -> Iterator[StagePlace]:
        """Wait for workers, and give them back at the end."""
        stage = f"{unit.name} {next(self._stage_numbers)}"
        width = width_of(unit, self.environment.widest, sub.width)
        request = request_of(unit, self.name, stage, width, self.priority)
        assignment = self.environment.gate.enter(request)
        try:
            yield place_of(assignment)
        finally:
            self.environment.gate.leave(request)

    def _stage(self, start: StartUnit, sub: SubStageRun, place: StagePlace) -> tuple[Any, StageRecord]:
        unit, path, stages = start.unit, start.path, self.environment.stages
        moved = self._move(unit, place)
        first = self._made.get(path, 0)
        recording = None
        transition = 0.0 if stages.virtual else self._clock.between()
        if unit.is_loop:
            value, seconds = None, self._call_loop(unit, sub, place)
        else:
            where = Serial() if unit.mode == "sequential" else self.environment.runtime
            job = stage_job(unit, self._input(unit, path, sub, first), place, where, stages.nodes)
            outcome, around = (LocalStages(where) if unit.mode == "sequential" else stages).run(job, place, moved)
            transition += around
            seconds, value = outcome.seconds, value_of(unit, outcome)
            recording = outcome.recording
            take_states(unit, outcome)
            self._local[path] = outcome.local
        self._made[path] = first + sub.iterations
        return value, StageRecord(
            unit.name,
            path,
            start.turn,
            place.workers,
            tuple(node for node, _ in place.workers_by_node),
            sub.iterations,
            seconds,
            transition,
            moved,
            sub.reason,
            float(value) if isinstance(value, bool | int | float | np.generic) else None,
            recording if self._record is not None else None,
        )

    def _input(self, unit: Unit, path: Path, sub: SubStageRun, first: int) -> StageInput:
        # States that begin anew do so in the first sub-stage of a run of the unit.
        fresh = {k: self._first[id(unit.arguments[k].value)] for k in unit.fresh} if sub.first else {}
        numbers = tuple(self._numbers[id(argument.value)] for argument in unit.arguments)
        local = self._local.get(path, ())
        return StageInput(
            self.environment.names.owner,
            numbers,
            first,
            sub.iterations,
            local,
            fresh,
            _seed(self.seed, path),
            self._record,
        )

    def _move(self, unit: Unit, place: StagePlace) -> int:
        moved = 0
        for argument in unit.arguments:
            if argument.kind == "state":
                key = id(argument.value)
                moved += moved_bytes(argument.nbytes, self._at.get(key), place, self.environment.stages.nodes)
                self._at[key] = place
        return moved

    def _call_loop(self, unit: Unit, sub: SubStageRun, place: StagePlace) -> float:
        """Call a loop of `@st.parallel` once for every iteration; return the seconds of its passes."""
        runtime = self.environment.runtime
        if name_of(runtime) == "threads":
            runtime = replace(runtime, n=place.workers)
        function: Any = unit.function
        loop = self.widths.loop(unit, place.workers, lambda: function.using(runtime=runtime))
        seconds = 0.0
        for _ in range(sub.iterations):
            loop(*(argument.value for argument in unit.arguments))
            seconds += loop.seconds
        return seconds


def _seed(seed: int, path: Path) -> int:
    """A seed for the unit at a path: plain arithmetic, the same in every process."""
    for number in path:
        seed = seed * 1_000_003 + number + 1
    return seed % 2**62


def _first_values(task: Task) -> dict[int, NDArray[Any]]:
    """Copies of the states that some unit starts anew, as they are before the task runs."""
    found: dict[int, NDArray[Any]] = {}
    for unit in task.units():
        for k in unit.fresh:
            state = unit.arguments[k].value
            found.setdefault(id(state), state.array.copy())
    return found
