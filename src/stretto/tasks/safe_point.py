"""Safe points of a task: values of all states to go back to when a node is lost, and checkpoints to resume from.

On a cluster the nodes hold the fresh values of states. From time to time, when no stage runs, the driver collects them.
If a node is lost, the task goes back there and repeats the stages since; under BSP it ends with the same bits. With a
folder every safe point is a checkpoint. A unit of many iterations is divided into stages so that safe points can lie
between them.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, Protocol

from numpy.typing import NDArray

from stretto.runtime.stages.stage_clock import SafePointTimer
from stretto.runtime.stages.stage_runs import StageLost, StageSession
from stretto.state.state import State

from .saving import TaskCheckpoints
from .widths import StageWidths

Path = tuple[int, ...]
Local = dict[Path, tuple[dict[str, Any], ...]]
_NO_LIMIT = 2**62
_FIRST = 10  # iterations of the first stage of a unit whose speed is not known, where safe points are due by time


@dataclass(eq=False)
class Progress:
    """How far a task is, besides its place in the tree."""

    made: dict[Path, int] = field(default_factory=dict)  # by path: iterations so far, over all turns
    local: Local = field(default_factory=dict)  # by path: what the parts kept
    in_unit: dict[Path, int] = field(default_factory=dict)  # by path: iterations of a unit that has not ended
    iterations: int = 0  # of all units
    tuning: dict[str, Any] = field(default_factory=dict)  # by loop: what its adaptive controller knows

    def copy(self) -> Progress:
        """A copy that later iterations do not change."""
        return Progress(
            dict(self.made), deepcopy(self.local), dict(self.in_unit), self.iterations, deepcopy(self.tuning)
        )

    def become(self, other: Progress) -> None:
        """Go back to a copy."""
        mine = other.copy()
        self.made, self.local, self.in_unit, self.iterations = mine.made, mine.local, mine.in_unit, mine.iterations
        self.tuning = mine.tuning


@dataclass(frozen=True, eq=False)
class _SafePoint:
    position: dict[str, Any] | None  # in the tree; None at the start
    values: dict[int, NDArray[Any]]  # by state
    progress: Progress
    records: int  # stages so far


class Collecting(Protocol):
    """What a safe point needs of the environment of a task."""

    @property
    def stages(self) -> StageSession: ...
    @property
    def names(self) -> Any: ...


class SafePoints:
    """The safe points of one task. checkpoints: where they are saved; None: in memory only, if nodes can fail."""

    def __init__(self, checkpoints: TaskCheckpoints | None) -> None:
        self._checkpoints = checkpoints
        self._timer: SafePointTimer | None = None  # where nodes can fail
        self._last: _SafePoint | None = None
        self._states: Mapping[int, State] = {}
        self._kept_at = (0, 0)  # stages and iterations at the last safe point
        self._seconds: dict[Path, float] = {}  # by path: of an iteration

    def begin(
        self, states: Mapping[int, State], progress: Progress, widths: StageWidths, stages: StageSession
    ) -> dict[str, Any] | None:
        """The task begins, with its states as they are or as in the newest checkpoint; returns its place in it."""
        self._states = states
        position = None
        if self._checkpoints is not None and self._checkpoints.resume:
            position = self._checkpoints.restore(states, progress, widths)
        self._kept_at = 0, progress.iterations
        if stages.fallible:
            self._timer = SafePointTimer(len(stages.nodes))
            self._remember(position, progress, 0)
        return position

    # -- when ---------------------------------------------------------------------------------------------------------

    def due(self, stages: int, iterations: int) -> bool:
        """Whether a safe point is due after this many stages and iterations."""
        timed = self._timer is not None and self._timer.left() <= 0
        before_stages, before = self._kept_at
        return timed or (
            self._checkpoints is not None and self._checkpoints.due(stages - before_stages, iterations - before)
        )

    def most(self, path: Path) -> int:
        """Iterations of the next stage of a unit at most, so that it ends when the next safe point is due."""
        left = [] if self._timer is None else [self._timer.left()]
        if self._checkpoints is not None:
            seconds = self._checkpoints.seconds_left()
            left += [] if seconds is None else [seconds]
        by_time = _NO_LIMIT
        if left:
            each = self._seconds.get(path)
            by_time = _FIRST if each is None else max(1, int(min(left) / max(each, 1e-9)))
        by_count = _NO_LIMIT if self._checkpoints is None else self._checkpoints.iterations or _NO_LIMIT
        return min(by_time, by_count)

    def measured(self, path: Path, seconds: float) -> None:
        """An iteration of a unit took this long."""
        self._seconds[path] = seconds

    # -- keeping and going back ---------------------------------------------------------------------------------------

    def keep(
        self,
        position: dict[str, Any],
        states: Mapping[int, State],
        progress: Progress,
        widths: StageWidths,
        environment: Collecting,
        records: int,
    ) -> None:
        """Collect the states; no stage runs."""
        if self._timer is not None:
            self._timer.begin()
        environment.stages.collect(environment.names.owner, states)
        if self._timer is not None:
            self._remember(position, progress, records)
            self._timer.end()
        if self._checkpoints is not None:
            self._checkpoints.save(position, states, progress, widths)
        self._kept_at = records, progress.iterations

    def restore(self, progress: Progress, lost: StageLost) -> tuple[dict[str, Any] | None, int]:
        """Go back to the last safe point; returns the place in the tree and how many stages ran before it."""
        if self._last is None:
            raise lost
        for number, values in self._last.values.items():
            self._states[number].array[...] = values
        progress.become(self._last.progress)
        return self._last.position, self._last.records

    def _remember(self, position: dict[str, Any] | None, progress: Progress, records: int) -> None:
        values = {number: state.array.copy() for number, state in self._states.items()}
        self._last = _SafePoint(deepcopy(position), values, progress.copy(), records)
