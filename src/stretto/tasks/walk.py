"""Which units of a task may start next: a state machine over its tree.

    walk = TaskWalk(task)
    for start in walk.begin(): …                 run start.unit
    for start in walk.finished(start.path, value): …
    walk.done                                    nothing is left

A path names a place in the tree: the numbers of the children from the root. The position of a walk is plain data, so
that a checkpoint can hold it: `TaskWalk(task, walk.position())` goes on, and `begin` starts the units that had not
ended.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from stretto.errors import PlanError

from .tree import BranchTask, ParallelTasks, RepeatedTask, SequenceTask, Task, Unit

Path = tuple[int, ...]


@dataclass(frozen=True)
class StartUnit:
    """A unit may start. turn: how often it has ended before at this place of the tree."""

    path: Path
    unit: Unit
    turn: int


class TaskWalk:
    """The progress of one task."""

    def __init__(self, task: Task, position: dict[str, Any] | None = None) -> None:
        self.task = task
        self._running: dict[Path, Unit] = {}
        self._turns: dict[Path, int] = {}  # of units and loops: how often they have ended a turn
        self._values: dict[Path, Any] = {}  # of criteria: the value of the turn before
        self._left: dict[Path, set[int]] = {}  # of parallel tasks: children that have not ended
        self._begun = self.done = False
        if position is not None:
            self._restore(position)

    # -- events -------------------------------------------------------------------------------------------------------

    def begin(self) -> list[StartUnit]:
        """The units that start first, or that had not ended where the walk goes on."""
        if self._begun:
            return [StartUnit(path, unit, self._turns.get(path, 0)) for path, unit in self._running.items()]
        self._begun = True
        return self._enter((), self.task)

    def finished(self, path: Path, value: Any = None) -> list[StartUnit]:
        """A unit has ended with a value; returns the units that may start now."""
        if path not in self._running:
            raise PlanError(f"no unit runs at {path}; please report this")
        del self._running[path]
        self._turns[path] = self._turns.get(path, 0) + 1
        return self._leave(path, value)

    def again(self, path: Path) -> list[StartUnit]:
        """The criterion at a path has ended with a value that does not count; the loop makes another turn."""
        del self._running[path]
        self._turns[path] = self._turns.get(path, 0) + 1
        above = path[:-1]
        loop = self._at(above)
        assert isinstance(loop, RepeatedTask)
        if loop.times is not None and self._turns[above] >= loop.times:
            return self._leave(above, None)
        return self._enter((*above, 0), loop.body)

    def turns(self, path: Path) -> int:
        """Turns that the loop at a path has made since it was entered."""
        return self._turns.get(path, 0)

    @property
    def running(self) -> tuple[Path, ...]:
        """The places of the units that have started and not ended."""
        return tuple(self._running)

    # -- the tree -----------------------------------------------------------------------------------------------------

    def _enter(self, path: Path, task: Task) -> list[StartUnit]:
        if isinstance(task, Unit):
            self._running[path] = task
            return [StartUnit(path, task, self._turns.get(path, 0))]
        if isinstance(task, ParallelTasks):
            self._left[path] = set(range(len(task.tasks)))
            return [start for number, child in enumerate(task.tasks) for start in self._enter((*path, number), child)]
        if isinstance(task, RepeatedTask):
            self._turns[path] = 0
            if task.until is not None:
                self._values.pop((*path, 1), None)
        return self._enter((*path, 0), task.children[0])

    def _leave(self, path: Path, value: Any) -> list[StartUnit]:
        """What follows the end of the task at a path."""
        if not path:
            self.done = True
            return []
        above, number = path[:-1], path[-1]
        parent = self._at(above)
        if isinstance(parent, SequenceTask):
            if number + 1 < len(parent.tasks):
                return self._enter((*above, number + 1), parent.tasks[number + 1])
            return self._leave(above, None)
        if isinstance(parent, ParallelTasks):
            self._left[above].discard(number)
            return [] if self._left[above] else self._leave(above, None)
        if isinstance(parent, BranchTask):
            return self._choose(above, parent, number, value)
        assert isinstance(parent, RepeatedTask)
        return self._turn(above, parent, number, value)

    def _choose(self, path: Path, branch: BranchTask, number: int, value: Any) -> list[StartUnit]:
        if number:
            return self._leave(path, None)
        if branch.condition.holds(value, None):
            return self._enter((*path, 1), branch.then)
        return self._leave(path, None) if branch.otherwise is None else self._enter((*path, 2), branch.otherwise)

    def _turn(self, path: Path, loop: RepeatedTask, number: int, value: Any) -> list[StartUnit]:
        """After the body (number 0) the criterion runs; after the criterion (1) the body, or the loop ends."""
        if number == 0:
            self._turns[path] += 1
            if loop.until is not None:
                return self._enter((*path, 1), loop.until.unit)
        else:
            assert loop.until is not None
            before = self._values.get((*path, 1))
            self._values[(*path, 1)] = value
            if loop.until.holds(value, before):
                return self._leave(path, None)
        if loop.times is not None and self._turns[path] >= loop.times:
            return self._leave(path, None)
        return self._enter((*path, 0), loop.body)

    def _at(self, path: Path) -> Task:
        task = self.task
        for number in path:
            task = task.children[number]
        return task

    # -- checkpoints --------------------------------------------------------------------------------------------------

    def position(self) -> dict[str, Any]:
        """The progress as plain values. Values of criteria must be numbers."""
        return {
            "running": [list(path) for path in self._running],
            "turns": [[list(path), turns] for path, turns in self._turns.items()],
            "values": [[list(path), float(value)] for path, value in self._values.items()],
            "left": [[list(path), sorted(left)] for path, left in self._left.items()],
            "begun": self._begun,
            "done": self.done,
        }

    def _restore(self, position: dict[str, Any]) -> None:
        for path in map(tuple, position["running"]):
            found = self._at(path)
            assert isinstance(found, Unit)
            self._running[path] = found
        self._turns = {tuple(path): turns for path, turns in position["turns"]}
        self._values = {tuple(path): value for path, value in position["values"]}
        self._left = {tuple(path): set(left) for path, left in position["left"]}
        self._begun, self.done = position["begun"], position["done"]
