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

from stretto.consistency.adaptive.knobs import ConsistencyMove
from stretto.errors import PlanError
from stretto.runtime.chosen import name_of
from stretto.runtime.runtimes import Serial, Threads
from stretto.runtime.stages.data_store import release
from stretto.runtime.stages.exchange_choice import with_exchanges
from stretto.runtime.stages.file_blocks import OpenFiles
from stretto.runtime.stages.gate import StageGate
from stretto.runtime.stages.sessions import LocalStages
from stretto.runtime.stages.stage_clock import StageClock
from stretto.runtime.stages.stage_runs import StageLost, StagePlace, StageSession
from stretto.runtime.stages.together import Together
from stretto.state.state import State

from .adaptive.kept_states import KeptStates
from .adaptive.tuning import TaskTuning, TurnEnd
from .files import FileBlocks
from .lifetimes import last_uses, places
from .logical import arguments_of
from .placing import place_of, request_of, width_of
from .plan import TaskPlan
from .reads import UnitReads, reads_of
from .result import StageRecord, TaskResult
from .safe_point import Progress, SafePoints
from .stage import FirstValues, StageInput, stage_run, value_of
from .tree import Task, Unit
from .walk import StartUnit, TaskWalk
from .widths import StageWidths, SubStageRun

OnStage = Callable[[StageRecord], None]
OnMove = Callable[[str, ConsistencyMove], None]  # of the loop with this criterion
Path = tuple[int, ...]


class DataNames:
    """Numbers for the data sets and states of all tasks of a session; an object has the same number in every task."""

    def __init__(self, owner: str) -> None:
        self.owner = owner
        self._known: dict[int, tuple[int, Any]] = {}  # the object is kept: its identity must stay its own
        self._files: dict[int, OpenFiles] = {}  # by number, those that nodes have opened
        self._next = count()

    def number(self, value: Any) -> int:
        """The number of a data set or state."""
        if id(value) not in self._known:
            self._known[id(value)] = next(self._next), value
        return self._known[id(value)][0]

    def opened(self, files: FileBlocks, stages: StageSession) -> OpenFiles:
        """Files whose blocks are known; nodes open theirs once."""
        if files.opened is not None:
            return files.opened
        number = self.number(files)
        if number not in self._files:
            self._files[number] = stages.open_files(files.spec)
        return self._files[number]

    def release(self, number: int | None = None) -> None:
        """Forget a data set; None: all."""
        release(self.owner, number)
        self._files = {} if number is None else {k: v for k, v in self._files.items() if k != number}
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
        return len(self.stages.nodes) * self.stages.threads


@dataclass(frozen=True)
class TaskOptions:
    """How a task runs."""

    seed: int = 0
    record: str | None = None  # "full" keeps what the replay checker needs, "rows" how often rows were sent
    memory: int | None = None  # bytes of a state that a node keeps in memory
    direct: bool = True  # states go from node to node directly
    frees: bool = False  # what no later unit uses is freed on nodes at once: no other task uses it


