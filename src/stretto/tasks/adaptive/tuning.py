"""`TaskTuning`: the loops of a task with sync="adaptive", and the settings that their units run with.

Every turn of such a loop is a window of its controller; where times are measured and turns are short, several turns
are. The value of the loop's criterion is the objective. A unit runs with the settings that the controller says: its
consistency rule, and the numbers that it exposes with `st.knob`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from stretto.consistency.adaptive.controller import AdaptiveController
from stretto.consistency.adaptive.knobs import ConsistencyMove, KnobLadder, Window, rule_of, staleness_knob
from stretto.errors import RunError
from stretto.tasks.arguments import Argument
from stretto.tasks.result import StageRecord
from stretto.tasks.tree import RepeatedTask, Task, Unit
from stretto.tasks.walk import Path, StartUnit

from .replica_knobs import ReplicaKey, replica_ladders, tuned_rules
from .syncing import adaptive_loops

_LEAST = 0.02  # seconds of a window, where they are measured: below, what a stage costs varies too much


@dataclass(frozen=True)
class TurnEnd:
    """What the end of a turn of an adaptive loop asks for."""

    loop: str  # name of the criterion, which names the loop in events
    moves: tuple[ConsistencyMove, ...]
    undo: bool  # the states should become what they were at the last `keep`
    repeat: bool  # the criterion does not count: the loop makes another turn


class _Loop:
    """One adaptive loop: its controller, and the window that runs."""

    def __init__(self, path: Path, loop: RepeatedTask, units: list[tuple[Path, Unit]], least: float) -> None:
        self.path, self.least = path, least
        assert loop.until is not None
        self.until = loop.until
        self.staleness: dict[Path, str] = {}  # by unit: its knob
        self.numbers: dict[int, str] = {}  # by identity of an st.knob: its knob
        self.replicas: dict[tuple[Path, ReplicaKey], str] = {}  # by unit, argument and what: its knob
        self.controller = AdaptiveController(
            self._ladders(units), bound=loop.until.bound if loop.until.kind == "below" else None
        )
        self.inside = {place for place, _ in units}
        self.objective: float | None = None  # at the start of the window
        self.clear()

    def clear(self) -> None:
        """Begin to measure a window."""
        self.seconds = self.busy = self.capacity = 0.0
        self.nbytes = 0

    def _ladders(self, units: list[tuple[Path, Unit]]) -> list[KnobLadder]:
        found: list[KnobLadder] = []

        def named(name: str) -> str:
            taken = {ladder.name for ladder in found}
            return next(n for n in (name, *(f"{name} {k}" for k in range(2, 1000))) if n not in taken)

        tuned = [(place, unit) for place, unit in units if unit.tuned and unit.iterations > 1]
        for place, unit in tuned:
            name = named("staleness" if len(tuned) == 1 else f"staleness of {unit.name}")
            self.staleness[place] = name
            found.append(staleness_knob(unit.iterations, name))
        for place, unit in tuned:
            for key, ladder in replica_ladders(unit):
                self.replicas[place, key] = named(ladder.name)
                found.append(replace(ladder, name=self.replicas[place, key]))
        for _, unit in units:
            for argument in unit.arguments:
                if argument.kind == "knob" and id(argument.value) not in self.numbers:
                    name = named(argument.value.ladder.name or argument.name)
                    self.numbers[id(argument.value)] = name
                    found.append(replace(argument.value.ladder, name=name))
        return found

    def measure(self, record: StageRecord, busy: float) -> None:
        """A stage of the window has ended. busy: seconds that its workers computed; 0 if that is not known."""
        self.seconds += record.seconds + record.transition
        self.nbytes += record.sent + record.moved
        if record.path in self.staleness:
            self.busy += busy
            self.capacity += record.worker_seconds

    def turn(self, value: float, first: bool) -> TurnEnd | None:
        """A turn has ended; None if its window goes on."""
        if first:  # of a run of the loop: where the objective came from is not known
            self.objective = None
        if math.isfinite(value) and self.seconds < self.least:
            return None
        waited = 1 - self.busy / self.capacity if self.busy > 0 else None
        trying = self.controller.trying
        moves = tuple(self.controller.measured(Window(self.objective, value, self.seconds, self.nbytes, waited)))
        undo = self.controller.undo and bool(moves)
        if not undo:
            self.objective = value
        self.clear()
        # A slow trial says nothing about whether the run as a whole makes no progress any more.
        return TurnEnd(self.until.unit.name, moves, undo, undo or (trying and self.until.kind == "stalls"))


class TaskTuning:
    """The adaptive loops of one task. item: seconds that computing one item takes, where time is virtual."""

    def __init__(self, task: Task, item: float | None) -> None:
        least = _LEAST if item is None else 0.0
        self._item = item
        self._loops = {path: _Loop(path, loop, units, least) for path, loop, units in adaptive_loops(task)}
        self._of = {place: loop for loop in self._loops.values() for place in loop.inside}
        self.moves: list[ConsistencyMove] = []

    def unit(self, unit: Unit, path: Path) -> Unit:
        """A unit as it runs now: with its rule, and numbers in place of knobs."""
        loop = self._of.get(path)
        settings = {} if loop is None else loop.controller.settings
        arguments = tuple(
            Argument("value", self._number(argument.value, loop, settings), argument.name)
            if argument.kind == "knob"
            else argument
            for argument in unit.arguments
        )
        rule = unit.sync
        if loop is not None and path in loop.staleness:
            rule = rule_of(settings[loop.staleness[path]])
        replicas = {} if loop is None else {key: settings[n] for (at, key), n in loop.replicas.items() if at == path}
        return replace(unit, sync=rule, arguments=arguments, rules=tuned_rules(unit, replicas))

    def _number(self, knob: Any, loop: _Loop | None, settings: Mapping[str, float]) -> float | int:
        value: float | int = knob.initial if loop is None else knob.setting(settings[loop.numbers[id(knob)]])
        return value

    def reason(self, path: Path) -> str:
        """Why a unit has its settings; "" where nothing is tuned."""
        loop = self._of.get(path)
        return "" if loop is None else loop.controller.reason

    def measured(self, record: StageRecord, items: float) -> None:
        """A stage has ended; its workers reported this many items."""
        busy = 0.0 if self._item is None else items * self._item
        for loop in self._loops.values():
            if record.path[: len(loop.path)] == loop.path:
                loop.measure(record, busy)

    def keeps(self, start: StartUnit) -> bool:
        """Whether states should be kept before a unit, to return to them if the window that it begins diverges."""
        loop = self._of.get(start.path)
        return loop is not None and loop.seconds == 0.0 and (loop.controller.trying or loop.controller.windows == 0)

    def ended(self, start: StartUnit, value: Any, first: bool) -> TurnEnd | None:
        """A unit has ended. If it is the criterion of an adaptive loop, a turn has. first: of a run of the loop."""
        loop = self._loops.get(start.path[:-1]) if start.path and start.path[-1] == 1 else None
        if loop is None:
            return None
        end = loop.turn(float(value), first)
        if end is not None:
            self.moves.extend(end.moves)
            if not end.undo and not math.isfinite(float(value)):
                raise RunError(
                    f"criterion {loop.until.unit.name}: its value is {float(value)}; the task has diverged, and no "
                    "knob of the loop has a lower setting: expose the step size with st.knob, or choose a smaller one"
                )
        return end

    def clear(self) -> None:
        """The task goes back: what was measured of windows no longer holds."""
        for loop in self._loops.values():
            loop.clear()
            loop.objective = None

    def to_dict(self) -> dict[str, Any]:
        """The controllers as plain values, by the path of their loop."""
        return {"/".join(map(str, path)): loop.controller.to_dict() for path, loop in self._loops.items()}

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Go on from `to_dict`."""
        for path, loop in self._loops.items():
            if (found := saved.get("/".join(map(str, path)))) is not None:
                loop.controller.restore(found)