class TaskRun:
    """A task that runs: its walk, the values of its states, its widths."""

    def __init__(
        self,
        plan: TaskPlan,
        environment: TaskEnvironment,
        *,
        name: str = "task",
        priority: float = 0.0,
        options: TaskOptions | None = None,
        tell: OnStage | None = None,
        on_move: OnMove | None = None,
        safe: SafePoints | None = None,
    ) -> None:
        self.plan, self.environment, self.name, self.priority = plan, environment, name, priority
        self.options = TaskOptions() if options is None else options
        self.widths = StageWidths(lambda: environment.widest, environment.stages.threads, environment.stages.virtual)
        self.records: list[StageRecord] = []
        self._value: Any = None
        self._tell, self._on_move = tell, on_move
        self._clock = StageClock()
        self._stage_numbers = count()
        arguments = arguments_of(plan.task)
        names = environment.names
        self._numbers = {id(a.value): names.number(a.value) for a in arguments}
        self._states: dict[int, State] = {names.number(a.value): a.value.stored for a in arguments if a.kind == "state"}
        self._first = _first_values(plan.task)
        self._order = {path: number for number, (path, _) in enumerate(places(plan.task))}
        self._last_uses = last_uses(plan.task)
        self._reads = {id(unit): self._reads_of(unit) for unit in plan.task.units()}
        self._progress = Progress()
        self._safe = SafePoints(None) if safe is None else safe
        environment.stages.reset(names.owner, self._states)  # the caller may have changed them since an earlier task
        position = self._safe.begin(self._states, self._progress, self.widths, environment.stages)
        self.walk = TaskWalk(plan.task, position)
        stages = environment.stages
        self.tuning = TaskTuning(plan.task, float(environment.runtime.seconds_per_item) if stages.virtual else None)
        self.tuning.restore(self._progress.tuning)
        self._kept_states: KeptStates | None = None

    def _reads_of(self, unit: Unit) -> UnitReads:
        """What a unit reads in blocks. The scheduler gets to know which nodes have it."""
        environment, numbers = self.environment, self._numbers
        found = reads_of(
            unit, lambda value: numbers[id(value)], lambda files: environment.names.opened(files, environment.stages)
        )
        for data in found.held:
            environment.gate.holds(data, found.near)
        return found

    def run(self, asked: Callable[[], bool]) -> TaskResult:
        """Run to the end, or until it is asked to stop, which it does when the stages that run have ended."""
        while True:
            try:
                self._follow(asked)
                self._keep(final=True)
                break
            except StageLost as lost:
                self._go_back(lost)
        stopped = "done" if self.walk.done else "interrupted"
        widths, moves = self.widths.memory.to_dict(), tuple(self.tuning.moves)
        return TaskResult(self._value, tuple(self.records), stopped, self.plan, widths, moves)

    def _follow(self, asked: Callable[[], bool]) -> None:
        together = Together()
        self._start(self.walk.begin(), asked, together)
        while together.running:
            start, ended = together.next()
            if not ended:  # it was asked to stop in the middle of the unit
                continue
            self._progress.in_unit.pop(start.path, None)
            follow = self._after(start)
            if not together.running:  # no other unit is in the middle of its stages
                self._keep()
            if self.options.frees:
                self._free()
            if not asked():
                self._start(follow, asked, together)

    def _free(self) -> None:
        """Free what no later unit uses: data on nodes, and states, whose values come to the driver first."""
        running = [self._order[path] for path in self.walk.running]
        if not running:  # the task has ended, and with it everything is freed
            return
        environment, gone = self.environment, [key for key, last in self._last_uses.items() if last < min(running)]
        for key in gone:
            del self._last_uses[key]
            number, owner = self._numbers[key], environment.names.owner
            if number in self._states:
                environment.stages.collect(owner, {number: self._states[number]})
                environment.stages.release(owner, number)
            else:
                release(owner, number)
                environment.stages.release_data(owner, number)

    def _start(self, units: list[StartUnit], asked: Callable[[], bool], together: Together) -> None:
        for start in units:
            if self.tuning.keeps(start):
                self._kept_states = KeptStates.of(self._states, self._progress, self.environment)
            together.start(start, partial(self._unit, start, asked, together))

    def _after(self, start: StartUnit) -> list[StartUnit]:
        """What follows a unit. After the criterion of an adaptive loop its controller may change settings."""
        end: TurnEnd | None = self.tuning.ended(start, self._value, self.walk.turns(start.path[:-1]) == 1)
        if end is None:
            return self.walk.finished(start.path, self._value)
        for move in end.moves:
            if self._on_move is not None:
                self._on_move(end.loop, move)
        self._progress.tuning = self.tuning.to_dict()
        if end.undo and self._kept_states is not None:
            self._kept_states.restore(self._states, self._progress, self.environment)
        return self.walk.again(start.path) if end.repeat else self.walk.finished(start.path, self._value)

    def _keep(self, *, final: bool = False) -> None:
        """Collect the states if that is due, so that the task can go back to here, or be resumed."""
        if final or self._safe.due(len(self.records), self._progress.iterations):
            self._safe.keep(
                self.walk.position(), self._states, self._progress, self.widths, self.environment, len(self.records)
            )

    def _go_back(self, lost: StageLost) -> None:
        """Return to the last values of the states."""
        position, records = self._safe.restore(self._progress, lost)
        del self.records[records:]
        self.environment.stages.reset(self.environment.names.owner, self._states)
        self.walk = TaskWalk(self.plan.task, position)
        self._last_uses = last_uses(self.plan.task)
        self.tuning.clear()
        self.tuning.restore(self._progress.tuning)

    # -- one unit -----------------------------------------------------------------------------------------------------

    def _unit(self, start: StartUnit, asked: Callable[[], bool], together: Together) -> bool:
        """Run a unit; False if it was asked to stop before its end."""
        unit, path = start.unit, start.path
        done = self._progress.in_unit.get(path, 0)
        before: tuple[int, ...] = ()  # nodes of the stage before, which hold the states
        for sub in self.widths.sub_stages(unit, f"{unit.name} at {path}", done):
            left, sub.seconds = sub.iterations, 0.0
            while left:
                some = min(left, self._safe.most(path))
                with self._workers(unit, sub, before) as place:
                    now = replace(sub, iterations=some)
                    self._value, record = self._stage(start, now, place, unit.iterations - done)
                before = place.nodes
                left, done = left - some, done + some
                sub.seconds += record.seconds
                self._progress.in_unit[path] = done
                self._safe.measured(path, record.seconds / some)
                self.records.append(record)
                if self._tell is not None:
                    self._tell(record)
                self._clock.ended()
                if done < unit.iterations and together.running <= 1:  # no other unit runs
                    self._keep()
                    if asked():
                        return False
                sub.first = False
        return True

    @contextmanager
    def _workers(self, unit: Unit, sub: SubStageRun, before: tuple[int, ...]) -> Iterator[StagePlace]:
        """Wait for workers, and give them back at the end."""
        stage = f"{unit.name} {next(self._stage_numbers)}"
        width = width_of(unit, self.environment.widest, sub.width, self.environment.stages.threads)
        most = self.environment.stages.threads
        request = request_of(unit, self.name, stage, width, self.priority, self._reads[id(unit)], most, before)
        assignment = self.environment.gate.enter(request)
        try:
            yield place_of(assignment)
        finally:
            self.environment.gate.leave(request)

    def _stage(self, start: StartUnit, sub: SubStageRun, place: StagePlace, left: int) -> tuple[Any, StageRecord]:
        """Run a stage. left: iterations of the unit from here to its end."""
        unit, path, stages, progress = start.unit, start.path, self.environment.stages, self._progress
        first = progress.made.get(path, 0)
        recording, moved, how, sent, items = None, 0, "", 0, 0.0
        staleness: tuple[int, ...] = ()
        tuned, why = self.tuning.unit(unit, path), self.tuning.reason(path)
        transition = 0.0 if stages.virtual else self._clock.between()
        if unit.is_loop:
            value, seconds = None, self._call_loop(tuned, sub, place)
        else:
            where: Any = self.environment.runtime
            if unit.mode is not None:
                where = Serial() if unit.mode == "sequential" else self._one_process(unit, place)
            given = self._input(unit, path, sub, first, last=left == sub.iterations)
            stage = with_exchanges(replace(stage_run(tuned, given, where), expected=left), place, where)
            if unit.mode == "sequential":
                with self._at_driver(unit):
                    end = LocalStages(where).run(stage, place)
            else:
                end = stages.run(stage, place)
            outcome, transition, moved, how = end.outcome, transition + end.around, end.moved, end.preparation
            seconds, value = outcome.seconds, value_of(unit, outcome)
            recording, items, staleness = outcome.recording, outcome.items, _behind(outcome.staleness)
            sent = sum(pair.nbytes for pair in outcome.traffic if pair.source != pair.target)
            progress.local[path] = outcome.local
        progress.made[path] = first + sub.iterations
        progress.iterations += sub.iterations
        record = StageRecord(
            unit.name,
            path,
            start.turn,
            place.workers,
            place.nodes,
            sub.iterations,
            seconds,
            transition,
            moved,
            f"{sub.reason}; {why}" if why else sub.reason,
            float(value) if isinstance(value, bool | int | float | np.generic) else None,
            how,
            sent,
            recording if self.options.record is not None else None,
            staleness,
        )
        self.tuning.measured(record, items)
        return value, record

    def _input(self, unit: Unit, path: Path, sub: SubStageRun, first: int, *, last: bool) -> StageInput:
        # States that begin anew do so in the first sub-stage of a run of the unit.
        fresh = {k: self._first[id(unit.arguments[k].value)] for k in unit.fresh} if sub.first else {}
        numbers = tuple(self._numbers[id(argument.value)] for argument in unit.arguments)
        local = self._progress.local.get(path, ())
        options = self.options
        return StageInput(
            self.environment.names.owner,
            numbers,
            first,
            sub.iterations,
            local,
            fresh,
            _seed(options.seed, path),
            options.record,
            options.memory,
            options.direct,
            self._reads[id(unit)],
            last,
        )

    def _one_process(self, unit: Unit, place: StagePlace) -> Any:
        """The runtime of a stage whose states are one array."""
        if place.single is None or self.environment.stages.virtual:
            raise PlanError(
                f"unit {unit.name}: mode={unit.mode!r} is memory of one process, and its {place.workers} workers are "
                f"on {len(place.nodes)} {'simulated ' if self.environment.stages.virtual else ''}nodes; give it fewer "
                "workers, or leave out mode="
            )
        return Threads(place.workers)

    @contextmanager
    def _at_driver(self, unit: Unit) -> Iterator[None]:
        """Have the states of a unit in this process, and use them from here afterwards."""
        stages, owner = self.environment.stages, self.environment.names.owner
        mine = {self._numbers[id(a.value)]: a.value.stored for a in unit.arguments if a.kind == "state"}
        stages.collect(owner, mine)
        yield
        stages.reset(owner, mine)

    def _call_loop(self, unit: Unit, sub: SubStageRun, place: StagePlace) -> float:
        """Call a loop of `@st.parallel` once for every iteration; return the seconds of its passes."""
        runtime = self.environment.runtime
        if name_of(runtime) == "threads":
            runtime = replace(runtime, n=place.workers)
        function: Any = unit.function
        loop = self.widths.loop(unit, place.workers, lambda: function.using(runtime=runtime))
        seconds = 0.0
        with self._at_driver(unit):
            for _ in range(sub.iterations):
                loop(*(argument.value for argument in unit.arguments))
                seconds += loop.seconds
        return seconds


def _behind(staleness: NDArray[np.int64] | None) -> tuple[int, ...]:
    """Rows read by all workers that were 0, 1, … clocks behind their reader, up to the last that is not 0."""
    if staleness is None or not staleness.any():
        return ()
    total = staleness.sum(axis=0)
    return tuple(total[: np.flatnonzero(total)[-1] + 1].tolist())


def _seed(seed: int, path: Path) -> int:
    """A seed for the unit at a path: plain arithmetic, the same in every process."""
    for number in path:
        seed = seed * 1_000_003 + number + 1
    return seed % 2**62


def _first_values(task: Task) -> dict[int, FirstValues]:
    """The values of the states that some unit starts anew, as they are before the task runs."""
    found: dict[int, FirstValues] = {}
    for unit in task.units():
        for k in unit.fresh:
            state = unit.arguments[k].value
            if id(state) not in found:
                found[id(state)] = FirstValues.of(state.stored.array)
    return found
